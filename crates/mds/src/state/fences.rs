//! The clients that the OSTs should evict. The requests are in [`crate::fence`].

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Most evicted clients that are remembered for OSTs that do not answer.
const CLIENTS_MAX: usize = 1024;

/// The evicted clients, and how many fences are being made.
pub(crate) struct Fences {
    clients: Mutex<VecDeque<String>>,
    pending: watch::Sender<usize>,
}

impl Fences {
    pub fn new() -> Fences {
        Fences { clients: Mutex::default(), pending: watch::Sender::new(0) }
    }

    /// Begins the fence of a client.
    pub fn begin(&self, client: &str) {
        let mut clients = self.clients.lock();
        clients.push_back(client.to_owned());
        if clients.len() > CLIENTS_MAX {
            clients.pop_front();
        }
        drop(clients);
        self.pending.send_modify(|pending| *pending += 1);
    }

    /// Ends a fence: all OSTs have answered, or had their time.
    pub fn end(&self) {
        self.pending.send_modify(|pending| *pending -= 1);
    }

    /// Forgets a client that is back, and knows that it was evicted.
    pub fn returned(&self, client: &str) {
        self.clients.lock().retain(|fenced| fenced != client);
    }

    /// Returns the clients that have not come back.
    pub fn clients(&self) -> Vec<String> {
        self.clients.lock().iter().cloned().collect()
    }

    /// Waits until all fences that have begun have ended.
    pub async fn settled(&self) {
        // An error means that the MDT was dropped.
        let _ = self.pending.subscribe().wait_for(|pending| *pending == 0).await;
    }
}
