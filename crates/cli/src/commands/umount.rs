//! `sheen umount`: unmounts a file system.

use std::path::Path;

use crate::{
    args::UmountArgs,
    error::{Failure, Result},
    paths::mount_point,
};

/// Runs the command.
pub fn run(args: &UmountArgs) -> Result {
    let mountpoint = mount_point(&args.mountpoint)?;
    if !is_mounted(&mountpoint) {
        return Err(Failure::new(format!("no Sheen file system is mounted at {}", mountpoint.display()))
            .advise("`grep fuse.sheen /proc/mounts` lists the Sheen mounts of this host"));
    }
    unmount(&mountpoint, args.force)
}

/// Unmounts a Sheen file system. `force` detaches a mount that is in use. Does nothing if none is
/// mounted there.
pub fn unmount(mountpoint: &Path, force: bool) -> Result {
    if !is_mounted(mountpoint) {
        return Ok(());
    }
    match sheen_mount::unmount(mountpoint, force) {
        Ok(()) => Ok(()),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {
            let mut failure = format!("{} is in use", mountpoint.display());
            let users = users_of(mountpoint);
            if !users.is_empty() {
                failure += &format!(" by {}", users.join(", "));
            }
            Err(Failure::new(failure)
                .advise("stop the programs that use it, or repeat with --force to detach it anyway"))
        }
        Err(e) => Err(Failure::new(format!("cannot unmount {}: {e}", mountpoint.display()))),
    }
}

/// Returns whether a Sheen file system is mounted there.
pub fn is_mounted(mountpoint: &Path) -> bool {
    mounted_from(mountpoint).is_some()
}

/// Returns the source of the Sheen file system that is mounted there, from /proc/mounts: a system
/// call on the path itself could hang. Of several mounts the last one counts, because it covers the
/// others.
pub fn mounted_from(mountpoint: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let here = mounts.lines().rev().find_map(|line| {
        let mut words = line.split(' ');
        let (source, path, kind) = (words.next()?, words.next()?, words.next()?);
        (unescape(path) == *mountpoint.to_string_lossy()).then_some((source, kind))
    });
    here.filter(|(_, kind)| *kind == "fuse.sheen").map(|(source, _)| unescape(source))
}

/// /proc/mounts writes space, tab, newline and backslash as \ooo.
fn unescape(word: &str) -> String {
    word.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// Returns at most five programs whose working directory or open files are on the mount, as far as
/// this user may see them.
fn users_of(mountpoint: &Path) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let uses = |link: &Path| std::fs::read_link(link).is_ok_and(|to| to.starts_with(mountpoint));
    processes
        .flatten()
        .filter(|p| p.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()))
        .filter(|p| {
            uses(&p.path().join("cwd"))
                || std::fs::read_dir(p.path().join("fd")).is_ok_and(|fds| fds.flatten().any(|fd| uses(&fd.path())))
        })
        .take(5)
        .map(|p| {
            let name = std::fs::read_to_string(p.path().join("comm")).unwrap_or_default();
            format!("{} (pid {})", name.trim_end(), p.file_name().to_string_lossy())
        })
        .collect()
}
