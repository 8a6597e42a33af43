//! Runs a job while the mounts of this host observe it.

use std::{
    ffi::OsString,
    io,
    os::fd::AsFd,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    advise::{
        args::AdviseArgs,
        observed::{NOT_YOURS, mounts},
    },
    output::{Format, named},
    stop,
};

/// Has the mounts forget what they have observed, and runs the job to its end. The job keeps the
/// terminal. If results go to standard output, its own output goes to standard error.
///
/// # Errors
/// A message for the user. A job that fails is a warning.
pub fn watch(args: &AdviseArgs) -> Result<(), String> {
    let Some((program, words)) = args.watch.split_first() else { return Ok(()) };
    clear(&args.path).map_err(|e| e.to_string())?;
    let status = run(program, words, args.output.format).map_err(|e| {
        let e = named("run", Path::new(program), &e);
        format!("--watch: {e}")
    })?;
    stop::check().map_err(|e| e.to_string())?;
    if !status.success() {
        eprintln!("WARNING: the job failed: {status}");
    }
    Ok(())
}

fn clear(path: &Path) -> io::Result<()> {
    let mounts = mounts(path, "earlier observations of its mounts remain, if it has any")?;
    if mounts.is_empty() {
        return Err(io::Error::other(NOT_YOURS));
    }
    mounts.iter().try_for_each(|(name, process)| process.set(name, "clear"))
}

fn run(program: &OsString, words: &[OsString], format: Option<Format>) -> io::Result<std::process::ExitStatus> {
    let mut command = Command::new(program);
    command.args(words);
    if matches!(format, Some(Format::Json | Format::Csv)) {
        command.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?));
    }
    command.status()
}
