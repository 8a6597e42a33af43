//! Locks of the MDT: how clients that cache metadata learn of changes.
//!
//! **Changes**: execute, revoke, reply. The MDT executes the request in memory. With the core lock
//! still held, it takes EX locks of its own on the inodes that the request changed. The requester's
//! own locks do not conflict with them: the requester updates its cache from the reply. Other
//! clients with conflicting locks get blocking callbacks, and the reply waits until all of them
//! have cancelled ([`LockedChange`]). Meanwhile every request that involves one of these inodes
//! waits before it is executed ([`Mdt::unsettled`]). So no client sees the new state while another
//! client may see the old one.
//!
//! Changes of one inode happen one after the other, because nothing is executed on an inode under
//! change. There is no deadlock: all locks of a change are enqueued in one step, and a request that
//! waits holds none.
//!
//! After some changes clients write to objects that a restart of the MDT would make unreachable
//! (another layout of a mirrored file, other objects). Such a change ends only when it is durable
//! ([`LockedChange::revoke_when`]).
//!
//! **Open files**: a client with a lock on a file's OPEN bit opens the file without a request.
//! * When the last name of a file is removed, the MDT therefore takes OPEN from all clients, the
//!   requester included. A client that has the file open reports this (`Reopen`) before it cancels.
//!   Until then the MDT holds the file open. If no client has reported it, the MDT then deletes the
//!   file ([`sheen_namespace::HeldOrphan`]).
//! * An open for execution takes OPEN from the other clients, because none of them may have the
//!   file open for writing. While a client executes a file, no other client is granted OPEN.
//! * OPEN of an executable file is granted only to a client that opens it. Most such files are
//!   executed, and then no blocking callback is needed.
//!
//! **Replies**: a client that wants to cache a reply gets a PR lock on each inode in it, unless
//! another lock conflicts ([`Mdt::grants`]). The lock is granted in the same step in which the
//! reply is made. So a blocking callback may overtake the reply. An error reply brings no locks. A
//! client may cache that a name does not exist only under a lock on the directory from before its
//! request.
//!
//! **Locks of programs** (flock, fcntl) are enqueued as requested. A client that waits for one gets
//! a completion callback.
//!
//! All locks live in memory only. A client retains them while its connection is broken. They are
//! dropped when it disconnects or is evicted. A restarted MDT knows no locks. Clients recognize the
//! restart by the incarnation when they reconnect, and drop their caches. After a crash the MDT
//! waits for them before it changes anything. Before a clean stop it revokes their locks, so they
//! have no caches ([`Mdt::revoke_all`]). If some do not cancel in time, the
//! next life waits for all.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustc_hash::FxHashSet;
use sheen_lockd::Local;
use sheen_namespace::{ClientId, Done, HeldOrphan};
use sheen_rpc::Export;
use sheen_rt::Rt;
use sheen_wire::ast::Grant;
use sheen_wire::ldlm::{Cookie, Enqueue, Enqueued, Flags, Kind, Mode, Policy, Resource, bits};
use sheen_wire::mds::{Answer, Call, Entry, RELOCKS_MAX, Reply, Request, flags};
use sheen_wire::{Attr, Errno, Fid, FileKind, Result};
use tokio::sync::watch;
use tracing::info;

use crate::mdt::Mdt;
use crate::state::core::Core;
use crate::state::locks::{Locks, OPEN};

/// Lock bits granted with attributes and layout. They cover both, the name that led to the inode,
/// and extended attributes that the client fetches later. (OPEN comes in addition.)
const CACHE_BITS: u64 = bits::LOOKUP | bits::UPDATE | bits::PERM | bits::XATTR | bits::LAYOUT;
/// Time that clients have to cancel their locks before the MDT stops.
const REVOKE_MAX: Duration = Duration::from_secs(1);
/// Inodes whose locks are revoked at once before the MDT stops.
const REVOKED_AT_ONCE: usize = 256;
/// Inodes whose OPEN locks are revoked at once when opens or closes are recorded from now on.
const OPEN_REVOKED_AT_ONCE: usize = 16;
/// Execute permission of owner, group and others.
const ANY_X: u32 = 0o111;

/// The deleted inodes among `invalidations`.
pub(crate) fn deleted_inodes(invalidations: &[(Fid, u64)]) -> impl Iterator<Item = Fid> {
    // Only a deletion invalidates all bits of an inode.
    invalidations.iter().filter(|(_, bits)| bits & CACHE_BITS == CACHE_BITS).map(|(fid, _)| *fid)
}

/// Returns the lock that the MDT takes on the invalidated bits of an inode.
fn exclusive(&(fid, bits): &(Fid, u64)) -> (Resource, Mode, Policy) {
    (Resource::bits(fid), Mode::Ex, Policy::bits(bits))
}

