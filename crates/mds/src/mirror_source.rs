//! The mirrors from which damage is repaired: the layout of the file, and reads of the bytes that
//! an object of another mirror has.
//!
//! Invariants:
//! * for each OST, blocks and lost objects are repaired by one task each. A task has at most
//!   [`STEP_BYTES`] in memory;
//! * a task reads at most [`READ_SPEED`] bytes per second.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use sheen_layout::Layout;
use sheen_wire::ost::Part;
use sheen_wire::{Bulk, Errno, Fid, Result};

use crate::mdt::Mdt;

/// Bytes that are read and sent at a time.
pub(crate) const STEP_BYTES: u64 = 4 << 20;
/// Bytes per second: the default of a scrub.
const READ_SPEED: u64 = 100 << 20;
/// Time that an OST may take to read or write them.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

impl Mdt {
    /// Returns the layout of a file. `None`: there is no such file, or it has no layout.
    pub(crate) fn layout_to_repair(&self, file: Fid) -> Result<Option<Layout>> {
        let mut core = self.core.lock();
        let layout = core.ns.layout_to_repair(file);
        if layout.is_err()
            && let Some(fault) = core.ns.take_fault()
        {
            self.store_failed("finding the other mirrors of a damaged file", &fault);
        }
        layout
    }
}

/// Returns the other mirrors of a file, those that are up to date first.
pub(crate) fn sources(layout: &Layout, damaged: usize) -> Vec<&Layout> {
    let others = layout.mirrors().iter().enumerate().filter(|(mirror, _)| *mirror != damaged);
    let mut sources: Vec<&Layout> = others.map(|(_, mirror)| &**mirror).collect();
    sources.sort_by_key(|mirror| !mirror.is_fresh());
    sources
}

/// The damaged object in its mirror.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub mirror: &'a Layout,
    /// Number of the object among the mirror's stripes.
    pub stripe: usize,
}

/// A range of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub offset: u64,
    pub len: u64,
}

/// Divides `len` bytes from `offset` on into ranges of at most [`STEP_BYTES`].
pub(crate) fn steps(offset: u64, len: u64) -> impl Iterator<Item = Range> {
    let end = offset.saturating_add(len);
    let starts = (offset..end).step_by(STEP_BYTES as usize);
    starts.map(move |offset| Range { offset, len: STEP_BYTES.min(end - offset) })
}

/// Returns the time in which some bytes are read with [`READ_SPEED`].
pub(crate) fn pause(bytes: u64) -> Duration {
    Duration::from_micros(bytes.saturating_mul(1_000_000) / READ_SPEED)
}

/// Reads the bytes of a range of the damaged object from another mirror, and pauses for those that
/// the OSTs returned. Holes are zeros.
///
/// # Errors
/// ENOTCONN: an OST is disconnected. EPROTO: its reply does not fit the request. Others as the OSTs
/// return them.
pub(crate) async fn read(mdt: &Mdt, source: &Layout, place: Place<'_>, range: Range) -> Result<Bytes> {
    let (mut bytes, mut read) = (vec![0; range.len as usize], 0);
    for (ost, (parts, places)) in requests(source, place, range) {
        let osp = mdt.osts.connected(ost).ok_or(Errno::ENOTCONN)?;
        let answer = mdt.rt.timeout(TIMEOUT, osp.read(parts.clone())).await.map_err(|_| Errno::ETIMEDOUT)?;
        let (lens, bulk) = answer.map_err(|e| e.errno())?;
        distribute(&mut bytes, (&parts[..], &places[..]), &lens, &bulk)?;
        read += bulk.len() as u64;
    }
    // At the end of objects the OSTs return fewer bytes, or none.
    if read > 0 {
        mdt.rt.sleep(pause(read)).await;
    }
    Ok(bytes.into())
}

/// Copies the bytes of a reply to the places of its parts. `lens`: bytes of each part.
///
/// # Errors
/// EPROTO: the reply does not fit the parts.
fn distribute(bytes: &mut [u8], (parts, places): (&[Part], &[usize]), lens: &[u32], bulk: &Bulk) -> Result<()> {
    let fits = lens.len() == parts.len() && lens.iter().zip(parts).all(|(len, part)| *len <= part.len);
    if !fits || lens.iter().map(|len| *len as usize).sum::<usize>() != bulk.len() {
        return Err(Errno::EPROTO);
    }
    let mut from = 0;
    for (at, len) in places.iter().zip(lens.iter().map(|len| *len as usize)) {
        let to = bytes.get_mut(*at..at.saturating_add(len)).ok_or(Errno::EPROTO)?;
        to.copy_from_slice(&bulk.slice(from, len).into_bytes());
        from += len;
    }
    Ok(())
}

