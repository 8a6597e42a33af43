//! What clients keep, and how they are made to forget it.
//!
//! **A change**: execute, revoke, reply. The request is executed in memory; with the core lock
//! still held the MDT takes EX locks of its own on what it touched, past the requester's own locks,
//! which are the requester's business. If others are in the way they are called back, and the reply
//! waits until all have cancelled ([`Change`]). Meanwhile every request that involves one of these
//! inodes waits before it is executed ([`Mdt::unsettled`]), so nobody sees the new state while
//! somebody else may see the old one. As nothing is executed on an inode under change, changes of
//! one inode happen one after the other; and as all locks of a change are enqueued in one step and
//! a request that waits holds none, nothing waits in a circle. A change by which somebody writes to
//! an OST what a restart of the MDT would make unseen (another layout of a mirrored file, other
//! objects) is not over before it is durable ([`Change::revoke_when`]).
//!
//! **Open files**: who has OPEN of a file opens it without asking. So when a file's last name goes,
//! OPEN is taken as well, from the requester, too; who has the file open says so (`Reopen`) before
//! giving it up. Until then the file is held open here, and if nobody said so it goes then
//! ([`sheen_namespace::Nameless`]). An open to run a program asks the others for OPEN, for nobody
//! else may have the file open for writing; while a program runs OPEN is granted to nobody else,
//! and of a file that may be run only to who has opened it: most such files are run, and then
//! nobody has to be asked.
//!
//! **An answer**: whoever would keep it gets a PR lock on each inode in it, in the step in which it
//! was made, if nobody is in the way ([`Mdt::grants`]). A callback may thus overtake the answer. An
//! error brings no locks: that a name does not exist may be kept by who holds a lock on the
//! directory from before it asked.
//!
//! **Locks of programs** (flock, fcntl) are taken as asked; whoever has to wait is told by a
//! completion callback.
//!
//! All locks live in memory only. A client keeps them over a broken connection; they go when it
//! says goodbye or is evicted. A restarted MDT knows none, also none of programs, which are lost:
//! clients notice by its incarnation when they reconnect, and drop what they keep. Until one
//! notices, it does not hear of what others change through the restarted MDT.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use rustc_hash::FxHashSet;
use sheen_lockd::{Local, Lockd};
use sheen_namespace::{ClientId, Done, Nameless};
use sheen_rpc::Export;
use sheen_rt::Rt;
use sheen_wire::ast::Grant;
use sheen_wire::ldlm::{Cookie, Enqueue, Enqueued, Flags, Kind, Mode, Policy, Resource, bits};
use sheen_wire::mds::{Answer, Call, DirEntry, Entry, Reply, Request, flags};
use sheen_wire::{Attr, Errno, Fid, FileKind, Mds, Result};
use tokio::sync::watch;

use crate::mdt::{Core, Mdt};

/// What an answer with attributes and layout lets the client keep: those, the name that led to it,
/// and what it learns of extended attributes from now on. (A file with a name it may also open.)
const KEPT: u64 = bits::LOOKUP | bits::UPDATE | bits::PERM | bits::XATTR | bits::LAYOUT;
const OPEN: Policy = Policy::bits(bits::OPEN);
/// x of owner, group and others.
const ANY_X: u32 = 0o111;

/// Of what was touched, the inodes that are no more.
pub(crate) fn gone(touched: &[(Fid, u64)]) -> impl Iterator<Item = Fid> {
    // Nothing else touches all of an inode.
    touched.iter().filter(|(_, bits)| bits & KEPT == KEPT).map(|(fid, _)| *fid)
}

/// The locks of an MDT.
pub(crate) struct Locks {
    pub server: Arc<Lockd<Mds>>,
    /// Changes that wait for others to forget. Only while there are some must requests be looked
    /// at. Raised with the core lock held.
    changes: Arc<AtomicUsize>,
    /// The MDT goes: nobody waits any more.
    going: watch::Sender<bool>,
}

impl Locks {
    pub fn new(rt: &Rt, target: &str) -> Locks {
        let server = Lockd::new(rt, &format!("mdt-{target}_UUID"));
        Locks { server, changes: Arc::default(), going: watch::Sender::new(false) }
    }

    /// The MDT stops: changes that wait are answered now. They are done and will be durable; and
    /// whoever keeps what they made untrue learns of the end as of any restart.
    pub fn stop(&self) {
        self.going.send_replace(true);
    }

    /// Whether the MDT stops.
    pub fn is_going(&self) -> bool {
        *self.going.borrow()
    }

    /// Waits until the MDT stops.
    pub async fn gone(&self) {
        let mut going = self.going.subscribe();
        // An error means that the MDT is no more.
        let _went = going.wait_for(|going| *going).await.is_ok();
    }

    /// Waits until nobody else is changing the inode.
    pub async fn settled(&self, fid: Fid) {
        self.server.settled(Resource::bits(fid), &Policy::bits(bits::ALL)).await;
    }

