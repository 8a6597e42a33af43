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

pub use outcome::{Outcome, Phase};
pub use plan::Plan;
pub use show::{main, run_quietly};

/// Checks the options of a run.
///
/// # Errors
/// A message for the user.
pub fn plan(args: &args::MdtestArgs) -> Result<Plan, String> {
    Plan::new(args)
}
