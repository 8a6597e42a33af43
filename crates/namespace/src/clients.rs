//! The durable list of clients: those for which a restarted MDT waits before it accepts changes.
//!
//! A client is on the list before the MDT answers its first change, or grants it a lock. Otherwise
//! a crash could lose both, and another client could make a change that conflicts with the lost one
//! before this client replays it. Or this client could answer from a cache that is outdated.
//!
//! After a clean stop ([`crate::Namespace::stop`]) nothing has to be replayed, because everything
//! is committed. The list then only says which clients may still have files open.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Store, StoreError, key,
    record::encode,
    table_scan::for_each_in,
    tables::{Tables, read},
};

/// The clients on the list.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Whether each client is connected to this life of the MDT.
    listed: BTreeMap<String, bool>,
    /// Clients that are connected and not on the list, because the recovery did not wait for them.
    /// They may still resend requests.
    dropped: BTreeSet<String>,
    /// The MDT crashed, and its clients may have changes to replay.
    pub(crate) recovering: bool,
}

impl Clients {
    /// Reads the list. From the first commit on, a stop counts as a crash until
    /// [`Clients::stopped`].
    pub(crate) fn open<S: Store>(tables: &mut Tables<S>) -> Result<Clients, StoreError> {
        let mut listed = BTreeMap::new();
        for_each_in(tables.store(), key::CLIENTS, |key, _| {
            let corrupt = || StoreError::Corrupt { key: format!("{key:02x?}"), why: "malformed key".into() };
            listed.insert(key::client_of(key).ok_or_else(corrupt)?.to_owned(), false);
            Ok(())
        })?;
        let was_clean = read::<()>(tables.store(), key::CLEAN)?.is_some();
        if was_clean {
            tables.set_raw(key::CLEAN.to_vec(), None);
        }
        let recovering = !was_clean && !listed.is_empty();
        Ok(Clients { listed, dropped: BTreeSet::new(), recovering })
    }

    /// Records in the next batch, the last one, that nothing has to be replayed.
    pub(crate) fn stopped<S: Store>(tables: &mut Tables<S>) {
        // Encoding nothing does not fail.
        tables.set_raw(key::CLEAN.to_vec(), encode(&(), Vec::new()).ok());
    }

    /// Puts a client on the list with the next batch. Returns false if it is there already, or has
    /// no name that the store can hold.
    pub(crate) fn list<S: Store>(&mut self, tables: &mut Tables<S>, client: &str) -> bool {
        let Some(key) = key::client(client) else { return false };
        if self.listed.insert(client.to_owned(), true).is_some() {
            return false;
        }
        tables.set_raw(key, encode(&(), Vec::new()).ok());
        self.dropped.remove(client);
        true
    }

    /// Takes a client off the list with the next batch, because the recovery does not wait for it.
    pub(crate) fn drop_client<S: Store>(&mut self, tables: &mut Tables<S>, client: &str) {
        let is_back = self.is_back(client);
        self.remove(tables, client);
        if is_back {
            self.dropped.insert(client.to_owned());
        }
    }

    /// Records that a client has connected. Returns whether it is on the list.
    pub(crate) fn returned(&mut self, client: &str) -> bool {
        let listed = self.listed.get_mut(client);
        listed.map(|is_back| *is_back = true).is_some()
    }

    /// Takes a client off the list with the next batch.
    pub(crate) fn remove<S: Store>(&mut self, tables: &mut Tables<S>, client: &str) {
        self.dropped.remove(client);
        if self.listed.remove(client).is_some()
            && let Some(key) = key::client(client)
        {
            tables.set_raw(key, None);
        }
    }

    /// Returns all clients on the list.
    pub(crate) fn names(&self) -> Vec<String> {
        self.listed.keys().cloned().collect()
    }

    /// Returns whether a client is on the list and connected to this life of the MDT.
    pub(crate) fn is_back(&self, client: &str) -> bool {
        self.listed.get(client).is_some_and(|is_back| *is_back)
    }

    /// Returns whether a client may resend requests to this life of the MDT.
    pub(crate) fn is_connected(&self, client: &str) -> bool {
        self.is_back(client) || self.dropped.contains(client)
    }
}
