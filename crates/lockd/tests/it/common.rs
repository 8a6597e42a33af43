//! A service that only serves locks, and clients of it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use sheen_lnet::{Net, Nid};
use sheen_lockd::{Glimpse, Lockd};
use sheen_rpc::{BoxFuture, Export, Import, ImportConfig, Response, Server, ServerConfig, Service};
use sheen_rt::{
    Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Bulk, Errno, Fid, Ost,
    ast::Callback,
    ldlm::*,
    ost::{self, ObjectAttr, Part},
};

pub const TARGET: &str = "sheen-OST0000";
pub const EOF: u64 = u64::MAX;
/// Simulations of each test.
const SEEDS: u64 = 4;
/// More virtual time than any test takes.
const TIME_MAX: Duration = Duration::from_secs(600);

/// Object number `n`.
pub fn object(n: u32) -> Resource {
    Resource::extent(Fid::new(7, n))
}

pub fn whole() -> Policy {
    Policy::extent(0, EOF)
}

/// A check that the service runs while it writes.
type Check = Box<dyn Fn(&Export, &Part) + Send + Sync>;

/// A service that grants locks, writes under locks of its own, stores sizes of objects, and asks
/// writers for sizes. Requests for flock locks are answered at once, others when they are granted.
pub struct Locked {
    pub lockd: Arc<Lockd<Ost>>,
    rt: Rt,
    /// Stands for an MDT's mutex: held while the server's own locks are enqueued, and needed by
    /// requests from a client's handler.
    pub core: Mutex<()>,
    pub exports: Mutex<BTreeMap<String, Arc<Export>>>,
    pub ended: Mutex<Vec<String>>,
    pub check: Mutex<Option<Check>>,
    /// Sizes of the objects, as far as they are flushed.
    pub sizes: Mutex<BTreeMap<Fid, u64>>,
}

impl Locked {
    pub fn new(rt: &Rt) -> Arc<Locked> {
        Arc::new(Locked {
            lockd: Lockd::new(rt, "filter-sheen-OST0000_UUID"),
            rt: rt.clone(),
            core: Mutex::default(),
            exports: Mutex::default(),
            ended: Mutex::default(),
            check: Mutex::default(),
            sizes: Mutex::default(),
        })
    }

    pub fn export(&self, client: &str) -> Arc<Export> {
        self.exports.lock()[client].clone()
    }

    pub fn locks(&self, n: u32) -> usize {
        self.lockd.resource_locks(object(n)).len()
    }

    async fn enqueue(&self, export: &Arc<Export>, locks: Vec<Enqueue>) -> ost::Reply {
        let mut answers = vec![];
        for ask in locks {
            let answer = match ask.resource.kind {
                Kind::Flock => self.lockd.enqueue(export, &ask),
                _ => self.lockd.enqueue_wait(export, &ask).await,
            };
            if let Enqueued::Granted { id, .. } = answer {
                self.lockd.delivered(export, &[id]);
            }
            answers.push((answer, ObjectAttr::default()));
        }
        ost::Reply::Enqueued { locks: answers, granted: 0, tight: false }
    }

    fn size(&self, object: Fid) -> u64 {
        self.sizes.lock().get(&object).copied().unwrap_or(0)
    }

    async fn attrs(&self, export: &Export, objects: Vec<Fid>) -> ost::Reply {
        let wants: Vec<_> = objects.iter().map(|object| (Resource::extent(*object), self.size(*object))).collect();
        let known = self.lockd.glimpse(export, &wants).await;
        assert_eq!(known.len(), objects.len());
        let attr = |(object, known): (&Fid, &Glimpse)| ObjectAttr {
            size: self.size(*object).max(known.size),
            blocks: known.blocks,
            mtime: known.mtime,
        };
        ost::Reply::Attrs(objects.iter().zip(&known).map(attr).collect())
    }

