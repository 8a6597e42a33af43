//! An open file, as the kernel sees it.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use sheen_client::OpenFile;
use sheen_fuse::abi::flags::fopen;
use sheen_wire::{Errno, Result, ioctl, mds::flags};

/// An open file of the client, with the owners that have locked through it.
///
/// The kernel reports when a program closes a file (FLUSH, with the owner of its fcntl locks). At
/// the end of an open file (RELEASE) it does not report that the file's own locks (F_OFD_SETLK) end
/// as well. So the file records the owners that have locked and not closed.
pub struct File {
    open: Arc<OpenFile>,
    number: u64,
    nonblocking: bool,
    /// Owners of fcntl locks in the kernel's terms, each once. There are few, as most files are
    /// never locked, and at most as many as processes that have the file open.
    lockers: Mutex<Vec<u64>>,
    read: AtomicBool,
    unprivileged: AtomicBool,
    /// Flags that programs set ([`ioctl::SET_FILE_FLAGS`]).
    set_flags: AtomicU32,
}

impl File {
    /// Creates the record of a file that was just opened. `number`: its own
    /// ([`crate::locks::Owners::next`]). `nonblocking`: with O_NONBLOCK.
    pub fn new(open: Arc<OpenFile>, number: u64, nonblocking: bool) -> Arc<File> {
        let (read, unprivileged) = (AtomicBool::new(false), AtomicBool::new(false));
        let (lockers, set_flags) = (Mutex::new(Vec::new()), AtomicU32::new(0));
        Arc::new(File { open, number, nonblocking, lockers, read, unprivileged, set_flags })
    }

    /// Returns the number that no other open file of the mount ever has. It owns the file's locks
    /// of flock(2).
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether it was opened with O_NONBLOCK: then it does not wait for group locks.
    pub fn nonblocking(&self) -> bool {
        self.nonblocking
    }

    /// Records a read: the close may update the access time.
    pub fn note_read(&self) {
        self.read.store(true, Relaxed);
    }

    /// Returns whether it was read.
    pub fn was_read(&self) -> bool {
        self.read.load(Relaxed)
    }

    /// Records a write that removes set-user-id. Returns whether it is the first.
    pub fn note_unprivileged(&self) -> bool {
        !self.unprivileged.load(Relaxed) && !self.unprivileged.swap(true, Relaxed)
    }

    /// Returns whether its attributes may have changed without the kernel's knowledge.
    pub fn changes_unseen(&self) -> bool {
        self.read.load(Relaxed) || self.unprivileged.load(Relaxed)
    }

    /// Returns the flags that programs set, and whether the open file has a group lock.
    pub fn program_flags(&self) -> u32 {
        let group = if self.open.is_in_group() { ioctl::GROUP_LOCKED } else { 0 };
        self.set_flags.load(Relaxed) | group
    }

    /// Sets flags, which have no effect.
    ///
    /// # Errors
    /// EINVAL: the program asks for no locks, but the file was opened without O_DIRECT.
    pub fn set_program_flags(&self, set: u32) -> Result<()> {
        if set & ioctl::IGNORE_LOCK != 0 && self.open.flags() & flags::DIRECT == 0 {
            return Err(Errno::EINVAL);
        }
        self.set_flags.fetch_or(set & !ioctl::GROUP_LOCKED, Relaxed);
        Ok(())
    }

    /// Clears flags.
    pub fn clear_program_flags(&self, clear: u32) {
        self.set_flags.fetch_and(!clear, Relaxed);
    }

    /// Returns the client's open file.
    pub fn open(&self) -> Arc<OpenFile> {
        self.open.clone()
    }

    /// Records an owner that is about to take an fcntl lock.
    pub fn locks(&self, owner: u64) {
        let mut lockers = self.lockers.lock();
        if !lockers.contains(&owner) {
            lockers.push(owner);
        }
    }

    /// Removes an owner that has closed the file.
    pub fn closed_by(&self, owner: u64) {
        self.lockers.lock().retain(|o| *o != owner);
    }

    /// Takes the owners that have locked and not closed: at the file's end, the file itself.
    pub fn lockers(&self) -> Vec<u64> {
        std::mem::take(&mut *self.lockers.lock())
    }

    /// Returns the flags for the kernel (`FOPEN_*`). `flush`: whether the kernel must report
    /// closes, for locks.
    ///
    /// A mapping of a file that bypasses the page cache uses the page cache all the same
    /// (DIRECT_IO_ALLOW_MMAP).
    pub fn fopen(&self, flush: bool) -> u32 {
        let flush = if flush { 0 } else { fopen::NOFLUSH };
        flush
            | match self.open.cached() {
                true if self.open.keep_cache() => fopen::KEEP_CACHE,
                true => 0,
                false => fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES,
            }
    }
}

impl Deref for File {
    type Target = OpenFile;

    fn deref(&self) -> &OpenFile {
        &self.open
    }
}
