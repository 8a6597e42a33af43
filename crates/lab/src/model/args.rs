//! Options of `sheen lab model`.

use std::path::PathBuf;

use clap::Parser;

use crate::{output::OutputArgs, predict::system::pool_name, size};

const EXAMPLES: &str = "\
Examples:
  sheen lab model --calibrate ~/sheen                measure, and store a model of this file system
  sheen lab ior -N 4 -w -e -t 1m -b 64m -o ~/sheen/f  predicted and measured
  sheen lab model ~/sheen --report model.html        how well the model has predicted such runs
  sheen lab model --calibrate ~/sheen --pool flash   a model of the OSTs of a pool

The model is for this host and this file system. It is stored in ~/.local/state/sheen/lab.";

/// Calibrate a model of a file system, and show how well it predicts
#[derive(Parser, Clone, Debug)]
#[command(name = "sheen lab model", after_help = EXAMPLES, args_override_self = true, max_term_width = 100)]
pub struct ModelArgs {
    /// A directory of the file system
    #[arg(value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Measure the file system, and store a model of it
    #[arg(long)]
    pub calibrate: bool,
    /// A model of this pool of OSTs alone [default: of all OSTs]
    #[arg(long, value_name = "POOL", value_parser = pool_name)]
    pub pool: Option<String>,
    /// With --calibrate: number of mounts that stand for nodes. The tool mounts the file system so
    /// often
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: u32,
    /// With --calibrate: bytes of each run, or a transfer of each task if that is more. Runs with
    /// small transfers take a quarter of it
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = size::parse)]
    pub size: u64,
    /// With --calibrate: repetitions of each run; the median counts
    #[arg(short = 'i', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    #[command(flatten)]
    pub output: OutputArgs,
}
