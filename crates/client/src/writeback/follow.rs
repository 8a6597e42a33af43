//! Bytes that were kept while their OST was restarted, and that come when their object is closed:
//! the OST did not know of the lock under which they are kept, so nobody waited for them. Where the
//! object goes on under another name (a swap of layouts), so do they.

use std::time::Duration;

use sheen_wire::{
    Bulk, Errno, Fid, Result, Time,
    ost::{Part, Reply, Request},
};

use super::Writeback;

/// How often it is asked where the object is: that may not be decided yet.
const FOLLOWS_MAX: u32 = 16;
/// Pause before the n-th time: n of these.
const PAUSE: Duration = Duration::from_millis(10);

impl Writeback {
    /// Writes bytes of an object, under whichever name it is now; durably under another one, for
    /// who syncs the file syncs others.
    ///
    /// # Errors
    /// MOVED: it is closed, and goes on nowhere. What the OST answers.
    pub(super) async fn write_there(
        &self,
        object: Fid,
        mut parts: Vec<Part>,
        bulk: Bulk,
        used: u64,
        mtime: Time,
    ) -> Result<u64> {
        let mut now = object;
        for n in 1..=FOLLOWS_MAX {
            let answer = self.write(&parts, &bulk, used, mtime).await;
            if answer != Err(Errno::MOVED) {
                if answer.is_ok() && now != object {
                    self.import.call_urgent(Request::Sync { objects: vec![now] }, Bulk::new()).await?;
                }
                return answer;
            }
            self.rt.sleep(PAUSE * n).await;
            let asked = Request::Follow { objects: vec![object] };
            match self.import.call_urgent(asked, Bulk::new()).await.map(|answer| answer.body) {
                Ok(Reply::Objects(objects)) => now = objects.first().copied().unwrap_or(object),
                Ok(_) => return Err(Errno::EPROTO),
                Err(Errno::MOVED | Errno::EAGAIN) => {}
                Err(errno) => return Err(errno),
            }
            parts.iter_mut().for_each(|part| part.object = now);
        }
        Err(Errno::MOVED)
    }
}
