//! An open file, as the kernel sees it.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use sheen_client::OpenFile;
use sheen_fuse::abi::flags::fopen;

/// An open file of the client, and who has locked through it.
///
/// The kernel says when a program closes a file (FLUSH, with the owner of its fcntl locks). Of the
/// end of an open file (RELEASE) it does not say that the file's own locks (F_OFD_SETLK) end with
/// it. So it is kept here who has locked and not closed.
pub struct File {
    open: Arc<OpenFile>,
    nonblocking: bool,
    /// Owners of fcntl locks, each once: few, as most files are never locked. Bounded by the
    /// processes that have the file open.
    lockers: Mutex<Vec<u64>>,
    read: AtomicBool,
    unprivileged: AtomicBool,
}

impl File {
    /// A file that was just opened. `nonblocking`: with O_NONBLOCK.
    pub fn new(open: Arc<OpenFile>, nonblocking: bool) -> Arc<File> {
        let (read, unprivileged) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(File { open, nonblocking, lockers: Mutex::new(Vec::new()), read, unprivileged })
    }

    /// Whether it was opened with O_NONBLOCK: group locks are not waited for.
    pub fn nonblocking(&self) -> bool {
        self.nonblocking
    }

    /// It is read: its access time may be set at the close.
    pub fn note_read(&self) {
        self.read.store(true, Relaxed);
    }

    /// Whether it was read.
    pub fn was_read(&self) -> bool {
        self.read.load(Relaxed)
    }

    /// Somebody writes whose writes take set-user-id away. Whether it is the first time.
    pub fn note_unprivileged(&self) -> bool {
        !self.unprivileged.load(Relaxed) && !self.unprivileged.swap(true, Relaxed)
    }

    /// Whether its attributes may have changed without the kernel knowing.
    pub fn changes_unseen(&self) -> bool {
        self.read.load(Relaxed) || self.unprivileged.load(Relaxed)
    }

    /// The client's.
    pub fn open(&self) -> Arc<OpenFile> {
        self.open.clone()
    }

    /// An owner is about to take an fcntl lock.
    pub fn locks(&self, owner: u64) {
        let mut lockers = self.lockers.lock();
        if !lockers.contains(&owner) {
            lockers.push(owner);
        }
    }

    /// An owner closes it.
    pub fn closed_by(&self, owner: u64) {
        self.lockers.lock().retain(|o| *o != owner);
    }

    /// Who has locked and not closed, at the file's end: the file itself.
    pub fn lockers(&self) -> Vec<u64> {
        std::mem::take(&mut *self.lockers.lock())
    }

    /// How the kernel is to treat it (`FOPEN_*`). `flush`: whether closes must be told, for locks.
    ///
    /// A mapping of a file that goes past the page cache is served from it all the same
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
