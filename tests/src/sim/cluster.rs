//! A simulated cluster: its hosts, with the real services and clients on them.

use std::{cell::Cell, path::Path, sync::Arc, time::Duration};

use sheen_client::{Client, ClientOptions};
use sheen_keys::{Key, Keyring};
use sheen_lnet::{DEFAULT_PORT, Keys, Net, Nid, Trust};
use sheen_mds::{DATA_DIR, DataService, IDENTITY, Mdt, MdtConfig, OfflineMdt};
use sheen_mgs::{
    Mgs,
    nodemaps::{MapChange, NodemapChange, Property},
};
use sheen_oss::{DataConfig, OPEN_FILES_MAX, Ost, OstConfig, Sharing};
use sheen_params::Params;
use sheen_rpc::{Server, Service};
use sheen_rt::{
    Rt,
    sim::{SimConfig, World},
};
use sheen_wire::{
    Bulk, Errno, Fid,
    auth::{ClusterId, Issued, KeyId, Role, User},
    ldlm::Cookie,
    mds::InlineDom,
};

/// Client hosts with one mount each.
pub const CLIENTS: [u32; 3] = [1, 2, 3];
/// The host of the MGS and the MDT.
pub const MDS: u32 = 10;
/// OSS hosts with one OST each, by OST index.
pub const OSSES: [u32; 4] = [20, 21, 22, 23];
const FSNAME: &str = "sheen";
/// The nodemap of [`as_host`].
const NODEMAP: &str = "sim";
/// The user of [`as_user`].
const UID: u32 = 1000;
/// Directory of an OST's objects.
pub const OST_DIR: &str = "/ost";
/// Directory of the MDT. DoM data is in a subdirectory.
pub const MDT_DIR: &str = "/mdt";

/// Returns a network that is slow, uneven, and loses packets. Its parameters depend on the seed.
pub fn bad_network_config(seed: u64) -> SimConfig {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x77ea);
    let us = Duration::from_micros;
    SimConfig {
        delay: us(50)..us([500, 2000, 8000][rng.usize(0..3)]),
        loss: [0.0, 0.005, 0.02][rng.usize(0..3)],
        retransmit_delay: Duration::from_millis(50),
        partition_timeout: Duration::from_millis(rng.u64(200..4000)),
        short_io: 0.1,
        time_max: Duration::from_secs(3600),
        ..SimConfig::default()
    }
}

/// Services of a server host. Dropping it is no orderly stop; the simulation stops servers by
/// crashes.
pub enum Node {
    /// The MGS, the MDT and, if it has one, its data service (DoM).
    Mds(Arc<Server>, Arc<Mgs>, Arc<Mdt>, Option<Arc<Ost>>),
    /// An OST.
    Oss(Arc<Server>, Arc<Ost>),
}

impl Node {
    /// Returns the number of clients that the recovery of the MDT or OST went on without.
    pub fn lost_clients(&self) -> usize {
        match self {
            Node::Mds(_, _, mdt, _) => mdt.recovery_counts().dropped,
            Node::Oss(_, ost) => ost.recovery_counts().dropped,
        }
    }

    /// Returns the number of clients that are back in the recovery of the MDT or OST.
    pub fn clients_back(&self) -> usize {
        match self {
            Node::Mds(_, _, mdt, _) => mdt.recovery_counts().connected,
            Node::Oss(_, ost) => ost.recovery_counts().connected,
        }
    }

    /// Checks the metadata of an MDT that runs, and the objects of the OSTs that it reaches.
    pub async fn check(&self) {
        if let Node::Mds(_, _, mdt, _) = self {
            let check = mdt.check().await.expect("the store works");
            assert_eq!(check.problems(), [], "the metadata at some commit");
        }
    }

    /// Makes an MDT answer changes that depend on another client's change when that one is durable.
    pub fn commit_on_sharing(&self) {
        if let Node::Mds(_, _, mdt, _) = self {
            mdt.set_commit_on_sharing(true);
        }
    }

