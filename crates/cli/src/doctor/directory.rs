//! The directory of a file system or server: its disks, and whether it is open to other users.

use std::path::PathBuf;

use super::{finding::Finding, mounts::is_remote};

/// Share of free space or inodes below which a disk is almost full.
const FREE_MIN: f64 = 0.05;
/// File systems in memory.
const IN_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];
/// File systems of a container's files, which are removed with it.
const OF_CONTAINER: [&str; 2] = ["overlay", "fuse.fuse-overlayfs"];
/// File systems of the kernel, which store no files.
const PSEUDO: [&str; 18] = [
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "sysfs",
    "tracefs",
];

/// The directory.
#[derive(Clone, Debug)]
pub struct Directory {
    /// The file systems of the directory and of the targets in it, each once.
    pub disks: Vec<Disk>,
    /// Number of targets whose permission bits are known.
    pub targets: usize,
    /// Those that are open to other users, with their permission bits.
    pub exposed: Vec<(PathBuf, u32)>,
}

/// A file system.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The first of the directories on it. It may not exist yet.
    pub path: PathBuf,
    /// Its type, as in /proc/mounts. `None`: not known.
    pub kind: Option<String>,
    /// Whether access to it may block. Then the following facts are not known.
    pub may_block: bool,
    /// Whether it is mounted read-only.
    pub is_read_only: bool,
    /// Free part of its space.
    pub free_space: Option<f64>,
    /// Free part of its inodes, if it has a limit.
    pub free_inodes: Option<f64>,
    /// Whether files can have extended attributes of users. `None`: not known.
    pub has_xattrs: Option<bool>,
}

/// Checks the directory.
pub fn checks(directory: &Directory) -> Vec<Finding> {
    let of_disk = |disk: &Disk| [Some(kind(disk)), space(disk), xattrs(disk), read_only(disk)];
    let mut found: Vec<Finding> = directory.disks.iter().flat_map(of_disk).flatten().collect();
    if directory.targets > 0 && directory.exposed.is_empty() {
        found.push(Finding::ok("directory_mode", "the directories of targets are closed to other users"));
    }
    found.extend(directory.exposed.iter().map(|(path, mode)| {
        let path = path.display();
        Finding::warning(
            "directory_mode",
            format!("{path} (mode {:04o}) is open to other users, and holds the data of all users", mode & 0o7777),
            format!("chmod 700 {path}"),
        )
    }));
    found
}

fn kind(disk: &Disk) -> Finding {
    let (check, path) = ("directory_type", disk.path.display());
    let Some(kind) = disk.kind.as_deref() else {
        let text = format!("the type of the file system of {path} is not known: /proc/self/mountinfo lacks it");
        return Finding::hint(check, text, format!("`stat -f {path}` may show it"));
    };
    if IN_MEMORY.contains(&kind) {
        let text = format!("{path} is in memory ({kind}): all data is lost when the machine stops");
        Finding::warning(check, text, "for data that is needed later: sheen up --dir DIR on a disk")
    } else if OF_CONTAINER.contains(&kind) {
        Finding::hint(
            check,
            format!("{path} belongs to a container ({kind}): all data is lost when the container is removed"),
            "use a volume of the container: --volume /srv/sheen:/srv/sheen, and --dir /srv/sheen",
        )
    } else if is_remote(kind) {
        let unchecked = if disk.may_block { "; its state was not checked" } else { "" };
        Finding::warning(
            check,
            format!("{path} is not on a local disk ({kind}): Sheen waits for another host or process{unchecked}"),
            "use a local disk, except for failover (docs/failover.md); there mount NFS with local_lock=flock",
        )
    } else if PSEUDO.contains(&kind) {
        let text = format!("servers cannot run in {path}: {kind} stores no files");
        Finding::error(check, text, "use a directory on a disk")
    } else {
        Finding::ok(check, format!("{path} is on a file system of type {kind}"))
    }
}

fn space(disk: &Disk) -> Option<Finding> {
    let (check, path) = ("directory_space", disk.path.display());
    let is_low = |free: f64| free < FREE_MIN;
    let what = match (is_low(disk.free_space?), disk.free_inodes.is_some_and(is_low)) {
        (false, false) => return Some(Finding::ok(check, format!("the disk of {path} has free space and inodes"))),
        (true, _) => "space",
        (false, true) => "inodes",
    };
    Some(Finding::warning(
        check,
        format!("less than {:.0} % of the {what} of the disk of {path} is free", FREE_MIN * 100.0),
        format!("add OSTs on another disk, or remove files; `df -h {path}` and `df -i {path}` show the use"),
    ))
}

