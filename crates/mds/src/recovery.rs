//! Recovery after a crash: clients replay the changes that the MDT had answered and not committed.
//!
//! A client's hook for restarts sends its changes (`Replay`), opens its files again (`Reopen`), and
//! takes the locks of its programs again (`Relock`). Then it reports that it has finished
//! (`Recovered`). [`sheen_recovery::Window`] brings the changes of all clients into their order. A
//! task executes them.
//!
//! Invariants:
//! * The MDT knows from its durable list which clients may have changes to replay, or caches that
//!   they believe to be current. A client is on it before it gets its first lock, and before its
//!   first change is answered.
//! * No other request is executed before the recovery ends. So a replay finds everything as it was,
//!   and nothing is removed that another client has created since.
//! * The recovery ends when all clients have finished. A client that does not return or stops on
//!   the way is dropped after `recovery_time_soft`; at the latest the recovery ends after
//!   `recovery_time_hard`. Such a client loses its changes, and reports this at its next sync.
//! * Objects of lost creates are destroyed only after the end: a replay may claim them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use sheen_lnet::Nid;
use sheen_namespace::{ClientId, Decided};
use sheen_recovery::Stage;
use sheen_recoveryd::Over;
use sheen_rpc::Export;
use sheen_wire::mds::{Call, LAYOUTS_MAX, REPLAYS_MAX, Replay, Reply, Request};
use sheen_wire::{Errno, Fid, Result, frame};
use tracing::{error, info, warn};

use crate::env::MdtEnv;
use crate::mdt::Mdt;
use crate::state::core::Core;
use crate::state::recovery::Change;

impl Mdt {
    /// Waits until this request may be executed.
    ///
    /// # Errors
    /// ESHUTDOWN: the MDT stops.
    pub(crate) async fn wait_for_recovery(&self, request: &Request) -> Result<()> {
        match request {
            Request::Replay { .. } | Request::Recovered | Request::Cancel | Request::OwnSequences { .. } => Ok(()),
            Request::AdoptLayouts { .. } | Request::Reopen { .. } | Request::Relock { .. } | Request::Close { .. } => {
                self.unless_stopping(self.recovery.replayed()).await
            }
            _ => self.unless_stopping(self.recovery.ended()).await,
        }
    }

