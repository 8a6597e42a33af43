//! Group locks (`llapi_group_lock`): programs that name the same group read and write a file as
//! they like, and see to it themselves that they do not step on each other; everybody else waits
//! until the last of them has left.
//!
//! A group's locks lie on all objects of the file, and belong to the open file through which they
//! were taken until it leaves the group or is closed. While an open file of this client is in a
//! group, all that this client does to the file is done in it: no other locks are asked for, and
//! nobody calls back.
//!
//! Invariants:
//! * open files of one client are in one group at a time ([`Groups`]); among clients the OSTs see
//!   to that;
//! * what the kernel kept of the file is dropped before the first lock is granted, for the OST asks
//!   for the locks that guard it;
//! * what is written in a group is kept and gathered as usual, and written when the group is left
//!   at the latest.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_layout::Layout;
use sheen_wire::{Errno, Result, mds::flags};
use tokio::sync::Notify;

use crate::{Client, OpenFile, file::Inode, locks::LockRef};

/// What an open file has of a group.
#[derive(Default, Debug)]
pub(crate) enum Group {
    /// Nothing.
    #[default]
    None,
    /// It is being asked for.
    Coming,
    /// Its locks.
    In(Member),
}

/// The locks, while they are in use, and the seat, given back after them.
#[derive(Debug)]
pub(crate) struct Member {
    gid: u64,
    _locks: Vec<LockRef>,
    _seat: Seat,
}

/// Which group open files of an inode are in.
#[derive(Default, Debug)]
pub(crate) struct Groups {
    /// Its id, and how many of them.
    members: Mutex<(u64, usize)>,
    left: Notify,
}

/// One of them.
struct Seat(Arc<Inode>);

impl Seat {
    fn take(inode: &Arc<Inode>, gid: u64) -> Option<Seat> {
        let mut members = inode.groups.members.lock();
        if members.1 > 0 && members.0 != gid {
            return None;
        }
        *members = (gid, members.1 + 1);
        Some(Seat(inode.clone()))
    }

    async fn wait(inode: &Arc<Inode>, gid: u64) -> Seat {
        loop {
            let left = inode.groups.left.notified();
            if let Some(seat) = Seat::take(inode, gid) {
                return seat;
            }
            left.await;
        }
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seat")
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut members = self.0.groups.members.lock();
        members.1 = members.1.saturating_sub(1);
        if members.1 == 0 {
            self.0.groups.left.notify_waiters();
        }
    }
}

/// A request under way; dropped, there is none.
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
    /// Takes a lock of the group `gid` on a file. Waits until nobody else uses it; not for other
    /// groups with `nowait`. Dropped, it asks for nothing any more.
    ///
    /// # Errors
    /// EINVAL: `gid` is 0, the open file is in a group, or the file has no objects: it was never
    /// opened for writing. EAGAIN, with `nowait`: others are in the way. What the OSTs answer.
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
        let mut moves = 0;
        let locks = loop {
            let layout = self.place_whole(file).await?;
            match self.lov.lock_group(&layout, gid, nowait).await {
                Err(Errno::MOVED) => drop(Box::pin(self.moved(file.fid(), &mut moves)).await?),
                answer => break answer?,
            }
        };
        *file.group.lock() = Group::In(Member { gid, _locks: locks, _seat: seat });
        drop(coming);
        Ok(())
    }

    /// The layout of a file with objects for all of it: those that came later would be outside of
    /// the lock (as in Lustre). Without its lock: who waits for a group waits for a program.
    async fn place_whole(&self, file: &OpenFile) -> Result<Arc<Layout>> {
        let placed = self.place(file).await?.ok_or(Errno::EINVAL)?;
        // Of mirrors one: others would be read without its locks.
        if !placed.layout.needs_intent(0, u64::MAX) {
            return Ok(placed.layout);
        }
        drop(placed);
        Ok(self.place_for_writing(file, 0, u64::MAX, false).await?.layout)
    }

    /// Gives it back. What was written in the group is on its way to the OSTs, which let nobody
    /// else at the file before it is there.
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

impl OpenFile {
    /// At its close.
    pub(crate) fn leave_group(&self) {
        let left = std::mem::take(&mut *self.group.lock());
        self.left(left);
    }

    fn left(&self, left: Group) {
        let was_in = matches!(left, Group::In(_));
        drop(left);
        if was_in {
            self.inode.through.store(false, Relaxed);
        }
    }

    /// Whether it has a group's lock.
    pub(crate) fn is_in_group(&self) -> bool {
        matches!(*self.group.lock(), Group::In(_))
    }
}
