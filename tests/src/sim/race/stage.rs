//! The hosts of a race, the files that all race for, and what goes wrong.

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
    bytes::{History, Redone},
    kernel::Kernel,
    record::{Record, Trouble},
    span::{Clock, Span},
    tools::Tools,
};
use crate::sim::{
    MDS, OSSES,
    cluster::{Node, mount, start_some},
    op::Op,
    perform::perform,
    striping::{ON_MDT, STRIPINGS, Striping},
};

/// The first client's host; the others follow.
const FIRST_HOST: u32 = 101;
/// Most clients.
pub const CLIENTS_MAX: usize = 16;
/// Directories with names that all race for.
pub const DIRS: u8 = 2;
/// Names in each.
pub const NAMES: u8 = 5;
/// Where trouble comes from: a host with nothing else on it.
const DEMON: u32 = 99;
/// With less than this on its disk an OST is not given to new files.
const FILLER: u64 = 5 << 18;
/// Time in which OSTs notice that somebody else has filled their disks.
const FILLED: Duration = Duration::from_secs(2);
/// A server gives a client up that it has not heard of for 30 s, or that has not given a lock back
/// for 20 s.
const GIVEN_UP: Duration = Duration::from_secs(40);

/// What a seed decides on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Mounts.
    pub clients: usize,
    /// Programs on each.
    pub programs: usize,
    /// OSTs.
    pub osts: usize,
    /// Files that are written at will.
    pub files: usize,
    /// Operations altogether.
    pub ops: usize,
    /// How often operations of a kind are chosen: on bytes, names, the log, and under the program
    /// lock.
    pub weights: [u32; 4],
    /// Connections break.
    pub breaks: bool,
    /// Clients are cut off until they are given up.
    pub cuts: bool,
    /// Clients die.
    pub deaths: bool,
    /// Mounts have a kernel above them that keeps pages.
    pub kernels: bool,
    /// Largest offset of a write, in bytes.
    pub reach: u64,
    /// Bytes that are left on an OST's disk, where these are so few that it gets full.
    pub tight: Option<u64>,
    /// The MDT has a data service, and files may begin there.
    pub on_mdt: bool,
    /// What is done to the files meanwhile that leaves them as they are to programs.
    pub tools: Option<Tools>,
}

impl Plan {
    /// Of a seed. Most have few clients and operations: what goes wrong mostly takes few, and more
    /// seeds find more.
    pub fn of(seed: u64) -> Plan {
        let mut rng = Rng::with_seed(seed ^ 0x9ace);
        let clients = match rng.u32(0..100) {
            0..45 => 2,
            45..70 => 3,
            70..82 => 4,
            82..93 => rng.usize(5..=8),
            _ => rng.usize(9..=CLIENTS_MAX),
        };
        let weights = match rng.u32(0..8) {
            0..3 => [10, 0, 0, 0],
            3 => [0, 10, 0, 0],
            4 => [0, 0, 10, 2],
            _ => [6, 3, 2, 1],
        };
        let tight = (rng.u32(0..10) < 2).then(|| rng.u64(16..260) << 10);
        // New files would find no OST with room.
        let weights = if tight.is_some() { [8, 0, 2, 0] } else { weights };
        Plan {
            clients,
            programs: rng.usize(1..=if clients > 4 { 1 } else { 2 }),
            osts: rng.usize(1..=2),
            files: rng.usize(1..=2),
            ops: 40 + rng.usize(0..40) + 2 * clients,
            weights,
            breaks: rng.u32(0..10) < 5,
            cuts: rng.u32(0..10) < 3,
            deaths: rng.u32(0..10) < 3,
            kernels: rng.bool(),
            reach: [8 << 10, 100 << 10, 260 << 10][rng.usize(0..3)],
            tight,
            on_mdt: false,
            tools: None,
        }
    }

