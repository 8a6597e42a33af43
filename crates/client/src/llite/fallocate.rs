//! fallocate(2).

use sheen_wire::{Errno, Result, mds::flags, ost::Allocate};

use super::{
    layout_lookup::{AGAIN_MAX, Placed},
    swap_layouts::Begun,
};
use crate::{
    Client, OpenFile,
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
    /// not support. ENOSPC.
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
        let (mut moves, mut again) = (0, 0);
        loop {
            let changes = file.inode.changes();
            let Placed { layout, guard } = match mode {
                Allocate::PunchHole if file.mirror() == 0 => self.place_for_punching(file, offset, len).await?,
                _ => self.place_for_writing(file, offset, len, false).await?,
            };
            let began = self.began(file, &layout, changes);
            file.note_write();
            let change = self.cache.change(&[file.fid()], true);
            let (answer, _) = self.under(file.fid(), guard, self.lov.allocate(&layout, mode, offset, len)).await;
            change.end(&answer);
            match answer {
                Err(Errno::MOVED_PARTLY) if file.mirror() == 0 => {
                    let begun = Begun::Allocate(mode, offset, len);
                    if Box::pin(self.finish(file.fid(), &layout, &begun)).await?.is_some() {
                        return Ok(());
                    }
                }
                Err(Errno::MOVED | Errno::MOVED_PARTLY) => drop(Box::pin(self.moved(file.fid(), &mut moves)).await?),
                Err(errno) => return self.unless_failed(file.fid(), &layout, offset, Err(errno)).await,
                Ok(()) if !self.is_overtaken(file, &layout, began).await? => return Ok(()),
                Ok(()) if again == AGAIN_MAX => return Err(Errno::EIO),
                Ok(()) => again += 1,
            }
        }
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
