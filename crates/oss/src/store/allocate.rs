//! Allocate: fallocate on runs of objects. Reserving or zeroing creates a missing object; punching
//! a hole into a missing object does nothing.

use sheen_wire::{Fid, Result, ost::Allocate};

use super::Store;

impl Store {
    /// Applies `mode` to each run in objects of `file`: (object, offset, length).
    ///
    /// # Errors
    /// MOVED: an object is sealed. Errors of the local file system: EOPNOTSUPP if it does not
    /// support the mode, ENOSPC if it is full. Runs before the failing one are done.
    pub fn allocate(&self, file: Fid, mode: Allocate, runs: &[(Fid, u64, u64)]) -> Result<()> {
        for run in runs {
            self.check_unsealed([run.0])?;
            self.allocate_run(file, mode, *run)?;
        }
        Ok(())
    }

    /// Applies `mode` to one run, also of a sealed object.
    pub(super) fn allocate_run(&self, file: Fid, mode: Allocate, (object, offset, len): (Fid, u64, u64)) -> Result<()> {
        let open = match mode {
            Allocate::PunchHole => self.files.existing_to_change(object, file)?,
            Allocate::Reserve { .. } | Allocate::ZeroRange { .. } => Some(self.files.create(object, file)?),
        };
        if let Some(open) = open {
            let claim = open.begin_change(offset, len)?;
            let done = open.file.allocate(mode, offset, len);
            open.sums().end(claim, []);
            self.files.changed(&open, self.rt.wall(), None);
            done?;
        }
        Ok(())
    }
}
