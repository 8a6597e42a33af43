//! Options of `sheen lab reproduce`.

use clap::Parser;

use crate::output::OutputArgs;

/// Compare rates that papers state with models of their systems
#[derive(Parser, Clone, Debug)]
#[command(name = "sheen lab reproduce", args_override_self = true, max_term_width = 100)]
pub struct ReproduceArgs {
    /// Systems: flash, l300n, stallo, es400nvx2, titan, dresden [default: all]
    #[arg(value_name = "SYSTEM")]
    pub systems: Vec<String>,
    /// Also simulate the jobs of flash and l300n: the code of Sheen on their disks and links, with
    /// Lustre's growing locks. Takes minutes
    #[arg(long)]
    pub simulate: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}
