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
//! * While a key that this process has used is accepted, a client reads no file: the keys may lie on
//!   the file system itself.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use parking_lot::RwLock;
use sheen_wire::auth::{ClusterId, KEYS_MAX, KeyId};

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
    /// Further keys that servers proved to know.
    used: Vec<Key>,
    /// The directory of the served keys.
    dir: Option<PathBuf>,
    /// The directory for the key by which the MGS accepts this server.
    learns: Option<PathBuf>,
}

impl State {
    fn cluster(&self) -> Option<ClusterId> {
        self.served.first().or(self.used.first()).map(|key| key.cluster)
    }
}

/// The difference that [`Keyring::refresh`] found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Refreshed {
    /// Keys that are accepted from now on.
    pub added: Vec<KeyId>,
    /// Keys that are no longer accepted.
    pub withdrawn: Vec<KeyId>,
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
        let mut state = self.state.write();
        state.dir = Some(dir.to_owned());
        state.served = keys;
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
        state.dir = Some(dir.to_owned());
        state.served = keys;
        Ok(())
    }

    /// Reads the directory of the served keys again. Returns the changes; `None`: there are none. If
    /// no key is there any more, the process accepts its keys until it ends.
    ///
    /// # Errors
    /// A key cannot be read, or belongs to another cluster. Nothing changes then.
    pub fn refresh(&self) -> Result<Option<Refreshed>, KeyError> {
        let Some(dir) = self.state.read().dir.clone() else { return Ok(None) };
        let keys = keys_of_one_cluster(&dir)?;
        let mut state = self.state.write();
        let Some(first) = keys.first().filter(|_| state.learns.is_none() && state.served != keys) else {
            return Ok(None);
        };
        if state.served.iter().any(|key| key.cluster != first.cluster) {
            return Err(KeyError::SeveralClusters(dir));
        }
        let ids = |keys: &[Key]| keys.iter().map(|key| key.id).collect::<BTreeSet<KeyId>>();
        let (before, after) = (ids(&state.served), ids(&keys));
        state.used.retain(|key| !before.contains(&key.id) || after.contains(&key.id));
        state.served = keys;
        let added = after.difference(&before).copied().collect();
        Ok(Some(Refreshed { added, withdrawn: before.difference(&after).copied().collect() }))
    }

    /// Returns whether this process serves keys of a directory, which can change.
    pub fn serves_a_directory(&self) -> bool {
        self.state.read().dir.is_some()
    }

    /// Returns the ids of the newest keys that this process accepts as a server, at most
    /// [`KEYS_MAX`].
    pub fn accepted_ids(&self) -> Vec<KeyId> {
        self.state.read().served.iter().rev().take(KEYS_MAX).map(|key| key.id).collect()
    }

    /// Returns the cluster whose keys this process accepts as a server; `None`: none yet.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.state.read().served.first().map(|key| key.cluster)
    }

    /// Returns the key of that id, if this process accepts it as a server.
    pub fn accepted(&self, id: KeyId) -> Option<Key> {
        self.state.read().served.iter().find(|key| key.id == id).cloned()
    }

    /// Returns the newest key for a server of this cluster that accepts these keys, if it is known
    /// without reading files.
    ///
    /// # Errors
    /// This process belongs to another cluster.
    pub fn known(&self, cluster: ClusterId, accepted: &[KeyId]) -> Result<Option<Key>, KeyError> {
        let state = self.state.read();
        match state.cluster() {
            Some(own) if own != cluster => Err(KeyError::OtherCluster { theirs: cluster, own }),
            _ => Ok(newest(state.served.iter().chain(&state.used), accepted).cloned()),
        }
    }

    /// Searches the directories for the newest key for a server of this cluster that accepts these
    /// keys. `None`: this process has none. Reads files.
    ///
    /// # Errors
    /// There is none, and a key file of the cluster is not usable.
    pub fn find(&self, cluster: ClusterId, accepted: &[KeyId]) -> Result<Option<Key>, KeyError> {
        let (mut found, mut unusable) = (Vec::new(), None);
        for dir in &self.dirs {
            let listing = list(dir, Some(cluster));
            found.extend(listing.found.into_iter().map(|found| found.key));
            // Other users' directories are no news.
            unusable = unusable.or(listing.unusable.into_iter().find(|error| !error.is_denied_directory(dir)));
        }
        match newest(&found, accepted) {
            Some(key) => Ok(Some(key.clone())),
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
            Some(_) | None => {}
        }
        if !state.served.iter().chain(&state.used).any(|known| known.id == key.id) {
            state.used.push(key.clone());
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

/// Returns the newest of the keys that is accepted.
fn newest<'a>(keys: impl IntoIterator<Item = &'a Key>, accepted: &[KeyId]) -> Option<&'a Key> {
    keys.into_iter().filter(|key| accepted.contains(&key.id)).max_by_key(|key| (key.created, key.id))
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
        let all = [1, 2, 3, 4].map(KeyId);
        assert_eq!(ring.find(ClusterId(1), &all).unwrap(), Some(key(1, 2, 30)));
        assert_eq!(ring.find(ClusterId(1), &[KeyId(1), KeyId(3)]).unwrap(), Some(key(1, 3, 20)), "2 is not accepted");
        assert_eq!(ring.find(ClusterId(2), &all).unwrap(), Some(key(2, 4, 40)));
        assert_eq!(ring.find(ClusterId(3), &all).unwrap(), None);
        assert_eq!((ring.cluster(), ring.accepted(KeyId(2))), (None, None), "a client accepts none");
    }

    #[test]
    fn client_belongs_to_the_cluster_of_its_first_server() {
        let ring = with_dirs(&[]);
        let known = |cluster| ring.known(ClusterId(cluster), &[KeyId(1), KeyId(2)]);
        assert_eq!(known(1).unwrap(), None);
        ring.confirmed(&key(1, 1, 10)).unwrap();
        assert_eq!(known(1).unwrap(), Some(key(1, 1, 10)), "without a file");
        assert_eq!(ring.known(ClusterId(1), &[KeyId(2)]).unwrap(), None, "the server does not accept it");
        assert!(matches!(known(2), Err(KeyError::OtherCluster { .. })));
        assert!(ring.confirmed(&key(2, 2, 20)).is_err(), "its handshake began before");
        assert_eq!(known(1).unwrap(), Some(key(1, 1, 10)));
        ring.confirmed(&key(1, 2, 20)).unwrap();
        assert_eq!(known(1).unwrap(), Some(key(1, 2, 20)), "a newer one");
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
        assert!(again.known(ClusterId(2), &[KeyId(1)]).is_err(), "a directory belongs to one cluster");
    }

    #[test]
    fn refresh_accepts_new_keys_and_withdraws_removed_ones() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (key(1, 1, 10), key(1, 2, 20));
        let ring = Keyring::default();
        assert_eq!(ring.refresh().unwrap(), None, "it serves nothing");
        ring.serve(dir.path(), None, || old.clone(), |_| {}).unwrap();
        assert_eq!(ring.refresh().unwrap(), None);
        store(dir.path(), &new).unwrap();
        let added = Refreshed { added: vec![new.id], withdrawn: vec![] };
        assert_eq!(ring.refresh().unwrap(), Some(added));
        assert_eq!(ring.accepted_ids(), [new.id, old.id]);
        std::fs::remove_file(dir.path().join(old.file_name())).unwrap();
        let withdrawn = Refreshed { added: vec![], withdrawn: vec![old.id] };
        assert_eq!(ring.refresh().unwrap(), Some(withdrawn));
        assert_eq!((ring.accepted(old.id), ring.accepted(new.id)), (None, Some(new.clone())));
        assert_eq!(ring.known(ClusterId(1), &[old.id]).unwrap(), None);
        std::fs::remove_file(dir.path().join(new.file_name())).unwrap();
        assert_eq!(ring.refresh().unwrap(), None, "an empty directory shuts nobody out");
        store(dir.path(), &key(2, 3, 30)).unwrap();
        assert!(ring.refresh().is_err(), "a key of another cluster");
        assert_eq!(ring.accepted_ids(), [new.id]);
    }

    #[test]
    fn keys_of_the_mgs_are_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let user = dir.path().join("user");
        let ring = Keyring::default();
        let made = ring.serve(dir.path(), Some(&user), || key(1, 1, 10), |e| panic!("{e}")).unwrap();
        assert_eq!(made, Some(dir.path().join(key(1, 1, 10).file_name())));
        assert_eq!(with_dirs(&[&user]).find(ClusterId(1), &[KeyId(1)]).unwrap(), Some(key(1, 1, 10)));
        let ring = Keyring::default();
        let made = ring.serve(dir.path(), Some(&user), || unreachable!("a key exists"), |e| panic!("{e}")).unwrap();
        assert_eq!((made, ring.cluster()), (None, Some(ClusterId(1))));
        store(dir.path(), &key(2, 2, 10)).unwrap();
        let several = Keyring::default().serve(dir.path(), None, || unreachable!("a key exists"), |_| {});
        assert!(matches!(several, Err(KeyError::SeveralClusters(_))));
    }
}
