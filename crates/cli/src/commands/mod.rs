//! One file a command.

pub mod completions;
pub mod down;
pub mod mount;
pub mod mount_helper;
pub mod remount;
pub mod serve;
pub mod status;
pub mod umount;
pub mod up;

use std::ffi::OsString;

use clap::Parser;

use crate::{
    args::{Cli, Command},
    error::{Failure, Result},
};

/// Parses and runs; returns the exit code (0 done, 1 failed, 2 not understood).
pub fn main(args: Vec<OsString>) -> i32 {
    let words = args.get(1..).unwrap_or_default().to_vec();
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return e.exit_code();
        }
    };
    finish(run(cli.command, &words))
}

/// Prints a failure and turns it into an exit code.
pub fn finish(result: Result) -> i32 {
    match result {
        Ok(()) => 0,
        Err(failure) => {
            eprintln!("sheen: {failure}");
            1
        }
    }
}

fn run(command: Command, words: &[OsString]) -> Result {
    match command {
        Command::Up(args) => up::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Mgs(args) => serve::mgs(&args),
        Command::Mds(args) => serve::mds(&args),
        Command::Oss(args) => serve::oss(&args),
        Command::Mount(args) => mount::run(&args, words),
        Command::Umount(args) => umount::run(&args),
        Command::Completions { shell } => {
            completions::run(shell);
            Ok(())
        }
        // main() hands these to the tools before clap sees them.
        Command::Lfs { .. } | Command::Lctl { .. } => Err(Failure::new("call this as `sheen lfs …` or `sheen lctl …`")),
    }
}
