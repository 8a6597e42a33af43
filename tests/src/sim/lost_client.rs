//! Recoveries that go on without one client, because it cannot reach the restarted server: at a
//! limit, or when an administrator aborts the wait. Only that client loses something.

use std::{future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
use fastrand::Rng;
use sheen_client::{Caller, Client, OpenDir, OpenFile};
use sheen_rt::sim::World;
use sheen_wire::{
    Bulk, Errno, Fid,
    fid::ROOT,
    ldlm::{Flock, FlockKind, Mode},
    mds::flags,
};

use super::{
    CLIENTS, MDS, OSSES,
    cluster::{Node, bad_network_config, mount, start, start_some},
    scenario::{Trace, simulate},
};

/// The client that is lost.
pub(super) const LOST: usize = 0;
/// Time between the changes and the crash, at most: less than the interval of commits.
const UNCOMMITTED_MAX: Duration = Duration::from_millis(150);
/// Time for which the server is down, at most.
const DOWN_MAX: Duration = Duration::from_secs(2);
/// Time between the return of the other clients and an abort, at most. They may have finished.
const ABORT_MAX: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_millis(1);
/// Bytes of a file.
pub(super) const LEN: usize = 5000;
/// Bytes of a readdir page.
const PAGE: u32 = 4096;
/// Name of a directory that its client removes while it is open.
const OPEN_DIR: &str = "open";

/// How the wait for the client ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// An administrator aborts it.
    Aborted,
    /// The soft limit, or the hard one.
    Limit,
}

/// A client with its own directory.
pub(super) struct Member {
    pub(super) client: Arc<Client>,
    pub(super) dir: Fid,
}

/// The files of a member at the moment of the crash.
pub(super) struct Held {
    /// A file that it has created, locked and written.
    file: Arc<OpenFile>,
    fid: Fid,
    /// A file that it has removed while it was open.
    pub(super) removed: Arc<OpenFile>,
    /// Such a directory.
    pub(super) dir: Arc<OpenDir>,
}

/// Returns a lock on a whole file.
pub(super) fn lock(owner: u64) -> Flock {
    Flock { start: 0, end: u64::MAX, owner, pid: 1, kind: FlockKind::Flock }
}

/// Returns the content of a file of this member.
pub(super) fn bytes(n: usize) -> Bulk {
    Bulk::from(Bytes::from(vec![n as u8 + 1; LEN]))
}

impl Member {
    /// Mounts the file system on a client host, and makes a directory.
    pub(super) async fn new(world: &World, n: usize) -> Member {
        let client = mount(world, CLIENTS[n]).await;
        let made = client.mkdir(&Caller::ROOT, ROOT, &format!("d{n}").into(), 0o755, 0).await;
        let dir = made.expect("it is allowed").attr.fid;
        assert_eq!(client.syncfs().await, Ok(()));
        Member { client, dir }
    }

    /// Creates a file in its directory.
    pub(super) async fn create(&self, name: &str) -> (Fid, Arc<OpenFile>) {
        let name = Bytes::copy_from_slice(name.as_bytes());
        let made = self.client.create(&Caller::ROOT, self.dir, &name, flags::RDWR, 0o644, 0).await;
        let (entry, file) = made.expect("it is allowed");
        (entry.attr.fid, file)
    }

    /// Makes changes that are not synced. `ost`: on the OST that crashes; only data of the file is
    /// not synced then, and is dirty.
    pub(super) async fn change(&self, n: usize, ost: bool) -> Held {
        let client = &self.client;
        let (fid, file) = self.create("file").await;
        let (_, removed) = self.create("removed").await;
        for file in [&file, &removed] {
            assert_eq!(client.write(file, 0, bytes(n)).await, Ok(LEN));
        }
        assert_eq!(client.unlink(&Caller::ROOT, self.dir, &"removed".into()).await, Ok(()));
        let made = client.mkdir(&Caller::ROOT, self.dir, &OPEN_DIR.into(), 0o755, 0).await;
        let made = made.expect("it is allowed").attr.fid;
        let dir = client.opendir(&Caller::ROOT, made, 0).await.expect("it was just made");
        assert_eq!(client.rmdir(&Caller::ROOT, self.dir, &OPEN_DIR.into()).await, Ok(()));
        assert_eq!(client.lock(fid, lock(1), Mode::Pw, false, pending()).await, Ok(()));
        if ost {
            assert_eq!(client.write(&file, 0, bytes(n + 1)).await, Ok(LEN));
            assert_eq!(client.syncfs().await, Ok(()));
            assert_eq!(client.write(&file, 0, bytes(n)).await, Ok(LEN));
        }
        Held { file, fid, removed, dir }
    }

