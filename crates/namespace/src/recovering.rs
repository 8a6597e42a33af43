//! The clients for which a restarted MDT waits (module `clients`), as the service sees them.

use crate::{Namespace, Store, clients::Clients};

impl<S: Store> Namespace<S> {
    /// Puts a client on the durable list with the next batch. Returns false if it is there already.
    pub fn list_client(&mut self, client: &str) -> bool {
        self.clients.list(&mut self.tables, client)
    }

    /// Records that a client has connected. Returns whether it is on the list.
    pub fn client_returned(&mut self, client: &str) -> bool {
        self.clients.returned(client)
    }

    /// Takes a client off the list, because the recovery does not wait for it any longer.
    pub fn drop_client(&mut self, client: &str) {
        self.clients.drop_client(&mut self.tables, client);
    }

    /// Forgets a client that disconnected or was evicted, with its requests.
    pub fn forget_client(&mut self, client: &str) {
        self.clients.remove(&mut self.tables, client);
        self.replies.forget(&mut self.tables, client);
    }

    /// Returns the clients that may have changes to replay. Empty after a clean stop, and when the
    /// recovery has ended.
    pub fn clients_to_recover(&self) -> Vec<String> {
        if self.clients.recovering { self.clients.names() } else { Vec::new() }
    }

    /// Records in the next batch, the last one, that the stop was clean.
    pub(crate) fn stop_clean(&mut self) {
        Clients::stopped(&mut self.tables);
    }

    /// Ends the recovery: forgets the clients that did not come back.
    pub(crate) fn forget_absent_clients(&mut self) {
        self.clients.recovering = false;
        for client in self.clients.names() {
            if !self.clients.is_back(&client) {
                self.forget_client(&client);
            }
        }
        let clients = &self.clients;
        self.replies.forget_except(&mut self.tables, |client| clients.is_connected(client));
    }
}
