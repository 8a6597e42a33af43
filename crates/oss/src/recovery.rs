//! Recovery after a restart: clients replay the changes that the OST has lost, and flush the dirty
//! data that they wrote under locks of before.
//!
//! The locks were lost with the restart. If another client could read or write the same bytes
//! before the flush, it would read old data, or its write would be overwritten by an earlier one.
//!
//! A client's hook for restarts drops its locks, and the data and sizes cached under them. Then it
//! sends `Recover`. If the OST's host has failed since the last commit ([`crate::commits`]), the
//! client sends the changes that are not committed (`Replay`). The OST executes the changes of all
//! clients in order of transno. Then each client requests the group locks again that its programs
//! hold, flushes its dirty data, and sends `Recovered`.
//!
//! Changes may be in the files already, all of them or some. Executed once more in their order,
//! they give the same bytes.
//!
//! Invariants:
//! * A client is on the durable list before its first lock or change ([`Ost::list_client`]). A
//!   client of this process is left out, because it does not survive a crash.
//! * Until all changes are replayed, nothing else is written.
//! * Until all clients on the list have recovered, only they may write, and only bytes on which
//!   they had locks. Such bytes are dirty data, stored pages of mappings, and appends that were
//!   under way.
//! * Until then, only they get locks, and only group locks that they had. A client has its group
//!   locks before it flushes: the locks of other members would block the flush. Mounts with a key
//!   of a user or a host get none.
//! * An object that the MDT destroys meanwhile is not created again by a replay.
//! * A client that does not recover in time is dropped: it is taken off the list, and evicted if it
//!   is connected. Then it discards its dirty data, and reports this at its next sync.
//! * An orderly stop revokes all locks ([`Ost::revoke_all`]). So the next start waits only for
//!   clients that held locks all the same.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use sheen_lnet::Nid;
use sheen_recovery::Stage;
use sheen_recoveryd::Over;
use sheen_rpc::Export;
use sheen_wire::{
    Bulk, Errno, Result,
    auth::Role,
    ldlm::{Enqueue, Mode, Policy, Resource},
    ost::{Change, Reply, Request},
};
use tracing::{info, warn};

use crate::{
    Ost,
    locks::all,
    replayed::{Destroyed, Replayed},
};

/// Time that an orderly stop waits for clients to cancel their locks.
const REVOKE_MAX: Duration = Duration::from_secs(1);
/// Time that it then waits for dirty data of clients of this process. The next start does not wait
/// for them, and would make them discard it.
const REVOKE_LOCAL_MAX: Duration = Duration::from_secs(10);
/// Number of objects whose locks are revoked at a time.
const REVOKED_AT_ONCE: usize = 256;

impl Ost {
    /// Waits until this request may be executed. Returns the reply if it may not.
    ///
    /// # Errors
    /// ESHUTDOWN: the OST stops, or the client has disconnected. EAGAIN: the MDT repeats the
    /// request later.
    pub(crate) async fn wait_for_recovery(&self, export: &Export, request: &Request) -> Result<Option<Reply>> {
        use Request::*;
        let is_back = || self.recovery.window.lock().has_replayed(export.client());
        match request {
            Recover | Replay { .. } | Recovered { .. } | StatFs | Cancel { .. } | Glimpsed { .. } | Follow { .. } => {
                Ok(None)
            }
            // No client uses these objects any more.
            Destroy { .. } | DestroyRange { .. } => Ok(None),
            Evict { .. } | Present { .. } => Ok(None),
            // Clients flushed all dirty data of an object before it was sealed.
            Unseal { .. } => Ok(None),
            // The MDT repeats it. If the request waited here, it could be executed when the MDT
            // does not wait for it any more.
            Seal { .. } | Link { .. } => Err(Errno::EAGAIN),
            SetOwners { .. } | QuotaWait | QuotaAllow { .. } | QuotaUse { .. } => Ok(None),
            Write { held: true, .. } if is_back() => {
                self.recovery.progress();
                self.locks.unless_disconnected(export, self.recovery.replayed()).await.map(|()| None)
            }
            Enqueue { locks, .. } if is_back() && !locks.is_empty() && locks.iter().all(is_regroup) => {
                // The OST does not know which locks a client had. With one that it had not, a
                // client could keep others from sending their dirty data in time.
                if *export.role() == Role::Server { Ok(None) } else { Err(Errno::EPERM) }
            }
            // After data that followed its object to another name.
            Sync { .. } if is_back() => {
                self.locks.unless_disconnected(export, self.recovery.replayed()).await.map(|()| None)
            }
            // The request must not hold bytes for which a flush may wait.
            Write { held: false, .. } => Ok(Some(Reply::LockFirst)),
            _ => self.locks.unless_disconnected(export, self.recovery.ended()).await.map(|()| None),
        }
    }

