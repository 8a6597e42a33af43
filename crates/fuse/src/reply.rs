//! Replies to the kernel.
//!
//! Invariants:
//!
//! * Each request gets exactly one reply. Dropping a [`Reply`] unsent replies EIO.
//! * A reply goes through the channel that delivered the request.
//! * File data is passed to `/dev/fuse` from the buffers that hold it, without a copy. A ring entry
//!   has a buffer of its own, into which it is copied once.

use std::time::Duration;

use bytes::Bytes;
use sheen_wire::Errno;
use zerocopy::IntoBytes;

use crate::{
    abi::structs,
    attr::{EntryOut, FileAttr, StatFs, Statx},
    channel::Channel,
    dir::{DirBuffer, DirPlusBuffer},
    pipe::FileRun,
    request::Lock,
};

/// Replies of at most this many pieces are sent without an allocation.
const PIECES_ON_STACK: usize = 32;
/// End of the valid errnos. The kernel refuses larger ones (its internal codes start here) and
/// would keep waiting for a reply.
const ERRNO_END: i32 = 512;

/// The reply to one request. May be sent once, from any thread, at any time. Dropping it
/// unsent replies EIO.
#[derive(Debug)]
#[must_use = "dropping a reply answers EIO"]
pub struct Reply {
    /// `None` after sending, and from the start if the kernel expects no reply.
    channel: Option<Channel>,
    unique: u64,
    /// Set for COPY_FILE_RANGE_64, whose reply is wider.
    wide_copy: bool,
}

impl Reply {
    pub(crate) fn new(channel: Channel, unique: u64) -> Reply {
        Reply { channel: Some(channel), unique, wide_copy: false }
    }

    /// Creates the reply of a request to which the kernel expects none.
    pub(crate) fn silent(unique: u64) -> Reply {
        Reply { channel: None, unique, wide_copy: false }
    }

    pub(crate) fn with_wide_copy(mut self, wide: bool) -> Reply {
        self.wide_copy = wide;
        self
    }

    /// Returns the unique of the request, which an interrupt would name.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Replies with an error. A value that is no Linux errno (1 to 511) becomes EIO.
    pub fn error(mut self, errno: Errno) {
        self.send_error(errno);
    }

    /// Replies success without data.
    pub fn ok(mut self) {
        self.send(&[]);
    }

    /// Ends FORGET and NOTIFY_REPLY, which have no reply. For any other request this replies EIO.
    pub fn none(self) {}

    /// Replies with an entry. Returns whether the kernel accepted the reply; if so, it counts as a
    /// lookup of the node.
    pub fn entry(mut self, entry: &EntryOut) -> bool {
        self.send(&[entry.to_abi().as_bytes()])
    }

    /// Replies that the name does not exist. The kernel may cache this for `valid`. With zero, the
    /// same as ENOENT.
    pub fn negative(mut self, valid: Duration) {
        if valid.is_zero() {
            self.send_error(Errno::ENOENT);
        } else {
            self.send(&[EntryOut::negative(valid).as_bytes()]);
        }
    }

