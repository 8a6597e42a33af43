//! Objects that were durable once, and whose files are missing.

use std::{io, path::Path};

use sheen_objects::name::{self, Dir};
use sheen_wire::{Errno, Fid, ost::DamagedBlock};
use tracing::error;

use super::{Files, Shard};
use crate::store::damage::Added;

impl Files {
    /// Checks that an object whose file is missing has not been lost. If it has, lists it.
    ///
    /// # Errors
    /// EIO: it has.
    pub(super) fn check_never_durable(&self, object: Fid) -> io::Result<()> {
        if !self.durable.has(object) {
            return Ok(());
        }
        if self.damaged.add(object, DamagedBlock::WHOLE) == Added::New {
            self.accounting.needs.notify_waiters();
        }
        self.log_lost(object);
        Err(io::Error::from_raw_os_error(Errno::EIO.0))
    }

    /// Lists a lost object. The MDT knows of it.
    pub fn confirm_lost(&self, object: Fid) {
        self.damaged.add_asked(object);
        self.log_lost(object);
    }

    fn log_lost(&self, object: Fid) {
        if self.durable.is_news(object) {
            error!(
                "{}: object {object} is lost: its file is missing; reads and writes of it fail with EIO until it is \
                 made again from another mirror. Without a mirror, restore the file from a copy. Check the device",
                self.path(object).display()
            );
        }
    }

    /// Whether an object that was durable has no file: it is lost, or a power failure has undone a
    /// part of its removal.
    pub fn is_missing(&self, object: Fid) -> bool {
        // First without the lock of the shard, which requests need: the disk may be slow.
        self.durable.has(object) && self.has_no_name(object) && self.is_missing_in(&self.shard(object), object)
    }

    fn is_missing_in(&self, shard: &Shard, object: Fid) -> bool {
        self.durable.has(object) && !shard.contains(&object) && self.has_no_name(object)
    }

    fn has_no_name(&self, object: Fid) -> bool {
        self.disk.metadata(self.path(object)).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }

    /// Gives the file at `copy` the name of a lost object, which then exists again. Durable after
    /// [`Files::settle`].
    ///
    /// # Errors
    /// ESTALE: the object is not lost. Errors of the local file system.
    pub fn put_back(&self, object: Fid, copy: &Path) -> io::Result<()> {
        let shard = self.shard(object);
        if !self.is_missing_in(&shard, object) {
            return Err(io::Error::from_raw_os_error(Errno::ESTALE.0));
        }
        self.make_dir(Dir::of(object))?;
        // Fails if the name exists by now.
        self.disk.hard_link(copy, self.path(object))?;
        self.dir(Dir::of(object)).durability.created();
        self.versions.forget(object);
        self.durable.found(object);
        self.count_locked(object, false);
        self.put_back_changed(object);
        Ok(())
    }

    /// Checks that the directory of all objects exists. Without it, the disk is not mounted.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn check_root(&self) -> io::Result<()> {
        self.disk.metadata(self.root.join(name::ROOT)).map(drop)
    }
}
