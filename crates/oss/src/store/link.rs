//! Link: a closed object goes on under another name, for another file (Lustre's swap of layouts).
//!
//! Who comes with the old name hears that it is closed; who comes with the new one finds an object
//! that was never closed. A hard link is both: nothing is copied, and until the old name is
//! destroyed either can be given up, whatever crashes.
//!
//! What was done to a part of a file's objects before they were closed has to be done to the others
//! as well, although they belong to another file now ([`Store::follow`]): so the old name's marker
//! has the new one.
//!
//! Invariants:
//! * nobody uses the object under the old name meanwhile, nor will before it is open again: it is
//!   closed. So locks, versions and sums, which go by name, begin anew;
//! * all that was written under the old name is durable before the new name is told of: who wrote
//!   it would sync the old one.

use std::collections::BTreeSet;

use sheen_objects::name::Dir;
use sheen_wire::{Errno, Fid, Result};

use super::{Store, sync::BATCH};

impl Store {
    /// Gives closed objects second names: (old, new). One that is there from before, of a request
    /// that comes again, stays.
    ///
    /// # Errors
    /// EBUSY: one is not closed. What the local file system says; some of the objects may have
    /// their names then.
    pub async fn link(&self, objects: &[(Fid, Fid)]) -> Result<()> {
        let mut dirs = BTreeSet::new();
        for batch in objects.chunks(BATCH) {
            let (mut open, mut there) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
            for &(old, new) in batch {
                if !self.is_closed(old) {
                    return Err(Errno::EBUSY);
                }
                if let Some(object) = self.files.existing(old)? {
                    open.push(object);
                    there.push((old, new));
                }
            }
            self.sync_files(&open).await?;
            for (old, new) in there {
                self.files.link(old, new)?;
                dirs.insert(Dir::of(new));
            }
        }
        for dir in dirs {
            self.files.settle(dir).await?;
        }
        // Last: who is told of a name finds the object there.
        objects.iter().try_for_each(|&(old, new)| self.goes_on(old, new))?;
        self.settle_closed().await
    }
}
