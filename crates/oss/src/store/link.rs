//! Link: a sealed object continues under another name, as an object of another file (Lustre's swap
//! of layouts).
//!
//! A request with the old name learns that the object is sealed. A request with the new name finds
//! an object that was never sealed. A hard link provides both: nothing is copied, and until the old
//! name is destroyed either name can be removed, at whatever point a crash happens.
//!
//! An operation may have reached some of a file's objects before they were sealed. Then the client
//! must repeat it on the other objects, although these belong to another file now
//! ([`Store::follow`]). So the old name's marker holds the new name.
//!
//! Invariants:
//! * the object is sealed, so no client uses it under the old name now, or later unless it is
//!   unsealed. So locks, versions and sums, which go by name, start empty under the new name;
//! * all data written under the old name is durable before any client learns the new name, because
//!   the client that wrote it would sync the old name.

use std::collections::BTreeSet;

use sheen_objects::name::Dir;
use sheen_wire::{Errno, Fid, Result};

use super::{Store, markers::Order, sync::BATCH};

impl Store {
    /// Gives sealed objects second names: (old, new). A name that already exists, from an earlier
    /// run of the same request, stays.
    ///
    /// # Errors
    /// EBUSY: one is not sealed, or was sealed after this order. ESTALE: a new name was destroyed
    /// meanwhile. Errors of the local file system. Some of the objects may have their names then.
    pub async fn link(&self, objects: &[(Fid, Fid)], order: Order) -> Result<()> {
        let mut dirs = BTreeSet::new();
        for batch in objects.chunks(BATCH) {
            let (mut open, mut there) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
            for &(old, new) in batch {
                if !self.is_sealed_before(old, order) {
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
        // Last, so that a client that learns a new name finds the object there.
        objects.iter().try_for_each(|&(old, new)| self.record_new_name(old, new, order))?;
        // A count may have found the old names meanwhile. From now on it skips them.
        objects.iter().for_each(|&(old, _)| self.files.begin_move(old));
        self.sync_markers().await
    }
}
