//! System calls that the standard library does not offer: fcntl(2) locks, shared mappings, the
//! layout attribute of a file.

use std::{
    ffi::c_int,
    fs::{File, OpenOptions},
    os::fd::AsRawFd,
    path::Path,
};

use rustix::{io::Errno, mm};
use sheen_layout::Layout;

/// Page size of this machine in bytes. Mappings are page-aligned.
const PAGE: usize = 4096;

/// Lock types of fcntl(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Shared with other readers.
    Read,
    /// Exclusive.
    Write,
    /// No lock.
    Unlock,
}

/// Owner of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The process.
    Process,
    /// The open file description.
    Description,
}

/// A lock that conflicts with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// Its type.
    pub kind: Kind,
    /// First byte.
    pub start: i64,
    /// Length in bytes. 0: up to the end of the file, however large it grows.
    pub len: i64,
    /// Process id of its owner.
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

/// Takes or releases a lock of `len` bytes from `start`. A `len` of 0 covers everything from
/// `start` on. With `wait`, blocks until the lock is granted.
pub fn lock(file: &impl AsRawFd, owner: Owner, wait: bool, kind: Kind, start: i64, len: i64) -> Result<(), Errno> {
    let command = match (owner, wait) {
        (Owner::Process, false) => libc::F_SETLK,
        (Owner::Process, true) => libc::F_SETLKW,
        (Owner::Description, false) => libc::F_OFD_SETLK,
        (Owner::Description, true) => libc::F_OFD_SETLKW,
    };
    call(file, command, &mut request(kind, start, len))
}

/// Returns a lock that conflicts with the given lock of this process, if any.
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

/// A shared mapping of the start of a file. Access to bytes past the file's last page kills the
/// process with SIGBUS, as in every mapping.
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

    /// Returns bytes from `offset`.
    #[track_caller]
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        self.try_read(offset, len).expect("a mapped page")
    }

    /// Returns bytes from `offset`, or EFAULT where an access would end this process with SIGBUS.
    pub fn try_read(&self, offset: usize, len: usize) -> Result<Vec<u8>, Errno> {
        assert!(offset + len <= self.len);
        self.populate(offset, len, mm::Advice::LinuxPopulateRead)?;
        // SAFETY: within the mapping. Other processes change these bytes at any time, hence one
        // volatile load per byte.
        Ok((offset..offset + len).map(|i| unsafe { self.at.add(i).read_volatile() }).collect())
    }

    /// Writes bytes from `offset`.
    #[track_caller]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.try_write(offset, bytes).expect("a mapped page");
    }

    /// Writes bytes from `offset`. Fails with EFAULT where an access would end this process with
    /// SIGBUS.
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

    /// Calls msync(2) on the whole mapping.
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: the whole mapping.
        unsafe { mm::msync(self.at.cast(), self.len, mm::MsyncFlags::SYNC) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the whole mapping; no other reference to it exists.
        let _ = unsafe { mm::munmap(self.at.cast(), self.len) };
    }
}

// SAFETY: the struct holds only an address, and all access through it is volatile and byte by byte.
unsafe impl Send for Map {}

/// Opens a file for reading and writing. Creates it if it does not exist.
///
/// # Panics
/// If the file cannot be opened.
#[track_caller]
pub fn rw(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("opened for writing")
}

/// Returns a file's layout, from its attribute `lustre.lov`.
///
/// # Panics
/// If the file has no layout or the attribute cannot be decoded.
pub fn layout(path: &Path) -> Layout {
    let mut value = vec![0; 65536];
    let n = rustix::fs::getxattr(path, "lustre.lov", &mut value).expect("it has a layout");
    Layout::decode(&value[..n]).expect("it is a layout")
}
