//! The other names of the program: Lustre's tools, and the helper of mount(8).

use std::path::{Path, PathBuf};

use super::finding::Finding;

/// A program in PATH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// This program, or it is not known which one.
    This,
    /// Another program.
    Other(PathBuf),
    /// There is none.
    Missing,
}

/// The names under which the program is installed.
#[derive(Clone, Debug)]
pub struct Tools {
    /// `lfs` and `lctl` in PATH.
    pub lustre: [Found; 2],
    /// Whether mount(8) finds `mount.sheen` and `mount.fuse.sheen`.
    pub has_mount_helper: bool,
    /// Directories of PATH that were not searched, because access to them may block.
    pub unsearched: Vec<PathBuf>,
}

/// Checks the names.
pub fn checks(tools: &Tools) -> Vec<Finding> {
    let helper = match tools.has_mount_helper {
        true => Finding::ok("mount_helper", "mount -t sheen and /etc/fstab work"),
        false => Finding::hint(
            "mount_helper",
            "mount -t sheen and /etc/fstab do not work, because /sbin lacks mount.sheen; `sheen mount` works",
            "install the package sheen, or the links in /sbin: docs/install.md",
        ),
    };
    let mut found = vec![lustre(tools), helper];
    if let Some(first) = tools.unsearched.first() {
        found.push(Finding::hint(
            "path",
            format!("directories of PATH that may not answer were not searched, such as {}", first.display()),
            "put the directories on local disks first in PATH",
        ));
    }
    found
}

fn lustre(tools: &Tools) -> Finding {
    let check = "lustre_tools";
    let other: Option<&Path> = tools.lustre.iter().find_map(|found| match found {
        Found::Other(path) => Some(path.as_path()),
        Found::This | Found::Missing => None,
    });
    if let Some(path) = other {
        Finding::hint(
            check,
            format!("{} is another program; `sheen lfs` and `sheen lctl` are this one", path.display()),
            "for Sheen's tools, put their directory before it in PATH; docs/install.md lists the links",
        )
    } else if tools.lustre.contains(&Found::Missing) {
        Finding::hint(
            check,
            "lfs and lctl are not both in PATH; `sheen lfs` and `sheen lctl` work",
            "install the package sheen, or the links lfs and lctl to the program: docs/install.md",
        )
    } else {
        Finding::ok(check, "lfs and lctl are in PATH")
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Severity, *};

    #[test]
    fn missing_and_other_tools_are_hints() {
        let severities = |lctl, has_mount_helper, unsearched: &[&str]| {
            let unsearched = unsearched.iter().map(PathBuf::from).collect();
            let found = checks(&Tools { lustre: [Found::This, lctl], has_mount_helper, unsearched });
            found.into_iter().map(|f| f.severity).collect::<Vec<_>>()
        };
        assert_eq!(severities(Found::This, true, &[]), [Severity::Ok, Severity::Ok]);
        assert_eq!(severities(Found::Missing, true, &[]), [Severity::Hint, Severity::Ok]);
        assert_eq!(severities(Found::Other("/usr/bin/lctl".into()), true, &[]), [Severity::Hint, Severity::Ok]);
        assert_eq!(severities(Found::This, false, &["/net/bin"]), [Severity::Ok, Severity::Hint, Severity::Hint]);
    }
}
