//! Futures that the cancel of a lock waits for.

use std::{sync::Arc, time::Duration};

use sheen_rpc::BoxFuture;

use crate::cache::{Cache, data::Losing};

/// Poll interval, and maximum number of polls, for the end of the reads that began under lost
/// locks.
const LOST_READS_POLL: Duration = Duration::from_millis(200);
const LOST_READS_POLLS: u32 = 150;

/// Combines two futures into one that ends when both have ended.
pub fn both(
    one: Option<BoxFuture<'static, ()>>,
    other: Option<BoxFuture<'static, ()>>,
) -> Option<BoxFuture<'static, ()>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(Box::pin(async move {
            tokio::join!(one, other);
        })),
        (one, other) => one.or(other),
    }
}

/// Drops the kernel's pages of a file whose locks were lost. Repeats it after the end of the reads
/// that began under these locks. `losing` ends when the kernel has dropped all pages, also if these
/// wait for the recovery of their OST.
pub async fn drop_lost_pages(cache: Arc<Cache>, losing: Losing) {
    let file = losing.file.clone();
    cache.clone().flush_lost_pages(losing).await;
    for _ in 0..LOST_READS_POLLS {
        if file.reads().under_way == 0 {
            break;
        }
        cache.rt().sleep(LOST_READS_POLL).await;
    }
    if let Some(waits) = cache.flush_pages(&file) {
        waits.await;
    }
    cache.data.tidy(file.fid());
}
