//! A service with its clients: the exports, the requests being executed, the replies stored for
//! them.

use std::{
    any::Any,
    collections::BTreeMap,
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_lnet::{Audit, Frame, Live, Local, Net, Nid, RecvError, Sender};
use sheen_recovery::{Begin, ReplyCache};
use sheen_rt::{
    Rt,
    operation::{self, Operation},
};
use sheen_wire::{
    Bulk, Errno, JobId, Protocol,
    auth::{KeyId, Role, User},
    bulk::BULK_BYTES_MAX,
    frame::{
        self, BODY_BYTES_MAX, FEATURE_OP_ID, FLAG_BULK_COPY, FLAG_BULK_CRC, FrameError, Header, Hello, Kind, Welcome,
    },
};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::{
    audit::{Attempt, is_denial},
    gate::{Gate, Pass},
    service::{BoxFuture, CallbackRoute, Evict, Export, Origin, Response, Service},
    slow,
};

/// Maximum number of clients of one target.
const EXPORTS_MAX: usize = 65536;
/// Longest name of a client, in bytes.
const CLIENT_BYTES_MAX: usize = 255;
/// Time that a target being drained waits for the requests being executed.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Time that it then waits for clients to read the last replies.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client disconnected for good.
    Goodbye,
    /// The client's host closed the connection, usually because the client's process ended. A live
    /// client does so, too, but then reconnects at once: the network brought the end of the
    /// connection here, hence it works.
    Closed,
    /// The network or this side ended it, also by a reset. The client may not know of it for a
    /// while, or may need several attempts.
    Broken,
}

impl Ended {
    /// How a connection ended whose reader returned `read`.
    pub(crate) fn of(read: &Result<(), RecvError>) -> Ended {
        match read {
            Ok(()) => Ended::Goodbye,
            Err(RecvError::Eof) => Ended::Closed,
            Err(RecvError::Io(e)) if e.kind() == io::ErrorKind::UnexpectedEof => Ended::Closed,
            Err(_) => Ended::Broken,
        }
    }
}

/// How long a target waits for a client to reconnect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// After [`Ended::Broken`].
    pub(crate) broken: Duration,
    /// After [`Ended::Closed`].
    pub(crate) closed: Duration,
}

/// A service of protocol `P` under a target's name.
pub(crate) struct Target<P: Protocol> {
    name: String,
    rt: Rt,
    /// A reference to itself, for its exports.
    me: Weak<Target<P>>,
    pub(crate) service: Arc<dyn Service<P>>,
    /// Gets the denied requests.
    audit: Option<Arc<dyn Audit>>,
    patience: Patience,
    /// Holds every request until its reply is posted.
    pub(crate) gate: Gate,
    /// Notified when a connection ended after the target was removed.
    hung_up: Notify,
    state: Mutex<State>,
}

struct State {
    exports: BTreeMap<String, Client>,
    replies: ReplyCache<Stored, ReplyTo>,
    export_next: u64,
    session_next: u64,
    /// The server removed the target: it admits no clients, and their end is not reported to the
    /// service.
    removed: bool,
}

struct Client {
    export: Arc<Export>,
    /// The client's current attachment.
    session: u64,
    /// The client's connection; `None` over `lo`, and while it is broken.
    connection: Option<Sender>,
}

/// Where a reply is to be sent. Holds the connection's permit for one request, which is released
/// with the reply.
pub(crate) struct ReplyTo {
    sender: Sender,
    flags: u8,
    _permit: OwnedSemaphorePermit,
    _pass: Pass,
}

/// Room for the bulk of a request and its reply, in the connection and in the process.
pub(crate) struct Room {
    pub(crate) _connection: OwnedSemaphorePermit,
    pub(crate) _process: OwnedSemaphorePermit,
}

