//! Arguments of `real`.

use std::path::PathBuf;

use clap::Parser;
use sheen_bench::report::Options;

/// IOR, mdtest, fio and a source tree on Sheen, against libfuse's passthrough
#[derive(Parser)]
pub struct Args {
    #[command(flatten)]
    pub options: Options,
    /// Path of IOR
    #[arg(long, default_value = "ior")]
    pub ior: PathBuf,
    /// Path of mdtest, which comes with IOR
    #[arg(long, default_value = "mdtest")]
    pub mdtest: PathBuf,
    /// Path of the program that starts MPI processes
    #[arg(long, default_value = "mpiexec")]
    pub mpiexec: PathBuf,
    /// Path of fio
    #[arg(long, default_value = "fio")]
    pub fio: PathBuf,
    /// Path of libfuse's example
    #[arg(long, default_value = "passthrough_hp")]
    pub passthrough: PathBuf,
    /// Transport of the kernel's requests, for Sheen and the passthrough: device or ring
    #[arg(long, default_value = "ring", value_parser = ["device", "ring"])]
    pub transport: String,
    /// Number of processes of IOR and mdtest
    #[arg(long, default_value_t = 4)]
    pub processes: usize,
    /// Smaller amounts, for a first impression
    #[arg(long)]
    pub quick: bool,
}
