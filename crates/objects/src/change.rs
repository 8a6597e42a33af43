//! Ranges that a change affects, so that the locks of other clients are revoked before.
//!
//! A client that holds a lock on a range caches the bytes in it; past the object's end they are
//! zeros to the client. It caches the object's size only under locks on the whole object, up to the
//! maximum offset. Such locks conflict with every change by another client. So
//! * a change inside of a range affects only its own bytes, even if it moves the object's end;
//! * a truncate affects everything from the new end on.
//!
//! It is necessary, and not only cheap, that a write past the end affects nothing else. Two clients
//! may hold locks on different ranges and both write past the end. Each must flush its dirty data
//! before it can cancel its lock. If a flush affected more, it would wait for the other client's
//! lock.

use std::collections::BTreeMap;

use sheen_wire::{Bulk, Fid, ldlm::Policy, ost::Part};

use crate::runs;

/// Returns the range affected by a change of `len` bytes at `offset`. `None`: nothing.
pub fn inside(offset: u64, len: u64) -> Option<Policy> {
    Some(Policy::extent(offset, offset.saturating_add(len.checked_sub(1)?)))
}

/// Returns the range affected by a change after which the object ends at `size`.
pub fn resized(size: u64) -> Policy {
    Policy::extent(size, u64::MAX)
}

/// Parts and bytes of a write, by object. The parts of an object stay in order, so that where they
/// overlap the later one still wins.
pub type Pieces = BTreeMap<Fid, (Vec<Part>, Bulk)>;

/// Splits a write to several objects by object. `bulk` is the bytes of all parts.
pub fn pieces(parts: &[Part], bulk: &Bulk) -> Pieces {
    let mut pieces = Pieces::new();
    let (mut start, mut rest) = (0, parts);
    for run in runs(parts) {
        let (these, others) = rest.split_at(run.parts);
        rest = others;
        let (parts, bytes) = pieces.entry(run.object).or_default();
        parts.extend_from_slice(these);
        bytes.append(bulk.slice(start, run.len));
        start += run.len;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn write_affects_only_its_bytes() {
        assert_eq!(inside(10, 5), Some(Policy::extent(10, 14)));
        assert_eq!(inside(10, 0), None);
        assert_eq!(inside(u64::MAX, 5), Some(Policy::extent(u64::MAX, u64::MAX)));
    }

    proptest! {
        /// After a change, the bytes that a client with a lock sees (zeros past the end) differ
        /// only in the affected range.
        #[test]
        fn change_affects_nothing_outside_its_range(offset in 0u64..20, len in 1u64..10, size in 0u64..20) {
            let before = |at: u64| at < size;
            let (start, end) = inside(offset, len).unwrap().range();
            let written = |at: u64| before(at) || (offset..offset + len).contains(&at);
            let cut = |at: u64| before(at) && at < offset;
            for at in 0..40 {
                prop_assert!(before(at) == written(at) || (start <= at && at <= end), "{at} not in {start}..={end}");
                prop_assert!(before(at) == cut(at) || at >= resized(offset).range().0, "{at}");
            }
        }

        /// The pieces, written one after the other, are the whole write.
        #[test]
        fn pieces_by_object_write_the_same_bytes_as_parts(parts in prop::collection::vec((1u32..4, 0u64..24, 0u32..6), 0..20)) {
            let part = |(oid, offset, len)| Part { object: Fid::new(9, oid), offset, len };
            let parts: Vec<Part> = parts.into_iter().map(part).collect();
            let total: u32 = parts.iter().map(|p| p.len).sum();
            let bulk: Bulk = (0..total).map(|n| Bytes::from(vec![n as u8])).collect();
            let mut written = BTreeMap::new();
            let mut write = |parts: &[Part], bulk: Bulk| {
                let mut bytes = bulk.into_bytes().into_iter();
                for p in parts {
                    for at in p.offset..p.offset + u64::from(p.len) {
                        written.insert((p.object, at), bytes.next().unwrap());
                    }
                }
                assert_eq!(bytes.next(), None);
                std::mem::take(&mut written)
            };
            let whole = write(&parts, bulk.clone());
            let mut by_piece = BTreeMap::new();
            for (object, (parts, bulk)) in pieces(&parts, &bulk) {
                prop_assert!(parts.iter().all(|p| p.object == object));
                by_piece.extend(write(&parts, bulk));
            }
            prop_assert_eq!(whole, by_piece);
        }
    }
}
