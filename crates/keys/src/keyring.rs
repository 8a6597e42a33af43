//! The keys that a process uses and accepts.
//!
//! Invariants:
//! * A process belongs to one cluster. A server of another cluster is refused, even if this user
//!   has a key for it. Otherwise anybody who shares one key with the user could answer in place of
//!   any server. The cluster is that of the keys in the server's directory. Without such keys it is
//!   that of the first server that proves to know a key: the MGS.
//! * A server accepts only the keys of its own cluster. A new MDS or OSS learns the key from its
//!   connection to the MGS, and stores it beside its data. Afterwards it needs neither the MGS nor
//!   the user's directory to know it.
//! * After the first connection, no file is read: the keys may lie on the file system itself.

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
    state: RwLock<State>,
    /// Directories with keys for other servers.
    dirs: Vec<PathBuf>,
}

#[derive(Debug, Default)]
struct State {
    /// The keys that this process accepts as a server, the oldest first. All have one cluster.
    served: Vec<Key>,
    /// The key that the first server proved to know, if none was served then.
    used: Option<Key>,
    /// The directory for the key by which the MGS accepts this server.
    learns: Option<PathBuf>,
}

impl State {
    fn cluster(&self) -> Option<ClusterId> {
        self.served.first().or(self.used.as_ref()).map(|key| key.cluster)
    }
}

impl Keyring {
    /// Returns the keyring of a process of this user. It serves nothing yet.
    pub fn of_user() -> Keyring {
        Keyring { dirs: search_dirs(), ..Keyring::default() }
    }

    /// Returns a keyring of these keys alone. All have one cluster.
    pub fn of(keys: Vec<Key>) -> Keyring {
        Keyring { state: RwLock::new(State { served: keys, ..State::default() }), dirs: Vec::new() }
    }

    /// Serves the keys in `dir`, the directory of the MGS's keys. If there is none, calls `make`
    /// and stores its key. Copies each to `user`, the directory of this user's keys, if it is
    /// missing there. Returns the file of a new key.
    ///
    /// # Errors
    /// A key cannot be read or written, or the keys belong to several clusters. If only the copy
    /// cannot be written, `warn` is called.
    pub fn serve(
        &self,
        dir: &Path,
        user: Option<&Path>,
        make: impl FnOnce() -> Key,
        warn: impl Fn(KeyError),
    ) -> Result<Option<PathBuf>, KeyError> {
        let mut keys = keys_of_one_cluster(dir)?;
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
        self.state.write().served = keys;
        Ok(made)
    }

    /// Serves the keys in `dir`, a directory of an MDS or OSS. If there is none, this process
    /// learns the key by which the MGS accepts it ([`Keyring::store_learned`]).
    ///
    /// # Errors
    /// A key cannot be read, or the keys belong to several clusters.
    pub fn serve_as_member(&self, dir: &Path) -> Result<(), KeyError> {
        let keys = keys_of_one_cluster(dir)?;
        let mut state = self.state.write();
        state.learns = keys.is_empty().then(|| dir.to_owned());
        state.served = keys;
        Ok(())
    }

    /// Returns the cluster whose keys this process accepts as a server; `None`: none yet.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.state.read().served.first().map(|key| key.cluster)
    }

    /// Returns the key of that id, if this process accepts it as a server.
    pub fn accepted(&self, id: KeyId) -> Option<Key> {
        self.state.read().served.iter().find(|key| key.id == id).cloned()
    }

    /// Returns the key for servers of a cluster, if it is known without reading files.
    ///
    /// # Errors
    /// This process belongs to another cluster.
    pub fn known(&self, cluster: ClusterId) -> Result<Option<Key>, KeyError> {
        let state = self.state.read();
        match state.cluster() {
            Some(own) if own != cluster => Err(KeyError::OtherCluster { theirs: cluster, own }),
            _ => Ok(state.served.last().or(state.used.as_ref()).cloned()),
        }
    }

    /// Searches the directories for the newest key for servers of a cluster. `None`: this process
    /// has none. Reads files.
    ///
    /// # Errors
    /// There is none, and a key file of the cluster is not usable.
    pub fn find(&self, cluster: ClusterId) -> Result<Option<Key>, KeyError> {
        let (mut found, mut unusable) = (Vec::new(), None);
        for dir in &self.dirs {
            let listing = list(dir, Some(cluster));
            found.extend(listing.found);
            // Other users' directories are no news.
            unusable = unusable.or(listing.unusable.into_iter().find(|error| !error.is_denied_directory(dir)));
        }
        match found.into_iter().map(|found| found.key).max_by_key(|key| (key.created, key.id)) {
            Some(key) => Ok(Some(key)),
            None => unusable.map_or(Ok(None), Err),
        }
    }

    /// Records that a server proved to know this key. From now on this process belongs to its
    /// cluster, and a new MDS or OSS accepts the key.
    ///
    /// # Errors
    /// Meanwhile this process belongs to another cluster.
    pub fn confirmed(&self, key: &Key) -> Result<(), KeyError> {
        let mut state = self.state.write();
        match state.cluster() {
            Some(own) if own != key.cluster => return Err(KeyError::OtherCluster { theirs: key.cluster, own }),
            Some(_) => {}
            None => state.used = Some(key.clone()),
        }
        if state.served.is_empty() && state.learns.is_some() {
            state.served.push(key.clone());
        }
        Ok(())
    }

    /// Stores the key that a new MDS or OSS has learned.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store_learned(&self) -> Result<(), KeyError> {
        let (dir, key) = {
            let state = self.state.read();
            (state.learns.clone(), state.served.first().cloned())
        };
        if let (Some(dir), Some(key)) = (dir, key) {
            store(&dir, &key)?;
            self.state.write().learns = None;
        }
        Ok(())
    }
}

