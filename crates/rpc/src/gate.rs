//! A gate admits requests until it is shut. Closing it waits until the last admitted one has left.
//! So a target that is removed replies to all requests that it admitted, and a stopping service
//! completes them.

use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

/// See the module. Clones share one gate.
#[derive(Clone, Default)]
pub struct Gate(TaskTracker);

/// Permission to be inside the gate, until it is dropped.
pub struct Pass {
    _token: TaskTrackerToken,
}

impl Gate {
    /// Enters the gate. `None`: it is shut.
    pub fn enter(&self) -> Option<Pass> {
        // Counted before the check, so that [`Gate::close`] waits for every pass that is admitted.
        let pass = Pass { _token: self.0.token() };
        (!self.0.is_closed()).then_some(pass)
    }

    /// Shuts the gate: there are no new passes.
    pub fn shut(&self) {
        self.0.close();
    }

    /// Shuts the gate and waits until no pass is left. A second call is harmless.
    pub async fn close(&self) {
        self.shut();
        self.0.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    #[test]
    fn gate_close_waits_for_the_last_pass() {
        let gate = Gate::default();
        let (a, b) = (gate.enter(), gate.enter());
        assert!(a.is_some() && b.is_some());
        let mut close = pin!(gate.close());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(close.as_mut().poll(cx).is_pending());
        assert!(gate.enter().is_none());
        drop(a);
        assert!(close.as_mut().poll(cx).is_pending());
        drop(b);
        assert_eq!(close.as_mut().poll(cx), Poll::Ready(()));
        assert!(gate.enter().is_none());
        assert_eq!(pin!(gate.close()).poll(cx), Poll::Ready(()), "closing twice is fine");
    }
}
