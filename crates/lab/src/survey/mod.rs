//! `sheen lab survey`: the OSTs of this host without clients, network and locks, as Lustre's
//! obdfilter-survey measures them.
//!
//! The OSTs make the load themselves (`obdfilter.*.survey`). The tool starts the same load on all
//! of them at once, and waits for it.

pub mod args;
mod outcome;
mod plan;
mod print;
mod run;
mod show;

pub use show::main;