    /// Of a seed, for files that tools are used on, and that may begin on the MDT.
    pub fn beside(seed: u64, tools: Option<Tools>) -> Plan {
        let plan = Plan::of(seed);
        let mut rng = Rng::with_seed(seed ^ 0x7001);
        let weights = match rng.u32(0..8) {
            0..4 => [10, 0, 0, 0],
            4 => [0, 0, 10, 2],
            _ if plan.tight.is_some() => [8, 0, 2, 0],
            _ => [6, 2, 3, 1],
        };
        let tools = tools.map(|tools| Tools { hands: rng.usize(1..=2), ..tools });
        let files = if tools.as_ref().is_some_and(Tools::swaps) { 2 } else { plan.files };
        Plan { weights, files, osts: rng.usize(1..=OSSES.len()), on_mdt: rng.bool() || tools.is_none(), tools, ..plan }
    }
}

impl Plan {
    /// Whether files have two mirrors from the start. Those that begin on the MDT may get some
    /// later.
    pub fn begins_mirrored(&self) -> bool {
        !self.on_mdt && self.has_mirrors()
    }

    /// Which changes of files may be done twice.
    fn redone(&self) -> Redone {
        match &self.tools {
            None => Redone::None,
            Some(tools) if tools.mirrors() => Redone::Any,
            Some(_) => Redone::OfSeveral,
        }
    }

    /// Whether they may have some.
    pub fn has_mirrors(&self) -> bool {
        self.tools.as_ref().is_some_and(Tools::mirrors)
    }

    /// Whether the first two files exchange their bytes now and then.
    pub fn swaps(&self) -> bool {
        self.tools.as_ref().is_some_and(Tools::swaps)
    }

    /// One of those that files may have.
    pub fn striping(&self, rng: &mut Rng) -> Striping {
        let beginning = if self.on_mdt { ON_MDT.len() } else { 0 };
        // Half of the files then do begin there.
        match rng.usize(0..STRIPINGS.len() + beginning * 3) {
            n if n < STRIPINGS.len() => STRIPINGS[n],
            n => ON_MDT[(n - STRIPINGS.len()) % ON_MDT.len()],
        }
    }
}

/// A client.
pub struct Seat {
    /// Its mount.
    pub client: Arc<Client>,
    /// The kernel above it.
    pub kernel: Option<Arc<Kernel>>,
    /// Its host, in its only life.
    pub rt: Rt,
    host: u32,
    dead: AtomicBool,
}

impl Seat {
    /// Whether its host is no more.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }
}

/// See the module.
pub struct Stage {
    /// The world.
    pub world: World,
    /// What the seed decided on.
    pub plan: Plan,
    /// Servers.
    pub nodes: Vec<Node>,
    /// Mounts.
    pub seats: Vec<Seat>,
    /// Files that are written at will.
    pub files: Vec<Fid>,
    /// The one that all append to.
    pub log: Fid,
    /// The one with a counter, and the program lock.
    pub counter: Fid,
    /// Directories with names that all race for.
    pub dirs: Vec<Fid>,
    /// Numbers moments.
    pub clock: Clock,
    left: AtomicUsize,
    record: Mutex<Record>,
}

/// The name of a number.
pub fn name(number: u8) -> Bytes {
    Bytes::from(vec![b'a' + number])
}

