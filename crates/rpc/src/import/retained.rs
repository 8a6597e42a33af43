//! Changes that the target has answered, retained until it reports them as committed.
//!
//! A restarted target may have lost them. Then the client replays them
//! ([`super::Recovering::retained`]). They are recorded by the task that reads the connection, in
//! the order of arrival. So when the connection ends, every change whose reply has arrived is here.
//!
//! Bounds: [`CHANGES_MAX`] changes, [`Protocol::RETAINED_BYTES_MAX`] bytes, and a budget for
//! several imports. Beyond that the earliest are dropped.
//!
//! [`Protocol::RETAINED_BYTES_MAX`]: sheen_wire::Protocol::RETAINED_BYTES_MAX

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use sheen_lnet::Frame;
use sheen_wire::{Bulk, Time, frame::Header};

use super::budget::RetainedBudget;

/// Maximum number of retained changes of one target.
const CHANGES_MAX: usize = 262_144;

/// A change that the target has answered, as encoded messages.
#[derive(Clone, Debug)]
pub struct RetainedChange {
    /// Its transno.
    pub transno: u64,
    /// The request, without its job.
    pub request: Bytes,
    /// The file data of the request.
    pub bulk: Bulk,
    /// The reply.
    pub reply: Bytes,
    /// When the reply arrived, by this host's clock.
    pub at: Time,
}

impl RetainedChange {
    /// Copies a request and its reply, which arrived at `at`. `None`: the request changed nothing,
    /// or the change is committed.
    ///
    /// The file data is copied: a request of the kernel may be answered only when its memory is
    /// free again. Also, little data may lie in a large buffer.
    pub(super) fn of(header: &Header, request: &Frame, reply: &Bytes, at: Time) -> Option<RetainedChange> {
        let transno = header.transno;
        if header.status != 0 || transno <= header.last_committed {
            return None;
        }
        let mut data = Vec::with_capacity(request.bulk.len());
        request.bulk.segments().iter().for_each(|segment| data.extend_from_slice(segment));
        let without_job = request.body.len().saturating_sub(request.header.job_len.into());
        let (request, reply) = (request.body.slice(..without_job), Bytes::copy_from_slice(reply));
        Some(RetainedChange { transno, request, bulk: Bytes::from(data).into(), reply, at })
    }

    fn bytes(&self) -> usize {
        self.request.len() + self.bulk.len() + self.reply.len()
    }
}

/// The retained changes of one target, by transno.
#[derive(Default)]
pub(super) struct Retained {
    changes: BTreeMap<u64, RetainedChange>,
    bytes: usize,
    /// Highest transno of a change that was dropped because of the bounds.
    dropped: u64,
    /// Includes `bytes`.
    budget: Arc<RetainedBudget>,
}

impl Retained {
    /// Retains nothing yet.
    pub(super) fn new(budget: Arc<RetainedBudget>) -> Retained {
        Retained { changes: BTreeMap::new(), bytes: 0, dropped: 0, budget }
    }

    /// Retains a change.
    pub(super) fn insert(&mut self, change: RetainedChange, bytes_max: usize) {
        self.bytes += change.bytes();
        self.budget.add(change.bytes());
        if let Some(same) = self.changes.insert(change.transno, change) {
            self.freed(&same);
        }
        while self.changes.len() > CHANGES_MAX || self.bytes > bytes_max || self.budget.is_exceeded() {
            let Some((transno, change)) = self.changes.pop_first() else { return };
            self.freed(&change);
            self.dropped = self.dropped.max(transno);
        }
    }

    /// Drops the changes up to this transno: they are committed.
    pub(super) fn committed(&mut self, last: u64) {
        while let Some(first) = self.changes.first_entry().filter(|first| *first.key() <= last) {
            let change = first.remove();
            self.freed(&change);
        }
    }

    fn freed(&mut self, change: &RetainedChange) {
        self.bytes -= change.bytes();
        self.budget.sub(change.bytes());
    }

    /// Returns all changes in order of transno.
    pub(super) fn all(&self) -> Vec<RetainedChange> {
        self.changes.values().cloned().collect()
    }

