//! The scenarios: crashes and faults of a simulated cluster, and the seeds to run.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use sheen_client::{Caller, Client, OpenFile};
use sheen_rt::sim::{Sim, SimConfig, World};
use sheen_wire::{Bulk, Errno, Fid, fid::ROOT, mds::flags};

use super::{
    CLIENTS, MDS, OSSES,
    cluster::{Node, bad_network_config, check_mdt, mount, start, start_some},
    draw::Draw,
    faults::{calm, trouble},
    model::{Model, Rule},
    op::Op,
    run::Run,
    striping::{STRIPINGS, layout},
    tree::{Tree, assert_same, data_objects, objects, visible, walk, without_counts},
};

/// Environment variable with the one seed to run. All its events are printed.
pub const SEED_VARIABLE: &str = "SHEEN_SIM_SEED";
/// Environment variable with the number of seeds to run instead of the default, for a long search.
pub const SEEDS_VARIABLE: &str = "SHEEN_SIM_SEEDS";
/// Environment variable with the first seed, to continue an earlier search.
pub const FROM_VARIABLE: &str = "SHEEN_SIM_FROM";
/// Events printed when a single seed is run.
const EVENTS_SHOWN: usize = 200_000;
/// Maximum duration of network faults. A server evicts a client that it has not heard from for 30
/// seconds. That is correct, but it is not the subject of these scenarios.
const STORM_MAX: Duration = Duration::from_secs(20);
/// Time within which objects of deleted files are removed. A restarted MDT keeps objects of files
/// that may still be open for 90 s.
const CLEANUP: Duration = Duration::from_secs(120);

/// Record of a run, to be compared with another run of the same seed.
#[derive(PartialEq, Eq, Debug)]
pub struct Trace {
    /// Hash of all events.
    pub hash: u64,
    /// The last events, if they were requested.
    pub log: Vec<String>,
}

/// Runs a seed twice and asserts that both runs are equal.
///
/// # Panics
/// If they differ. The message shows the first differing event.
pub fn replays(seed: u64, scenario: impl Fn(u64, usize) -> Trace) {
    let (a, b) = (scenario(seed, EVENTS_SHOWN), scenario(seed, EVENTS_SHOWN));
    if let Some(at) = a.log.iter().zip(&b.log).position(|(a, b)| a != b) {
        let before = at.saturating_sub(20);
        panic!("seed {seed}: the runs differ at event {at}:\n{:#?}\n{:#?}", &a.log[before..=at], b.log[at]);
    }
    assert_eq!(a.hash, b.hash, "seed {seed}");
}

/// Runs a scenario in a simulated world with this configuration.
///
/// # Panics
/// If the scenario does not end.
pub fn simulate(seed: u64, log_events_max: usize, config: SimConfig, story: impl AsyncFnOnce(&World)) -> Trace {
    let sim = Sim::new(seed, SimConfig { log_events_max, ..config });
    let world = World::clone(&sim);
    let checked = async {
        story(&world).await;
        world.crash_host(MDS);
        check_mdt(&world);
    };
    sim.run(checked).unwrap_or_else(|e| {
        sim.log().iter().for_each(|line| eprintln!("{line}"));
        panic!("{e}")
    });
    Trace { hash: sim.trace_hash(), log: sim.log() }
}

/// Starts all hosts: first the servers, then the clients.
async fn boot(world: &World, seed: u64) -> (Vec<Node>, Arc<Run>) {
    boot_as(world, seed, false).await
}

/// As [`boot`]. With `on_mdt`, the MDT has a data service, and layouts may begin on the MDT.
pub(super) async fn boot_as(world: &World, seed: u64, on_mdt: bool) -> (Vec<Node>, Arc<Run>) {
    let nodes = start_some(world, OSSES.len(), on_mdt).await;
    let mut clients = Vec::new();
    for host in CLIENTS {
        clients.push(mount(world, host).await);
    }
    let run = Run::new(world, clients, seed, Model::default());
    let striping = {
        let mut state = run.state();
        state.on_mdt = on_mdt;
        let model = state.model.clone();
        Draw { rng: &mut state.rng, model: &model, client: 0, migrates: false, on_mdt }.root_striping()
    };
    if let Some(op) = striping {
        run.alone(0, op).await;
    }
    (nodes, run)
}

