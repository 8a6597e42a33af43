//! Keys: whether this user has any, and whether other users know them. Also the clock and MUNGE, by
//! which servers decide about keys.

use std::path::{Path, PathBuf};

use super::finding::Finding;

/// A key file that Sheen does not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Other users can read it.
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to another user.
    Foreign {
        /// The file.
        path: PathBuf,
        /// That user.
        owner: u32,
    },
    /// Another reason, with the file's name.
    Other(String),
}

/// The keys of this user, and those of the file system's directory.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// Whether this user is root, who mounts with a key of the host.
    pub is_root: bool,
    /// Name of this user, or its number if the name is not known.
    pub user: String,
    /// Name of this host.
    pub host: String,
    /// Number of keys that mounts and servers of this user find.
    pub count: usize,
    /// Number of keys that were read and that no other user can read.
    pub private: usize,
    /// Directories of this user's keys that were not read, because access to them may block.
    pub unchecked_dirs: Vec<PathBuf>,
    /// Key files that they cannot use.
    pub unusable: Vec<Unusable>,
    /// Directories of keys in which other users can change files, with their permission bits.
    pub writable_dirs: Vec<(PathBuf, u32)>,
    /// Whether the kernel takes the clock for synchronized. `None`: it does not say.
    pub is_clock_synchronized: Option<bool>,
    /// Whether MUNGE's daemon has a socket. `None`: MUNGE is not installed, or it is not known.
    pub munge_has_socket: Option<bool>,
}

/// Checks the keys.
pub fn checks(keys: &Keys) -> Vec<Finding> {
    let mut found: Vec<Finding> = count(keys).into_iter().collect();
    found.extend(keys.unchecked_dirs.iter().map(|dir| unchecked(dir)));
    if keys.private > 0 && keys.unusable.is_empty() && keys.writable_dirs.is_empty() {
        found.push(Finding::ok("key_file", "the keys that were read are closed to other users"));
    }
    found.extend(keys.unusable.iter().map(unusable));
    found.extend(keys.writable_dirs.iter().map(|(path, mode)| {
        let path = path.display();
        Finding::warning(
            "key_dir",
            format!("other users can replace keys in {path} (mode {:04o})", mode & 0o7777),
            format!("chmod 700 {path}"),
        )
    }));
    found.extend(clock(keys.is_clock_synchronized));
    found.extend(munge(keys.munge_has_socket));
    found
}

fn count(keys: &Keys) -> Option<Finding> {
    let (check, host, user) = ("keys", &keys.host, &keys.user);
    Some(match keys.count {
        0 if !keys.unchecked_dirs.is_empty() => return None,
        0 if keys.is_root => Finding::hint(
            check,
            "root has no key: the first `sheen up` or `sheen mgs` makes one, and mounts elsewhere need an issued one",
            format!(
                "on the host of the MGS, with its DIR: sheen key issue --dir DIR --host | ssh root@{host} sheen key \
                 add -"
            ),
        ),
        0 => Finding::hint(
            check,
            "this user has no key: root's mounts need none from it, and mounts of its own need an issued one",
            format!(
                "the administrator, on the host of the MGS, with its DIR: sheen key issue --dir DIR --user {user} | \
                 ssh {host} sudo -u {user} sheen key add -"
            ),
        ),
        1 => Finding::ok(check, "this user has a key"),
        count => Finding::ok(check, format!("this user has {count} keys")),
    })
}

fn unchecked(dir: &Path) -> Finding {
    let dir = dir.display();
    Finding::warning(
        "key_dir",
        format!("the keys in {dir} were not checked, because its file system may not answer"),
        "`sheen key list` shows the keys; a directory on a local disk: export SHEEN_KEY_DIR=DIR",
    )
}

fn unusable(file: &Unusable) -> Finding {
    let check = "key_file";
    match file {
        Unusable::Exposed { path, mode } => {
            let path = path.display();
            Finding::warning(
                check,
                format!(
                    "other users can read {path} (mode {:04o}): it is not used; if they have read it, replace the key",
                    mode & 0o7777
                ),
                format!("chmod 600 {path}"),
            )
        }
        Unusable::Foreign { path, owner } => {
            let path = path.display();
            Finding::warning(
                check,
                format!("{path} belongs to user {owner}, who knows its secret: Sheen does not use it"),
                format!("rm {path}"),
            )
        }
        Unusable::Other(reason) => Finding::warning(
            check,
            format!("a key file cannot be used: {reason}"),
            "remove the file, and ask the administrator for another key",
        ),
    }
}

