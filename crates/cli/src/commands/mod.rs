//! The commands of `sheen`, one per file.

pub mod completions;
pub mod doctor;
pub mod down;
pub mod fsck;
pub mod key;
pub mod man;
pub mod metrics;
pub mod mount;
pub mod mount_helper;
pub mod remount;
pub mod serve;
pub mod status;
pub mod top;
pub mod umount;
pub mod up;

use std::ffi::OsString;

use clap::Parser;

use crate::{
    args::{Cli, Command},
    error::{Failure, Result},
};

/// Parses the arguments and runs the command. Returns the exit code: 0 success, 1 failure, 2
/// invalid arguments; for `sheen fsck` and `sheen doctor` see there.
pub fn main(args: Vec<OsString>) -> i32 {
    let words = args.get(1..).unwrap_or_default().to_vec();
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return e.exit_code();
        }
    };
    run(cli.command, &words)
}

/// Prints a failure and returns the exit code.
pub fn finish(result: Result) -> i32 {
    match result {
        Ok(()) => 0,
        Err(failure) => {
            eprintln!("sheen: {failure}");
            1
        }
    }
}

fn run(command: Command, words: &[OsString]) -> i32 {
    let result = match command {
        Command::Up(args) => up::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Mgs(args) => serve::mgs(&args),
        Command::Mds(args) => serve::mds(&args),
        Command::Oss(args) => serve::oss(&args),
        Command::Mount(args) => mount::run(&args, words),
        Command::Umount(args) => umount::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Completions { shell } => {
            completions::run(shell);
            Ok(())
        }
        Command::Man { dir } => man::run(&dir),
        Command::Fsck(args) => return fsck::run(args),
        Command::Doctor(args) => return doctor::run(&args),
        // main() passes these to the tools before clap parses them.
        Command::Lfs { .. } | Command::Lctl { .. } | Command::Lab { .. } => {
            Err(Failure::new("call it as `sheen lfs …`, `sheen lctl …` or `sheen lab …`"))
        }
    };
    finish(result)
}