/// Runs operations during network faults, stops the faults, and waits until the operations end.
async fn storm(world: &World, nodes: &[Node], run: &Arc<Run>, seed: u64, ops: usize) {
    let trouble = trouble(world, seed);
    let programs = run.begin(ops);
    let rt = world.rt(CLIENTS[0]);
    let end = world.now() + STORM_MAX;
    while run.busy() && world.now() < end {
        rt.sleep(Duration::from_millis(20)).await;
        for node in nodes {
            node.check().await;
        }
    }
    calm(world, &trouble);
    run.end(programs).await;
}

/// Reads the tree on all clients, and asserts that they see the same.
async fn walk_all(world: &World, run: &Run) -> Tree {
    let walks: Vec<_> = (0..CLIENTS.len())
        .map(|client| {
            let mount = run.clients[client].clone();
            world.rt(CLIENTS[client]).spawn("walk", async move { walk(&mount).await })
        })
        .collect();
    let mut trees = Vec::new();
    for walk in walks {
        trees.push(walk.await.expect("clients do not crash"));
    }
    let first = trees.swap_remove(0);
    for (other, client) in trees.iter().zip([2, 1]) {
        assert_same(&other.model, &first.model, &format!("client {client} against client 0"));
    }
    first
}

/// Closes all files. Then asserts that all clients see the file system of the model, and that
/// removed files leave no objects behind.
pub(super) async fn settle(world: &World, run: &Run, waste: &Objects) {
    run.close_all().await;
    let tree = walk_all(world, run).await;
    let (mut found, mut expected) = (tree.model.clone(), visible(&run.state().model));
    if run.state().may_lack_stripes {
        (found, expected) = (without_counts(found), without_counts(expected));
    }
    assert_same(&found, &expected, "the tree against the model");
    let left = cleaned(world, &tree, waste).await;
    assert!(left.is_empty(), "objects that belong to no file: {left:?}");
}

/// Objects by OST.
pub(super) type Objects = BTreeSet<(u32, Fid)>;

/// Waits until the OSTs hold only objects of files and `waste`. Returns further objects that are
/// not removed in time.
pub(super) async fn cleaned(world: &World, tree: &Tree, waste: &Objects) -> Objects {
    let rt = world.rt(CLIENTS[0]);
    let all = || objects(world).into_iter().chain(data_objects(world));
    let left = || all().filter(|o| !tree.objects.contains(o) && !waste.contains(o)).collect();
    let end = world.now() + CLEANUP;
    loop {
        let left: Objects = left();
        if left.is_empty() || world.now() > end {
            return left;
        }
        rt.sleep(Duration::from_millis(200)).await;
    }
}

/// Runs operations on a bad network with breaking connections. Each must execute exactly once, and
/// the final file system must equal the model.
pub fn bad_network(seed: u64, ops: usize, log: usize) -> Trace {
    bad_network_as(seed, ops, log, false)
}

/// As [`bad_network`], optionally with migrations among the operations.
pub fn bad_network_as(seed: u64, ops: usize, log: usize, migrates: bool) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let (nodes, run) = boot(world, seed).await;
        run.state().migrates = migrates;
        storm(world, &nodes, &run, seed, ops).await;
        settle(world, &run, &Objects::new()).await;
    })
}

/// Hosts that lose their power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victims {
    /// One OSS.
    Oss(usize),
    /// The host of the MGS and the MDT.
    Mds,
    /// Both the MDS and one OSS.
    Both(usize),
}

impl Victims {
    fn of(seed: u64) -> Victims {
        let ost = (seed / 5 % 4) as usize;
        match seed % 5 {
            0 | 1 => Victims::Oss(ost),
            2 | 3 => Victims::Mds,
            _ => Victims::Both(ost),
        }
    }

