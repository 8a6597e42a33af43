//! A file system in memory: an MGS, an MDT and OSTs, just good enough to test the client against.
//! They log all requests.

mod callbacks;
mod locks;
pub mod mds;
mod ost;
pub mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sheen_client::{Caller, Client, ClientOptions, GroupSource, Invalidate};
use sheen_layout::MDT_OST;
use sheen_lnet::{Net, Nid};
use sheen_params::Params;
use sheen_rpc::{BoxFuture, Export, Response, Server, Service};
use sheen_rt::{
    Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Bulk, Errno, Fid, Mds, Mgs, Ost, Result, fid,
    ldlm::Resource,
    mds as wire_mds, mgs,
    mgs::{Config, Target, TargetKind},
    ost as wire_ost,
};
use tokio::sync::Notify;

pub use world::{Object, State, World};

pub const FSNAME: &str = "sheen";
/// The data service of the MDT.
pub const DATA_SERVICE: &str = "sheen-MDT0000-dom";

pub struct FakeMgs(pub Arc<World>);
pub struct FakeMds(pub Arc<World>);
pub struct FakeOst(pub Arc<World>, pub u32);

impl Service<Mgs> for FakeMgs {
    fn call<'a>(
        &'a self,
        _: &'a Arc<Export>,
        request: mgs::Request,
        _: Bulk,
    ) -> BoxFuture<'a, Result<Response<mgs::Reply>>> {
        Box::pin(async move {
            let (name, version) = match &request {
                mgs::Request::GetConfig { fsname } => (fsname, 0),
                mgs::Request::Watch { fsname, version } => (fsname, *version),
                _ => return Err(Errno::EINVAL),
            };
            if name != FSNAME {
                return Err(Errno::ENOENT);
            }
            loop {
                let changed = self.0.config_changed.notified();
                let config = self.0.state.lock().config.clone();
                if config.version > version {
                    return Ok(mgs::Reply::Config(config).into());
                }
                changed.await;
            }
        })
    }

    fn incarnation(&self) -> u64 {
        1
    }
}

impl Service<Mds> for FakeMds {
    fn call<'a>(
        &'a self,
        export: &'a Arc<Export>,
        call: wire_mds::Call,
        _: Bulk,
    ) -> BoxFuture<'a, Result<Response<wire_mds::Answer>>> {
        Box::pin(async move {
            self.0.recovered(TargetKind::Mdt, 0).await;
            self.0.pause().await;
            let op = call.request.op();
            let (reply, grants, invalidations) = {
                let mut state = self.0.state.lock();
                state.log.push(format!("mds {op}"));
                state.locks.mds = Some(export.clone());
                state.locks.cancel(None, &call.cancels);
                state.locks.converted.extend(call.converts);
                let invalidations = mds::behind(&state, &call.request);
                let reply = mds::execute(&mut state, call.request)?;
                let grants = state.locks.keep(call.keep, &mds::inodes(&reply));
                (reply, grants, invalidations)
            };
            self.0.granted(&grants);
            self.0.delay_reply(op).await;
            Ok(wire_mds::Answer { grants, invalidations, ..reply.into() }.into())
        })
    }

    fn incarnation(&self) -> u64 {
        self.0.state.lock().incarnation
    }

    fn features(&self) -> u64 {
        if self.0.state.lock().habits.holds_data { wire_mds::FEATURE_DATA } else { 0 }
    }

    fn recovery_left(&self) -> Option<Duration> {
        self.0.recovery_left(TargetKind::Mdt, 0)
    }
}

impl Service<Ost> for FakeOst {
    fn call<'a>(
        &'a self,
        export: &'a Arc<Export>,
        request: wire_ost::Request,
        bulk: Bulk,
    ) -> BoxFuture<'a, Result<Response<wire_ost::Reply>>> {
        Box::pin(async move {
            self.0.recovered(TargetKind::Ost, self.1).await;
            self.0.pause().await;
            self.0.hold(self.1, &request).await;
            let wanted: Vec<Resource> = match &request {
                wire_ost::Request::Enqueue { locks, .. } => locks.iter().map(|lock| lock.resource).collect(),
                _ => Vec::new(),
            };
            let mut state = self.0.state.lock();
            state.locks.osts.insert(self.1, export.clone());
            let answer = ost::execute(&mut state, self.1, request, bulk);
            drop(state);
            if self.0.hasty.load(Relaxed) {
                wanted.into_iter().for_each(|resource| _ = self.0.revoke(resource));
            }
            answer
        })
    }

    fn incarnation(&self) -> u64 {
        1 + self.0.state.lock().habits.restarts
    }

    fn recovery_left(&self) -> Option<Duration> {
        self.0.recovery_left(TargetKind::Ost, self.1)
    }
}

