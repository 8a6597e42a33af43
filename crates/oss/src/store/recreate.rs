//! Lost objects: those that were durable once, and have no file. They are found, and made again
//! from bytes that the MDT has read from another mirror of the file.
//!
//! Invariants:
//! * a lost object does not change: reads, writes and truncates of it fail, and an object that was
//!   destroyed is not lost. So a copy of its bytes is right as long as it is lost, whatever happens
//!   to the file and its other mirrors;
//! * until a copy is complete and durable, the object is lost. Then a link gives the copy the
//!   object's name. So no request ever reads a part of a copy, or zeros in its place.

use sheen_objects::name::Dir;
use sheen_wire::{
    Bulk, Errno, Fid, Result, Time,
    ost::{Damaged, DamagedBlock},
};
use tracing::info;

use super::{Store, damage_report::name, staging::Copied};

impl Store {
    /// Lists an object as lost that the layout of a file has.
    ///
    /// # Errors
    /// ESTALE: it is not lost.
    pub fn confirm_lost(&self, object: Fid) -> Result<()> {
        self.check_lost(object)?;
        self.files.confirm_lost(object);
        Ok(())
    }

    /// Records that no layout has an object without a file, which therefore is not lost. `file`:
    /// the file whose layout does not have it.
    ///
    /// # Errors
    /// ESTALE: the object has a file here, or belongs to another file by now. Errors of the local
    /// file system.
    pub fn forget_lost(&self, object: Fid, file: Fid) -> Result<()> {
        self.files.check_root()?;
        self.files.forget_missing(object, file)?;
        self.damaged.remove(&[(object, DamagedBlock::WHOLE)]);
        Ok(())
    }

    /// Begins a copy of a lost object for an export. It has `size` bytes, all of them zeros.
    /// Discards the former copy. If the copy has begun, it only passes to the export.
    ///
    /// # Errors
    /// ESTALE: the object is not lost. MOVED: it is sealed. EEXIST: a copy in use has the number.
    /// Errors of the local file system.
    pub fn begin_copy(&self, object: Fid, copy: u64, size: u64, export: u64) -> Result<()> {
        self.check_unsealed([object])?;
        self.check_lost(object)?;
        self.files.check_root()?;
        Ok(self.staging.begin(object, copy, size, export)?)
    }

    /// Writes bytes to offset `at` of a copy.
    ///
    /// # Errors
    /// ESTALE: there is no such copy. EINVAL: it ends before. Errors of the local file system.
    pub fn write_copy(&self, object: Fid, copy: u64, at: u64, bytes: &Bulk) -> Result<()> {
        self.staging.write(object, copy, at, bytes)
    }

    /// Discards a copy, if it exists.
    pub fn abort_copy(&self, object: Fid, copy: u64) {
        drop(self.staging.take(object, copy));
    }

    /// Discards the copy that this export began.
    pub fn abort_copy_of(&self, export: u64) {
        if let Some(copy) = self.staging.take_of(export) {
            self.rt.block_in_place(|| drop(copy));
        }
    }

    /// Discards a copy that no request has used for long.
    pub fn abort_idle_copy(&self) {
        drop(self.staging.take_idle());
    }

    /// Makes a complete copy the object. `mtime`: time of the object's last change.
    ///
    /// # Errors
    /// ESTALE: there is no such copy, or the object is not lost. MOVED: it is sealed. Errors of the
    /// local file system.
    pub async fn end_copy(&self, object: Fid, copy: u64, mtime: Time) -> Result<()> {
        let copied = self.staging.take(object, copy).ok_or(Errno::ESTALE)?;
        self.check_unsealed([object])?;
        self.put_back(object, &copied, mtime).await?;
        let file = self.file_of(object);
        self.damaged.repaired(Damaged { object, file, block: DamagedBlock::WHOLE });
        info!(
            "{}: {}: made again from another mirror, with {} bytes",
            self.home.dir().display(),
            name(object, file),
            copied.size
        );
        Ok(())
    }

    async fn put_back(&self, object: Fid, copied: &Copied, mtime: Time) -> Result<()> {
        copied.file.set_mtime(mtime)?;
        copied.file.sync_data().await?;
        self.rt.block_in_place(|| self.files.put_back(object, &copied.path))?;
        Ok(self.files.settle(Dir::of(object)).await?)
    }

    /// Checks that an object is lost. If it is not, it leaves the list of damage.
    fn check_lost(&self, object: Fid) -> Result<()> {
        if self.files.is_missing(object) {
            return Ok(());
        }
        self.damaged.remove(&[(object, DamagedBlock::WHOLE)]);
        Err(Errno::ESTALE)
    }
}
