//! Library of the measuring programs.
//!
//! * File systems to measure: [`stage`] with one mount, [`cluster`] with several.
//! * Work on them: [`workers`], a [`tree`] of source files, and the workloads' parts [`netflow`]
//!   and [`patterns`].
//! * The `sheen` program as users call it: [`sheen`].
//! * Statistics ([`stats`], [`allocs`]) and their presentation ([`report`], [`chart`]).
//! * Interruption by signals: [`stop`].
//!
//! The programs in `src/bin/` combine these modules. `docs/performance.md` has their results.

pub mod allocs;
pub mod chart;
pub mod cluster;
pub mod netflow;
pub mod patterns;
pub mod report;
pub mod sheen;
pub mod stage;
pub mod stats;
pub mod stop;
pub mod tree;
pub mod workers;