    /// Processes `Recover`.
    ///
    /// # Errors
    /// ESTALE: the OST did not wait for this client.
    pub(crate) fn client_returned(&self, export: &Export) -> Result<Reply> {
        let (epoch, lost) = (self.store.epoch(), self.store.lost_epochs());
        let has_all = lost.is_empty();
        self.recovery.window.lock().replay(export.client(), true, [], has_all).map_err(|_| Errno::ESTALE)?;
        self.store.clients().returned(export.client(), export.id());
        self.recovery.notify();
        Ok(Reply::Recovering { epoch, lost })
    }

    /// Accepts changes of a client, and waits until they are executed. `bulk`: the bytes of the
    /// writes.
    ///
    /// # Errors
    /// ESTALE: the OST does not wait for this client.
    pub(crate) async fn replay(
        &self,
        export: &Export,
        changes: Vec<(u64, Change)>,
        bulk: &Bulk,
        first: bool,
        last: bool,
    ) -> Result<Reply> {
        let client = export.client();
        let transnos: Vec<u64> = changes.iter().map(|(transno, _)| *transno).collect();
        let mut at = 0;
        let with_bytes = |(transno, change): (u64, Change)| {
            let len = match &change {
                Change::Write { parts, .. } => parts.iter().map(|part| part.len as usize).sum(),
                Change::Truncate { .. } | Change::Allocate { .. } => 0,
            };
            at += len;
            (transno, Replayed { change, bulk: bulk.slice(at - len, len), export: export.id() })
        };
        let changes: Vec<_> = changes.into_iter().map(with_bytes).collect();
        self.recovery.window.lock().replay(client, first, changes, last).map_err(|_| Errno::ESTALE)?;
        self.recovery.progress();
        self.recovery.notify();
        let outcomes = self.recovery.outcomes(client, &transnos);
        self.locks.unless_disconnected(export, outcomes).await?.map(Reply::Replayed).map_err(|_| Errno::ESTALE)
    }

    /// Executes all changes whose turn has come.
    fn execute_replays(&self) {
        loop {
            let next = self.recovery.window.lock().next_change();
            let Some((client, transno, change)) = next else { return };
            let outcome = self.perhaps_blocking(true, || self.execute_replay(&change));
            if let Err(errno) = outcome {
                warn!("{}: cannot replay a change of client {client}: {errno}; the client reports its loss", self.name);
            }
            if self.recovery.window.lock().executed(&client, transno, outcome) {
                self.recovery.notify();
            }
        }
    }

    fn execute_replay(&self, replayed: &Replayed) -> Result<()> {
        let Replayed { change, bulk, export } = replayed;
        let changed = self.store.replay(change, bulk, |object| self.destroyed.lock().has(object))?;
        self.commits.replayed(*export, changed);
        Ok(())
    }

    /// Records that all changes are replayed, and that all awaited clients know it.
    pub(crate) fn all_replayed(&self) {
        if let Err(errno) = self.store.replayed() {
            warn!("{}: cannot record the end of the replay: {errno}; check the disk", self.name);
        }
    }

    /// Records the removal of a range of objects during the recovery.
    pub(crate) fn destroyed_range(&self, seq: u64, first: u32, last: u32) {
        if !self.recovery.is_ended() {
            self.destroyed.lock().0.push((seq, first, last));
        }
    }

    /// Processes `Recovered`.
    pub(crate) fn client_recovered(&self, export: &Export, incarnation: u64) -> Reply {
        if incarnation == self.incarnation {
            // A client that the OST does not wait for may report as well.
            let _ = self.recovery.window.lock().finished(export.client());
            self.recovery.notify();
        }
        Reply::Ok
    }

    /// Puts a client on the durable list before its first lock or change.
    pub(crate) async fn list_client(&self, export: &Arc<Export>) {
        if export.nid() == Nid::Lo || self.exports.read().is_listed(export) {
            return;
        }
        self.commits.listed();
        self.store.clients().add(export.client(), export.id()).await;
        self.exports.write().listed(export);
        if export.is_ended() {
            self.disconnected_client(export);
        }
    }

