//! fallocate: reserves, punches or zeroes a range of a file.

use std::pin::pin;

use sheen_layout::Layout;
use sheen_rt::join::join_all;
use sheen_wire::{
    Bulk, Errno,
    ost::{Allocate, Request},
};

use super::{Lov, enqueue::PATIENCE, follow::together, in_use::InUse, split::Split, split::by_ost, stripe};
use crate::failure::Result;

impl Lov {
    /// Allocates in the range of this offset and length, under the locks in `held`. If the mode
    /// changes the file size, the object with the last byte of the range grows to exactly that
    /// byte, so the file size is exact.
    ///
    /// # Errors
    /// EFBIG: the range ends beyond the layout's maximum file size. EOPNOTSUPP: the file system of
    /// an OST does not support the mode. EBUSY: an OST did not answer in time, and the locks had to
    /// be released.
    pub async fn allocate(
        &self,
        layout: &Layout,
        mode: Allocate,
        (offset, len): (u64, u64),
        held: &InUse,
    ) -> Result<()> {
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        let max = layout.max_file_size();
        let len = match mode {
            // There is nothing to punch beyond the maximum file size.
            Allocate::PunchHole => end.min(max).saturating_sub(offset),
            _ if end > max => return Err(Errno::EFBIG.into()),
            _ => len,
        };
        if len == 0 {
            return Ok(());
        }
        let _changing = self.ends.changing(layout);
        let mut settling = pin!(self.settle_file(layout));
        if self.rt.timeout(PATIENCE, settling.as_mut()).await.is_err() {
            if held.release_all_but(&[]) {
                return Err(Errno::EBUSY.into());
            }
            settling.await;
        }
        let split = Split::new(layout, offset, len);
        let groups = by_ost(layout, split.runs.iter().map(|r| r.stripe))?;
        held.begin(groups.iter().map(|(ost, _)| *ost));
        let calls = groups.into_iter().map(|(ost, runs)| {
            let run = |i: usize| {
                let run = split.runs[i];
                Ok((stripe(layout, run.stripe)?.object, run.offset, run.len))
            };
            let runs: Result<Vec<_>> = runs.into_iter().map(run).collect();
            async move {
                let file = layout.fid();
                let done = self.change(file, ost, Request::Allocate { file, mode, runs: runs? }, Bulk::new()).await;
                if done.is_ok() {
                    held.done(ost);
                }
                done
            }
        });
        together(join_all(calls).await)
    }
}
