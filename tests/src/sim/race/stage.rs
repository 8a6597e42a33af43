//! The stage of a race: its hosts, its files, and its faults.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use sheen_client::{Caller, Client};
use sheen_rt::{JoinHandle, Rt, sim::World};
use sheen_wire::{
    Errno, Fid, FileKind,
    fid::ROOT,
    mds::{flags, rename},
};

use super::{
    bytes::History,
    kernel::Kernel,
    plan::Plan,
    record::{Record, Trouble},
    span::{Clock, Span},
};
use crate::sim::{
    MDS, OSSES,
    cluster::{Node, mount, start_some},
    op::Op,
    perform::perform,
    striping::{LOV, Striping},
};

/// Host of the first client. The other clients' hosts follow.
const FIRST_HOST: u32 = 101;
/// Number of directories whose names all programs use.
pub const DIRS: u8 = 2;
/// Number of names in each directory.
pub const NAMES: u8 = 5;
/// Host of the tasks that inject faults and check locks. Nothing else runs on it.
const FAULT_HOST: u32 = 99;
/// Size in bytes of the file that fills a tight disk. An OST with less free space than this gets no
/// objects of new files.
const FILLER: u64 = 5 << 18;
/// Time in which OSTs notice that their disks have been filled.
const FILLED: Duration = Duration::from_secs(2);
/// Time after which a disconnected client has been evicted. A server evicts a client that it has
/// not heard from for 30 s, or that has not cancelled a lock for 20 s after a blocking callback.
const EVICTION_TIME: Duration = Duration::from_secs(40);

/// A client and its host.
pub struct ClientHost {
    /// Its mount.
    pub client: Arc<Client>,
    /// The kernel above the mount.
    pub kernel: Option<Arc<Kernel>>,
    /// The runtime of its host, which is never restarted.
    pub rt: Rt,
    host: u32,
    dead: AtomicBool,
}

impl ClientHost {
    /// Returns whether its host has crashed.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }
}

/// The hosts and the files of a race.
pub struct Stage {
    /// The simulated world.
    pub world: World,
    /// The parameters of the race.
    pub plan: Plan,
    /// The servers.
    pub nodes: Vec<Node>,
    /// The clients.
    pub client_hosts: Vec<ClientHost>,
    /// The files that are read and written at random.
    pub files: Vec<Fid>,
    /// The file to which all programs append.
    pub log: Fid,
    /// The file with a counter and the fcntl lock.
    pub counter: Fid,
    /// The directories whose names all programs use.
    pub dirs: Vec<Fid>,
    /// The source of moments.
    pub clock: Clock,
    left: AtomicUsize,
    record: Mutex<Record>,
}

/// Returns the file name for a number.
pub fn name(number: u8) -> Bytes {
    Bytes::from(vec![b'a' + number])
}

