//! `sheen lab io500`: the twelve phases of the IO500 with its parameters and its score.
//!
//! The phases are runs of [`crate::ior`] and [`crate::mdtest`], and a parallel [`find`]. All files
//! are in a directory of the run, which is removed at the end, also after an error.

pub mod args;
mod find;
pub mod outcome;
pub mod phase;
mod plan;
mod print;
mod run;
mod show;

pub use show::main;