fn clock(is_synchronized: Option<bool>) -> Option<Finding> {
    let check = "clock";
    Some(match is_synchronized? {
        true => Finding::ok(check, "the clock is synchronized"),
        false => Finding::hint(
            check,
            "the clock is not known to be synchronized; with keys of users, servers must agree within minutes",
            "as root: timedatectl set-ntp true (or start chronyd)",
        ),
    })
}

fn munge(has_socket: Option<bool>) -> Option<Finding> {
    let check = "munge";
    Some(match has_socket? {
        true => Finding::ok(check, "munged has a socket"),
        false => Finding::hint(
            check,
            "MUNGE is installed, but munged has no socket: mounts get no keys by MUNGE",
            "as root: systemctl start munge",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Severity, *};

    fn good() -> Keys {
        Keys {
            user: "alice".into(),
            host: "node3".into(),
            count: 2,
            private: 2,
            is_clock_synchronized: Some(true),
            munge_has_socket: Some(true),
            ..Keys::default()
        }
    }

    #[test]
    fn private_keys_have_only_ok_findings() {
        let all = checks(&good());
        assert!(all.iter().all(|f| f.severity == Severity::Ok), "{all:?}");
        assert_eq!(all.len(), 4);
        let unknown = Keys { is_clock_synchronized: None, munge_has_socket: None, ..good() };
        assert_eq!(checks(&unknown).len(), 2);
    }

    #[test]
    fn keys_that_were_not_read_get_no_good_report() {
        let unknown = Keys { is_clock_synchronized: None, munge_has_socket: None, count: 0, private: 0, ..good() };
        assert_eq!(checks(&unknown).iter().map(|f| f.check).collect::<Vec<_>>(), ["keys"]);
        let unchecked = checks(&Keys { unchecked_dirs: vec!["/nfs/k".into()], ..unknown });
        assert_eq!(
            unchecked.iter().map(|f| (f.check, f.severity)).collect::<Vec<_>>(),
            [("key_dir", Severity::Warning)]
        );
    }

    #[test]
    fn exposed_key_is_a_warning_with_the_command_that_hides_it() {
        let exposed = Unusable::Exposed { path: "/k/a.key".into(), mode: 0o644 };
        let foreign = Unusable::Foreign { path: "/k/b.key".into(), owner: 7 };
        let other = Unusable::Other("/k/c.key is not a key file: no id".into());
        let keys =
            Keys { unusable: vec![exposed, foreign, other], writable_dirs: vec![("/k".into(), 0o40777)], ..good() };
        let found: Vec<Finding> = checks(&keys).into_iter().filter(|f| f.severity != Severity::Ok).collect();
        assert!(found.iter().all(|f| f.severity == Severity::Warning), "{found:?}");
        let advice: Vec<&str> = found.iter().filter_map(|f| f.advice.as_deref()).collect();
        assert_eq!(advice[..2], ["chmod 600 /k/a.key", "rm /k/b.key"]);
        assert_eq!((advice.len(), advice[3]), (4, "chmod 700 /k"));
        assert!(found[0].text.contains("(mode 0644)") && found[3].text.contains("(mode 0777)"), "{found:?}");
    }

    #[test]
    fn missing_keys_clock_and_munge_are_hints() {
        let keys = Keys { count: 0, is_clock_synchronized: Some(false), munge_has_socket: Some(false), ..good() };
        let found: Vec<Finding> = checks(&keys).into_iter().filter(|f| f.severity != Severity::Ok).collect();
        assert_eq!(found.iter().map(|f| f.check).collect::<Vec<_>>(), ["keys", "clock", "munge"]);
        assert!(found.iter().all(|f| f.severity == Severity::Hint));
        let issue = |found: &[Finding]| found[0].advice.clone().unwrap();
        assert!(issue(&found).contains("issue --dir DIR --user alice | ssh node3 sudo -u alice sheen key add -"));
        let of_root = checks(&Keys { is_root: true, ..keys });
        assert!(issue(&of_root).contains("issue --dir DIR --host | ssh root@node3 sheen key add -"));
    }
}
