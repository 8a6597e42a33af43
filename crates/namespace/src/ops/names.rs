//! Names in directories: finding, adding, removing entries.

use std::sync::Arc;

use sheen_wire::{self as wire, Cred, Errno, Fid, FileKind, Time, mds::NAME_MAX};

use crate::{
    Namespace, Store,
    access::{self, EXEC, WRITE},
    record::{Bucket, Dentry, Inode, Name},
};

/// Bits of a cookie that tell the entries of one bucket apart.
pub(crate) const COOKIE_INDEX_BITS: u32 = 7;

/// Checks whether a name can be looked up at all. The kernel never sends an empty name or one with
/// a slash; other clients might.
pub(crate) fn check_name(name: &[u8]) -> wire::Result<()> {
    match name.len() {
        0 => Err(Errno::ENOENT),
        n if n > NAME_MAX => Err(Errno::ENAMETOOLONG),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// Whether a name is `.` or `..`, which are not stored as entries.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

impl<S: Store> Namespace<S> {
    /// Returns a file, possibly an orphan: ENOENT if it is deleted.
    pub(crate) fn live(&mut self, fid: Fid) -> wire::Result<Arc<Inode>> {
        self.tables.inode(fid)?.ok_or(Errno::ENOENT)
    }

    /// Returns a directory, which may be removed but still open: ENOENT, ENOTDIR.
    pub(crate) fn dir(&mut self, fid: Fid) -> wire::Result<Arc<Inode>> {
        let inode = self.live(fid)?;
        if inode.is_dir() { Ok(inode) } else { Err(Errno::ENOTDIR) }
    }

    /// Does the first steps of every operation on a name: the parent is a directory in which the
    /// caller may search (EACCES), and the name is valid. Returns the parent, and the entry if it
    /// exists.
    pub(crate) fn walk(&mut self, cred: &Cred, parent: Fid, name: &[u8]) -> wire::Result<(Arc<Inode>, Option<Dentry>)> {
        let dir = self.dir(parent)?;
        access::check(&dir, cred, EXEC)?;
        check_name(name)?;
        let found = if is_dots(name) { None } else { self.find(parent, name)? };
        Ok((dir, found))
    }

    pub(crate) fn find(&mut self, dir: Fid, name: &[u8]) -> wire::Result<Option<Dentry>> {
        let bucket = self.tables.bucket(dir, self.hash(name))?;
        Ok(bucket.and_then(|b| b.find(name).cloned()))
    }

    /// Adds an entry. ENOSPC if 128 names share the hash, which does not happen by chance.
    pub(crate) fn add_entry(&mut self, dir: Fid, name: Name, fid: Fid, kind: FileKind) -> wire::Result<()> {
        let hash = self.hash(&name);
        let bucket = match self.tables.bucket(dir, hash)? {
            None => Bucket { first: Dentry { index: 0, kind, fid, name }, rest: Vec::new() },
            Some(bucket) => {
                let mut all: Vec<Dentry> = bucket.iter().cloned().collect();
                let free = |i: &u8| all.binary_search_by_key(i, |d| d.index).is_err();
                let index = (0..1u8 << COOKIE_INDEX_BITS).find(free).ok_or(Errno::ENOSPC)?;
                let at = all.partition_point(|d| d.index < index);
                all.insert(at, Dentry { index, kind, fid, name });
                let first = all.remove(0);
                Bucket { first, rest: all }
            }
        };
        self.tables.put_bucket(dir, hash, Some(bucket));
        Ok(())
    }

    /// Removes an entry, if it exists.
    pub(crate) fn remove_entry(&mut self, dir: Fid, name: &[u8]) -> wire::Result<()> {
        let hash = self.hash(name);
        let Some(bucket) = self.tables.bucket(dir, hash)? else { return Ok(()) };
        let mut rest: Vec<Dentry> = bucket.iter().filter(|d| *d.name != *name).cloned().collect();
        let bucket = (!rest.is_empty()).then(|| Bucket { first: rest.remove(0), rest });
        self.tables.put_bucket(dir, hash, bucket);
        Ok(())
    }

    /// Makes an existing entry name another file.
    pub(crate) fn change_entry(&mut self, dir: Fid, name: &[u8], fid: Fid, kind: FileKind) -> wire::Result<()> {
        let hash = self.hash(name);
        let mut bucket = self.tables.bucket(dir, hash)?.ok_or(Errno::EIO)?;
        let all = std::iter::once(&mut bucket.first).chain(&mut bucket.rest);
        for d in all.filter(|d| *d.name == *name) {
            (d.fid, d.kind) = (fid, kind);
        }
        self.tables.put_bucket(dir, hash, Some(bucket));
        Ok(())
    }

    /// Changes an inode.
    pub(crate) fn edit(&mut self, fid: Fid, change: impl FnOnce(&mut Inode)) -> wire::Result<()> {
        let mut inode = Inode::clone(&*self.live(fid)?);
        change(&mut inode);
        self.tables.put_inode(fid, inode);
        Ok(())
    }

    /// Adds to a directory's numbers of entries and subdirectories, and sets its mtime and ctime.
    pub(crate) fn touch_dir(&mut self, dir: Fid, now: Time, entries: i64, subdirs: i64) -> wire::Result<()> {
        self.edit(dir, |d| {
            d.entries = d.entries.saturating_add_signed(entries);
            d.nlink = d.nlink.saturating_add_signed(subdirs as i32);
            (d.mtime, d.ctime) = (now, now);
        })
    }
}

/// Checks whether the caller may add entries (`may_create`): ENOENT in a removed directory, EACCES.
pub(crate) fn may_add(dir: &Inode, cred: &Cred) -> wire::Result<()> {
    if dir.nlink == 0 {
        return Err(Errno::ENOENT);
    }
    access::check(dir, cred, WRITE | EXEC)
}

/// Checks whether the caller may remove the entry of `victim` (`may_delete`): EACCES, EPERM
/// (sticky), ENOTDIR, EISDIR. `want_dir`: `victim` must be a directory; else it must not be one.
pub(crate) fn may_remove(dir: &Inode, victim: &Inode, want_dir: bool, cred: &Cred) -> wire::Result<()> {
    access::check(dir, cred, WRITE | EXEC)?;
    access::check_sticky(dir, victim, cred)?;
    match (want_dir, victim.is_dir()) {
        (true, false) => Err(Errno::ENOTDIR),
        (false, true) => Err(Errno::EISDIR),
        _ => Ok(()),
    }
}
