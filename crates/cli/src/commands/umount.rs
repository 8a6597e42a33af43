//! `sheen umount`: unmounts a file system, and waits until the mount has left its servers. A server
//! that stops or is killed after that need not wait for this client, and loses none of its data.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use sheen_control::{GREETING_TIMEOUT, NoReply, Reply, Request, ask, sockets};
use sheen_lab::machine::unescape;

use crate::{
    args::UmountArgs,
    error::{Failure, Result},
    paths::mount_point,
};

/// Longest wait for a mount that leaves its servers. The mount itself waits 60 s until the OSTs
/// have its dirty data, and as long for their disks.
const LEAVE_WAIT: Duration = Duration::from_secs(150);
/// Time in which a mount begins to leave, unless it is mounted elsewhere as well.
const BEGIN_WAIT: Duration = Duration::from_secs(5);
/// Time limit for the answer of a busy process.
const PATIENCE: Duration = Duration::from_secs(3);
/// After this time the command says what it waits for.
const SILENT_WAIT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);
/// The parameter with the mount point of a mount. It is empty while the mount leaves its servers.
const MOUNT_POINT: &str = "llite.*.mount_point";
/// The kernel's directory of FUSE connections, each under its device number.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Runs the command.
pub fn run(args: &UmountArgs) -> Result {
    let mountpoint = mount_point(&args.mountpoint)?;
    if !is_mounted(&mountpoint) {
        return Err(Failure::new(format!("no Sheen file system is mounted at {}", mountpoint.display()))
            .advise("`grep fuse.sheen /proc/mounts` lists the Sheen mounts of this host"));
    }
    if args.force {
        return unmount(&mountpoint, true);
    }
    let (serving, connection) = (Serving::of(&mountpoint), connection_of(&mountpoint));
    unmount(&mountpoint, false)?;
    wait(&serving, connection.as_deref(), &mountpoint)
}

/// Waits until the process of a mount has left its servers. `serving`: the processes before it was
/// unmounted. There are more than one if it has covered other mounts.
fn wait(serving: &[Serving], connection: Option<&Path>, mountpoint: &Path) -> Result {
    let (start, mut reported) = (Instant::now(), false);
    loop {
        let states: Vec<State> = serving.iter().map(Serving::state).collect();
        if states.is_empty() || states.contains(&State::Left) {
            return Ok(());
        }
        let is_leaving = states.contains(&State::Leaving);
        // A bind mount, or another mount namespace.
        let is_elsewhere = connection.is_some_and(Path::exists) || start.elapsed() > BEGIN_WAIT;
        if !is_leaving && is_elsewhere {
            return Ok(());
        }
        if start.elapsed() > LEAVE_WAIT {
            return Err(Failure::new(format!(
                "{} is unmounted, but its process has not left the servers after {LEAVE_WAIT:?}",
                mountpoint.display()
            ))
            .advise("its last changes may be lost; look at its log, and at the servers"));
        }
        if start.elapsed() > SILENT_WAIT && !std::mem::replace(&mut reported, true) {
            eprintln!(
                "{} is unmounted; waiting until its last data is on the servers (Ctrl-C ends only the wait)",
                mountpoint.display()
            );
        }
        thread::sleep(POLL);
    }
}

/// Returns the kernel's directory of the FUSE connection that is mounted there. It exists until the
/// file system is mounted nowhere any more.
fn connection_of(mountpoint: &Path) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let here = mounts.lines().rev().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let (device, path) = (words.get(2)?, words.get(4)?);
        (unescape(path) == *mountpoint.to_string_lossy()).then(|| device.split_once(':').map(|(_, minor)| minor))?
    });
    here.map(|minor| Path::new(CONNECTIONS).join(minor)).filter(|connection| connection.exists())
}

/// The process of a mount.
struct Serving {
    socket: PathBuf,
    /// Name of its [`MOUNT_POINT`].
    name: String,
}

/// State of the process of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It serves the mount.
    Serving,
    /// It leaves its servers.
    Leaving,
    /// It has left.
    Left,
}

impl Serving {
    /// Returns the processes with this mount point.
    fn of(mountpoint: &Path) -> Vec<Serving> {
        let (mut all, mut silent) = (Vec::new(), Vec::new());
        for socket in sockets() {
            match Serving::at(&socket, mountpoint, GREETING_TIMEOUT) {
                Ok(found) => all.extend(found),
                Err(NoReply::Silent(_)) => silent.push(socket),
                Err(NoReply::Failed(_)) => {}
            }
        }
        // Only a process that is busy: others that are stopped must not delay each command.
        if all.is_empty() {
            all = silent.iter().flat_map(|socket| Serving::at(socket, mountpoint, PATIENCE)).flatten().collect();
        }
        all
    }

    fn at(socket: &Path, mountpoint: &Path, patience: Duration) -> std::result::Result<Vec<Serving>, NoReply> {
        let found = match ask(socket, &Request::Get { pattern: MOUNT_POINT.into() }, patience)? {
            Reply::Values(found) => found,
            _ => Vec::new(),
        };
        let here = found.into_iter().filter(|found| found.value == mountpoint.to_string_lossy());
        Ok(here.map(|found| Serving { socket: socket.to_owned(), name: found.name }).collect())
    }

    /// Returns its state. A process that is too busy to answer leaves.
    fn state(&self) -> State {
        match ask(&self.socket, &Request::Get { pattern: self.name.clone() }, GREETING_TIMEOUT) {
            Ok(Reply::Values(found)) => match found.first() {
                Some(found) if found.value.is_empty() => State::Leaving,
                Some(_) => State::Serving,
                None => State::Left,
            },
            Err(NoReply::Silent(_)) => State::Leaving,
            Ok(_) | Err(NoReply::Failed(_)) => State::Left,
        }
    }
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