fn xattrs(disk: &Disk) -> Option<Finding> {
    let (check, path) = ("directory_xattrs", disk.path.display());
    Some(match disk.has_xattrs? {
        true => Finding::ok(check, format!("the disk of {path} stores extended attributes")),
        false => Finding::hint(
            check,
            format!("the disk of {path} has no extended attributes: OSTs store no checksums there"),
            "use ext4, XFS, Btrfs or ZFS, or tmpfs of Linux 6.6 or later",
        ),
    })
}

fn read_only(disk: &Disk) -> Option<Finding> {
    let path = disk.path.display();
    disk.is_read_only.then(|| {
        Finding::error(
            "directory_read_only",
            format!("servers cannot run in {path}: its file system is mounted read-only"),
            "`dmesg` shows whether the kernel found errors: then check the disk with its fsck before it is mounted \
             again; else use another directory",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Severity, *};

    fn good_disk() -> Disk {
        Disk {
            path: "/srv/fs".into(),
            kind: Some("ext4".into()),
            may_block: false,
            is_read_only: false,
            free_space: Some(0.5),
            free_inodes: None,
            has_xattrs: Some(true),
        }
    }

    fn with(disk: Disk) -> Directory {
        Directory { disks: vec![disk], targets: 1, exposed: Vec::new() }
    }

    #[test]
    fn private_directory_on_a_local_disk_has_only_ok_findings() {
        let all = checks(&with(good_disk()));
        assert!(all.iter().all(|f| f.severity == Severity::Ok), "{all:?}");
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn facts_that_are_not_known_give_no_findings() {
        let disk = Disk { free_space: None, has_xattrs: None, ..good_disk() };
        let all = checks(&Directory { targets: 0, ..with(disk) });
        assert_eq!(all.iter().map(|f| f.check).collect::<Vec<_>>(), ["directory_type"]);
    }

    #[test]
    fn each_fault_of_a_disk_has_its_severity() {
        let on = |kind: &str| Disk { kind: Some(kind.into()), ..good_disk() };
        for (disk, check, severity) in [
            (on("tmpfs"), "directory_type", Severity::Warning),
            (on("nfs4"), "directory_type", Severity::Warning),
            (on("fuse.sheen"), "directory_type", Severity::Warning),
            (on("overlay"), "directory_type", Severity::Hint),
            (on("sysfs"), "directory_type", Severity::Error),
            (Disk { kind: None, ..good_disk() }, "directory_type", Severity::Hint),
            (Disk { free_space: Some(0.04), ..good_disk() }, "directory_space", Severity::Warning),
            (Disk { free_inodes: Some(0.01), ..good_disk() }, "directory_space", Severity::Warning),
            (Disk { has_xattrs: Some(false), ..good_disk() }, "directory_xattrs", Severity::Hint),
            (Disk { is_read_only: true, ..good_disk() }, "directory_read_only", Severity::Error),
        ] {
            let found: Vec<Finding> = checks(&with(disk)).into_iter().filter(|f| f.severity != Severity::Ok).collect();
            let [finding] = &found[..] else { panic!("{found:?}") };
            assert_eq!((finding.check, finding.severity), (check, severity));
            assert!(finding.advice.is_some());
        }
    }

    #[test]
    fn disks_of_targets_are_checked_and_named() {
        let full = Disk { path: "/srv/fs/ost1".into(), free_space: Some(0.0), ..good_disk() };
        let found = checks(&Directory { disks: vec![good_disk(), full], ..with(good_disk()) });
        let space: Vec<&Finding> = found.iter().filter(|f| f.check == "directory_space").collect();
        assert_eq!(space.iter().map(|f| f.severity).collect::<Vec<_>>(), [Severity::Ok, Severity::Warning]);
        assert!(space[1].text.ends_with("the disk of /srv/fs/ost1 is free"), "{space:?}");
    }

    #[test]
    fn exposed_target_is_named_with_its_command() {
        let exposed = vec![("/srv/fs/ost0".into(), 0o40755)];
        let found = checks(&Directory { exposed, ..with(good_disk()) });
        let mode = found.iter().find(|f| f.check == "directory_mode").unwrap();
        assert_eq!(mode.severity, Severity::Warning);
        assert!(mode.text.contains("/srv/fs/ost0 (mode 0755)"), "{}", mode.text);
        assert_eq!(mode.advice.as_deref(), Some("chmod 700 /srv/fs/ost0"));
    }
}
