//! Mounts the tests' in-memory file system and serves it until it is unmounted.
//!
//! Usage: `memfs DIRECTORY [THREADS [ring]]`, later `umount DIRECTORY`. With `ring`, requests come
//! over io_uring.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "the tests' file system, which is shared here, fails by panicking"
)]

use std::{error::Error, sync::Arc};

use sheen_fuse::{IoUring, MountOptions, Session, SessionOptions, abi::flags};

#[path = "../tests/it/memfs/mod.rs"]
mod memfs;

/// Transport of the tests' mounts, which this program does not use.
const TRANSPORT: IoUring = IoUring::Off;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let directory = args.next().ok_or("usage: memfs DIRECTORY [THREADS [ring]]")?;
    let threads = args.next().map_or(Ok(0), |n| n.parse())?;
    let io_uring = if args.next().is_some() { IoUring::On } else { IoUring::Off };
    let mut fs = memfs::MemFs::new(|_| ());
    fs.open_flags = flags::fopen::PARALLEL_DIRECT_WRITES;
    let session = Session::mount(
        MountOptions::new(directory, "memfs"),
        SessionOptions { threads, io_uring, ..Default::default() },
        Arc::new(fs),
    )?;
    println!("{:?}", session.negotiated());
    session.join();
    println!("{:?}", session.stats());
    Ok(())
}
