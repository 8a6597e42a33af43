//! The Sheen mounts of this host, and the ones that answer.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// The type of Sheen's mounts in `/proc/mounts`.
const MOUNT_TYPE: &str = "fuse.sheen";
/// Default timeout for the answer of a mount. After that the command goes on without the mount. A mount
/// answers at once, unless its process is stopped, hangs or waits for a server.
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
}

/// Returns the Sheen mounts among the lines of `/proc/mounts`.
pub fn mounts_of(table: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mut fields = line.split(|b| *b == b' ');
        let (source, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
        let is_ours = kind == MOUNT_TYPE.as_bytes();
        is_ours
            .then(|| Mount { point: OsString::from_vec(unescape(point)).into(), fsname: fsname_of(&unescape(source)) })
    };
    table.split(|b| *b == b'\n').filter_map(mount).collect()
}

/// Returns `sheen` for `10.0.2.15@tcp:/sheen`, or an empty name if the source is not Sheen's.
fn fsname_of(source: &[u8]) -> String {
    let source = String::from_utf8_lossy(source);
    let path = source.split_once(":/").map_or("", |(_, path)| path);
    path.split('/').next().unwrap_or_default().to_owned()
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
        let table = b"tmpfs /tmp tmpfs rw 0 0\n\
            10.0.2.15@tcp:/sheen /mnt/c1 fuse.sheen rw,nosuid 0 0\n\
            0@lo:/x /home/a\\040b/m\\134 fuse.sheen rw 0 0\n\
            x /mnt/other fuse.other rw 0 0\nbroken\n";
        let mount = |point: &str, fsname: &str| Mount { point: point.into(), fsname: fsname.into() };
        assert_eq!(mounts_of(table), [mount("/mnt/c1", "sheen"), mount("/home/a b/m\\", "x")]);
        assert_eq!(fsname_of(b"a@tcp:b:1@tcp:/one/sub"), "one");
        assert_eq!(fsname_of(b"other"), "");
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
