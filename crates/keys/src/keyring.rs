//! The keys that a process uses and accepts.
//!
//! Invariants:
//! * A process belongs to one cluster. A server of another cluster is refused, even if this user
//!   has a key for it. Otherwise anybody who shares one key with the user could answer in place of
//!   any server. The cluster is that of the keys in the server's directory. Without such keys it is
//!   that of the first server that proves to know a key, or that runs as a trusted user and issues
//!   one: the MGS.
//! * A server accepts only the keys of its own cluster, and those that they have issued. A new MDS
//!   or OSS learns the key from its connection to the MGS, and stores it beside its data.
//!   Afterwards it needs neither the MGS nor the user's directory to know it.
//! * While servers accept a key that this process has used, a client reads no file: the keys may
//!   lie on the file system itself.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    path::{Path, PathBuf},
};

use parking_lot::{Mutex, RwLock};
use sheen_wire::auth::{Claim, ClusterId, KEYS_MAX, KeyId, Role};

use crate::{
    Key, KeyError, Signer,
    dir::{Found, Listing, list, record_applicant, record_of, search_dirs, store, withdraw},
};

/// The keys of a process.
#[derive(Debug, Default)]
pub struct Keyring {
    state: RwLock<State>,
    /// Held while a key is issued.
    issuing: Mutex<()>,
    /// Directories with keys for other servers.
    dirs: Vec<PathBuf>,
}

#[derive(Debug, Default)]
struct State {
    /// The keys that this process accepts as a server, the oldest first. All have one cluster.
    served: Vec<Key>,
    /// Further keys that servers proved to know.
    used: Vec<Key>,
    /// Creation time of the newest such key, and the keys that all its servers accepted.
    newest: Option<(i64, Vec<KeyId>)>,
    /// Issued keys that this process refuses as a server.
    withdrawn: BTreeSet<KeyId>,
    /// Issued keys that a server has refused.
    refused: BTreeSet<KeyId>,
    /// A server has issued a key to this process.
    has_received: bool,
    /// The directory of the served keys.
    dir: Option<PathBuf>,
    /// The directory for the key by which the MGS accepts this server.
    learns: Option<PathBuf>,
}

impl State {
    /// Returns whether a server may prove itself by this key: not if it is older than the newest
    /// that was used, and was withdrawn since.
    fn trusts(&self, key: &Key) -> bool {
        let is_new =
            |(created, accepted): &(i64, Vec<KeyId>)| key.created >= *created || accepted.contains(&key.root());
        self.newest.as_ref().is_none_or(is_new)
    }

    /// Returns the key to use for a server that accepts these: one that no server has refused, then
    /// that with the most authority, then the newest. An administrator may have keys that are meant
    /// for others.
    ///
    /// A refusal is not authenticated. So a refused key is used if there is no other one.
    fn best<'a>(&self, keys: impl IntoIterator<Item = &'a Key>, accepted: &[KeyId]) -> Option<&'a Key> {
        keys.into_iter().filter(|key| self.trusts(key) && accepted.contains(&key.root())).max_by_key(|key| {
            let authority = match key.role() {
                Role::Server => 2,
                Role::Host(_) => 1,
                Role::User(_) => 0,
            };
            (!self.refused.contains(&key.id), authority, key.created, key.id)
        })
    }

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
    /// Why a further file is not usable.
    pub unusable: Option<String>,
}

impl Keyring {
    /// Returns the keyring of a process of this user. It serves nothing yet.
    pub fn of_user() -> Keyring {
        Keyring { dirs: search_dirs(), ..Keyring::default() }
    }

    /// Returns a keyring of these keys alone. All have one cluster.
    pub fn of(keys: Vec<Key>) -> Keyring {
        Keyring { state: RwLock::new(State { served: keys, ..State::default() }), ..Keyring::default() }
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
        let (mut keys, withdrawn) = keys_of_one_cluster(dir)?;
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
        (state.served, state.withdrawn) = (keys, withdrawn);
        Ok(made)
    }