struct TestGroups;

impl GroupSource for TestGroups {
    fn groups(&self, pid: u32) -> Option<Vec<u32>> {
        (pid == 42).then(|| vec![7, 8])
    }
}

/// A kernel that caches nothing, and checks permissions.
pub struct Kernel;

impl Invalidate for Kernel {
    fn names(&self) {}
    fn attr(&self, _: Fid) -> bool {
        true
    }
    fn data(&self, _: Fid) {}
    fn part(&self, _: Fid, _: u64, _: u64) {}
    fn keeps_names(&self) -> bool {
        true
    }
}

/// A mounted file system with its servers.
pub struct Mounted {
    pub world: Arc<World>,
    pub client: Arc<Client>,
    pub net: Arc<Net>,
    pub server: Arc<Server>,
    pub params: Params,
}

pub const ROOT: Caller = Caller::ROOT;
/// How long operations over tcp wait for a disconnected server.
const SERVER_WAIT: Duration = Duration::from_secs(100);

impl Mounted {
    /// Mounts a file system of `ost_count` OSTs, whose new files have this stripe size and stripes
    /// on `osts`.
    pub async fn new(rt: Rt, ost_count: u32, stripe_size: u32, osts: &[u32]) -> Mounted {
        let net = Net::new(rt);
        Mounted::between(net.clone(), net, Nid::Lo, None, ost_count, stripe_size, osts).await
    }

    /// Mounts like [`Mounted::new`], with servers that are reachable only over tcp. Operations wait
    /// for a disconnected server for [`SERVER_WAIT`].
    pub async fn over_tcp(server: Rt, client: Rt, ost_count: u32, stripe_size: u32, osts: &[u32]) -> Mounted {
        let at = std::net::SocketAddr::from(([10, 0, 0, 1], 988));
        let (serving, net, wait) = (Net::new(server), Net::new(client), Some(SERVER_WAIT));
        Mounted::between(serving, net, Nid::Tcp(at), wait, ost_count, stripe_size, osts).await
    }

    async fn between(
        serving: Arc<Net>,
        net: Arc<Net>,
        nid: Nid,
        server_wait: Option<Duration>,
        ost_count: u32,
        stripe_size: u32,
        osts: &[u32],
    ) -> Mounted {
        let rt = net.rt().clone();
        let server = Server::new(serving);
        if let Nid::Tcp(at) = nid {
            server.listen(at).await.expect("it listens");
        }
        let target = |kind, index| Target { nids: vec![nid.to_string()], ..target(kind, index) };
        let mut targets = vec![target(TargetKind::Mdt, 0)];
        targets.extend((0..ost_count).map(|i| target(TargetKind::Ost, i)));
        let state = State {
            clock: 1_000,
            nodes: BTreeMap::new(),
            objects: BTreeMap::new(),
            layout: Some((stripe_size, osts.to_vec())),
            template: None,
            moving: BTreeMap::new(),
            config: Config { fsname: FSNAME.into(), version: 1, targets, ..Config::default() },
            next: 100,
            open: BTreeMap::new(),
            log: Vec::new(),
            full: BTreeSet::new(),
            epochs: BTreeMap::new(),
            groups_wanted: None,
            delay: Duration::ZERO,
            incarnation: 1,
            locks: locks::FakeLocks::default(),
            changelog: Vec::new(),
            habits: world::Habits::default(),
        };
        let world = Arc::new(World {
            state: Mutex::new(state),
            config_changed: Notify::new(),
            rt: rt.clone(),
            hasty: AtomicBool::new(false),
        });
        mds::format(&mut world.state.lock());
        server.add::<Mgs>("MGS", Arc::new(FakeMgs(world.clone())));
        server.add::<Mds>("sheen-MDT0000", Arc::new(FakeMds(world.clone())));
        (0..ost_count).for_each(|i| add_ost(&server, &world, i));
        let params = Params::new();
        let options = ClientOptions { groups: Arc::new(TestGroups), server_wait, ..ClientOptions::default() };
        let client =
            Client::mount(rt, net.clone(), vec![nid], FSNAME, options, params.clone()).await.expect("it mounts");
        world.asked();
        Mounted { world, client, net, server, params }
    }

