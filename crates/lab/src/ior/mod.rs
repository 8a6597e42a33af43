//! `sheen lab ior`: IOR with its options and its output. Tasks are processes of this program.

pub mod args;
mod json;
mod offsets;
mod outcome;
mod plan;
mod print;
mod run;
mod show;
pub mod step;
pub mod task;

pub use show::main;
