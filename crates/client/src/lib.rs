//! The client: one file system as one program sees it, without a kernel.
//!
//! * [`Client`]: mounting, and every operation of a program (`llite`, one file an operation);
//! * `lov`: what happens to a file, split into requests to the OSTs that hold its objects; `osc`: one OST;
//! * `mdc`: the MDT, and the FIDs of new files;
//! * `targets`: from the MGS's configuration to imports; `params`: Lustre's parameters of all of these.
//!
//! ```text
//!   mount, tests, simulator
//!        │
//!      llite ─── layouts, open files
//!      │   │
//!     mdc  lov ── split · glimpse · read · write · truncate · allocate · seek · sync
//!      │   │
//!      │  osc (one an OST)
//!      └─┬─┘
//!       rpc
//! ```
//!
//! Invariants:
//! * Nothing that another client could change is cached: an operation that returns has asked the MDT, and where size, space or
//!   data matter the OSTs. Kept are layouts (they never change), and where targets are.
//! * Data is handed on, never copied: what a write brings goes to the OSTs, what a read returns are the pieces that came.
//! * Over `lo`, an operation whose services answer at once is done at its first poll, with no task spawned.
//! * All requests that one action sends to several OSTs are under way together.

mod client;
mod file;
mod join;
mod layouts;
mod llite;
mod lov;
mod mdc;
mod osc;
mod params;
mod rpc_stats;
mod stats;
mod targets;
mod types;

pub use client::Client;
pub use file::{OpenDir, OpenFile};
pub use types::*;

/// Most layouts kept unless [`ClientOptions::layouts_max`] says otherwise: some megabytes for files of a few stripes.
pub const LAYOUTS_MAX: usize = 16384;
