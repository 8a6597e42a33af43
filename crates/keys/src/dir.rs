//! Directories with key files.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    net::IpAddr,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
};

use sheen_wire::auth::{ClusterId, KeyId};

use crate::{Key, KeyError, Record};

/// Environment variable with this user's directory of keys.
pub(crate) const DIR_ENV: &str = "SHEEN_KEY_DIR";
/// Directory of keys for all processes that may read them, besides the user's own.
pub(crate) const FOR_ALL: &str = "/etc/sheen/keys";
/// Largest key file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 10;
/// End of the name of an empty file, which withdraws the issued key of that id.
const WITHDRAWN: &str = ".withdrawn";
/// End of the name of a file with the record of an issued key.
const ISSUED: &str = ".issued";

/// A key, and its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The key.
    pub key: Key,
    /// The file.
    pub path: PathBuf,
}

/// Returns this user's directory of keys: `$SHEEN_KEY_DIR`, else `$XDG_CONFIG_HOME/sheen/keys`,
/// else `~/.config/sheen/keys`, else for root `/etc/sheen/keys`.
pub fn user_dir() -> Option<PathBuf> {
    let var = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    let below = |dir: PathBuf| dir.join("sheen/keys");
    var(DIR_ENV)
        .or_else(|| var("XDG_CONFIG_HOME").map(below))
        .or_else(|| var("HOME").map(|home| below(home.join(".config"))))
        .or_else(|| rustix::process::geteuid().is_root().then(|| FOR_ALL.into()))
}

/// Returns the directories in which a process of this user looks for keys: [`user_dir`], and
/// `/etc/sheen/keys` unless `$SHEEN_KEY_DIR` is set.
pub fn search_dirs() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = user_dir().into_iter().collect();
    if env::var_os(DIR_ENV).is_none_or(|dir| dir.is_empty()) && dirs.iter().all(|dir| dir != Path::new(FOR_ALL)) {
        dirs.push(FOR_ALL.into());
    }
    dirs
}

/// The key files of a directory.
#[derive(Debug, Default)]
pub struct Listing {
    /// The keys, the oldest first.
    pub found: Vec<Found>,
    /// Why further files are not usable.
    pub unusable: Vec<KeyError>,
    /// Issued keys that were withdrawn.
    pub withdrawn: BTreeSet<KeyId>,
}

/// Reads the key files in a directory: those of a cluster, or all. There are none if the directory
/// does not exist.
pub fn list(dir: &Path, cluster: Option<ClusterId>) -> Listing {
    let mut listing = Listing::default();
    let io_error = |error| KeyError::Io { path: dir.to_owned(), error };
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return listing,
        Err(e) => {
            listing.unusable.push(io_error(e));
            return listing;
        }
        Ok(entries) => entries,
    };
    let prefix = cluster.map_or(String::new(), |cluster| cluster.to_string());
    for entry in entries {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(e) => {
                listing.unusable.push(io_error(e));
                break;
            }
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(key) = name.strip_suffix(WITHDRAWN).and_then(|id| id.parse().ok()) {
            listing.withdrawn.insert(key);
        }
        if !name.starts_with(&prefix) || !name.ends_with(".key") {
            continue;
        }
        match load(&path) {
            Ok(key) if cluster.is_none_or(|cluster| cluster == key.cluster) => listing.found.push(Found { key, path }),
            Ok(_) => {}
            // It was removed meanwhile.
            Err(KeyError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            Err(e) => listing.unusable.push(e),
        }
    }
    listing.found.sort_by_key(|found| (found.key.created, found.key.id));
    listing
}

impl Listing {
    /// Returns the keys.
    ///
    /// # Errors
    /// A file is not usable.
    pub fn complete(self) -> Result<Vec<Found>, KeyError> {
        match self.unusable.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(self.found),
        }
    }
}

