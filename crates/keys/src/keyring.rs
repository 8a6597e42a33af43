//! The keys that a process uses and accepts.
//!
//! Invariant: a server accepts only the keys of its own cluster. An MDT or OST learns the cluster's
//! key from its first connection to the MGS, which it finds among its user's keys, and stores the
//! key beside its data. Afterwards it needs neither the MGS nor the user's directory to know it.

use std::path::{Path, PathBuf};

use parking_lot::RwLock;
use sheen_wire::auth::{ClusterId, KeyId};

use crate::{
    Key, KeyError,
    dir::{list, search_dirs, store},
};

/// The keys of a process.
#[derive(Debug, Default)]
pub struct Keyring {
    /// The keys that this process accepts, the oldest first. All have one cluster.
    served: RwLock<Vec<Key>>,
    /// Directories with keys for other servers.
    dirs: Vec<PathBuf>,
    /// The directory for the key by which the MGS accepts this server.
    learns: RwLock<Option<PathBuf>>,
}

impl Keyring {
    /// Returns the keyring of a process of this user. It serves nothing yet.
    pub fn of_user() -> Keyring {
        Keyring { dirs: search_dirs(), ..Keyring::default() }
    }

    /// Returns a keyring of these keys alone. All have one cluster.
    pub fn of(keys: Vec<Key>) -> Keyring {
        Keyring { served: RwLock::new(keys), ..Keyring::default() }
    }

    /// Serves the keys in `dir`, the directory of the MGS's keys. If there is none, calls `make`
    /// and stores its key. Copies each to `user`, the directory of this user's keys, if it is
    /// missing there. Returns the file of a new key.
    ///
    /// # Errors
    /// A key cannot be read or written. If only the copy cannot be written, `warn` is called.
    pub fn serve(
        &self,
        dir: &Path,
        user: Option<&Path>,
        make: impl FnOnce() -> Key,
        warn: impl Fn(KeyError),
    ) -> Result<Option<PathBuf>, KeyError> {
        let mut keys: Vec<Key> = list(dir, "")?.into_iter().map(|found| found.key).collect();
        let mut made = None;
        if keys.is_empty() {
            let key = make();
            made = Some(store(dir, &key)?);
            keys.push(key);
        }
        for key in &keys {
            let copied = match user {
                Some(user) if user.join(key.file_name()).exists() => Ok(()),
                Some(user) => store(user, key).map(drop),
                None => Err(KeyError::NoDirectory),
            };
            copied.unwrap_or_else(&warn);
        }
        *self.served.write() = keys;
        Ok(made)
    }

    /// Serves the keys in `dir`, a directory of an MDS or OSS. If there is none, the key by which
    /// the MGS accepts this process will be stored there.
    ///
    /// # Errors
    /// A key cannot be read.
    pub fn serve_as_member(&self, dir: &Path) -> Result<(), KeyError> {
        let keys: Vec<Key> = list(dir, "")?.into_iter().map(|found| found.key).collect();
        if keys.is_empty() {
            *self.learns.write() = Some(dir.to_owned());
        }
        *self.served.write() = keys;
        Ok(())
    }

    /// Returns the cluster whose keys this process accepts; `None`: none yet.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.served.read().first().map(|key| key.cluster)
    }

    /// Returns the key of that id, if this process accepts it.
    pub fn accepted(&self, id: KeyId) -> Option<Key> {
        self.served.read().iter().find(|key| key.id == id).cloned()
    }

    /// Returns the newest key for servers of a cluster. `None`: this process has none. Reads files.
    ///
    /// # Errors
    /// A key file of the cluster cannot be read, is exposed or invalid.
    pub fn key_for(&self, cluster: ClusterId) -> Result<Option<Key>, KeyError> {
        let served = self.served.read().iter().rfind(|key| key.cluster == cluster).cloned();
        if served.is_some() {
            return Ok(served);
        }
        let mut found = Vec::new();
        for dir in &self.dirs {
            match list(dir, &cluster.to_string()) {
                // Keys for others than this user.
                Err(KeyError::Io { error, .. }) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
                keys => found.extend(keys?),
            }
        }
        Ok(found.into_iter().map(|found| found.key).max_by_key(|key| (key.created, key.id)))
    }

    /// Records that a server proved to know this key. A new MDS or OSS accepts it from now on.
    ///
    /// # Errors
    /// The key cannot be stored. It is accepted nevertheless, until this process ends.
    pub fn confirmed(&self, key: &Key) -> Result<(), KeyError> {
        let Some(dir) = self.learns.write().take() else { return Ok(()) };
        self.served.write().push(key.clone());
        store(&dir, key).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(cluster: u64, id: u64, created: i64) -> Key {
        Key::new(ClusterId(cluster), id, [id as u8; 32], created)
    }

    fn with_dirs(dirs: &[&Path]) -> Keyring {
        Keyring { dirs: dirs.iter().map(|dir| dir.to_path_buf()).collect(), ..Keyring::default() }
    }

    #[test]
    fn clients_use_the_newest_key_of_the_servers_cluster() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (dir, key) in [(&a, key(1, 1, 10)), (&a, key(1, 2, 30)), (&b, key(1, 3, 20)), (&b, key(2, 4, 40))] {
            store(dir.path(), &key).unwrap();
        }
        let ring = with_dirs(&[a.path(), b.path(), Path::new("/nonexistent")]);
        assert_eq!(ring.key_for(ClusterId(1)).unwrap(), Some(key(1, 2, 30)));
        assert_eq!(ring.key_for(ClusterId(2)).unwrap(), Some(key(2, 4, 40)));
        assert_eq!(ring.key_for(ClusterId(3)).unwrap(), None);
        assert_eq!((ring.cluster(), ring.accepted(KeyId(2))), (None, None), "a client accepts none");
    }

    #[test]
    fn members_accept_and_store_the_key_of_their_mgs() {
        let (user, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        store(user.path(), &key(1, 1, 10)).unwrap();
        let ring = with_dirs(&[user.path()]);
        ring.serve_as_member(data.path()).unwrap();
        assert_eq!(ring.cluster(), None);
        let used = ring.key_for(ClusterId(1)).unwrap().unwrap();
        ring.confirmed(&used).unwrap();
        ring.confirmed(&key(2, 2, 20)).unwrap();
        assert_eq!((ring.cluster(), ring.accepted(KeyId(1))), (Some(ClusterId(1)), Some(used.clone())));
        assert_eq!(ring.accepted(KeyId(2)), None, "only the first server is the MGS");
        let again = with_dirs(&[]);
        again.serve_as_member(data.path()).unwrap();
        assert_eq!(again.accepted(KeyId(1)), Some(used));
    }

    #[test]
    fn keys_of_the_mgs_are_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let user = dir.path().join("user");
        let ring = Keyring::default();
        let made = ring.serve(dir.path(), Some(&user), || key(1, 1, 10), |e| panic!("{e}")).unwrap();
        assert_eq!(made, Some(dir.path().join(key(1, 1, 10).file_name())));
        assert_eq!(with_dirs(&[&user]).key_for(ClusterId(1)).unwrap(), Some(key(1, 1, 10)));
        let ring = Keyring::default();
        let made = ring.serve(dir.path(), Some(&user), || unreachable!("a key exists"), |e| panic!("{e}")).unwrap();
        assert_eq!((made, ring.cluster()), (None, Some(ClusterId(1))));
    }
}