    fn hosts(self) -> Vec<u32> {
        match self {
            Victims::Oss(ost) => vec![OSSES[ost]],
            Victims::Mds => vec![MDS],
            Victims::Both(ost) => vec![MDS, OSSES[ost]],
        }
    }

    fn ost(self) -> Option<u32> {
        match self {
            Victims::Oss(ost) | Victims::Both(ost) => Some(ost as u32),
            Victims::Mds => None,
        }
    }

    fn mds(self) -> bool {
        !matches!(self, Victims::Oss(_))
    }
}

/// A power failure of servers:
/// 1. Run operations, then sync everything.
/// 2. Run more operations, among them fsyncs. The power of some servers fails meanwhile.
/// 3. Restart the servers.
/// 4. Assert that synced data survived and that no file contains foreign data.
/// 5. Run more operations, and assert that they work.
pub fn power_failure(seed: u64, ops: usize, log: usize) -> Trace {
    power_failure_as(seed, ops, log, false)
}

/// As [`power_failure`], optionally with migrations among the operations.
pub fn power_failure_as(seed: u64, ops: usize, log: usize, migrates: bool) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let (mut nodes, run) = boot(world, seed).await;
        run.state().migrates = migrates;
        let programs = run.begin(ops);
        run.end(programs).await;
        // A syncfs covers only the dirty data of its own client.
        for client in 0..CLIENTS.len() {
            run.alone(client, Op::SyncFs).await;
        }
        {
            let state = &mut *run.state();
            state.durability.all_synced(&state.model);
        }
        let victims = Victims::of(seed);
        let programs = run.begin(ops);
        let programs = crash(world, &run, victims, programs, ops).await;
        restart(world, victims, &mut nodes).await;
        world.configure(|config| config.loss = 0.0);
        run.end(programs).await;
        let (tree, waste) = check_after_crash(world, &run, victims).await;
        let again = Run::new(world, run.clients.clone(), seed + 1, tree.model);
        again.state().migrates = migrates;
        let programs = again.begin(ops);
        again.end(programs).await;
        settle(world, &again, &waste).await;
    })
}

type Programs = Vec<sheen_rt::JoinHandle<()>>;

/// Crashes the victims at a random moment of the run.
async fn crash(world: &World, run: &Run, victims: Victims, programs: Programs, ops: usize) -> Programs {
    let rt = world.rt(CLIENTS[0]);
    let left = run.state().rng.usize(1..ops);
    while run.left() > left {
        rt.sleep(Duration::from_micros(300)).await;
    }
    let moment = Duration::from_micros(run.state().rng.u64(0..3000));
    rt.sleep(moment).await;
    run.stop();
    run.state().rule = if victims.mds() { Rule::Doubtful } else { Rule::Exact };
    run.state().may_lack_stripes = true;
    world.note(&format!("the power fails: {victims:?}"));
    victims.hosts().into_iter().for_each(|host| world.crash_host(host));
    programs
}

/// Restarts the crashed hosts one after another.
async fn restart(world: &World, victims: Victims, nodes: &mut Vec<Node>) {
    let rt = world.rt(CLIENTS[0]);
    for host in victims.hosts() {
        rt.sleep(Duration::from_millis(rt.random_u64() % 3000)).await;
        world.note(&format!("host {host} comes up"));
        nodes.push(start(world, host).await.expect("it does not crash again"));
    }
    // Before the MDT is connected to all OSTs, a new file may get fewer stripes than requested.
    for node in &*nodes {
        if let Node::Mds(_, _, mdt, _) = node {
            let _ = rt.timeout(CLEANUP, mdt.wait_osts(OSSES.len())).await;
        }
    }
}