    /// Serves the keys in `dir`, a directory of an MDS or OSS. If there is none, this process
    /// learns the key by which the MGS accepts it ([`Keyring::store_learned`]).
    ///
    /// # Errors
    /// A key cannot be read, or the keys belong to several clusters.
    pub fn serve_as_member(&self, dir: &Path) -> Result<(), KeyError> {
        let (keys, withdrawn) = keys_of_one_cluster(dir)?;
        let mut state = self.state.write();
        state.learns = keys.is_empty().then(|| dir.to_owned());
        state.dir = Some(dir.to_owned());
        (state.served, state.withdrawn) = (keys, withdrawn);
        Ok(())
    }

    /// Reads the directory of the served keys again. Returns the changes; `None`: there are none.
    /// If no key is there any more, the process accepts its keys until it ends. So it does with a
    /// key whose file cannot be read at the moment. Keys of another cluster are ignored.
    pub fn refresh(&self) -> Option<Refreshed> {
        let dir = self.state.read().dir.clone()?;
        let Listing { found, unusable, withdrawn } = list(&dir, self.cluster());
        let mut keys = own_keys(found);
        let unusable = unusable.first().map(KeyError::to_string);
        let mut state = self.state.write();
        if unusable.is_some() {
            let exists = |key: &&Key| dir.join(key.file_name()).exists() && keys.iter().all(|found| found.id != key.id);
            let unread: Vec<Key> = state.served.iter().filter(exists).cloned().collect();
            keys.extend(unread);
            keys.sort_by_key(|key| (key.created, key.id));
        }
        // A file that cannot be listed at the moment withdraws no less.
        let revoked: Vec<KeyId> = withdrawn.difference(&state.withdrawn).copied().collect();
        state.withdrawn.extend(&revoked);
        if revoked.is_empty() && (keys.is_empty() || state.learns.is_some() || state.served == keys) {
            return unusable.map(|unusable| Refreshed { unusable: Some(unusable), ..Refreshed::default() });
        }
        if keys.is_empty() || state.learns.is_some() {
            return Some(Refreshed { added: Vec::new(), withdrawn: revoked, unusable });
        }
        let ids = |keys: &[Key]| keys.iter().map(|key| key.id).collect::<BTreeSet<KeyId>>();
        let (before, after) = (ids(&state.served), ids(&keys));
        state.used.retain(|key| !before.contains(&key.root()) || after.contains(&key.root()));
        state.served = keys;
        let added = after.difference(&before).copied().collect();
        let withdrawn = before.difference(&after).copied().chain(revoked).collect();
        Some(Refreshed { added, withdrawn, unusable })
    }

    /// Returns the issued keys that were withdrawn here, sorted.
    pub fn withdrawn(&self) -> Vec<KeyId> {
        self.state.read().withdrawn.iter().copied().collect()
    }

    /// Withdraws issued keys in the directory of the served keys, as the MGS has done. The next
    /// [`Keyring::refresh`] notices it.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn withdraw_as(&self, mgs: &[KeyId]) -> Result<(), KeyError> {
        let (dir, known) = {
            let state = self.state.read();
            (state.dir.clone(), state.withdrawn.clone())
        };
        let Some(dir) = dir else { return Ok(()) };
        mgs.iter().filter(|key| !known.contains(key)).try_for_each(|key| withdraw(&dir, *key).map(drop))
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

    /// Returns the key that a client claims to have, if this process accepts it as a server.
    pub fn claimed(&self, claim: &Claim) -> Option<Key> {
        if !self.accepts(claim) {
            return None;
        }
        let state = self.state.read();
        let key = state.served.iter().find(|key| key.id == claim.key)?;
        match &claim.issued {
            None => Some(key.clone()),
            Some(issued) => key.issue(issued.clone(), key.created).ok(),
        }
    }

    /// Returns whether this process accepts the key that a client claims to have.
    pub fn accepts(&self, claim: &Claim) -> bool {
        let state = self.state.read();
        let is_withdrawn = claim.issued.as_ref().is_some_and(|issued| state.withdrawn.contains(&issued.id));
        !is_withdrawn && state.served.iter().any(|key| key.id == claim.key)
    }

