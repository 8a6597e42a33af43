//! The table of open files.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_layout::Layout;
use sheen_wire::{
    Attr, Fid,
    mds::{NO_HANDLE, flags},
};

use super::{
    file::{OpenBy, OpenFile},
    inode::Inode,
};
use crate::cache::is_settled;

/// All open files, by FID and order of opening. Bounded by the open files of the programs on the
/// mount.
#[derive(Default)]
pub(crate) struct OpenFiles {
    last_id: AtomicU64,
    pub(super) files: Mutex<Map>,
}

impl OpenFiles {
    /// Adds a file that the MDT has opened.
    pub(crate) fn insert(&self, attr: &Attr, layout: Option<Bytes>, by: OpenBy, handle: u64) -> Arc<OpenFile> {
        let mut files = self.files.lock();
        // An open from before a restart of the MDT may have another layout, which is no longer the
        // file's.
        let same = |inode: &Inode| inode.is_with(layout.as_ref());
        let inode = find(&files, attr.fid).map(|f| &f.inode).filter(|i| same(i)).cloned().unwrap_or_default();
        if let Some(layout) = layout {
            // If a layout is stored already, it is the same one or one that became it.
            let _ = inode.sent.set(layout);
        }
        self.enter(&mut files, attr, by, inode, handle)
    }

    /// Adds a local open, if `may` returns true while the table is locked.
    pub(crate) fn insert_local(
        &self,
        attr: &Attr,
        layout: Option<Arc<Layout>>,
        by: OpenBy,
        may: impl FnOnce() -> bool,
    ) -> Option<Arc<OpenFile>> {
        let mut files = self.files.lock();
        if !may() {
            return None;
        }
        let same = |inode: &Inode| match (inode.known(), &layout) {
            (None, _) => true,
            (Some(known), Some(layout)) => Arc::ptr_eq(&known, layout) || inode.can_be(&known, layout),
            (Some(_), None) => false,
        };
        let inode = find(&files, attr.fid).map(|f| &f.inode).filter(|i| same(i)).cloned().unwrap_or_default();
        // A layout that is not settled is looked up when it is needed.
        if let Some(layout) = layout.filter(|layout| is_settled(layout)) {
            inode.learn(&layout);
        }
        Some(self.enter(&mut files, attr, by, inode, NO_HANDLE))
    }

    fn enter(&self, files: &mut Map, attr: &Attr, by: OpenBy, inode: Arc<Inode>, handle: u64) -> Arc<OpenFile> {
        inode.perm.store(attr.perm, Relaxed);
        let (fid, id) = (attr.fid, self.last_id.fetch_add(1, Relaxed) + 1);
        let file = Arc::new(OpenFile::new(fid, by, id, inode, handle));
        files.insert((fid, id), file.clone());
        file
    }

    /// Removes a file. Returns its handle if it was in the table.
    pub(crate) fn remove(&self, file: &OpenFile) -> Option<u64> {
        self.files.lock().remove(&(file.fid(), file.id)).map(|file| file.handle())
    }

    /// Marks the open files of an inode whose last name this client removed.
    pub(crate) fn note_orphan(&self, fid: Fid) {
        let files = self.files.lock();
        files.range((fid, 0)..=(fid, u64::MAX)).for_each(|(_, file)| file.inode.orphan.store(true, Relaxed));
    }

    /// Runs `f` unless the file has local opens. No local open can begin meanwhile.
    pub(crate) fn unless_local<T>(&self, fid: Fid, f: impl FnOnce() -> T) -> Option<T> {
        let files = self.files.lock();
        if local(&files, fid).next().is_some() { None } else { Some(f()) }
    }

    /// Whether the file is open for writing.
    pub(crate) fn is_written(&self, fid: Fid) -> bool {
        let files = self.files.lock();
        files.range((fid, 0)..=(fid, u64::MAX)).any(|(_, file)| flags::writes(file.flags()))
    }

    /// Applies [`Inode::learn`] to the inode of open files.
    pub(crate) fn learn(&self, fid: Fid, layout: &Arc<Layout>) {
        self.each(fid, |inode| inode.learn(layout));
    }

    /// Applies [`Inode::learn_past`] to the inode of open files.
    pub(crate) fn learn_past(&self, fid: Fid, layout: &Arc<Layout>) {
        self.each(fid, |inode| inode.learn_past(layout));
    }

    /// Applies [`Inode::outdate`] to the inode of open files.
    pub(crate) fn outdate(&self, fid: Fid) {
        self.each(fid, Inode::outdate);
    }

    /// Applies [`Inode::outdate`] to the inodes of all open files.
    pub(crate) fn outdate_all(&self) {
        self.files.lock().values().for_each(|file| file.inode.outdate());
    }

    /// Applies [`Inode::distrust`] to the inodes of all open files.
    pub(crate) fn distrust(&self) {
        self.files.lock().values().for_each(|file| file.inode.distrust());
    }

    /// Returns the last known layout of an open file, valid or not.
    pub(crate) fn last_layout(&self, fid: Fid) -> Option<Arc<Layout>> {
        find(&self.files.lock(), fid)?.inode.last()
    }

    /// Returns one of a file's open files.
    pub(crate) fn any(&self, fid: Fid) -> Option<Arc<OpenFile>> {
        find(&self.files.lock(), fid).cloned()
    }

    fn each(&self, fid: Fid, f: impl Fn(&Inode)) {
        self.files.lock().range((fid, 0)..=(fid, u64::MAX)).for_each(|(_, file)| f(&file.inode));
    }

    /// Stores the permission bits from a reply, if the file is open.
    pub(crate) fn note(&self, attr: &Attr) {
        if let Some(file) = find(&self.files.lock(), attr.fid) {
            file.inode.perm.store(attr.perm, Relaxed);
        }
    }

    /// Returns all open files.
    pub(crate) fn all(&self) -> Vec<Arc<OpenFile>> {
        self.files.lock().values().cloned().collect()
    }

    /// Returns the number of open files.
    pub(crate) fn len(&self) -> usize {
        self.files.lock().len()
    }
}

pub(super) type Map = BTreeMap<(Fid, u64), Arc<OpenFile>>;

pub(super) fn find(files: &Map, fid: Fid) -> Option<&Arc<OpenFile>> {
    if files.is_empty() {
        return None;
    }
    files.range((fid, 0)..=(fid, u64::MAX)).next().map(|(_, f)| f)
}

/// Returns the local opens of a file.
pub(super) fn local(files: &Map, fid: Fid) -> impl Iterator<Item = &Arc<OpenFile>> {
    let of_file = files.range((fid, 0)..=(fid, u64::MAX)).map(|(_, file)| file);
    of_file.filter(|file| file.handle() == NO_HANDLE)
}
