//! The requests of one measurement. This process sends them, or a server that it asks to.

use std::{io, pin::pin, time::Duration};

use sheen_lnet::{Nid, Trust};
use sheen_rpc::{RPCS_IN_FLIGHT_LIMIT, RequestError, SelftestConnection, send_load};
use sheen_rt::Rt;
use sheen_wire::{
    Errno,
    auth::Role,
    selftest::{Done, Reply, Request},
};

use crate::{
    net::{
        node::Node,
        plan::{Plan, Point, same_server},
    },
    stop,
};

/// Time limit for the connection, and for its restoration.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a run notices an interruption.
const STOP_POLL: Duration = Duration::from_millis(100);
/// Why a server sends no load.
const NO_RIGHT: &str = "a load between two servers needs the key of the servers, not one that was issued to a host or \
                        user; or leave out --from";

/// A connection to a server. Dropping it ends a load that this server sends.
pub struct Load {
    connection: SelftestConnection,
    /// `None`: this process sends the requests.
    remote: Option<Remote>,
}

/// The server to which the connected one sends the requests.
struct Remote {
    nids: Vec<String>,
    /// Both, for errors.
    names: String,
}

impl Load {
    /// Connects to the server that sends the requests, or that answers those of this process.
    /// `trust`: of this process.
    ///
    /// # Errors
    /// A message for the user. A name has no address. The server cannot be reached, has no
    /// self-test, or does not send loads for this process. Both nodes are one server.
    pub fn connect(trust: Trust, plan: &Plan) -> Result<Load, String> {
        let server = plan.from.as_ref().unwrap_or(&plan.to);
        let opened = SelftestConnection::open(trust, server.nids(), RPCS_IN_FLIGHT_LIMIT, CONNECT_TIMEOUT);
        let connection = opened.map_err(|e| format!("{server}: {e}"))?;
        let remote = plan.from.as_ref().map(|from| Remote::new(&connection, from, &plan.to)).transpose()?;
        Ok(Load { connection, remote })
    }

    /// Sends requests for a time.
    ///
    /// # Errors
    /// Of a request, or an interruption by the user.
    pub fn run(&self, point: Point, time: Duration) -> io::Result<Done> {
        let (net, import, load) = (self.connection.net(), self.connection.import(), point.load(time));
        self.connection.block_on(async {
            let Some(remote) = &self.remote else {
                return unless_interrupted(net.rt(), send_load(net, import, load)).await;
            };
            let request = import.request(Request::Load { to: remote.nids.clone(), load }).send();
            let reply = unless_interrupted(net.rt(), async { Ok(request.await) }).await?;
            Remote::done(reply.map(|reply| reply.body)).map_err(|e| io::Error::other(format!("{}: {e}", remote.names)))
        })
    }
}

impl Remote {
    fn new(connection: &SelftestConnection, from: &Node, to: &Node) -> Result<Remote, String> {
        if connection.import().role() != Role::Server {
            return Err(format!("{from}: {NO_RIGHT}"));
        }
        let resolve = |node: &Node| connection.resolve(node.nids()).map_err(|e| format!("{node}: {e}"));
        let (own, mut other) = (resolve(from)?, resolve(to)?);
        // On another host a loopback address leads to that host itself.
        let is_loopback = |nid: &Nid| matches!(nid, Nid::Tcp(addr) if addr.ip().is_loopback());
        if !own.iter().any(is_loopback) {
            other.retain(|nid| !is_loopback(nid));
        }
        if other.is_empty() {
            return Err(format!("--to {to}: {from} cannot reach its loopback address; name another NID"));
        }
        if other.iter().any(|nid| own.contains(nid)) {
            return Err(same_server(from, to));
        }
        Ok(Remote { nids: other.iter().map(Nid::to_string).collect(), names: format!("from {from} to {to}") })
    }

    /// Returns the result of a load, or the reason for a user.
    fn done(reply: Result<Reply, RequestError>) -> Result<Done, String> {
        match reply {
            Ok(Reply::Loaded(done)) => Ok(done),
            Ok(Reply::Failed { why }) => Err(why),
            Ok(Reply::Echoed) => Err("the reply is not that to a load".into()),
            Err(e) if e.errno() == Errno::EPERM => Err(NO_RIGHT.into()),
            Err(e) if e.errno() == Errno::EBUSY => {
                Err("another measurement uses the first server; wait until it ends".into())
            }
            Err(e) => Err(e.to_string()),
        }
    }
}

/// Waits for the end of requests, or for an interruption by the user.
async fn unless_interrupted<T>(rt: &Rt, requests: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let mut requests = pin!(requests);
    loop {
        stop::check()?;
        if let Ok(ended) = rt.timeout(STOP_POLL, requests.as_mut()).await {
            return ended;
        }
    }
}
