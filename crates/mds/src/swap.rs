//! Layout swap: two files exchange their objects ([`Request::SwapLayouts`]) while clients have them
//! open.
//!
//! As in a migration, the OSTs seal the objects of both files, so that no client uses them by an
//! old layout ([`crate::migrate`]). Then each object gets a second name for the same bytes, under
//! which it is unsealed. The namespace exchanges the layouts, and this is durable before any client
//! may see it. The old names are removed like those of an unlinked file.
//!
//! A swap may end at any point, by an error or a crash.
//! * Until the exchange is in the store, the swap has not happened, and the old names are valid.
//!   They are unsealed after an error, or when a client meets a sealed object. The new names are in
//!   the unlink log from their reservation on.
//! * Once the exchange is in the store, the swap has happened: every object has its new name
//!   durably.
//!
//! **Mirrored files** are exchanged only while no other client uses either of them. A writer of a
//! mirrored file checks at its end whether the file still has the layout by which it wrote. If not,
//! it repeats the write by the new layout, which after an exchange belongs to other bytes. So
//! before the objects are sealed, all clients cancel OPEN and LAYOUT of both files. A client that
//! has a file open reports this, and the swap fails. Once the objects are sealed, a request by an
//! old layout has no effect.
//!
//! Invariants:
//! * The OSTs get the new names only when every object is sealed. So an object has the same bytes
//!   under both names.
//! * Both files are in [`Relayouts`](crate::state::relayouts::Relayouts) all the time. They are
//!   entered in the order of their FIDs, so that two swaps do not deadlock.
//! * A swap continues if the requester disconnects, and is never left half done.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sheen_namespace::{ClientId, OpError, Renamed};
use sheen_rpc::{Export, Response};
use sheen_wire::mds::{Answer, Call, Reply, Request};
use sheen_wire::{Errno, Fid, Result};
use tracing::warn;

use crate::locks::LockedChange;
use crate::mdt::Mdt;
use crate::migrate::SEAL_TIMEOUT;
use crate::state::commits::Goal;

/// Number of attempts. A swap is repeated if one of the files got new objects meanwhile, or had
/// objects that were left sealed.
const TRIES: u32 = 4;

/// Number of checks whether a mirrored file is in use. A close that a program has just made may not
/// have been reported yet.
const IN_USE_CHECKS: u32 = 20;
/// Pause between two such checks.
const IN_USE_PAUSE: Duration = Duration::from_millis(50);

/// Events that a swap must wait for before it can begin.
enum Wait {
    Round(u64),
    Change(Fid),
}

impl Mdt {
    /// Answers a [`Request::SwapLayouts`].
    pub(crate) async fn swap_layouts(&self, export: &Arc<Export>, call: &Call) -> Result<Response<Answer>> {
        let (export, request) = (export.clone(), call.request.clone());
        let work = |mdt: Arc<Mdt>| async move { mdt.swap(&export, &request).await };
        let transno = self.run_to_end("mdt-swap", work).await?;
        Ok(Response::with_transno(Reply::Ok.into(), transno))
    }

    async fn swap(&self, export: &Export, request: &Request) -> Result<u64> {
        let Request::SwapLayouts { fids: [one, other], .. } = request else { return Err(Errno::EPROTO) };
        if one == other {
            return Err(Errno::EINVAL);
        }
        let _first = self.relayouts.turn(*one.min(other)).await;
        let _second = self.relayouts.turn(*one.max(other)).await;
        for _ in 0..TRIES {
            let Some(names) = self.begin_swap(request).await? else { return Ok(0) };
            let swapped = self.swap_begun(export, request, &names).await;
            if swapped.is_err() {
                let old: Vec<_> = names.iter().map(|n| (n.ost, n.old)).collect();
                self.unseal(&old).await;
            }
            self.core.lock().ns.end_swap(request);
            self.destroyer.rescan();
            let errno = match swapped {
                Ok((transno, change)) => {
                    change.revoke_when(self.durable(transno), self.fences.settled()).await?;
                    return Ok(transno);
                }
                Err(errno) => errno,
            };
            // MOVED: an earlier migration or swap left an object sealed. It is unsealed now.
            if !matches!(errno, Errno::EAGAIN | Errno::MOVED) {
                return Err(errno);
            }
        }
        Err(Errno::EBUSY)
    }

    /// Reserves the new names. `None`: the same request was already executed.
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
                        self.wake_committer(&core);
                        match begun {
                            Ok(names) => return Ok(names),
                            Err(OpError::Errno(errno)) => return Err(errno),
                            Err(OpError::CommitFirst) => Wait::Round(next_round),
                        }
                    }
                }
            };
            match wait {
                Wait::Round(round) => self.commits.reach(Goal::Round(round)).await?,
                Wait::Change(fid) => self.locks.settled(fid).await,
            }
        }
    }

    async fn swap_begun(&self, export: &Export, request: &Request, names: &[Renamed]) -> Result<(u64, LockedChange)> {
        let excluded = self.exclude_other_clients(export, request).await?;
        self.seal_old_names(names).await?;
        drop(excluded);
        if let Err(errno) = self.link_new_names(names).await {
            warn!("{}: swap_layouts aborted: an OST could not link objects to their new names: {errno}", self.name);
            return Err(errno);
        }
        self.execute_take(export, request).await
    }

    /// If one of the files is mirrored, makes sure that no other client uses either of them. No
    /// client can begin to use one before the returned change is dropped.
    ///
    /// # Errors
    /// EBUSY: a client uses one. ETIMEDOUT: a client does not answer.
    async fn exclude_other_clients(&self, export: &Export, request: &Request) -> Result<Option<LockedChange>> {
        let Request::SwapLayouts { fids, .. } = request else { return Err(Errno::EPROTO) };
        let mut excluded = {
            let mut core = self.core.lock();
            if !core.ns.is_any_mirrored(fids)? {
                return Ok(None);
            }
            self.revoke_open_and_layout(fids)
        };
        self.rt.timeout(SEAL_TIMEOUT, excluded.wait_cancelled()).await.map_err(|_| Errno::ETIMEDOUT)?;
        for _ in 0..IN_USE_CHECKS {
            let is_in_use = |fid: &Fid| self.core.lock().ns.is_in_use(*fid, ClientId(export.id()));
            if !fids.iter().any(is_in_use) {
                return Ok(Some(excluded));
            }
            self.rt.sleep(IN_USE_PAUSE).await;
        }
        Err(Errno::EBUSY)
    }
}
