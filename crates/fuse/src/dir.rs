//! Replies to READDIR and READDIRPLUS, in the kernel's format, bounded by the size that the request
//! allows.

use sheen_wire::FileKind;
use zerocopy::IntoBytes;

use crate::{
    abi::structs::{self, Dirent},
    attr::EntryOut,
};

/// Longest name in a reply, in bytes: the limit of Linux's file systems. The kernel itself refuses
/// more than 1024.
const NAME_BYTES_MAX: usize = 255;
/// Initial capacity in bytes. A reply may grow beyond it, up to the requested size.
const FIRST_BYTES: usize = 4096;

/// Reply buffer for READDIR.
#[derive(Debug)]
pub struct DirBuffer {
    bytes: Vec<u8>,
    size: usize,
}

impl DirBuffer {
    /// Creates an empty reply of at most `size` bytes (the request's `size`).
    pub fn new(size: u32) -> DirBuffer {
        DirBuffer { bytes: Vec::with_capacity((size as usize).min(FIRST_BYTES)), size: size as usize }
    }

    /// Adds an entry. `next` is the offset with which a later READDIR continues after this entry.
    /// Returns true if the buffer is full: the entry was not added, and the reply should be sent.
    /// Silently skips names that no directory can hold (empty, over 255 bytes, or with a slash).
    #[must_use]
    pub fn add(&mut self, ino: u64, next: u64, kind: FileKind, name: &[u8]) -> bool {
        push(&mut self.bytes, self.size, &[], ino, next, kind, name)
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reply buffer for READDIRPLUS: entries with attributes.
#[derive(Debug)]
pub struct DirPlusBuffer {
    bytes: Vec<u8>,
    size: usize,
}

impl DirPlusBuffer {
    /// Creates an empty reply of at most `size` bytes (the request's `size`).
    pub fn new(size: u32) -> DirPlusBuffer {
        DirPlusBuffer { bytes: Vec::with_capacity((size as usize).min(FIRST_BYTES)), size: size as usize }
    }

    /// Adds an entry with its attributes. This counts as one lookup of the node, which the kernel
    /// will FORGET later, unless the name is `.` or `..`. Otherwise as [`DirBuffer::add`].
    #[must_use]
    pub fn add(&mut self, entry: &EntryOut, next: u64, name: &[u8]) -> bool {
        let out = entry.to_abi();
        push(&mut self.bytes, self.size, out.as_bytes(), entry.attr.ino, next, entry.attr.kind, name)
    }

    /// Adds an entry without attributes: the kernel looks the name up when it needs them. Does not
    /// count as a lookup.
    #[must_use]
    pub fn add_bare(&mut self, ino: u64, next: u64, kind: FileKind, name: &[u8]) -> bool {
        push(&mut self.bytes, self.size, structs::EntryOut::default().as_bytes(), ino, next, kind, name)
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Appends one record. Returns true if it did not fit.
fn push(bytes: &mut Vec<u8>, size: usize, prefix: &[u8], ino: u64, next: u64, kind: FileKind, name: &[u8]) -> bool {
    // The kernel fails the whole READDIR with EIO if a name is empty, too long or contains a slash.
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&b'/') {
        return false;
    }
    let record = (prefix.len() + size_of::<Dirent>() + name.len()).next_multiple_of(8);
    if bytes.len() + record > size {
        return true;
    }
    let dirent = Dirent { ino, off: next, namelen: name.len() as u32, kind: kind.dt() };
    let end = bytes.len() + record;
    bytes.extend_from_slice(prefix);
    bytes.extend_from_slice(dirent.as_bytes());
    bytes.extend_from_slice(name);
    bytes.resize(end, 0);
    false
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sheen_wire::Time;

    use super::*;
    use crate::attr::FileAttr;

    #[test]
    fn readdir_records_match_the_kernel_and_stop_at_the_size() {
        let mut dir = DirBuffer::new(24 + 8 + 24 + 16);
        assert!(!dir.add(5, 1, FileKind::Dir, b"abc"));
        assert!(!dir.add(6, 2, FileKind::Regular, b"123456789"));
        assert!(dir.add(7, 3, FileKind::Regular, b"x"), "full");
        let b = dir.bytes();
        assert_eq!(b.len(), 72);
        assert_eq!(&b[..8], &5u64.to_ne_bytes());
        assert_eq!(&b[8..16], &1u64.to_ne_bytes());
        assert_eq!(&b[16..20], &3u32.to_ne_bytes());
        assert_eq!(&b[20..24], &4u32.to_ne_bytes(), "DT_DIR");
        assert_eq!(&b[24..32], b"abc\0\0\0\0\0");
        assert_eq!(&b[32..40], &6u64.to_ne_bytes());
        assert_eq!(&b[56..72], b"123456789\0\0\0\0\0\0\0");
    }

    #[test]
    fn readdir_skips_invalid_names() {
        let mut dir = DirBuffer::new(4096);
        assert!(!dir.add(1, 1, FileKind::Dir, b""));
        assert!(!dir.add(1, 1, FileKind::Dir, b"a/b"));
        assert!(!dir.add(1, 1, FileKind::Dir, &[b'x'; 256]));
        assert!(dir.is_empty());
        assert!(!dir.add(1, 1, FileKind::Dir, &[b'x'; 255]));
        assert_eq!(dir.bytes().len(), 24 + 256);
    }

    #[test]
    fn readdirplus_puts_the_entry_before_the_dirent() {
        let t = Time::default();
        let attr = FileAttr {
            ino: 9,
            size: 0,
            blocks: 0,
            atime: t,
            mtime: t,
            ctime: t,
            kind: FileKind::Symlink,
            perm: 0o777,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
        };
        let entry =
            EntryOut { nodeid: 42, generation: 1, entry_valid: Duration::ZERO, attr_valid: Duration::ZERO, attr };
        let mut dir = DirPlusBuffer::new(2 * 160);
        assert!(!dir.add(&entry, 77, b"link"));
        assert!(!dir.add_bare(8, 78, FileKind::Regular, b"bare"));
        assert!(dir.add_bare(8, 79, FileKind::Regular, b"more"));
        let b = dir.bytes();
        assert_eq!(b.len(), 320);
        assert_eq!(&b[..8], &42u64.to_ne_bytes());
        assert_eq!(&b[128..136], &9u64.to_ne_bytes());
        assert_eq!(&b[136..144], &77u64.to_ne_bytes());
        assert_eq!(&b[148..152], &10u32.to_ne_bytes(), "DT_LNK");
        assert_eq!(&b[160..168], &0u64.to_ne_bytes(), "no node: the kernel looks it up itself");
    }
}
