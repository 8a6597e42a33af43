//! Group membership of an open file.

use std::{fmt, sync::Arc};

use super::inode::Inode;
use crate::locks::LockRef;

/// Group membership of an open file.
#[derive(Default, Debug)]
pub(crate) enum Group {
    /// In no group.
    #[default]
    None,
    /// The locks were requested.
    Coming,
    /// In a group, with its locks.
    In(Member),
}

/// The locks, while they are in use, and the seat, which is released after them.
#[derive(Debug)]
pub(crate) struct Member {
    pub gid: u64,
    locks: Vec<LockRef>,
    /// The mount's number of losses of group locks, before the locks were requested.
    losses: u64,
    _seat: Seat,
}

impl Member {
    /// Combines the locks of the group `gid` with the seat in it. `losses`: the mount's number of
    /// losses of group locks, before the locks were requested.
    pub fn new(gid: u64, locks: Vec<LockRef>, losses: u64, seat: Seat) -> Member {
        Member { gid, locks, losses, _seat: seat }
    }

    /// Whether a lock was lost. `losses`: the mount's present number of losses of group locks.
    pub fn is_lost(&self, losses: u64) -> bool {
        // The locks of a file can be many, and losses are rare.
        losses != self.losses && self.locks.iter().any(LockRef::is_lost)
    }
}

/// Membership of one open file in the group of its inode.
pub(crate) struct Seat(Arc<Inode>);

impl Seat {
    /// Joins the group. `None`: another group is there.
    pub fn take(inode: &Arc<Inode>, gid: u64) -> Option<Seat> {
        inode.groups.enter(gid).then(|| Seat(inode.clone()))
    }

    /// Joins the group as soon as no other group is there.
    pub async fn wait(inode: &Arc<Inode>, gid: u64) -> Seat {
        inode.groups.wait(gid).await;
        Seat(inode.clone())
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seat")
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.groups.leave();
    }
}
