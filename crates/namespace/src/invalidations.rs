//! Invalidations: which parts of which inode an operation changed, as inodebits. Clients that cache
//! these parts must drop them.
//!
//! They are derived where records are written, by comparing the new record with the old one. So no
//! operation can forget to report a change:
//!
//! | change | bits |
//! |---|---|
//! | an attribute that stat shows | UPDATE |
//! | owner, mode, access ACL | PERM; for a directory also LOOKUP, because they guard its entries |
//! | an extended attribute, either ACL, the project, the names in `trusted.link` | XATTR |
//! | the layout, a directory's default layout | LAYOUT, XATTR |
//! | an entry was added, removed or names another file | UPDATE of the directory |
//! | an entry was removed or names another file | LOOKUP of the inode that it named |
//! | the inode is deleted with its last name | all of these |
//!
//! OPEN is not among them: for a client that has a file open, the file does not change.
//! [`crate::orphans`] describes files that lose their last name. An open for execution invalidates
//! OPEN (`ops::open`), so that the MDT learns which clients have the file open for writing.
//!
//! There are no invalidations for:
//!
//! * an access time alone, which other clients may see late (as in Lustre);
//! * bookkeeping of open files;
//! * an orphan deleted at its last close: only clients that had it open could see it.

use sheen_wire::{Fid, Time, ldlm::bits};

use crate::record::{Bucket, Inode};

/// Parts of an inode that a client may cache.
const ALL: u64 = bits::LOOKUP | bits::UPDATE | bits::PERM | bits::XATTR | bits::LAYOUT;

/// Invalidations of each inode, once, in the order of change. An operation changes a handful of
/// inodes, so the search is linear.
#[derive(Debug, Default)]
pub(crate) struct Invalidations(Vec<(Fid, u64)>);

impl Invalidations {
    pub(crate) fn note(&mut self, fid: Fid, bits: u64) {
        match self.0.iter_mut().find(|(f, _)| *f == fid) {
            _ if bits == 0 => {}
            Some((_, have)) => *have |= bits,
            None => self.0.push((fid, bits)),
        }
    }

    /// Compares an inode's old and new record. A new inode invalidates nothing, as no client knew
    /// it.
    pub(crate) fn inode(&mut self, fid: Fid, old: Option<&Inode>, new: Option<&Inode>) {
        let bits = match (old, new) {
            (None, _) => 0,
            (Some(old), Some(new)) => changed(fid, old, new),
            (Some(old), None) if old.nlink == 0 => 0,
            (Some(_), None) => ALL,
        };
        self.note(fid, bits);
    }

    /// Compares the old and new entries of one hash.
    pub(crate) fn entries(&mut self, dir: Fid, old: Option<&Bucket>, new: Option<&Bucket>) {
        self.note(dir, bits::UPDATE);
        for was in old.into_iter().flat_map(Bucket::iter) {
            if new.and_then(|b| b.find(&was.name)).is_none_or(|is| is.fid != was.fid) {
                self.note(was.fid, bits::LOOKUP);
            }
        }
    }

    pub(crate) fn take(&mut self) -> Vec<(Fid, u64)> {
        std::mem::take(&mut self.0)
    }
}

fn changed(fid: Fid, old: &Inode, new: &Inode) -> u64 {
    let shown = |inode: &Inode| {
        let mut attr = inode.attr(fid);
        attr.atime = Time::default();
        attr
    };
    let mut invalidated = 0;
    let mut note = |changed: bool, bits: u64| invalidated |= if changed { bits } else { 0 };
    note(shown(old) != shown(new), bits::UPDATE);
    let permission = |i: &Inode| (i.perm, i.uid, i.gid);
    note(
        permission(old) != permission(new) || old.access_acl != new.access_acl,
        bits::UPDATE | bits::PERM | if new.is_dir() { bits::LOOKUP } else { 0 },
    );
    note(old.access_acl != new.access_acl || old.default_acl != new.default_acl, bits::XATTR);
    note(old.xattr_bytes != new.xattr_bytes || old.links != new.links, bits::XATTR);
    note(old.project != new.project, bits::XATTR);
    note(old.layout != new.layout, bits::LAYOUT | bits::XATTR);
    invalidated
}
