//! Makes services reachable: in this process by name, over tcp through one listening socket for
//! all.

use std::{
    collections::BTreeMap,
    io,
    mem::{Discriminant, discriminant},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use parking_lot::Mutex;
use sheen_lnet::{Acceptor, Connection, Event, Frame, Net, Nid, Receiver, RecvError, Sender, Stranger};
use sheen_rt::JoinHandle;
use sheen_wire::{
    Errno, Protocol,
    bulk::BULK_BYTES_MAX,
    frame::{self, FrameError, Header, Hello, Kind},
};
use tokio::sync::Semaphore;

use crate::{
    line_limit::LineLimits,
    service::{CallbackRoute, Service},
    target::{self, AnyTarget, Ended, Patience, Room, Session, Target, Work},
};

/// A server's bounds and timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Requests of one connection that are executed at a time. The server reads the next one when
    /// one of them is answered.
    pub requests_in_flight_max: usize,
    /// Bulk bytes of one connection: of its requests being executed and its replies being sent.
    /// Bounds what a client can make the server hold. At least one largest request with its reply
    /// fits.
    pub bulk_in_flight_max_bytes: usize,
    /// The same for all connections of the process together.
    pub bulk_total_max_bytes: usize,
    /// Time after which a connection that is not authenticated, or has sent no hello, is closed.
    pub hello_timeout_ms: u64,
    /// Time that a client whose connection broke may take to reconnect before it is evicted.
    pub export_timeout_ms: u64,
    /// The same for a client whose own host closed the connection without a goodbye
    /// ([`Ended::Closed`]). At most `export_timeout_ms` counts.
    pub closed_timeout_ms: u64,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            // The most that an import may have under way, and a ping.
            requests_in_flight_max: 2 * crate::RPCS_IN_FLIGHT_LIMIT
                + crate::URGENT_BEYOND
                + crate::PATIENT_IN_FLIGHT_MAX
                + 1,
            // Twice what a client sends by default (8 requests of 4 MiB).
            bulk_in_flight_max_bytes: 64 << 20,
            bulk_total_max_bytes: 1 << 30,
            hello_timeout_ms: 5_000,
            export_timeout_ms: 30_000,
            // A live client reconnects within milliseconds. Longer than one attempt to connect.
            closed_timeout_ms: 8_000,
        }
    }
}

/// The services of a process. Dropping it calls [`Server::shutdown`].
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    net: Arc<Net>,
    config: ServerConfig,
    /// Permits for `bulk_total_max_bytes`.
    bulk: Arc<Semaphore>,
    targets: Mutex<Vec<String>>,
    /// Whether all targets of the process are served ([`Server::set_complete`]).
    complete: AtomicBool,
    acceptors: Mutex<Vec<JoinHandle<()>>>,
    connections: Mutex<BTreeMap<u64, Sender>>,
    connection_next: AtomicU64,
    /// Limits the lines about refused connections, which strangers can cause at any rate.
    refusals: Mutex<LineLimits<Discriminant<Stranger>>>,
}

impl Server {
    /// Creates a server without services, with the default bounds.
    pub fn new(net: Arc<Net>) -> Arc<Server> {
        Server::with_config(net, ServerConfig::default())
    }

    /// Creates a server without services.
    pub fn with_config(net: Arc<Net>, config: ServerConfig) -> Arc<Server> {
        let inner = Inner {
            net,
            bulk: Arc::new(Semaphore::new(bulk_max(config.bulk_total_max_bytes))),
            config,
            targets: Mutex::default(),
            complete: AtomicBool::new(false),
            acceptors: Mutex::default(),
            connections: Mutex::default(),
            connection_next: AtomicU64::new(0),
            refusals: Mutex::default(),
        };
        Arc::new(Server { inner: Arc::new(inner) })
    }