/// Bytes of a reply with their room, which is released when they are sent or cannot be sent.
struct Held {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A stored reply, which can be sent again.
#[derive(Clone)]
struct Stored {
    status: i32,
    transno: u64,
    body: Bytes,
    bulk: Bulk,
    live: Option<Live>,
}

/// A client's attachment to a target.
pub(crate) struct Session {
    pub(crate) export: Arc<Export>,
    pub(crate) id: u64,
    pub(crate) welcome: Welcome,
}

/// The work of one request.
pub(crate) struct Work {
    /// The wait before the execution, which holds no room ([`Service::postponed`]).
    pub(crate) postponed: Option<BoxFuture<'static, ()>>,
    /// Executes it and sends the reply.
    pub(crate) start: Box<dyn FnOnce(Option<Room>) -> BoxFuture<'static, ()> + Send>,
    /// Bytes of bulk for which it needs room; 0: none.
    pub(crate) bytes: usize,
    /// Whether the task that reads the connection may poll it first.
    pub(crate) inline: bool,
}

/// A target of any protocol, as connections see it.
pub(crate) trait AnyTarget: Any + Send + Sync {
    /// Attaches a client. ENODEV: the target was removed, or has another uuid. EPROTO: another
    /// protocol, or a name that is too long. EBUSY: too many clients. EACCES: a client of the same
    /// user with other groups has this uuid.
    fn attach(&self, hello: &Hello, nid: Nid, connection: Option<Sender>) -> sheen_wire::Result<Session>;

    /// Records that the client was welcomed: from now on it can get callbacks.
    fn welcomed(&self, session: &Session, route: Option<CallbackRoute>);

    /// Ends an attachment.
    fn detach(self: Arc<Self>, session: &Session, ended: Ended);

    /// Accepts a request that arrived.
    fn request(
        self: Arc<Self>,
        session: &Session,
        frame: Frame,
        sender: &Sender,
        permit: OwnedSemaphorePermit,
    ) -> Result<Option<Work>, FrameError>;

    /// Removes the target at once: closes its connections. Clients may reconnect to its successor.
    fn remove(&self);