    /// Ends the wait of the MDT or OST for clients.
    pub fn abort_recovery(&self) {
        match self {
            Node::Mds(_, _, mdt, _) => mdt.abort_recovery(),
            Node::Oss(_, ost) => ost.abort_recovery(),
        }
    }
}

/// Interface through which the MDT reads from its data service.
struct MdtDataService(Arc<Ost>);

impl DataService for MdtDataService {
    fn inline_dom(&self, client: &str, object: Fid, cookie: Cookie) -> Option<(InlineDom, Bulk)> {
        self.0.inline_dom(client, object, cookie)
    }
}

fn nid(world: &World, host: u32) -> Nid {
    Nid::Tcp(world.addr(host, DEFAULT_PORT))
}

/// Authority of the clients of a simulation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Authority {
    /// All: there is no key.
    Full,
    /// That of a user's key.
    User,
    /// That of a host's key, in a nodemap that squashes root.
    Host,
}

thread_local! {
    /// Authority of the clients of this thread's simulations.
    static AUTHORITY: Cell<Authority> = const { Cell::new(Authority::Full) };
}

/// Runs a simulation on this thread with servers that have a key, and with clients that act as one
/// user. That user owns the root directory.
pub fn as_user<T>(simulation: impl FnOnce() -> T) -> T {
    with(Authority::User, simulation)
}

/// As [`as_user`], with clients of a host whose root is squashed to that user.
pub fn as_host<T>(simulation: impl FnOnce() -> T) -> T {
    with(Authority::Host, simulation)
}

fn with<T>(authority: Authority, simulation: impl FnOnce() -> T) -> T {
    /// Ends it, also after a panic.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            AUTHORITY.set(Authority::Full);
        }
    }
    AUTHORITY.set(authority);
    let _end = End;
    simulation()
}

/// Returns whether the clients of this thread's simulations act as one user ([`as_user`],
/// [`as_host`]).
pub fn acts_as_user() -> bool {
    AUTHORITY.get() != Authority::Full
}

/// Returns whom a server trusts, or a client.
fn trust(is_server: bool) -> Trust {
    let role = match AUTHORITY.get() {
        Authority::Full => return Trust::All,
        Authority::User => Role::User(User { uid: UID, gid: UID, groups: Vec::new(), nodemap: None }),
        Authority::Host => Role::Host(Some(NODEMAP.to_owned())),
    };
    let key = Key::new(ClusterId(1), 1, [1; 32], 0);
    let issued = key.issue(Issued { id: KeyId(2), role }, 0).expect("a key of the cluster can issue one");
    Keys::new(Keyring::of(vec![if is_server { key } else { issued }])).into()
}

/// Sets up the nodemap of [`as_host`], if the MGS does not have it yet.
async fn squash_root(mgs: &Mgs) {
    let set = |property, value| MapChange::Set { property, value };
    let uid = [set(Property::SquashUid, UID), set(Property::SquashGid, UID)];
    for change in [MapChange::New, set(Property::Trusted, 1)].into_iter().chain(uid) {
        let changed = mgs.change_nodemap(NodemapChange::Map { name: NODEMAP, change }).await;
        assert!(matches!(changed, Ok(()) | Err(Errno::EEXIST)), "{changed:?}");
    }
}

async fn listen(rt: &Rt, world: &World, host: u32) -> (Arc<Net>, Arc<Server>) {
    let net = Net::trusting(rt.clone(), trust(true));
    let server = Server::new(net.clone());
    server.listen(world.addr(host, DEFAULT_PORT)).await.expect("the address is free");
    (net, server)
}

/// Starts the services of a server host on the present content of its disk. Returns `None` if the
/// host crashed meanwhile.
pub async fn start(world: &World, host: u32) -> Option<Node> {
    start_as(world, host, false).await
}