    /// Makes a service reachable as `target`. Removes the service that had the name before.
    pub fn add<P: Protocol>(&self, target: &str, service: Arc<dyn Service<P>>) {
        let Inner { net, config, targets, .. } = &*self.inner;
        let broken = Duration::from_millis(config.export_timeout_ms);
        let patience = Patience { broken, closed: broken.min(Duration::from_millis(config.closed_timeout_ms)) };
        target::register(net, target, Target::new(net, target, service, patience));
        let mut targets = targets.lock();
        if !targets.iter().any(|t| t == target) {
            targets.push(target.to_owned());
        }
    }

    /// Records whether all targets of the process are served: true from the end of its start to the
    /// begin of its stop. At other times the log does not report clients whose target is missing.
    pub fn set_complete(&self, complete: bool) {
        self.inner.complete.store(complete, Ordering::Relaxed);
    }

    /// Removes a target at once: its connections are closed. Requests being executed continue, but
    /// their replies are lost. New requests wait at the client until a target of that name exists
    /// again, here or elsewhere. [`Service::disconnected`] is not called.
    pub fn remove(&self, target: &str) {
        if let Some(target) = self.inner.take(target) {
            target.remove();
        }
    }

    /// Removes a target in order. As [`Server::remove`], but first the requests being executed end
    /// (for up to 5 s) and clients read the replies (for up to 1 s). So the target's successor does
    /// not execute them again. Does nothing if there is no such target.
    pub async fn drain(&self, target: &str) {
        if let Some(target) = self.inner.take(target) {
            target.drain().await;
        }
    }

    /// Accepts connections at an address, for all services of the process. Port 0 takes a free one.
    /// Returns the address.
    ///
    /// Errors: as bind(2), such as EADDRINUSE.
    pub async fn listen(&self, addr: SocketAddr) -> io::Result<SocketAddr> {
        let acceptor = self.inner.net.listen(addr).await?;
        let bound = acceptor.local_addr();
        let task = self.inner.net.rt().spawn("rpc-accept", self.inner.clone().accept(acceptor));
        self.inner.acceptors.lock().push(task);
        Ok(bound)
    }

    /// Closes the connections whose clients used keys that this process does not accept any more,
    /// and those with less protection than it demands now. Returns their number. A client with
    /// another key can connect again, as can one that knows the flavor.
    pub fn end_refused(&self) -> usize {
        let connections = self.inner.connections.lock();
        let ended: Vec<Sender> = connections.values().filter(|sender| self.inner.is_refused(sender)).cloned().collect();
        drop(connections);
        ended.iter().for_each(Sender::close);
        ended.len()
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.inner.connections.lock().len()
    }

    /// Removes all targets, stops listening and closes all connections.
    pub fn shutdown(&self) {
        drop(self.inner.stop());
    }

