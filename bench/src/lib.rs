//! Library of the measuring programs.
//!
//! * File systems to measure: [`stage`] with one mount, [`cluster`] with several (from the lab).
//! * Work on them: [`workers`], and a [`tree`] of source files.
//! * Events of the kernel: [`trace`].
//! * Statistics, their presentation and their records: [`allocs`], [`report`].
//! * From the lab (`crates/lab`): [`sheen`], the program as users call it; [`counters`],
//!   [`stats`], [`chart`], and [`stop`] for interruption by signals.
//!
//! The programs in `src/bin/` combine these modules. `docs/measurements/` has their records, and
//! `docs/performance.md` shows these.

pub mod allocs;
pub mod report;
pub mod stage;
pub mod trace;
pub mod tree;
pub mod workers;

pub use sheen_lab::{chart, counters, program as sheen, scratch as cluster, stats, stop};