/// Crashes the MDS and restarts it while no client can reach it. The MDT goes on without them, so
/// their uncommitted changes are lost.
async fn crash_and_lose(world: &World, nodes: &mut Vec<Node>) {
    world.crash_host(MDS);
    CLIENTS.into_iter().for_each(|client| world.partition(client, MDS));
    let node = start(world, MDS).await.expect("it does not crash again");
    if let Node::Mds(_, _, mdt, _) = &node {
        mdt.abort_recovery();
        mdt.wait_osts(OSSES.len()).await;
    }
    nodes.push(node);
    CLIENTS.into_iter().for_each(|client| world.heal(client, MDS));
}

/// Asserts that an fsync succeeds only on files that exist. A file that the MDT lost may
/// still be open on a client.
async fn check_fsync_succeeds_only_on_existing_files(run: &Run) {
    let open: Vec<_> = run.open_files();
    for (client, file) in open {
        let client = &run.clients[client];
        if client.fsync(&file, false).await.is_ok() {
            let there = client.getattr(file.fid(), None).await;
            assert!(there.is_ok(), "fsync of {} succeeded, but there is no such file: {there:?}", file.fid());
        }
    }
}

/// Syncs every file on every client. For a file on a crashed OST or MDT, the first fsync may report
/// lost changes, but the second one may not.
async fn check_losses_are_reported_once(run: &Run, tree: &Tree, victims: Victims) {
    for client in &run.clients {
        for (fid, _) in tree.model.inodes.iter().filter(|(_, inode)| inode.bytes().is_some()) {
            let file = client.open(&Caller::ROOT, *fid, flags::RDONLY).await.expect("it was just found");
            let synced = client.fsync(&file, false).await;
            let lost = victims.mds() && synced == Err(Errno::EIO);
            assert!(lost || synced == Ok(()), "fsync of {fid}: {synced:?}");
            assert_eq!(client.fsync(&file, false).await, Ok(()), "a loss is reported once");
            client.release(file).await.expect("it is open");
        }
    }
}

/// Asserts that after the crash all guaranteed data exists and no other data. Returns the tree, and
/// leaked objects.
async fn check_after_crash(world: &World, run: &Run, victims: Victims) -> (Tree, Objects) {
    for client in &run.clients {
        let synced = client.syncfs().await;
        let lost = victims.mds() && synced == Err(Errno::EIO);
        assert!(lost || synced == Ok(()), "all servers can be reached again: {synced:?}");
        assert_eq!(client.syncfs().await, Ok(()), "a loss is reported once");
    }
    check_fsync_succeeds_only_on_existing_files(run).await;
    run.close_all().await;
    let tree = walk_all(world, run).await;
    check_losses_are_reported_once(run, &tree, victims).await;
    {
        let state = &mut *run.state();
        if !victims.mds() {
            let seen = |model: &Model| without_counts(visible(model));
            assert_same(&seen(&tree.model), &seen(&state.model), "clients replay what an OST has lost");
        }
        state.durability.check_names(&tree.model, &state.doubtful);
        for (fid, inode) in &tree.model.inodes {
            let Some(found) = inode.bytes() else { continue };
            let untouched = victims.ost().is_none_or(|ost| !tree.osts.get(fid).is_some_and(|o| o.contains(&ost)));
            let known = state.model.inodes.get(fid).and_then(|i| i.bytes());
            // The MDT may have lost the objects of a component that was not synced.
            let laid_out = inode.striping.is_some_and(|s| !victims.mds() || !s.is_composite());
            match known {
                Some(known) if untouched && laid_out && !state.doubtful_files.contains(fid) => {
                    assert!(found == known, "{fid} is on no OST that crashed, but its data changed");
                }
                _ => state.durability.check_bytes(*fid, inode, found),
            }
        }
    }
    let left = cleaned(world, &tree, &Objects::new()).await;
    // The MDT may have lost a file, or the objects of a component, while a write to it was running.
    // The client resends the write when the OST returns. The OST then creates an object that
    // belongs to no file. Its id is never reused, but it takes space.
    let laid_out = |fid| tree.model.inodes.get(fid).is_some_and(|i| i.striping.is_some_and(|s| !s.is_composite()));
    // A migration writes to a temporary copy, which may be lost.
    let migrated = run.state().doubtful.iter().any(|op| matches!(op, Op::Migrate { .. }));
    let excused = migrated || run.state().doubtful_writes.iter().any(|fid| !laid_out(fid));
    assert!(left.is_empty() || excused, "objects that belong to no file: {left:?}");
    (tree, left)
}

