//! `/dev/fuse`: one open channel to the kernel.
//!
//! Invariant: a reply goes through the [`Device`] that delivered the request. The kernel looks for
//! the request of a reply only among the requests read from the same channel.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::Mutex;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno as Os,
    ioctl,
};
use sheen_wire::Errno;
use zerocopy::IntoBytes;

use crate::{
    abi::structs::OutHeader,
    counters::{Counters, is_unmounted},
    pipe::{FileRun, Pipe},
};

/// Maximum number of pieces of one writev(2) on Linux (UIO_MAXIOV).
const IOV_MAX: usize = 1024;
/// Messages of at most this many pieces are sent without an allocation.
const PIECES_ON_STACK: usize = 33;

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
                self.counters.message(n);
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

    /// Sends a reply: `error` (0 or a negative errno) and these parts. Only the parts beyond the
    /// kernel's limit are copied into one.
    pub(crate) fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        let bytes = size_of::<OutHeader>() + parts.iter().map(|p| p.len()).sum::<usize>();
        let Ok(len) = u32::try_from(bytes) else {
            return self.send(unique, -Errno::EIO.0, &[]).and(Err(Errno::EINVAL));
        };
        let header = OutHeader { len, error, unique };
        if parts.len() < PIECES_ON_STACK {
            let mut pieces = [IoSlice::new(&[]); PIECES_ON_STACK];
            pieces[0] = IoSlice::new(header.as_bytes());
            for (piece, part) in pieces[1..].iter_mut().zip(parts) {
                *piece = IoSlice::new(part);
            }
            return self.write(&pieces[..=parts.len()]);
        }
        let (head, tail) = parts.split_at(parts.len().min(IOV_MAX - 2));
        let tail = tail.concat();
        self.counters.bytes_copied.fetch_add(tail.len() as u64, Relaxed);
        let mut pieces = Vec::with_capacity(head.len() + 2);
        pieces.push(IoSlice::new(header.as_bytes()));
        pieces.extend(head.iter().map(|p| IoSlice::new(p)));
        pieces.push(IoSlice::new(&tail));
        self.write(&pieces)
    }

    /// Replies with bytes of files, without reading the files into this process. Returns `None` if
    /// the reply was not sent: the caller may send it in another way.
    pub(crate) fn splice(&self, unique: u64, runs: &[FileRun<'_>]) -> Option<Result<(), Errno>> {
        let bytes = runs.iter().fold(size_of::<OutHeader>(), |sum, run| sum.saturating_add(run.len));
        let header = OutHeader { len: u32::try_from(bytes).ok()?, error: 0, unique };
        let pipe = self.pipe.lock().take().or_else(|| self.open_pipe())?;
        if !pipe.holds(runs) {
            *self.pipe.lock() = Some(pipe);
            return None;
        }
        if !pipe.fill(header.as_bytes(), runs).is_ok_and(|whole| whole) {
            return None;
        }
        match pipe.empty_into(self.as_fd(), bytes) {
            Ok(true) => {
                *self.pipe.lock() = Some(pipe);
                self.counters.bytes_out.fetch_add(bytes as u64, Relaxed);
                self.counters.bytes_spliced.fetch_add(bytes as u64, Relaxed);
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