    /// Returns the signer for a purpose, with the keys that this process accepts as a server.
    pub fn signer(&self, purpose: &[u8]) -> Signer {
        Signer::new(&self.state.read().served, purpose)
    }

    /// Returns the best key for a server of this cluster that accepts these keys, if it is known
    /// without reading files, and no server has refused it.
    ///
    /// # Errors
    /// This process belongs to another cluster.
    pub fn known(&self, cluster: ClusterId, accepted: &[KeyId]) -> Result<Option<Key>, KeyError> {
        let state = self.state.read();
        match state.cluster() {
            Some(own) if own != cluster => Err(KeyError::OtherCluster { theirs: cluster, own }),
            _ => {
                let best = state.best(state.served.iter().chain(&state.used), accepted);
                Ok(best.filter(|key| !state.refused.contains(&key.id)).cloned())
            }
        }
    }

    /// Returns the best key for a server of this cluster that accepts these keys: of those in the
    /// directories, and of those that were used. `None`: this process has none. Reads files.
    ///
    /// # Errors
    /// There is none, and a key file of the cluster is not usable. [`KeyError::NotForServers`]:
    /// this process is a server, and the key was issued.
    pub fn find(&self, cluster: ClusterId, accepted: &[KeyId]) -> Result<Option<Key>, KeyError> {
        let (mut found, mut unusable) = (Vec::new(), None);
        for dir in &self.dirs {
            let listing = list(dir, Some(cluster));
            found.extend(listing.found.into_iter().map(|found| found.key));
            // Other users' directories are no news.
            unusable = unusable.or(listing.unusable.into_iter().find(|error| !error.is_denied_directory(dir)));
        }
        let state = self.state.read();
        // A server speaks to others by a key of the cluster only.
        let is_server = state.dir.is_some();
        match state.best(found.iter().chain(&state.used), accepted) {
            Some(key) if is_server && key.issue.is_some() => Err(KeyError::NotForServers(key.id)),
            Some(key) => Ok(Some(key.clone())),
            None => unusable.map_or(Ok(None), Err),
        }
    }

    /// Records that a server refused this issued key: it was withdrawn, unless the server is an
    /// impostor. Another one is used, if there is one.
    pub fn refused(&self, key: &Key) {
        if key.issue.is_some() {
            self.state.write().refused.insert(key.id);
        }
    }

    /// Issues a key to a client that has applied for one, by the newest key that this process
    /// serves, and records it in its directory. `host`: the client's. Returns whether it is the
    /// first time.
    ///
    /// # Errors
    /// [`KeyError::Withdrawn`]: a key that this user, or host, got so was withdrawn.
    /// [`KeyError::CannotIssue`]: the role has too many groups. Otherwise this process has no key
    /// yet, or the record cannot be read or written.
    pub fn issue(&self, role: Role, host: IpAddr) -> Result<(Key, bool), KeyError> {
        let _one_at_a_time = self.issuing.lock();
        let (key, dir, withdrawn) = {
            let state = self.state.read();
            let newest = state.served.iter().filter(|key| key.issue.is_none()).max_by_key(|key| (key.created, key.id));
            let key = newest.ok_or(KeyError::NoKeyYet)?.issue_to_applicant(role, host)?;
            (key, state.dir.clone(), state.withdrawn.clone())
        };
        let Some(dir) = dir else { return Ok((key, true)) };
        for id in withdrawn {
            // With other groups, or by another key of the cluster, it had another id.
            if id == key.id || record_of(&dir, id)?.is_some_and(|record| record.is_same_applicant(&key, host)) {
                return Err(KeyError::Withdrawn(id));
            }
        }
        let is_first = record_of(&dir, key.id)?.is_none();
        if is_first {
            record_applicant(&dir, &key, host)?;
        }
        Ok((key, is_first))
    }

