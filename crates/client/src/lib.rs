//! The client: one file system as one program sees it, without a kernel.
//!
//! * [`Client`]: mounting, and every operation of a program (`llite`, one file an operation);
//! * `lov`: what happens to a file, split into requests to the OSTs that hold its objects; `osc`:
//!   one OST;
//! * `locks`: the locks held of each target; `cache`: what is kept under them, here and by the
//!   kernel ([`Invalidate`]);
//! * `writeback`: what was written and an OST does not have yet;
//! * `mdc`: the MDT, and the FIDs of new files;
//! * `closed`: closed files, told to the MDT many at a time;
//! * `statahead`: which names a program goes through, and what to ask ahead for it;
//! * `targets`: from the MGS's configuration to imports; `params`: Lustre's parameters of all of
//!   these.
//!
//! ```text
//!   mount, tests, simulator
//!        │
//!      llite ─── layouts, open files, cache ── locks
//!      │   │
//!     mdc  lov ── split · glimpse · read · write · truncate · allocate · seek · sync
//!      │   │
//!      │  osc (one an OST)
//!      └─┬─┘
//!       rpc
//! ```
//!
//! Invariants:
//! * What another client could change is kept only under a lock that it has to ask back (`locks`,
//!   `cache`); everything else is asked for: the MDT, and where size, space or data matter the
//!   OSTs. Layouts that do not change any more are kept without.
//! * What this client itself changes it drops from its caches before the operation returns.
//! * Data is handed on, not copied (small writes aside, which are gathered): what a write brings
//!   goes to the OSTs, what a read returns are the pieces that came.
//! * Over `lo`, an operation whose services answer at once is done at its first poll, with no task
//!   spawned.
//! * All requests that one action sends to several OSTs are under way together.

mod cache;
mod client;
mod closed;
mod file;
mod join;
mod layouts;
mod llite;
mod locks;
mod lov;
mod mdc;
mod osc;
mod params;
mod pools;
mod read_ahead;
mod rpc_stats;
mod statahead;
mod stats;
mod targets;
mod types;
mod writeback;

pub use client::Client;
pub use file::{OpenDir, OpenFile};
pub use llite::scan::{ScanItem, ScanPage};
pub use types::*;

/// Most layouts kept unless [`ClientOptions::layouts_max`] says otherwise: some megabytes for files
/// of a few stripes.
pub const LAYOUTS_MAX: usize = 16384;
/// Most files whose attributes and names are kept unless [`ClientOptions::inodes_max`] says
/// otherwise: a tree of 100,000 files and their directories, in some 100 MB. As many as there are
/// unused locks.
pub const INODES_MAX: usize = 128 << 10;
