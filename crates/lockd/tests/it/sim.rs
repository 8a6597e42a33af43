//! Locks in the simulator, where connections break and clients vanish.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use sheen_lnet::{Net, Nid};
use sheen_rpc::{Import, ImportConfig, ImportState};
use sheen_rt::{
    Rt,
    sim::{Sim, SimConfig, SimError, World},
};
use sheen_wire::{Fid, Ost, ast::Callback, ldlm::*, ost};

use crate::common::*;

pub const PORT: u16 = 7988;
const OBJECTS: u64 = 3;

pub async fn scene(world: &World) -> Scene {
    Scene::new(&world.rt(1), world.addr(1, PORT)).await
}

async fn client(world: &World, host: u32, answer: Answer) -> Client {
    let rt = world.rt(host);
    let addr = world.addr(1, PORT);
    let client = Client::new(&rt, Net::new(rt.clone()), &format!("client-{host}"), Some(addr), answer);
    client.import.request(ost::Request::StatFs).send().await.unwrap();
    client
}

#[test]
fn callback_lost_with_its_connection_is_resent() {
    let sim = Sim::new(1, SimConfig::default());
    sim.run(async {
        let s = scene(&sim).await;
        let a = client(&sim, 2, Answer::Soon).await;
        a.lock(Mode::Pr, 1).await;
        sim.partition(1, 2);
        let mut local = s.local(1, None);
        assert!(now(local.wait()).is_none());
        s.rt.sleep(Duration::from_millis(100)).await;
        sim.reset_connections(1, 2);
        s.rt.sleep(Duration::from_secs(3)).await;
        assert!(a.heard.lock().is_empty() && !local.is_granted());
        sim.heal(1, 2);
        local.wait().await;
        assert_eq!(a.asked().len(), 1);
        assert!(s.service.ended.lock().is_empty());
    })
    .unwrap();
}

#[test]
fn vanished_client_delays_others_only_for_the_lock_timeout() {
    let sim = Sim::new(2, SimConfig::default());
    sim.run(async {
        let s = scene(&sim).await;
        let (a, b) = (client(&sim, 2, Answer::Soon).await, client(&sim, 3, Answer::Soon).await);
        a.lock(Mode::Pr, 1).await;
        b.lock(Mode::Pr, 1).await;
        b.lock(Mode::Pr, 2).await;
        // Its connection stays open until the server notices.
        sim.partition(1, 3);
        let began = s.rt.now();
        s.local(1, None).wait().await;
        let took = s.rt.now().since(began).as_millis();
        assert!((20_000..20_100).contains(&took), "{took} ms; the lock timeout is 20 s");
        until(&s.rt, || *s.service.ended.lock() == ["client-3"]).await;
        assert_eq!(s.service.locks(2), 0);
    })
    .unwrap();
}

#[test]
fn idle_lock_server_has_no_timer() {
    let sim = Sim::new(3, SimConfig::default());
    let survivor = sim
        .run(async {
            let s = scene(&sim).await;
            let a = client(&sim, 2, Answer::Soon).await;
            a.lock(Mode::Pr, 1).await;
            s.local(1, None).wait().await;
            a.lock(Mode::Pr, 1).await;
            (s, a)
        })
        .unwrap();
    // If any timer were left, time would go on for ever.
    let idle = sim.run(std::future::pending::<()>());
    assert!(matches!(idle, Err(SimError::Deadlock { .. })), "{idle:?}");
    assert_eq!(survivor.1.import.state(), ImportState::Full);
}

/// The locks that the clients believe to hold: (object, client).
type Believed = Arc<Mutex<BTreeSet<(Fid, String)>>>;

/// A client's view of its locks.
#[derive(Default)]
struct View {
    /// By cookie: the object, and the lock once granted.
    locks: BTreeMap<Cookie, (Fid, Option<LockId>)>,
    /// Locks that got a blocking callback before the grant arrived.
    early: BTreeSet<Cookie>,
    cookie: u64,
}

/// A client that reads under locks and writes without.
#[derive(Clone)]
struct Reader {
    name: String,
    rt: Rt,
    import: Arc<Import<Ost>>,
    view: Arc<Mutex<View>>,
    believed: Believed,
}

impl Reader {
    fn new(world: &World, host: u32, believed: &Believed) -> Reader {
        let (rt, name) = (world.rt(host), format!("client-{host}"));
        let config = ImportConfig::new(&name, TARGET, vec![Nid::Tcp(world.addr(1, PORT))]);
        let import = Import::<Ost>::new(Net::new(rt.clone()), config);
        let reader = Reader { name, rt, import, view: Arc::default(), believed: believed.clone() };
        let (weak, view, rt) = (Arc::downgrade(&reader.import), reader.view.clone(), reader.rt.clone());
        let (believed, name) = (believed.clone(), reader.name.clone());
        reader.import.on_callback(move |callback| {
            let (Callback::Blocking { id, cookie, .. }, Some(import)) = (callback, weak.upgrade()) else { return };
            let (view, believed, name, on) = (view.clone(), believed.clone(), name.clone(), rt.clone());
            let cancel = async move {
                on.sleep(Duration::from_micros(on.random_u64() % 3000)).await;
                forget(&view, &believed, &name, cookie);
                drop(import.request(ost::Request::Cancel { locks: vec![id] }).urgent().send().await);
            };
            drop(rt.spawn("cancel", cancel));
        });
        reader
    }