    /// Removes the target in order: waits until the requests being executed end and their replies
    /// are read.
    fn drain(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// The entry in [`Net`]'s registry.
struct Registered(Arc<dyn AnyTarget>);

/// Returns a target of this process, of any protocol.
pub(crate) fn find_any(net: &Net, name: &str) -> Option<Arc<dyn AnyTarget>> {
    unwrap(net.local(name)?)
}

fn unwrap(local: Local) -> Option<Arc<dyn AnyTarget>> {
    Some(local.downcast::<Registered>().ok()?.0.clone())
}

/// Returns a target of this process, if it speaks `P`.
pub(crate) fn find<P: Protocol>(net: &Net, name: &str) -> Option<Arc<Target<P>>> {
    let any: Arc<dyn Any + Send + Sync> = find_any(net, name)?;
    any.downcast::<Target<P>>().ok()
}

/// Makes a target reachable. Removes the target that had the name before.
pub(crate) fn register(net: &Net, name: &str, target: Arc<dyn AnyTarget>) {
    if let Some(before) = net.register(name, Arc::new(Registered(target))).and_then(unwrap) {
        before.remove();
    }
}

/// Unregisters the name of a target. The caller then has to remove or drain the target.
pub(crate) fn unregister(net: &Net, name: &str) -> Option<Arc<dyn AnyTarget>> {
    net.unregister(name).and_then(unwrap)
}

impl<P: Protocol> Target<P> {
    pub(crate) fn new(net: &Net, name: &str, service: Arc<dyn Service<P>>, patience: Patience) -> Arc<Target<P>> {
        let state = State {
            exports: BTreeMap::new(),
            replies: ReplyCache::default(),
            export_next: 1,
            session_next: 1,
            removed: false,
        };
        let (gate, hung_up, state) = (Gate::default(), Notify::new(), Mutex::new(state));
        let (name, rt, audit) = (name.to_owned(), net.rt().clone(), net.audit().cloned());
        Arc::new_cyclic(|me| Target { name, rt, me: me.clone(), service, audit, patience, gate, hung_up, state })
    }

    /// Returns whether this is the target that a client wants. An empty uuid stands for any.
    pub(crate) fn has_uuid(&self, wanted: &str) -> bool {
        let uuid = self.service.uuid();
        uuid.is_empty() || wanted.is_empty() || uuid == wanted
    }

    /// Executes a request, and fills in `last_committed`. `origin`: its number, if it came over
    /// tcp. ESHUTDOWN: the client disconnected or was evicted meanwhile. A request that must be
    /// executed once runs to its end nevertheless.
    pub(crate) async fn execute(
        &self,
        export: &Arc<Export>,
        origin: Option<Origin>,
        request: P::Request,
        bulk: Bulk,
    ) -> sheen_wire::Result<Response<P::Reply>> {
        let once = P::once(&request);
        let attempt = self.audit.as_ref().map(|_| Attempt::of::<P>(&request));
        let mut call = match origin.filter(|_| once) {
            Some(origin) => self.service.call_once(export, origin, request, bulk),
            None => self.service.call(export, request, bulk),
        };
        let answer = if once {
            call.await
        } else {
            tokio::select! { biased; r = &mut call => r, () = export.ended() => Err(Errno::ESHUTDOWN) }
        };
        if let (Some(audit), Some(attempt), Err(errno)) = (&self.audit, attempt, &answer)
            && is_denial(*errno)
            && self.service.audits(export)
        {
            audit.record(attempt.denied(&self.name, export, self.key_of(export), *errno));
        }
        let mut response = answer?;
        if response.last_committed == 0 {
            response.last_committed = self.service.last_committed();
        }
        Ok(response)
    }

    /// Returns the key of the client's present connection.
    fn key_of(&self, export: &Export) -> Option<KeyId> {
        let state = self.state.lock();
        let connection = state.exports.get(export.client())?.connection.as_ref()?;
        Some(connection.claim()?.id())
    }

    /// Executes a request that came over tcp. Sends the reply over the connection that waits for it
    /// then.
    async fn run(
        self: Arc<Self>,
        export: Arc<Export>,
        header: Header,
        request: P::Request,
        bulk: Bulk,
        room: Option<Room>,
    ) {
        let (xid, keep, op) = (header.xid, P::once(&request), P::op(&request));
        let waits_for_change = P::waits_for_change(&request);
        let began = self.rt.now();
        let mut unfinished = Unfinished { target: &self, client: export.client(), xid, done: false };
        let origin = Origin { xid, acknowledged: header.last_committed };
        let mut answer = self.execute(&export, Some(origin), request, bulk).await;
        if !waits_for_change {
            slow::server_request(&self.name, &export, xid, op, self.rt.now().since(began));
        }
        // Without a checksum the client would not notice a write to the file while it is sent: copy
        // the data.
        if header.flags & FLAG_BULK_CRC == 0 || header.flags & FLAG_BULK_COPY != 0 {
            answer = answer.and_then(|response| Ok(self.rt.block_in_place(|| response.copied())?));
        }
        let stored = Stored::new::<P>(answer);
        let reply_to = self.state.lock().replies.finish(export.client(), xid, keep.then(|| stored.clone()));
        unfinished.done = true;
        if let Some(reply_to) = reply_to {
            self.reply(reply_to, xid, stored.holding(room)).await;
        }
    }

    /// Sends a reply. An error means that the connection ended: the client will resend the request.
    /// Without a lease another process may serve the target, and its reply counts.
    async fn reply(&self, reply_to: ReplyTo, xid: u64, stored: Stored) {
        if !self.rt.has_lease() {
            return reply_to.sender.close();
        }
        let frame = stored.into_frame(xid, reply_to.flags, self.service.last_committed());
        let _ = reply_to.sender.send(frame).await;
    }

    /// Evicts a client, if `which` accepts its present state.
    fn evict_if(&self, client: &str, why: &str, which: impl FnOnce(&Client) -> bool) {
        let evicted = {
            let mut state = self.state.lock();
            let removed = state.removed;
            match state.exports.get(client) {
                Some(c) if which(c) && !removed => state.exports.remove(client),
                _ => return,
            }
        };
        if let Some(c) = evicted {
            tracing::warn!(
                target_name = %self.name,
                client,
                nid = %c.export.nid(),
                why,
                "evicting a client: its locks and open files are dropped"
            );
            let lost = c.export.lost();
            c.export.set_evicted();
            c.export.set_ended();
            if let Some(connection) = c.connection {
                connection.close();
            }
            self.service.disconnected(&c.export);
            if let Some(lost) = lost {
                lost();
            }
        }
    }
}

impl<P: Protocol> Evict for Target<P> {
    fn evict(&self, export: &Export, why: &str) {
        self.evict_if(export.client(), why, |c| std::ptr::eq(&*c.export, export));
    }

    fn evict_client(&self, client: &str, why: &str) {
        self.evict_if(client, why, |_| true);
    }
}

impl<P: Protocol> AnyTarget for Target<P> {
    fn attach(&self, hello: &Hello, nid: Nid, connection: Option<Sender>) -> sheen_wire::Result<Session> {
        if hello.protocol != P::NAME {
            return Err(Errno::EPROTO);
        }
        // The name appears in logs and parameters.
        if hello.client.len() > CLIENT_BYTES_MAX || hello.client.contains(char::is_control) {
            return Err(Errno::EPROTO);
        }
        if !self.has_uuid(&hello.target_uuid) {
            return Err(Errno::ENODEV);
        }
        // Clients of one authority cannot use a name of others. So nobody takes over what a client
        // has, or keeps it from returning.
        let role = connection.as_ref().map_or(&Role::Server, Sender::role).clone();
        let features = hello.features & (self.service.features() | FEATURE_OP_ID);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.removed {
            return Err(Errno::ENODEV);
        }
        let id = state.session_next;
        state.session_next += 1;
        let name = match &role {
            Role::Server => hello.client.clone(),
            Role::Host(None) => format!("host/{}", hello.client),
            Role::Host(Some(nodemap)) => format!("host:{nodemap}/{}", hello.client),
            Role::User(User { uid, .. }) => format!("u{uid}/{}", hello.client),
        };
        let known = state.exports.contains_key(&name);
        if !known {
            if state.exports.len() >= EXPORTS_MAX {
                return Err(Errno::EBUSY);
            }
            let me: Weak<dyn Evict> = self.me.clone();
            let export = Export::of(Some(me), &name, state.export_next, features, nid, role.clone());
            state.export_next += 1;
            state.exports.insert(name.clone(), Client { export, session: id, connection: None });
        }
        let Some(client) = state.exports.get_mut(&name) else { return Err(Errno::EBUSY) };
        // The user has got another key with other groups. The target evicts the client soon, and
        // admits it as a new one.
        if *client.export.role() != role {
            return Err(Errno::EACCES);
        }
        if let Some(old) = std::mem::replace(&mut client.connection, connection) {
            old.close();
        }
        client.session = id;
        client.export.moved_to(nid);
        let export = client.export.clone();
        drop(guard);
        let welcome = Welcome {
            features: export.features(),
            incarnation: self.service.incarnation(),
            known,
            last_committed: self.service.last_committed(),
            recovery_secs: self.service.recovery_left().map(whole_secs),
        };
        Ok(Session { export, id, welcome })
    }

    fn welcomed(&self, session: &Session, route: Option<CallbackRoute>) {
        // With the lock held, so that an older attachment cannot replace the callbacks of a newer
        // one.
        let state = self.state.lock();
        if state.exports.get(session.export.client()).is_none_or(|c| c.session != session.id) {
            return;
        }
        session.export.set_callbacks(route);
        drop(state);
        if session.welcome.known {
            self.service.reconnected(&session.export);
        }
    }

    fn detach(self: Arc<Self>, session: &Session, ended: Ended) {
        let client = session.export.client();
        let mut state = self.state.lock();
        let current = state.exports.get_mut(client).filter(|c| c.session == session.id);
        let Some(current) = current else { return };
        current.connection = None;
        if state.removed {
            self.hung_up.notify_waiters();
            return;
        }
        if ended == Ended::Goodbye {
            state.exports.remove(client);
            state.replies.forget(client);
            drop(state);
            session.export.set_ended();
            self.service.disconnected(&session.export);
            return;
        }
        drop(state);
        let wait = self.rt.sleep(if ended == Ended::Closed { self.patience.closed } else { self.patience.broken });
        let (weak, client, id): (Weak<Target<P>>, _, _) = (Arc::downgrade(&self), client.to_owned(), session.id);
        drop(self.rt.spawn("rpc-evict", async move {
            wait.await;
            if let Some(target) = weak.upgrade() {
                target.evict_if(&client, "did not reconnect in time", |c| c.session == id);
            }
        }));
    }

    fn request(
        self: Arc<Self>,
        session: &Session,
        frame: Frame,
        sender: &Sender,
        permit: OwnedSemaphorePermit,
    ) -> Result<Option<Work>, FrameError> {
        let Frame { header, body, bulk, .. } = frame;
        let (body, job) = JobId::split_from(&body, header.job_len)?;
        let request: P::Request = frame::from_body(body)?;
        let operation = Operation { id: header.op_id, job };
        // A target that is being removed answers no new requests: the client resends them to its
        // successor.
        let Some(pass) = self.gate.enter() else { return Ok(None) };
        let flags = header.flags & FLAG_BULK_CRC;
        let reply_to = ReplyTo { sender: sender.clone(), flags, _permit: permit, _pass: pass };
        let client = session.export.client();
        let begin = {
            let mut state = self.state.lock();
            let current = state.exports.get(client).is_some_and(|c| c.session == session.id);
            if !current || state.removed {
                // The client has reconnected. It resends over the new connection what it still
                // needs.
                return Ok(None);
            }
            state.replies.begin(client, header.xid, header.last_committed, reply_to)
        };
        Ok(match begin {
            Begin::Execute => {
                let inline = self.service.inline(&request);
                let postponed = self.service.postponed(&session.export, &request);
                let bytes = bulk.len() + self.service.reply_bytes(&request).min(BULK_BYTES_MAX);
                let export = session.export.clone();
                let start = move |room| operation::within(operation, self.run(export, header, request, bulk, room));
                Some(Work { postponed, start: Box::new(|room| Box::pin(start(room))), bytes, inline })
            }
            Begin::Done(stored, reply_to) => {
                let start = async move { self.reply(reply_to, header.xid, stored).await };
                Some(Work { postponed: None, start: Box::new(|_| Box::pin(start)), bytes: 0, inline: true })
            }
            Begin::Joined(_) | Begin::Stale(_) => None,
        })
    }

    fn remove(&self) {
        self.gate.shut();
        let mut state = self.state.lock();
        state.removed = true;
        let mut all_lost = Vec::new();
        for client in state.exports.values_mut() {
            if let Some(connection) = client.connection.take() {
                connection.close();
            }
            all_lost.extend(client.export.lost());
        }
        drop(state);
        all_lost.iter().for_each(|lost| lost());
    }

    fn drain(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.state.lock().removed = true;
            if self.rt.timeout(DRAIN_MAX, self.gate.close()).await.is_err() {
                let executing = self.state.lock().replies.executing();
                tracing::warn!(
                    target_name = %self.name,
                    executing,
                    "drain timed out after 5 s: dropping the replies of unfinished requests"
                );
            }
            for client in self.state.lock().exports.values() {
                client.connection.iter().for_each(Sender::finish);
            }
            // A client closes its connection when it has read all replies.
            let read = async {
                loop {
                    let hung_up = self.hung_up.notified(); // registered before the check
                    if self.state.lock().exports.values().all(|c| c.connection.is_none()) {
                        return;
                    }
                    hung_up.await;
                }
            };
            let _ = self.rt.timeout(LINGER_MAX, read).await;
            self.remove();
        })
    }
}

/// Returns the seconds of a duration, rounded up.
fn whole_secs(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

/// A request whose execution must not be dropped or panic unnoticed: its client then gets EIO,
/// instead of waiting forever.
struct Unfinished<'a, P: Protocol> {
    target: &'a Target<P>,
    client: &'a str,
    xid: u64,
    done: bool,
}

impl<P: Protocol> Drop for Unfinished<'_, P> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let (target, client, xid) = (&self.target.name, self.client, self.xid);
        if std::thread::panicking() {
            tracing::error!(target_name = %target, client, xid, "a request panicked: its client gets EIO");
        } else {
            // The process ends. A request that waits for an event is dropped then, which is no
            // fault.
            tracing::debug!(target_name = %target, client, xid, "a request was dropped");
        }
        let reply_to = self.target.state.lock().replies.finish(self.client, self.xid, None);
        if let Some(reply_to) = reply_to {
            let frame = Stored::error(Errno::EIO).into_frame(self.xid, reply_to.flags, 0);
            let _ = reply_to.sender.post(frame);
        }
    }
}

