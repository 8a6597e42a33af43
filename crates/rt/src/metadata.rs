//! Options of an open, attributes of files, and entries of directories: the terms in which real and
//! simulated disks answer.

use std::ffi::OsString;

use sheen_wire::{FileKind, Time};

/// Largest extended attribute in bytes: what all common file systems support.
pub const ATTR_BYTES_MAX: usize = 4096;

/// Options for opening a file. All false by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// Create the file if it does not exist.
    pub create: bool,
    /// Create the file; EEXIST if it exists.
    pub create_new: bool,
    /// Truncate the file to zero bytes.
    pub truncate: bool,
    /// Bypass the page cache. Offsets, lengths and memory must then be aligned to the device's
    /// blocks.
    pub direct: bool,
}

impl OpenOptions {
    /// Opens an existing file for reading.
    pub const READ: OpenOptions =
        OpenOptions { read: true, write: false, create: false, create_new: false, truncate: false, direct: false };
    /// Opens an existing file for reading and writing.
    pub const READ_WRITE: OpenOptions = OpenOptions { write: true, ..OpenOptions::READ };
    /// Opens a file for reading and writing, and creates it if it does not exist.
    pub const CREATE: OpenOptions = OpenOptions { create: true, ..OpenOptions::READ_WRITE };
    /// Creates a file, which must not exist, for reading and writing.
    pub const CREATE_NEW: OpenOptions = OpenOptions { create_new: true, ..OpenOptions::READ_WRITE };
}

/// Attributes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// Size in bytes.
    pub len: u64,
    /// Space in use, in units of 512 bytes.
    pub blocks512: u64,
    /// Last change of content.
    pub mtime: Time,
    /// File type.
    pub kind: FileKind,
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DirEntry {
    /// Name.
    pub name: OsString,
    /// Its type.
    pub kind: DirEntryKind,
}

/// File types that occur in directories of a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DirEntryKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Anything else.
    Other,
}
