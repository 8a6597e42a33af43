//! Sealed objects: a file has left them, and no client may use them any more ([`Errno::MOVED`]).
//!
//! Clients cache a layout without a lock, and a missing object reads as empty. So a client with a
//! stale layout, however late, must learn that the file's data is elsewhere. A sealed object leaves
//! an empty marker in `DIR/C` ([`super::markers`]), which outlives the object.
//!
//! Invariants:
//! * a marker is durable before the OST answers `Seal`;
//! * a request that comes late does not undo a later seal ([`Order`]). A seal that comes late is
//!   harmless: the next client that meets the object reports it, and the MDT has it unsealed;
//! * an operation under the OST's own lock checks for a marker before it starts. An operation
//!   without a lock checks afterwards: if there is none, the operation was done before the object
//!   was sealed.

use sheen_wire::{Errno, Fid, Result};

use super::{Store, markers::Order};

impl Store {
    /// Checks that no object is sealed.
    ///
    /// # Errors
    /// MOVED: one is sealed.
    pub(crate) fn check_unsealed(&self, objects: impl IntoIterator<Item = Fid>) -> Result<()> {
        if self.sealed.count() > 0 && objects.into_iter().any(|object| self.sealed.has(object)) {
            return Err(Errno::MOVED);
        }
        Ok(())
    }

    /// Returns the data version of an object; 0 if it does not exist.
    ///
    /// # Errors
    /// MOVED: it is sealed. Errors of the local file system.
    pub fn version(&self, object: Fid) -> Result<u64> {
        let version = self.files.version(object)?;
        self.check_unsealed([object])?;
        Ok(version)
    }

    /// Seals an object that no request uses at the moment, if its data version is `version`
    /// (`None`: any). Durable after [`Store::sync_markers`].
    ///
    /// # Errors
    /// EBUSY: the version is another one, or too many objects are sealed. MOVED: the object is
    /// already sealed. Errors of the local file system.
    pub fn seal_object(&self, object: Fid, version: Option<u64>, order: Order) -> Result<()> {
        match version {
            None => self.check_unsealed([object])?,
            // A sealed object has no version: MOVED.
            Some(version) if self.version(object)? != version => return Err(Errno::EBUSY),
            Some(_) => {}
        }
        self.expire_markers()?;
        self.sealed.insert(object, order, self.rt.wall())
    }

    /// Makes all seals and unseals so far durable.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub async fn sync_markers(&self) -> Result<()> {
        self.sealed.sync().await
    }

    /// Unseals objects, except those that were sealed after this order.
    ///
    /// # Errors
    /// Errors of the local file system; some of the objects may be unsealed then.
    pub fn unseal(&self, objects: &[Fid], order: Order) -> Result<()> {
        objects.iter().try_for_each(|&object| self.sealed.remove(object, order))
    }

    /// Returns the present names of objects that may continue under other names.
    ///
    /// # Errors
    /// MOVED: one is sealed and has no other name. EAGAIN: one has another name, and is sealed
    /// under that name, too.
    pub fn follow(&self, objects: &[Fid]) -> Result<Vec<Fid>> {
        objects.iter().map(|object| self.sealed.follow(*object)).collect()
    }

    /// Records the name under which a sealed object continues. Durable after
    /// [`Store::sync_markers`].
    pub(super) fn record_new_name(&self, object: Fid, new: Fid, order: Order) -> Result<()> {
        self.sealed.record_new_name(object, new, order, self.rt.wall())
    }

    /// Whether an object is sealed, and was so before this order.
    pub(super) fn is_sealed_before(&self, object: Fid, order: Order) -> bool {
        self.sealed.has_before(object, order)
    }

    /// Whether an object is sealed.
    pub(super) fn is_sealed(&self, object: Fid) -> bool {
        self.sealed.has(object)
    }

    /// Number of sealed objects, destroyed ones included.
    pub fn sealed_count(&self) -> usize {
        self.sealed.count()
    }

    /// Removes the markers of objects that were sealed long ago and have been destroyed.
    fn expire_markers(&self) -> Result<()> {
        let now = self.rt.wall();
        for object in self.sealed.old(now) {
            match self.files.metadata(object) {
                Ok(None) => self.sealed.remove(object, Order::LAST)?,
                Ok(Some(_)) | Err(_) => self.sealed.keep(object, now),
            }
        }
        Ok(())
    }
}