    /// Whether somebody is.
    pub fn is_changing(&self, fid: Fid) -> bool {
        self.server.is_changing(Resource::bits(fid), &Policy::bits(bits::ALL))
    }

    /// Whether a client may have opened the file without asking.
    pub fn may_be_open(&self, fid: Fid) -> bool {
        self.server.resource_locks(Resource::bits(fid)).iter().any(|info| info.lock.policy.overlaps(&OPEN))
    }

    /// What of an inode clients have locks on, by their exports' numbers.
    pub fn of_clients(&self, fid: Fid) -> Vec<(ClientId, u64)> {
        let held = self.server.resource_locks(Resource::bits(fid));
        let part = |policy| if let Policy::Bits { bits, .. } = policy { bits } else { 0 };
        held.into_iter().filter(|l| l.granted).map(|l| (ClientId(l.lock.client), part(l.lock.policy))).collect()
    }

    /// A listing does not wait for each inode in it; the client asks for what is missing. (Their
    /// names do not change: the directory would.)
    fn leave_out_changing(&self, entries: &mut [DirEntry]) {
        if self.changes.load(Relaxed) == 0 {
            return;
        }
        for listed in entries.iter_mut().filter(|e| e.entry.is_some()) {
            if self.is_changing(listed.fid) {
                listed.entry = None;
            }
        }
    }
}

/// A change that others must hear of before its reply goes out.
pub(crate) struct Change {
    /// `None` only when it is dropped.
    held: Option<Held>,
    going: watch::Receiver<bool>,
    rt: Rt,
}

/// The MDT's own locks for a change, and what they stand for.
struct Held {
    mdt: Weak<Mdt>,
    local: Local,
    /// A file without a name, and the lock on its OPEN.
    nameless: Option<(Nameless, Local)>,
    changes: Arc<AtomicUsize>,
}

impl Held {
    fn is_granted(&self) -> bool {
        self.local.is_granted() && self.nameless.iter().all(|(_, open)| open.is_granted())
    }

    async fn wait(&mut self) {
        self.local.wait().await;
        if let Some((_, open)) = &mut self.nameless {
            open.wait().await;
        }
    }

    /// The change is over. Returns the file that is no more since, if there is one.
    fn end(self) -> Option<Fid> {
        let mut gone = None;
        if let Some((nameless, open)) = self.nameless.filter(|(_, open)| open.is_granted())
            && let Some(mdt) = self.mdt.upgrade()
        {
            gone = mdt.revoked(nameless).then_some(nameless.fid);
            drop(open);
        }
        drop(self.local);
        self.changes.fetch_sub(1, Relaxed);
        gone
    }
}

impl Change {
    /// Calls back whoever keeps what was changed, and waits until all have cancelled. Returns the
    /// file that is no more since then.
    pub async fn revoke(mut self) -> Option<Fid> {
        let held = self.held.as_mut()?;
        tokio::select! {
            biased;
            () = held.wait() => {}
            // An error means that the MDT is no more.
            _ = self.going.wait_for(|going| *going) => {}
        }
        self.held.take().and_then(Held::end)
    }

    /// As [`Change::revoke`]; the change is not over before `durable` is, whose outcome this
    /// returns.
    pub async fn revoke_when<T>(mut self, durable: impl Future<Output = T>) -> T {
        let ((), durable) = tokio::join!(self.heard(), durable);
        self.held.take().and_then(Held::end);
        durable
    }

    /// Calls back whoever keeps what is being changed, and waits until all have cancelled, or the
    /// MDT stops. The change goes on.
    pub async fn heard(&mut self) {
        let Some(held) = self.held.as_mut() else { return };
        tokio::select! {
            biased;
            () = held.wait() => {}
            _ = self.going.wait_for(|going| *going) => {}
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        if held.is_granted() || *self.going.borrow() {
            held.end();
        } else {
            // The requester went. What it changed is changed: the others must still hear of it
            // before anybody sees it.
            drop(self.rt.spawn("mdt-revoke", async move {
                held.wait().await;
                held.end();
            }));
        }
    }
}

impl Mdt {
    /// An inode that the request involves and that somebody is changing: it is to wait, and to be
    /// looked at again.
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

    /// What was touched is locked, with the core lock held; `None` if nobody else keeps any of it.
    /// The OPEN of a file without a name is asked of everybody, for only who has it knows whether
    /// the file is open.
    pub(crate) fn change(&self, export: &Export, touched: &[(Fid, u64)], nameless: Option<Nameless>) -> Option<Change> {
        let want = |&(fid, bits): &(Fid, u64)| (Resource::bits(fid), Mode::Ex, Policy::bits(bits));
        let local = match touched {
            [] => return None,
            [one] => self.locks.server.local(&[want(one)], Some(export)),
            several => {
                let wants: Vec<_> = several.iter().map(want).collect();
                self.locks.server.local(&wants, Some(export))
            }
        };
        let open = |n: Nameless| (n, self.locks.server.local(&[(Resource::bits(n.fid), Mode::Ex, OPEN)], None));
        let nameless = nameless.map(open);
        if nameless.is_none() && local.is_granted() {
            return None;
        }
        Some(self.held(local, nameless))
    }

