//! The client's side of the service `selftest`: a connection to a server that is known by its NID
//! alone, for `lctl ping` and `sheen lab net`.

use std::{io, sync::Arc, time::Duration};

use sheen_lnet::{Net, NidName, Trust};
use sheen_rt::{RealOptions, Rt, Runtime};
use sheen_wire::{Selftest, selftest::TARGET};

use crate::{
    import::{Import, ImportConfig, ImportParams},
    selftest::SelftestService,
    server::Server,
};

/// Time limit for the end of all tasks.
const END_WAIT: Duration = Duration::from_millis(500);

/// A connection to the self-test of a server, with a runtime of its own. Dropping it disconnects
/// and ends the runtime, which must not be done within a task.
pub struct SelftestConnection {
    /// `Some` until it is dropped.
    runtime: Option<Runtime>,
    net: Arc<Net>,
    import: Arc<Import<Selftest>>,
    /// The service of this process, for requests over `lo`.
    _server: Arc<Server>,
}

impl SelftestConnection {
    /// Connects to a server. `trust`: of this process. `in_flight`: maximum number of requests
    /// under way. `timeout`: time limit for the connection, and for its restoration.
    ///
    /// # Errors
    /// The name has no address. The server cannot be reached, or has no self-test.
    pub fn open(trust: Trust, name: &NidName, in_flight: usize, timeout: Duration) -> io::Result<SelftestConnection> {
        let (runtime, rt) = Rt::real(RealOptions::default())?;
        let net = Net::trusting(rt.clone(), trust);
        let server = Server::new(net.clone());
        let nids = runtime.block_on(name.resolve(&rt))?;
        if *name == NidName::Lo {
            server.add::<Selftest>(TARGET, SelftestService::new(&rt));
        }
        let timeout_ms = timeout.as_millis() as u64;
        let params = ImportParams {
            max_rpcs_in_flight: in_flight,
            hard: false,
            connect_timeout_ms: timeout_ms,
            recovery_timeout_ms: timeout_ms,
            ..ImportParams::default()
        };
        let uuid = format!("selftest-{:016x}", rt.random_u64());
        let config = ImportConfig { params, ..ImportConfig::new(&uuid, TARGET, nids.clone()) };
        let import = Import::new(net.clone(), config);
        // From here on its end is that of any connection.
        let opened = SelftestConnection { runtime: Some(runtime), net: net.clone(), import, _server: server };
        opened.block_on(async {
            tokio::select! {
                connected = opened.import.connect() => connected.map_err(io::Error::other),
                refused = net.refused(&nids) => Err(io::Error::new(io::ErrorKind::PermissionDenied, refused)),
            }
        })?;
        Ok(opened)
    }

    /// Runs a future on the calling thread, and its tasks on the connection's runtime.
    ///
    /// # Errors
    /// That of the future.
    pub fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let Some(runtime) = &self.runtime else { return Err(io::ErrorKind::NotConnected.into()) };
        runtime.block_on(future)
    }

    /// Returns the network of this process.
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// Returns the connection, for requests.
    pub fn import(&self) -> &Arc<Import<Selftest>> {
        &self.import
    }
}

impl Drop for SelftestConnection {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.block_on(self.import.close());
            runtime.shutdown(END_WAIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::selftest::Request;

    use super::*;

    #[test]
    fn selftest_of_this_process_answers_over_lo() {
        let connection = SelftestConnection::open(Trust::All, &NidName::Lo, 1, Duration::from_secs(5)).unwrap();
        let request = connection.import().request(Request::Echo { reply_bytes: 5 });
        let reply = connection.block_on(async { request.send().await.map_err(io::Error::other) }).unwrap();
        assert_eq!(reply.bulk.len(), 5);
    }
}
