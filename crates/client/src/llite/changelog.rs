//! Reading the changelog of an MDT, and waiting for new records.
//!
//! A reader at the end of the changelog asks the MDT for a callback, and waits for it here.
//!
//! Invariants:
//! * While a reader waits, no request of it is in flight: it occupies no slot, and nothing at the
//!   MDT but the one entry of this client.
//! * A wait ends after [`WAIT_MAX`] at the latest. So a callback that was lost with a connection
//!   delays a reader for that time at most.
//! * A reader that cannot wait, because too many do, gets its answer at once. It pauses then.

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use sheen_wire::{Errno, Result, changelog, mds::Request};

use super::control::XATTR_BYTES_MAX;
use crate::{Caller, Client, mdc};

/// Longest time for which a reader waits.
const WAIT_MAX: Duration = Duration::from_secs(10);

impl Client {
    /// Returns durable records from number `start` on, encoded. `waits`: if there are none yet,
    /// waits for some. The result may be without records then, too.
    ///
    /// # Errors
    /// EPERM: the caller is not the superuser, or the client has limits. Any error of the MDT.
    pub(super) async fn changelog(&self, who: &Caller, start: u64, waits: bool) -> Result<Bytes> {
        let readers = self.mdc.changelog_readers();
        let seat = if waits { readers.seats.try_acquire().ok() } else { None };
        let end = self.rt.now() + WAIT_MAX;
        loop {
            // A callback that comes before the reply counts.
            let mut news = pin!(readers.news.notified());
            news.as_mut().enable();
            let left = end.since(self.rt.now());
            let notify = seat.is_some() && !left.is_zero();
            let records = self.ask_changelog(who, start, notify).await?;
            if !notify || !changelog::decode(&records).map_err(|_| Errno::EPROTO)?.is_empty() {
                return Ok(records);
            }
            // The callback may be about a record before `start`, or the MDT was restarted.
            let _ = self.rt.timeout(left, news).await;
        }
    }

    /// `notify`: the MDT sends a callback later if there are no records yet.
    async fn ask_changelog(&self, who: &Caller, start: u64, notify: bool) -> Result<Bytes> {
        let bytes_max = XATTR_BYTES_MAX as u32;
        let request = |cred| Request::Changelog { cred, start, bytes_max, notify };
        self.mdc.request_as(who, request).reply().await.and_then(mdc::bytes)
    }
}