    async fn write(&self, export: &Arc<Export>, parts: Vec<Part>) {
        for part in &parts {
            let end = part.offset + u64::from(part.len);
            self.lockd.prolong(export, Resource::extent(part.object), part.offset, end - 1);
        }
        let want = |p: &Part| {
            let range = Policy::extent(p.offset, p.offset + u64::from(p.len) - 1);
            (Resource::extent(p.object), Mode::Pw, range)
        };
        let wants: Vec<_> = parts.iter().map(want).collect();
        let mut local = {
            let _core = self.core.lock();
            self.lockd.local(&wants, Some(export))
        };
        local.wait().await;
        if let Some(check) = &*self.check.lock() {
            parts.iter().for_each(|part| check(export, part));
        }
        self.rt.sleep(Duration::from_micros(self.rt.random_u64() % 2000)).await;
        for part in &parts {
            let mut sizes = self.sizes.lock();
            let size = sizes.entry(part.object).or_default();
            *size = (part.offset + u64::from(part.len)).max(*size);
        }
        if let Some(check) = &*self.check.lock() {
            parts.iter().for_each(|part| check(export, part));
        }
    }
}

impl Service<Ost> for Locked {
    fn call<'a>(
        &'a self,
        export: &'a Arc<Export>,
        request: ost::Request,
        _: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<ost::Reply>>> {
        Box::pin(async move {
            self.exports.lock().insert(export.client().to_owned(), export.clone());
            Ok(match request {
                ost::Request::Enqueue { locks, .. } => self.enqueue(export, locks).await.into(),
                ost::Request::Cancel { locks } => {
                    let _core = self.core.lock();
                    self.lockd.cancel(export, &locks);
                    ost::Reply::Ok.into()
                }
                ost::Request::Write { parts, .. } => {
                    self.write(export, parts).await;
                    ost::Reply::Ok.into()
                }
                ost::Request::Attrs { objects } => self.attrs(export, objects).await.into(),
                ost::Request::Glimpsed { answers } => {
                    let _core = self.core.lock();
                    self.lockd.glimpse_answered(export, &answers);
                    ost::Reply::Ok.into()
                }
                ost::Request::StatFs => ost::Reply::Ok.into(),
                _ => return Err(Errno::EOPNOTSUPP),
            })
        })
    }

    fn disconnected(&self, export: &Export) {
        let _core = self.core.lock();
        self.lockd.disconnected(export);
        self.ended.lock().push(export.client().to_owned());
    }

    fn reconnected(&self, export: &Arc<Export>) {
        self.lockd.reconnected(export);
    }

    fn incarnation(&self) -> u64 {
        1
    }
}

/// A server of a [`Locked`].
pub struct Scene {
    pub rt: Rt,
    pub service: Arc<Locked>,
    net: Arc<Net>,
    _server: Arc<Server>,
    addr: SocketAddr,
}

impl Scene {
    pub async fn new(rt: &Rt, addr: SocketAddr) -> Scene {
        let net = Net::new(rt.clone());
        let config = ServerConfig { export_timeout_ms: 5_000, ..ServerConfig::default() };
        let server = Server::with_config(net.clone(), config);
        let service = Locked::new(rt);
        server.add::<Ost>(TARGET, service.clone());
        let addr = server.listen(addr).await.unwrap();
        Scene { rt: rt.clone(), service, net, _server: server, addr }
    }

    /// A client over `lo` or tcp.
    pub async fn client(&self, name: &str, lo: bool, answer: Answer) -> Client {
        let client = if lo {
            Client::new(&self.rt, self.net.clone(), name, None, answer)
        } else {
            Client::new(&self.rt, Net::new(self.rt.clone()), name, Some(self.addr), answer)
        };
        client.import.request(ost::Request::StatFs).send().await.unwrap();
        client
    }

    pub fn local(&self, n: u32, except: Option<&Client>) -> sheen_lockd::Local {
        let except = except.map(|c| self.service.export(&c.name));
        self.service.lockd.local(&[(object(n), Mode::Pw, whole())], except.as_deref())
    }

    /// Waits until `so` is true.
    pub async fn until(&self, so: impl FnMut() -> bool) {
        until(&self.rt, so).await;
    }
}

/// A client's reaction to a blocking callback or a glimpse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Cancels or answers later.
    Soon,
    /// Cancels or answers before its handler returns (over `lo`).
    Inline,
    Never,
}

/// A client that has locks.
#[derive(Clone)]
pub struct Client {
    pub name: String,
    pub import: Arc<Import<Ost>>,
    pub heard: Arc<Mutex<Vec<Callback>>>,
    /// Its answer to glimpses of any object.
    pub knows: Arc<Mutex<Option<ObjectAttr>>>,
    cookie: Arc<AtomicU64>,
}

