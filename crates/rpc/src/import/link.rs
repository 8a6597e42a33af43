//! The state of an import's connection, and the requests that wait for replies.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use sheen_lnet::{Frame, Nid, Sender};
use sheen_rt::Instant;
use sheen_wire::{
    Errno, Protocol,
    frame::{self, FLAG_RESENT, Kind},
};
use tokio::sync::oneshot;

use super::{ConnectError, Inner};

/// Unanswered pings after which a connection counts as broken.
const PINGS_UNANSWERED_MAX: u32 = 3;
/// Broken connections after which a request fails, once its time is up.
const RESENDS_MAX: u32 = 16;

/// The state of an import; printed as Lustre does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ImportState {
    /// Not used yet, or the target was never reached.
    #[default]
    New,
    /// Connecting to the target.
    Connecting,
    /// Connected to a server that has forgotten the client: the restart hook runs.
    Recover,
    /// Requests go through.
    Full,
    /// The connection was lost.
    Disconn,
    /// Closed by the client.
    Closed,
}

impl fmt::Display for ImportState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ImportState::New => "NEW",
            ImportState::Connecting => "CONNECTING",
            ImportState::Recover => "RECOVER",
            ImportState::Full => "FULL",
            ImportState::Disconn => "DISCONN",
            ImportState::Closed => "CLOSED",
        })
    }
}

/// State that calls and the connector share.
#[derive(Default)]
pub(super) struct Link {
    pub(super) state: ImportState,
    pub(super) nid: Option<Nid>,
    /// The tcp connection; present in state Full, unless the way is `lo`.
    pub(super) connection: Option<Sender>,
    /// The tcp connection while the restart hook runs.
    pub(super) recovering: Option<Sender>,
    /// Whether the connector runs.
    pub(super) connecting: bool,
    /// Whether the pinger runs.
    pinging: bool,
    /// Unanswered requests, by xid.
    pub(super) pending: BTreeMap<u64, Pending>,
    xid_last: u64,
    pub(super) features: u64,
    /// Incarnation of the server at the last connection.
    pub(super) incarnation: Option<u64>,
    /// Number of evictions of this client by the server.
    evictions: u64,
    /// The server evicted the client once more, and the restart hook has not succeeded since.
    given_up: bool,
    /// At least one round over all addresses failed.
    pub(super) missed: bool,
    /// Number of attempts to connect that were abandoned, and the reason of the last one.
    pub(super) failures: u64,
    pub(super) failure: Option<ConnectError>,
}

pub(super) struct Pending {
    pub(super) frame: Frame,
    reply: oneshot::Sender<sheen_wire::Result<Frame>>,
    since: Instant,
    resends: u32,
    /// Valid only while the server knows the client's locks.
    guarded: bool,
    /// Sent by the restart hook: fails when the connection ends.
    recovering: bool,
}

/// A request that waits for its reply. Dropping this removes the request, so that it is not resent.
pub(super) struct Waiting<P: Protocol> {
    inner: Arc<Inner<P>>,
    xid: u64,
    reply: oneshot::Receiver<sheen_wire::Result<Frame>>,
}

impl<P: Protocol> Drop for Waiting<P> {
    fn drop(&mut self) {
        if !self.reply.is_terminated() {
            self.inner.link.lock().pending.remove(&self.xid);
        }
    }
}

impl Link {
    /// Enters a request: assigns its xid, and puts into its header up to which xid all replies
    /// arrived.
    fn enter(
        &mut self,
        frame: &mut Frame,
        now: Instant,
        guarded: bool,
        recovering: bool,
    ) -> (u64, oneshot::Receiver<sheen_wire::Result<Frame>>) {
        self.xid_last += 1;
        let xid = self.xid_last;
        frame.header.xid = xid;
        frame.header.last_committed = self.pending.first_key_value().map_or(xid, |(lowest, _)| *lowest) - 1;
        let (reply, receiver) = oneshot::channel();
        let pending = Pending { frame: frame.clone(), reply, since: now, resends: 0, guarded, recovering };
        self.pending.insert(xid, pending);
        (xid, receiver)
    }

    /// Returns the frames to resend over a new connection, in xid order. A request fails instead if
    /// it was resent [`RESENDS_MAX`] times and waits for longer than `limit`. It may be the reason
    /// why the connections broke.
    pub(super) fn unanswered(&mut self, now: Instant, limit: Duration) -> Vec<Frame> {
        self.fail(Errno::ETIMEDOUT, |p| p.resends >= RESENDS_MAX && now.since(p.since) >= limit);
        let resend = |p: &mut Pending| {
            p.resends = p.resends.saturating_add(1);
            let mut frame = p.frame.clone();
            frame.header.flags |= FLAG_RESENT;
            frame
        };
        self.pending.values_mut().filter(|p| !p.recovering).map(resend).collect()
    }

    /// Records a welcome with this incarnation from a server that knows the client or not. Returns
    /// whether the server has forgotten the client, and whether it had evicted the client. Both
    /// hold until [`Link::recovered`], because the server knows the client at the next welcome,
    /// even if this recovery fails.
    pub(super) fn welcomed(&mut self, incarnation: u64, known: bool) -> (bool, bool) {
        let Some(before) = self.incarnation else { return (false, false) };
        self.given_up |= before == incarnation && !known;
        (before != incarnation || self.given_up, self.given_up)
    }

    /// Records a completed recovery. After an eviction, fails the requests that were valid only
    /// under locks of before.
    pub(super) fn recovered(&mut self, incarnation: u64) {
        self.incarnation = Some(incarnation);
        if std::mem::take(&mut self.given_up) {
            self.evictions += 1;
            self.fail(Errno::EIO, |p| p.guarded);
        }
    }

