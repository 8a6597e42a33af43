//! The owner behind a lock table: the caches that its locks guard, and the connection to the
//! target. The table knows both only through [`Owner`].

use sheen_rpc::BoxFuture;
use sheen_wire::ldlm::{Cookie, LockId, Policy, Resource, bits};

/// A lock to cancel or to convert.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    /// Handle of the lock.
    pub cookie: Cookie,
    /// The locked resource.
    pub resource: Resource,
    /// The part that no lock guards any more afterwards.
    pub policy: Policy,
    /// Whether the inode was deleted. Then no name leads to it, and the kernel's caches need no
    /// invalidation.
    pub deleted: bool,
    /// Bits that the lock retains.
    pub(super) keep: u64,
}

impl Flush {
    pub(super) fn new(cookie: Cookie, resource: Resource, policy: Policy, spare: u64) -> Flush {
        let keep = if spare & bits::LOOKUP != 0 { spare } else { 0 };
        Flush { cookie, resource, policy, deleted: false, keep }
    }

    /// Returns the bits of the inode that no lock guards any more afterwards.
    pub fn bits(&self) -> u64 {
        if let Policy::Bits { bits, .. } = self.policy { bits } else { 0 }
    }
}

/// The caches and the connection behind the lock table of a target.
pub trait Owner: Send + Sync + 'static {
    /// Drops the data cached under these locks, in this process and in the kernel. Returns one
    /// entry per lock: a future to await before the cancel, or `None`.
    fn drop_cached(&self, flushes: &[Flush]) -> Vec<Option<BoxFuture<'static, ()>>>;

    /// Discards the dirty data of an object that is about to be deleted.
    fn doomed(&self, _: Resource) {}

    /// Answers a glimpse: reports size, space and mtime of an object's dirty data to the target.
    fn glimpsed(&self, _: LockId, _: Resource) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Drops all data cached under locks of this target after they were lost (restart or eviction).
    fn forgotten(&self, resources: &[Resource]);

    /// Other clients may have written since the locks were lost: discards what programs have stored
    /// under them in the kernel's pages. Called after [`Owner::forgotten`], before any request is
    /// sent over the new connection.
    fn discard_stored(&self) {}

    /// Sends cancels, and converts with the bits that each lock retains.
    fn cancel(&self, ids: Vec<LockId>, converts: Vec<(LockId, u64)>) -> BoxFuture<'static, ()>;
}
