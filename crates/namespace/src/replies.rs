//! Requests that the MDT has executed and whose client may not have the reply.
//!
//! A client that lost its connection resends requests without a reply. If the MDT was killed after
//! the commit of a change and before its reply, the next life of the MDT gets a request whose
//! change is there already. Executed again, an unlink or a rename would fail, and a setattr would
//! undo a later one of another client. So the batch of the change also holds the request's xid and
//! transno ([`crate::Namespace::execute_from`]).
//!
//! Replies themselves are not stored. They are empty, or have the attributes of one file. Then the
//! client gets its present attributes, which it may cache.
//!
//! A resent create or open for creation finds its own file, because clients choose the FIDs. It is
//! recorded all the same: if another client has removed the file since, it is not made again. An
//! `O_TMPFILE` is not recorded, because nobody else can have removed its file.
//!
//! Invariants:
//! * The store has one record of a client, with the requests that it had not acknowledged at its
//!   last change. At most [`UNACKNOWLEDGED_MAX`] requests; beyond that the earliest is forgotten.
//! * A record changes once per batch, when the batch is sealed ([`Replies::flush`]).
//! * A record is dropped when its client disconnects, and when recovery ends without the client.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Store, StoreError, key,
    record::{decode, encode},
    table_scan::for_each_in,
    tables::Tables,
};

/// Maximum number of requests remembered of one client: twice the largest number in flight.
const UNACKNOWLEDGED_MAX: usize = 512;

/// The identity of a request over all lives of the MDT.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Uuid of the client.
    pub client: &'a str,
    /// Number of the request, unique among those of the client.
    pub xid: u64,
    /// The client has the replies to all its requests up to this xid.
    pub acknowledged: u64,
}

/// The requests of all clients.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// Transnos by xid, of each client.
    executed: BTreeMap<String, BTreeMap<u64, u64>>,
    /// Clients with requests that are in no sealed batch.
    changed: BTreeSet<String>,
}

impl Replies {
    /// Reads the records from the store.
    pub(crate) fn open<S: Store>(store: &S) -> Result<Replies, StoreError> {
        let mut clients = BTreeMap::new();
        for_each_in(store, key::REPLIES, |key, value| {
            let corrupt = || StoreError::Corrupt { key: format!("{key:02x?}"), why: "malformed key".into() };
            let client = key::client_of(key).ok_or_else(corrupt)?;
            let executed: Vec<(u64, u64)> = decode(key, value)?;
            clients.insert(client.to_owned(), executed.into_iter().collect());
            Ok(())
        })?;
        Ok(Replies { executed: clients, changed: BTreeSet::new() })
    }

    /// Processes a request's arrival. Returns the transno of its change if it was executed already.
    pub(crate) fn begin(&mut self, origin: &Origin) -> Option<u64> {
        let executed = self.executed.get_mut(origin.client)?;
        *executed = executed.split_off(&origin.acknowledged.saturating_add(1));
        executed.get(&origin.xid).copied()
    }

    /// Records an executed request. It goes into the batch of its change.
    pub(crate) fn executed(&mut self, origin: &Origin, transno: u64) {
        if !self.changed.contains(origin.client) {
            self.changed.insert(origin.client.to_owned());
        }
        let executed = match self.executed.get_mut(origin.client) {
            Some(executed) => executed,
            None => self.executed.entry(origin.client.to_owned()).or_default(),
        };
        executed.insert(origin.xid, transno);
        if executed.len() > UNACKNOWLEDGED_MAX
            && let Some(earliest) = executed.iter().min_by_key(|(_, transno)| **transno)
        {
            let xid = *earliest.0;
            executed.remove(&xid);
        }
    }

    /// Writes the records of all clients with new requests into the batch that is about to be
    /// sealed.
    pub(crate) fn flush<S: Store>(&mut self, tables: &mut Tables<S>) -> Result<(), StoreError> {
        for client in std::mem::take(&mut self.changed) {
            let (Some(key), Some(executed)) = (key::replies(&client), self.executed.get(&client)) else { continue };
            let pairs: Vec<(u64, u64)> = executed.iter().map(|(xid, transno)| (*xid, *transno)).collect();
            tables.set_raw(key, Some(encode(&pairs, Vec::new())?));
        }
        Ok(())
    }

    /// Forgets a client's requests with the next batch.
    pub(crate) fn forget<S: Store>(&mut self, tables: &mut Tables<S>, client: &str) {
        self.changed.remove(client);
        if self.executed.remove(client).is_some()
            && let Some(key) = key::replies(client)
        {
            tables.set_raw(key, None);
        }
    }

    /// Forgets the requests of all clients but these.
    pub(crate) fn forget_except<S: Store>(&mut self, tables: &mut Tables<S>, stays: impl Fn(&str) -> bool) {
        for client in self.executed.keys().filter(|client| !stays(client)).cloned().collect::<Vec<_>>() {
            self.forget(tables, &client);
        }
    }
}
