//! lseek(2) with SEEK_DATA and SEEK_HOLE.

use std::sync::Arc;

use sheen_layout::Layout;
use sheen_wire::{Errno, Result};

use super::{
    layout_lookup::Placed,
    with_layout::{Attempt, LayoutUse},
};
use crate::{Client, OpenFile, Seek, failure::Failure, stats::Op};

impl Client {
    /// Returns the offset of the next data, or of the next hole, at or after `offset`. The end of
    /// the file counts as a hole.
    ///
    /// # Errors
    /// ENXIO: `offset` is at or past the end, or no data follows it.
    pub async fn lseek(&self, file: &OpenFile, offset: u64, what: Seek) -> Result<u64> {
        let _timer = self.stats.time(Op::Seek);
        let attempt = |_| async {
            let changes = file.inode.changes();
            let Placed { layout, guard } = self.place(file).await?.ok_or(Errno::ENXIO)?;
            let used = LayoutUse::new(file, layout.clone(), changes);
            let seek = |layout: Arc<Layout>| async move { self.lov.seek(&layout, offset, what).await };
            let (answer, guard) = self.under(file.fid(), guard, Box::pin(self.lov.by_any(&layout, seek))).await;
            drop(guard);
            match answer {
                Err(failure) if failure.is_moved() => Err(failure),
                answer if file.mirror() != 0 => Ok(Attempt::Done(answer.map_err(Failure::into_errno))),
                // Also after an error: a mirror that is stale by now may have no data there.
                answer => Ok(Attempt::DoneUnlessStale(answer.map_err(Failure::into_errno), used)),
            }
        };
        self.with_layout("lseek", file, attempt).await?
    }
}