/// The MDT loses a file that a client has open. The client must get errors, and it must leave no
/// objects behind. With every second seed, the MDS then crashes again. The client must not replay
/// what was lost.
pub fn lost_file(seed: u64, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let (mut nodes, run) = boot(world, seed).await;
        let [client, other, _] = &run.clients[..] else { panic!("three clients") };
        let who = &Caller::ROOT;
        let name = "new".into();
        run.alone(0, Op::SyncFs).await;
        let (attr, file) = client.create(who, ROOT, &name, flags::RDWR, 0o644, 0).await.expect("it can be created");
        crash_and_lose(world, &mut nodes).await;
        // The client may use its caches until it knows of the restart, at the latest from the first
        // reply of the restarted MDT.
        assert_eq!(client.lookup(who, ROOT, &"none".into()).await.err(), Some(Errno::ENOENT));
        if seed % 2 == 1 {
            world.note("the power of the MDS fails again");
            world.crash_host(MDS);
            restart(world, Victims::Mds, &mut nodes).await;
        }
        assert_eq!(client.getattr(attr.attr.fid, None).await.err(), Some(Errno::ENOENT), "it was lost");
        let data = || Bulk::from(bytes::Bytes::from_static(b"data"));
        assert_eq!(client.fsync(&file, false).await, Err(Errno::ESTALE));
        assert_eq!(client.write(&file, 0, data()).await, Err(Errno::ESTALE));
        assert_eq!(client.read(&file, 0, 1).await.err(), Some(Errno::ESTALE));
        assert!(objects(world).is_empty());
        // The name is free. The client of the lost file must not disturb another client that reuses
        // the name.
        let (attr, new) = other.create(who, ROOT, &name, flags::RDWR, 0o644, 0).await.expect("the name is free");
        assert_eq!(other.write(&new, 0, data()).await, Ok(4));
        assert_eq!(other.fsync(&new, false).await, Ok(()));
        let _ = client.release(file).await;
        assert_eq!(client.getattr(attr.attr.fid, None).await.map(|a| a.attr.size), Ok(4));
    })
}

/// Creates a file that has no objects yet.
async fn file_without_layout(client: &Client) -> Fid {
    let regular = sheen_wire::FileKind::Regular.mode_bits();
    let made = client.mknod(&Caller::ROOT, ROOT, &"new".into(), regular | 0o644, 0, 0).await;
    made.expect("it can be made").attr.fid
}

/// The MDT loses the layout of a file and then gives it another layout. No client may continue with
/// the lost one.
pub fn lost_layout(seed: u64, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let (mut nodes, run) = boot(world, seed).await;
        let [client, other, _] = &run.clients[..] else { panic!("three clients") };
        let who = &Caller::ROOT;
        let fid = file_without_layout(client).await;
        run.alone(0, Op::SyncFs).await;
        let old = client.open(who, fid, flags::RDWR).await.expect("it can be opened");
        let data = |text: &'static str| Bulk::from(bytes::Bytes::from_static(text.as_bytes()));
        assert_eq!(client.write(&old, 0, data("lost")).await, Ok(4));
        crash_and_lose(world, &mut nodes).await;
        if seed % 2 == 1 {
            assert_eq!(client.fsync(&old, false).await, Err(Errno::ESTALE), "the first request after the restart");
        }
        let new = other.open(who, fid, flags::RDWR).await.expect("the file itself was synced");
        assert_eq!(other.write(&new, 0, data("new content")).await, Ok(11));
        // The client learns of the restart, as in `lost_file`.
        assert_eq!(client.lookup(who, ROOT, &"none".into()).await.err(), Some(Errno::ENOENT));
        assert_eq!(client.getattr(fid, None).await.map(|a| a.attr.size), Ok(11));
        assert_eq!(client.fsync(&old, false).await, Err(Errno::ESTALE));
        let again = client.open(who, fid, flags::RDONLY).await.expect("it can be opened anew");
        let read = client.read(&again, 0, 100).await.expect("and read").into_bytes();
        assert_eq!(&read[..], b"new content");
    })
}

