//! What a change touches, so that whoever relies on it can be told before.
//!
//! A client that holds a lock on a range keeps the data in it and, if the range goes on for ever, the object's size. So
//! * a change inside of an object touches its bytes;
//! * one that moves the end touches everything from the old or the new end on, whichever comes first: what was past the end
//!   reads otherwise after it, and the size is another.
//!
//! The present end need not be known: *reach*, a number of bytes that the object certainly has, is enough. Where it is too small,
//! more is touched than need be, never less.

use std::collections::BTreeMap;

use sheen_wire::{
    Bulk, Fid,
    ldlm::Policy,
    ost::{Allocate, Part},
};

use crate::runs;

/// What a change touches of an object that has at least `reach` bytes, and gets `len` bytes written at `offset`. `None`: nothing.
pub fn written(offset: u64, len: u64, reach: u64) -> Option<Policy> {
    match offset.checked_add(len) {
        _ if len == 0 => None,
        Some(end) if end <= reach => inside(offset, len),
        _ => Some(resized(offset, reach)),
    }
}

/// What a change touches of an object of which `len` bytes at `offset` are changed without moving the end. `None`: nothing.
pub fn inside(offset: u64, len: u64) -> Option<Policy> {
    Some(Policy::extent(offset, offset.saturating_add(len.checked_sub(1)?)))
}

/// Whether a fallocate moves the end where it goes past it.
pub fn grows(mode: Allocate) -> bool {
    matches!(mode, Allocate::Reserve { keep_size: false } | Allocate::ZeroRange { keep_size: false })
}

/// What a change touches of an object that has at least `reach` bytes, and then ends at `size`.
pub fn resized(size: u64, reach: u64) -> Policy {
    Policy::extent(size.min(reach), u64::MAX)
}

/// A write's parts and bytes, object by object.
///
/// Each object's keep their order, so that where they overlap the later one wins still.
pub type Pieces = BTreeMap<Fid, (Vec<Part>, Bulk)>;

/// Takes a write to several objects apart. `bulk` is the bytes of all parts.
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
    fn a_write_inside_touches_its_bytes() {
        assert_eq!(written(10, 5, 15), Some(Policy::extent(10, 14)));
        assert_eq!(inside(10, 5), Some(Policy::extent(10, 14)));
        assert_eq!((written(10, 0, 0), inside(10, 0)), (None, None));
    }

    #[test]
    fn one_that_moves_the_end_touches_all_behind_the_old_one() {
        assert_eq!(written(10, 5, 14), Some(Policy::extent(10, u64::MAX)));
        assert_eq!(written(10, 5, 3), Some(Policy::extent(3, u64::MAX)), "the hole reads as zeros now");
        assert_eq!(written(u64::MAX, 5, 3), Some(Policy::extent(3, u64::MAX)));
        assert_eq!(resized(10, 20), Policy::extent(10, u64::MAX));
        assert_eq!(resized(20, 10), Policy::extent(10, u64::MAX));
    }

    proptest! {
        /// What differs after a write, by byte or by the object's end, lies in what it is said to touch, whatever is known.
        #[test]
        fn nothing_changes_outside(offset in 0u64..20, len in 1u64..10, size in 0u64..20, known in 0u64..20) {
            let (start, end) = written(offset, len, known.min(size)).unwrap().range();
            let before = |at: u64| (at < size).then_some(false);
            let grown = size.max(offset + len);
            let after = |at: u64| (at < grown).then_some(at >= offset && at < offset + len);
            for at in (0..40).filter(|at| before(*at) != after(*at)) {
                prop_assert!(start <= at && at <= end, "{at} not in {start}..={end}");
            }
            prop_assert!(grown == size || end == u64::MAX, "the size is another");
        }

        /// The pieces, one after the other, are the write.
        #[test]
        fn pieces_write_what_the_parts_do(parts in prop::collection::vec((1u32..4, 0u64..24, 0u32..6), 0..20)) {
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
