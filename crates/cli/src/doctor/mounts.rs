//! The mount table of this process: on which file system a path lies, and whether access to it may
//! block. A process that waits for a dead network or FUSE mount cannot be killed, so the checks
//! look here first.

use std::{
    ffi::OsString,
    fs,
    path::{Component, Path, PathBuf},
};

use sheen_lab::machine::unescape;

/// File systems whose data other hosts or processes have, besides FUSE.
const REMOTE: [&str; 17] = [
    "9p",
    "afs",
    "autofs",
    "beegfs",
    "ceph",
    "cifs",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "ocfs2",
    "orangefs",
    "smb3",
    "smbfs",
    "virtiofs",
];
/// Types of FUSE mounts, besides those of named programs: `fuse.sheen`.
const FUSE: [&str; 2] = ["fuse", "fuseblk"];
const FUSE_OF_PROGRAM: &str = "fuse.";
/// Symbolic links in a path that are followed, as in the kernel.
const LINKS_MAX: usize = 40;

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Number of its device. Mounts of the same file system have the same one.
    pub device: String,
    /// The mount point.
    pub point: PathBuf,
    /// Its type.
    pub kind: String,
}

impl Mount {
    /// Whether access may block. The root file system answers, or this process would not run.
    fn may_block(&self) -> bool {
        is_remote(&self.kind) && self.point != Path::new("/")
    }
}

/// Returns whether other hosts or processes have the data of a file system of this type.
pub fn is_remote(kind: &str) -> bool {
    REMOTE.contains(&kind) || FUSE.contains(&kind) || kind.starts_with(FUSE_OF_PROGRAM)
}

/// Where a path leads.
#[derive(Debug)]
pub struct Place<'a> {
    /// The path without symbolic links, up to the first mount that may block.
    pub path: PathBuf,
    /// The mount that it lies on. `None`: the table does not list it.
    pub mount: Option<&'a Mount>,
}

impl Place<'_> {
    /// Whether access to it may block.
    pub fn may_block(&self) -> bool {
        self.mount.is_some_and(Mount::may_block)
    }
}

/// The mount table.
#[derive(Clone, Debug)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// Reads the table of this process.
    pub fn read() -> Mounts {
        Mounts::parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    /// Parses lines such as `36 35 8:1 / /mnt/a rw,nosuid shared:1 - ext4 /dev/sda1 rw`.
    fn parse(mountinfo: &str) -> Mounts {
        let mount = |line: &str| {
            let (mount, disk) = line.split_once(" - ")?;
            let mut words = mount.split(' ').skip(2);
            let (device, point) = (words.next()?.to_owned(), unescape(words.nth(1)?).into());
            Some(Mount { device, point, kind: disk.split(' ').next()?.to_owned() })
        };
        Mounts(mountinfo.lines().filter_map(mount).collect())
    }

    /// Returns where a path leads. Follows symbolic links, and accesses no mount that may block.
    pub fn place(&self, path: &Path) -> Place<'_> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (mut done, mut rest, mut links) = (PathBuf::from("/"), parts(&path), 0);
        while let Some(name) = rest.pop() {
            if name == ".." {
                done.pop();
                continue;
            }
            let here = done.join(name);
            let mount = self.holding(&here);
            if mount.is_some_and(Mount::may_block) {
                return Place { path: here.join(rest.into_iter().rev().collect::<PathBuf>()), mount };
            }
            match fs::read_link(&here) {
                Ok(to) if links < LINKS_MAX => {
                    links += 1;
                    rest.extend(parts(&to));
                    if to.is_absolute() {
                        done = "/".into();
                    }
                }
                // Not a symbolic link, or nothing at all.
                _ => done = here,
            }
        }
        let mount = self.holding(&done);
        Place { path: done, mount }
    }

    /// Returns the mount that a path without symbolic links lies on.
    fn holding(&self, path: &Path) -> Option<&Mount> {
        let inside = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        // The last of the longest mount points is on top.
        inside.max_by_key(|mount| mount.point.as_os_str().len())
    }
}

/// Returns the names in a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn mount_of_a_path_is_the_last_of_the_longest_mount_points() {
        let table = "\
22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
40 22 0:51 / /none/a\\040b rw,nosuid shared:2 - fuse.sheen a@tcp:/x rw,user_id=1000,group_id=0
41 22 0:52 / /none/home rw - autofs auto.home rw
42 22 0:53 / /none/home rw - nfs4 server:/home rw
43 22 0:54 / /none/connections rw - fusectl none rw
";
        let mounts = Mounts::parse(table);
        for (path, device, kind, may_block) in [
            ("/none", "8:1", "ext4", false),
            ("/none/a b/c", "0:51", "fuse.sheen", true),
            ("/none/a b c", "8:1", "ext4", false),
            ("/none/home/x/..", "0:53", "nfs4", true),
            ("/none/connections", "0:54", "fusectl", false),
        ] {
            let place = mounts.place(Path::new(path));
            let mount = place.mount.unwrap();
            assert_eq!((&mount.device[..], &mount.kind[..], place.may_block()), (device, kind, may_block), "{path}");
        }
        let root = Mounts::parse("22 1 0:40 / / rw - fuse.fuse-overlayfs fuse-overlayfs rw\n");
        assert!(!root.place(Path::new("/none")).may_block(), "it holds this program");
        assert!(Mounts::parse("").place(Path::new("/none")).mount.is_none());
    }

    #[test]
    fn symbolic_links_are_followed_up_to_a_mount_that_may_block() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir(base.join("real")).unwrap();
        symlink("real", base.join("local")).unwrap();
        symlink(base.join("dead/home"), base.join("absolute")).unwrap();
        symlink("real/../dead", base.join("relative")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        let dead = base.join("dead");
        let mounts =
            Mounts::parse(&format!("1 1 8:1 / / rw - ext4 a rw\n2 1 0:9 / {} rw - nfs b rw\n", dead.display()));
        for (path, leads_to, may_block) in [
            ("local/new", "real/new", false),
            ("real/../local", "real", false),
            ("absolute/a", "dead/home/a", true),
            ("relative/a/b", "dead/a/b", true),
            ("loop", "loop", false),
        ] {
            let place = mounts.place(&base.join(path));
            assert_eq!((place.path.clone(), place.may_block()), (base.join(leads_to), may_block), "{path}");
        }
    }
}