/// A change that other clients must learn of before the reply is sent.
pub(crate) struct LockedChange {
    /// `None` once the change has ended.
    held: Option<ChangeLocks>,
    stopping: watch::Receiver<bool>,
    rt: Rt,
}

/// The MDT's own locks for a change.
struct ChangeLocks {
    mdt: Weak<Mdt>,
    local: Local,
    /// An unlinked file, and the lock on its OPEN bit.
    orphan: Option<(HeldOrphan, Local)>,
    changes: Arc<AtomicUsize>,
}

impl ChangeLocks {
    fn is_granted(&self) -> bool {
        self.local.is_granted() && self.orphan.iter().all(|(_, open)| open.is_granted())
    }

    async fn wait(&mut self) {
        self.local.wait().await;
        if let Some((_, open)) = &mut self.orphan {
            open.wait().await;
        }
    }

    /// Ends the change. Returns the file that was deleted by this, if any.
    fn end(self) -> Option<Fid> {
        let mut deleted = None;
        if let Some((orphan, open)) = self.orphan.filter(|(_, open)| open.is_granted())
            && let Some(mdt) = self.mdt.upgrade()
        {
            deleted = mdt.release_orphan(orphan).then_some(orphan.fid);
            drop(open);
        }
        drop(self.local);
        self.changes.fetch_sub(1, Relaxed);
        deleted
    }
}

impl LockedChange {
    /// Sends blocking callbacks to clients that cache what was changed. Waits until all have
    /// cancelled, or the MDT stops. Returns the file that was deleted by this, if any.
    pub async fn revoke(mut self) -> Option<Fid> {
        self.wait_cancelled().await;
        self.held.take().and_then(ChangeLocks::end)
    }

    /// As [`LockedChange::revoke`], but the change ends only when `durable` is ready as well, and
    /// then `fenced`. Returns the outcome of `durable`.
    pub async fn revoke_when<T>(mut self, durable: impl Future<Output = T>, fenced: impl Future<Output = ()>) -> T {
        let ((), durable) = tokio::join!(self.wait_cancelled(), durable);
        fenced.await;
        self.held.take().and_then(ChangeLocks::end);
        durable
    }

    /// Sends blocking callbacks to clients that cache what is being changed. Waits until all have
    /// cancelled, or the MDT stops. The change does not end.
    pub async fn wait_cancelled(&mut self) {
        let Some(held) = self.held.as_mut() else { return };
        tokio::select! {
            biased;
            () = held.wait() => {}
            // An error means that the MDT was dropped.
            _ = self.stopping.wait_for(|stopping| *stopping) => {}
        }
    }
}

impl Drop for LockedChange {
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        if held.is_granted() || *self.stopping.borrow() {
            held.end();
        } else {
            // The requester disconnected, but its change is executed. The other clients must still
            // cancel before any client sees the change.
            drop(self.rt.spawn("mdt-revoke", async move {
                held.wait().await;
                held.end();
            }));
        }
    }
}

impl Mdt {
    /// Returns an inode that the request involves and that another request is changing. The caller
    /// waits for that change and then checks again.
    pub(crate) fn unsettled(&self, core: &mut Core, request: &Request) -> Option<Fid> {
        if self.locks.changes.load(Relaxed) == 0 {
            return None;
        }
        let mut found = None;
        core.ns.involved(request, &mut |fid| {
            if found.is_none() && self.locks.is_changing(fid) {
                found = Some(fid);
            }
        });
        found
    }

    /// Locks what a request invalidated, with the core lock held. `None`: no other client caches
    /// any of it. Takes OPEN of an unlinked file from all clients, because only a client with OPEN
    /// knows whether it has the file open.
    pub(crate) fn change(
        &self,
        export: &Export,
        invalidations: &[(Fid, u64)],
        orphan: Option<HeldOrphan>,
    ) -> Option<LockedChange> {
        let local = match invalidations {
            [] => return None,
            [one] => self.locks.server.local(&[exclusive(one)], Some(export)),
            several => {
                let wants: Vec<_> = several.iter().map(exclusive).collect();
                self.locks.server.local(&wants, Some(export))
            }
        };
        let open = |n: HeldOrphan| (n, self.locks.server.local(&[(Resource::bits(n.fid), Mode::Ex, OPEN)], None));
        let orphan = orphan.map(open);
        if orphan.is_none() && local.is_granted() {
            return None;
        }
        Some(self.held(local, orphan))
    }

    /// As [`Mdt::change`], for a change that no client may see before it is durable
    /// ([`LockedChange::revoke_when`]).
    pub(crate) fn lasting_change(&self, exempt: Option<&Export>, invalidations: &[(Fid, u64)]) -> LockedChange {
        let wants: Vec<_> = invalidations.iter().map(exclusive).collect();
        self.held(self.locks.server.local(&wants, exempt), None)
    }

