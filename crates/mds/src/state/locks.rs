//! The lock server of an MDT, and the number of changes under way. [`crate::locks`] describes how
//! they are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use sheen_lockd::Lockd;
use sheen_namespace::ClientId;
use sheen_rt::Rt;
use sheen_wire::ldlm::{Policy, Resource, bits};
use sheen_wire::mds::DirEntry;
use sheen_wire::{Fid, Mds};
use tokio::sync::watch;

/// The OPEN bit of an inode.
pub(crate) const OPEN: Policy = Policy::bits(bits::OPEN);

/// The locks of an MDT.
pub(crate) struct Locks {
    pub server: Arc<Lockd<Mds>>,
    /// Number of changes that wait for other clients to cancel. Requests are checked only while
    /// there are any. Incremented with the core lock held.
    pub changes: Arc<AtomicUsize>,
    /// The MDT is about to stop: no reply brings locks any more. Set with the core lock held.
    pub closed: AtomicBool,
    /// The MDT stops: no request waits any more.
    pub stopping: watch::Sender<bool>,
}

impl Locks {
    pub fn new(rt: &Rt, target: &str) -> Locks {
        let server = Lockd::new(rt, &format!("mdt-{target}_UUID"));
        Locks { server, changes: Arc::default(), closed: AtomicBool::new(false), stopping: watch::Sender::new(false) }
    }

    /// Ends all waits because the MDT stops: the changes that wait are answered now. They are
    /// executed and will be durable. Clients with outdated caches learn of the stop as of any
    /// restart. Usually there are none ([`crate::mdt::Mdt::revoke_all`]).
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Returns whether the MDT stops.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the MDT stops.
    pub async fn wait_stopping(&self) {
        let mut stopping = self.stopping.subscribe();
        // An error means that the MDT was dropped.
        let _went = stopping.wait_for(|stopping| *stopping).await.is_ok();
    }

    /// Waits until no request is changing the inode.
    pub async fn settled(&self, fid: Fid) {
        self.server.settled(Resource::bits(fid), &Policy::bits(bits::ALL)).await;
    }

    /// Returns whether a request is changing the inode.
    pub fn is_changing(&self, fid: Fid) -> bool {
        self.server.is_changing(Resource::bits(fid), &Policy::bits(bits::ALL))
    }

    /// Returns whether a client may have opened the file without a request.
    pub fn may_be_open(&self, fid: Fid) -> bool {
        self.server.resource_locks(Resource::bits(fid)).iter().any(|info| info.lock.policy.overlaps(&OPEN))
    }

    /// Returns the granted lock bits of clients on an inode, with the numbers of their exports.
    pub fn of_clients(&self, fid: Fid) -> Vec<(ClientId, u64)> {
        let held = self.server.resource_locks(Resource::bits(fid));
        let part = |policy| if let Policy::Bits { bits, .. } = policy { bits } else { 0 };
        held.into_iter().filter(|l| l.granted).map(|l| (ClientId(l.lock.client), part(l.lock.policy))).collect()
    }

    /// Leaves the attributes of inodes under change out of a listing, which waits for none of them.
    /// The client requests the missing ones. (Names do not change: that would change the
    /// directory.)
    pub fn leave_out_changing(&self, entries: &mut [DirEntry]) {
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
