//! In the simulator: clients have dirty data under locks, others ask for the object's size, while
//! connections break.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sheen_lnet::{Net, Nid};
use sheen_rpc::{Import, ImportConfig};
use sheen_rt::{
    Rt,
    sim::{Sim, SimConfig, World},
};
use sheen_wire::{Fid, Ost, ast::Callback, ldlm::*, ost, ost::ObjectAttr};

use crate::{common::*, sim};

/// Start of the writers' locks: above all sizes.
const FAR: u64 = 1 << 20;

/// A client's lock on the object, and its dirty data.
#[derive(Default)]
struct Holding {
    lock: Option<(Cookie, LockId)>,
    /// The lock is being cancelled: no data is written under it any more.
    closing: bool,
    /// How far the client wrote under the lock; 0: not at all.
    size: u64,
    /// Locks that got a blocking callback before the grant arrived.
    early: BTreeSet<Cookie>,
    cookie: u64,
}

#[derive(Clone)]
struct Writer {
    rt: Rt,
    host: u32,
    import: Arc<Import<Ost>>,
    holding: Arc<Mutex<Holding>>,
    /// The object's true size. Every write increases it by one.
    size: Arc<AtomicU64>,
}

impl Writer {
    fn new(world: &World, host: u32, size: &Arc<AtomicU64>) -> Writer {
        let rt = world.rt(host);
        let nids = vec![Nid::Tcp(world.addr(1, sim::PORT))];
        let config = ImportConfig::new(&format!("client-{host}"), TARGET, nids);
        let import = Import::<Ost>::new(Net::new(rt.clone()), config);
        let writer = Writer { rt, host, import, holding: Arc::default(), size: size.clone() };
        let (weak, clone) = (Arc::downgrade(&writer.import), writer.clone());
        let Writer { rt, holding, size, .. } = clone;
        writer.import.on_callback(move |callback| {
            let Some(import) = weak.upgrade() else { return };
            let writer = Writer { rt: rt.clone(), host, import, holding: holding.clone(), size: size.clone() };
            drop(rt.spawn("answer", writer.answer(callback)));
        });
        writer
    }

