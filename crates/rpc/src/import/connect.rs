//! The connector: the task that connects to the target, reads replies, and reconnects.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use sheen_lnet::{AuthError, Connection, Frame, Nid, Receiver, RecvError, Sender};
use sheen_rt::Instant;
use sheen_wire::{
    Errno, Protocol,
    frame::{self, Kind, Welcome},
};

use super::{
    error::{ConnectError, Miss},
    inner::{Inner, Recovering, RecoveringRoute},
    link::{ImportState, RecoveringConnection},
    lo_peer::LoPeer,
    request_error::Cause,
};
use crate::waits::Awaited;

/// Shortest pause after a round over all NIDs. It doubles with each round.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest such pause. Programs wait for up to this time after a restart of their server.
const BACKOFF_MAX: Duration = Duration::from_millis(500);
/// Pause after a round in which a server refused this process: it may get another key.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);
/// Time that one NID may take to welcome a client, so that the others are tried, too.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// A connection that broke sooner than this is restored only after a pause.
const SHORT_LIVED: Duration = Duration::from_secs(1);
/// Time that a closed import waits for the server to close the connection.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// The current connection of an import.
pub(super) enum Route<P: Protocol> {
    Lo(Arc<LoPeer<P>>),
    Tcp,
}

/// A tcp connection over which the server sent its welcome.
struct Welcomed {
    sender: Sender,
    receiver: Receiver,
    nid: Nid,
    welcome: Welcome,
    /// The MGS's last report before the attempt to connect.
    announced: u64,
}

impl<P: Protocol> Inner<P> {
    /// Returns the current connection; makes one if there is none. Returns at once if there is one,
    /// or if this is the first connection and the target is in this process. `hard`: waits for a
    /// connection without a limit.
    pub(super) async fn ready(self: &Arc<Self>, hard: bool) -> Result<Route<P>, ConnectError> {
        if let Some(route) = self.current_route() {
            return route;
        }
        let (failures, connected_before) = {
            let link = self.link.lock();
            (link.failures, link.incarnation.is_some())
        };
        let _waiting = self.waits.begin(Awaited::Connection);
        let coming = async {
            loop {
                if let Some(route) = self.current_route() {
                    return route;
                }
                {
                    let link = self.link.lock();
                    if let Some(e) = link.failure.as_ref().filter(|_| link.failures != failures && !hard) {
                        return Err(e.clone());
                    }
                }
                self.start();
                let settled = |state| matches!(state, ImportState::Full | ImportState::Closed);
                self.wait_changed(|link| settled(link.state) || link.failures != failures && !hard).await;
            }
        };
        if hard || !connected_before {
            return coming.await;
        }
        let limit = self.recovery_timeout;
        let late = ConnectError::TimedOut { target: self.target.clone(), seconds: limit.as_secs() };
        self.net.rt().timeout(limit, coming).await.map_err(|_| late)?
    }

    /// Returns the current connection, or why there will be none. `None`: there is none yet.
    pub(super) fn current_route(self: &Arc<Self>) -> Option<Result<Route<P>, ConnectError>> {
        if let Some(peer) = self.lo_peer() {
            return Some(Ok(Route::Lo(peer)));
        }
        let mut link = self.link.lock();
        if link.state == ImportState::Closed {
            return Some(Err(ConnectError::Closed { target: self.target.clone() }));
        }
        if link.connection.is_some() {
            return Some(Ok(Route::Tcp));
        }
        // The first connection to a target of this process needs no connector.
        if link.connecting || link.incarnation.is_some() {
            return None;
        }
        // If the target refuses the client, the connector reports why.
        let peer = self.attach_lo(&link, self.local_target()?, self.lost_handler()).ok()?;
        self.enter_lo(&mut link, &peer);
        drop(link);
        self.changed.notify_waiters();
        Some(Ok(Route::Lo(peer)))
    }

    /// Starts the connector if it is needed and does not run.
    pub(super) fn start(self: &Arc<Self>) {
        let mut link = self.link.lock();
        if link.connecting || matches!(link.state, ImportState::Full | ImportState::Closed) {
            return;
        }
        link.connecting = true;
        link.enter_state(ImportState::Connecting, self.net.rt().wall());
        drop(self.net.rt().spawn("rpc-connect", self.clone().connector()));
    }

    /// Returns what a target of this process calls when it has dropped this client.
    fn lost_handler(self: &Arc<Self>) -> Arc<dyn Fn() + Send + Sync> {
        let inner = Arc::downgrade(self);
        Arc::new(move || {
            if let Some(inner) = inner.upgrade().filter(|inner| inner.lo_peer().is_none()) {
                inner.start();
            }
        })
    }

