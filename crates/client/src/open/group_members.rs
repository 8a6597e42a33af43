//! The group that open files of an inode are in: one at a time.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The group of an inode's open files.
#[derive(Default, Debug)]
pub struct GroupMembers {
    /// Id of the group, and number of its members.
    members: Mutex<(u64, usize)>,
    left: Notify,
}

impl GroupMembers {
    /// Adds a member to the group `gid`. Returns `false` if another group is there.
    pub fn enter(&self, gid: u64) -> bool {
        let mut members = self.members.lock();
        if members.1 > 0 && members.0 != gid {
            return false;
        }
        *members = (gid, members.1 + 1);
        true
    }

    /// Adds a member to the group `gid` as soon as no other group is there.
    pub async fn wait(&self, gid: u64) {
        loop {
            let left = self.left.notified();
            if self.enter(gid) {
                return;
            }
            left.await;
        }
    }

    /// Removes a member.
    pub fn leave(&self) {
        let mut members = self.members.lock();
        members.1 = members.1.saturating_sub(1);
        if members.1 == 0 {
            self.left.notify_waiters();
        }
    }
}