impl Stored {
    fn new<P: Protocol>(answer: sheen_wire::Result<Response<P::Reply>>) -> Stored {
        let response = match answer {
            Ok(response) => response,
            Err(errno) => return Stored::error(errno),
        };
        match frame::to_body(&response.body) {
            Ok(body) if body.len() <= BODY_BYTES_MAX && response.bulk.len() <= BULK_BYTES_MAX => {
                let (bulk, live) = (response.bulk, response.live);
                Stored { status: 0, transno: response.transno, body: body.into(), bulk, live }
            }
            _ => {
                tracing::error!(
                    protocol = P::NAME,
                    bulk = response.bulk.len(),
                    "a reply is too large for a frame: EIO instead"
                );
                Stored::error(Errno::EIO)
            }
        }
    }

    fn error(errno: Errno) -> Stored {
        // 0 would read as success.
        let status = if errno.0 > 0 { errno.0 } else { Errno::EIO.0 };
        Stored { status, transno: 0, body: Bytes::new(), bulk: Bulk::new(), live: None }
    }

    /// Attaches the room to the bulk, so that it is released with the bulk.
    fn holding(mut self, room: Option<Room>) -> Stored {
        if let (Some(room), Some((last, others))) = (room, self.bulk.segments().split_last()) {
            let held = Bytes::from_owner(Held { bytes: last.clone(), _room: room });
            self.bulk = others.iter().cloned().chain([held]).collect();
        }
        self
    }

