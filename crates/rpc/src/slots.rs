//! Slots: a limit of requests in flight. It can be changed at any time. An import has one set of
//! slots for all of its requests. Users of the import may add a lower limit for some requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sheen_wire::Errno;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};

/// Slots for requests. Waiters get them in the order of arrival.
#[derive(Debug)]
pub struct Slots {
    semaphore: Semaphore,
    limit: Mutex<usize>,
    /// Number of slots in use that vanish when they are released, because the limit was lowered.
    debt: AtomicUsize,
    used: AtomicUsize,
    used_max: AtomicUsize,
}

/// One slot, until it is dropped.
#[derive(Debug)]
pub struct Slot<'a> {
    slots: &'a Slots,
    permit: Option<SemaphorePermit<'a>>,
}

impl Slots {
    /// Creates `limit` slots.
    pub fn new(limit: usize) -> Slots {
        Slots {
            semaphore: Semaphore::new(limit),
            limit: Mutex::new(limit),
            debt: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            used_max: AtomicUsize::new(0),
        }
    }

    /// Waits for a free slot; returns at once if there is one.
    ///
    /// # Errors
    /// ESHUTDOWN after [`Slots::close`].
    pub async fn acquire(&self) -> sheen_wire::Result<Slot<'_>> {
        let permit = match self.semaphore.try_acquire() {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits) => self.semaphore.acquire().await.map_err(|_| Errno::ESHUTDOWN)?,
            Err(TryAcquireError::Closed) => return Err(Errno::ESHUTDOWN),
        };
        let used = self.used.fetch_add(1, Ordering::Relaxed) + 1;
        self.used_max.fetch_max(used, Ordering::Relaxed);
        Ok(Slot { slots: self, permit: Some(permit) })
    }

    /// Changes the limit. Requests under way beyond the new limit continue.
    pub fn set_limit(&self, limit: usize) {
        let mut now = self.limit.lock();
        if limit > *now {
            let more = limit - *now;
            let forgiven = self.pay(more);
            self.semaphore.add_permits(more - forgiven);
        } else {
            let fewer = *now - limit;
            let free = self.semaphore.forget_permits(fewer);
            self.debt.fetch_add(fewer - free, Ordering::AcqRel);
        }
        *now = limit;
    }

    /// Lowers the debt by up to `n`; returns by how much.
    fn pay(&self, n: usize) -> usize {
        let paid = self.debt.fetch_update(Ordering::AcqRel, Ordering::Acquire, |d| (d > 0).then(|| d - d.min(n)));
        paid.map_or(0, |before| before.min(n))
    }

    /// Returns the number of slots.
    pub fn limit(&self) -> usize {
        *self.limit.lock()
    }

    /// Returns the number of slots in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of slots that were ever in use at a time.
    pub fn used_max(&self) -> usize {
        self.used_max.load(Ordering::Relaxed)
    }

    /// Refuses all waiting and later requests for a slot.
    pub fn close(&self) {
        self.semaphore.close();
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.slots.used.fetch_sub(1, Ordering::Relaxed);
        let owed = self.slots.debt.load(Ordering::Acquire) > 0 && self.slots.pay(1) == 1;
        if let Some(permit) = self.permit.take().filter(|_| owed) {
            permit.forget();
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

    fn now<F: Future>(f: F) -> Option<F::Output> {
        match pin!(f).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(out) => Some(out),
            Poll::Pending => None,
        }
    }

    #[test]
    fn slot_limit_changes_apply_while_slots_are_in_use() {
        let slots = Slots::new(2);
        let a = now(slots.acquire()).unwrap().unwrap();
        let b = now(slots.acquire()).unwrap().unwrap();
        assert!(now(slots.acquire()).is_none());
        slots.set_limit(1);
        drop(a);
        assert!(now(slots.acquire()).is_none(), "the released slot has vanished");
        slots.set_limit(3);
        let c = now(slots.acquire()).unwrap().unwrap();
        let d = now(slots.acquire()).unwrap().unwrap();
        assert!(now(slots.acquire()).is_none());
        slots.set_limit(1);
        slots.set_limit(2);
        drop((b, c));
        let e = now(slots.acquire()).unwrap().unwrap();
        assert!(now(slots.acquire()).is_none());
        assert_eq!((slots.used(), slots.used_max(), slots.limit()), (2, 3, 2));
        drop((d, e));
        slots.close();
        assert_eq!(now(slots.acquire()).unwrap().err(), Some(Errno::ESHUTDOWN));
    }
}
