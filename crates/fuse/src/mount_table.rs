//! The mount table of this process: finding a mount by its mount point.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

/// Table of the mounts visible to this process.
pub(crate) const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// Returns the connection's number under /sys/fs/fuse/connections: the minor number of the mount's
/// device. Reads the mount table, because the file system itself may not answer.
pub(crate) fn connection_number(mountpoint: &Path) -> Option<u32> {
    find_connection(&std::fs::read_to_string(MOUNT_TABLE).ok()?, mountpoint)
}

fn find_connection(mountinfo: &str, mountpoint: &Path) -> Option<u32> {
    mount_table_line(mountinfo, mountpoint)?.split(' ').nth(2)?.split_once(':')?.1.parse().ok()
}

/// Returns the mount table's line for the mount visible at a mount point.
pub(crate) fn mount_table_line<'a>(mountinfo: &'a str, mountpoint: &Path) -> Option<&'a str> {
    // Lines are: id parent major:minor root mountpoint …; a later mount on the same point hides the
    // earlier ones.
    mountinfo.lines().rev().find(|line| {
        let point = line.split(' ').nth(4).map(|point| unescape(point.as_bytes()));
        point.is_some_and(|point| OsStr::from_bytes(&point) == mountpoint.as_os_str())
    })
}

/// Decodes the mount table's octal escapes of space, tab, newline and backslash.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                out.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = tail;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_number_finds_the_topmost_mount() {
        let table = "\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
40 22 0:51 / /mnt/a\\040b rw,nosuid - fuse.sheen x rw
41 22 0:52 / /mnt/c rw,nosuid - fuse.sheen x rw
42 22 0:53 / /mnt/a\\040b rw,nosuid - fuse.sheen x rw
";
        assert_eq!(find_connection(table, Path::new("/mnt/a b")), Some(53));
        assert_eq!(find_connection(table, Path::new("/mnt/c")), Some(52));
        assert_eq!(find_connection(table, Path::new("/mnt")), None);
        assert_eq!(unescape(b"\\134\\011x\\9"), b"\\\tx\\9");
    }
}