impl Client {
    pub fn new(rt: &Rt, net: Arc<Net>, name: &str, addr: Option<SocketAddr>, answer: Answer) -> Client {
        let nids = addr.map(Nid::Tcp).into_iter().collect();
        let import = Import::<Ost>::new(net, ImportConfig::new(name, TARGET, nids));
        let heard = Arc::new(Mutex::new(vec![]));
        let knows = Arc::<Mutex<Option<ObjectAttr>>>::default();
        let (note, known, weak, spawn) = (heard.clone(), knows.clone(), Arc::downgrade(&import), rt.clone());
        import.on_callback(move |callback| {
            note.lock().push(callback);
            let Some(import) = weak.upgrade() else { return };
            let request = match callback {
                Callback::Blocking { id, .. } => cancel_of(id),
                Callback::Glimpse { id, .. } => ost::Request::Glimpsed { answers: vec![(id, *known.lock())] },
                Callback::Completion { .. } | Callback::Changelog => return,
            };
            let answers = async move { drop(import.request(request).urgent().send().await) };
            match answer {
                Answer::Soon => drop(spawn.spawn("answer", answers)),
                Answer::Inline => now(answers).expect("over lo nothing waits"),
                Answer::Never => {}
            }
        });
        Client { name: name.to_owned(), import, heard, knows, cookie: Arc::default() }
    }

    pub fn ask(&self, resource: Resource, mode: Mode, policy: Policy) -> Enqueue {
        Enqueue::new(resource, mode, policy, Cookie(self.cookie.fetch_add(1, SeqCst) + 1))
    }

    pub async fn send(&self, ask: Enqueue) -> Enqueued {
        let request = ost::Request::Enqueue { locks: vec![ask], want: 0 };
        match self.import.request(request).send().await.unwrap().body {
            ost::Reply::Enqueued { locks: answers, .. } => answers[0].0,
            other => panic!("{other:?}"),
        }
    }

    /// Enqueues a lock on the whole object.
    pub async fn enqueue(&self, mode: Mode, n: u32) -> Enqueued {
        self.send(self.ask(object(n), mode, whole())).await
    }

    /// Takes a lock on the whole object.
    pub async fn lock(&self, mode: Mode, n: u32) -> LockId {
        granted(self.enqueue(mode, n).await)
    }

    pub async fn cancel(&self, id: LockId) {
        self.import.request(cancel_of(id)).urgent().send().await.unwrap();
    }

    /// Asks the server for attributes of objects.
    pub async fn attrs(&self, objects: &[u32]) -> Vec<ObjectAttr> {
        let objects = objects.iter().map(|n| object(*n).fid).collect();
        match self.import.request(ost::Request::Attrs { objects }).send().await.unwrap().body {
            ost::Reply::Attrs(attrs) => attrs,
            other => panic!("{other:?}"),
        }
    }

    /// The locks through which the client got glimpse callbacks.
    pub fn glimpsed(&self) -> Vec<LockId> {
        let glimpse = |c: &Callback| if let Callback::Glimpse { id, .. } = c { Some(*id) } else { None };
        self.heard.lock().iter().filter_map(glimpse).collect()
    }

    /// The locks for which the client got blocking callbacks.
    pub fn asked(&self) -> Vec<LockId> {
        let blocking = |c: &Callback| if let Callback::Blocking { id, .. } = c { Some(*id) } else { None };
        self.heard.lock().iter().filter_map(blocking).collect()
    }
}

pub fn cancel_of(id: LockId) -> ost::Request {
    ost::Request::Cancel { locks: vec![id] }
}

pub fn granted(answer: Enqueued) -> LockId {
    match answer {
        Enqueued::Granted { id, .. } if id != LockId::NONE => id,
        other => panic!("{other:?}"),
    }
}

/// Returns the output of a future if it is ready at the first poll.
pub fn now<F: Future>(f: F) -> Option<F::Output> {
    match pin!(f).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    }
}

/// Waits until `so` is true.
pub async fn until(rt: &Rt, mut so: impl FnMut() -> bool) {
    while !so() {
        rt.sleep(Duration::from_millis(1)).await;
    }
}

/// Runs a test in several simulations. The server and its clients, over `lo` and over tcp, are on
/// one host. A test that hangs fails.
pub fn run(test: impl AsyncFn(Scene)) {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed, SimConfig { time_max: TIME_MAX, ..SimConfig::default() });
        sim.run(async {
            let scene = Scene::new(&sim.rt(1), ([127, 0, 0, 1], 0).into()).await;
            test(scene).await;
        })
        .unwrap();
    }
}