/// Reads a key file.
///
/// # Errors
/// It cannot be read, others can read it, it belongs to another user, or it is no key file.
pub fn load(path: &Path) -> Result<Key, KeyError> {
    let io_error = |error| KeyError::Io { path: path.to_owned(), error };
    let mut file = File::open(path).map_err(io_error)?;
    let metadata = file.metadata().map_err(io_error)?;
    let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed { path: path.to_owned(), mode });
    }
    // The owner of the directory can replace the file anyhow.
    let of_dir = path.parent().and_then(|dir| fs::metadata(dir).ok()).map(|dir| dir.uid());
    if owner != 0 && owner != rustix::process::geteuid().as_raw() && Some(owner) != of_dir {
        return Err(KeyError::Foreign { path: path.to_owned(), owner });
    }
    let mut text = String::new();
    Read::by_ref(&mut file).take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(io_error)?;
    Key::parse(&text).map_err(|reason| KeyError::Invalid { path: path.to_owned(), reason })
}

/// Writes a key to a directory, which is created with mode 0700 if it is missing. Returns its file.
/// After a power loss the file is whole or missing.
///
/// # Errors
/// The directory or the file cannot be written.
pub fn store(dir: &Path, key: &Key) -> Result<PathBuf, KeyError> {
    let path = dir.join(key.file_name());
    let written = write(dir, &path, key.to_text().as_bytes(), None);
    written.map_err(|error| KeyError::Io { path: path.clone(), error })?;
    Ok(path)
}

/// As [`store`], for the server of a directory, which may run as another user: the file belongs to
/// the owner of the directory.
///
/// # Errors
/// As [`store`], or the file cannot be given to that owner.
pub fn store_for_server(dir: &Path, key: &Key) -> Result<PathBuf, KeyError> {
    write_for_server(dir, &key.file_name(), &key.to_text())
}

/// Writes a file that belongs to the owner of the directory. Returns its path.
fn write_for_server(dir: &Path, name: &str, text: &str) -> Result<PathBuf, KeyError> {
    let path = dir.join(name);
    let written = owner_of(dir).and_then(|owner| write(dir, &path, text.as_bytes(), owner));
    written.map_err(|error| KeyError::Io { path: path.clone(), error })?;
    Ok(path)
}

/// Records an issued key in the directory of the server that issued it, without the secret.
///
/// # Errors
/// As [`store_for_server`].
pub fn record(dir: &Path, key: &Key) -> Result<PathBuf, KeyError> {
    write_for_server(dir, &format!("{}{ISSUED}", key.id), &key.to_record_text())
}

/// As [`record`], for the key of a client of this host that has applied for one.
///
/// # Errors
/// As [`record`].
pub(crate) fn record_applicant(dir: &Path, key: &Key, host: IpAddr) -> Result<PathBuf, KeyError> {
    let text = format!("{}applicant = \"{}\"\n", key.to_record_text(), host.to_canonical());
    write_for_server(dir, &format!("{}{ISSUED}", key.id), &text)
}

/// Returns the record of an issued key, also of a withdrawn one. `None`: there is none.
///
/// # Errors
/// It cannot be read.
pub(crate) fn record_of(dir: &Path, id: KeyId) -> Result<Option<Record>, KeyError> {
    read_record(dir.join(format!("{id}{ISSUED}")))
}

fn read_record(path: PathBuf) -> Result<Option<Record>, KeyError> {
    match fs::read_to_string(&path) {
        Ok(text) => Record::parse(&text).map(Some).map_err(|reason| KeyError::Invalid { path, reason }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(KeyError::Io { path, error }),
    }
}

/// Returns the records of issued keys in a server's directory with their files, the oldest first.
/// Those of withdrawn keys are left out.
///
/// # Errors
/// The directory or a record cannot be read.
pub fn records(dir: &Path) -> Result<Vec<(Record, PathBuf)>, KeyError> {
    let io_error = |error| KeyError::Io { path: dir.to_owned(), error };
    let mut records = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_error)? {
        let path = entry.map_err(io_error)?.path();
        let Some(id) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(ISSUED)) else { continue };
        if dir.join(format!("{id}{WITHDRAWN}")).exists() {
            continue;
        }
        if let Some(record) = read_record(path.clone())? {
            records.push((record, path));
        }
    }
    records.sort_by_key(|(record, _)| (record.created, record.id));
    Ok(records)
}

/// Withdraws an issued key for the server of a directory. Returns the file that does so.
///
/// # Errors
/// As [`store_for_server`].
pub fn withdraw(dir: &Path, key: KeyId) -> Result<PathBuf, KeyError> {
    write_for_server(dir, &format!("{key}{WITHDRAWN}"), "")
}

