//! Lets requests in until it is closed; closing waits until the last one is out. So a stopping OST syncs after all that it
//! answered, and gives its directory back with nobody in it.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::sync::Notify;

/// Set once closed; the rest counts who is inside.
const CLOSED: u64 = 1 << 63;

/// See the module.
#[derive(Default)]
pub struct Gate {
    state: AtomicU64,
    empty: Notify,
}

/// Somebody inside.
pub struct Pass<'a>(&'a Gate);

impl Gate {
    /// Goes in; `None` once the gate is closed.
    pub fn enter(&self) -> Option<Pass<'_>> {
        let pass = Pass(self);
        let before = self.state.fetch_add(1, SeqCst);
        (before & CLOSED == 0).then_some(pass) // a refused pass is dropped, which counts it out again
    }

    /// Lets nobody in any more, and answers when nobody is inside.
    pub async fn close(&self) {
        self.state.fetch_or(CLOSED, SeqCst);
        loop {
            let empty = self.empty.notified(); // registered before the look, so that no notice is missed
            if self.state.load(SeqCst) == CLOSED {
                return;
            }
            empty.await;
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.0.state.fetch_sub(1, SeqCst) == CLOSED + 1 {
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
