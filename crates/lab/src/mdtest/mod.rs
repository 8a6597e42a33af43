//! `sheen lab mdtest`: mdtest with its options and its output. Tasks are processes of this program.

pub mod args;
mod outcome;
mod phase;
mod plan;
mod print;
mod run;
mod show;
pub mod step;
pub mod task;
mod tree;

pub use show::main;
