//! What an operation changed of which inode, as inodebits: whoever keeps these parts of it must
//! forget them.
//!
//! It is derived where records are written, by comparing the new record with the old one, so that
//! no operation can forget to tell:
//!
//! | what changed | bits |
//! |---|---|
//! | anything that stat shows | UPDATE |
//! | owner, mode, access ACL | PERM; of a directory also LOOKUP, for it guards the way to others |
//! | an extended attribute, either ACL, the names in `trusted.link` | XATTR |
//! | the layout, a directory's default layout | LAYOUT, XATTR |
//! | an entry was added, removed or names another file | UPDATE of the directory |
//! | an entry was removed or names another file | LOOKUP of the inode that it named |
//! | the inode goes with its last name | all of these |
//!
//! OPEN is not among them: a file stays as it is for who has it open. What becomes of one that
//! loses its last name says [`crate::nameless`]. An open to run a program asks for it
//! (`ops::open`), so that the MDT knows who writes the file.
//!
//! Nothing is touched by an access time alone, which others may see late (as in Lustre), nor by
//! bookkeeping of open files; nor when a file that has lost its names before goes at its last
//! close, for only those saw it who had it open.

use sheen_wire::{Fid, Time, ldlm::bits};

use crate::record::{Bucket, Inode};

/// Parts of an inode that somebody may keep.
const ALL: u64 = bits::LOOKUP | bits::UPDATE | bits::PERM | bits::XATTR | bits::LAYOUT;

/// Each inode once, in the order in which they were changed. An operation touches a handful, so the
/// search is linear.
#[derive(Debug, Default)]
pub(crate) struct Touched(Vec<(Fid, u64)>);

impl Touched {
    pub(crate) fn note(&mut self, fid: Fid, bits: u64) {
        match self.0.iter_mut().find(|(f, _)| *f == fid) {
            _ if bits == 0 => {}
            Some((_, have)) => *have |= bits,
            None => self.0.push((fid, bits)),
        }
    }

    /// The inode's record is replaced; a new one touches nothing, as nobody knew it.
    pub(crate) fn inode(&mut self, fid: Fid, old: Option<&Inode>, new: Option<&Inode>) {
        let bits = match (old, new) {
            (None, _) => 0,
            (Some(old), Some(new)) => changed(fid, old, new),
            (Some(old), None) if old.nlink == 0 => 0,
            (Some(_), None) => ALL,
        };
        self.note(fid, bits);
    }

    /// The entries of one hash are replaced.
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
    let mut touched = 0;
    let mut note = |changed: bool, bits: u64| touched |= if changed { bits } else { 0 };
    note(shown(old) != shown(new), bits::UPDATE);
    let permission = |i: &Inode| (i.perm, i.uid, i.gid);
    note(
        permission(old) != permission(new) || old.access_acl != new.access_acl,
        bits::UPDATE | bits::PERM | if new.is_dir() { bits::LOOKUP } else { 0 },
    );
    note(old.access_acl != new.access_acl || old.default_acl != new.default_acl, bits::XATTR);
    note(old.xattr_bytes != new.xattr_bytes || old.links != new.links, bits::XATTR);
    note(old.layout != new.layout, bits::LAYOUT | bits::XATTR);
    touched
}