impl Stage {
    /// Starts all hosts, and makes the files.
    pub async fn set(world: &World, seed: u64, plan: Plan) -> Arc<Stage> {
        let osses = &OSSES[..plan.osts];
        if let Some(bytes) = plan.tight {
            // A host comes into being, with its disk, when it is first mentioned.
            let _ = world.rt(MDS);
            let mut before = 0;
            world.configure(|config| before = std::mem::replace(&mut config.disk_bytes, bytes + FILLER));
            osses.iter().for_each(|host| drop(world.rt(*host)));
            world.configure(|config| config.disk_bytes = before);
        }
        let nodes = start_some(world, plan.osts, plan.on_mdt).await;
        let (mut seats, mut seqs) = (Vec::new(), Vec::new());
        for n in 0..plan.clients {
            let host = FIRST_HOST + n as u32;
            let client = mount(world, host).await;
            // It has reached all servers once, but the MDT's data service: of those that it never
            // reached a mount says so soon.
            client.syncfs().await.expect("nothing breaks yet");
            seqs.push(first_fid(&client).await.seq);
            let kernel = plan.kernels.then(Arc::<Kernel>::default);
            if let Some(kernel) = kernel.clone() {
                client.set_kernel(kernel);
            }
            seats.push(Seat { client, kernel, rt: world.rt(host), host, dead: AtomicBool::new(false) });
        }
        let client = &seats[0].client;
        let mut rng = Rng::with_seed(seed ^ 0x57a6);
        let striping = plan.striping(&mut rng);
        if plan.begins_mirrored() {
            let asked = Striping::mirrors(&[striping, plan.striping(&mut rng)]).encode().into();
            let name = Bytes::from_static(b"lustre.lov");
            client.setxattr(&Caller::ROOT, ROOT, &name, &asked, 0).await.expect("the root can be striped");
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
            // OSTs have looked again by then.
            world.rt(DEMON).sleep(FILLED).await;
        }
        let striped = striping.spreads(plan.osts) || plan.tools.is_some();
        let files = vec![History { striped, redone: plan.redone(), ..History::default() }; plan.files];
        let record = Record { files, seqs, ..Record::default() };
        Arc::new(Stage {
            world: world.clone(),
            left: AtomicUsize::new(plan.ops),
            plan,
            nodes,
            seats,
            files: fids,
            log,
            counter,
            dirs,
            clock: Clock::default(),
            record: Mutex::new(record),
        })
    }

