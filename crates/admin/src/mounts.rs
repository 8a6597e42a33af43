//! The Sheen mounts of this host, and the ones that answer.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The type of Sheen's mounts in the mount table.
pub const MOUNT_TYPE: &str = "fuse.sheen";
/// Default timeout for the answer of a mount. After that the command goes on without the mount. A
/// mount answers at once, unless its process is stopped, hangs or waits for a server.
pub const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Mounts that are asked at the same time. More mounts are asked in groups of this size.
const CONCURRENT_PROBES_MAX: usize = 64;

/// A Sheen mount on this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The mount point.
    pub point: PathBuf,
    /// The file system's name.
    pub fsname: String,
    /// The device number that stat(2) returns for its files.
    pub device: u64,
}

/// Returns the Sheen mounts of this host without accessing them: a mount with a dead server would
/// hang.
pub fn mount_table() -> Vec<Mount> {
    mounts_of(&fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// Returns the Sheen mounts among the lines of `/proc/self/mountinfo`.
fn mounts_of(table: &[u8]) -> Vec<Mount> {
    table.split(|b| *b == b'\n').filter_map(mount_of).collect()
}

/// Parses `36 35 0:45 / /mnt/c1 rw,nosuid shared:1 - fuse.sheen 10.0.2.15@tcp:/sheen rw`.
fn mount_of(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let (device, point) = (fields.nth(2)?, fields.nth(1)?);
    let mut kind = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (kind.next()?, kind.next()?);
    let source = String::from_utf8(unescape(source)).ok().filter(|_| kind == MOUNT_TYPE.as_bytes())?;
    let (_, path) = source.split_once(":/")?;
    let fsname = path.split('/').next().unwrap_or(path).to_owned();
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    Some(Mount { point: OsString::from_vec(unescape(point)).into(), fsname, device })
}

/// Returns the mount that holds a path: the one whose mount point is the longest prefix of the
/// path.
pub fn holding<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts.iter().filter(|m| path.starts_with(&m.point)).max_by_key(|m| m.point.as_os_str().len())
}

/// Undoes the kernel's octal escapes, such as `\040` for a space.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                Some(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'))
            }
            _ => None,
        };
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &rest[4..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// Returns for each mount point whether its program `probe`, which asks the mount, ends within
/// `limit`.
///
/// A program of its own is necessary. A system call on a mount that does not answer may be
/// impossible to interrupt. A process with such a call does not end before the mount answers.
pub fn answering(points: &[PathBuf], limit: Duration, probe: impl Fn(&Path) -> Command) -> Vec<bool> {
    points.chunks(CONCURRENT_PROBES_MAX).flat_map(|points| answers_within(limit, points, &probe)).collect()
}

/// Asks all mount points at the same time. A program that has not ended in time is killed: the
/// kernel drops its request if the mount has not taken it yet.
fn answers_within(limit: Duration, points: &[PathBuf], probe: impl Fn(&Path) -> Command) -> Vec<bool> {
    let start = |(index, point): (usize, &PathBuf)| {
        let mut command = probe(point);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.ok()?;
        let output = child.stdout.take()?;
        Some(Probe { index, child, output })
    };
    let mut running: Vec<Probe> = points.iter().enumerate().filter_map(start).collect();
    let until = Instant::now() + limit;
    while !running.is_empty() && wait_for_one(&mut running, until.saturating_duration_since(Instant::now())) {}
    // Without a program the mount counts as answering: the caller then asks it without a limit.
    let mut answers = vec![true; points.len()];
    for mut silent in running {
        let _ = silent.child.kill();
        answers[silent.index] = false;
    }
    answers
}

/// A program that asks a mount. It prints nothing: its output ends when it ends.
struct Probe {
    index: usize,
    child: Child,
    output: ChildStdout,
}

/// Waits until a program has ended, and removes all that have. Returns false at the time limit.
fn wait_for_one(running: &mut Vec<Probe>, limit: Duration) -> bool {
    let mut ends: Vec<PollFd<'_>> = running.iter().map(|probe| PollFd::new(&probe.output, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    match poll(&mut ends, Some(&limit)) {
        Ok(0) => return false,
        Err(e) => return e == rustix::io::Errno::INTR,
        Ok(_) => {}
    }
    let mut ended = ends.iter().map(|end| !end.revents().is_empty()).collect::<Vec<_>>().into_iter();
    running.retain_mut(|probe| {
        let has_ended = ended.next() == Some(true);
        if has_ended {
            let _ = probe.child.wait();
        }
        !has_ended
    });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_finds_sheen_mounts_in_mount_table() {
        let table = b"23 1 0:21 / /tmp rw - tmpfs tmpfs rw\n\
            36 35 0:45 / /mnt/c1 rw,nosuid shared:1 - fuse.sheen 10.0.2.15@tcp:10.0.2.16@tcp:/sheen rw\n\
            1 2 0:3 / /home/a\\040b/m\\134 rw - fuse.sheen 0@lo:/one/sub rw\n\
            1 2 0:4 / /m rw shared:1 master:2 - fuse.sheen 0@lo:/one rw\n\
            1 2 0:5 / /mnt/other rw - fuse.other x rw\nbroken\n";
        let mount = |point: &str, fsname: &str, minor| Mount {
            point: point.into(),
            fsname: fsname.into(),
            device: rustix::fs::makedev(0, minor),
        };
        let wanted = [mount("/mnt/c1", "sheen", 45), mount("/home/a b/m\\", "one", 3), mount("/m", "one", 4)];
        assert_eq!(mounts_of(table), wanted);
    }

    #[test]
    fn innermost_mount_is_found_for_a_path() {
        let mount = |point: &str| Mount { point: point.into(), fsname: point.into(), device: 0 };
        let mounts = [mount("/mnt"), mount("/mnt/inner"), mount("/mnt2")];
        let of = |path: &str| holding(&mounts, Path::new(path)).map(|m| m.fsname.as_str());
        assert_eq!(
            (of("/mnt/x"), of("/mnt/inner/x"), of("/mnt2"), of("/mn")),
            (Some("/mnt"), Some("/mnt/inner"), Some("/mnt2"), None)
        );
    }

    #[test]
    fn answering_stops_waiting_for_a_silent_mount() {
        let points = ["/fine", "/stopped", "/broken"].map(PathBuf::from);
        let probe = |point: &Path| {
            let mut command = Command::new(if point.ends_with("stopped") { "sleep" } else { "false" });
            command.arg("600");
            command
        };
        assert_eq!(answering(&points[1..2], Duration::from_millis(100), probe), [false]);
        // Every mount that answers is counted, so only the silent one is waited for.
        assert_eq!(answering(&points, Duration::from_secs(3), probe), [true, false, true]);
        assert_eq!(answering(&points[..1], Duration::from_secs(60), probe), [true]);
        assert_eq!(answering(&points[..1], Duration::ZERO, |_| Command::new("/no/program")), [true]);
    }
}
