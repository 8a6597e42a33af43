//! The kernel's FUSE protocol: sessions, worker threads, buffers, notifications.
//!
//! A file system implements [`Filesystem`] and is mounted by [`Session::mount`]. Each operation of
//! the protocol arrives as a [`Request`] with a [`Reply`], on one of several worker threads. The
//! file system may send the reply at once, or later from any thread.
//!
//! * [`abi`]: numbers and structures of the kernel's interface, versions 7.31 to 7.45;
//! * `mount`: mount(2) as root, `fusermount3` otherwise;
//! * `mount_flags`: read-only, nosuid and similar flags, and how a remount changes them;
//! * `mount_table`: the kernel's list of mounts;
//! * `session`, `options`: a mounted file system and its threads;
//! * `server`: the way of a message from any channel to the file system;
//! * `worker`, `device`: threads that read `/dev/fuse`, each with its own channel to the kernel;
//! * `ring`, `lane`, `slot`: FUSE over io_uring, with a thread for each processor;
//!   `ring_switch`: the kernel's parameter for it;
//! * `parse`: decoding of the kernel's messages into [`Request`]s;
//! * `reply`, `channel`: replies, gathered by writev(2) from the buffers that hold the data, or
//!   copied into a ring entry;
//! * `pipe`: splicing of file pages to the kernel;
//! * `pool`: page-aligned buffers that the data of a WRITE owns without a copy;
//! * `notify`: invalidations and their deadlock rule;
//! * `interrupts`: INTERRUPT messages that arrive before their request.
//!
//! Special features:
//!
//! * a WRITE hands its page-aligned buffer over to the file system;
//! * interrupts reach the file system;
//! * flock locks are distinguished from fcntl locks;
//! * SYNCFS, STATX and TMPFILE are supported.
#![allow(
    clippy::disallowed_methods,
    reason = "this crate is the boundary to the kernel: its threads and files are the mount's own"
)]

pub mod abi;
mod attr;
mod channel;
mod counters;
mod device;
mod dir;
mod init;
mod interrupts;
mod lane;
mod mount;
mod mount_flags;
mod mount_table;
mod notify;
mod options;
mod parse;
mod pipe;
mod pool;
mod reply;
mod request;
mod ring;
mod ring_switch;
mod server;
mod session;
mod slot;
mod worker;

pub use attr::{EntryOut, FileAttr, StatFs, Statx};
pub use dir::{DirBuffer, DirPlusBuffer};
pub use init::{InitConfig, MAX_WRITE_BYTES_MAX, Negotiated};
pub use mount::{MountError, MountOptions, check_mount, unmount};
pub use mount_flags::{FlagsWatch, MountFlags, remount};
pub use notify::Notifier;
pub use options::{IoUring, SessionOptions};
pub use pipe::{FileRun, files_bytes_max};
pub use reply::Reply;
pub use request::*;
pub use ring_switch::{IoUringError, IoUringSwitch};
pub use server::{COPY_PAYLOAD_BYTES_MAX, Filesystem};
pub use session::{Session, SessionStats};

/// Entry point for fuzzing: parses any bytes as a message from the kernel and discards the result.
#[doc(hidden)]
pub fn fuzz_parse(message: &[u8]) {
    for setxattr_ext in [false, true] {
        let _ = parse::parse(message, setxattr_ext);
    }
}
