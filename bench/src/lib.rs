//! Library of the measuring programs.
//!
//! * File systems to measure: [`stage`] with one mount, [`cluster`] with several.
//! * Work on them: [`workers`], a [`tree`] of source files, and the workloads' parts [`netflow`]
//!   and [`patterns`].
//! * The `sheen` program as users call it: [`sheen`].
//! * Statistics and their presentation: [`allocs`], [`report`].
//! * From the lab (`crates/lab`): [`stats`], [`chart`], and [`stop`] for interruption by signals.
//!
//! The programs in `src/bin/` combine these modules. `docs/performance.md` has their results.

pub mod allocs;
pub mod cluster;
pub mod netflow;
pub mod patterns;
pub mod report;
pub mod sheen;
pub mod stage;
pub mod tree;
pub mod workers;

pub use sheen_lab::{chart, stats, stop};
