//! The Sheen mounts of this host, and the ones that answer.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

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

/// Returns for each mount point whether `ask` returns within `limit`.
pub fn answering(points: &[PathBuf], limit: Duration, ask: impl Fn(&Path) + Copy + Send + 'static) -> Vec<bool> {
    points.chunks(CONCURRENT_PROBES_MAX).flat_map(|points| answers_within(limit, points, ask)).collect()
}

/// Returns for each path whether `ask` returns within `limit`. Asks all paths at the same time.
///
/// The thread of a path that does not answer is abandoned, because a request to a mount cannot be
/// cancelled. If the mount has not read the request, the kernel drops it when this program ends.
fn answers_within(limit: Duration, paths: &[PathBuf], ask: impl Fn(&Path) + Copy + Send + 'static) -> Vec<bool> {
    let (tell, hear) = mpsc::channel();
    let mut answers = vec![false; paths.len()];
    for (i, path) in paths.iter().cloned().enumerate() {
        let tell = tell.clone();
        let ask_one = move || {
            ask(&path);
            // After the limit there is no receiver any more, which is fine.
            let _ = tell.send(i);
        };
        // Without a thread the path counts as answering: the caller then asks it without a limit.
        answers[i] = thread::Builder::new().spawn(ask_one).is_err();
    }
    drop(tell);
    let until = Instant::now() + limit;
    while let Ok(i) = hear.recv_timeout(until.saturating_duration_since(Instant::now())) {
        answers[i] = true;
    }
    answers
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
    fn answers_within_stops_waiting_for_silent_path() {
        let paths = ["/fine", "/stopped", "/broken"].map(PathBuf::from);
        let ask = |path: &Path| {
            while path.ends_with("stopped") {
                thread::park();
            }
        };
        assert_eq!(answers_within(Duration::from_millis(100), &paths[1..2], ask), [false]);
        // Every path that answers is counted, so only the silent path waits until the limit.
        assert_eq!(answers_within(Duration::from_secs(3), &paths, ask), [true, false, true]);
        assert_eq!(answers_within(Duration::from_secs(60), &paths[..1], ask), [true]);
    }
}