fn keys_of_one_cluster(dir: &Path) -> Result<Vec<Key>, KeyError> {
    let keys: Vec<Key> = list(dir, None).complete()?.into_iter().map(|found| found.key).collect();
    match keys.windows(2).all(|pair| pair[0].cluster == pair[1].cluster) {
        true => Ok(keys),
        false => Err(KeyError::SeveralClusters(dir.to_owned())),
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
        assert_eq!(ring.find(ClusterId(1)).unwrap(), Some(key(1, 2, 30)));
        assert_eq!(ring.find(ClusterId(2)).unwrap(), Some(key(2, 4, 40)));
        assert_eq!(ring.find(ClusterId(3)).unwrap(), None);
        assert_eq!((ring.cluster(), ring.accepted(KeyId(2))), (None, None), "a client accepts none");
    }

    #[test]
    fn client_belongs_to_the_cluster_of_its_first_server() {
        let ring = with_dirs(&[]);
        assert_eq!(ring.known(ClusterId(1)).unwrap(), None);
        ring.confirmed(&key(1, 1, 10)).unwrap();
        assert_eq!(ring.known(ClusterId(1)).unwrap(), Some(key(1, 1, 10)), "without a file");
        assert!(matches!(ring.known(ClusterId(2)), Err(KeyError::OtherCluster { .. })));
        assert!(ring.confirmed(&key(2, 2, 20)).is_err(), "its handshake began before");
        assert_eq!(ring.known(ClusterId(1)).unwrap(), Some(key(1, 1, 10)));
    }

    #[test]
    fn members_accept_and_store_the_key_of_their_mgs() {
        let data = tempfile::tempdir().unwrap();
        let ring = with_dirs(&[]);
        ring.serve_as_member(data.path()).unwrap();
        assert_eq!(ring.cluster(), None);
        ring.confirmed(&key(1, 1, 10)).unwrap();
        ring.confirmed(&key(1, 2, 20)).unwrap();
        assert_eq!((ring.cluster(), ring.accepted(KeyId(1))), (Some(ClusterId(1)), Some(key(1, 1, 10))));
        assert_eq!(ring.accepted(KeyId(2)), None, "the first server is the MGS");
        assert!(list(data.path(), None).found.is_empty(), "it is not registered yet");
        ring.store_learned().unwrap();
        let again = with_dirs(&[]);
        again.serve_as_member(data.path()).unwrap();
        assert_eq!(again.accepted(KeyId(1)), Some(key(1, 1, 10)));
        assert!(again.known(ClusterId(2)).is_err(), "a directory belongs to one cluster");
    }

    #[test]
    fn keys_of_the_mgs_are_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let user = dir.path().join("user");
        let ring = Keyring::default();
        let made = ring.serve(dir.path(), Some(&user), || key(1, 1, 10), |e| panic!("{e}")).unwrap();
        assert_eq!(made, Some(dir.path().join(key(1, 1, 10).file_name())));
        assert_eq!(with_dirs(&[&user]).find(ClusterId(1)).unwrap(), Some(key(1, 1, 10)));
        let ring = Keyring::default();
        let made = ring.serve(dir.path(), Some(&user), || unreachable!("a key exists"), |e| panic!("{e}")).unwrap();
        assert_eq!((made, ring.cluster()), (None, Some(ClusterId(1))));
        store(dir.path(), &key(2, 2, 10)).unwrap();
        let several = Keyring::default().serve(dir.path(), None, || unreachable!("a key exists"), |_| {});
        assert!(matches!(several, Err(KeyError::SeveralClusters(_))));
    }
}
