//! Callbacks from a service to its clients, evictions, and urgent requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use sheen_lnet::{Net, Nid};
use sheen_rpc::{BoxFuture, Export, Import, ImportConfig, ImportState, Response, Server, Service};
use sheen_rt::{
    Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Bulk, Errno, Fid, Mds,
    ast::Callback,
    ldlm::{Cookie, LockId, Resource},
    mds,
};
use tokio::sync::Semaphore;

use crate::common::*;

/// A service that knows its clients. `Sync` waits at the gate. `Cancel` does not wait and is
/// recorded.
#[derive(Default)]
struct Bell {
    exports: Mutex<BTreeMap<String, Arc<Export>>>,
    reconnected: Mutex<Vec<String>>,
    ended: Mutex<Vec<String>>,
    cancelled: Mutex<BTreeSet<u64>>,
    gate: Option<Semaphore>,
}

impl Bell {
    fn gated() -> Bell {
        Bell { gate: Some(Semaphore::new(0)), ..Bell::default() }
    }

    fn export(&self, client: &str) -> Arc<Export> {
        self.exports.lock()[client].clone()
    }

    fn ring(&self, client: &str, n: u64) -> bool {
        self.export(client).callback::<Mds>(glimpse(n))
    }
}

impl Service<Mds> for Bell {
    fn call<'a>(
        &'a self,
        export: &'a Arc<Export>,
        call: mds::Call,
        _: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<mds::Answer>>> {
        Box::pin(async move {
            self.exports.lock().insert(export.client().to_owned(), export.clone());
            self.cancelled.lock().extend(call.cancels.iter().map(|id| id.0));
            match (&call.request, &self.gate) {
                (mds::Request::Sync { .. }, Some(gate)) => gate.acquire().await.unwrap().forget(),
                (mds::Request::Sync { .. } | mds::Request::Cancel, _) => {}
                _ => return Err(Errno::EOPNOTSUPP),
            }
            Ok(mds::Answer::from(mds::Reply::Ok).into())
        })
    }

    fn reconnected(&self, export: &Arc<Export>) {
        assert!(Arc::ptr_eq(export, &self.export(export.client())), "the same client");
        self.reconnected.lock().push(export.client().to_owned());
    }

    fn disconnected(&self, export: &Export) {
        assert!(export.is_ended());
        self.ended.lock().push(export.client().to_owned());
    }

    fn incarnation(&self) -> u64 {
        1
    }
}

fn glimpse(n: u64) -> Callback {
    Callback::Glimpse { id: LockId(n), cookie: Cookie(n), resource: Resource::extent(Fid::new(1, 1)) }
}

fn number(callback: Callback) -> u64 {
    match callback {
        Callback::Glimpse { id, cookie, .. } if id.0 == cookie.0 => id.0,
        other => panic!("{other:?}"),
    }
}

fn cancel(n: u64) -> mds::Call {
    mds::Call { cancels: vec![LockId(n)], ..mds::Request::Cancel.into() }
}

fn sync() -> mds::Call {
    mds::Request::Sync { fid: None }.into()
}

/// The callbacks that a client got.
type Heard = Arc<Mutex<Vec<u64>>>;

fn listen(import: &Import<Mds>) -> Heard {
    let heard = Heard::default();
    let note = heard.clone();
    import.on_callback(move |callback| note.lock().push(number(callback)));
    heard
}

/// Notes, for each recovery of a client, whether the server knew the client.
fn note_recoveries(import: &Import<Mds>) -> Arc<Mutex<Vec<bool>>> {
    let recovered = Arc::<Mutex<Vec<bool>>>::default();
    let note = recovered.clone();
    import.on_restart(move |recovering| {
        note.lock().push(recovering.welcome().known);
        Box::pin(async { Ok(()) })
    });
    recovered
}

/// Starts a service and a client of it, over `lo` or tcp.
async fn pair(rt: &Rt, bell: &Arc<Bell>, lo: bool) -> (Arc<Server>, Arc<Import<Mds>>) {
    let net = Net::new(rt.clone());
    let server = Server::with_config(net.clone(), config(60_000));
    server.add::<Mds>(TARGET, bell.clone());
    let addr = server.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let net = if lo { net } else { Net::new(rt.clone()) };
    (server, Import::new(net, import_config("c", (!lo).then_some(addr))))
}

#[test]
fn callbacks_arrive_in_order() {
    run(async |rt| {
        for lo in [true, false] {
            let bell = Arc::new(Bell::default());
            let (_server, import) = pair(&rt, &bell, lo).await;
            let heard = listen(&import);
            import.request(sync()).send().await.unwrap();
            for n in 0..100 {
                assert!(bell.ring("c", n));
                assert!(!lo || heard.lock().len() as u64 == n + 1, "over lo: before `callback` returns");
            }
            until(&rt, || heard.lock().len() == 100).await;
            assert_eq!(*heard.lock(), (0..100).collect::<Vec<_>>());
            import.request(sync()).send().await.unwrap();
            assert_eq!((import.state(), import.stats().connects), (ImportState::Full, 1));

            import.close().await;
            until(&rt, || *bell.ended.lock() == ["c"]).await;
            assert!(!bell.ring("c", 0), "the client has disconnected");
            assert_eq!(heard.lock().len(), 100);
        }
    });
}