/// Returns the parts of a mirror's objects that have the bytes of a range, and their places in the
/// range, by OST.
fn requests(source: &Layout, place: Place<'_>, range: Range) -> BTreeMap<u32, (Vec<Part>, Vec<usize>)> {
    let mut requests: BTreeMap<u32, (Vec<Part>, Vec<usize>)> = BTreeMap::new();
    for wanted in place.mirror.object_chunks(place.stripe, range.offset, range.len) {
        for chunk in source.map(wanted.file_offset, wanted.len) {
            let Some(stripe) = source.stripes().get(chunk.stripe) else { continue };
            let (parts, places) = requests.entry(stripe.ost).or_default();
            // At most a step.
            parts.push(Part { object: stripe.object, offset: chunk.object_offset, len: chunk.len as u32 });
            let in_object = wanted.object_offset + (chunk.file_offset - wanted.file_offset);
            places.push((in_object - range.offset) as usize);
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use sheen_layout::{Mark, Stripe, flags};

    use super::*;

    const UNIT: u64 = 64 << 10;

    fn object(oid: u32) -> Fid {
        Fid::new(0x2_8000_0401, oid)
    }

    /// Returns a layout with this stripe size in units, and objects with ids from `first` on, on
    /// OSTs of the same numbers.
    fn striped(units: u64, first: u32, count: u32) -> Layout {
        let stripes = (first..first + count).map(|n| Stripe { object: object(n), ost: n }).collect();
        Layout::new(Fid::new(1, 1), (units * UNIT) as u32, None, stripes).unwrap()
    }

    #[test]
    fn stale_mirrors_are_read_last() {
        let layout = striped(1, 1, 2).with_merged(&striped(1, 10, 1)).and_then(|l| l.with_merged(&striped(1, 20, 1)));
        let layout = layout.unwrap();
        let fresh = layout.components().iter().filter(|c| c.mirror_id() != 2);
        let marks: Vec<Mark> = fresh.map(|c| Mark { id: c.id, flags: flags::STALE, negative: true }).collect();
        let layout = layout.with_flags(&marks).unwrap();
        let ids = |damaged| sources(&layout, damaged).iter().map(|m| m.mirror_id()).collect::<Vec<u16>>();
        assert_eq!((ids(0), ids(1), ids(2)), (vec![3, 2], vec![1, 3], vec![1, 2]));
    }

    #[test]
    fn bytes_of_an_object_are_read_from_each_ost_of_another_mirror_once() {
        let (damaged, source) = (striped(1, 1, 2), striped(1, 10, 3));
        let part = |ost: u32, unit: u64| Part { object: object(ost), offset: unit * UNIT, len: UNIT as u32 };
        let at = |units: &[u64]| units.iter().map(|unit| (unit * UNIT) as usize).collect::<Vec<usize>>();
        // Units 0, 2, 4 and 6 of the file.
        let range = Range { offset: 0, len: 4 * UNIT };
        let expected = [
            (10, (vec![part(10, 0), part(10, 2)], at(&[0, 3]))),
            (11, (vec![part(11, 1)], at(&[2]))),
            (12, (vec![part(12, 0)], at(&[1]))),
        ];
        assert_eq!(requests(&source, Place { mirror: &damaged, stripe: 0 }, range), BTreeMap::from(expected));
        // Half of unit 3 of the file, and half of unit 5, from larger stripes.
        let range = Range { offset: UNIT + UNIT / 2, len: UNIT };
        let part = |ost, offset| Part { object: object(ost), offset, len: UNIT as u32 / 2 };
        let expected = [
            (10, (vec![part(10, 3 * UNIT)], vec![UNIT as usize / 2])),
            (11, (vec![part(11, UNIT + UNIT / 2)], vec![0])),
        ];
        let larger = striped(2, 10, 2);
        assert_eq!(requests(&larger, Place { mirror: &damaged, stripe: 1 }, range), BTreeMap::from(expected));
    }

    #[test]
    fn large_block_is_repaired_in_steps() {
        assert_eq!(steps(UNIT, 100).collect::<Vec<_>>(), [Range { offset: UNIT, len: 100 }]);
        let large: Vec<Range> = steps(0, 2 * STEP_BYTES + 1).collect();
        let expected = [(0, STEP_BYTES), (STEP_BYTES, STEP_BYTES), (2 * STEP_BYTES, 1)];
        assert_eq!(large, expected.map(|(offset, len)| Range { offset, len }));
        assert_eq!(steps(7, 0).next(), None);
        assert!(steps(7, u64::MAX).next().is_some(), "without memory for all steps");
    }

    #[test]
    fn read_reply_that_does_not_fit_its_parts_is_refused() {
        let parts = [0, 1].map(|n| Part { object: object(1), offset: n * UNIT, len: 2 });
        let read = |lens: &[u32], data: &'static [u8]| {
            let mut bytes = [0; 5];
            distribute(&mut bytes, (&parts[..], &[3, 0][..]), lens, &Bulk::from(Bytes::from_static(data)))
                .map(|()| bytes)
        };
        assert_eq!(read(&[2, 2], b"abcd"), Ok(*b"cd\0ab"));
        assert_eq!(read(&[1, 2], b"abc"), Ok(*b"bc\0a\0"), "a hole");
        let bad: [(&[u32], &[u8]); 5] =
            [(&[2], b"ab"), (&[2, 2, 0], b"abcd"), (&[3, 1], b"abcd"), (&[2, 2], b"abc"), (&[2, 1], b"abcd")];
        for (lens, data) in bad {
            assert_eq!(read(lens, data), Err(Errno::EPROTO), "{lens:?}");
        }
    }
}
