//! Changes that the target has answered, retained until it reports them as committed.
//!
//! A restarted target may have lost them. Then the client replays them
//! ([`super::Recovering::retained`]). They are recorded by the task that reads the connection, in
//! the order of arrival. So when the connection ends, every change whose reply has arrived is here.
//!
//! Bounds: [`CHANGES_MAX`] changes and [`BYTES_MAX`] bytes; beyond that the earliest are dropped. A
//! target commits every few hundred milliseconds, and takes no further changes before it has.

use std::collections::BTreeMap;

use bytes::Bytes;
use sheen_wire::frame::Header;

/// Maximum number of retained changes of one target.
const CHANGES_MAX: usize = 262_144;
/// Maximum bytes of their requests and replies.
const BYTES_MAX: usize = 256 << 20;

/// A change that the target has answered, as encoded messages.
#[derive(Clone, Debug)]
pub struct RetainedChange {
    /// Its transno.
    pub transno: u64,
    /// The request.
    pub request: Bytes,
    /// The reply.
    pub reply: Bytes,
}

/// The retained changes of one target, by transno.
#[derive(Default)]
pub(super) struct Retained {
    changes: BTreeMap<u64, (Bytes, Bytes)>,
    bytes: usize,
}

impl Retained {
    /// Processes a reply, and retains its request if that changed something.
    pub(super) fn replied(&mut self, header: &Header, request: &Bytes, reply: &Bytes) {
        self.committed(header.last_committed);
        if header.status != 0 || header.transno <= header.last_committed {
            return;
        }
        // Copied, because the reply may be a part of a large buffer.
        let reply = Bytes::copy_from_slice(reply);
        self.bytes += request.len() + reply.len();
        if let Some((request, reply)) = self.changes.insert(header.transno, (request.clone(), reply)) {
            self.bytes -= request.len() + reply.len();
        }
        while self.changes.len() > CHANGES_MAX || self.bytes > BYTES_MAX {
            let Some((_, (request, reply))) = self.changes.pop_first() else { return };
            self.bytes -= request.len() + reply.len();
        }
    }

    /// Drops the changes up to this transno: they are committed.
    fn committed(&mut self, last: u64) {
        while let Some(first) = self.changes.first_entry().filter(|first| *first.key() <= last) {
            let (request, reply) = first.remove();
            self.bytes -= request.len() + reply.len();
        }
    }

    /// Returns all changes in order of transno.
    pub(super) fn all(&self) -> Vec<RetainedChange> {
        let one = |(&transno, (request, reply)): (&u64, &(Bytes, Bytes))| {
            let (request, reply) = (request.clone(), reply.clone());
            RetainedChange { transno, request, reply }
        };
        self.changes.iter().map(one).collect()
    }

    /// Drops one change.
    pub(super) fn remove(&mut self, transno: u64) {
        if let Some((request, reply)) = self.changes.remove(&transno) {
            self.bytes -= request.len() + reply.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::frame::Kind;

    use super::*;

    fn reply(retained: &mut Retained, transno: u64, last_committed: u64, bytes: usize) {
        let header = Header { transno, last_committed, ..Header::new(Kind::Reply, 1) };
        retained.replied(&header, &Bytes::from(vec![0; bytes]), &Bytes::new());
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
        retained.replied(&failed, &Bytes::new(), &Bytes::new());
        assert_eq!(transnos(&retained), []);
    }

    #[test]
    fn retained_bytes_are_bounded() {
        let mut retained = Retained::default();
        for transno in 1..=4 {
            reply(&mut retained, transno, 0, BYTES_MAX / 3);
        }
        assert_eq!(transnos(&retained), [2, 3, 4]);
        retained.remove(3);
        assert_eq!((transnos(&retained), retained.bytes), (vec![2, 4], BYTES_MAX / 3 * 2));
    }
}