    /// Adds and registers an OST. Returns its index.
    pub fn grow(&self) -> u32 {
        let mut state = self.world.state.lock();
        let index = state.config.targets.len() as u32 - 1;
        add_ost(&self.server, &self.world, index);
        state.config.targets.push(target(TargetKind::Ost, index));
        state.config.version += 1;
        drop(state);
        self.world.config_changed.notify_waiters();
        index
    }

    /// Adds a data service to the MDT, for mounts from now on.
    pub fn add_data_service(&self) {
        self.world.state.lock().habits.holds_data = true;
        self.server.add::<Ost>(DATA_SERVICE, Arc::new(FakeOst(self.world.clone(), MDT_OST)));
    }

    /// Changes the address of a registered target: the MDT is 0, the first OST 1.
    pub fn move_target(&self, target: usize, to: std::net::SocketAddr) {
        let mut state = self.world.state.lock();
        state.config.targets[target].nids = vec![Nid::Tcp(to).to_string()];
        state.config.version += 1;
        drop(state);
        self.world.config_changed.notify_waiters();
    }

    /// Stops an OST. The restarted one knows no locks.
    pub fn stop_ost(&self, index: u32) {
        self.server.remove(&format!("sheen-OST{index:04x}"));
        let mut state = self.world.state.lock();
        state.habits.restarts += 1;
        state.locks.held.retain(|_, held| held.ost != Some(index));
    }

    pub fn start_ost(&self, index: u32) {
        add_ost(&self.server, &self.world, index);
    }

    pub fn size_of_object(&self, index: usize) -> Option<usize> {
        self.world.state.lock().objects.values().nth(index).map(|o| o.data.len())
    }
}

fn target(kind: TargetKind, index: u32) -> Target {
    Target { kind, index, uuid: format!("uuid-{index}"), nids: vec!["0@lo".into()], incarnation: 0, removed: false }
}

fn add_ost(server: &Server, world: &Arc<World>, index: u32) {
    server.add::<Ost>(&format!("sheen-OST{index:04x}"), Arc::new(FakeOst(world.clone(), index)));
}

/// Runs a test against a new file system of `ost_count` OSTs, in virtual time.
pub fn with<F: Future<Output = ()>>(ost_count: u32, stripe_size: u32, osts: &[u32], test: impl FnOnce(Mounted) -> F) {
    let sim = Sim::new(1, SimConfig::default());
    let rt = sim.rt(1);
    let run = async { test(Mounted::new(rt, ost_count, stripe_size, osts).await).await };
    sim.run(run).expect("the simulation ends");
}

/// Runs a test like [`with`], over tcp between two hosts.
pub fn with_tcp<F: Future<Output = ()>>(
    ost_count: u32,
    stripe_size: u32,
    osts: &[u32],
    test: impl FnOnce(Mounted) -> F,
) {
    let sim = Sim::new(1, SimConfig::default());
    let (server, client) = (sim.rt(1), sim.rt(2));
    let run = async { test(Mounted::over_tcp(server, client, ost_count, stripe_size, osts).await).await };
    sim.run(run).expect("the simulation ends");
}

pub fn name(s: &str) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(s.as_bytes())
}

pub fn bulk(data: &[u8]) -> Bulk {
    // In two pieces, so that no code may rely on a single one.
    let cut = data.len() / 3;
    [&data[..cut], &data[cut..]].into_iter().map(bytes::Bytes::copy_from_slice).collect()
}

pub fn root() -> Fid {
    fid::ROOT
}
