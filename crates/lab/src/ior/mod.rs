//! `sheen lab ior`: IOR with its options and its output. Tasks are processes of this program.

pub mod args;
mod json;
mod offsets;
mod outcome;
mod plan;
mod prediction;
mod print;
mod run;
mod show;
pub mod step;
pub mod task;

pub use outcome::{Outcome, Phase};
pub use plan::{Plan, dir_of};
pub use show::{main, run_quietly, run_with_layout};

/// Checks the options of a run.
///
/// # Errors
/// A message for the user.
pub fn plan(args: &args::IorArgs) -> Result<Plan, String> {
    Plan::new(args)
}