    /// Returns the bytes of all changes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the highest transno of a change that is not retained because of the bounds.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Drops one change.
    pub(super) fn remove(&mut self, transno: u64) {
        if let Some(change) = self.changes.remove(&transno) {
            self.freed(&change);
        }
    }

    /// Whether the changes use more than a half of `bytes_max`, or a part of a budget of which more
    /// than a half is used.
    pub(super) fn are_many(&self, bytes_max: usize) -> bool {
        self.bytes > bytes_max / 2 || (self.bytes > 0 && self.budget.is_half_used())
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        self.budget.sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::frame::Kind;

    use super::*;

    const BYTES_MAX: usize = 100;
    const NOW: Time = Time { sec: 1, nsec: 0 };

    fn replied(retained: &mut Retained, header: &Header, request: &Frame) {
        retained.committed(header.last_committed);
        if let Some(change) = RetainedChange::of(header, request, &Bytes::new(), NOW) {
            retained.insert(change, BYTES_MAX);
        }
    }

    /// Processes the reply to a request of this many bytes, half of them file data.
    fn reply(retained: &mut Retained, transno: u64, last_committed: u64, bytes: usize) {
        let header = Header { transno, last_committed, ..Header::new(Kind::Reply, 1) };
        let half = |bytes| Bytes::from(vec![0; bytes]);
        let (body, bulk) = (half(bytes / 2), Bulk::from(half(bytes - bytes / 2)));
        let request = Frame { body, bulk, ..Frame::new(Kind::Request, 1) };
        replied(retained, &header, &request);
    }

    fn transnos(retained: &Retained) -> Vec<u64> {
        retained.all().iter().map(|change| change.transno).collect()
    }

    #[test]
    fn changes_are_retained_until_they_are_committed() {
        let mut retained = Retained::default();
        for (transno, committed) in [(3, 0), (2, 0), (0, 0), (4, 2), (4, 2)] {
            reply(&mut retained, transno, committed, 10);
        }
        assert_eq!((transnos(&retained), retained.bytes), (vec![3, 4], 20));
        reply(&mut retained, 5, 5, 10);
        assert_eq!((transnos(&retained), retained.bytes), (vec![], 0), "committed when it was answered");
        let failed = Header { status: 2, transno: 6, ..Header::new(Kind::Reply, 1) };
        replied(&mut retained, &failed, &Frame::new(Kind::Request, 1));
        assert_eq!(transnos(&retained), []);
    }

    #[test]
    fn retained_request_has_no_job() {
        let header = Header { transno: 1, ..Header::new(Kind::Reply, 1) };
        let mut request = Frame { body: Bytes::from_static(b"request+job"), ..Frame::new(Kind::Request, 1) };
        request.header.job_len = 4;
        let change = RetainedChange::of(&header, &request, &Bytes::new(), NOW).unwrap();
        assert_eq!(&change.request[..], b"request");
    }

    #[test]
    fn retained_bytes_are_bounded() {
        let mut retained = Retained::default();
        for transno in 1..=4 {
            reply(&mut retained, transno, 0, BYTES_MAX / 3);
        }
        assert_eq!((transnos(&retained), retained.dropped()), (vec![2, 3, 4], 1));
        retained.remove(3);
        assert_eq!((transnos(&retained), retained.bytes), (vec![2, 4], BYTES_MAX / 3 * 2));
    }

    #[test]
    fn imports_share_a_budget() {
        let budget = Arc::new(RetainedBudget::new(100));
        let mut both = [Retained::new(budget.clone()), Retained::new(budget)];
        reply(&mut both[0], 1, 0, 45);
        assert!(!both[0].are_many(BYTES_MAX));
        reply(&mut both[1], 1, 0, 45);
        assert!(both[0].are_many(BYTES_MAX) && both[1].are_many(BYTES_MAX));
        reply(&mut both[1], 2, 0, 45);
        assert_eq!((transnos(&both[0]), transnos(&both[1])), (vec![1], vec![2]), "its own earliest");
        let [first, mut second] = both;
        drop(first);
        reply(&mut second, 3, 0, 45);
        assert_eq!((transnos(&second), second.bytes()), (vec![2, 3], 90));
    }
}
