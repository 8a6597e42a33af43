//! fallocate(2).

use sheen_wire::{Errno, Result, mds::flags, ost::Allocate};

use super::{
    layout_lookup::{Changing, Placed},
    swap_layouts::Begun,
    with_layout::{Attempt, LayoutUse},
};
use crate::{
    Client, OpenFile,
    failure::Failure,
    stats::Op,
    types::falloc::{KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE},
};

impl Client {
    /// Reserves, punches or zeroes `[offset, offset + len)`; `mode` is a combination of the bits in
    /// [`crate::falloc`].
    ///
    /// # Errors
    /// EBADF: not open for writing. EINVAL: `len` is 0. EFBIG: past the layout's largest size.
    /// ENODATA: past its end. EOPNOTSUPP: another mode, or one that the file system of an OST does
    /// not support. ENOSPC, EDQUOT.
    pub async fn fallocate(&self, file: &OpenFile, mode: u32, offset: u64, len: u64) -> Result<()> {
        let _timer = self.stats.time(Op::Fallocate);
        if !flags::writes(file.flags()) {
            return Err(Errno::EBADF);
        }
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        const PUNCH: u32 = PUNCH_HOLE | KEEP_SIZE;
        const ZERO_KEEP: u32 = ZERO_RANGE | KEEP_SIZE;
        let mode = match mode {
            0 => Allocate::Reserve { keep_size: false },
            KEEP_SIZE => Allocate::Reserve { keep_size: true },
            PUNCH => Allocate::PunchHole,
            ZERO_RANGE => Allocate::ZeroRange { keep_size: false },
            ZERO_KEEP => Allocate::ZeroRange { keep_size: true },
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let _turn = self.repairing(file).await;
        self.with_layout("fallocate", file, |_| self.allocate_once(file, mode, offset, len)).await
    }

    async fn allocate_once(
        &self,
        file: &OpenFile,
        mode: Allocate,
        offset: u64,
        len: u64,
    ) -> Result<Attempt<()>, Failure> {
        let (fid, changes) = (file.fid(), file.inode.changes());
        let Placed { layout, guard } = match mode {
            Allocate::PunchHole if file.mirror() == 0 => self.place_for_punching(file, offset, len).await?,
            _ => self.place_for_writing(file, offset, len, false).await?,
        };
        let used = LayoutUse::new(file, layout.clone(), changes);
        let (guard, locks) = self.lock_change(file, &used, guard).await?;
        file.note_write();
        let change = self.cache.change(&[fid], true);
        let (answer, _) = self.under(fid, guard, self.lov.allocate(&layout, mode, (offset, len), &locks)).await;
        change.end_data(&answer);
        drop(locks);
        if answer == Err(Failure::MOVED_PARTLY) && file.mirror() == 0 {
            let finished = Box::pin(self.finish(fid, &layout, &Begun::Allocate(mode, offset, len))).await?;
            return Ok(if finished.is_some() { Attempt::Done(()) } else { Attempt::Repeat });
        }
        self.unless_failed(Changing::of(file), &layout, offset, answer).await?;
        Ok(Attempt::DoneUnlessStale((), used))
    }

    /// Returns the layout for punching a hole. Where the file has no objects, there is a hole
    /// already.
    async fn place_for_punching(&self, file: &OpenFile, offset: u64, len: u64) -> Result<Placed> {
        let placed = self.place_given(file).await?;
        if placed.layout.takes_writes() {
            return Ok(placed);
        }
        // Not in use during the request to the MDT: other requests for objects wait for this lock.
        drop(placed);
        self.place_for_writing(file, offset, len, false).await
    }
}
