//! Lost objects of mirrored files are made again from another mirror.
//!
//! An OST reports objects that it knew to be durable, and that have no file. The MDT confirms those
//! that the layout of a file has. If the mirror of the object is up to date, and another one is,
//! too, the MDT copies the bytes to a file beside the object. The OST then gives that file the
//! object's name.
//!
//! Invariants:
//! * mirrors that are up to date have the same bytes. A lost object does not change: writes to it
//!   fail. So the copy is right when the OST uses it, whatever happened to the file since;
//! * the OST uses the copy only if the data versions of the source are the same before and after
//!   it, each time with the dirty data of all clients. The layout must be the same, too. So no
//!   change of the source is in the copy, or in a part of it;
//! * a stale mirror gets no bytes: the lost ones are in no other mirror. An administrator could
//!   make that mirror the valid one, and would find wrong bytes;
//! * an object that the source should have, and that was never written, makes the copy fail. It may
//!   be lost as well, before the OST knew it to be durable;
//! * no lock is needed, and the file can be used meanwhile. Reads use the other mirror.

use std::collections::BTreeMap;

use sheen_layout::Layout;
use sheen_wire::ost::{Damaged, PARTS_MAX, Recreate};
use sheen_wire::{Bulk, Errno, Fid, Result, Time};

use crate::mdt::Mdt;
use crate::mirror_source::{Place, TIMEOUT, pause, read, sources, steps};
use crate::state::osp::Osp;

/// Confirms that an object is lost, and makes it again if another mirror has its bytes.
///
/// # Errors
/// ENOENT: the file is not known, or does not have the object. ENODATA: no other mirror has all
/// bytes. EUCLEAN: its mirror is stale. ESTALE: it is not lost, or its file changed during the
/// copy. Others as the OSTs return them.
pub(crate) async fn repair(mdt: &Mdt, osp: &Osp, lost: &Damaged) -> Result<()> {
    let layout = mdt.layout_to_repair(lost.file)?.ok_or(Errno::ENOENT)?;
    if !layout.all_objects().any(|stripe| (stripe.ost, stripe.object) == (osp.index, lost.object)) {
        return Err(Errno::ENOENT);
    }
    step(mdt, osp, lost.object, Recreate::Confirm, Bulk::new()).await?;
    let (mirror, stripe) = layout.find_object(osp.index, lost.object).ok_or(Errno::ENODATA)?;
    let target = layout.mirrors().get(mirror).ok_or(Errno::ENODATA)?;
    layout.check_usable()?;
    if !target.is_fresh() {
        return Err(Errno::EUCLEAN);
    }
    let place = Place { mirror: target, stripe };
    let mut failed = Errno::ENODATA;
    for source in sources(&layout, mirror).into_iter().filter(|source| source.is_fresh()) {
        let recreation = Recreation { mdt, osp, lost, layout: &layout, place, source };
        match recreation.run().await {
            // Another source may be readable.
            Err(errno) if errno != Errno::ESTALE => failed = errno,
            done => return done,
        }
    }
    Err(failed)
}

/// Sends a step to the OST of a lost object.
async fn step(mdt: &Mdt, osp: &Osp, object: Fid, step: Recreate, bytes: Bulk) -> Result<()> {
    let sent = osp.recreate(object, step, bytes);
    mdt.rt.timeout(TIMEOUT, sent).await.map_err(|_| Errno::ETIMEDOUT)?.map_err(|e| e.errno())
}

/// A lost object, and the mirror from which it is made again.
struct Recreation<'a> {
    mdt: &'a Mdt,
    osp: &'a Osp,
    lost: &'a Damaged,
    layout: &'a Layout,
    place: Place<'a>,
    source: &'a Layout,
}

/// Size in bytes and time of the last change that the object must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wanted {
    size: u64,
    mtime: Time,
}