    async fn read(&self, object: Fid) {
        let cookie = {
            let mut view = self.view.lock();
            view.cookie += 1;
            let cookie = Cookie(view.cookie);
            view.locks.insert(cookie, (object, None));
            cookie
        };
        let ask = Enqueue::new(Resource::extent(object), Mode::Pr, whole(), cookie);
        let answer = self.import.request(ost::Request::Enqueue { locks: vec![ask], want: 0 }).send().await;
        let Ok(ost::Reply::Enqueued { locks: answers, .. }) = answer.map(|r| r.body) else { return };
        let mut view = self.view.lock();
        if let Enqueued::Granted { id, .. } = answers[0].0
            && !view.early.remove(&cookie)
        {
            view.locks.insert(cookie, (object, Some(id)));
            self.believed.lock().insert((object, self.name.clone()));
        }
    }

    async fn write(&self, objects: Vec<Fid>) {
        let part = |object| ost::Part { object, offset: self.rt.random_u64() % 100, len: 50 };
        let request = ost::Request::Write {
            file: Fid::ZERO,
            parts: objects.into_iter().map(part).collect(),
            sync: false,
            mtime: None,
            grant: ost::Grant::default(),
            held: false,
        };
        drop(self.import.request(request).send().await);
    }
}

/// Ends a client's use of a lock.
fn forget(view: &Mutex<View>, believed: &Believed, name: &str, cookie: Cookie) {
    let mut view = view.lock();
    match view.locks.remove(&cookie) {
        Some((_, None)) => {
            view.early.insert(cookie);
        }
        Some((object, Some(_))) => {
            let others = view.locks.values().any(|(of, id)| *of == object && id.is_some());
            if !others {
                believed.lock().remove(&(object, name.to_owned()));
            }
        }
        None => {}
    }
}

/// Clients read and write while connections break, and one of them vanishes. Returns the number of
/// blocking callbacks.
fn everybody(seed: u64) -> u64 {
    let sim = Sim::new(seed, SimConfig { loss: 0.01, short_io: 0.2, ..SimConfig::default() });
    let stats = sim.run(async {
        let s = scene(&sim).await;
        let believed = Believed::default();
        let watch = believed.clone();
        *s.service.check.lock() = Some(Box::new(move |writer, part| {
            let believed = watch.lock();
            let other = believed.iter().find(|(object, who)| *object == part.object && who != writer.client());
            assert!(other.is_none(), "{} writes what {other:?} reads", writer.client());
        }));
        let readers: Vec<_> = (2..=5).map(|host| Reader::new(&sim, host, &believed)).collect();
        let tasks = readers.iter().flat_map(|r| [r.clone(), r.clone()]).map(|reader| {
            reader.rt.clone().spawn("work", async move {
                for _ in 0..25 {
                    let object = |n: u64| Fid::new(7, (n % OBJECTS) as u32);
                    let n = reader.rt.random_u64();
                    match n % 8 {
                        0 | 1 => reader.write(vec![object(n >> 8)]).await,
                        2 => reader.write(vec![object(n >> 8), object(n >> 16), object(n >> 24)]).await,
                        _ => reader.read(object(n >> 8)).await,
                    }
                    reader.rt.sleep(Duration::from_micros((n >> 32) % 5000)).await;
                }
            })
        });
        let mut tasks: Vec<_> = tasks.collect();
        let world = (*sim).clone();
        let faults = sim.rt(9).spawn("faults", async move {
            let rt = world.rt(9);
            loop {
                rt.sleep(Duration::from_micros(rt.random_u64() % 100_000)).await;
                world.reset_connections(1, 2 + (rt.random_u64() % 4) as u32);
            }
        });
        let victim = &readers[3];
        victim.rt.sleep(Duration::from_millis(30)).await;
        for task in tasks.drain(6..) {
            task.abort();
        }
        believed.lock().retain(|(_, who)| *who != victim.name);
        *victim.view.lock() = View { cookie: 1 << 32, ..View::default() };
        victim.import.close().await;
        for task in tasks {
            task.await.unwrap();
        }
        faults.abort();
        assert!(s.service.ended.lock().iter().all(|who| *who == victim.name), "no other client was evicted");
        s.service.lockd.stats()
    });
    stats.unwrap().blocking_callbacks
}

#[test]
fn writers_never_conflict_with_readers_and_all_requests_end() {
    let blocked: u64 = (0..20).map(everybody).sum();
    assert!(blocked > 500, "{blocked}: nothing was tested");
}
