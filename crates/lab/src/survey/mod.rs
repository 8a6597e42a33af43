//! `sheen lab survey`: OSTs without locks, as Lustre's obdfilter-survey measures them.
//!
//! In all cases the load (`load.rs`) has the same objects, threads and records, on all
//! OSTs at once.
//!
//! * `disk`: the OSTs of this host make it themselves (`disk.rs`);
//! * `netdisk`: this process sends each record to the OST (`client.rs`, also for `network`);
//! * `network`: this process sends each record to the self-test of the OST's server.

pub mod args;
mod client;
mod disk;
mod load;
mod outcome;
mod plan;
mod print;
mod run;
mod show;
mod targets;

pub use show::main;