    fn into_frame(self, xid: u64, flags: u8, last_committed: u64) -> Frame {
        let header = Header {
            flags,
            transno: self.transno,
            last_committed,
            status: self.status,
            ..Header::new(Kind::Reply, xid)
        };
        Frame { body: self.body, bulk: self.bulk, live: self.live, ..Frame::from(header) }
    }
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};
    use sheen_wire::{Ost, ost};
    use tokio::sync::Semaphore;

    use super::*;

    struct Null;

    impl Service<Ost> for Null {
        fn call<'a>(
            &'a self,
            _: &'a Arc<Export>,
            _: ost::Request,
            _: Bulk,
        ) -> BoxFuture<'a, sheen_wire::Result<Response<ost::Reply>>> {
            Box::pin(async { Ok(ost::Reply::Ok.into()) })
        }

        fn incarnation(&self) -> u64 {
            1
        }
    }

    #[test]
    fn replaced_connection_or_removed_target_starts_no_request() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        sim.run(async {
            let net = Net::new(rt);
            let acceptor = net.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
            let connection = net.connect(acceptor.local_addr()).await.unwrap();
            let hello = Hello {
                client: "c".into(),
                protocol: "ost".into(),
                target: "t".into(),
                target_uuid: String::new(),
                features: 0,
                reconnect: false,
            };
            let target = Target::<Ost>::new(
                &net,
                "t",
                Arc::new(Null),
                Patience { broken: Duration::ZERO, closed: Duration::ZERO },
            );
            let permits = Arc::new(Semaphore::new(100));
            let starts = |session: &Session, xid| {
                let body = frame::to_body(&ost::Request::StatFs).unwrap().into();
                let frame = Frame { body, ..Frame::new(Kind::Request, xid) };
                let permit = permits.clone().try_acquire_owned().unwrap();
                target.clone().request(session, frame, &connection.sender, permit).unwrap().is_some()
            };
            let first = target.attach(&hello, Nid::Lo, None).unwrap();
            assert!(starts(&first, 1));
            let second = target.attach(&hello, Nid::Lo, None).unwrap();
            assert_eq!((first.welcome.known, second.welcome.known), (false, true));
            assert!(!starts(&first, 2), "a request that was delayed in the old connection");
            assert!(starts(&second, 2));
            target.clone().detach(&first, Ended::Goodbye);
            assert!(starts(&second, 3), "the end of the old connection does not disconnect the client");
            target.remove();
            assert!(!starts(&second, 4));
            assert_eq!(target.attach(&hello, Nid::Lo, None).err(), Some(Errno::ENODEV));
        })
        .unwrap();
    }
}
