//! Lets requests in until it is shut; closing waits until the last one is out. So a target that
//! goes answers all that it let in, and a stopping service finishes what it began.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use tokio::sync::Notify;

/// Set once shut; the rest counts who is inside.
const SHUT: u64 = 1 << 63;

/// See the module. Clones are the same gate.
#[derive(Clone, Default)]
pub struct Gate(Arc<State>);

#[derive(Default)]
struct State {
    inside: AtomicU64,
    empty: Notify,
}

/// Somebody inside, until it is dropped.
pub struct Pass(Arc<State>);

impl Gate {
    /// Goes in; `None` once the gate is shut.
    pub fn enter(&self) -> Option<Pass> {
        let pass = Pass(self.0.clone());
        let before = self.0.inside.fetch_add(1, SeqCst);
        (before & SHUT == 0).then_some(pass) // a refused pass is dropped, which counts it out again
    }

    /// Lets nobody in any more.
    pub fn shut(&self) {
        self.0.inside.fetch_or(SHUT, SeqCst);
    }

    /// Lets nobody in any more, and answers when nobody is inside. Fine to call twice.
    pub async fn close(&self) {
        self.shut();
        loop {
            let empty = self.0.empty.notified(); // registered before the look, so that no notice is missed
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
    fn closes_when_the_last_one_is_out() {
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