/// As [`start`]. With `holds_data`, an MDT gets a data service.
pub async fn start_as(world: &World, host: u32, holds_data: bool) -> Option<Node> {
    let (rt, inside) = (world.rt(host), world.clone());
    let starting = world.rt(host).spawn("start", async move {
        let (net, server) = listen(&rt, &inside, host).await;
        let (mgs, me, params) = (nid(&inside, MDS), nid(&inside, host).to_string(), Params::new());
        if host == MDS {
            check_mdt(&inside);
            let started = Mgs::start(rt.clone(), Path::new("/mgs"), params.clone()).await.expect("the MGS starts");
            if AUTHORITY.get() == Authority::Host {
                squash_root(&started).await;
            }
            server.add::<sheen_wire::Mgs>(sheen_mgc::MGS_TARGET, started.clone());
            // The model has no deleted files that can still be opened.
            let config = MdtConfig {
                keep_replaced_ms: 0,
                holds_data,
                root_uid: if acts_as_user() { UID } else { 0 },
                ..MdtConfig::new(MDT_DIR, FSNAME, 0, vec![mgs], vec![me])
            };
            let mdt = Mdt::start(rt, net.clone(), &server, config, params.clone()).await.expect("the MDT starts");
            let data = if holds_data { Some(start_data(&net, &server, &mdt, params).await) } else { None };
            return Node::Mds(server, started, mdt, data);
        }
        let index = OSSES.iter().position(|h| *h == host).expect("a server host") as u32;
        let config = OstConfig::new(OST_DIR, FSNAME, Some(index), vec![mgs], vec![me]);
        let ost = Ost::start(net, &server, config, params).await.expect("the OST starts");
        Node::Oss(server, ost)
    });
    starting.await.ok()
}

/// Checks the metadata on the disk of the MDS, which is not served: whatever a power failure left
/// must be consistent. Before the first start there is none.
pub fn check_mdt(world: &World) {
    let disk = world.rt(MDS).disk();
    if disk.metadata(Path::new(MDT_DIR).join(IDENTITY)).is_ok() {
        let mdt = OfflineMdt::open(&disk, Path::new(MDT_DIR)).expect("it has a store");
        let check = mdt.check(&mut |_, _| {}).expect("the disk works");
        assert_eq!(check.problems(), [], "the metadata after a power failure");
    }
}

async fn start_data(net: &Arc<Net>, server: &Arc<Server>, mdt: &Mdt, params: Params) -> Arc<Ost> {
    let config = DataConfig {
        dir: Path::new(MDT_DIR).join(DATA_DIR),
        fsname: FSNAME.to_owned(),
        index: 0,
        mdt: mdt.name().to_owned(),
        uuid: mdt.uuid().to_owned(),
        incarnation: mdt.incarnation(),
        sharing: Sharing::new(),
        open_files_max: OPEN_FILES_MAX,
    };
    let data = Ost::start_data(net, server, config, params).await.expect("the data service starts");
    mdt.set_data_service(Arc::new(MdtDataService(data.clone())));
    data
}

/// Starts all servers and waits until the MDT is connected to all OSTs.
pub async fn start_all(world: &World) -> Vec<Node> {
    start_some(world, OSSES.len(), false).await
}

/// As [`start_all`], with `osts` OSTs and optionally with a data service.
pub async fn start_some(world: &World, osts: usize, holds_data: bool) -> Vec<Node> {
    let mds = start_as(world, MDS, holds_data).await.expect("nothing crashes yet");
    let mut nodes = Vec::new();
    for host in &OSSES[..osts] {
        nodes.push(start(world, *host).await.expect("nothing crashes yet"));
    }
    if let Node::Mds(_, _, mdt, _) = &mds {
        mdt.wait_osts(osts).await;
    }
    nodes.push(mds);
    nodes
}

/// Mounts the file system on a client host.
pub async fn mount(world: &World, host: u32) -> Arc<Client> {
    let (rt, mgs) = (world.rt(host), vec![nid(world, MDS)]);
    let mounting = rt.clone().spawn("mount", async move {
        let net = Net::trusting(rt.clone(), trust(false));
        Client::mount(rt, net, mgs, FSNAME, ClientOptions::default(), Params::new()).await
    });
    mounting.await.expect("clients do not crash").expect("the file system can be mounted")
}
