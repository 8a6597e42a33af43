//! Group locks (`llapi_group_lock`).
//!
//! Programs that name the same group read and write a file at the same time, and coordinate their
//! accesses themselves. All other programs wait until the last member has left the group.
//!
//! A group's locks cover all objects of the file. They belong to the open file through which they
//! were taken, until it leaves the group or is closed. While an open file of this client is in a
//! group, all operations of this client on the file use the group's locks. The client requests no
//! other locks, and the OSTs send no blocking callbacks.
//!
//! Invariants:
//! * Open files of one client are in one group at a time (`GroupMembers`). Among clients the OSTs
//!   enforce this.
//! * The kernel's pages of the file are dropped before the first lock is granted, because the OST
//!   revokes the locks that guard them.
//! * Writes in a group go through the write-back cache as usual. They are flushed at the latest
//!   when the group is left.
//! * The locks outlive a restart of their OST. If a lock is lost, because the OST has evicted this
//!   client or a restarted one did not wait for it, other programs may use the file. Then reads and
//!   writes through open files of the group fail with EIO until they leave the group. Leaving
//!   succeeds.

use std::sync::Arc;

use sheen_layout::Layout;
use sheen_wire::{Errno, Result, mds::flags};

use super::with_layout::Attempt;
use crate::{
    Client, OpenFile,
    open::{Group, Member, Seat},
};

/// A request in progress. Dropped, it is withdrawn.
struct Coming<'a>(&'a OpenFile);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let mut group = self.0.group.lock();
        if matches!(*group, Group::Coming) {
            *group = Group::None;
        }
    }
}

impl Client {
    /// Takes a lock of the group `gid` on a file. Waits until no other client or group uses the
    /// file. With `nowait`, does not wait for other groups. Dropping the future withdraws the
    /// request.
    ///
    /// # Errors
    /// EINVAL: `gid` is 0, the open file is in a group, or the file has no objects because it was
    /// never opened for writing. EAGAIN, with `nowait`: another client or group uses the file.
    /// ENOLCK: a lock was lost. Any error of the OSTs.
    pub async fn group_lock(&self, file: &OpenFile, gid: u64, nowait: bool) -> Result<()> {
        if gid == 0 || file.flags() & flags::DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        let coming = match &mut *file.group.lock() {
            group @ Group::None => {
                *group = Group::Coming;
                Coming(file)
            }
            _ => return Err(Errno::EINVAL),
        };
        let seat = match Seat::take(&file.inode, gid) {
            Some(seat) => seat,
            None if nowait => return Err(Errno::EAGAIN),
            None => Seat::wait(&file.inode, gid).await,
        };
        let losses = self.lov.evictions().group_losses();
        let attempt = |_| async {
            let layout = self.place_whole(file).await?;
            Ok(Attempt::Done(self.lov.lock_group(&layout, gid, nowait).await?))
        };
        let locks = self.with_layout("group_lock", file, attempt).await?;
        let member = Member::new(gid, locks, losses, seat);
        if member.is_lost(self.lov.evictions().group_losses()) {
            return Err(Errno::ENOLCK);
        }
        *file.group.lock() = Group::In(member);
        drop(coming);
        Ok(())
    }

    /// Checks that an open file in a group can be read and written.
    ///
    /// # Errors
    /// EIO: a lock of the group was lost.
    pub(super) fn check_group(&self, file: &OpenFile) -> Result<()> {
        let losses = self.lov.evictions().group_losses();
        match &*file.group.lock() {
            Group::In(member) if member.is_lost(losses) => Err(Errno::EIO),
            _ => Ok(()),
        }
    }

    /// Returns the layout of a file with objects for all of it, because the group's locks do not
    /// cover objects that come later (as in Lustre). Returns no LAYOUT lock: the wait for a group
    /// is a wait for a program.
    async fn place_whole(&self, file: &OpenFile) -> Result<Arc<Layout>> {
        let placed = self.place(file).await?.ok_or(Errno::EINVAL)?;
        // Only one mirror must be fresh: reads of others would bypass the group's locks.
        if !placed.layout.needs_intent(0, u64::MAX) {
            return Ok(placed.layout);
        }
        drop(placed);
        Ok(self.place_for_writing(file, 0, u64::MAX, false).await?.layout)
    }

    /// Waits while a group of other clients has an open file. Returns false if there is none, or if
    /// that is unknown. The LAYOUT lock is not in use meanwhile: the group may be that of a
    /// migration, which waits for this lock.
    pub(super) async fn wait_for_group(&self, file: &OpenFile) -> bool {
        let placed = self.place(file).await;
        let Ok(Some(layout)) = placed.map(|placed| placed.map(|placed| placed.layout)) else { return false };
        // A group has locks on all objects, so one of them suffices.
        let is_free = layout.stripes().is_empty()
            || layout.is_mirrored()
            || self.lov.in_group(&layout, 0)
            || self.lov.matching(&layout, 0).is_some();
        if is_free || !matches!(self.lov.is_in_other_group(&layout, 0).await, Ok(true)) {
            return false;
        }
        drop(self.lov.lock(&layout, 0).await);
        true
    }

    /// Leaves the group. The flush of dirty data is in progress, and the OSTs grant other clients
    /// no lock before it is done.
    ///
    /// # Errors
    /// EINVAL: the open file is not in this group.
    pub fn group_unlock(&self, file: &OpenFile, gid: u64) -> Result<()> {
        let mut group = file.group.lock();
        match &*group {
            Group::In(member) if member.gid == gid => {
                let left = std::mem::take(&mut *group);
                drop(group);
                file.left(left);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }
}
