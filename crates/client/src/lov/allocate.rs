//! fallocate: reserves, punches or zeroes a range of a file.

use sheen_layout::Layout;
use sheen_wire::{
    Bulk, Errno,
    ost::{Allocate, Request},
};

use super::{Lov, follow::together, split::Split, split::by_ost, stripe};
use crate::{failure::Result, join::join_all};

impl Lov {
    /// Allocates in `[offset, offset + len)`. If the mode changes the file size, the object with
    /// the last byte of the range grows to exactly that byte, so the file size is exact.
    ///
    /// # Errors
    /// EFBIG: the range ends beyond the layout's maximum file size. EOPNOTSUPP: the file system of
    /// an OST does not support the mode.
    pub async fn allocate(&self, layout: &Layout, mode: Allocate, offset: u64, len: u64) -> Result<()> {
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
        self.settle_file(layout).await;
        let split = Split::new(layout, offset, len);
        let groups = by_ost(layout, split.runs.iter().map(|r| r.stripe))?;
        let calls = groups.into_iter().map(|(ost, runs)| {
            let run = |i: usize| {
                let run = split.runs[i];
                Ok((stripe(layout, run.stripe)?.object, run.offset, run.len))
            };
            let runs: Result<Vec<_>> = runs.into_iter().map(run).collect();
            async move {
                let file = layout.fid();
                self.change(file, ost, Request::Allocate { file, mode, runs: runs? }, Bulk::new()).await
            }
        });
        together(join_all(calls).await)
    }
}