    async fn connector(self: Arc<Self>) {
        let mut backoff = BACKOFF_MIN;
        while let Some(welcomed) = self.establish().await {
            let began = self.net.rt().now();
            self.keep(welcomed).await;
            if self.net.rt().now().since(began) > SHORT_LIVED {
                backoff = BACKOFF_MIN;
            } else {
                self.pause(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
        {
            let mut link = self.link.lock();
            // In the other cases `connecting` was cleared before, and another connector may run
            // already.
            if link.state == ImportState::Closed {
                link.connecting = false;
            }
        }
        self.changed.notify_waiters();
    }

    /// Tries `lo` and all NIDs in turn until one answers. `None`: no tcp connection is needed.
    /// Calls go over `lo`, the import was closed, or the first connection timed out and requests do
    /// not wait for it.
    async fn establish(self: &Arc<Self>) -> Option<Welcomed> {
        let began = self.net.rt().now();
        let mut backoff = BACKOFF_MIN;
        let mut reported = None;
        'round: loop {
            if self.is_closed() {
                return None;
            }
            let elsewhere = self.local_target().is_none();
            let (mut reason, mut refused) = ("no address of the target is known".to_owned(), false);
            let mut is_absent = elsewhere;
            if self.reach_lo(&mut reason).await {
                return None;
            }
            for addr in self.addresses() {
                let limit = ATTEMPT_MAX.min(self.connect_timeout);
                let attempt = self.net.rt().timeout(limit, self.dial(addr));
                let attempt = tokio::select! {
                    biased;
                    a = attempt => a,
                    () = self.closed() => return None,
                    // The present address may be one that no longer answers.
                    () = self.renewed.notified() => continue 'round,
                    // The target now runs here. Another process at its old address may never
                    // answer.
                    () = self.local_target_added(), if elsewhere => continue 'round,
                };
                match attempt {
                    // Over tcp, it would count as a client that survives a crash of this process.
                    Ok(Ok(_)) if elsewhere && self.local_target().is_some() => continue 'round,
                    Ok(Ok(welcomed)) => return Some(welcomed),
                    Ok(Err(e)) => {
                        refused |= e.kind() == io::ErrorKind::PermissionDenied;
                        is_absent &= matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound);
                        reason = format!("{}: {e}", Nid::Tcp(addr));
                    }
                    Err(_) => {
                        is_absent = false;
                        reason = format!("{}: no answer", Nid::Tcp(addr));
                    }
                }
            }
            let now = self.net.rt().now();
            self.note_miss(Miss { reason: reason.clone(), is_absent });
            if self.stop_after_timeout(began, now, &reason) {
                return None;
            }
            if refused && reported.as_ref() != Some(&reason) {
                tracing::warn!(target_name = %self.target, "cannot connect: {reason}");
                reported = Some(reason);
            }
            self.pause(if refused { REFUSED_PAUSE } else { backoff }).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Waits until the target is in this process.
    async fn local_target_added(&self) {
        loop {
            let mut services = std::pin::pin!(self.net.changed());
            services.as_mut().enable();
            if self.local_target().is_some() {
                return;
            }
            services.await;
        }
    }

    /// Returns the tcp addresses to try: first that of the last connection, where the server most
    /// likely waits for this client.
    fn addresses(&self) -> Vec<SocketAddr> {
        let last = self.link.lock().nid_last;
        let mut nids = self.nids.lock().clone();
        nids.sort_by_key(|nid| Some(*nid) != last);
        nids.iter().filter_map(|nid| if let Nid::Tcp(addr) = nid { Some(*addr) } else { None }).collect()
    }

    /// Records that a round over all addresses has failed.
    fn note_miss(&self, miss: Miss) {
        let is_first = self.link.lock().miss.replace(miss).is_none();
        if is_first {
            self.changed.notify_waiters();
        }
    }

    /// Fails requests and calls of [`super::Import::connect`] that have waited too long. Returns
    /// whether to stop connecting. That happens only if the target was never reached.
    fn stop_after_timeout(&self, began: Instant, now: Instant, reason: &str) -> bool {
        let mut link = self.link.lock();
        // The wait of a request counts from when it was sent or from when the connection was lost,
        // whichever is later.
        let limit = self.recovery_timeout;
        if !self.hard {
            let late = Cause::Disconnected { seconds: limit.as_secs() };
            link.fail(&late, |p| now.since(began.max(p.since())) >= limit);
        }
        if link.incarnation.is_some() || now.since(began) < self.connect_timeout {
            return false;
        }
        link.failures += 1;
        link.failure = Some(ConnectError::Unreachable { target: self.target.clone(), reason: reason.to_owned() });
        if self.hard {
            drop(link);
            self.changed.notify_waiters();
            return false;
        }
        link.connecting = false;
        link.enter_state(ImportState::New, self.net.rt().wall());
        true
    }

    /// Waits between two rounds. Ends early if the services of this process change, or if the MGS
    /// reports the target's return. A random part
    /// keeps the clients of a restarted server from connecting all at once.
    async fn pause(&self, backoff: Duration) {
        let jitter = self.net.rt().random_u64() % (backoff.as_micros() as u64 / 4 + 1);
        let mut services = std::pin::pin!(self.net.changed());
        services.as_mut().enable();
        if self.is_closed() {
            return;
        }
        tokio::select! {
            biased;
            () = self.closed() => {}
            () = services => {}
            () = self.renewed.notified() => {}
            () = self.net.rt().sleep(backoff + Duration::from_micros(jitter)) => {}
        }
    }

    /// Connects over `lo`, if the target is in this process. (Requests that were sent over tcp and
    /// are not answered stay with tcp.)
    async fn reach_lo(self: &Arc<Self>, reason: &mut String) -> bool {
        let Some(target) = self.local_target() else {
            if self.addresses().is_empty() {
                *reason = "the target does not run in this process".to_owned();
            }
            return false;
        };
        let (peer, hook) = {
            let mut link = self.link.lock();
            if !link.pending.is_empty() {
                return false;
            }
            let peer = match self.attach_lo(&link, target.clone(), self.lost_handler()) {
                Ok(peer) => peer,
                Err(errno) => {
                    *reason = format!("{}: {}", Nid::Lo, self.refusal(&target, errno));
                    return false;
                }
            };
            let forgotten = link.welcomed(peer.welcome().incarnation, peer.welcome().known);
            (peer, self.hook.lock().clone().zip(forgotten))
        };
        if let Some((hook, forgotten)) = hook {
            self.set_state(ImportState::Recover);
            let route = RecoveringRoute::Lo(peer.clone());
            let recovering = Recovering { inner: self.clone(), route, welcome: peer.welcome().clone(), forgotten };
            let recovered = tokio::select! {
                biased;
                r = hook(recovering) => r,
                () = self.closed() => return true,
            };
            if let Err(errno) = recovered {
                tracing::warn!(target_name = %self.target, %errno, "recovery failed; reconnecting");
                *reason = format!("recovery failed: {errno}");
                self.set_state(ImportState::Connecting);
                return false;
            }
        }
        let mut link = self.link.lock();
        if link.state == ImportState::Closed {
            return true;
        }
        self.enter_lo(&mut link, &peer);
        // Together with the state, so that a call which finds the connection lost can start the
        // next connector.
        link.connecting = false;
        true
    }

    /// Connects to a server. `PermissionDenied`: the ends are not authenticated.
    async fn dial(&self, addr: SocketAddr) -> io::Result<Welcomed> {
        let (reconnect, announced) = {
            let link = self.link.lock();
            (link.incarnation.is_some(), link.announced)
        };
        self.stats.attempts.fetch_add(1, Ordering::Relaxed);
        let Connection { sender, mut receiver } = self.net.connect(addr).await?;
        let body = frame::to_body(&self.hello(reconnect)).map_err(io::Error::other)?;
        let hello = Frame { body: body.into(), ..Frame::new(Kind::Hello, 0) };
        sender.post(hello)?;
        let answer = receiver.recv().await.map_err(|e| match e {
            RecvError::Eof => {
                io::Error::other("the server closed the connection during the handshake; does it run the same release?")
            }
            e => io::Error::other(e),
        })?;
        let other = |text: String| Err(io::Error::other(text));
        match (answer.header.kind, answer.header.status) {
            (Kind::Welcome, 0) => {}
            (Kind::Welcome, 19) => {
                let text = format!("there is no target {} at this address", self.target);
                return Err(io::Error::new(io::ErrorKind::NotFound, text));
            }
            (Kind::Auth, _) => return Err(io::Error::new(io::ErrorKind::PermissionDenied, AuthError::Demanded)),
            (Kind::Welcome, errno) => return other(format!("refused: {}", Errno(errno))),
            (kind, _) => return other(format!("answered with {kind:?} instead of a welcome")),
        }
        let welcome = frame::from_body(&answer.body).map_err(io::Error::other)?;
        receiver.handshaken();
        Ok(Welcomed { sender, receiver, nid: Nid::Tcp(addr), welcome, announced })
    }

    /// Runs the restart hook if the server forgot the client, resends unanswered requests, and
    /// reads replies until the connection ends. The MGS's report of a later server or of another
    /// address closes the connection, also while the hook runs.
    async fn keep(self: &Arc<Self>, welcomed: Welcomed) {
        let Welcomed { sender, mut receiver, nid, welcome, announced } = welcomed;
        let (forgotten, is_stale) = {
            let mut link = self.link.lock();
            let forgotten = link.welcomed(welcome.incarnation, welcome.known);
            let incarnation = welcome.incarnation;
            link.recovering = Some(RecoveringConnection { sender: sender.clone(), nid, incarnation });
            // A report since the attempt began found no connection to close.
            let is_superseded = link.announced != announced && link.is_superseded(incarnation);
            (forgotten, is_superseded || !self.nids.lock().contains(&nid))
        };
        let hook = self.hook.lock().clone().zip(forgotten);
        let mut reading = std::pin::pin!(self.read(&mut receiver));
        let mut end = is_stale.then(|| "the MGS reported another server of the target".to_owned());
        if let Some((hook, forgotten)) = hook.filter(|_| !is_stale) {
            self.set_state(ImportState::Recover);
            let route = RecoveringRoute::Tcp(sender.clone());
            let recovered = hook(Recovering { inner: self.clone(), route, welcome: welcome.clone(), forgotten });
            tokio::select! {
                biased;
                e = &mut reading => end = Some(e),
                r = recovered => if let Err(errno) = r {
                    end = Some(format!("recovery failed: {errno}"));
                    // Avoids hurrying into the next failure.
                    self.pause(BACKOFF_MAX).await;
                },
            }
        }
        let end = match end {
            Some(end) => end,
            None => {
                self.go_full(&sender, nid, welcome);
                reading.await
            }
        };
        sender.close();
        let lost = self.lose();
        if lost {
            tracing::warn!(target_name = %self.target, %nid, reason = %end, "lost the connection; reconnecting");
        }
    }

    /// Sends calls over `sender` from now on, the unanswered ones first.
    fn go_full(&self, sender: &Sender, nid: Nid, welcome: Welcome) {
        let resend = {
            let mut link = self.link.lock();
            if link.state == ImportState::Closed {
                return;
            }
            link.enter_state(ImportState::Full, self.net.rt().wall());
            (link.nid, link.nid_last) = (Some(nid), Some(nid));
            link.features = welcome.features;
            link.recovered(welcome.incarnation);
            link.connected(welcome.recovery_secs, self.net.rt().now());
            link.role = Some(sender.role().clone());
            link.connection = Some(sender.clone());
            link.recovering = None;
            link.unanswered(self.net.rt().now(), self.recovery_timeout)
        };
        self.last_committed.fetch_max(welcome.last_committed, Ordering::AcqRel);
        self.stats.connects.fetch_add(1, Ordering::Relaxed);
        self.stats.resent.fetch_add(resend.len() as u64, Ordering::Relaxed);
        for frame in resend {
            if sender.post(frame).is_err() {
                break;
            }
        }
        self.changed.notify_waiters();
        if let Some(secs) = welcome.recovery_secs {
            tracing::info!(
                target_name = %self.target,
                "the target is in recovery: operations may wait up to {secs} s for its clients of before the restart; \
                 `lctl --device {} abort_recovery` on its host ends the recovery without them",
                self.target
            );
        }
    }

    /// Reads replies until the connection ends. Returns the reason.
    async fn read(&self, receiver: &mut Receiver) -> String {
        let mut leaving = std::pin::pin!(async {
            self.closed().await;
            self.net.rt().sleep(LINGER).await;
        });
        loop {
            let frame = tokio::select! {
                biased;
                f = receiver.recv() => f,
                () = &mut leaving => return "closed".to_owned(),
            };
            match frame {
                Ok(frame) => {
                    let kind = frame.header.kind;
                    if !self.received(frame) {
                        return format!("unexpected {kind:?} frame");
                    }
                }
                Err(e) => return e.to_string(),
            }
        }
    }

    /// Handles the end of the connection. Returns false if the import was closed.
    fn lose(&self) -> bool {
        let mut link = self.link.lock();
        (link.connection, link.recovering, link.nid) = (None, None, None);
        link.fail(&Cause::RecoveryBroke, |p| p.recovering());
        let lost = link.state != ImportState::Closed;
        if lost {
            link.enter_state(ImportState::Disconn, self.net.rt().wall());
        }
        drop(link);
        self.changed.notify_waiters();
        lost
    }

    /// Resolves when the import is closed.
    async fn closed(&self) {
        while !self.is_closed() {
            self.wait_changed(|link| link.state == ImportState::Closed).await;
        }
    }

    /// Closes the import; pending requests fail.
    pub(super) fn shut(&self) {
        let connection = {
            let mut link = self.link.lock();
            if link.state == ImportState::Closed {
                return;
            }
            link.enter_state(ImportState::Closed, self.net.rt().wall());
            link.nid = None;
            link.fail(&Cause::Closed, |_| true);
            link.connection.take()
        };
        self.slots.close();
        self.urgent.close();
        self.patient.close();
        let peer = self.lo.write().take();
        if let Some(peer) = peer {
            peer.detach();
        }
        if let Some(connection) = connection {
            let _ = connection.post(Frame::new(Kind::Goodbye, 0));
            connection.finish();
        }
        self.changed.notify_waiters();
    }
}
