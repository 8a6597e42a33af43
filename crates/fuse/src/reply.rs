//! Answers to the kernel.
//!
//! Invariants: a request is answered exactly once (a [`Reply`] dropped unanswered answers EIO); an
//! answer goes through the channel that brought the request; file data is handed to the kernel from
//! where it lies.

use std::{io::IoSlice, sync::Arc, sync::atomic::Ordering::Relaxed, time::Duration};

use bytes::Bytes;
use sheen_wire::Errno;
use zerocopy::IntoBytes;

use crate::{
    abi::structs::{self, OutHeader},
    attr::{EntryOut, FileAttr, StatFs, Statx},
    device::{Device, is_gone},
    dir::{DirBuffer, DirPlusBuffer},
    pipe::FileRun,
    request::Lock,
};

/// Most pieces of one writev(2) on Linux (UIO_MAXIOV).
const IOV_MAX: usize = 1024;
/// Answers of at most so many pieces are sent without allocating.
const PIECES_ON_STACK: usize = 32;
/// Errors are below this; the kernel refuses larger ones and would wait for another answer (its
/// internal codes start here).
const ERRNO_END: i32 = 512;

/// The answer to one request, to be given once, from any thread, at any time. Dropping it
/// unanswered answers EIO.
#[derive(Debug)]
#[must_use = "dropping a reply answers EIO"]
pub struct Reply {
    /// `None` once answered, and from the start where the kernel expects no answer.
    device: Option<Arc<Device>>,
    unique: u64,
    /// COPY_FILE_RANGE_64, whose answer is wider.
    wide_copy: bool,
}

impl Reply {
    pub(crate) fn new(device: Arc<Device>, unique: u64) -> Reply {
        Reply { device: Some(device), unique, wide_copy: false }
    }

    /// For requests without an answer.
    pub(crate) fn silent(unique: u64) -> Reply {
        Reply { device: None, unique, wide_copy: false }
    }

    pub(crate) fn with_wide_copy(mut self, wide: bool) -> Reply {
        self.wide_copy = wide;
        self
    }

    /// The request that this answers, as an interrupt would name it.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// It failed. What is no errno of Linux (1 to 511) becomes EIO.
    pub fn error(mut self, errno: Errno) {
        self.send_error(errno);
    }

    /// It is done and there is nothing to say.
    pub fn ok(mut self) {
        self.send(&[]);
    }

    /// FORGET and NOTIFY_REPLY have no answer; for any other request this is EIO.
    pub fn none(self) {}

    /// A name. Counts as a lookup of the node, if it arrives.
    pub fn entry(mut self, entry: &EntryOut) -> bool {
        self.send(&[entry.to_abi().as_bytes()])
    }

    /// There is no such name, and the kernel may remember it for `valid`. With zero, the same as
    /// ENOENT.
    pub fn negative(mut self, valid: Duration) {
        if valid.is_zero() {
            self.send_error(Errno::ENOENT);
        } else {
            self.send(&[EntryOut::negative(valid).as_bytes()]);
        }
    }

