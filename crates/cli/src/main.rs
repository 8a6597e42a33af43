//! The `sheen` binary: it runs servers, mounts file systems, and contains the tools `lfs`,
//! `lctl` and `lab`.
//!
//! Called as `lfs`, `lctl`, `mount.sheen` or `mount.fuse.sheen`, it becomes that tool. Each other
//! command is a file under `commands/`. [`host`] assembles the services and mounts of a process.
#![allow(
    clippy::disallowed_methods,
    reason = "the process's outer shell: it starts and stops processes before any Rt exists"
)]

mod accounts;
mod announce;
mod args;
mod audit;
mod command_lines;
mod commands;
mod config;
mod daemon;
mod dir_kind;
mod doctor;
mod error;
mod host;
mod lctl;
mod lfs;
mod log_fields;
mod lost_targets;
mod metrics;
mod mount_options;
mod mount_point_check;
mod munge;
mod oss_slots;
mod paths;
mod print;
mod run_file;
mod time_limits;
mod top;
mod trust;

use std::{ffi::OsString, path::Path};

fn main() {
    let args: Vec<OsString> = std::env::args_os().collect();
    let code = match called_as(&args) {
        Some("lfs") => lfs::main(args),
        Some("lctl") => lctl::main(args),
        Some("mount.fuse.sheen" | "mount.sheen") => commands::mount_helper::main(args),
        _ => match args.get(1).and_then(|a| a.to_str()) {
            Some("lfs") => lfs::main(args[1..].to_vec()),
            Some("lctl") => lctl::main(args[1..].to_vec()),
            Some("lab") => {
                host::raise_open_files();
                sheen_lab::main(&args[1..], trust::of_tools)
            }
            _ => commands::main(args),
        },
    };
    std::process::exit(code);
}

/// Returns the program's name without its directory.
fn called_as(args: &[OsString]) -> Option<&str> {
    Path::new(args.first()?).file_name()?.to_str()
}
