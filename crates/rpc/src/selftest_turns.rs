//! Loads that this server sends to another one, at the request of a tool (`sheen lab net --from`).
//!
//! Invariants:
//! * Only a client with a key of the cluster itself has a load sent: this server connects to the
//!   other one with such a key.
//! * One client has its turn at a time, and one load at most is sent. Loads are bounded
//!   ([`Load::is_within_limits`]), and also end if the other server does not answer.
//! * A load and its connection end with the client. They delay no frames but their own.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sheen_lnet::{Net, Nid, Trust};
use sheen_rt::Instant;
use sheen_wire::{
    Errno, Result, Selftest,
    auth::Role,
    selftest::{Done, Load, Reply, TARGET},
};

use crate::{
    import::{Import, RPCS_IN_FLIGHT_LIMIT},
    selftest_load::send_load,
    service::Export,
    tool_client::connect,
};

/// Time limit for the connection to one address, and for its restoration.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for all addresses of the other server together.
const CONNECT_MAX: Duration = Duration::from_secs(20);
/// Time that a load may take in addition: for the connection and for replies.
const REPLIES_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after a load for which its client has its turn.
const TURN: Duration = Duration::from_secs(10);
/// Maximum number of addresses of the other server.
const NIDS_MAX: usize = 32;
/// Maximum number of characters of a reason.
const WHY_CHARS_MAX: usize = 512;

/// The turns of clients.
pub(crate) struct Turns {
    /// Of the loads only.
    net: Arc<Net>,
    turn: Mutex<Option<Turn>>,
}

/// The turn of a client.
struct Turn {
    client: u64,
    is_sending: bool,
    /// The begin of the present load, or the end of the last one.
    since: Instant,
    /// Idle between two loads.
    connection: Option<Connection>,
}

/// A connection to another server.
struct Connection {
    nids: Vec<Nid>,
    import: Arc<Import<Selftest>>,
}

/// A load that is being sent. Dropping it ends the load, and the turn if the client has ended.
struct Sending<'a> {
    turns: &'a Turns,
    export: &'a Export,
    connection: Option<Connection>,
}

impl Turns {
    /// `net`: that of this process.
    pub(crate) fn new(net: &Net) -> Turns {
        Turns { net: net.apart(), turn: Mutex::default() }
    }

    /// Sends a load to the server at these addresses.
    ///
    /// Errors: EPERM, EBUSY, EINVAL, as the request says.
    pub(crate) async fn load(&self, export: &Export, to: &[String], load: Load) -> Result<Reply> {
        // A server without authentication takes every client for one with such a key.
        if *export.role() != Role::Server || matches!(self.net.trust(), Trust::All) {
            return Err(Errno::EPERM);
        }
        let nids = addresses(to).filter(|_| load.is_within_limits()).ok_or(Errno::EINVAL)?;
        let mut sending = self.begin(export, &nids)?;
        let time = Duration::from_millis(load.time_ms.into()) + Duration::from_micros(load.delay_us.into());
        let done = self.net.rt().timeout(time + REPLIES_TIMEOUT, sending.send(nids, load)).await;
        let done = done.unwrap_or_else(|_| Err(io::Error::other("requests were not answered in time")));
        Ok(match done {
            Ok(done) => Reply::Loaded(done),
            Err(e) => {
                sending.connection = None;
                Reply::Failed { why: e.to_string().chars().take(WHY_CHARS_MAX).collect() }
            }
        })
    }

    /// Ends the turn of a client that has ended. [`Sending`] does so if its load is being sent.
    pub(crate) fn disconnected(&self, client: u64) {
        let ended = self.turn.lock().take_if(|turn| turn.client == client && !turn.is_sending);
        drop(ended);
    }

    /// Begins a load. EBUSY: it is another client's turn, or a load of this one is being sent.
    fn begin<'a>(&'a self, export: &'a Export, nids: &[Nid]) -> Result<Sending<'a>> {
        let (client, since) = (export.id(), self.net.rt().now());
        let mut turn = self.turn.lock();
        if turn.as_ref().is_some_and(|turn| turn.excludes(client, since)) {
            return Err(Errno::EBUSY);
        }
        let former = turn.replace(Turn { client, is_sending: true, since, connection: None });
        drop(turn);
        let connection = former.filter(|former| former.client == client).and_then(|former| former.connection);
        let connection = connection.filter(|connection| connection.nids == nids);
        Ok(Sending { turns: self, export, connection })
    }
}

impl Turn {
    fn excludes(&self, client: u64, now: Instant) -> bool {
        self.is_sending || (self.client != client && now.since(self.since) < TURN)
    }
}

impl Sending<'_> {
    /// Sends a load, over the connection of the last one if there is one.
    async fn send(&mut self, nids: Vec<Nid>, load: Load) -> io::Result<Done> {
        let net = &self.turns.net;
        let idle = self.connection.as_ref().map(|connection| connection.import.clone());
        let import = match idle {
            Some(import) => import,
            None => {
                tracing::info!(
                    client = self.export.client(),
                    nid = %self.export.nid(),
                    to = %nids.first().copied().unwrap_or(Nid::Lo),
                    "sending loads of the self-test to another server, as a client requests"
                );
                let connecting = connect::<Selftest>(net, TARGET, &nids, RPCS_IN_FLIGHT_LIMIT, CONNECT_TIMEOUT);
                let silent = || io::Error::new(io::ErrorKind::TimedOut, "no address of the other server answers");
                let import = net.rt().timeout(CONNECT_MAX, connecting).await.map_err(|_| silent())??;
                self.connection = Some(Connection { nids, import: import.clone() });
                import
            }
        };
        send_load(net, &import, load).await
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let (client, since) = (self.export.id(), self.turns.net.rt().now());
        let next = Turn { client, is_sending: false, since, connection: self.connection.take() };
        let mut turn = self.turns.turn.lock();
        // If the client ends after this check, `disconnected` waits for the lock and ends the turn.
        let next = Some(next).filter(|_| !self.export.is_ended());
        let former = std::mem::replace(&mut *turn, next);
        drop(turn);
        drop(former);
    }
}

/// Returns the addresses of another server. `None`: they are invalid.
fn addresses(to: &[String]) -> Option<Vec<Nid>> {
    if !(1..=NIDS_MAX).contains(&to.len()) {
        return None;
    }
    let nid = |text: &String| text.parse::<Nid>().ok().filter(|nid| matches!(nid, Nid::Tcp(_)));
    to.iter().map(nid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_another_server_are_checked() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let found = addresses(&texts(&["10.0.0.1@tcp", "[::1]:9@tcp"])).unwrap();
        assert_eq!(found.iter().map(Nid::to_string).collect::<Vec<_>>(), ["10.0.0.1@tcp", "[::1]:9@tcp"]);
        for bad in
            [vec![], vec!["10.0.0.1@tcp"; NIDS_MAX + 1], vec!["0@lo"], vec!["oss1@tcp"], vec!["10.0.0.1@tcp", ""]]
        {
            assert_eq!(addresses(&texts(&bad)), None, "{bad:?}");
        }
    }
}