impl Stage {
    /// Starts all hosts and creates the files.
    pub async fn set(world: &World, seed: u64, plan: Plan) -> Arc<Stage> {
        let osses = &OSSES[..plan.osts];
        if let Some(bytes) = plan.tight {
            // A host is created, with its disk, when it is first used.
            let _ = world.rt(MDS);
            let mut before = 0;
            world.configure(|config| before = std::mem::replace(&mut config.disk_bytes, bytes + FILLER));
            osses.iter().for_each(|host| drop(world.rt(*host)));
            world.configure(|config| config.disk_bytes = before);
        }
        let nodes = start_some(world, plan.osts, plan.on_mdt).await;
        let (mut client_hosts, mut seqs) = (Vec::new(), Vec::new());
        for n in 0..plan.clients {
            let host = FIRST_HOST + n as u32;
            let client = mount(world, host).await;
            // The syncfs connects to all servers except the MDT's data service. A mount soon
            // reports ENOTCONN for a server that it has never reached.
            client.syncfs().await.expect("nothing breaks yet");
            seqs.push(first_fid(&client).await.seq);
            let kernel = plan.kernels.then(Arc::<Kernel>::default);
            if let Some(kernel) = kernel.clone() {
                client.set_kernel(kernel);
            }
            client_hosts.push(ClientHost { client, kernel, rt: world.rt(host), host, dead: AtomicBool::new(false) });
        }
        let client = &client_hosts[0].client;
        let mut rng = Rng::with_seed(seed ^ 0x57a6);
        let striping = plan.striping(&mut rng);
        if plan.begins_mirrored() {
            let asked = Striping::mirrors(&[striping, plan.striping(&mut rng)]).encode().into();
            client.setxattr(&Caller::ROOT, ROOT, &LOV, &asked, 0).await.expect("the root can be striped");
        } else {
            perform(client, &Op::SetStripe { fid: ROOT, striping }, None).await.0.expect("the root can be striped");
        }
        let mut fids = Vec::new();
        for n in 0..plan.files {
            fids.push(make(client, &format!("file{n}")).await);
        }
        let mut dirs = Vec::new();
        for n in 0..DIRS {
            let made = client.mkdir(&Caller::ROOT, ROOT, &name(n), 0o755, 0).await;
            dirs.push(made.expect("the root is empty").attr.fid);
        }
        let (log, counter) = (make(client, "log").await, make(client, "counter").await);
        if plan.tight.is_some() {
            let fill = |host| world.rt(host).disk().write_atomic("/filler", &vec![1; FILLER as usize]);
            osses.iter().for_each(|host| fill(*host).expect("there is room for it"));
            // By then the OSTs have updated their free space.
            world.rt(FAULT_HOST).sleep(FILLED).await;
        }
        let striped = striping.spreads(plan.osts) || plan.tools.is_some();
        let files = vec![History { striped, may_repeat: plan.may_repeat(), ..History::default() }; plan.files];
        let record = Record { files, seqs, ..Record::default() };
        Arc::new(Stage {
            world: world.clone(),
            left: AtomicUsize::new(plan.ops),
            plan,
            nodes,
            client_hosts,
            files: fids,
            log,
            counter,
            dirs,
            clock: Clock::default(),
            record: Mutex::new(record),
        })
    }