#[test]
fn callback_without_a_handler_is_ignored() {
    run(async |rt| {
        for lo in [true, false] {
            let bell = Arc::new(Bell::default());
            let (_server, import) = pair(&rt, &bell, lo).await;
            import.request(sync()).send().await.unwrap();
            bell.ring("c", 1);
            import.request(sync()).send().await.unwrap();
            assert_eq!(import.stats().connects, 1);
        }
    });
}

#[test]
fn urgent_call_overtakes_calls_waiting_for_a_slot() {
    run(async |rt| {
        for lo in [true, false] {
            let bell = Arc::new(Bell::gated());
            let (_server, import) = pair(&rt, &bell, lo).await;
            let call = |request| {
                let i = import.clone();
                rt.spawn("call", async move { i.request(request).send().await.map(|_| ()) })
            };
            let mut all: Vec<_> = (0..8).map(|_| call(sync())).collect();
            until(&rt, || import.stats().in_flight == 8).await;
            all.push(call(cancel(1)));
            import.request(cancel(2)).urgent().send().await.unwrap();
            assert_eq!(*bell.cancelled.lock(), [2].into(), "the other one waits");
            bell.gate.as_ref().unwrap().add_permits(8);
            for call in all {
                call.await.unwrap().unwrap();
            }
            assert_eq!(*bell.cancelled.lock(), [1, 2].into());
        }
    });
}

#[test]
fn evicted_client_reconnects_as_a_new_client() {
    run(async |rt| {
        for lo in [true, false] {
            let bell = Arc::new(Bell::default());
            let (_server, import) = pair(&rt, &bell, lo).await;
            let heard = listen(&import);
            let recovered = note_recoveries(&import);
            import.request(sync()).send().await.unwrap();
            let first = bell.export("c");
            first.evict("test");
            first.evict("test");
            assert_eq!(*bell.ended.lock(), ["c"], "reported once, and before `evict` returns");
            assert!(first.is_ended() && !first.callback::<Mds>(glimpse(1)));

            until(&rt, || *recovered.lock() == [false]).await;
            import.request(sync()).send().await.unwrap();
            let second = bell.export("c");
            assert!(second.id() != first.id() && bell.reconnected.lock().is_empty());
            assert!(second.callback::<Mds>(glimpse(2)));
            until(&rt, || *heard.lock() == [2]).await;
            first.evict("test");
            import.request(sync()).send().await.unwrap();
            assert!(!second.is_ended() && import.stats().connects == 2, "the present export was not evicted");
        }
    });
}

#[test]
fn idle_client_with_callbacks_notices_target_restart_at_once() {
    run(async |rt| {
        for lo in [true, false] {
            let bell = Arc::new(Bell::default());
            let (server, import) = pair(&rt, &bell, lo).await;
            let _heard = listen(&import);
            let recovered = note_recoveries(&import);
            import.request(sync()).send().await.unwrap();
            server.remove(TARGET);
            rt.sleep(Duration::from_millis(20)).await;
            assert!(recovered.lock().is_empty() && bell.ended.lock().is_empty());
            server.add::<Mds>(TARGET, bell.clone());
            // The client sends no request meanwhile.
            until(&rt, || *recovered.lock() == [false]).await;
            import.request(sync()).send().await.unwrap();
        }
    });
}

/// A service sends callbacks. When the client has reconnected, it repeats those that were not
/// cancelled. Returns how often clients reconnected.
fn ringing(seed: u64) -> usize {
    const PORT: u16 = 7988;
    const RINGS: u64 = 60;
    let sim = Sim::new(seed, SimConfig { loss: 0.01, short_io: 0.2, ..SimConfig::default() });
    let bell = Arc::new(Bell::default());
    sim.run(async {
        let server = Server::new(Net::new(sim.rt(1)));
        server.add::<Mds>(TARGET, bell.clone());
        server.listen(sim.addr(1, PORT)).await.unwrap();
        let rt = sim.rt(2);
        let config = ImportConfig::new("c", TARGET, vec![Nid::Tcp(sim.addr(1, PORT))]);
        let import = Import::<Mds>::new(Net::new(rt.clone()), config);
        let (weak, on) = (Arc::downgrade(&import), rt.clone());
        import.on_callback(move |callback| {
            if let Some(import) = weak.upgrade() {
                let n = number(callback);
                drop(on.spawn("cancel", async move { drop(import.request(cancel(n)).urgent().send().await) }));
            }
        });
        import.request(sync()).send().await.unwrap();
        let world = (*sim).clone();
        let faults = sim.rt(9).spawn("faults", async move {
            let rt = world.rt(9);
            for _ in 0..30 {
                rt.sleep(Duration::from_micros(rt.random_u64() % 20_000)).await;
                world.reset_connections(1, 2);
            }
        });
        let rt = sim.rt(1);
        let mut came_back = 0;
        for n in 0..RINGS {
            bell.ring("c", n);
            rt.sleep(Duration::from_millis(5)).await;
        }
        faults.await.unwrap();
        while (bell.cancelled.lock().len() as u64) < RINGS {
            let times = bell.reconnected.lock().len();
            if times != came_back {
                came_back = times;
                let open: Vec<_> = (0..RINGS).filter(|n| !bell.cancelled.lock().contains(n)).collect();
                for n in open {
                    bell.ring("c", n);
                }
            }
            rt.sleep(Duration::from_millis(5)).await;
        }
        assert!(bell.ended.lock().is_empty());
        bell.reconnected.lock().len()
    })
    .unwrap()
}

#[test]
fn lost_callbacks_are_repeated_after_reconnect() {
    let times: usize = (0..10).map(ringing).sum();
    assert!(times > 20, "{times}: too few reconnects");
}