    /// Returns the number of evictions of this client by the server.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Fails the pending requests that `which` picks.
    pub(super) fn fail(&mut self, errno: Errno, which: impl Fn(&Pending) -> bool) {
        for (_, pending) in self.pending.extract_if(.., |_, p| which(p)) {
            // A call that was dropped does not need the error.
            let _ = pending.reply.send(Err(errno));
        }
    }
}

impl Pending {
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn recovering(&self) -> bool {
        self.recovering
    }
}

impl<P: Protocol> Inner<P> {
    /// Sends a request if there is a tcp connection. `guarded`: the number of evictions up to which
    /// the request is valid.
    ///
    /// # Errors
    /// EIO: the client was evicted since.
    pub(super) fn dispatch(
        self: &Arc<Self>,
        frame: &mut Frame,
        guarded: Option<u64>,
    ) -> sheen_wire::Result<Option<impl Future<Output = sheen_wire::Result<Frame>> + use<P>>> {
        let now = self.net.rt().now();
        let (xid, reply, connection) = {
            let mut link = self.link.lock();
            if guarded.is_some_and(|evictions| evictions != link.evictions) {
                return Err(Errno::EIO);
            }
            let Some(connection) = link.connection.clone() else { return Ok(None) };
            let (xid, reply) = link.enter(frame, now, guarded.is_some(), false);
            self.keep_pinging(&mut link);
            (xid, reply, connection)
        };
        Ok(Some(self.send(connection, frame, xid, reply)))
    }

    /// Sends a request of the restart hook over the connection that is being recovered.
    pub(super) fn dispatch_recovering(
        self: &Arc<Self>,
        connection: &Sender,
        frame: &mut Frame,
    ) -> impl Future<Output = sheen_wire::Result<Frame>> + use<P> {
        let now = self.net.rt().now();
        let (xid, reply) = {
            let mut link = self.link.lock();
            let entered = link.enter(frame, now, false, true);
            self.keep_pinging(&mut link);
            entered
        };
        self.send(connection.clone(), frame, xid, reply)
    }

    fn send(
        self: &Arc<Self>,
        connection: Sender,
        frame: &Frame,
        xid: u64,
        reply: oneshot::Receiver<sheen_wire::Result<Frame>>,
    ) -> impl Future<Output = sheen_wire::Result<Frame>> + use<P> {
        // An error means that the connection ended, which the connector notices by itself. The
        // request stays pending.
        let _ = connection.post(frame.clone());
        let mut waiting = Waiting { inner: self.clone(), xid, reply };
        async move {
            match (&mut waiting.reply).await {
                Ok(answer) => answer,
                Err(_) => Err(Errno::ESHUTDOWN),
            }
        }
    }

    /// Processes a frame that arrived. Returns false if a server does not send such a frame.
    pub(super) fn received(&self, frame: Frame) -> bool {
        self.heard.fetch_add(1, Ordering::Relaxed);
        match frame.header.kind {
            Kind::Reply => {
                let pending = self.link.lock().pending.remove(&frame.header.xid);
                if let Some(pending) = pending {
                    let _ = pending.reply.send(Ok(frame));
                }
                true
            }
            Kind::Pong => true,
            Kind::Callback => match (self.callbacks.get(), frame::from_body(&frame.body)) {
                (Some(handler), Ok(callback)) => {
                    handler.0(callback);
                    true
                }
                (None, Ok(_)) => true,
                (_, Err(_)) => false,
            },
            _ => false,
        }
    }

    /// Waits for a change of the link; returns at once if `unless` already holds.
    pub(super) async fn wait_changed(&self, unless: impl Fn(&Link) -> bool) {
        let mut changed = std::pin::pin!(self.changed.notified());
        changed.as_mut().enable();
        if !unless(&self.link.lock()) {
            changed.await;
        }
    }

    fn keep_pinging(self: &Arc<Self>, link: &mut Link) {
        if !std::mem::replace(&mut link.pinging, true) {
            let (rt, weak) = (self.net.rt().clone(), Arc::downgrade(self));
            let interval = self.ping_interval;
            drop(self.net.rt().spawn("rpc-ping", async move {
                let mut pinger = Pinger { import: weak, heard: u64::MAX, unanswered: 0 };
                loop {
                    rt.sleep(interval).await;
                    if !pinger.beat() {
                        return;
                    }
                }
            }));
        }
    }
}

/// Pings the server while requests wait and no frames arrive. Exists only while requests wait.
struct Pinger<P: Protocol> {
    import: Weak<Inner<P>>,
    heard: u64,
    unanswered: u32,
}

impl<P: Protocol> Pinger<P> {
    /// Runs once in an interval. Returns false if the pinger is not needed any more.
    fn beat(&mut self) -> bool {
        let Some(inner) = self.import.upgrade() else { return false };
        let connection = {
            let mut link = inner.link.lock();
            if link.pending.is_empty() {
                link.pinging = false;
                return false;
            }
            link.connection.clone().or_else(|| link.recovering.clone())
        };
        let heard = inner.heard.load(Ordering::Relaxed);
        let silent = std::mem::replace(&mut self.heard, heard) == heard;
        let Some(connection) = connection.filter(|_| silent) else {
            self.unanswered = 0;
            return true;
        };
        if self.unanswered == PINGS_UNANSWERED_MAX {
            tracing::warn!(
                target_name = %inner.target,
                peer = %connection.peer(),
                "the server does not answer pings: reconnecting"
            );
            self.unanswered = 0;
            connection.close();
        } else {
            self.unanswered += 1;
            let _ = connection.post(Frame::new(Kind::Ping, 0));
        }
        true
    }
}