    fn answer(self, callback: Callback) -> impl Future<Output = ()> + Send + 'static {
        // The size when the callback arrives, however long the answer takes.
        let size = self.holding.lock().size;
        async move {
            self.pause().await;
            match callback {
                Callback::Glimpse { id, .. } => {
                    let known = (size > 0).then(|| ObjectAttr { size, ..ObjectAttr::default() });
                    self.urgent(ost::Request::Glimpsed { answers: vec![(id, known)] }).await;
                }
                Callback::Blocking { id, cookie, .. } => self.cancel(cookie, id).await,
                Callback::Completion { .. } | Callback::Changelog => {}
            }
        }
    }

    async fn pause(&self) {
        self.rt.sleep(Duration::from_micros(self.rt.random_u64() % 3000)).await;
    }

    async fn urgent(&self, request: ost::Request) {
        self.import.request(request).urgent().send().await.unwrap();
    }

    /// Takes a lock on the client's own part of the object, if it has none.
    async fn lock(&self) {
        let cookie = {
            let mut holding = self.holding.lock();
            if holding.lock.is_some() {
                return;
            }
            holding.cookie += 1;
            Cookie(holding.cookie)
        };
        let start = FAR * u64::from(self.host);
        let ask = Enqueue::new(object(1), Mode::Pw, Policy::extent(start, start + FAR - 1), cookie);
        let ask = Enqueue { flags: Flags { no_expand: true, ..Flags::default() }, ..ask };
        let request = ost::Request::Enqueue { locks: vec![ask], want: 0 };
        let ost::Reply::Enqueued { locks, .. } = self.import.request(request).send().await.unwrap().body else {
            panic!("not what was asked for")
        };
        let id = granted(locks[0].0);
        let early = {
            let mut holding = self.holding.lock();
            holding.lock = Some((cookie, id));
            holding.early.remove(&cookie)
        };
        if early {
            self.cancel(cookie, id).await;
        }
    }

    fn write(&self) {
        let mut holding = self.holding.lock();
        if holding.lock.is_some() && !holding.closing {
            holding.size = self.size.fetch_add(1, SeqCst) + 1;
        }
    }

    async fn cancel(&self, cookie: Cookie, id: LockId) {
        let size = {
            let mut holding = self.holding.lock();
            match holding.lock {
                Some((own, _)) if own == cookie && holding.closing => return,
                Some((own, _)) if own == cookie => {
                    holding.closing = true;
                    Some(holding.size)
                }
                _ if cookie.0 == holding.cookie => {
                    holding.early.insert(cookie);
                    None
                }
                _ => None,
            }
        };
        if let Some(size) = size {
            if size > 0 {
                let parts = vec![ost::Part { object: object(1).fid, offset: size - 1, len: 1 }];
                let (file, grant) = (Fid::ZERO, ost::Grant::default());
                self.urgent(ost::Request::Write { file, parts, sync: false, mtime: None, grant, held: false }).await;
            }
            let mut holding = self.holding.lock();
            (holding.lock, holding.closing, holding.size) = (None, false, 0);
        }
        self.urgent(ost::Request::Cancel { locks: vec![id] }).await;
    }

    async fn look(&self) {
        let before = self.size.load(SeqCst);
        let request = ost::Request::Attrs { objects: vec![object(1).fid] };
        let own = self.holding.lock().size;
        let ost::Reply::Attrs(attrs) = self.import.request(request).send().await.unwrap().body else {
            panic!("not what was asked for")
        };
        let seen = attrs[0].size.max(own);
        assert!(seen >= before, "client-{} saw {seen} after {before} was written", self.host);
        assert!(seen <= self.size.load(SeqCst));
    }

    async fn work(self) {
        for _ in 0..60 {
            match self.rt.random_u64() % 10 {
                0 | 1 => self.lock().await,
                2..6 => self.write(),
                6 => {
                    let lock = self.holding.lock().lock;
                    if let Some((cookie, id)) = lock {
                        self.cancel(cookie, id).await;
                    }
                }
                _ => self.look().await,
            }
            self.pause().await;
        }
    }
}

/// Returns the numbers of glimpse callbacks and of blocking callbacks.
fn everybody(seed: u64) -> (u64, u64) {
    let config = SimConfig { loss: 0.01, short_io: 0.2, ..SimConfig::default() };
    let world = Sim::new(seed, config);
    let stats = world.run(async {
        let s = sim::scene(&world).await;
        let size = Arc::<AtomicU64>::default();
        let writers: Vec<_> = (2..=5).map(|host| Writer::new(&world, host, &size)).collect();
        let tasks: Vec<_> = writers.iter().flat_map(|w| [w, w]).map(|w| w.rt.spawn("work", w.clone().work())).collect();
        let faulty = (*world).clone();
        let faults = world.rt(9).spawn("faults", async move {
            let rt = faulty.rt(9);
            loop {
                rt.sleep(Duration::from_micros(rt.random_u64() % 100_000)).await;
                faulty.reset_connections(1, 2 + (rt.random_u64() % 4) as u32);
            }
        });
        for task in tasks {
            task.await.unwrap();
        }
        faults.abort();
        assert!(s.service.ended.lock().is_empty(), "no client is evicted");
        s.service.lockd.stats()
    });
    let stats = stats.unwrap();
    (stats.glimpse_callbacks, stats.blocking_callbacks)
}

#[test]
fn stat_sees_all_prior_writes_while_connections_break() {
    let (glimpses, blocked) = (0..30).map(everybody).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert!(glimpses > 1000 && blocked > 50, "{glimpses}, {blocked}: nothing was tested");
}