impl Recreation<'_> {
    async fn run(&self) -> Result<()> {
        let versions = self.versions().await?;
        let wanted = self.wanted().await?;
        let copy = self.mdt.rt.random_u64();
        let done = self.copy(copy, wanted, &versions).await;
        if done.is_err() {
            // If this fails, the next copy or start of the OST discards the copy.
            let _ = self.step(Recreate::Abort { copy }, Bulk::new()).await;
        }
        done
    }

    async fn step(&self, next: Recreate, bytes: Bulk) -> Result<()> {
        step(self.mdt, self.osp, self.lost.object, next, bytes).await
    }

    /// Copies the bytes, and makes the copy the object.
    async fn copy(&self, copy: u64, wanted: Wanted, versions: &[u64]) -> Result<()> {
        let Wanted { size, mtime } = wanted;
        self.step(Recreate::Begin { copy, size }, Bulk::new()).await?;
        // Before it, the object has no bytes of its component.
        let first = self.place.mirror.object_offset(0, self.place.stripe).min(size);
        for range in steps(first, size - first) {
            let bytes = read(self.mdt, self.source, self.place, range).await?;
            if bytes.iter().any(|byte| *byte != 0) {
                self.step(Recreate::Write { copy, at: range.offset }, Bulk::from(bytes)).await?;
            }
        }
        if self.versions().await? != versions || !self.has_same_layout()? {
            return Err(Errno::ESTALE);
        }
        let sent = self.osp.recreate(self.lost.object, Recreate::End { copy, mtime }, Bulk::new());
        // The OST makes all bytes durable.
        let ended = self.mdt.rt.timeout(TIMEOUT + pause(size), sent).await;
        ended.map_err(|_| Errno::ETIMEDOUT)?.map_err(|e| e.errno())
    }

    fn has_same_layout(&self) -> Result<bool> {
        Ok(self.mdt.layout_to_repair(self.lost.file)?.as_ref() == Some(self.layout))
    }

    /// Returns the data versions of the source's objects, after all clients have flushed their
    /// dirty data.
    async fn versions(&self) -> Result<Vec<u64>> {
        let mut versions = Vec::new();
        for (ost, stripes) in by_ost(self.source) {
            let osp = self.mdt.osts.connected(ost).ok_or(Errno::ENOTCONN)?;
            for some in stripes.chunks(PARTS_MAX) {
                let sent = osp.versions(some.iter().map(|(_, object)| *object).collect());
                let answer = self.mdt.rt.timeout(TIMEOUT, sent).await.map_err(|_| Errno::ETIMEDOUT)?;
                versions.extend(answer.map_err(|e| e.errno())?);
            }
        }
        Ok(versions)
    }

    /// Returns size and time of the lost object, from those of the source's objects.
    ///
    /// # Errors
    /// ENODATA: the source may lack an object.
    async fn wanted(&self) -> Result<Wanted> {
        let mut found = Vec::new();
        for (ost, stripes) in by_ost(self.source) {
            let osp = self.mdt.osts.connected(ost).ok_or(Errno::ENOTCONN)?;
            for some in stripes.chunks(PARTS_MAX) {
                let objects: Vec<Fid> = some.iter().map(|(_, object)| *object).collect();
                let answer = self.mdt.rt.timeout(TIMEOUT, osp.attrs(&objects)).await.map_err(|_| Errno::ETIMEDOUT)?;
                let attrs = answer.map_err(|e| e.errno())?.into_iter();
                found.extend(some.iter().zip(attrs).map(|((stripe, _), attr)| (*stripe, attr.size, attr.mtime)));
            }
        }
        wanted(self.source, self.place, &found).ok_or(Errno::ENODATA)
    }
}

/// Returns the stripes of a mirror with their objects, by OST.
fn by_ost(source: &Layout) -> BTreeMap<u32, Vec<(usize, Fid)>> {
    let mut by_ost: BTreeMap<u32, Vec<(usize, Fid)>> = BTreeMap::new();
    for (stripe, object) in source.stripes().iter().enumerate() {
        by_ost.entry(object.ost).or_default().push((stripe, object.object));
    }
    by_ost
}

/// Returns size and time of an object, from stripe, size and time of another mirror's objects. No
/// time: the object was never written. `None`: an object that was never written should have bytes.
fn wanted(source: &Layout, place: Place<'_>, found: &[(usize, u64, Option<Time>)]) -> Option<Wanted> {
    let file_size = found.iter().map(|(stripe, size, _)| source.file_size(*stripe, *size)).max()?;
    let is_complete = |(stripe, _, mtime): &(usize, u64, Option<Time>)| {
        mtime.is_some() || source.object_size(file_size, *stripe) == 0
    };
    let mtime = found.iter().filter_map(|(_, _, mtime)| *mtime).max()?;
    let size = place.mirror.object_size(file_size, place.stripe);
    found.iter().all(is_complete).then_some(Wanted { size, mtime })
}

#[cfg(test)]
mod tests {
    use sheen_layout::Stripe;

    use super::*;

    const UNIT: u64 = 64 << 10;

    /// Returns a layout with units of [`UNIT`], and objects with ids from `first` on.
    fn striped(first: u32, count: u32) -> Layout {
        let object = |n| Stripe { object: Fid::new(0x2_8000_0401, n), ost: n };
        Layout::new(Fid::new(1, 1), UNIT as u32, None, (first..first + count).map(object).collect()).unwrap()
    }

    #[test]
    fn lost_object_gets_size_and_time_from_another_mirror() {
        let (lost, source) = (striped(1, 2), striped(10, 3));
        let at = |sec| Some(Time { sec, nsec: 0 });
        let of = |stripe, found: [(u64, Option<Time>); 3]| {
            let found: Vec<_> = found.into_iter().enumerate().map(|(n, (size, time))| (n, size, time)).collect();
            wanted(&source, Place { mirror: &lost, stripe }, &found).map(|wanted| (wanted.size, wanted.mtime.sec))
        };
        // Four units and 5 bytes.
        let whole = [(2 * UNIT, at(7)), (UNIT + 5, at(9)), (UNIT, at(8))];
        assert_eq!((of(0, whole), of(1, whole)), (Some((2 * UNIT + 5, 9)), Some((2 * UNIT, 9))));
        // The hole in the middle is an object that exists.
        assert_eq!(of(1, [(UNIT, at(7)), (0, at(7)), (10, at(7))]), Some((UNIT, 7)));
        assert_eq!(of(1, [(UNIT, at(7)), (0, None), (10, at(7))]), None, "it may be lost");
        assert_eq!(of(1, [(10, at(7)), (0, None), (0, None)]), Some((0, 7)));
        assert_eq!(of(0, [(0, None), (0, None), (0, None)]), None);
    }
}