    /// Returns the output of `wait`, or ESHUTDOWN if the MDT stops first.
    async fn unless_stopping<T>(&self, wait: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            done = wait => Ok(done),
            () = self.locks.wait_stopping() => Err(Errno::ESHUTDOWN),
        }
    }

    /// Accepts changes of a client, and waits until they are executed.
    ///
    /// # Errors
    /// ESTALE: the MDT does not wait for this client. EPROTO: not a replay that a client sends.
    /// EPERM: it lacks the proof that this client needs ([`Mdt::confine_replay`]). ESHUTDOWN: the
    /// MDT stops.
    pub(crate) async fn replay(
        &self,
        export: &Arc<Export>,
        replays: &[Replay],
        first: bool,
        last: bool,
    ) -> Result<Reply> {
        let client = export.client();
        if !self.core.lock().ns.client_returned(client) {
            return Err(Errno::ESTALE);
        }
        let transnos: Vec<u64> = replays.iter().map(|replay| replay.transno).collect();
        if self.recovery.is_ended() {
            // After a clean stop there is nothing to replay. After a recovery, the client may have
            // missed the reply to its last request.
            return match self.recovery.window.lock().outcomes(client, &transnos) {
                Ok(Some(outcomes)) => Ok(Reply::Replayed(outcomes)),
                _ if replays.is_empty() => Ok(Reply::Replayed(Vec::new())),
                _ => Err(Errno::ESTALE),
            };
        }
        if replays.len() > REPLAYS_MAX || !transnos.is_sorted_by(|a, b| a < b) {
            return Err(Errno::EPROTO);
        }
        let change = |replay: &Replay| {
            let mut call: Call = frame::from_body(&replay.call).map_err(|_| Errno::EPROTO)?;
            self.confine_replay(export, replay, &mut call.request)?;
            let Replay { transno, time, layout, named, .. } = replay.clone();
            Ok((transno, Change { export: export.clone(), request: call.request, time, layout, named }))
        };
        let changes: Vec<_> = match replays.iter().map(change).collect() {
            Ok(changes) => changes,
            Err(errno) => {
                // Nobody waits for the changes of a client that sends such ones.
                let _ = self.recovery.window.lock().replay(client, true, [], true);
                self.recovery.notify();
                return Err(errno);
            }
        };
        self.recovery.window.lock().replay(client, first, changes, last).map_err(|_| Errno::ESTALE)?;
        self.recovery.notify();
        let outcomes = self.unless_stopping(self.recovery.outcomes(client, &transnos)).await?;
        outcomes.map(Reply::Replayed).map_err(|_| Errno::ESTALE)
    }

    /// Adopts layouts that a client knows and that are newer than the stored ones.
    ///
    /// # Errors
    /// EPROTO: too many layouts.
    pub(crate) fn adopt_layouts(&self, export: &Export, layouts: &[(Fid, Bytes)]) -> Result<Reply> {
        if layouts.len() > LAYOUTS_MAX {
            return Err(Errno::EPROTO);
        }
        // Otherwise, other clients may have changed the layout meanwhile.
        if !self.recovery.is_ended() && self.recovery.window.lock().has_replayed(export.client()) {
            let mut core = self.core.lock();
            for (fid, layout) in layouts {
                // After an error, the client learns it when it opens the file again.
                if core.ns.adopt_layout(*fid, layout) == Ok(true) {
                    info!("{}: {fid}: a client knows a newer layout; adopted it", self.name);
                }
            }
            self.wake_committer(&core);
        }
        Ok(Reply::Ok)
    }

    /// Processes a client's report that it has finished.
    pub(crate) fn client_recovered(&self, export: &Export) -> Reply {
        self.core.lock().ns.client_returned(export.client());
        // A client that the MDT does not wait for may report as well.
        let _ = self.recovery.window.lock().finished(export.client());
        self.recovery.notify();
        Reply::Ok
    }

    /// Puts a client on the durable list before its first change or lock. Returns the round of
    /// commits to wait for, if that is not durable yet. A client of this process is left out,
    /// because it does not survive a crash. So is one that comes while the store cannot be written.
    pub(crate) fn list_client(&self, core: &mut Core, export: &Export) -> Option<u64> {
        let done = match core.listed.get(&export.id()) {
            Some(0) => return None,
            Some(round) => self.commits.progress.borrow().round >= *round,
            None => {
                let is_listed = export.nid() == Nid::Lo
                    || core.ns.client_returned(export.client())
                    || !core.ns.list_client(export.client());
                core.listed.insert(export.id(), if is_listed { 0 } else { core.round + 1 });
                is_listed
            }
        };
        if done || self.commits.failed() {
            core.listed.insert(export.id(), 0);
            return None;
        }
        core.listed.get(&export.id()).copied()
    }

    /// Executes a change whose turn has come.
    async fn execute_replay(&self, change: &Change, transno: u64) -> Result<()> {
        self.commits.admit().await?;
        let mut guard = self.core.lock();
        if self.stopped.load(Relaxed) {
            return Err(Errno::ESHUTDOWN);
        }
        let core = &mut *guard;
        let client = ClientId(change.export.id());
        let (placer, now, export) = (&mut core.placer, self.rt.now(), Some(&*change.export));
        let mut env = MdtEnv { mdt: self, placer, now, waited: Duration::ZERO, client: export, wait: false };
        let Change { time, layout, named, .. } = change;
        let decided = Decided { transno, time: *time, layout: layout.clone(), named: named.clone() };
        let replayed = core.ns.replay(client, &change.request, decided, &mut env);
        let fault = if replayed.is_err() { core.ns.take_fault() } else { None };
        self.wake_committer(core);
        drop(guard);
        if let Some(fault) = fault {
            self.store_failed("replay", &fault);
        }
        replayed
    }

    /// Executes all changes whose turn has come.
    async fn execute_replays(&self) {
        loop {
            let next = self.recovery.window.lock().next_change();
            let Some((client, transno, change)) = next else { return };
            let outcome = self.execute_replay(&change, transno).await;
            if let Err(errno) = outcome {
                let (name, op) = (&self.name, change.request.op());
                warn!(
                    "{name}: cannot replay {op} (transno {transno}) of client {client}: {errno}; the change is lost, \
                     and the client reports it"
                );
            }
            let is_last = self.recovery.window.lock().executed(&client, transno, outcome);
            // Not for each change: the requests that wait look at all their changes again.
            if is_last {
                self.recovery.notify();
            }
        }
    }

    /// Drops the clients for which the wait is over.
    fn drop_clients(&self, over: Over) {
        let mut core = self.core.lock();
        if self.stopped.load(Relaxed) {
            return; // the next life waits for them again
        }
        let dropped = self.recovery.drop_clients(over);
        for client in &dropped {
            warn!("{}: client {client} did not recover in time; its uncommitted changes are lost", self.name);
            core.ns.drop_client(client);
        }
        // One of them may be connected. It is to be listed again.
        core.listed.clear();
        self.wake_committer(&core);
        drop(core);
        dropped.iter().for_each(|client| self.fence(client));
        self.recovery.notify();
    }

    /// Deletes the orphans that no client has open.
    fn finish_recovery(&self) {
        let mut core = self.core.lock();
        if self.stopped.load(Relaxed) {
            return;
        }
        match core.ns.finish_recovery() {
            Err(e) if e.is_damage() => self.damaged(&e),
            Err(e) => {
                error!("{}: cannot destroy orphans: {e}; they use space until the next start tries again", self.name);
            }
            Ok(()) => {}
        }
        self.wake_committer(&core);
    }
}

/// The recovery task.
pub(crate) async fn run(mdt: Arc<Mdt>) {
    if mdt.recovery.is_ended() {
        // After a clean stop nobody replays anything, but clients may have unlinked files open.
        mdt.rt.sleep(Duration::from_millis(mdt.config.recovery_window_ms)).await;
        mdt.finish_recovery();
        return;
    }
    let clients = mdt.recovery.window.lock().counts().clients;
    info!("{}: in recovery: waiting for {clients} clients", mdt.name);
    let mut connected = 0;
    loop {
        mdt.execute_replays().await;
        if mdt.locks.is_stopping() {
            return;
        }
        if mdt.recovery.window.lock().stage() == Stage::Ended {
            break;
        }
        if let Some(over) = mdt.recovery.wait_for_clients(&mut connected).await {
            mdt.drop_clients(over);
        }
    }
    mdt.finish_recovery();
    mdt.recovery.end();
    let counts = mdt.recovery.window.lock().counts();
    info!(
        "{}: recovery is over: {} clients, {} of them lost, {} changes replayed",
        mdt.name, counts.clients, counts.dropped, counts.replayed
    );
}
