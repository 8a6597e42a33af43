//! Deaths of clients around the crash of a server. The server waits for a dead client up to its
//! limit. Then the others go on, and have lost nothing. The changes that the dead client has synced
//! are there, and its locks, orphans and objects of lost files are not.

use std::{future::pending, time::Duration};

use fastrand::Rng;
use sheen_client::{Caller, Client};
use sheen_rt::sim::World;
use sheen_wire::{Fid, ldlm::Mode, mds::flags};

use super::{
    CLIENTS, MDS, OSSES,
    cluster::{bad_network_config, mount, start, start_some},
    lost_client::{Held, LEN, Member, bytes, lock, random},
    scenario::{Objects, Trace, cleaned, simulate},
    tree::walk,
};

/// The client that dies.
const DEAD: usize = 0;
/// Time between two crashes, and between the changes and a crash, at most: less than the interval
/// of commits.
const GAP_MAX: Duration = Duration::from_millis(150);
/// Time for which the server is down, at most.
const DOWN_MAX: Duration = Duration::from_secs(2);
/// Time between the start of the server and a death in its recovery, at most.
const RECOVERY_MAX: Duration = Duration::from_millis(500);
/// Name of the dead client's file that is durable.
const SYNCED: &str = "synced";

/// When the client dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    BeforeTheCrash,
    WhileDown,
    InRecovery,
}

/// Creates a durable file, and locks it.
async fn synced_file(member: &Member) -> Fid {
    let (fid, file) = member.create(SYNCED).await;
    assert_eq!(member.client.write(&file, 0, bytes(DEAD)).await, Ok(LEN));
    assert_eq!(member.client.fsync(&file, false).await, Ok(()));
    assert_eq!(member.client.lock(fid, lock(1), Mode::Pw, false, pending()).await, Ok(()));
    fid
}

/// Checks the durable file on another client, which also gets its lock.
async fn check_synced(dir: Fid, synced: Fid, other: &Client) {
    let found = other.lookup(&Caller::ROOT, dir, &SYNCED.into()).await.map(|entry| entry.attr.fid);
    assert_eq!(found, Ok(synced));
    let file = other.open(&Caller::ROOT, synced, flags::RDONLY).await.expect("it is there");
    let read = other.read(&file, 0, 2 * LEN).await.expect("it can be read").into_bytes();
    assert!(read == bytes(DEAD).into_bytes(), "{} bytes", read.len());
    assert_eq!(other.release(file).await, Ok(()));
    assert_eq!(other.lock(synced, lock(2), Mode::Pw, true, pending()).await, Ok(()));
}

/// Closes the removed files of the clients that live. Then the OST has only objects of files.
async fn check_objects(world: &World, members: &[Member], held: &[Held]) {
    for (member, held) in members.iter().zip(held).skip(DEAD + 1) {
        assert_eq!(member.client.release(held.removed.clone()).await, Ok(()));
        assert_eq!(member.client.releasedir(held.dir.clone()).await, Ok(()));
    }
    let tree = walk(&members[DEAD + 1].client).await;
    let left = cleaned(world, &tree, &Objects::new()).await;
    assert!(left.is_empty(), "objects that belong to no file: {left:?}");
}

/// Crashes a server, and a client's host before that, while the server is down, or in its recovery.
/// With every second seed, the file system is mounted again on that host.
fn client_death(seed: u64, server: u32, log: usize) -> Trace {
    let moment = [Moment::BeforeTheCrash, Moment::WhileDown, Moment::InRecovery][(seed % 3) as usize];
    simulate(seed, log, bad_network_config(seed), async |world| {
        let mut nodes = start_some(world, 1, false).await;
        let mut rng = Rng::with_seed(seed ^ 0xdead);
        let rt = world.rt(CLIENTS[DEAD + 1]);
        let mut members = Vec::new();
        for n in 0..CLIENTS.len() {
            members.push(Member::new(world, n).await);
        }
        let synced = synced_file(&members[DEAD]).await;
        let mut held = Vec::new();
        for (n, member) in members.iter().enumerate() {
            held.push(member.change(n, server != MDS).await);
        }
        let die = || {
            world.note(&format!("a client dies: {moment:?}"));
            world.crash_host(CLIENTS[DEAD]);
        };
        rt.sleep(random(&mut rng, GAP_MAX)).await;
        if moment == Moment::BeforeTheCrash {
            die();
            rt.sleep(random(&mut rng, GAP_MAX)).await;
        }
        world.note("the power of a server fails");
        world.crash_host(server);
        if moment == Moment::WhileDown {
            rt.sleep(random(&mut rng, GAP_MAX)).await;
            die();
        }
        rt.sleep(random(&mut rng, DOWN_MAX)).await;
        let node = start(world, server).await.expect("nothing else crashes it");
        if moment == Moment::InRecovery {
            rt.sleep(random(&mut rng, RECOVERY_MAX)).await;
            die();
        }
        // In the recovery, for whose end the mount waits.
        let again = if seed.is_multiple_of(2) { Some(mount(world, CLIENTS[DEAD]).await) } else { None };
        for (n, member) in members.iter().enumerate().skip(DEAD + 1) {
            member.check(n, &held[n], &members[CLIENTS.len() - n].client).await;
        }
        let lost = node.lost_clients();
        assert!(lost == 1 || lost == 0 && moment == Moment::InRecovery, "{lost} clients are lost");
        nodes.push(node);
        check_synced(members[DEAD].dir, synced, &members[DEAD + 1].client).await;
        if let Some(client) = again {
            let member = Member { client, dir: members[DEAD].dir };
            let (_, file) = member.create("again").await;
            assert_eq!(member.client.write(&file, 0, bytes(DEAD)).await, Ok(LEN));
            assert_eq!(member.client.syncfs().await, Ok(()));
        }
        check_objects(world, &members, &held).await;
    })
}

/// A client dies around a crash of the MDS.
pub fn around_mds_crash(seed: u64, log: usize) -> Trace {
    client_death(seed, MDS, log)
}

/// A client dies around a crash of the OSS.
pub fn around_oss_crash(seed: u64, log: usize) -> Trace {
    client_death(seed, OSSES[0], log)
}

/// Crashes the MDS right after a client was unmounted and mounted again. The MDT waits for the new
/// mount, and not for the former one.
pub fn remounted(seed: u64, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let mut nodes = start_some(world, 1, false).await;
        let mut members = Vec::new();
        for n in 0..CLIENTS.len() {
            members.push(Member::new(world, n).await);
        }
        members[0].client.umount().await;
        members[0].client = mount(world, CLIENTS[0]).await;
        let mut held = Vec::new();
        for (n, member) in members.iter().enumerate() {
            held.push(member.change(n, false).await);
        }
        world.note("the power of the MDS fails");
        world.crash_host(MDS);
        let node = start(world, MDS).await.expect("nothing else crashes it");
        for (n, member) in members.iter().enumerate() {
            let other = &members[(n + 1) % members.len()].client;
            member.check(n, &held[n], other).await;
        }
        assert_eq!(node.lost_clients(), 0, "the former mount is not waited for");
        nodes.push(node);
    })
}
