//! `sheen lab advise`: the layout for a job. A model of the file system predicts the rate with each
//! candidate, and the one with the fewest stripes of the best is recommended.

mod advice;
mod apply;
pub mod args;
mod candidates;
mod choice;
mod measure;
mod plan;
mod present;
mod print;
mod show;

pub use show::main;