/// The MDT loses the objects of a component and then gives it others. No client may continue with
/// the lost objects, and the client that wrote to them must get an error. With some seeds, that
/// client calls fsync or writes with O_SYNC before another client uses the file.
pub fn lost_component(seed: u64, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let (mut nodes, run) = boot(world, seed).await;
        let [client, other, _] = &run.clients[..] else { panic!("three clients") };
        let who = &Caller::ROOT;
        let fid = file_without_layout(client).await;
        let steps = STRIPINGS.iter().find(|striping| striping.is_composite()).expect("there is one");
        let set = client.setxattr(who, fid, &"lustre.lov".into(), &steps.asked().encode().into(), 0).await;
        assert_eq!(set, Ok(()));
        let end = steps.parts().next().expect("it has parts").end;
        let old = client.open(who, fid, flags::RDWR).await.expect("it can be opened");
        let data = |text: &'static str| Bulk::from(bytes::Bytes::from_static(text.as_bytes()));
        assert_eq!(client.write(&old, 0, data("safe")).await, Ok(4));
        assert_eq!(client.fsync(&old, false).await, Ok(()));
        assert_eq!(client.write(&old, end, data("lost")).await, Ok(4));
        crash_and_lose(world, &mut nodes).await;
        let synced = match seed % 3 {
            0 => Err(Errno::ESTALE),
            1 => client.fsync(&old, false).await,
            _ => client.write_as(&old, end, data("more"), false, true).await.map(drop),
        };
        let there = other.getattr(fid, None).await.map(|a| a.attr.size);
        // If the network is slow, the MDT has committed the layout before it crashes.
        let is_lost = there != Ok(end + 4);
        assert!(synced.is_err() || !is_lost, "the sync returned {synced:?}, but the size is {there:?}");
        let new = other.open(who, fid, flags::RDWR).await.expect("the file itself was synced");
        assert_eq!(other.write(&new, end, data("new content")).await, Ok(11));
        // The client learns of the restart, as in `lost_file`.
        assert_eq!(client.lookup(who, ROOT, &"none".into()).await.err(), Some(Errno::ENOENT));
        assert_eq!(client.getattr(fid, None).await.map(|a| a.attr.size), Ok(end + 11));
        let again = client.open(who, fid, flags::RDONLY).await.expect("it can be opened anew");
        let read = client.read(&again, end, 100).await.expect("and read").into_bytes();
        assert_eq!(&read[..], b"new content");
        let read = client.read(&again, 0, 4).await.expect("and read").into_bytes();
        assert_eq!(&read[..], b"safe");
        if is_lost {
            assert!(client.fsync(&old, false).await.is_err(), "the client's write was lost");
        }
    })
}

/// The call by which a client finds out whether its data is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SyncCall {
    /// fsync of the written file.
    Fsync,
    /// fsync after closing and reopening the file.
    FsyncLater,
    /// syncfs, then fsync.
    SyncFs,
    /// A write with O_SYNC to the same file.
    DurableWrite,
}

