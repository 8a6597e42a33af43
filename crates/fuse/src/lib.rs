//! The kernel's FUSE protocol: sessions, worker threads, buffers, notifications.
//!
//! A file system implements [`Filesystem`] and is mounted by [`Session::mount`]. Every operation of
//! the protocol arrives as a [`Request`] with a [`Reply`], on one of several worker threads, and is
//! answered at once or later from anywhere.
//!
//! * [`abi`]: numbers and structures of the kernel's interface, 7.31 to 7.45;
//! * `mount`: mount(2) as root, `fusermount3` otherwise;
//! * `mount_flags`: read-only, nosuid and their like, and how a remount changes them;
//! * `session`: the threads, each with its own channel to the kernel;
//! * `parse`: from the kernel's bytes to a [`Request`];
//! * `reply`: answers, scattered from where the data lies;
//! * `pipe`: file pages on their way to the kernel;
//! * `pool`: page-aligned buffers that a WRITE's data keeps without a copy;
//! * `notify`: invalidations and their deadlock rule;
//! * `interrupts`: signals that overtake their request.
//!
//! What is particular here: a WRITE hands its buffer over, page-aligned; interrupts reach the file
//! system; flock locks can be told from those of fcntl; SYNCFS, STATX and TMPFILE exist.
#![allow(
    clippy::disallowed_methods,
    reason = "this crate is the boundary to the kernel: its threads and files are the mount's own"
)]

pub mod abi;
mod attr;
mod device;
mod dir;
mod init;
mod interrupts;
mod mount;
mod mount_flags;
mod notify;
mod parse;
mod pipe;
mod pool;
mod reply;
mod request;
mod session;

pub use attr::{EntryOut, FileAttr, StatFs, Statx};
pub use dir::{DirBuffer, DirPlusBuffer};
pub use init::{InitConfig, MAX_WRITE_BYTES_MAX, Negotiated};
pub use mount::{MountError, MountOptions, check_mount, unmount};
pub use mount_flags::{FlagsWatch, MountFlags, remount};
pub use notify::Notifier;
pub use pipe::{FileRun, files_bytes_max};
pub use reply::Reply;
pub use request::*;
pub use session::{COPY_PAYLOAD_BYTES_MAX, Filesystem, Session, SessionOptions, SessionStats};

/// Parses bytes as a message from the kernel and forgets the result: what a fuzz target calls. Any
/// bytes are fine.
#[doc(hidden)]
pub fn fuzz_parse(message: &[u8]) {
    for setxattr_ext in [false, true] {
        let _ = parse::parse(message, setxattr_ext);
    }
}