    /// Takes a client that has disconnected off the list.
    pub(crate) fn disconnected_client(&self, export: &Export) {
        if !self.store.clients().remove(export.client(), export.id()) {
            return;
        }
        self.recovery.window.lock().remove(export.client());
        self.recovery.notify();
        if let Some(ost) = self.me.upgrade() {
            // Otherwise an OST that crashes in the next moment would wait for the client.
            drop(self.rt.spawn("ost-clients", async move { ost.store.clients().flush().await }));
        }
    }

    /// Evicts a client that the MDT has evicted. If it is not back yet, the OST does not wait for
    /// it any more. `mdt`: the export of the MDT.
    pub(crate) async fn evict(&self, mdt: &Export, client: &str) {
        mdt.evict_client(client, "the MDT has evicted it");
        if self.store.clients().remove(client, 0) {
            self.recovery.window.lock().remove(client);
            self.recovery.notify();
        }
        self.store.clients().flush().await;
    }

    /// Drops the clients for which the wait is over.
    async fn drop_clients(&self, over: Over) {
        let dropped = self.recovery.drop_clients(over);
        for client in &dropped {
            warn!("{}: client {client} did not recover in time; its dirty data is lost", self.name);
            let export = self.exports.read().of_client(client).cloned();
            match export {
                // It may still flush. This also takes it off the list.
                Some(export) => export.evict("it did not recover in time"),
                None => drop(self.store.clients().remove(client, 0)),
            }
        }
        self.store.clients().flush().await;
        self.recovery.notify();
    }

    /// Revokes the locks of all clients, as far as they cancel them in time. They may get new ones
    /// meanwhile.
    pub(crate) async fn revoke_all(&self) {
        let locks = self.locks.lockd().all_locks();
        let resources: BTreeSet<Resource> = locks.iter().map(|info| info.resource).collect();
        let whole = resources.into_iter().map(|resource| (resource, Policy::extent(0, u64::MAX)));
        let _ = self.rt.timeout(REVOKE_MAX, self.wait_for_cancels(whole.collect())).await;
        let left = self.local_writers();
        if !left.is_empty() && self.rt.timeout(REVOKE_LOCAL_MAX, self.wait_for_cancels(left)).await.is_err() {
            warn!("{}: a mount of this process may discard dirty data: its flush took too long", self.name);
        }
    }

    /// Revokes the locks of all clients on these resources, and waits for the cancels.
    async fn wait_for_cancels(&self, wants: Vec<(Resource, Policy)>) {
        let lockd = self.locks.lockd();
        for some in wants.chunks(REVOKED_AT_ONCE) {
            let revoke = |(resource, policy): &(Resource, Policy)| {
                let mut lock = lockd.local(&[(*resource, Mode::Pw, *policy)], None);
                async move { lock.wait().await }
            };
            all(some.iter().map(revoke)).await;
        }
    }

    /// Returns the locks for writing of the clients of this process.
    fn local_writers(&self) -> Vec<(Resource, Policy)> {
        let local = self.exports.read().local();
        let locks = self.locks.lockd().all_locks().into_iter().map(|info| (info.resource, info.lock));
        let left = locks.filter(|(_, lock)| lock.mode == Mode::Pw && local.contains(&lock.client));
        left.map(|(resource, lock)| (resource, lock.policy)).collect()
    }

    /// Leaves only clients with locks on the list, for the next start. Call it when no request is
    /// under way any more.
    pub(crate) fn list_holders(&self) {
        if self.recovery.is_ended() {
            let holders: BTreeSet<u64> = self.locks.lockd().all_locks().iter().map(|info| info.lock.client).collect();
            self.store.clients().retain(|export| holders.contains(&export));
        }
    }
}

/// Whether a client requests a group lock again. In these flags the request differs from new ones,
/// which wait, or send blocking callbacks (`ask`).
fn is_regroup(lock: &Enqueue) -> bool {
    lock.mode == Mode::Group && lock.flags.nowait && !lock.flags.ask
}

/// The recovery task.
pub(crate) async fn run(ost: Arc<Ost>) {
    let clients = ost.recovery.window.lock().counts().clients;
    info!("{}: in recovery: waiting for {clients} clients", ost.name);
    let mut connected = 0;
    loop {
        ost.execute_replays();
        if ost.recovery.window.lock().stage() == Stage::Ended {
            break;
        }
        if let Some(over) = ost.recovery.wait_for_clients(&mut connected).await {
            ost.drop_clients(over).await;
        }
    }
    ost.all_replayed();
    ost.recovery.end();
    *ost.destroyed.lock() = Destroyed::default();
    let counts = ost.recovery.window.lock().counts();
    info!(
        "{}: recovery is over: {clients} clients, {} of them lost, {} changes replayed",
        ost.name, counts.dropped, counts.replayed
    );
}
