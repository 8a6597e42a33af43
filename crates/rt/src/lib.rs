//! Clock, randomness, tasks, network and disk: real or simulated.
//!
//! All of Sheen's access to the outside world goes through an [`Rt`]. In production an `Rt` uses
//! tokio and the kernel. In a test it may be a [`sim::Sim`], driven by one seed: a single thread,
//! virtual time, a network that delays and loses packets, and disks that lose unsynced data. The
//! code that uses an `Rt` does not know which one it has.
//!
//! * [`Rt`]: time, randomness, tasks, and access to [`Disk`], [`Listener`], [`Stream`];
//! * [`buf`]: page-aligned buffers for reuse;
//! * [`join`]: waiting for several futures at once;
//! * [`operation`]: the id of the operation that the running code works for;
//! * [`proc`]: information about other processes and this machine;
//! * [`sim`]: the simulated world.
//!
//! `tokio::sync` works in both worlds and is used everywhere. `tokio::select!` picks a branch by a
//! random generator that the seed does not control. Write `biased;` in it, or a simulation will not
//! replay.

#![allow(
    clippy::disallowed_methods,
    reason = "this crate is the boundary behind which clock, threads, files and sockets lie"
)]

pub mod buf;
mod disk;
mod error;
pub mod join;
mod metadata;
mod net;
pub mod operation;
pub mod proc;
mod real;
mod rt;
pub mod sim;
mod slab;
pub mod target_dir;
mod task;
mod time;

pub use disk::{Disk, File, LockGuard, OpenDir};
pub use error::{Elapsed, JoinError};
pub use metadata::{ATTR_BYTES_MAX, DirEntry, DirEntryKind, Metadata, OpenOptions};
pub use net::{Listener, ReadHalf, Stream, WriteHalf};
pub use real::{RealOptions, Runtime};
pub use rt::Rt;
pub use task::JoinHandle;
pub use time::Instant;

/// Returns a hash that is stored on disks: FNV-1a, which no release of a library changes.
pub fn stable_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

#[cfg(test)]
mod tests {
    #[test]
    fn stable_hash_never_changes() {
        assert_eq!(super::stable_hash(b""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(super::stable_hash(b"foobar"), 0x8594_4171_F739_67E8, "as published with the algorithm");
    }
}
