//! Lost objects of mirrored files are made again from another mirror.
//!
//! An OST reports objects that it knew to be durable, and that have no file. The MDT confirms those
//! that the layout of a file has. If it is certain that no layout has an object, it states that. If
//! the mirror of the object is up to date, and another one is, too, the MDT reads the bytes from
//! that one. It sends them to the OST, which writes them to a file beside the object. The OST then
//! gives that file the object's name.
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
//! * a mirror that begins on the MDT is no source;
//! * no lock is needed, and the file can be used meanwhile. Reads use the other mirror;
//! * lost objects of an OST are made again one after the other. They have a task of their own, so
//!   damaged blocks do not wait for a copy. A copy reads no long holes, and ends early if the
//!   layout changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use sheen_layout::{Layout, Stripe};
use sheen_wire::ost::{Damaged, PARTS_MAX, Recreate};
use sheen_wire::{Bulk, Errno, Fid, Result, Time};
use tracing::debug;

use crate::mdt::Mdt;
use crate::mirror_source::{Place, Range, STEP_BYTES, TIMEOUT, pause, read, sources};
use crate::state::osp::Osp;

/// Number of steps of a copy after which it looks whether the layout is the same.
const LAYOUT_STEPS: u64 = 64;

/// Makes the lost objects that an OST reports again, as a part of its task ([`crate::osp`]).
pub(crate) async fn run(mdt: &Arc<Mdt>, osp: &Arc<Osp>) {
    // Before, a replay may change layouts.
    mdt.recovery.ended().await;
    loop {
        let lost = osp.repairs.lost.next().await;
        osp.when_connected().await;
        if let Err(errno) = repair(mdt, osp, &lost).await {
            let Damaged { object, file, .. } = lost;
            // The OST lists the object, and asks again later.
            debug!("{}: {errno}: cannot make object {object} of file {file} on {} again", mdt.name, osp.target);
        }
    }
}

/// Confirms that an object is lost, and makes it again if another mirror has its bytes.
///
/// # Errors
/// ENOENT: it is not certain whether a file has the object. ENODATA: no other mirror has all
/// bytes. EUCLEAN: its mirror is stale. ESTALE: it is not lost, or its file changed during the
/// copy. Others as the OSTs return them.
async fn repair(mdt: &Mdt, osp: &Osp, lost: &Damaged) -> Result<()> {
    let has_it =
        |layout: &Layout| layout.all_objects().any(|stripe| (stripe.ost, stripe.object) == (osp.index, lost.object));
    let Some(layout) = mdt.layout_to_repair(lost.file)?.filter(has_it) else {
        return state_unknown(mdt, osp, lost).await;
    };
    step(mdt, osp, lost.object, Recreate::Confirm, Bulk::new()).await?;
    let (mirror, stripe) = layout.find_object(osp.index, lost.object).ok_or(Errno::ENODATA)?;
    let target = layout.mirrors().get(mirror).ok_or(Errno::ENODATA)?;
    layout.check_usable()?;
    if !target.is_fresh() {
        return Err(Errno::EUCLEAN);
    }
    let place = Place { mirror: target, stripe };
    let mut failed = Errno::ENODATA;
    let is_usable = |source: &&Layout| source.is_fresh() && source.mdt_end() == 0;
    for source in sources(&layout, mirror).into_iter().filter(is_usable) {
        let recreation = Recreation { mdt, osp, lost, layout: &layout, place, source };
        match recreation.run().await {
            // Another source may be readable.
            Err(errno) if errno != Errno::ESTALE => failed = errno,
            done => return done,
        }
    }
    Err(failed)
}

/// States to an OST that no layout has an object, if that is certain. Otherwise the OST would take
/// lost bytes for a hole.
///
/// # Errors
/// ENOENT: it is not certain. Others as the OST returns them.
async fn state_unknown(mdt: &Mdt, osp: &Osp, lost: &Damaged) -> Result<()> {
    // A swap gives objects new names before a layout has these.
    let _turn = mdt.relayouts.turn(lost.file).await;
    if !mdt.belongs_to_no_file(lost.file, (osp.index, lost.object)).await? {
        return Err(Errno::ENOENT);
    }
    step(mdt, osp, lost.object, Recreate::Unknown { file: lost.file }, Bulk::new()).await
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
        let (mut at, mut steps) = (self.place.mirror.object_offset(0, self.place.stripe), 0_u64);
        while at < size {
            steps += 1;
            if steps.is_multiple_of(LAYOUT_STEPS) && !self.has_same_layout()? {
                return Err(Errno::ESTALE);
            }
            let range = Range { offset: at, len: STEP_BYTES.min(size - at) };
            let bytes = read(self.mdt, self.source, self.place, range).await?;
            at += range.len;
            if bytes.iter().any(|byte| *byte != 0) {
                self.step(Recreate::Write { copy, at: range.offset }, Bulk::from(bytes)).await?;
            } else if at < size {
                at = self.next_data(at).await?.unwrap_or(size);
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

    /// Returns the first offset of the object at or after `at` that may be data in the source.
    /// `None`: there is none.
    async fn next_data(&self, at: u64) -> Result<Option<u64>> {
        let Place { mirror, stripe } = self.place;
        let from = mirror.file_offset(stripe, at);
        let mut next: Option<u64> = None;
        for (number, Stripe { object, ost }) in self.source.stripes().iter().enumerate() {
            let osp = self.mdt.osts.connected(*ost).ok_or(Errno::ENOTCONN)?;
            let sent = osp.next_data(*object, self.source.object_offset(from, number));
            let answer = self.mdt.rt.timeout(TIMEOUT, sent).await.map_err(|_| Errno::ETIMEDOUT)?;
            let found = answer.map_err(|e| e.errno())?.map(|data| self.source.file_offset(number, data));
            // Data before it is outside of its component.
            next = next.into_iter().chain(found.filter(|found| *found >= from)).min();
        }
        Ok(next.map(|data| mirror.object_offset(data, stripe).max(at)))
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