    /// Checks that a client which came back in time has lost nothing.
    pub(super) async fn check(&self, n: usize, held: &Held, other: &Client) {
        let client = &self.client;
        for file in [&held.file, &held.removed] {
            let read = client.read(file, 0, LEN).await.expect("it is there").into_bytes();
            assert!(read == vec![n as u8 + 1; LEN], "client {n}");
            assert_eq!(client.fsync(file, false).await, Ok(()), "client {n}");
        }
        let listed = client.readdir(&held.dir, 0, PAGE, false).await.map(|page| page.entries.len());
        assert_eq!(listed, Ok(2), "client {n}: a removed directory is empty");
        assert_eq!(client.lookup(&Caller::ROOT, self.dir, &"file".into()).await.map(|e| e.attr.fid), Ok(held.fid));
        assert_eq!(client.syncfs().await, Ok(()), "client {n}");
        let conflict = other.lock(held.fid, lock(2), Mode::Pw, false, pending()).await;
        assert_eq!(conflict, Err(Errno::EAGAIN), "client {n} has its lock");
    }
}

/// Returns a random time below this one.
pub(super) fn random(rng: &mut Rng, max: Duration) -> Duration {
    Duration::from_micros(rng.u64(0..max.as_micros() as u64))
}

/// Crashes a server after a moment, and restarts it. One client cannot reach it, and the wait for
/// this client ends.
pub(super) async fn crash_without_lost(world: &World, host: u32, end: End, rng: &mut Rng) -> Node {
    let rt = world.rt(CLIENTS[LOST]);
    rt.sleep(random(rng, UNCOMMITTED_MAX)).await;
    world.note("the power of a server fails");
    world.crash_host(host);
    world.partition(CLIENTS[LOST], host);
    rt.sleep(random(rng, DOWN_MAX)).await;
    let node = start(world, host).await.expect("nothing else crashes it");
    if end == End::Aborted {
        while node.clients_back() < CLIENTS.len() - 1 {
            rt.sleep(POLL).await;
        }
        rt.sleep(random(rng, ABORT_MAX)).await;
        node.abort_recovery();
    }
    node
}

/// Crashes a server while all clients have changes that it may not have committed, or dirty data.
/// One client comes back only after the recovery.
pub fn lost_client(seed: u64, host: u32, end: End, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let mut nodes = start_some(world, 1, false).await;
        let mut rng = Rng::with_seed(seed ^ 0x1057);
        let mut members = Vec::new();
        for n in 0..CLIENTS.len() {
            members.push(Member::new(world, n).await);
        }
        let mut held = Vec::new();
        for (n, member) in members.iter().enumerate() {
            held.push(member.change(n, host != MDS).await);
        }
        let node = crash_without_lost(world, host, end, &mut rng).await;
        for (n, member) in members.iter().enumerate().filter(|(n, _)| *n != LOST) {
            let other = CLIENTS.len() - n;
            member.check(n, &held[n], &members[other].client).await;
        }
        assert_eq!(node.lost_clients(), 1, "only the client that is not there");
        nodes.push(node);
        let (lost, other) = (&members[LOST], &members[LOST + 1].client);
        if host == MDS {
            // The removal may be lost with the client.
            let has_name = other.lookup(&Caller::ROOT, lost.dir, &OPEN_DIR.into()).await.is_ok();
            let exists = other.getattr(held[LOST].dir.fid(), None).await.is_ok();
            assert_eq!(exists, has_name, "an orphan of a client that is lost is deleted");
        }
        world.heal(CLIENTS[LOST], host);
        let synced = lost.client.syncfs().await;
        let found = lost.client.lookup(&Caller::ROOT, lost.dir, &"file".into()).await;
        let data = lost.client.read(&held[LOST].file, 0, LEN).await.map(|read| read.into_bytes().to_vec());
        if found.is_err() || data.as_deref() != Ok(&[LOST as u8 + 1; LEN]) {
            assert_eq!(synced, Err(Errno::EIO), "its losses are reported: {found:?}");
        }
        assert_eq!(lost.client.syncfs().await, Ok(()), "once");
        // Fails if the directory is lost.
        let _ = lost.client.releasedir(held[LOST].dir.clone()).await;
    })
}