    /// As [`Server::shutdown`], and waits until the addresses are free again.
    pub async fn stop(&self) {
        for acceptor in self.inner.stop() {
            // The task was aborted; this waits for its end.
            let _ = acceptor.await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Returns the permits for `bytes`. They are enough for a largest request with its reply, so that
/// each request gets its turn.
fn bulk_max(bytes: usize) -> usize {
    bytes.clamp(2 * BULK_BYTES_MAX, u32::MAX as usize)
}

impl Inner {
    /// Returns whether the key of a connection's client was withdrawn.
    fn is_withdrawn(&self, sender: &Sender) -> bool {
        sender.claim().is_some_and(|claim| !self.net.accepts(claim))
    }

    /// Returns whether a connection is to end: its client's key was withdrawn, or it has less
    /// protection than is demanded now.
    fn is_refused(&self, sender: &Sender) -> bool {
        self.is_withdrawn(sender) || !self.net.protects(sender)
    }

    fn take(&self, target: &str) -> Option<Arc<dyn AnyTarget>> {
        self.targets.lock().retain(|t| t != target);
        target::unregister(&self.net, target)
    }

    /// Begins the shutdown. Returns the listening tasks, which are about to end.
    fn stop(&self) -> Vec<JoinHandle<()>> {
        for target in std::mem::take(&mut *self.targets.lock()) {
            if let Some(target) = target::unregister(&self.net, &target) {
                target.remove();
            }
        }
        let acceptors = std::mem::take(&mut *self.acceptors.lock());
        acceptors.iter().for_each(JoinHandle::abort);
        let connections = self.connections.lock().clone();
        connections.values().for_each(Sender::close);
        acceptors
    }

    async fn accept(self: Arc<Self>, acceptor: Acceptor) {
        loop {
            let connection = acceptor.accept().await;
            drop(self.net.rt().spawn("rpc-connection", self.clone().connection(connection)));
        }
    }

    async fn connection(self: Arc<Self>, connection: Connection) {
        let Connection { sender, receiver } = connection;
        let id = self.connection_next.fetch_add(1, Ordering::Relaxed);
        self.connections.lock().insert(id, sender.clone());
        let peer = sender.peer();
        match self.serve(&sender, receiver).await {
            Ok(()) | Err(RecvError::Eof | RecvError::Closed) => {}
            Err(RecvError::Stranger(why)) => self.report_stranger(peer, why),
            Err(RecvError::Io(error)) => tracing::debug!(%peer, %error, "a connection broke"),
            Err(error) => tracing::warn!(%peer, %error, "closing a connection"),
        }
        self.connections.lock().remove(&id);
    }

    async fn serve(&self, sender: &Sender, mut receiver: Receiver) -> Result<(), RecvError> {
        let hello_timeout = Duration::from_millis(self.config.hello_timeout_ms);
        let admitted = self.net.rt().timeout(hello_timeout, self.net.admit(sender, &mut receiver)).await;
        let first = match admitted.unwrap_or(Err(RecvError::Stranger(Stranger::Slow))) {
            // It has had its time.
            Err(RecvError::Stranger(Stranger::Slow)) => return Err(RecvError::Stranger(Stranger::Slow)),
            Err(stranger @ RecvError::Stranger(_)) => {
                self.end(sender, &mut receiver).await;
                return Err(stranger);
            }
            first => first?,
        };
        if first.header.kind != Kind::Hello {
            return Err(FrameError::Kind(first.header.kind as u8).into());
        }
        let hello: Hello = frame::from_body(&first.body)?;
        let nid = Nid::Tcp(sender.peer());
        let found = target::find_any(&self.net, &hello.target).ok_or(Errno::ENODEV);
        let (target, session) = match found.and_then(|t| Ok((t.attach(&hello, nid, Some(sender.clone()))?, t))) {
            Ok((session, target)) => (target, session),
            Err(errno) => {
                self.report_refusal(sender.peer(), &hello.target, errno);
                let header = Header { status: errno.0, ..Header::new(Kind::Welcome, first.header.xid) };
                let _ = sender.post(Frame { header, ..Frame::new(Kind::Welcome, 0) });
                self.end(sender, &mut receiver).await;
                return Ok(());
            }
        };
        receiver.handshaken();
        let welcomed = match frame::to_body(&session.welcome) {
            Ok(body) => sender.post(Frame { body: body.into(), ..Frame::new(Kind::Welcome, first.header.xid) }),
            Err(_) => Err(io::ErrorKind::InvalidData.into()),
        };
        target.welcomed(&session, Some(CallbackRoute::Tcp(sender.clone())));
        let ended = match welcomed {
            Ok(()) => self.requests(&target, &session, sender, &mut receiver).await,
            Err(e) => Err(e.into()),
        };
        // The client learns of the end at once, and reconnects if it has another key.
        let end = match Ended::of(&ended) {
            Ended::Broken if self.is_withdrawn(sender) => Ended::Closed,
            end => end,
        };
        target.detach(&session, end);
        if ended.is_ok() {
            sender.finish();
        }
        ended
    }

    /// Ends a connection after a refusal. Closing at once could overtake the refusal: the client
    /// closes when it has read it.
    async fn end(&self, sender: &Sender, receiver: &mut Receiver) {
        sender.finish();
        let limit = Duration::from_millis(self.config.hello_timeout_ms);
        let _ = self.net.rt().timeout(limit, receiver.recv()).await;
    }

    /// Logs that a client was refused. During a start or a stop of this process, missing targets
    /// are expected, and the client tries again. A new OST is an example: the MDT learns of it from
    /// the MGS before it has its name here.
    fn report_refusal(&self, peer: SocketAddr, target_name: &str, errno: Errno) {
        if errno == Errno::ENODEV && !self.complete.load(Ordering::Relaxed) {
            tracing::debug!(%peer, target_name, %errno, "refusing a client");
        } else {
            tracing::info!(%peer, target_name, %errno, "refusing a client");
        }
    }

    /// Records each refusal in the audit trail, and some in the log.
    fn report_stranger(&self, peer: SocketAddr, why: Stranger) {
        if let Some(audit) = self.net.audit() {
            audit.record(Event::refused(peer, why));
        }
        if let Some(suppressed) = self.refusals.lock().admit(discriminant(&why), self.net.rt().now()) {
            tracing::warn!(%peer, suppressed, "refusing a connection: {why}");
        }
    }

    /// Reads requests until the connection ends. Returns Ok if the client disconnected in order.
    async fn requests(
        &self,
        target: &Arc<dyn AnyTarget>,
        session: &Session,
        sender: &Sender,
        receiver: &mut Receiver,
    ) -> Result<(), RecvError> {
        let requests = Arc::new(Semaphore::new(self.config.requests_in_flight_max));
        let bulk = Arc::new(Semaphore::new(bulk_max(self.config.bulk_in_flight_max_bytes)));
        loop {
            let request = requests.clone().acquire_owned().await.map_err(|_| RecvError::Closed)?;
            // No further work for a client that does not read its replies.
            sender.room().await;
            let frame = receiver.recv().await?;
            match frame.header.kind {
                Kind::Request if !self.net.rt().has_lease() => return Err(RecvError::Closed),
                Kind::Request => {
                    if let Some(work) = target.clone().request(session, frame, sender, request)? {
                        self.begin(work, &bulk).await?;
                    }
                }
                Kind::Ping => sender.post(Frame::new(Kind::Pong, frame.header.xid))?,
                Kind::Goodbye => return Ok(()),
                other => return Err(FrameError::Kind(other as u8).into()),
            }
        }
    }

    /// Starts work once there is room for it in its connection and in the process. Polls inline
    /// work once, here. If it is not done then, a task of its own continues it.
    async fn begin(&self, work: Work, connection: &Arc<Semaphore>) -> Result<(), RecvError> {
        let Work { postponed, start, bytes, inline } = work;
        let rt = self.net.rt();
        if let Some(postponed) = postponed {
            // It must not delay the next requests of the connection.
            let (connection, process) = (connection.clone(), self.bulk.clone());
            drop(rt.spawn("rpc-request", async move {
                postponed.await;
                if let Ok(room) = room(&connection, &process, bytes).await {
                    start(room).await;
                }
            }));
            return Ok(());
        }
        let mut future = start(room(connection, &self.bulk, bytes).await?);
        if inline && std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await.is_ready() {
            return Ok(());
        }
        drop(rt.spawn("rpc-request", future));
        Ok(())
    }
}

/// Waits for room for `bytes`, at most two of the largest bulks.
async fn room(connection: &Arc<Semaphore>, process: &Arc<Semaphore>, bytes: usize) -> Result<Option<Room>, RecvError> {
    if bytes == 0 {
        return Ok(None);
    }
    let bytes = bytes.min(2 * BULK_BYTES_MAX) as u32;
    let acquire = async |of: &Arc<Semaphore>| of.clone().acquire_many_owned(bytes).await;
    let _connection = acquire(connection).await.map_err(|_| RecvError::Closed)?;
    let _process = acquire(process).await.map_err(|_| RecvError::Closed)?;
    Ok(Some(Room { _connection, _process }))
}