    /// Adds a key that a server has issued to this process.
    ///
    /// # Errors
    /// Meanwhile this process belongs to another cluster.
    pub fn received(&self, key: Key) -> Result<(), KeyError> {
        let mut state = self.state.write();
        if let Some(own) = state.cluster().filter(|own| *own != key.cluster) {
            return Err(KeyError::OtherCluster { theirs: key.cluster, own });
        }
        state.has_received = true;
        state.refused.remove(&key.id);
        if state.used.iter().all(|known| known.id != key.id) {
            state.used.push(key);
        }
        Ok(())
    }

    /// Returns whether a server has issued a key to this process.
    pub fn has_received(&self) -> bool {
        self.state.read().has_received
    }

    /// Records that a server proved to know this key, and that it accepts these keys. From now on
    /// this process belongs to its cluster, and a new MDS or OSS accepts the key.
    ///
    /// # Errors
    /// Meanwhile this process belongs to another cluster.
    pub fn confirmed(&self, key: &Key, accepted: &[KeyId]) -> Result<(), KeyError> {
        let mut state = self.state.write();
        if let Some(own) = state.cluster().filter(|own| *own != key.cluster) {
            return Err(KeyError::OtherCluster { theirs: key.cluster, own });
        }
        if state.learns.is_some() && key.issue.is_some() {
            return Err(KeyError::NotForServers(key.id));
        }
        state.refused.remove(&key.id);
        match &mut state.newest {
            Some((created, _)) if key.created < *created => {}
            Some((created, all)) if key.created == *created => all.retain(|id| accepted.contains(id)),
            newest => *newest = Some((key.created, accepted.to_owned())),
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

/// Returns the keys of the cluster itself: a server does not serve by an issued one.
fn own_keys(found: Vec<Found>) -> Vec<Key> {
    found.into_iter().map(|found| found.key).filter(|key| key.issue.is_none()).collect()
}

/// Returns the keys in a server's directory, and the issued keys that were withdrawn there.
fn keys_of_one_cluster(dir: &Path) -> Result<(Vec<Key>, BTreeSet<KeyId>), KeyError> {
    let mut listing = list(dir, None);
    let withdrawn = std::mem::take(&mut listing.withdrawn);
    let keys = own_keys(listing.complete()?);
    match keys.windows(2).all(|pair| pair[0].cluster == pair[1].cluster) {
        true => Ok((keys, withdrawn)),
        false => Err(KeyError::SeveralClusters(dir.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::auth::{Issued, User};

    use super::*;

    fn key(cluster: u64, id: u64, created: i64) -> Key {
        Key::new(ClusterId(cluster), id, [id as u8; 32], created)
    }

    fn accepted(ring: &Keyring, id: KeyId) -> Option<Key> {
        ring.claimed(&Claim { key: id, issued: None })
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
        assert_eq!((ring.cluster(), accepted(&ring, KeyId(2))), (None, None), "a client accepts none");
    }

    #[test]
    fn client_belongs_to_the_cluster_of_its_first_server() {
        let ring = with_dirs(&[]);
        let known = |cluster| ring.known(ClusterId(cluster), &[KeyId(1), KeyId(2)]);
        assert_eq!(known(1).unwrap(), None);
        ring.confirmed(&key(1, 1, 10), &[KeyId(1)]).unwrap();
        assert_eq!(known(1).unwrap(), Some(key(1, 1, 10)), "without a file");
        assert_eq!(ring.known(ClusterId(1), &[KeyId(2)]).unwrap(), None, "the server does not accept it");
        assert!(matches!(known(2), Err(KeyError::OtherCluster { .. })));
        assert!(ring.confirmed(&key(2, 2, 20), &[KeyId(2)]).is_err(), "its handshake began before");
        assert_eq!(known(1).unwrap(), Some(key(1, 1, 10)));
        ring.confirmed(&key(1, 2, 20), &[KeyId(1), KeyId(2)]).unwrap();
        assert_eq!(known(1).unwrap(), Some(key(1, 2, 20)), "a newer one");
    }

    #[test]
    fn members_accept_and_store_the_key_of_their_mgs() {
        let data = tempfile::tempdir().unwrap();
        let ring = with_dirs(&[]);
        ring.serve_as_member(data.path()).unwrap();
        assert_eq!(ring.cluster(), None);
        ring.confirmed(&key(1, 1, 10), &[KeyId(1)]).unwrap();
        ring.confirmed(&key(1, 2, 20), &[KeyId(1), KeyId(2)]).unwrap();
        assert_eq!((ring.cluster(), accepted(&ring, KeyId(1))), (Some(ClusterId(1)), Some(key(1, 1, 10))));
        assert_eq!(accepted(&ring, KeyId(2)), None, "the first server is the MGS");
        assert!(list(data.path(), None).found.is_empty(), "it is not registered yet");
        ring.store_learned().unwrap();
        let again = with_dirs(&[]);
        again.serve_as_member(data.path()).unwrap();
        assert_eq!(accepted(&again, KeyId(1)), Some(key(1, 1, 10)));
        assert!(again.known(ClusterId(2), &[KeyId(1)]).is_err(), "a directory belongs to one cluster");
    }

    #[test]
    fn refresh_accepts_new_keys_and_withdraws_removed_ones() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (key(1, 1, 10), key(1, 2, 20));
        let ring = Keyring::default();
        assert_eq!(ring.refresh(), None, "it serves nothing");
        ring.serve(dir.path(), None, || old.clone(), |_| {}).unwrap();
        assert_eq!(ring.refresh(), None);
        store(dir.path(), &new).unwrap();
        let added = Refreshed { added: vec![new.id], withdrawn: vec![], unusable: None };
        assert_eq!(ring.refresh(), Some(added));
        assert_eq!(ring.accepted_ids(), [new.id, old.id]);
        std::fs::remove_file(dir.path().join(old.file_name())).unwrap();
        let withdrawn = Refreshed { added: vec![], withdrawn: vec![old.id], unusable: None };
        assert_eq!(ring.refresh(), Some(withdrawn));
        assert_eq!((accepted(&ring, old.id), accepted(&ring, new.id)), (None, Some(new.clone())));
        assert_eq!(ring.known(ClusterId(1), &[old.id]).unwrap(), None);
        std::fs::remove_file(dir.path().join(new.file_name())).unwrap();
        assert_eq!(ring.refresh(), None, "an empty directory shuts nobody out");
        store(dir.path(), &key(2, 3, 30)).unwrap();
        assert_eq!(ring.refresh(), None, "a key of another cluster");
        assert_eq!(ring.accepted_ids(), [new.id]);
    }

    #[test]
    fn refresh_withdraws_keys_beside_a_file_that_is_not_usable() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (key(1, 1, 10), key(1, 2, 20));
        let ring = Keyring::default();
        store(dir.path(), &new).unwrap();
        ring.serve(dir.path(), None, || unreachable!("a key exists"), |_| {}).unwrap();
        store(dir.path(), &old).unwrap();
        assert_eq!(ring.refresh().unwrap().added, [old.id]);
        let expose = |key: &Key| {
            let mode = std::fs::Permissions::from_mode(0o644);
            std::fs::set_permissions(dir.path().join(key.file_name()), mode).unwrap();
        };
        expose(&new);
        let refreshed = ring.refresh().unwrap();
        assert!(refreshed.unusable.unwrap().contains("can be read by others"));
        assert_eq!((refreshed.withdrawn, ring.accepted_ids()), (vec![], vec![new.id, old.id]), "its file exists");
        std::fs::remove_file(dir.path().join(old.file_name())).unwrap();
        assert_eq!((ring.refresh().unwrap().withdrawn, ring.accepted_ids()), (vec![old.id], vec![new.id]));
    }

    #[test]
    fn older_key_is_not_trusted_once_a_server_has_withdrawn_it() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (key(1, 1, 10), key(1, 2, 20));
        store(dir.path(), &old).unwrap();
        let ring = with_dirs(&[dir.path()]);
        let offered = [old.id];
        ring.confirmed(&old, &offered).unwrap();
        ring.confirmed(&new, &[old.id, new.id]).unwrap();
        assert_eq!(ring.known(ClusterId(1), &offered).unwrap(), Some(old.clone()), "another server has no newer one");
        ring.confirmed(&new, &[new.id]).unwrap();
        assert_eq!(ring.known(ClusterId(1), &offered).unwrap(), None);
        assert_eq!(ring.find(ClusterId(1), &offered).unwrap(), None);
        assert_eq!(ring.known(ClusterId(1), &[old.id, new.id]).unwrap(), Some(new));
    }

    #[test]
    fn issued_key_is_accepted_until_it_or_its_issuer_is_withdrawn() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (key(1, 1, 10), key(1, 2, 20));
        let issue = |by: &Key, id| by.issue(Issued { id: KeyId(id), role: Role::Host(None) }, 30).unwrap();
        let (one, two, three) = (issue(&old, 7), issue(&old, 8), issue(&new, 9));
        let ring = Keyring::default();
        ring.serve(dir.path(), None, || old.clone(), |_| {}).unwrap();
        let accepted = |key: &Key| ring.claimed(&key.claim()).map(|found| found.secret);
        assert_eq!((accepted(&one), accepted(&two)), (Some(one.secret.clone()), Some(two.secret.clone())));
        assert_eq!(accepted(&three), None);
        withdraw(dir.path(), one.id).unwrap();
        assert_eq!(ring.refresh().unwrap().withdrawn, [one.id]);
        assert_eq!((accepted(&one), accepted(&two)), (None, Some(two.secret.clone())));
        assert_eq!(ring.refresh(), None);
        let again = Keyring::default();
        again.serve(dir.path(), None, || unreachable!("a key exists"), |_| {}).unwrap();
        assert_eq!(again.claimed(&one.claim()), None, "after a restart");
        store(dir.path(), &new).unwrap();
        std::fs::remove_file(dir.path().join(old.file_name())).unwrap();
        ring.refresh().unwrap();
        assert_eq!((accepted(&two), accepted(&three)), (None, Some(three.secret.clone())));
    }

    #[test]
    fn refused_key_is_used_only_if_there_is_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let root = key(1, 1, 10);
        let issue = |id| root.issue(Issued { id: KeyId(id), role: Role::Host(None) }, 30).unwrap();
        let (one, other) = (issue(7), issue(8));
        let ring = with_dirs(&[dir.path()]);
        ring.confirmed(&one, &[root.id]).unwrap();
        let known = || ring.known(ClusterId(1), &[root.id]).unwrap().map(|key| key.id);
        let found = || ring.find(ClusterId(1), &[root.id]).unwrap().map(|key| key.id);
        ring.refused(&one);
        assert_eq!((known(), found()), (None, Some(one.id)), "files are searched; an impostor may have refused it");
        store(dir.path(), &other).unwrap();
        assert_eq!(found(), Some(other.id));
        ring.confirmed(&one, &[root.id]).unwrap();
        assert_eq!(known(), Some(one.id));
    }

    #[test]
    fn client_with_an_issued_key_uses_it_with_servers_that_accept_the_issuer() {
        let dir = tempfile::tempdir().unwrap();
        let root = key(1, 1, 10);
        let issue = |id, role| root.issue(Issued { id: KeyId(id), role }, 30).unwrap();
        let (host, user) =
            (issue(7, Role::Host(None)), issue(8, Role::User(User { uid: 5, gid: 5, groups: vec![], nodemap: None })));
        let ring = with_dirs(&[dir.path()]);
        let found = |accepted| ring.find(ClusterId(1), &[KeyId(accepted)]).unwrap().map(|key| key.id);
        for key in [&user, &host, &root] {
            store(dir.path(), key).unwrap();
            assert_eq!((found(1), found(2)), (Some(key.id), None), "that with the most authority");
        }
        ring.confirmed(&user, &[root.id]).unwrap();
        assert_eq!(ring.known(ClusterId(1), &[root.id]).unwrap(), Some(user.clone()));
        let member = with_dirs(&[]);
        member.serve_as_member(&dir.path().join("keys")).unwrap();
        assert!(matches!(member.confirmed(&user, &[root.id]), Err(KeyError::NotForServers(_))));
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
