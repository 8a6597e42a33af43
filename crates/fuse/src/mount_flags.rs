//! Mount flags that the kernel enforces: read-only, nosuid, noatime and similar.
//!
//! They are passed to mount(2), changed by a remount, and read back from the mount table. The
//! kernel does not notify a file system of a remount. A file system that evaluates a flag itself,
//! such as noatime, reads it through [`FlagsWatch`].

use std::{
    fs::File,
    io::{self, Read, Seek},
    path::Path,
};

use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    mount::MountFlags as Bits,
};

use crate::mount_table::{MOUNT_TABLE, mount_table_line};

/// Flags of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountFlags {
    /// The kernel refuses changes.
    pub read_only: bool,
    /// Set-user-id bits are honoured. Only root can mount with this.
    pub suid: bool,
    /// Device files work. Only root can mount with this.
    pub dev: bool,
    /// Programs can be executed.
    pub exec: bool,
    /// Reading does not update access times.
    pub noatime: bool,
    /// Reading a directory does not update its access time.
    pub nodiratime: bool,
    /// Symbolic links are followed.
    pub symfollow: bool,
}

impl Default for MountFlags {
    /// Returns fusermount3's defaults: read-write, nosuid, nodev.
    fn default() -> MountFlags {
        MountFlags {
            read_only: false,
            suid: false,
            dev: false,
            exec: true,
            noatime: false,
            nodiratime: false,
            symfollow: true,
        }
    }
}

impl MountFlags {
    /// Returns the flags of the mount at a mount point, or `None` if nothing is mounted there. The
    /// path must contain no symbolic links. Sends no request to the file system.
    pub fn of(mountpoint: &Path) -> io::Result<Option<MountFlags>> {
        let table = std::fs::read(MOUNT_TABLE)?;
        Ok(mount_table_line(&String::from_utf8_lossy(&table), mountpoint).and_then(flags_of_line))
    }

    /// Returns the flags for mount(2).
    pub(crate) fn bits(self) -> Bits {
        let mut bits = Bits::empty();
        bits.set(Bits::RDONLY, self.read_only);
        bits.set(Bits::NOSUID, !self.suid);
        bits.set(Bits::NODEV, !self.dev);
        bits.set(Bits::NOEXEC, !self.exec);
        bits.set(Bits::NOATIME, self.noatime);
        // A remount without any flag for access times would leave the old ones in force.
        bits.set(Bits::RELATIME, !self.noatime);
        bits.set(Bits::NODIRATIME, self.nodiratime);
        bits.set(Bits::NOSYMFOLLOW, !self.symfollow);
        bits
    }

    /// Returns the options for fusermount3, which does not know nodiratime. (Sheen never updates
    /// the access time of a directory anyway.)
    pub(crate) fn words(self) -> impl Iterator<Item = &'static str> {
        let words = [
            (self.read_only, "ro"),
            (self.suid, "suid"),
            (self.dev, "dev"),
            (!self.exec, "noexec"),
            (self.noatime, "noatime"),
            (!self.symfollow, "nosymfollow"),
        ];
        words.into_iter().filter_map(|(on, word)| on.then_some(word))
    }
}

/// Parses the flags in a line of the mount table. Read-only is set if the mount or its superblock
/// is read-only.
fn flags_of_line(line: &str) -> Option<MountFlags> {
    let (mount, superblock) = line.split_once(" - ")?;
    let (mount, superblock) = (mount.split(' ').nth(5)?, superblock.split(' ').nth(2)?);
    let has = |words: &str, wanted: &str| words.split(',').any(|word| word == wanted);
    Some(MountFlags {
        read_only: has(mount, "ro") || has(superblock, "ro"),
        suid: !has(mount, "nosuid"),
        dev: !has(mount, "nodev"),
        exec: !has(mount, "noexec"),
        noatime: has(mount, "noatime"),
        nodiratime: has(mount, "nodiratime"),
        symfollow: !has(mount, "nosymfollow"),
    })
}

/// Changes the flags of the mount at a mount point, as mount(8)'s `remount` does. With `bind`, only
/// this mount point changes, not the file system that bind mounts share.
///
/// # Errors
/// EPERM unless root. EBUSY if the mount shall become read-only while files are open for writing.
pub fn remount(mountpoint: &Path, flags: MountFlags, bind: bool) -> io::Result<()> {
    let mut bits = flags.bits();
    bits.set(Bits::BIND, bind);
    Ok(rustix::mount::mount_remount(mountpoint, bits, c"")?)
}

