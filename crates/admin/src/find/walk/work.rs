//! Pieces of work of a walk.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use sheen_wire::FileKind;

use crate::find::entry::EntryLocation;

/// A piece of work.
pub enum Work<T> {
    /// A path and everything below it.
    Tree { path: CString, kind: Option<FileKind>, depth: u32 },
    /// Entries of a directory that are not directories.
    Batch { dir: Arc<Dir>, entries: Vec<ListedEntry>, depth: u32 },
    /// Items of an entry that are sent when its turn comes.
    Items(Vec<T>),
}

/// Name and file type of an entry, as its directory returned them.
pub type ListedEntry = (CString, Option<FileKind>);

/// An open directory.
pub struct Dir {
    pub fd: OwnedFd,
    /// Its path with a slash at the end: the prefix of its entries' paths.
    prefix: Vec<u8>,
}

impl Dir {
    /// Takes an open directory and its path.
    pub fn new(fd: OwnedFd, path: &CStr) -> Dir {
        let mut prefix = path.to_bytes().to_vec();
        if prefix.last() != Some(&b'/') {
            prefix.push(b'/');
        }
        Dir { fd, prefix }
    }

    /// Returns the location of an entry.
    pub fn entry<'a>(&'a self, name: &'a CStr, kind: Option<FileKind>) -> EntryLocation<'a> {
        EntryLocation { at: self.fd.as_fd(), name, prefix: &self.prefix, kind, follow: false }
    }

    /// Returns the path of an entry.
    pub fn path(&self, name: &CStr) -> CString {
        // Neither part contains a NUL.
        CString::new([&self.prefix, name.to_bytes()].concat()).unwrap_or_default()
    }
}
