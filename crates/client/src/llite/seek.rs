//! lseek(2) with SEEK_DATA and SEEK_HOLE.

use std::sync::Arc;

use sheen_layout::Layout;
use sheen_wire::{Errno, Result};

use super::layout_lookup::{AGAIN_MAX, Placed};
use crate::{Client, OpenFile, Seek, stats::Op};

impl Client {
    /// Returns the offset of the next data, or of the next hole, at or after `offset`. The end of
    /// the file counts as a hole.
    ///
    /// # Errors
    /// ENXIO: `offset` is at or past the end, or no data follows it.
    pub async fn lseek(&self, file: &OpenFile, offset: u64, what: Seek) -> Result<u64> {
        let _timer = self.stats.time(Op::Seek);
        let (mut moves, mut again) = (0, 0);
        loop {
            let changes = file.inode.changes();
            let Placed { layout, guard } = self.place(file).await?.ok_or(Errno::ENXIO)?;
            let began = self.began(file, &layout, changes);
            let seek = |layout: Arc<Layout>| async move { self.lov.seek(&layout, offset, what).await };
            let (answer, guard) = self.under(file.fid(), guard, Box::pin(self.lov.by_any(&layout, seek))).await;
            drop(guard);
            match answer {
                Err(Errno::MOVED) => drop(Box::pin(self.moved(file.fid(), &mut moves)).await?),
                // A mirror that is stale by now may have no data there.
                _ if file.mirror() == 0 && self.is_overtaken(file, &layout, began).await? => {
                    again += 1;
                    if again == AGAIN_MAX {
                        return Err(Errno::EIO);
                    }
                }
                answer => return answer,
            }
        }
    }
}