/// An OST crashes after a client wrote to it. If the bytes are lost, the client's next sync must
/// fail, once. Data written after that is durable after a successful sync.
pub fn lost_bytes(seed: u64, log: usize) -> Trace {
    let call = [SyncCall::Fsync, SyncCall::FsyncLater, SyncCall::SyncFs, SyncCall::DurableWrite][(seed % 4) as usize];
    simulate(seed, log, bad_network_config(seed), async |world| {
        let (mut nodes, run) = boot(world, seed).await;
        let client = &run.clients[0];
        let who = &Caller::ROOT;
        let name = "new".into();
        let (_, mut file) = client.create(who, ROOT, &name, flags::RDWR, 0o644, 0).await.expect("it can be created");
        run.alone(0, Op::SyncFs).await;
        let data = bytes::Bytes::from(vec![7; 1000]);
        let bulk = || Bulk::from(data.clone());
        let there =
            async |file: &OpenFile| client.read(file, 0, 1000).await.expect("it can be read").into_bytes() == data;
        assert_eq!(client.write(&file, 0, bulk()).await, Ok(1000));
        let ost = layout(client, file.fid()).await.expect("it was written").stripes()[0].ost;
        let victim = Victims::Oss(ost as usize);
        let fails = async |nodes: &mut Vec<Node>| {
            victim.hosts().into_iter().for_each(|host| world.crash_host(host));
            restart(world, victim, nodes).await;
        };
        fails(&mut nodes).await;
        if call == SyncCall::FsyncLater {
            let fid = file.fid();
            client.release(file).await.expect("it is open");
            file = client.open(who, fid, flags::RDWR).await.expect("it can be opened again");
        }
        let answers = match call {
            SyncCall::Fsync | SyncCall::FsyncLater => vec![client.fsync(&file, false).await],
            SyncCall::SyncFs => vec![client.syncfs().await, client.fsync(&file, true).await],
            SyncCall::DurableWrite => vec![client.write_as(&file, 5000, bulk(), false, true).await.map(drop)],
        };
        let there_yet = there(&file).await;
        for answer in answers {
            assert!(answer.is_err() || there_yet, "{call:?}: the bytes are lost, but the sync returned {answer:?}");
            assert!(matches!(answer, Ok(()) | Err(Errno::EIO)), "{call:?}: {answer:?}");
        }
        assert_eq!(client.fsync(&file, false).await, Ok(()), "a loss is reported once");
        assert_eq!(client.syncfs().await, Ok(()));
        // After the reported loss, new data is durable again.
        assert_eq!(client.write(&file, 0, bulk()).await, Ok(1000));
        assert_eq!(client.fsync(&file, false).await, Ok(()));
        fails(&mut nodes).await;
        assert_eq!(client.fsync(&file, false).await, Ok(()), "nothing was lost");
        assert!(there(&file).await, "{call:?}: fsync succeeded, but the bytes are lost");
    })
}

/// Runs `count` seeds from 0 on, in one thread per processor. [`FROM_VARIABLE`] and
/// [`SEEDS_VARIABLE`] change the first seed and the number of seeds. With [`SEED_VARIABLE`], runs
/// only that seed and prints its events.
///
/// # Panics
/// If a seed fails. The message says which, and how to repeat it.
pub fn seeds(test: &str, count: u64, scenario: impl Fn(u64, usize) -> Trace + Sync) {
    let number = |variable| std::env::var(variable).ok()?.parse::<u64>().ok();
    if let Some(seed) = number(SEED_VARIABLE) {
        let _ = tracing_subscriber::fmt().with_test_writer().with_env_filter("info").without_time().try_init();
        let trace = scenario(seed, EVENTS_SHOWN);
        trace.log.iter().for_each(|line| println!("{line}"));
        println!("seed {seed}: fine, trace {:016x}", trace.hash);
        return;
    }
    let (count, from) = (number(SEEDS_VARIABLE).unwrap_or(count), number(FROM_VARIABLE).unwrap_or(0));
    let (next, failed) = (AtomicU64::new(from), Mutex::new(Vec::new()));
    let one = || {
        while let seed = next.fetch_add(1, Ordering::Relaxed)
            && seed < from + count
        {
            if catch_unwind(AssertUnwindSafe(|| scenario(seed, 0))).is_err() {
                eprintln!(
                    "seed {seed} failed; repeat it with a log: {SEED_VARIABLE}={seed} scripts/test.sh -E 'test({test})' --no-capture"
                );
                failed.lock().expect("no panic holds it").push(seed);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(one))));
    let failed = failed.into_inner().expect("no panic holds it");
    assert!(failed.is_empty(), "{} of {count} seeds failed: {failed:?}", failed.len());
}