    /// What was asked and answered so far.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("no panic is survived")
    }

    /// Whether there is a further operation to be done; it is taken.
    pub fn take(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Operations to be done.
    pub fn left(&self) -> usize {
        self.left.load(Relaxed)
    }

    /// Clients that live, by number.
    pub fn living(&self) -> Vec<usize> {
        (0..self.seats.len()).filter(|n| !self.seats[*n].is_dead()).collect()
    }

    /// The host from which all is directed.
    pub fn demon(&self) -> Rt {
        self.world.rt(DEMON)
    }

    fn servers(&self) -> Vec<u32> {
        OSSES[..self.plan.osts].iter().copied().chain([MDS]).collect()
    }

    /// Which of these servers a client may be cut off from. Who has mirrored files is not cut off
    /// from the MDT: a client that the MDT has given up, and that does not know yet, may write by a
    /// layout of before to an OST that does not know either.
    fn may_be_cut_off(&self, servers: Vec<u32>) -> Vec<u32> {
        if !self.plan.has_mirrors() {
            return servers;
        }
        let osts: Vec<u32> = servers.into_iter().filter(|server| *server != MDS).collect();
        if osts.is_empty() { vec![OSSES[0]] } else { osts }
    }

    /// Makes trouble until it is aborted, or there is nobody left for it.
    pub fn trouble(self: &Arc<Stage>, seed: u64) -> JoinHandle<()> {
        let (stage, mut rng) = (self.clone(), Rng::with_seed(seed ^ 0xdeb));
        self.demon().spawn("trouble", async move {
            let ms = Duration::from_millis;
            let start = stage.left();
            let mut cut = stage.plan.cuts.then(|| rng.usize(0..start));
            let mut death = stage.plan.deaths.then(|| rng.usize(0..start));
            loop {
                stage.demon().sleep(ms(rng.u64(1..40))).await;
                let servers = stage.servers();
                let server = servers[rng.usize(0..servers.len())];
                let client = rng.usize(0..stage.seats.len());
                if cut.is_some_and(|at| stage.left() <= at) {
                    cut = None;
                    let all = rng.bool();
                    stage.cut_off(client, stage.may_be_cut_off(if all { servers } else { vec![server] }));
                } else if death.is_some_and(|at| stage.left() <= at) && stage.living().len() > 1 {
                    death = None;
                    stage.kill(client);
                } else if stage.plan.breaks && rng.u32(0..4) > 0 {
                    stage.world.reset_connections(stage.seats[client].host, server);
                } else if stage.plan.breaks {
                    stage.part(client, server, ms(rng.u64(5..2000)));
                }
            }
        })
    }

    /// Ends all trouble but that of who is cut off.
    pub fn calm(&self, trouble: &JoinHandle<()>) {
        trouble.abort();
        self.world.configure(|config| config.loss = 0.0);
    }

    /// A client does not reach a server for a while.
    fn part(&self, client: usize, server: u32, lasts: Duration) {
        let (world, host, rt) = (self.world.clone(), self.seats[client].host, self.demon());
        world.partition(host, server);
        drop(self.demon().spawn("heal", async move {
            rt.sleep(lasts).await;
            world.heal(host, server);
        }));
    }

    /// A client is dead from one moment to the next.
    fn kill(&self, client: usize) {
        let seat = &self.seats[client];
        if seat.dead.swap(true, Relaxed) {
            return;
        }
        self.world.note(&format!("client {client} dies"));
        let from = self.clock.tick();
        self.record().troubles.push(Trouble { client, from, until: Span::NEVER });
        self.world.crash_host(seat.host);
    }

    /// A client does not reach servers until they have given it up. When it reaches them again it
    /// hears so.
    fn cut_off(self: &Arc<Stage>, client: usize, servers: Vec<u32>) {
        let (stage, host) = (self.clone(), self.seats[client].host);
        stage.world.note(&format!("client {client} is cut off from {servers:?}"));
        let number = {
            let from = stage.clock.tick();
            let mut record = stage.record();
            record.troubles.push(Trouble { client, from, until: Span::NEVER });
            record.troubles.len() - 1
        };
        servers.iter().for_each(|server| stage.world.partition(host, *server));
        drop(self.demon().spawn("heal", async move {
            stage.demon().sleep(GIVEN_UP).await;
            servers.iter().for_each(|server| stage.world.heal(host, *server));
            stage.world.note(&format!("client {client} is back"));
            if stage.seats[client].is_dead() {
                return;
            }
            let (mount, rt) = (stage.seats[client].client.clone(), stage.seats[client].rt.clone());
            // Asks all servers. That something is lost it may well say.
            let asked = rt.spawn("probe", async move { mount.syncfs().await.is_ok() }).await;
            if asked.is_ok() {
                let until = stage.clock.tick();
                stage.world.note(&format!("client {client} knows"));
                stage.record().troubles[number].until = until;
            }
        }));
    }

    /// Whether that may be said of a server that the client has never reached, while connections
    /// break: of the MDT's data service, that is, as all others were reached in the beginning.
    pub fn may_be_unreached(&self, errno: Errno) -> bool {
        errno == Errno::ENOTCONN && self.plan.on_mdt && self.plan.breaks
    }

    /// Whether nobody is cut off.
    pub fn is_whole(&self) -> bool {
        let dead = |client: usize| self.seats[client].is_dead();
        self.record().troubles.iter().all(|t| t.until != Span::NEVER || dead(t.client))
    }
}

/// The first FID that a client gives.
async fn first_fid(client: &Client) -> Fid {
    let (attr, file) = client.tmpfile(&Caller::ROOT, ROOT, flags::RDWR, 0o600, 0).await.expect("nothing breaks yet");
    client.release(file).await.expect("nothing breaks yet");
    attr.attr.fid
}

async fn make(client: &Client, name: &str) -> Fid {
    let name = Bytes::copy_from_slice(name.as_bytes());
    let mode = FileKind::Regular.mode_bits() | 0o644;
    let fid = client.mknod(&Caller::ROOT, ROOT, &name, mode, 0, 0).await.expect("the root is empty").attr.fid;
    // It gets its layout.
    let file = client.open(&Caller::ROOT, fid, flags::RDWR).await.expect("it can be opened");
    client.release(file).await.expect("and closed");
    fid
}

/// Ways to rename.
pub const RENAMES: [u32; 4] = [0, 0, rename::NOREPLACE, rename::EXCHANGE];
