//! Swaps of layouts: two files exchange their objects ([`Request::SwapLayouts`]) while others have
//! them open.
//!
//! As in a migration the OSTs close the objects of both files, so that nobody who keeps an old
//! layout uses them by it ([`crate::migrate`]). Then each object goes on under a new name, a second
//! one for the same bytes, and the namespace exchanges the layouts, durably, before anybody may see
//! it. The old names are removed like those of an unlinked file.
//!
//! It may end anywhere, by an error or a crash. Until the exchange is in the store it has not
//! happened: the old names are what counts, and are opened again, by whoever fails or by the first
//! client that meets one; the new names are in the unlink log from the moment of their reservation.
//! From then on it has: every object has its new name durably.
//!
//! **Mirrored files** are exchanged while nobody else uses either: a writer of one looks at its end
//! whether the file has still the layout by which it wrote, and if not writes by the other one,
//! too, which after an exchange is that of other bytes. So before the objects are closed all
//! clients give up what lets them open the files and know their layouts; who has one open says so,
//! and is in the way. When the objects are closed, whoever comes does nothing by an old layout any
//! more.
//!
//! Invariants:
//! * the OSTs are asked for new names when every object is closed: what an object holds then, it
//!   holds under either name;
//! * both files are [`Moving`] all the time, taken in the order of their FIDs, so that two swaps do
//!   not wait for each other;
//! * it goes on when the client that asked for it goes: half of it is not left.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sheen_namespace::{ClientId, NEED_COMMIT, Renamed};
use sheen_rpc::{Export, Response};
use sheen_wire::mds::{Answer, Call, Reply, Request};
use sheen_wire::ost;
use sheen_wire::{Errno, Fid, Result};
use tracing::warn;

use crate::commit::Goal;
use crate::locks::Change;
use crate::mdt::Mdt;
use crate::migrate::CLOSE_TIMEOUT;

/// Times that it is begun because one of the files was given objects meanwhile, or had closed ones
/// left.
const TRIES: u32 = 4;

/// How often it is looked whether a mirrored file is in use, for a program that has just closed it;
/// and the pause in between.
const LOOKS: u32 = 20;
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// What the beginning of a swap waits for.
enum Wait {
    Round(u64),
    Change(Fid),
}

impl Mdt {
    /// Answers a [`Request::SwapLayouts`].
    pub(crate) async fn swap_layouts(&self, export: &Arc<Export>, call: &Call) -> Result<Response<Answer>> {
        let mdt = self.me.upgrade().ok_or(Errno::ESHUTDOWN)?;
        let (export, request) = (export.clone(), call.request.clone());
        let task = self.rt.spawn("mdt-swap", async move { mdt.swap(&export, &request).await });
        let transno = task.await.unwrap_or(Err(Errno::ESHUTDOWN))?;
        Ok(Response::with_transno(Reply::Ok.into(), transno))
    }

    async fn swap(&self, export: &Export, request: &Request) -> Result<u64> {
        let Request::SwapLayouts { fids: [one, other], .. } = request else { return Err(Errno::EPROTO) };
        if one == other {
            return Err(Errno::EINVAL);
        }
        let _first = self.moving.turn(*one.min(other)).await;
        let _second = self.moving.turn(*one.max(other)).await;
        for _ in 0..TRIES {
            let Some(names) = self.begin_swap(request).await? else { return Ok(0) };
            let swapped = self.swap_begun(export, request, &names).await;
            self.core.lock().ns.end_swap(request);
            self.destroyer.rescan();
            let errno = match swapped {
                Ok((transno, change)) => {
                    change.revoke_when(self.durable(transno)).await?;
                    return Ok(transno);
                }
                Err(errno) => errno,
            };
            let old: Vec<_> = names.iter().map(|n| (n.ost, n.old)).collect();
            self.reopen(&old).await;
            // MOVED: left closed by one before, and open now.
            if !matches!(errno, Errno::EAGAIN | Errno::MOVED) {
                return Err(errno);
            }
        }
        Err(Errno::EBUSY)
    }

    /// Reserves the new names. `None`: it was done before the MDT was restarted.
    async fn begin_swap(&self, request: &Request) -> Result<Option<Vec<Renamed>>> {
        loop {
            self.commits.admit().await?;
            let wait = {
                let mut core = self.core.lock();
                if self.stopped.load(Relaxed) {
                    return Err(Errno::ESHUTDOWN);
                }
                match self.unsettled(&mut core, request) {
                    Some(fid) => Wait::Change(fid),
                    None => {
                        let next_round = core.round + 1;
                        let begun = core.ns.begin_swap(request);
                        self.touched(&core);
                        if begun != Err(NEED_COMMIT) {
                            return begun;
                        }
                        Wait::Round(next_round)
                    }
                }
            };
            match wait {
                Wait::Round(round) => self.commits.reach(Goal::Round(round)).await?,
                Wait::Change(fid) => self.locks.settled(fid).await,
            }
        }
    }

    async fn swap_begun(&self, export: &Export, request: &Request, names: &[Renamed]) -> Result<(u64, Change)> {
        let quiet = self.quiet(export, request).await?;
        let old: Vec<_> = names.iter().map(|n| (n.ost, (n.old, None))).collect();
        self.each_ost(&old, CLOSE_TIMEOUT, |objects| ost::Request::Close { objects, group: None }).await?;
        drop(quiet);
        let both: Vec<_> = names.iter().map(|n| (n.ost, (n.old, n.new))).collect();
        let linked = self.each_ost(&both, CLOSE_TIMEOUT, |objects| ost::Request::Link { objects }).await;
        if let Err(errno) = linked {
            warn!("{}: layouts are not swapped, for an OST cannot give objects other names: {errno}", self.name);
            return Err(errno);
        }
        self.execute_take(export, request).await
    }

    /// Where one of the files is mirrored: nobody else uses either of them, nor begins to before
    /// this is dropped.
    ///
    /// # Errors
    /// EBUSY: somebody does. ETIMEDOUT: somebody does not say.
    async fn quiet(&self, export: &Export, request: &Request) -> Result<Option<Change>> {
        let Request::SwapLayouts { fids, .. } = request else { return Err(Errno::EPROTO) };
        let mut asking = {
            let mut core = self.core.lock();
            if !core.ns.is_any_mirrored(fids)? {
                return Ok(None);
            }
            self.asking_all(fids)
        };
        self.rt.timeout(CLOSE_TIMEOUT, asking.heard()).await.map_err(|_| Errno::ETIMEDOUT)?;
        for _ in 0..LOOKS {
            let is_in_use = |fid: &Fid| self.core.lock().ns.is_in_use(*fid, ClientId(export.id()));
            if !fids.iter().any(is_in_use) {
                return Ok(Some(asking));
            }
            self.rt.sleep(LOOK_PAUSE).await;
        }
        Err(Errno::EBUSY)
    }
}