/// With commits on sharing: clients change what another one has changed. Then the MDS crashes, and
/// that client does not come back.
pub fn shared_changes(seed: u64, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let nodes = start_some(world, 1, false).await;
        nodes.iter().for_each(Node::commit_on_sharing);
        let rt = world.rt(CLIENTS[LOST]);
        let [lost, one, two] =
            [mount(world, CLIENTS[0]).await, mount(world, CLIENTS[1]).await, mount(world, CLIENTS[2]).await];
        let names: [Bytes; 4] = ["theirs", "renamed", "mine", "new"].map(Into::into);
        let [theirs, renamed, mine, new] = &names;
        let dir = lost.mkdir(&Caller::ROOT, ROOT, &"shared".into(), 0o777, 0).await.expect("it is allowed").attr.fid;
        let create = async |client: &Client, name| {
            let made = client.create(&Caller::ROOT, dir, name, flags::RDWR, 0o644, 0).await;
            made.expect("it is allowed").0.attr.fid
        };
        let made = two.mkdir(&Caller::ROOT, ROOT, &"old".into(), 0o777, 0).await;
        let old = made.expect("it is allowed").attr.fid;
        let filled = two.create(&Caller::ROOT, old, &"file".into(), flags::RDWR, 0o644, 0).await;
        drop(filled.expect("it is allowed"));
        assert_eq!(two.syncfs().await, Ok(()));
        let before = create(&lost, theirs).await;
        create(&one, mine).await;
        assert_eq!(one.rename(&Caller::ROOT, dir, theirs, dir, renamed, 0).await, Ok(()));
        assert_eq!(lost.unlink(&Caller::ROOT, dir, mine).await, Ok(()));
        let after = create(&two, mine).await;
        create(&two, new).await;
        // Last, because the wait for a later change would make it durable, too.
        assert_eq!(lost.unlink(&Caller::ROOT, old, &"file".into()).await, Ok(()));
        assert_eq!(two.rmdir(&Caller::ROOT, ROOT, &"old".into()).await, Ok(()));
        rt.sleep(random(&mut Rng::with_seed(seed), UNCOMMITTED_MAX)).await;
        world.note("the power of the MDS fails");
        world.crash_host(MDS);
        world.partition(CLIENTS[LOST], MDS);
        let node = start(world, MDS).await.expect("nothing else crashes it");
        while node.clients_back() < CLIENTS.len() - 1 {
            rt.sleep(POLL).await;
        }
        node.abort_recovery();
        for client in [&one, &two] {
            assert_eq!(client.syncfs().await, Ok(()), "nothing is lost");
            let find = async |name| client.lookup(&Caller::ROOT, dir, name).await.map(|entry| entry.attr.fid);
            assert_eq!(find(renamed).await, Ok(before));
            assert_eq!(find(mine).await, Ok(after));
            assert_eq!(find(theirs).await, Err(Errno::ENOENT));
            assert_eq!(client.lookup(&Caller::ROOT, ROOT, &"old".into()).await.err(), Some(Errno::ENOENT));
        }
        drop(nodes);
    })
}

/// Crashes the MDS, and one client comes back late.
pub fn without_mdt(seed: u64, log: usize) -> Trace {
    lost_client(seed, MDS, if seed.is_multiple_of(2) { End::Aborted } else { End::Limit }, log)
}

/// Crashes an OSS, and one client comes back late.
pub fn without_ost(seed: u64, log: usize) -> Trace {
    lost_client(seed, OSSES[0], if seed.is_multiple_of(2) { End::Aborted } else { End::Limit }, log)
}
