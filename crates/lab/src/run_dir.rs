//! Directories of runs, with all files of their file systems, mounts and sockets. A run removes its
//! directory at its end, even after a failure. The next run removes the leftovers of a killed one.
//!
//! Invariant: nothing is removed but what a run has created. A run directory has a [`MARKER`].
//! The run locks it as long as it lives, and only its user can change it.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::{Signal, getuid},
};

use crate::{machine::unescape, output::named, program::Sheen, stop};

/// Locked while the run lives.
const MARKER: &str = ".sheen-run";
/// Time in which a process must end by itself and write back its dirty data.
const END_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// The directory of one run of a program.
#[derive(Debug)]
pub struct RunDir {
    dir: PathBuf,
    program: PathBuf,
    _marker: File,
}

impl RunDir {
    /// Creates `base/NAME.PID`, and removes what killed runs of this user have left in `base`.
    ///
    /// # Errors
    /// `base` is another user's, or others can write to it.
    pub fn claim(base: &Path, name: &str, program: &Path) -> io::Result<RunDir> {
        private(base)?;
        let base = base.canonicalize()?;
        let program = program
            .canonicalize()
            .map_err(|e| io::Error::other(format!("{}: {e}; `make build` builds it", program.display())))?;
        for entry in fs::read_dir(&base)?.flatten() {
            if let Some(_dead) = leftover(&entry.path()) {
                eprintln!("removing the leftovers of a killed run: {}", entry.path().display());
                clear(&entry.path(), &program);
            }
        }
        let dir = base.join(format!("{name}.{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&dir).map_err(|e| named("create", &dir, &e))?;
        let marker = mark(&dir).map_err(|e| named("lock", &dir, &e))?;
        Ok(RunDir { dir, program, _marker: marker })
    }

    /// Returns the path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl RunDir {
    /// Returns the path of the program.
    pub fn program(&self) -> &Path {
        &self.program
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        clear(&self.dir, &self.program);
    }
}

/// Creates a directory for this user alone, or checks that no other user can write to it.
fn private(base: &Path) -> io::Result<()> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(base);
    created.map_err(|e| named("create", base, &e))?;
    let meta = fs::metadata(base).map_err(|e| named("look at", base, &e))?;
    if meta.is_dir() && meta.uid() == getuid().as_raw() && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    let text = "must belong to you, and other users must not be able to write to it: name another directory";
    Err(io::Error::other(format!("{} {text}", base.display())))
}

/// Creates the marker. It has its name only once it is locked.
fn mark(dir: &Path) -> io::Result<File> {
    let new = dir.join(format!("{MARKER}.new"));
    let file = File::create_new(&new)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    fs::rename(new, dir.join(MARKER))?;
    Ok(file)
}

/// Returns the marker of a run that has been killed, locked. `None`: the run lives, or this is no
/// directory of a run of this user.
fn leftover(dir: &Path) -> Option<File> {
    let meta = fs::symlink_metadata(dir).ok().filter(|meta| meta.is_dir() && meta.uid() == getuid().as_raw())?;
    let marker = dir.join(MARKER);
    fs::symlink_metadata(&marker).ok().filter(|of| of.is_file() && of.uid() == meta.uid())?;
    let file = File::open(marker).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| file)
}

/// Stops all file systems in the directory of a run, and removes it.
fn clear(run_dir: &Path, program: &Path) {
    for entry in fs::read_dir(run_dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            take_down(&entry.path(), program);
        }
    }
    for entry in fs::read_dir(run_dir).into_iter().flatten().flatten() {
        // The marker: a directory is left only if something is still mounted in it.
        if entry.file_type().is_ok_and(|kind| kind.is_file()) && mounted_below(run_dir).is_empty() {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(run_dir);
}

/// Unmounts the mounts in the directory, ends its processes, and removes it.
pub fn take_down(dir: &Path, program: &Path) {
    let sheen = Sheen::new(program, dir.join("run"));
    let fs_dir = dir.join("fs");
    for at in mounted_below(dir) {
        // Without a wait for data that is about to be removed.
        if sheen.run(["umount", "--force", &at]).is_err() {
            detach(&at);
        }
    }
    // Clients write back their dirty data before the servers end.
    until(|| sheen.pids().len() <= 1);
    if fs_dir.exists() {
        let _ = sheen.run(["down", "--force", "--dir", &fs_dir.to_string_lossy()]);
    }
    if !until(|| sheen.pids().is_empty()) {
        for pid in sheen.pids() {
            eprintln!("process {pid} does not end; killing it");
            stop::kill(pid, Signal::KILL);
        }
    }
    // Also one that was still being mounted above.
    mounted_below(dir).iter().for_each(|at| detach(at));
    // If a file system is still mounted, remove_dir_all would delete its content.
    if mounted_below(dir).is_empty() {
        let _ = fs::remove_dir_all(dir);
    }
}

fn detach(at: &str) {
    let _ = Command::new("umount").args(["--lazy", at]).stderr(Stdio::null()).status();
}

/// Returns the mount points in a directory, the newest first.
fn mounted_below(dir: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let points = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)).map(unescape);
    points.filter(|at| Path::new(at).starts_with(dir)).collect()
}

/// Waits until a condition holds, for at most [`END_TIMEOUT`]. Returns whether it holds.
pub fn until(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + END_TIMEOUT;
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(POLL);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_directories_of_killed_runs_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        let program = std::env::current_exe().unwrap();
        for of_user in ["photos.2023", "overstripe.999999999"] {
            fs::create_dir_all(at(of_user).join("mine")).unwrap();
        }
        fs::create_dir_all(at("killed.999999999")).unwrap();
        drop(mark(&at("killed.999999999")).unwrap());
        symlink(at("photos.2023"), at("link.999999999")).unwrap();
        let first = RunDir::claim(base.path(), "first", &program).unwrap();
        let second = RunDir::claim(base.path(), "second", &program).unwrap();
        assert!(first.dir().join(MARKER).exists(), "a run that lives");
        for left in ["photos.2023/mine", "overstripe.999999999/mine", "link.999999999"] {
            assert!(at(left).exists(), "{left}");
        }
        assert!(!at("killed.999999999").exists());
        drop((first, second));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 3);
        fs::set_permissions(base.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let refused = RunDir::claim(base.path(), "first", &program).unwrap_err().to_string();
        assert!(refused.contains("must belong to you"), "{refused}");
    }
}
