//! A tree of source files as work: an archive of what cargo has downloaded on this machine, and
//! commands timed on it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// Writes an archive of `count` source files into `base`, and returns its path. The caller removes
/// it.
///
/// # Errors
/// Also if cargo has downloaded less than 5/6 of that many files.
pub fn archive(base: &Path, count: usize) -> io::Result<PathBuf> {
    let (archive, list) = (base.join("tree.tar"), base.join("tree.list"));
    let cargo =
        std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap_or_default()));
    let script = format!(
        "cd '{cargo}/registry/src' && find . -type f | LC_ALL=C sort | head -{count} > '{l}' && tar cf '{a}' -T '{l}'",
        l = list.display(),
        a = archive.display()
    );
    time(Command::new("sh").args(["-c", &script]))?;
    let files = fs::read_to_string(&list)?.lines().count();
    fs::remove_file(list)?;
    if files < count / 6 * 5 {
        return Err(io::Error::other(format!("only {files} files to unpack; at least {} are needed", count / 6 * 5)));
    }
    Ok(archive)
}

/// Runs a command and returns its duration in seconds.
pub fn time(command: &mut Command) -> io::Result<f64> {
    let start = Instant::now();
    let status = command.status()?;
    if status.success() {
        Ok(start.elapsed().as_secs_f64())
    } else {
        Err(io::Error::other(format!("{command:?}: {status}")))
    }
}
