//! A gate admits requests until it is shut. Closing it waits until the last admitted one has left.
//! So a target that is removed replies to all requests that it admitted, and a stopping service
//! completes them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use tokio::sync::Notify;

/// Set once the gate is shut. The other bits count the passes.
const SHUT: u64 = 1 << 63;

/// See the module. Clones share one gate.
#[derive(Clone, Default)]
pub struct Gate(Arc<State>);

#[derive(Default)]
struct State {
    inside: AtomicU64,
    empty: Notify,
}

/// Permission to be inside the gate, until it is dropped.
pub struct Pass(Arc<State>);

impl Gate {
    /// Enters the gate. `None`: it is shut.
    pub fn enter(&self) -> Option<Pass> {
        let pass = Pass(self.0.clone());
        let before = self.0.inside.fetch_add(1, SeqCst);
        (before & SHUT == 0).then_some(pass) // a refused pass is dropped, which counts it out again
    }

    /// Shuts the gate: there are no new passes.
    pub fn shut(&self) {
        self.0.inside.fetch_or(SHUT, SeqCst);
    }

    /// Shuts the gate and waits until no pass is left. A second call is harmless.
    pub async fn close(&self) {
        self.shut();
        loop {
            let empty = self.0.empty.notified(); // registered before the check, so that no notice is missed
            if self.0.inside.load(SeqCst) == SHUT {
                return;
            }
            empty.await;
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.0.inside.fetch_sub(1, SeqCst) == SHUT + 1 {
            self.0.empty.notify_waiters();
        }
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