    /// Attributes, which the kernel may use for `valid`.
    pub fn attr(mut self, attr: &FileAttr, valid: Duration) {
        let out = structs::AttrOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            dummy: 0,
            attr: attr.to_abi(),
        };
        self.send(&[out.as_bytes()]);
    }

    /// Attributes with birth time.
    pub fn statx(mut self, statx: &Statx, valid: Duration) {
        self.send(&[statx.to_abi(valid).as_bytes()]);
    }

    /// An open file or directory; `flags` from [`crate::abi::flags::fopen`].
    pub fn open(mut self, fh: u64, flags: u32) {
        self.send(&[structs::OpenOut { fh, open_flags: flags, backing_id: 0 }.as_bytes()]);
    }

    /// A new file, open. Counts as a lookup of the node, if it arrives.
    pub fn create(mut self, entry: &EntryOut, fh: u64, flags: u32) -> bool {
        let open = structs::OpenOut { fh, open_flags: flags, backing_id: 0 };
        self.send(&[entry.to_abi().as_bytes(), open.as_bytes()])
    }

    /// What was read: at most as many bytes as asked for; fewer mean the end of the file. The
    /// pieces go out in one writev(2); only what is past the kernel's limit of 1024 pieces is
    /// copied together.
    pub fn data(mut self, pieces: &[Bytes]) {
        let room = IOV_MAX - 1;
        if pieces.len() < PIECES_ON_STACK {
            let mut parts: [&[u8]; PIECES_ON_STACK] = [&[]; PIECES_ON_STACK];
            for (part, piece) in parts.iter_mut().zip(pieces) {
                *part = piece;
            }
            self.send(&parts[..pieces.len()]);
        } else if pieces.len() <= room {
            self.send(&pieces.iter().map(|b| &b[..]).collect::<Vec<_>>());
        } else {
            let (head, tail) = pieces.split_at(room - 1);
            let tail = tail.concat();
            if let Some(device) = &self.device {
                device.counters.bytes_copied.fetch_add(tail.len() as u64, Relaxed);
            }
            let mut parts: Vec<&[u8]> = head.iter().map(|b| &b[..]).collect();
            parts.push(&tail);
            self.send(&parts);
        }
    }

    /// What was read, which lies in files still: their pages go to the kernel as they are at this
    /// moment, without a copy in this process.
    ///
    /// # Errors
    /// It cannot be sent so: a file has fewer bytes, or they are too many for a pipe (see
    /// [`crate::files_bytes_max`]), or this user has no more pipes. Nothing was sent then.
    pub fn files(mut self, runs: &[FileRun<'_>]) -> Result<(), Reply> {
        let Some(device) = self.device.take() else { return Ok(()) };
        let bytes = runs.iter().fold(size_of::<OutHeader>(), |sum, run| sum.saturating_add(run.len));
        let sent = u32::try_from(bytes).ok().and_then(|len| {
            let header = OutHeader { len, error: 0, unique: self.unique };
            device.splice(header.as_bytes(), runs)
        });
        let Some(result) = sent else {
            self.device = Some(device);
            return Err(self);
        };
        settle(&device, self.unique, result);
        Ok(())
    }

    /// Bytes that WRITE took.
    pub fn written(mut self, bytes: u32) {
        self.send(&[structs::WriteOut { size: bytes, padding: 0 }.as_bytes()]);
    }

    /// Bytes that COPY_FILE_RANGE copied. The older form of the request counts in 32 bits: more
    /// than 4 GiB minus a page are reported as that, and the program goes on from there.
    pub fn copied(mut self, bytes: u64) {
        /// Page-aligned, so that the rest of the copy stays aligned.
        const NARROW_BYTES_MAX: u64 = u32::MAX as u64 & !4095;
        if self.wide_copy {
            self.send(&[structs::CopyFileRangeOut { bytes_copied: bytes }.as_bytes()]);
        } else {
            self.written(bytes.min(NARROW_BYTES_MAX) as u32);
        }
    }

    /// Space.
    pub fn statfs(mut self, statfs: &StatFs) {
        self.send(&[statfs.to_abi().as_bytes()]);
    }

    /// Length of an extended attribute or of the list of names, where the request's `size` is 0.
    pub fn xattr_size(mut self, bytes: u32) {
        self.send(&[structs::GetXattrOut { size: bytes, padding: 0 }.as_bytes()]);
    }

    /// An extended attribute's value, or names each followed by NUL.
    pub fn xattr_data(mut self, value: &[u8]) {
        self.send(&[value]);
    }

    /// An extended attribute for a request with room for `size` bytes: its length if 0, ERANGE if
    /// too small, else its value.
    pub fn xattr(self, size: u32, value: &[u8]) {
        match size {
            0 => self.xattr_size(value.len().try_into().unwrap_or(u32::MAX)),
            room if value.len() > room as usize => self.error(Errno::ERANGE),
            _ => self.xattr_data(value),
        }
    }

    /// A symbolic link's target.
    pub fn readlink(mut self, target: &[u8]) {
        self.send(&[target]);
    }

    /// A lock in the way, or one of kind `UNLOCK` where there is none.
    pub fn lock(mut self, lock: &Lock) {
        let out = structs::FileLock { start: lock.start, end: lock.end, kind: lock.kind, pid: lock.pid };
        self.send(&[out.as_bytes()]);
    }

    /// Where LSEEK came to.
    pub fn lseek(mut self, offset: u64) {
        self.send(&[structs::LseekOut { offset }.as_bytes()]);
    }

    /// A block on the device.
    pub fn bmap(mut self, block: u64) {
        self.send(&[structs::BmapOut { block }.as_bytes()]);
    }

    /// Events that are ready.
    pub fn poll(mut self, events: u32) {
        self.send(&[structs::PollOut { revents: events, padding: 0 }.as_bytes()]);
    }

    /// Result of an ioctl and the bytes that its argument shall point to.
    pub fn ioctl(mut self, result: i32, output: &[u8]) {
        self.send(&[structs::IoctlOut { result, ..Default::default() }.as_bytes(), output]);
    }

    /// Entries of a directory; an empty buffer means its end.
    pub fn dir(mut self, entries: &DirBuffer) {
        self.send(&[entries.bytes()]);
    }

    /// Entries of a directory with attributes; an empty buffer means its end.
    pub fn dir_plus(mut self, entries: &DirPlusBuffer) {
        self.send(&[entries.bytes()]);
    }

    /// INIT's answer.
    pub(crate) fn init(mut self, out: &structs::InitOut) {
        self.send(&[out.as_bytes()]);
    }

    fn send_error(&mut self, errno: Errno) {
        let Some(device) = self.device.take() else { return };
        let errno = if (1..ERRNO_END).contains(&errno.0) { errno } else { Errno::EIO };
        let header = OutHeader { len: size_of::<OutHeader>() as u32, error: -errno.0, unique: self.unique };
        let result = device.write(&[IoSlice::new(header.as_bytes())]);
        settle(&device, self.unique, result);
    }

    /// Sends a success of these parts (fewer than [`IOV_MAX`]). Whether the kernel took it.
    fn send(&mut self, parts: &[&[u8]]) -> bool {
        let Some(device) = self.device.take() else { return false };
        let bytes = size_of::<OutHeader>() + parts.iter().map(|p| p.len()).sum::<usize>();
        let Ok(len) = u32::try_from(bytes) else {
            self.device = Some(device);
            self.send_error(Errno::EIO);
            return false;
        };
        let header = OutHeader { len, error: 0, unique: self.unique };
        let result = if parts.len() <= PIECES_ON_STACK {
            let mut pieces = [IoSlice::new(&[]); PIECES_ON_STACK + 1];
            pieces[0] = IoSlice::new(header.as_bytes());
            for (piece, part) in pieces[1..].iter_mut().zip(parts) {
                *piece = IoSlice::new(part);
            }
            device.write(&pieces[..=parts.len()])
        } else {
            let mut pieces = Vec::with_capacity(parts.len() + 1);
            pieces.push(IoSlice::new(header.as_bytes()));
            pieces.extend(parts.iter().map(|p| IoSlice::new(p)));
            device.write(&pieces)
        };
        settle(&device, self.unique, result)
    }
}

/// Counts an answer; whether it arrived. That the kernel no longer waits for it is normal: the
/// request was aborted, or the mount is gone.
fn settle(device: &Device, unique: u64, result: Result<(), Errno>) -> bool {
    match result {
        Ok(()) => device.counters.replies.fetch_add(1, Relaxed),
        Err(e) => {
            if e != Errno::ENOENT && !is_gone(e) {
                // The kernel has ended the request with EIO itself.
                tracing::warn!(unique, errno = e.0, "the kernel refused a reply: {e}");
            }
            device.counters.lost_replies.fetch_add(1, Relaxed)
        }
    };
    result.is_ok()
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.send_error(Errno::EIO);
    }
}
