//! The client's side of the service `selftest`: a connection to a server that is known by its NIDs
//! alone, for `lctl ping` and `sheen lab net`.

use std::{io, sync::Arc, time::Duration};

use sheen_lnet::{Net, Nid, NidName, Trust};
use sheen_wire::{Selftest, selftest::TARGET};

use crate::{import::Import, selftest::SelftestService, server::Server, tool_client::ToolClient};

/// A connection to the self-test of a server, with a runtime of its own. Dropping it disconnects
/// and ends the runtime, which must not be done within a task.
pub struct SelftestConnection {
    client: ToolClient,
    import: Arc<Import<Selftest>>,
    /// The service of this process, for requests over `lo`.
    _server: Arc<Server>,
}

impl SelftestConnection {
    /// Connects to a server. `trust`: of this process. `names`: of the server, in the order to try.
    /// `in_flight`: maximum number of requests under way. `timeout`: time limit for the connection,
    /// and for its restoration.
    ///
    /// # Errors
    /// A name has no address. The server cannot be reached, or has no self-test.
    pub fn open(
        trust: Trust,
        names: &[NidName],
        in_flight: usize,
        timeout: Duration,
    ) -> io::Result<SelftestConnection> {
        let client = ToolClient::new(trust)?;
        let server = Server::new(client.net().clone());
        let nids = resolve(&client, names)?;
        if names.contains(&NidName::Lo) {
            server.add::<Selftest>(TARGET, SelftestService::new(client.net()));
        }
        let import = client.connect(TARGET, &nids, in_flight, timeout)?;
        Ok(SelftestConnection { client, import, _server: server })
    }

    /// Returns the addresses of a server with these names, in their order.
    ///
    /// # Errors
    /// A name has no address.
    pub fn resolve(&self, names: &[NidName]) -> io::Result<Vec<Nid>> {
        resolve(&self.client, names)
    }

    /// Runs a future on the calling thread, and its tasks on the connection's runtime.
    ///
    /// # Errors
    /// That of the future.
    pub fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        self.client.block_on(future)
    }

    /// Returns the network of this process.
    pub fn net(&self) -> &Net {
        self.client.net()
    }

    /// Returns the connection, for requests.
    pub fn import(&self) -> &Arc<Import<Selftest>> {
        &self.import
    }
}

impl Drop for SelftestConnection {
    fn drop(&mut self) {
        self.client.close(&self.import);
    }
}

fn resolve(client: &ToolClient, names: &[NidName]) -> io::Result<Vec<Nid>> {
    client.block_on(async {
        let mut nids = Vec::new();
        for name in names {
            nids.extend(name.resolve(client.net().rt()).await?);
        }
        Ok(nids)
    })
}

#[cfg(test)]
mod tests {
    use sheen_wire::selftest::Request;

    use super::*;

    #[test]
    fn selftest_of_this_process_answers_over_lo() {
        let connection = SelftestConnection::open(Trust::All, &[NidName::Lo], 1, Duration::from_secs(5)).unwrap();
        let request = connection.import().request(Request::Echo { reply_bytes: 5 });
        let reply = connection.block_on(async { request.send().await.map_err(io::Error::other) }).unwrap();
        assert_eq!(reply.bulk.len(), 5);
    }
}
