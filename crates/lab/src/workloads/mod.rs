//! `sheen lab workloads`: IOR, a netflow analysis and BLAST with the striping patterns of
//! "Evaluating Dynamic File Striping For Lustre" (Tables III to V, Fig. 3 to 10).
//!
//! `--experiment` selects experiments by their names in the paper ([`selection`]). Results are
//! compared with the first and with the best static experiment.
//!
//! The tool sets up a file system of its own, or measures on mounts of the user's. Before each read
//! phase it empties the caches of the mounts. `lfs setstripe` sets a pattern, and the layout of the
//! full file is compared with it. Within a round the patterns take turns, and each round begins
//! with another one. Ratios are formed within a round.

pub mod args;
mod blast;
mod ior;
mod netflow;
mod outcome;
pub mod patterns;
mod print;
pub mod records;
pub mod selection;
mod setup;
mod show;
mod system;

pub use show::main;
