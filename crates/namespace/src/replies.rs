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
//! Creates are not recorded. Clients choose the FIDs, so a resent create finds its own file.
//!
//! Invariants:
//! * The store has one record of a client, with the requests that it had not acknowledged at its
//!   last change. At most [`UNACKNOWLEDGED_MAX`] requests; beyond that the earliest is forgotten.
//! * A record is dropped when its client disconnects, and when recovery ends without the client.

use std::collections::BTreeMap;

use crate::{
    Store, StoreError, key,
    record::{decode, encode},
    tables::{Tables, for_each_in},
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

/// The requests of each client: transnos by xid.
#[derive(Debug, Default)]
pub(crate) struct Replies(BTreeMap<String, BTreeMap<u64, u64>>);

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
        Ok(Replies(clients))
    }

    /// Processes a request's arrival. Returns the transno of its change if it was executed already.
    pub(crate) fn begin(&mut self, origin: &Origin) -> Option<u64> {
        let executed = self.0.get_mut(origin.client)?;
        *executed = executed.split_off(&origin.acknowledged.saturating_add(1));
        executed.get(&origin.xid).copied()
    }

    /// Records an executed request in the batch of its change.
    pub(crate) fn executed<S: Store>(&mut self, tables: &mut Tables<S>, origin: &Origin, transno: u64) {
        let Some(key) = key::replies(origin.client) else { return };
        let executed = self.0.entry(origin.client.to_owned()).or_default();
        executed.insert(origin.xid, transno);
        if executed.len() > UNACKNOWLEDGED_MAX
            && let Some(earliest) = executed.iter().min_by_key(|(_, transno)| **transno)
        {
            let xid = *earliest.0;
            executed.remove(&xid);
        }
        let pairs: Vec<(u64, u64)> = executed.iter().map(|(xid, transno)| (*xid, *transno)).collect();
        // Encoding numbers into memory does not fail.
        if let Ok(record) = encode(&pairs, Vec::new()) {
            tables.set_raw(key, Some(record));
        }
    }

    /// Forgets a client's requests with the next batch.
    pub(crate) fn forget<S: Store>(&mut self, tables: &mut Tables<S>, client: &str) {
        if self.0.remove(client).is_some()
            && let Some(key) = key::replies(client)
        {
            tables.set_raw(key, None);
        }
    }

    /// Forgets the requests of all clients but these.
    pub(crate) fn forget_except<S: Store>(&mut self, tables: &mut Tables<S>, stays: impl Fn(&str) -> bool) {
        for client in self.0.keys().filter(|client| !stays(client)).cloned().collect::<Vec<_>>() {
            self.forget(tables, &client);
        }
    }
}
