//! `/dev/fuse`: one open channel to the kernel.
//!
//! Invariant: a reply goes through the [`Device`] that delivered the request. The kernel looks for
//! the request of a reply only among the requests read from the same channel.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno as Os,
    ioctl,
};
use sheen_wire::Errno;

use crate::pipe::{FileRun, Pipe};

/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`.
const IOC_CLONE: ioctl::Opcode = ioctl::opcode::read::<u32>(229, 0);

/// A channel to the kernel with its own queue of pending requests. It has its own counters, so that
/// workers share no cache line.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Device {
    fd: OwnedFd,
    pub(crate) counters: Counters,
    /// Pipe for the next spliced reply. Usually the worker that owns this channel sends all replies
    /// of the channel, one after the other, so one pipe is enough.
    pipe: Mutex<Option<Pipe>>,
    /// Set after a pipe could not be opened: the user has reached the limit for large pipes.
    no_pipes: AtomicBool,
}

/// Counters of one channel.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) replies: AtomicU64,
    pub(crate) lost_replies: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) bytes_copied: AtomicU64,
    pub(crate) bytes_spliced: AtomicU64,
}

/// Reasons why a read returned no request.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// No error; read again.
    Again,
    /// The file system was unmounted or the connection aborted.
    Ended,
    /// Any other error: this channel is unusable.
    Failed(io::Error),
}

impl Device {
    /// Opens the device. Before a mount it delivers no requests.
    pub(crate) fn open() -> io::Result<OwnedFd> {
        Ok(rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Wraps a device that was mounted.
    pub(crate) fn new(fd: OwnedFd) -> Device {
        Device { fd, counters: Counters::default(), pipe: Mutex::default(), no_pipes: AtomicBool::new(false) }
    }

    /// Opens another channel of the same mount.
    pub(crate) fn another(&self) -> io::Result<Device> {
        use std::os::fd::AsRawFd;
        let fd = Device::open()?;
        // SAFETY: the kernel's FUSE_DEV_IOC_CLONE reads one u32, a descriptor, through the pointer.
        // Setter passes a pointer to a u32.
        unsafe { ioctl::ioctl(&fd, ioctl::Setter::<IOC_CLONE, u32>::new(self.fd.as_raw_fd() as u32))? };
        Ok(Device::new(fd))
    }

    /// Waits for a request and reads it. `buffer` must have room for a WRITE of the negotiated size
    /// with its headers.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(n) => {
                self.counters.requests.fetch_add(1, Relaxed);
                self.counters.bytes_in.fetch_add(n as u64, Relaxed);
                Ok(n)
            }
            // ENOENT: the request was interrupted while the kernel copied it to this process.
            Err(Os::INTR | Os::AGAIN | Os::NOENT) => Err(ReadError::Again),
            Err(Os::NODEV | Os::CONNABORTED | Os::NOTCONN) => Err(ReadError::Ended),
            Err(e) => Err(ReadError::Failed(e.into())),
        }
    }

    /// Writes one message. The kernel takes the whole message or nothing.
    pub(crate) fn write(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        loop {
            match rustix::io::writev(&self.fd, parts) {
                Ok(n) => {
                    self.counters.bytes_out.fetch_add(n as u64, Relaxed);
                    return Ok(());
                }
                Err(Os::INTR | Os::AGAIN) => continue,
                Err(e) => return Err(Errno(e.raw_os_error())),
            }
        }
    }

    /// Writes one message, a header and bytes of files, without reading the files into this
    /// process. Returns `None` if the message was not sent: the caller may send it in another way.
    pub(crate) fn splice(&self, header: &[u8], runs: &[FileRun<'_>]) -> Option<Result<(), Errno>> {
        let pipe = self.pipe.lock().take().or_else(|| self.open_pipe())?;
        if !pipe.holds(runs) {
            *self.pipe.lock() = Some(pipe);
            return None;
        }
        if !pipe.fill(header, runs).is_ok_and(|whole| whole) {
            return None;
        }
        let len = header.len() + runs.iter().map(|run| run.len).sum::<usize>();
        match pipe.empty_into(self.as_fd(), len) {
            Ok(true) => {
                *self.pipe.lock() = Some(pipe);
                self.counters.bytes_out.fetch_add(len as u64, Relaxed);
                self.counters.bytes_spliced.fetch_add(len as u64, Relaxed);
                Some(Ok(()))
            }
            Ok(false) => None,
            Err(Os::NOENT) => Some(Err(Errno::ENOENT)),
            Err(e) if is_unmounted(Errno(e.raw_os_error())) => Some(Err(Errno(e.raw_os_error()))),
            // For example out of memory before the kernel looked for the request. If the kernel did
            // find the request, it no longer knows it, and a second reply gets ENOENT.
            Err(_) => None,
        }
    }

    fn open_pipe(&self) -> Option<Pipe> {
        if self.no_pipes.load(Relaxed) {
            return None;
        }
        let opened = Pipe::open();
        if let Err(e) = &opened {
            tracing::debug!("cannot open a pipe for splicing: {e}; this channel copies file data instead");
            self.no_pipes.store(true, Relaxed);
        }
        opened.ok()
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether the error of a write means that the mount has ended.
pub(crate) fn is_unmounted(e: Errno) -> bool {
    // EPERM: the channel was never mounted or is already torn down.
    matches!(e, Errno::ENODEV | Errno::ENOTCONN | Errno::EPERM) || e.0 == Os::CONNABORTED.raw_os_error()
}