    /// Takes OPEN and LAYOUT of these files from all clients, the requester included: then no
    /// client reaches their bytes without a request. A client that has a file open reports this.
    /// Until the change ends, requests for these bits wait. To be called with the core lock held.
    pub(crate) fn revoke_open_and_layout(&self, fids: &[Fid]) -> LockedChange {
        let wants: Vec<_> = fids.iter().map(|fid| exclusive(&(*fid, bits::OPEN | bits::LAYOUT))).collect();
        self.held(self.locks.server.local(&wants, None), None)
    }

    fn held(&self, local: Local, orphan: Option<(HeldOrphan, Local)>) -> LockedChange {
        self.locks.changes.fetch_add(1, Relaxed);
        let (changes, stopping) = (self.locks.changes.clone(), self.locks.stopping.subscribe());
        let held = ChangeLocks { mdt: self.me.clone(), local, orphan, changes };
        LockedChange { held: Some(held), stopping, rt: self.rt.clone() }
    }

    /// Releases an unlinked file, after all clients have cancelled OPEN. Returns whether the file
    /// was deleted by this.
    fn release_orphan(&self, orphan: HeldOrphan) -> bool {
        let mut core = self.core.lock();
        // After a stop the file's record in the store is left to the next start.
        if self.stopped.load(Relaxed) {
            return false;
        }
        let deleted = core.ns.release_orphan(orphan);
        self.wake_committer(&core);
        deleted
    }

    /// Grants locks for what the reply contains, with the core lock held. Leaves the attributes of
    /// inodes under change out of a listing.
    pub(crate) fn grants(
        &self,
        core: &Core,
        export: &Arc<Export>,
        call: &Call,
        result: &mut Result<Done>,
    ) -> Vec<Grant> {
        // Another client may have removed the file, or its name.
        if result.as_ref().is_ok_and(|done| done.repeated) || self.locks.closed.load(Relaxed) {
            return Vec::new();
        }
        let opens = match &call.request {
            // The open may still be refused, and an error reply brings no locks.
            Request::Open { flags, .. } if flags & flags::EXEC != 0 => return Vec::new(),
            Request::Open { .. } | Request::OpenCreate { .. } => true,
            _ => false,
        };
        let client = ClientId(export.id());
        let is_known = call.keep.is_some() && (core.ns.records_opens() || self.sees_all_opens(export));
        // Only a file with a name: its deletion takes OPEN first.
        let may_open = |attr: &Attr| {
            let is_file = !is_known && attr.kind == FileKind::Regular && attr.nlink > 0;
            is_file && (opens || attr.perm & ANY_X == 0) && !core.ns.is_run_elsewhere(client, attr.fid)
        };
        let (locks, keep) = (&self.locks, call.keep);
        let mut grants = Granter { locks, export, keep, may_open, grants: Vec::new(), linked: FxHashSet::default() };
        // A reply without the layout does not vouch for it.
        let no_layout = matches!(call.request, Request::GetAttr { layout_known: true, .. });
        let cacheable = if no_layout { CACHE_BITS & !bits::LAYOUT } else { CACHE_BITS };
        match result {
            Ok(Done { reply: Reply::Entries { entries, .. }, .. }) => {
                self.locks.leave_out_changing(entries);
                entries
                    .iter()
                    .enumerate()
                    .for_each(|(n, e)| e.entry.iter().for_each(|e| grants.entry(n, e, cacheable)));
            }
            // No OPEN for a created file: many are unlinked before another open, and the client
            // would have to cancel OPEN first.
            Ok(Done { reply: Reply::Opened { entry, created: true, .. }, .. }) => grants.made(entry, cacheable),
            Ok(Done { reply: Reply::Entry(entry) | Reply::Opened { entry, .. }, .. }) => {
                grants.entry(0, entry, cacheable)
            }
            _ => {}
        }
        grants.grants
    }

    /// Grants no more locks on inodes, and revokes those of all clients, as far as they cancel them
    /// at once.
    pub(crate) async fn revoke_all(&self) {
        {
            let _core = self.core.lock();
            self.locks.closed.store(true, Relaxed);
        }
        let wants = self.conflicting(Policy::bits(bits::ALL));
        // All of them first, so that a client that does not cancel delays no other.
        let chunks = wants.chunks(REVOKED_AT_ONCE);
        let mut all: Vec<Local> = chunks.map(|some| self.locks.server.local(some, None)).collect();
        let revoked = async {
            for some in &mut all {
                some.wait().await;
            }
        };
        if self.rt.timeout(REVOKE_MAX, revoked).await.is_err() {
            info!("{}: some clients have not cancelled their locks; the next start waits for all clients", self.name);
        }
    }

