//! One call: its way over the current connection, and its reply.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use sheen_lnet::Frame;
use sheen_rt::{Instant, operation};
use sheen_wire::{
    Bulk, Errno, Protocol,
    bulk::BULK_BYTES_MAX,
    frame::{self, BODY_BYTES_MAX, FLAG_BULK_COPY, FLAG_BULK_CRC, Header, Kind},
};

use super::{
    connect::Route,
    inner::Inner,
    link::{Arrived, Later},
    lo_peer::LoPeer,
    request_error::Cause,
};
use crate::{service::Response, waits::Awaited};

impl<P: Protocol> Inner<P> {
    /// Sends a request over the current connection, and again if the connection is lost. Sets
    /// `xid` when the request is sent over tcp. `awaited`: what a target of this process waits for
    /// if it does not answer at once. `guarded`: the number of evictions up to which the request is
    /// valid.
    pub(super) async fn call(
        self: &Arc<Self>,
        mut request: P::Request,
        bulk: Bulk,
        guarded: Option<u64>,
        awaited: &Awaited,
        xid: &mut Option<u64>,
    ) -> Result<Response<P::Reply>, Cause> {
        if let Some(peer) = self.lo_peer()
            && let Some(_running) = peer.enter()
        {
            return self.waits.track(awaited, pin!(self.call_lo(&peer, request, bulk))).await;
        }
        let mut made = P::delay(&mut request, Duration::ZERO).then(|| self.net.rt().now());
        let (mut prepared, mut copies) = (None, false);
        loop {
            let route = self.ready(self.hard).await?;
            if let Some(made) = &mut made {
                let now = self.net.rt().now();
                P::delay(&mut request, now.since(*made));
                (*made, prepared) = (now, None);
            }
            match route {
                Route::Lo(peer) => {
                    // The target is being removed. The next `ready` does not find it any more.
                    if let Some(_running) = peer.enter() {
                        return self.waits.track(awaited, pin!(self.call_lo(&peer, request, bulk))).await;
                    }
                }
                Route::Tcp => {
                    let frame = match &mut prepared {
                        Some(frame) => frame,
                        none => none.insert(self.frame(&request, &bulk)?),
                    };
                    if copies {
                        frame.header.flags |= FLAG_BULK_COPY;
                    }
                    let later = made.map(|made| encode_later::<P>(request.clone(), made));
                    if let Some(waiting) = self.dispatch(frame, guarded, later)? {
                        *xid = Some(frame.header.xid);
                        let reply = waiting.await;
                        if copies || !reply.as_ref().is_ok_and(|reply| reply.frame.damaged) {
                            return self.answer(reply);
                        }
                        // The data was changed while it was sent: request a copy.
                        copies = true;
                        continue;
                    }
                    // The connection was lost in between.
                }
            }
        }
    }

    /// Calls the service in this process.
    pub(super) async fn call_lo(
        &self,
        peer: &LoPeer<P>,
        request: P::Request,
        bulk: Bulk,
    ) -> Result<Response<P::Reply>, Cause> {
        let mut response = peer.call(request, bulk).await.map_err(Cause::Answered)?;
        response.incarnation = peer.welcome().incarnation;
        self.last_committed.fetch_max(response.last_committed, Ordering::AcqRel);
        Ok(response)
    }

    /// Encodes a request for tcp, without the xid.
    pub(super) fn frame(&self, request: &P::Request, bulk: &Bulk) -> Result<Frame, Cause> {
        let mut body = frame::to_body(request).map_err(|_| Cause::Limits)?;
        let job_len = operation::job().append_to(&mut body);
        if body.len() > BODY_BYTES_MAX || bulk.len() > BULK_BYTES_MAX {
            return Err(Cause::Limits);
        }
        let flags = if self.checksums.load(Ordering::Relaxed) { FLAG_BULK_CRC } else { 0 };
        let header = Header { flags, op_id: operation::current(), job_len, ..Header::new(Kind::Request, 0) };
        Ok(Frame { body: body.into(), bulk: bulk.clone(), ..Frame::from(header) })
    }

    /// Decodes a reply.
    pub(super) fn answer(&self, reply: Result<Arrived, Cause>) -> Result<Response<P::Reply>, Cause> {
        let Arrived { frame: Frame { header, body, bulk, damaged, .. }, incarnation } = reply?;
        self.last_committed.fetch_max(header.last_committed, Ordering::AcqRel);
        match header.status {
            0 if damaged => return Err(Cause::Damaged),
            0 => {}
            errno @ 1.. => return Err(Cause::Answered(Errno(errno))),
            status => return Err(Cause::Undecodable(format!("its status is {status}"))),
        }
        let body = frame::from_body(&body).map_err(|error| Cause::Undecodable(error.to_string()))?;
        let (transno, last_committed) = (header.transno, header.last_committed);
        Ok(Response { body, bulk, live: None, transno, last_committed, incarnation })
    }
}

/// Returns how a request that says how long ago something happened is encoded later. `made`: the
/// time as of which it says this.
fn encode_later<P: Protocol>(request: P::Request, made: Instant) -> Later {
    Box::new(move |now| {
        let mut request = request.clone();
        P::delay(&mut request, now.since(made));
        frame::to_body(&request).ok()
    })
}