/// The current flags of a session's mount. If the session's file system is mounted at several
/// points, the first line of the mount table counts.
#[derive(Debug)]
pub struct FlagsWatch(Mutex<State>);

#[derive(Debug)]
struct State {
    /// The mount table, on which poll(2) reports changes. `None` if it cannot be
    /// read.
    table: Option<File>,
    connection: u32,
    flags: MountFlags,
}

impl FlagsWatch {
    /// Watches the mount with this connection number. `flags`: the flags at mount time, which apply
    /// as long as the mount table has no line for the mount.
    pub(crate) fn new(connection: Option<u32>, flags: MountFlags) -> FlagsWatch {
        let table = connection.and_then(|_| File::open(MOUNT_TABLE).ok());
        let mut state = State { table, connection: connection.unwrap_or_default(), flags };
        state.read();
        FlagsWatch(Mutex::new(state))
    }

    /// Returns the flags. Costs one system call, and a read of the mount table if it has changed.
    pub fn now(&self) -> MountFlags {
        let mut state = self.0.lock();
        if state.has_changed() {
            state.read();
        }
        state.flags
    }
}

impl State {
    fn has_changed(&self) -> bool {
        let Some(table) = &self.table else { return false };
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut [PollFd::new(table, PollFlags::PRI)], Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    fn read(&mut self) {
        let Some(table) = &mut self.table else { return };
        let mut text = Vec::new();
        if let Err(e) = table.rewind().and_then(|()| table.read_to_end(&mut text)) {
            tracing::warn!("cannot read {MOUNT_TABLE}: {e}; continuing with the mount flags read before");
            return;
        }
        let device = format!("0:{}", self.connection);
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find(|line| line.split(' ').nth(2) == Some(&*device));
        // No line: the file system is unmounted. Files that are still open use the last flags.
        self.flags = line.and_then(flags_of_line).unwrap_or(self.flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_line_is_parsed_into_flags() {
        let line = |mount: &str, superblock: &str| {
            flags_of_line(&format!(
                "40 22 0:51 / /mnt/a\\040b {mount} shared:3 master:1 - fuse.sheen n@tcp:/fs {superblock}"
            ))
        };
        let usual = MountFlags::default();
        assert_eq!(line("rw,nosuid,nodev,relatime", "rw,user_id=0"), Some(usual));
        assert_eq!(line("rw,relatime", "rw"), Some(MountFlags { suid: true, dev: true, ..usual }));
        let read_only = Some(MountFlags { read_only: true, ..usual });
        assert_eq!(line("ro,nosuid,nodev,relatime", "rw"), read_only);
        assert_eq!(line("rw,nosuid,nodev,relatime", "ro,user_id=0"), read_only);
        let all = MountFlags { exec: false, noatime: true, nodiratime: true, symfollow: false, ..usual };
        assert_eq!(line("rw,nosuid,nodev,noexec,noatime,nodiratime,nosymfollow", "rw"), Some(all));
        assert_eq!(flags_of_line("broken"), None);
    }

    #[test]
    fn mount_flags_become_kernel_bits_and_fusermount_words() {
        let usual = MountFlags::default();
        assert_eq!(usual.bits(), Bits::NOSUID | Bits::NODEV | Bits::RELATIME);
        assert_eq!(usual.words().count(), 0);
        let other = MountFlags {
            read_only: true,
            suid: true,
            dev: true,
            exec: false,
            noatime: true,
            nodiratime: true,
            symfollow: false,
        };
        assert_eq!(other.bits(), Bits::RDONLY | Bits::NOEXEC | Bits::NOATIME | Bits::NODIRATIME | Bits::NOSYMFOLLOW);
        assert_eq!(other.words().collect::<Vec<_>>(), ["ro", "suid", "dev", "noexec", "noatime", "nosymfollow"]);
    }

    #[test]
    fn mount_flags_stay_without_a_mount_table_line() {
        let flags = MountFlags { noatime: true, ..MountFlags::default() };
        assert_eq!(FlagsWatch::new(None, flags).now(), flags);
        // No mount has this number.
        assert_eq!(FlagsWatch::new(Some(u32::MAX), flags).now(), flags);
        assert_eq!(MountFlags::of(Path::new("/proc/self/nothing")).unwrap(), None);
    }
}