    /// Takes OPEN from all clients in the background. A client that has a file open reports this
    /// before it cancels. To be called when new replies do not grant OPEN any more.
    pub(crate) fn revoke_open(&self) {
        let wants = self.conflicting(OPEN);
        let (server, mut stopping) = (self.locks.server.clone(), self.locks.stopping.subscribe());
        // In small steps: while another change is in progress, requests that involve these inodes
        // wait for this one, too.
        let revoked = async move {
            for some in wants.chunks(OPEN_REVOKED_AT_ONCE) {
                server.local(some, None).wait().await;
            }
        };
        drop(self.rt.spawn("mdt-revoke-open", async move {
            tokio::select! {
                biased;
                () = revoked => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        }));
    }

    /// Returns locks that conflict with the locks of all clients on inodes in these bits.
    fn conflicting(&self, policy: Policy) -> Vec<(Resource, Mode, Policy)> {
        let locks = self.locks.server.all_locks();
        let on_inodes = locks.iter().filter(|info| info.resource.kind != Kind::Flock);
        let held: FxHashSet<Resource> =
            on_inodes.filter(|info| info.lock.policy.overlaps(&policy)).map(|info| info.resource).collect();
        held.into_iter().map(|inode| (inode, Mode::Ex, policy)).collect()
    }

    /// Returns whether the next life of this MDT has to wait for the clients. Some have locks on
    /// inodes, or their programs have locks (flock, fcntl), wait for such locks, or run from files.
    pub(crate) fn is_relied_on(&self, core: &Core) -> bool {
        let locks = self.locks.server.all_locks();
        core.ns.has_running() || locks.iter().any(|info| core.exports.contains(&info.lock.client))
    }

    /// Grants locks that a client's programs held before a restart.
    ///
    /// # Errors
    /// ESTALE: the client has not recovered, so others may have had the locks meanwhile. EPROTO:
    /// too many locks.
    pub(crate) fn relock(&self, export: &Arc<Export>, wants: &[Enqueue]) -> Result<Reply> {
        if !self.recovery.window.lock().has_replayed(export.client()) {
            return Err(Errno::ESTALE);
        }
        if wants.len() > RELOCKS_MAX {
            return Err(Errno::EPROTO);
        }
        let one = |want: &Enqueue| match self.program_lock(export, want)?.reply {
            Reply::Enqueued(Enqueued::Granted { .. }) => Ok(()),
            _ => Err(Errno::EAGAIN),
        };
        Ok(Reply::Replayed(wants.iter().map(one).collect()))
    }

    /// Enqueues a lock of a program.
    ///
    /// # Errors
    /// EINVAL: another kind of lock. Others as the lock server.
    pub(crate) fn program_lock(&self, export: &Arc<Export>, want: &Enqueue) -> Result<Answer> {
        if want.resource.kind != Kind::Flock {
            return Err(Errno::EINVAL);
        }
        match self.locks.server.enqueue(export, want) {
            Enqueued::Refused(errno) => Err(errno),
            answer => Ok(Reply::Enqueued(answer).into()),
        }
    }
}

/// Grants the locks of one reply.
struct Granter<'a, F> {
    locks: &'a Locks,
    export: &'a Arc<Export>,
    keep: Option<Cookie>,
    /// Whether OPEN is granted.
    may_open: F,
    grants: Vec<Grant>,
    /// Files with several names that already have a lock: a listing may show them more than once.
    linked: FxHashSet<Fid>,
}

impl<F: Fn(&Attr) -> bool> Granter<'_, F> {
    /// Grants a lock on the n-th inode of the reply.
    fn entry(&mut self, n: usize, entry: &Entry, cacheable: u64) {
        let attr = &entry.attr;
        if self.keep.is_none() || attr.nlink > 1 && attr.kind != FileKind::Dir && !self.linked.insert(attr.fid) {
            return;
        }
        let cacheable = if (self.may_open)(attr) { cacheable | bits::OPEN } else { cacheable };
        self.grant(n, attr.fid, cacheable);
    }

    /// Grants a lock on the created inode.
    fn made(&mut self, entry: &Entry, cacheable: u64) {
        self.grant(0, entry.attr.fid, cacheable);
    }

    fn grant(&mut self, n: usize, fid: Fid, try_bits: u64) {
        let Some(Cookie(first)) = self.keep else { return };
        let cookie = Cookie(first.wrapping_add(n as u64));
        let flags = Flags { nowait: true, ..Flags::default() };
        let policy = Policy::Bits { bits: 0, try_bits };
        let want = Enqueue { flags, ..Enqueue::new(Resource::bits(fid), Mode::Pr, policy, cookie) };
        if let Enqueued::Granted { id, policy: Policy::Bits { bits, .. }, .. } =
            self.locks.server.enqueue(self.export, &want)
        {
            self.grants.push(Grant { id, cookie, fid, bits });
        }
    }
}
