//! Calls that the standard library does not make: fcntl(2) locks, shared mappings, a file's layout.

use std::{
    ffi::c_int,
    fs::{File, OpenOptions},
    os::fd::AsRawFd,
    path::Path,
};

use rustix::{io::Errno, mm};
use sheen_layout::Layout;

/// A page of memory here; mappings begin at one.
const PAGE: usize = 4096;

/// What a lock permits its holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Shared with other readers.
    Read,
    /// Exclusive.
    Write,
    /// None.
    Unlock,
}

/// Whom a lock belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The process.
    Process,
    /// The open file description.
    Description,
}

/// A lock that is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// What it is.
    pub kind: Kind,
    /// First byte.
    pub start: i64,
    /// Bytes; 0 is all that follow.
    pub len: i64,
    /// Who holds it.
    pub pid: i32,
}

fn request(kind: Kind, start: i64, len: i64) -> libc::flock {
    let kind = match kind {
        Kind::Read => libc::F_RDLCK,
        Kind::Write => libc::F_WRLCK,
        Kind::Unlock => libc::F_UNLCK,
    };
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: len, l_pid: 0 }
}

fn call(file: &impl AsRawFd, command: c_int, lock: &mut libc::flock) -> Result<(), Errno> {
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the commands used here take
    // a `struct flock`.
    let failed = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } < 0;
    if failed {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).expect("an errno"));
    }
    Ok(())
}

/// Takes (or gives back) a lock of `len` bytes from `start`, 0 bytes being all; waits for it if
/// told to.
pub fn lock(file: &impl AsRawFd, owner: Owner, wait: bool, kind: Kind, start: i64, len: i64) -> Result<(), Errno> {
    let command = match (owner, wait) {
        (Owner::Process, false) => libc::F_SETLK,
        (Owner::Process, true) => libc::F_SETLKW,
        (Owner::Description, false) => libc::F_OFD_SETLK,
        (Owner::Description, true) => libc::F_OFD_SETLKW,
    };
    call(file, command, &mut request(kind, start, len))
}

/// What is in the way of a lock of this process.
pub fn conflict(file: &impl AsRawFd, kind: Kind, start: i64, len: i64) -> Result<Option<Conflict>, Errno> {
    let mut found = request(kind, start, len);
    call(file, libc::F_GETLK, &mut found)?;
    let kind = match c_int::from(found.l_type) {
        libc::F_UNLCK => return Ok(None),
        libc::F_RDLCK => Kind::Read,
        _ => Kind::Write,
    };
    Ok(Some(Conflict { kind, start: found.l_start, len: found.l_len, pid: found.l_pid }))
}

/// A shared mapping of the start of a file. Whoever touches bytes past the file's last page is
/// killed by SIGBUS, as ever.
#[derive(Debug)]
pub struct Map {
    at: *mut u8,
    len: usize,
}

impl Map {
    /// Maps `len` bytes of a file that is open for reading and writing.
    #[track_caller]
    pub fn new(file: &impl std::os::fd::AsFd, len: usize) -> Map {
        let how = mm::ProtFlags::READ | mm::ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        let at = unsafe { mm::mmap(std::ptr::null_mut(), len, how, mm::MapFlags::SHARED, file, 0) };
        Map { at: at.expect("mmap").cast(), len }
    }

    /// Bytes from `offset`.
    #[track_caller]
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        self.try_read(offset, len).expect("a mapped page")
    }

    /// Bytes from `offset`; an error (EFAULT) where touching them would end this process.
    pub fn try_read(&self, offset: usize, len: usize) -> Result<Vec<u8>, Errno> {
        assert!(offset + len <= self.len);
        self.populate(offset, len, mm::Advice::LinuxPopulateRead)?;
        // SAFETY: within the mapping. Others change these bytes at any time, hence one volatile
        // load a byte.
        Ok((offset..offset + len).map(|i| unsafe { self.at.add(i).read_volatile() }).collect())
    }

    /// Changes bytes from `offset`.
    #[track_caller]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.try_write(offset, bytes).expect("a mapped page");
    }

    /// Changes bytes from `offset`; an error (EFAULT) where touching them would end this process.
    pub fn try_write(&self, offset: usize, bytes: &[u8]) -> Result<(), Errno> {
        assert!(offset + bytes.len() <= self.len);
        self.populate(offset, bytes.len(), mm::Advice::LinuxPopulateWrite)?;
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: within the mapping, which is writable.
            unsafe { self.at.add(offset + i).write_volatile(*byte) };
        }
        Ok(())
    }

    fn populate(&self, offset: usize, len: usize, how: mm::Advice) -> Result<(), Errno> {
        let skip = offset % PAGE;
        // SAFETY: whole pages of the mapping.
        unsafe { mm::madvise(self.at.add(offset - skip).cast(), len + skip, how) }
    }

    /// msync(2) of everything.
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: the whole mapping.
        unsafe { mm::msync(self.at.cast(), self.len, mm::MsyncFlags::SYNC) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the whole mapping; `self` was the last to know of it.
        let _ = unsafe { mm::munmap(self.at.cast(), self.len) };
    }
}

// SAFETY: an address; whoever reads and writes through it does so byte by byte.
unsafe impl Send for Map {}

/// A file open for reading and writing, made if it is not there.
///
/// # Panics
/// It cannot be opened.
#[track_caller]
pub fn rw(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("opened for writing")
}

/// A file's layout, as its attribute has it.
///
/// # Panics
/// If it has none, or one that is none.
pub fn layout(path: &Path) -> Layout {
    let mut value = vec![0; 65536];
    let n = rustix::fs::getxattr(path, "lustre.lov", &mut value).expect("it has a layout");
    Layout::decode(&value[..n]).expect("it is a layout")
}