    /// Locks and returns the record.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("no panic is survived")
    }

    /// Takes one of the remaining operations. Returns whether there was one.
    pub fn take(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Returns the number of remaining operations.
    pub fn left(&self) -> usize {
        self.left.load(Relaxed)
    }

    /// Returns the indices of the living clients.
    pub fn living(&self) -> Vec<usize> {
        (0..self.client_hosts.len()).filter(|n| !self.client_hosts[*n].is_dead()).collect()
    }

    /// Returns the runtime of the host that controls the race.
    pub fn control_rt(&self) -> Rt {
        self.world.rt(FAULT_HOST)
    }

    fn servers(&self) -> Vec<u32> {
        OSSES[..self.plan.osts].iter().copied().chain([MDS]).collect()
    }

    /// Starts a task that injects faults until it is aborted.
    pub fn trouble(self: &Arc<Stage>, seed: u64) -> JoinHandle<()> {
        let (stage, mut rng) = (self.clone(), Rng::with_seed(seed ^ 0xdeb));
        self.control_rt().spawn("trouble", async move {
            let ms = Duration::from_millis;
            let start = stage.left();
            let mut cut = stage.plan.cuts.then(|| rng.usize(0..start));
            let mut death = stage.plan.deaths.then(|| rng.usize(0..start));
            loop {
                stage.control_rt().sleep(ms(rng.u64(1..40))).await;
                let servers = stage.servers();
                let server = servers[rng.usize(0..servers.len())];
                let client = rng.usize(0..stage.client_hosts.len());
                if cut.is_some_and(|at| stage.left() <= at) {
                    cut = None;
                    let all = rng.bool();
                    stage.cut_off(client, if all { servers } else { vec![server] });
                } else if death.is_some_and(|at| stage.left() <= at) && stage.living().len() > 1 {
                    death = None;
                    stage.kill(client);
                } else if stage.plan.breaks && rng.u32(0..4) > 0 {
                    stage.world.reset_connections(stage.client_hosts[client].host, server);
                } else if stage.plan.breaks {
                    stage.part(client, server, ms(rng.u64(5..2000)));
                }
            }
        })
    }

    /// Stops the injection of faults. Clients that are cut off stay so until their time is over.
    pub fn calm(&self, trouble: &JoinHandle<()>) {
        trouble.abort();
        self.world.configure(|config| config.loss = 0.0);
    }

    /// Partitions a client from a server for a while.
    fn part(&self, client: usize, server: u32, lasts: Duration) {
        let (world, host, rt) = (self.world.clone(), self.client_hosts[client].host, self.control_rt());
        world.partition(host, server);
        drop(self.control_rt().spawn("heal", async move {
            rt.sleep(lasts).await;
            world.heal(host, server);
        }));
    }

    /// Crashes a client's host.
    fn kill(&self, client: usize) {
        let seat = &self.client_hosts[client];
        if seat.dead.swap(true, Relaxed) {
            return;
        }
        self.world.note(&format!("client {client} dies"));
        let from = self.clock.tick();
        self.record().troubles.push(Trouble { client, from, until: Span::NEVER });
        self.world.crash_host(seat.host);
    }

    /// Partitions a client from servers until they have evicted it. When the client reaches them
    /// again, it learns that.
    fn cut_off(self: &Arc<Stage>, client: usize, servers: Vec<u32>) {
        let (stage, host) = (self.clone(), self.client_hosts[client].host);
        stage.world.note(&format!("client {client} is cut off from {servers:?}"));
        let number = {
            let from = stage.clock.tick();
            let mut record = stage.record();
            record.troubles.push(Trouble { client, from, until: Span::NEVER });
            record.troubles.len() - 1
        };
        servers.iter().for_each(|server| stage.world.partition(host, *server));
        drop(self.control_rt().spawn("heal", async move {
            stage.control_rt().sleep(EVICTION_TIME).await;
            servers.iter().for_each(|server| stage.world.heal(host, *server));
            stage.world.note(&format!("client {client} is no longer cut off"));
            if stage.client_hosts[client].is_dead() {
                return;
            }
            let (mount, rt) = (stage.client_hosts[client].client.clone(), stage.client_hosts[client].rt.clone());
            // A syncfs reaches all servers. It may fail because data was lost.
            let asked = rt.spawn("probe", async move { mount.syncfs().await.is_ok() }).await;
            if asked.is_ok() {
                let until = stage.clock.tick();
                stage.world.note(&format!("client {client} has reached all servers"));
                stage.record().troubles[number].until = until;
            }
        }));
    }

    /// Returns whether the error may come from a server that the client has never reached because
    /// connections break. Only the MDT's data service can be such a server: clients connect to all
    /// others at the start.
    pub fn may_be_unreached(&self, errno: Errno) -> bool {
        errno == Errno::ENOTCONN && self.plan.on_mdt && self.plan.breaks
    }

    /// Returns whether no living client is cut off.
    pub fn is_whole(&self) -> bool {
        let dead = |client: usize| self.client_hosts[client].is_dead();
        self.record().troubles.iter().all(|t| t.until != Span::NEVER || dead(t.client))
    }
}

/// Returns the first FID that a client allocates.
async fn first_fid(client: &Client) -> Fid {
    let (attr, file) = client.tmpfile(&Caller::ROOT, ROOT, flags::RDWR, 0o600, 0).await.expect("nothing breaks yet");
    client.release(file).await.expect("nothing breaks yet");
    attr.attr.fid
}

async fn make(client: &Client, name: &str) -> Fid {
    let name = Bytes::copy_from_slice(name.as_bytes());
    let mode = FileKind::Regular.mode_bits() | 0o644;
    let fid = client.mknod(&Caller::ROOT, ROOT, &name, mode, 0, 0).await.expect("the root is empty").attr.fid;
    // The open creates the layout.
    let file = client.open(&Caller::ROOT, fid, flags::RDWR).await.expect("it can be opened");
    client.release(file).await.expect("and closed");
    fid
}

/// Flags of renames.
pub const RENAMES: [u32; 4] = [0, 0, rename::NOREPLACE, rename::EXCHANGE];
