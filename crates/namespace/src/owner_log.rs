//! The owner log: files whose objects must get the file's present owner on their OSTs, which charge
//! the space to it.
//!
//! An OST asks for the owner of an object when the object is created. A file is in the log when
//! that answer is outdated:
//! * its user, group or project changed (`Tables::put_inode`);
//! * its layout got objects of another file: `TakeLayout`, `SwapLayouts`, a merge or split of
//!   mirrors;
//! * it got an object that belonged to no file: an adopted one, or that of a replayed change.
//!
//! An entry is in the batch of its change, so it is exactly as durable as the change.
//!
//! Invariant: an entry that was logged again after [`Namespace::owner_changes`] returned it is not
//! removed by [`Namespace::owners_sent`].

use sheen_layout::Layout;
use sheen_wire::{self as wire, Fid, FileKind, quota::Owner};

use crate::{
    Namespace, Store, StoreError, key,
    record::{Inode, decode},
};

/// Records that are read at once.
const READ_RECORDS: usize = 256;

/// Owner of a file, and its objects with their OSTs.
pub type Charged = (Owner, Vec<(u32, Fid)>);

impl<S: Store> Namespace<S> {
    /// Returns up to `limit` files of the owner log after the FID `after`: entries that are durable
    /// and not yet removed. Start with [`Fid::ZERO`], continue from the last FID, start over to
    /// retry. Read the owner afterwards ([`Namespace::charged`]), send it, then call
    /// [`Namespace::owners_sent`].
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn owner_changes(&mut self, after: Fid, limit: usize) -> Result<Vec<Fid>, StoreError> {
        let tables = &self.tables;
        let files = fids_after(tables.store(), key::OWNERS, after, limit, |key, _| Ok(!tables.raw_deleted(key)))?;
        self.tables.known_owners.extend(&files);
        Ok(files)
    }

    /// Whether the owner log has durable entries that are not removed.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn has_owner_changes(&self) -> Result<bool, StoreError> {
        let tables = &self.tables;
        let first = fids_after(tables.store(), key::OWNERS, Fid::ZERO, 1, |key, _| Ok(!tables.raw_deleted(key)))?;
        Ok(!first.is_empty())
    }

    /// Whether a file is in the owner log, or will be with the next batch.
    pub(crate) fn is_owner_logged(&mut self, fid: Fid) -> wire::Result<bool> {
        self.tables.has_raw(&key::of_fid(key::OWNERS, fid))
    }

    /// Removes files from the owner log with the next batch: all their OSTs know the owner that
    /// [`Namespace::charged`] returned after [`Namespace::owner_changes`]. A file that was logged
    /// again meanwhile remains.
    pub fn owners_sent(&mut self, files: &[Fid]) {
        for fid in files {
            if self.tables.known_owners.remove(fid) {
                self.tables.set_raw(key::of_fid(key::OWNERS, *fid), None);
            }
        }
    }

    /// Returns the owner of a regular file, possibly of an orphan, and all objects of its layout as
    /// (OST index, object). An object on the MDT has the index [`sheen_layout::MDT_OST`]. `None`:
    /// there is no such file. A layout that does not decode counts as none, because an error would
    /// stop the walk over all files. `sheen fsck` reports the layout.
    ///
    /// # Errors
    /// EIO: it cannot be read.
    pub fn charged(&mut self, fid: Fid) -> wire::Result<Option<Charged>> {
        let Some((owner, layout)) = self.owner_and_layout(fid)? else { return Ok(None) };
        let objects = layout.iter().flat_map(Layout::all_objects).map(|s| (s.ost, s.object)).collect();
        Ok(Some((owner, objects)))
    }

    /// Returns the layout of a regular file, possibly of an orphan, for a repair of its objects.
    /// `None`: there is no such file, it has no layout, or the layout does not decode.
    ///
    /// # Errors
    /// EIO: it cannot be read.
    pub fn layout_to_repair(&mut self, fid: Fid) -> wire::Result<Option<Layout>> {
        Ok(self.owner_and_layout(fid)?.and_then(|(_, layout)| layout))
    }

    pub(crate) fn owner_and_layout(&mut self, fid: Fid) -> wire::Result<Option<(Owner, Option<Layout>)>> {
        let inode = self.tables.inode(fid)?;
        // A walk over all files must not fill the cache beyond its bound.
        self.tables.end();
        let Some(inode) = inode.filter(|inode| inode.kind == FileKind::Regular) else { return Ok(None) };
        let layout = inode.layout.as_ref().and_then(|bytes| Layout::decode(bytes).ok());
        Ok(Some((inode.owner(), layout)))
    }

    /// Returns up to `limit` regular files after the FID `after`, in order of FID, as of the last
    /// commit. Fewer than `limit` are the last ones. For a walk over all files; start with
    /// [`Fid::ZERO`].
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn files_from(&self, after: Fid, limit: usize) -> Result<Vec<Fid>, StoreError> {
        fids_after(self.tables.store(), b'i', after, limit, |key, value| {
            // `sheen fsck` reports the others.
            Ok(decode::<Inode>(key, value).is_ok_and(|inode| inode.kind == FileKind::Regular))
        })
    }
}

/// Returns up to `limit` FIDs after `after` that are keys of a table, and whose records `wants`
/// accepts.
fn fids_after<S: Store>(
    store: &S,
    table: u8,
    after: Fid,
    limit: usize,
    wants: impl Fn(&[u8], &[u8]) -> Result<bool, StoreError>,
) -> Result<Vec<Fid>, StoreError> {
    let (mut from, to) = (key::of_fid(table, after), key::table(table).1);
    let mut fids = Vec::new();
    loop {
        // The first key after the last one.
        from.push(0);
        let records = store.range(&from, &to, READ_RECORDS)?;
        let is_end = records.len() < READ_RECORDS;
        for (key, value) in records {
            if fids.len() >= limit {
                return Ok(fids);
            }
            if wants(&key, &value)? {
                let corrupt = || StoreError::Corrupt { key: format!("{key:02x?}"), why: "malformed key".to_owned() };
                fids.push(key::orphan_fid(&key).ok_or_else(corrupt)?);
            }
            from = key;
        }
        if is_end {
            return Ok(fids);
        }
    }
}