    /// Replies with attributes, which the kernel may cache for `valid`.
    pub fn attr(mut self, attr: &FileAttr, valid: Duration) {
        let out = structs::AttrOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            dummy: 0,
            attr: attr.to_abi(),
        };
        self.send(&[out.as_bytes()]);
    }

    /// Replies with attributes including the birth time, which the kernel may cache for `valid`.
    pub fn statx(mut self, statx: &Statx, valid: Duration) {
        self.send(&[statx.to_abi(valid).as_bytes()]);
    }

    /// Replies with the handle of an open file or directory. `flags`: [`crate::abi::flags::fopen`].
    pub fn open(mut self, fh: u64, flags: u32) {
        self.send(&[structs::OpenOut { fh, open_flags: flags, backing_id: 0 }.as_bytes()]);
    }

    /// Replies with a new file and its handle. Returns whether the kernel accepted the reply; if
    /// so, it counts as a lookup of the node.
    pub fn create(mut self, entry: &EntryOut, fh: u64, flags: u32) -> bool {
        let open = structs::OpenOut { fh, open_flags: flags, backing_id: 0 };
        self.send(&[entry.to_abi().as_bytes(), open.as_bytes()])
    }

    /// Replies with the bytes read: at most as many as requested. Fewer bytes mean the end of the
    /// file. To `/dev/fuse` the pieces are sent by one writev(2). Only the pieces beyond the
    /// kernel's limit of 1024 are copied into one.
    pub fn data(mut self, pieces: &[Bytes]) {
        let Some(channel) = self.channel.take() else { return };
        if pieces.len() <= PIECES_ON_STACK {
            let mut parts: [&[u8]; PIECES_ON_STACK] = [&[]; PIECES_ON_STACK];
            for (part, piece) in parts.iter_mut().zip(pieces) {
                *part = piece;
            }
            channel.send_data(self.unique, &parts[..pieces.len()]);
        } else {
            channel.send_data(self.unique, &pieces.iter().map(|b| &b[..]).collect::<Vec<_>>());
        }
    }

    /// Replies with bytes that are still in files. `/dev/fuse` receives the files' pages as they
    /// are at this moment, without a copy in this process. Into a ring entry the files are read.
    ///
    /// # Errors
    /// Returns the reply unsent if it cannot be sent. Reasons: a file has fewer bytes, the bytes
    /// exceed a pipe (see [`crate::files_bytes_max`]), or this user can open no more large pipes.
    pub fn files(mut self, runs: &[FileRun<'_>]) -> Result<(), Reply> {
        let Some(channel) = self.channel.take() else { return Ok(()) };
        channel.send_files(self.unique, runs).map_err(|channel| {
            self.channel = Some(channel);
            self
        })
    }

    /// Replies with the number of bytes written.
    pub fn written(mut self, bytes: u32) {
        self.send(&[structs::WriteOut { size: bytes, padding: 0 }.as_bytes()]);
    }

    /// Replies with the number of bytes that COPY_FILE_RANGE copied. The older form of the request
    /// counts in 32 bits: a larger number is reported as 4 GiB minus one page, and the program
    /// continues from there.
    pub fn copied(mut self, bytes: u64) {
        /// Page-aligned, so that the remaining copy stays aligned.
        const NARROW_BYTES_MAX: u64 = u32::MAX as u64 & !4095;
        if self.wide_copy {
            self.send(&[structs::CopyFileRangeOut { bytes_copied: bytes }.as_bytes()]);
        } else {
            self.written(bytes.min(NARROW_BYTES_MAX) as u32);
        }
    }

    /// Replies with the space of the file system.
    pub fn statfs(mut self, statfs: &StatFs) {
        self.send(&[statfs.to_abi().as_bytes()]);
    }

    /// Replies with the length of an extended attribute or of the name list, if the request's
    /// `size` is 0.
    pub fn xattr_size(mut self, bytes: u32) {
        self.send(&[structs::GetXattrOut { size: bytes, padding: 0 }.as_bytes()]);
    }

    /// Replies with the value of an extended attribute, or with names that each end with NUL.
    pub fn xattr_data(mut self, value: &[u8]) {
        self.send(&[value]);
    }

    /// Replies to a request with room for `size` bytes: with the length of `value` if `size` is 0,
    /// with ERANGE if `size` is too small, otherwise with `value`.
    pub fn xattr(self, size: u32, value: &[u8]) {
        match size {
            0 => self.xattr_size(value.len().try_into().unwrap_or(u32::MAX)),
            room if value.len() > room as usize => self.error(Errno::ERANGE),
            _ => self.xattr_data(value),
        }
    }

    /// Replies with the target of a symbolic link.
    pub fn readlink(mut self, target: &[u8]) {
        self.send(&[target]);
    }

    /// Replies to GETLK with a conflicting lock, or with a lock of kind `UNLOCK` if there is none.
    pub fn lock(mut self, lock: &Lock) {
        let out = structs::FileLock { start: lock.start, end: lock.end, kind: lock.kind, pid: lock.pid };
        self.send(&[out.as_bytes()]);
    }

    /// Replies with the new offset of LSEEK.
    pub fn lseek(mut self, offset: u64) {
        self.send(&[structs::LseekOut { offset }.as_bytes()]);
    }

    /// Replies with a block number of the device.
    pub fn bmap(mut self, block: u64) {
        self.send(&[structs::BmapOut { block }.as_bytes()]);
    }

    /// Replies with the events that are ready.
    pub fn poll(mut self, events: u32) {
        self.send(&[structs::PollOut { revents: events, padding: 0 }.as_bytes()]);
    }

    /// Replies with the result of an ioctl and the bytes to store at its argument.
    pub fn ioctl(mut self, result: i32, output: &[u8]) {
        self.send(&[structs::IoctlOut { result, ..Default::default() }.as_bytes(), output]);
    }

    /// Replies with directory entries. An empty buffer means the end of the directory.
    pub fn dir(mut self, entries: &DirBuffer) {
        self.send(&[entries.bytes()]);
    }

    /// Replies with directory entries and attributes. An empty buffer means the end of the
    /// directory.
    pub fn dir_plus(mut self, entries: &DirPlusBuffer) {
        self.send(&[entries.bytes()]);
    }

    /// Replies to INIT.
    pub(crate) fn init(mut self, out: &structs::InitOut) {
        self.send(&[out.as_bytes()]);
    }

    fn send_error(&mut self, errno: Errno) {
        let Some(channel) = self.channel.take() else { return };
        let errno = if (1..ERRNO_END).contains(&errno.0) { errno } else { Errno::EIO };
        channel.send(self.unique, -errno.0, &[]);
    }

    /// Sends a successful reply of these parts. Returns whether the kernel accepted it.
    fn send(&mut self, parts: &[&[u8]]) -> bool {
        self.channel.take().is_some_and(|channel| channel.send(self.unique, 0, parts))
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.send_error(Errno::EIO);
    }
}