    /// As [`Mdt::change`], for what nobody is to see before it is durable
    /// ([`Change::revoke_when`]).
    pub(crate) fn lasting_change(&self, spared: Option<&Export>, touched: &[(Fid, u64)]) -> Change {
        let want = |&(fid, bits): &(Fid, u64)| (Resource::bits(fid), Mode::Ex, Policy::bits(bits));
        let wants: Vec<_> = touched.iter().map(want).collect();
        self.held(self.locks.server.local(&wants, spared), None)
    }

    /// Has everybody, the requester included, give up what leads to these files' bytes without
    /// asking: their layouts, and that they can be opened. Who has one open says so. Until it is
    /// over others wait who want it again; with the core lock held.
    pub(crate) fn asking_all(&self, fids: &[Fid]) -> Change {
        let bits = bits::OPEN | bits::LAYOUT;
        let wants: Vec<_> = fids.iter().map(|fid| (Resource::bits(*fid), Mode::Ex, Policy::bits(bits))).collect();
        self.held(self.locks.server.local(&wants, None), None)
    }

    fn held(&self, local: Local, nameless: Option<(Nameless, Local)>) -> Change {
        self.locks.changes.fetch_add(1, Relaxed);
        let (changes, going) = (self.locks.changes.clone(), self.locks.going.subscribe());
        let held = Held { mdt: self.me.clone(), local, nameless, changes };
        Change { held: Some(held), going, rt: self.rt.clone() }
    }

    /// Nobody has OPEN of a file without a name any more. Whether the file is no more.
    fn revoked(&self, nameless: Nameless) -> bool {
        let mut core = self.core.lock();
        // Stopped, the file waits in the store for the next start.
        if self.stopped.load(Relaxed) {
            return false;
        }
        let gone = core.ns.revoked(nameless);
        self.touched(&core);
        gone
    }

    /// Locks for what the answer says, with the core lock held. Attributes in a listing of inodes
    /// that somebody is changing are left out of it.
    pub(crate) fn grants(
        &self,
        core: &Core,
        export: &Arc<Export>,
        call: &Call,
        result: &mut Result<Done>,
    ) -> Vec<Grant> {
        let opens = match &call.request {
            // Refused it may still be, and an error brings no locks.
            Request::Open { flags, .. } if flags & flags::EXEC != 0 => return Vec::new(),
            Request::Open { .. } | Request::OpenCreate { .. } => true,
            _ => false,
        };
        let client = ClientId(export.id());
        // What has a name is not removed behind the back of who may open it.
        let may_open = |attr: &Attr| {
            let is_file = attr.kind == FileKind::Regular && attr.nlink > 0;
            is_file && (opens || attr.perm & ANY_X == 0) && !core.ns.is_run_elsewhere(client, attr.fid)
        };
        let (locks, keep) = (&self.locks, call.keep);
        let mut grants = Granter { locks, export, keep, may_open, grants: Vec::new(), linked: FxHashSet::default() };
        // What an answer left out it does not vouch for.
        let no_layout = matches!(call.request, Request::GetAttr { layout_known: true, .. });
        let kept = if no_layout { KEPT & !bits::LAYOUT } else { KEPT };
        match result {
            Ok(Done { reply: Reply::Entries { entries, .. }, .. }) => {
                self.locks.leave_out_changing(entries);
                entries.iter().enumerate().for_each(|(n, e)| e.entry.iter().for_each(|e| grants.entry(n, e, kept)));
            }
            // Of a file just made OPEN is not granted: many are removed again before anybody opens
            // them, and it would have to be given back first.
            Ok(Done { reply: Reply::Opened { entry, created: true, .. }, .. }) => grants.made(entry, kept),
            Ok(Done { reply: Reply::Entry(entry) | Reply::Opened { entry, .. }, .. }) => grants.entry(0, entry, kept),
            _ => {}
        }
        grants.grants
    }

    /// A lock of a program.
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

/// Grants the locks of one answer.
struct Granter<'a, F> {
    locks: &'a Locks,
    export: &'a Arc<Export>,
    keep: Option<Cookie>,
    /// Whether OPEN is granted.
    may_open: F,
    grants: Vec<Grant>,
    /// Files with several names that have a lock already: a listing may show them more than once.
    linked: FxHashSet<Fid>,
}

impl<F: Fn(&Attr) -> bool> Granter<'_, F> {
    /// The n-th inode of the answer.
    fn entry(&mut self, n: usize, entry: &Entry, kept: u64) {
        let attr = &entry.attr;
        if self.keep.is_none() || attr.nlink > 1 && attr.kind != FileKind::Dir && !self.linked.insert(attr.fid) {
            return;
        }
        let kept = if (self.may_open)(attr) { kept | bits::OPEN } else { kept };
        self.grant(n, attr.fid, kept);
    }

    /// The inode that was made.
    fn made(&mut self, entry: &Entry, kept: u64) {
        self.grant(0, entry.attr.fid, kept);
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
