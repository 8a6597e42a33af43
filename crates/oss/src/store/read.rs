//! Read: the bytes of several objects, one after another. What lies past an object's end is left out, and an object that does
//! not exist is empty; holes read as zeros.

use sheen_objects::{plan, runs};
use sheen_wire::{
    Bulk, Result,
    ost::{OBJECT_SIZE_MAX, Part},
};

use super::{Store, gather::Gather};

impl Store {
    /// Reads `parts`: how many bytes each got, and the bytes.
    ///
    /// # Errors
    /// What the local file system says.
    pub fn read(&self, parts: &[Part]) -> Result<(Vec<u32>, Bulk)> {
        let wanted = parts.iter().map(|p| p.len as usize).sum();
        let mut gather = Gather::new(&self.buffers, wanted);
        let mut lens = Vec::with_capacity(parts.len());
        for run in runs(parts) {
            let here = &parts[lens.len()..lens.len() + run.parts];
            // Within an object's largest size, so that no offset is one which the system call would refuse.
            let len = run.len.min(OBJECT_SIZE_MAX.saturating_sub(run.offset).min(usize::MAX as u64) as usize);
            let object = if len == 0 { None } else { self.files.existing(run.object)? };
            let got = match object {
                Some(object) => gather.read(&object.file, run.offset, len)?,
                None => gather.skip(run.len),
            };
            lens.extend(plan::spread(here, got));
        }
        Ok((lens, gather.finish()))
    }
}
