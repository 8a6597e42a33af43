//! `sheen lab advise`: the layout for a job. Options describe the job, or the mounts have observed
//! it. A model of the file system predicts the rate with each candidate. Of the best ones, the one
//! with the fewest stripes is recommended. RPC parameters are recommended if data in flight limits
//! the job.

mod advice;
mod apply;
pub mod args;
mod candidates;
mod choice;
mod measure;
mod mount_rpcs;
mod observed;
mod plan;
mod present;
mod print;
mod rpcs;
mod show;
mod watch;

pub use show::main;