/// Returns the owner for files of a server's directory, if that is another user.
fn owner_of(dir: &Path) -> io::Result<Option<(u32, u32)>> {
    let of_dir = fs::metadata(dir)?;
    Ok((of_dir.uid() != rustix::process::geteuid().as_raw()).then(|| (of_dir.uid(), of_dir.gid())))
}

/// Removes the file of a key. After a power loss it stays removed.
///
/// # Errors
/// The directory cannot be written.
pub fn remove(found: &Found) -> Result<(), KeyError> {
    let removed = fs::remove_file(&found.path).and_then(|()| match found.path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    });
    removed.map_err(|error| KeyError::Io { path: found.path.clone(), error })
}

fn write(dir: &Path, path: &Path, text: &[u8], owner: Option<(u32, u32)>) -> io::Result<()> {
    if !dir.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            File::open(parent)?.sync_all()?;
        }
    }
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text)?;
        if let Some((user, group)) = owner {
            fchown(&file, Some(user), Some(group))?;
        }
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(dir)?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sheen_wire::auth::{Issued, Role};

    use super::*;

    fn key(cluster: u64, id: u64, created: i64) -> Key {
        Key::new(ClusterId(cluster), id, [id as u8; 32], created)
    }

    #[test]
    fn stored_keys_are_private_and_listed_by_age() {
        let dir = tempfile::tempdir().unwrap();
        let keys = dir.path().join("a/keys");
        let (old, new, other) = (key(1, 9, 10), key(1, 5, 20), key(2, 1, 1));
        for key in [&new, &old, &other] {
            let path = store(&keys, key).unwrap();
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o600);
        }
        assert_eq!(fs::metadata(&keys).unwrap().mode() & 0o7777, 0o700);
        let of_1: Vec<Key> = list(&keys, Some(ClusterId(1))).found.into_iter().map(|f| f.key).collect();
        assert_eq!(of_1, [old, new]);
        assert_eq!(list(&keys, None).complete().unwrap().len(), 3);
        assert_eq!(list(&dir.path().join("none"), None).complete().unwrap(), []);
    }

    #[test]
    fn key_for_a_server_belongs_to_the_owner_of_its_directory() {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: needs root to give a directory away");
        }
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(dir.path(), Some(65534), None).unwrap();
        let owner = |path| fs::metadata(path).map(|file| (file.uid(), file.mode() & 0o7777)).unwrap();
        assert_eq!(owner(store(dir.path(), &key(1, 2, 3)).unwrap()), (0, 0o600));
        assert_eq!(owner(store_for_server(dir.path(), &key(1, 2, 3)).unwrap()), (65534, 0o600));
    }

    #[test]
    fn issued_keys_are_recorded_without_secret_until_they_are_withdrawn() {
        let dir = tempfile::tempdir().unwrap();
        let (root, host) = (key(1, 1, 10), Issued { id: KeyId(2), role: Role::Host(None) });
        store(dir.path(), &root).unwrap();
        let issued = root.issue(host, 20).unwrap();
        let path = record(dir.path(), &issued).unwrap();
        assert!(!fs::read_to_string(&path).unwrap().contains("secret"));
        assert_eq!(records(dir.path()).unwrap(), [(issued.record(), path)]);
        let listing = list(dir.path(), None);
        assert_eq!((listing.found.len(), listing.unusable.len(), listing.withdrawn.len()), (1, 0, 0));
        withdraw(dir.path(), KeyId(2)).unwrap();
        assert_eq!(records(dir.path()).unwrap(), []);
        assert_eq!(list(dir.path(), None).withdrawn, BTreeSet::from([KeyId(2)]));
    }

    #[test]
    fn key_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = store(dir.path(), &key(1, 2, 3)).unwrap();
        store(dir.path(), &key(1, 3, 4)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let listing = list(dir.path(), None);
        assert_eq!((listing.found.len(), listing.unusable.len()), (1, 1), "the other one is usable");
        assert!(matches!(load(&path), Err(KeyError::Exposed { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(load(&path).unwrap(), key(1, 2, 3));
    }
}
