//! A client without a mount: connections of a tool to targets whose addresses it knows.

use std::{io, sync::Arc, time::Duration};

use sheen_lnet::{Net, Nid, Trust};
use sheen_rt::{RealOptions, Rt, Runtime};
use sheen_wire::Protocol;

use crate::import::{Import, ImportConfig, ImportParams, RetainedBudget};

/// Time limit for the end of all tasks.
const END_WAIT: Duration = Duration::from_millis(500);

/// A client with a runtime of its own. Dropping it ends the runtime, which must not be done within
/// a task. Close its connections before ([`ToolClient::close`]).
pub struct ToolClient {
    /// `Some` until it is dropped.
    runtime: Option<Runtime>,
    net: Arc<Net>,
}

impl ToolClient {
    /// Creates a client. `trust`: of this process.
    ///
    /// # Errors
    /// Of the system, at the start of the runtime.
    pub fn new(trust: Trust) -> io::Result<ToolClient> {
        let (runtime, rt) = Rt::real(RealOptions::default())?;
        Ok(ToolClient { runtime: Some(runtime), net: Net::trusting(rt, trust) })
    }

    /// Connects to a target at one of its addresses. `in_flight`: maximum number of requests under
    /// way. `timeout`: time limit for the connection, and for its restoration.
    ///
    /// # Errors
    /// The target cannot be reached, or its server refuses this process.
    pub fn connect<P: Protocol>(
        &self,
        target: &str,
        nids: &[Nid],
        in_flight: usize,
        timeout: Duration,
    ) -> io::Result<Arc<Import<P>>> {
        self.block_on(connect(&self.net, target, nids, in_flight, timeout))
    }

    /// Closes a connection, as [`Import::close`].
    pub fn close<P: Protocol>(&self, import: &Import<P>) {
        // Closing returns no error, and without a runtime there is no connection.
        let _ = self.block_on(async {
            import.close().await;
            Ok(())
        });
    }

    /// Runs a future on the calling thread, and its tasks on the client's runtime.
    ///
    /// # Errors
    /// That of the future.
    pub fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let Some(runtime) = &self.runtime else { return Err(io::ErrorKind::NotConnected.into()) };
        runtime.block_on(future)
    }

    /// Returns the network of this process.
    pub fn net(&self) -> &Arc<Net> {
        &self.net
    }
}

impl Drop for ToolClient {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown(END_WAIT);
        }
    }
}

/// Connects to a target, as [`ToolClient::connect`]. `net`: that of this process.
///
/// Errors: as [`ToolClient::connect`].
pub(crate) async fn connect<P: Protocol>(
    net: &Arc<Net>,
    target: &str,
    nids: &[Nid],
    in_flight: usize,
    timeout: Duration,
) -> io::Result<Arc<Import<P>>> {
    let timeout_ms = timeout.as_millis() as u64;
    let params = ImportParams {
        max_rpcs_in_flight: in_flight,
        hard: false,
        connect_timeout_ms: timeout_ms,
        recovery_timeout_ms: timeout_ms,
        ..ImportParams::default()
    };
    // Two connections to one target are two clients.
    let uuid = format!("tool-{:016x}", net.rt().random_u64());
    // A tool replays nothing.
    let retained = Arc::new(RetainedBudget::new(0));
    let config = ImportConfig { params, retained, ..ImportConfig::new(&uuid, target, nids.to_vec()) };
    let import: Arc<Import<P>> = Import::new(net.clone(), config);
    let connected = tokio::select! {
        connected = import.connect() => connected.map_err(io::Error::other),
        refused = net.refused(nids) => Err(io::Error::new(io::ErrorKind::PermissionDenied, refused)),
    };
    if connected.is_err() {
        import.close().await;
    }
    connected.map(|()| import)
}
