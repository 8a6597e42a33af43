//! Requests and replies over a tcp connection, and its pings.

use std::sync::{Arc, Weak, atomic::Ordering};

use sheen_lnet::{Frame, Sender};
use sheen_wire::{
    Protocol,
    frame::{self, Kind},
};
use tokio::sync::oneshot;

use super::{
    inner::Inner,
    link::{Arrived, Later, Link},
    request_error::Cause,
    retained::RetainedChange,
};

/// Unanswered pings after which a connection counts as broken.
const PINGS_UNANSWERED_MAX: u32 = 3;

/// A request that waits for its reply. Dropping this removes the request, so that it is not resent.
struct Waiting<P: Protocol> {
    inner: Arc<Inner<P>>,
    xid: u64,
    reply: oneshot::Receiver<Result<Arrived, Cause>>,
}

impl<P: Protocol> Drop for Waiting<P> {
    fn drop(&mut self) {
        if !self.reply.is_terminated() {
            self.inner.link.lock().pending.remove(&self.xid);
        }
    }
}

impl<P: Protocol> Inner<P> {
    /// Sends a request if there is a tcp connection. `guarded`: the number of evictions up to which
    /// the request is valid. `later`: how it is encoded if it is resent.
    ///
    /// # Errors
    /// [`Cause::Evicted`]: the client was evicted since.
    pub(super) fn dispatch(
        self: &Arc<Self>,
        frame: &mut Frame,
        guarded: Option<u64>,
        later: Option<Later>,
    ) -> Result<Option<impl Future<Output = Result<Arrived, Cause>> + use<P>>, Cause> {
        let now = self.net.rt().now();
        let (xid, reply, connection) = {
            let mut link = self.link.lock();
            if guarded.is_some_and(|evictions| evictions != link.evictions()) {
                return Err(Cause::Evicted);
            }
            let Some(connection) = link.connection.clone() else { return Ok(None) };
            let (xid, reply) = link.enter(frame, now, guarded.is_some(), false);
            if let (Some(later), Some(pending)) = (later, link.pending.get_mut(&xid)) {
                pending.later = Some(later);
            }
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
    ) -> impl Future<Output = Result<Arrived, Cause>> + use<P> {
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
        reply: oneshot::Receiver<Result<Arrived, Cause>>,
    ) -> impl Future<Output = Result<Arrived, Cause>> + use<P> {
        // An error means that the connection ended, which the connector notices by itself. The
        // request stays pending.
        let _ = connection.post(frame.clone());
        let mut waiting = Waiting { inner: self.clone(), xid, reply };
        async move {
            match (&mut waiting.reply).await {
                Ok(answer) => answer,
                Err(_) => Err(Cause::Closed),
            }
        }
    }

    /// Processes a frame that arrived. Returns false if a server does not send such a frame.
    pub(super) fn received(&self, mut frame: Frame) -> bool {
        self.heard.fetch_add(1, Ordering::Relaxed);
        match frame.header.kind {
            Kind::Reply => {
                let (pending, incarnation, retains) = {
                    let mut link = self.link.lock();
                    link.retained.committed(frame.header.last_committed);
                    let pending = link.pending.remove(&frame.header.xid);
                    (pending, link.incarnation.unwrap_or_default(), link.retains(P::REPLAYS))
                };
                if !retains {
                    frame.header.transno = 0;
                } else if let Some(pending) = &pending
                    // The copy is made without the lock.
                    && let Some(change) =
                        RetainedChange::of(&frame.header, &pending.frame, &frame.body, self.net.rt().wall())
                {
                    self.link.lock().retained.insert(change, P::RETAINED_BYTES_MAX);
                }
                if let Some(pending) = pending {
                    let _ = pending.reply.send(Ok(Arrived { frame, incarnation }));
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
            link.connection.clone().or_else(|| Some(link.recovering.as_ref()?.sender.clone()))
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
