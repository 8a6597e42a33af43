//! The client library: one mounted file system as one program sees it, without a kernel.
//!
//! * `mount`: mounting and unmounting; `llite`: a mounted file system ([`Client`]) and every
//!   operation of a program, one file per operation;
//! * `open`: open files and directories; `cache`: attributes, names, layouts, and the kernel's
//!   pages;
//! * `lov`: splits an operation on a file into requests to the OSTs that hold its objects; `osc`:
//!   one OST; `writeback`: dirty data that is not yet on the OSTs;
//! * `mdc`: the MDT, and the allocation of FIDs for new files;
//! * `locks`: the locks held from each target; `lock_owners`: what is dropped before a lock is
//!   cancelled, in this process and in a cache outside it ([`Invalidate`]);
//! * `targets`: turns the MGS's configuration into imports; `params`: the Lustre parameters of all
//!   these parts.
//!
//! ```text
//!      mount            mounting and unmounting
//!        │
//!  targets · params     imports; parameters and devices
//!        │
//!      llite            one file per operation
//!        │
//!   lock_owners         before a lock is cancelled
//!        │
//!   open · cache        open files; attributes, names, layouts, pages
//!    │     │
//!    │    lov           split · glimpse · read · write · truncate · allocate · seek · sync
//!    │     │
//!    │   writeback      dirty data
//!    │     │
//!   mdc   osc           one MDT, one osc per OST
//!    └──┬──┘
//!     locks
//!       │
//!      rpc
//! ```
//!
//! Invariants:
//! * Data that another client could change is cached only under a lock which that client has to
//!   revoke first (`locks`, `cache`). Everything else is requested from the MDT, and from the OSTs
//!   where size, space or data matter. Layouts that can no longer change are cached without a lock.
//! * The client drops its cached copy of whatever it changes itself before the operation returns.
//! * File data is passed on, not copied. The buffers of a write go to the OSTs; a read returns the
//!   buffers that the OSTs sent. Small writes are the exception: they are gathered by copying.
//! * Over `lo`, an operation whose services answer at once completes at its first poll, without a
//!   spawned task.
//! * All requests that one operation sends to several OSTs are in flight at the same time.

mod access_patterns;
mod cache;
mod capabilities;
mod connection;
mod failure;
mod invalidate;
mod io_stats;
mod limits;
mod llite;
mod lock_owners;
mod locks;
mod lov;
mod mdc;
mod mount;
mod mount_waits;
mod open;
mod osc;
mod params;
mod pools;
mod registered;
mod replay;
mod results;
mod rpc_stats;
mod stats;
mod targets;
mod types;
mod uncommitted;
mod writeback;

pub use invalidate::Invalidate;
pub use llite::{Client, ReadAheadWindow};
pub use open::{OpenDir, OpenFile, ScanItem, ScanPage};
pub use results::*;
pub use types::*;
