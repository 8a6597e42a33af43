//! Fewer, larger system calls: parts of a request that are adjacent in one object become one run.
//!
//! A client sends a run of a striped file as one part per stripe unit; the parts of one object are
//! contiguous in that object. Invariants:
//!
//! * Runs have the order of the parts and cover exactly their bytes, so bulk offsets add up.
//! * Where two parts of a write overlap, the later one wins, as without merging.

use sheen_wire::{Fid, ost::Part};

/// Consecutive parts that are one contiguous range of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The object.
    pub object: Fid,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: usize,
    /// Number of parts that it covers, at least one.
    pub parts: usize,
}

/// Returns the runs of `parts`, in order.
pub fn runs(parts: &[Part]) -> impl Iterator<Item = Run> {
    let mut rest = parts;
    std::iter::from_fn(move || {
        let (first, more) = rest.split_first()?;
        let mut run = Run { object: first.object, offset: first.offset, len: first.len as usize, parts: 1 };
        for next in more.iter().take_while(|p| p.object == run.object) {
            if run.offset.checked_add(run.len as u64) != Some(next.offset) {
                break;
            }
            run.len += next.len as usize;
            run.parts += 1;
        }
        rest = &rest[run.parts..];
        Some(run)
    })
}

/// Returns how many bytes each of a run's parts got, if the whole run got `read` bytes before the
/// end of its object.
pub fn spread(parts: &[Part], read: usize) -> impl Iterator<Item = u32> {
    let mut left = read;
    parts.iter().map(move |part| {
        let got = left.min(part.len as usize);
        left -= got;
        got as u32 // at most part.len, a u32
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(oid: u32, offset: u64, len: u32) -> Part {
        Part { object: Fid::new(9, oid), offset, len }
    }

    #[test]
    fn adjacent_parts_of_one_object_are_merged() {
        let parts = [part(1, 0, 10), part(1, 10, 5), part(2, 15, 5), part(1, 15, 1), part(1, 17, 1), part(1, 0, 2)];
        let got: Vec<_> = runs(&parts).map(|r| (r.object.oid, r.offset, r.len, r.parts)).collect();
        assert_eq!(got, [(1, 0, 15, 2), (2, 15, 5, 1), (1, 15, 1, 1), (1, 17, 1, 1), (1, 0, 2, 1)]);
        assert_eq!(runs(&[]).count(), 0);
        assert_eq!(runs(&[part(1, u64::MAX, 1), part(1, 0, 1)]).count(), 2, "offsets do not wrap around");
    }

    #[test]
    fn short_read_fills_the_first_parts() {
        let parts = [part(1, 0, 10), part(1, 10, 5), part(1, 15, 5)];
        assert_eq!(spread(&parts, 20).collect::<Vec<_>>(), [10, 5, 5]);
        assert_eq!(spread(&parts, 12).collect::<Vec<_>>(), [10, 2, 0]);
        assert_eq!(spread(&parts, 0).collect::<Vec<_>>(), [0, 0, 0]);
    }

    proptest! {
        /// Writing run by run gives the same result as writing part by part.
        #[test]
        fn runs_write_the_same_bytes_as_parts(parts in prop::collection::vec((1u32..3, 0u64..24, 0u32..6), 0..20)) {
            let parts: Vec<_> = parts.into_iter().map(|(oid, offset, len)| part(oid, offset, len)).collect();
            let paint = |pieces: &mut dyn Iterator<Item = (Fid, u64, usize)>| {
                let (mut objects, mut stamp) = ([[0u32; 64]; 3], 0);
                for (object, offset, len) in pieces {
                    for i in 0..len {
                        stamp += 1;
                        objects[object.oid as usize][offset as usize + i] = stamp;
                    }
                }
                (objects, stamp)
            };
            let single = paint(&mut parts.iter().map(|p| (p.object, p.offset, p.len as usize)));
            let joined = paint(&mut runs(&parts).map(|r| (r.object, r.offset, r.len)));
            prop_assert_eq!(single, joined);
            prop_assert_eq!(runs(&parts).map(|r| r.parts).sum::<usize>(), parts.len());
        }
    }
}
