//! lseek(2) with SEEK_DATA and SEEK_HOLE.

use std::sync::Arc;

use sheen_layout::Layout;
use sheen_wire::{Errno, Result};

use super::place::Placed;
use crate::{Client, OpenFile, Seek, stats::Op};

impl Client {
    /// The next data, or the next hole, at or after `offset`. The end of the file is a hole.
    ///
    /// # Errors
    /// ENXIO: `offset` is at or past the end, or no data follows it.
    pub async fn lseek(&self, file: &OpenFile, offset: u64, what: Seek) -> Result<u64> {
        let _timer = self.stats.time(Op::Seek);
        let mut moves = 0;
        loop {
            let Placed { layout, guard } = self.place(file).await?.ok_or(Errno::ENXIO)?;
            let seek = |layout: Arc<Layout>| async move { self.lov.seek(&layout, offset, what).await };
            let (answer, guard) = self.under(file.fid(), guard, Box::pin(self.lov.by_any(&layout, seek))).await;
            drop(guard);
            match answer {
                Err(Errno::MOVED) => drop(Box::pin(self.moved(file.fid(), &mut moves)).await?),
                answer => return answer,
            }
        }
    }
}
