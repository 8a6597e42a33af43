//! Repair of orphan objects on a running MDT: refusals, failures, stops and crashes. No object may
//! be lost, and none may be in two files.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use sheen_mds::MdtConfig;
use sheen_rt::sim::Sim;
use sheen_rt::{Disk, OpenOptions, Rt};
use sheen_wire::ldlm::LockId;
use sheen_wire::mds::{Entry, Reply, Request};
use sheen_wire::{Cred, Errno, Fid, fid};

use crate::common::client::Client;
use crate::common::{FakeOst, Host, config, objects, slow_commits, until, with_host};
use crate::damage::{STORE, overwrite_pages};
use crate::full_disk::{disk_of, fill};

/// Orphans that the MDT repairs in one step.
const STEP: usize = 64;
/// Orphans of the second step in [`begin_long_repair`].
const MORE: usize = 6;
/// Directories whose records need many pages of the store.
const DIRS: usize = 300;

/// Requests a check, with or without a repair.
fn begin(host: &Host, repair: bool) {
    let order = if repair { "mdt.*.lfsck_namespace_orphans" } else { "mdt.*.lfsck_namespace_run" };
    assert_eq!(host.params.set(order, "1").unwrap()[0].result, Ok(()));
}

/// Waits for the end of a check. Returns its result.
pub async fn ended(host: &Host) -> String {
    let status = || host.param("mdt.*.lfsck_namespace");
    until(&host.rt, || !status().contains("status: scanning\n")).await;
    status()
}

async fn check(host: &Host, repair: bool) -> String {
    begin(host, repair);
    ended(host).await
}

/// Adds an OST whose objects have data.
async fn add_ost(host: &Host) -> Arc<FakeOst> {
    let ost = host.add_ost(0).await;
    ost.object_bytes.store(4, Relaxed);
    ost
}

/// Makes objects that belong to no file. Their ids were given to files that are deleted.
async fn make_orphans(host: &Host, ost: &FakeOst, count: usize) -> BTreeSet<Fid> {
    let (before, mut orphans) = (ost.destroyed().len(), BTreeSet::new());
    for n in 0..count {
        let name = format!("f{n}");
        orphans.extend(host.create_closed(&name).await.unwrap().iter().map(|(_, object)| *object));
        host.unlink(&name).await.unwrap();
    }
    host.sync().await.unwrap();
    until(&host.rt, || ost.destroyed().len() >= before + count).await;
    ost.objects.lock().extend(&orphans);
    // Objects in the unlink log count as objects that are being destroyed.
    while !check(host, false).await.contains(&format!("problems: {count}\n")) {
        host.rt.sleep(Duration::from_secs(1)).await;
    }
    orphans
}

async fn lookup(host: &Host, parent: Fid, name: &[u8]) -> Entry {
    let name = Bytes::copy_from_slice(name);
    match host.ask(Request::Lookup { cred: Cred::ROOT, parent, name }).await.unwrap().body.reply {
        Reply::Entry(entry) => entry,
        other => panic!("{other:?}"),
    }
}

/// Returns the objects of the files in `/lost+found`, sorted.
async fn adopted(host: &Host) -> Vec<Fid> {
    let dir = lookup(host, fid::ROOT, b"lost+found").await.attr.fid;
    let list = Request::ReadDir { fid: dir, cookie: 0, max_bytes: 1 << 16, attrs: false };
    let Reply::Entries { entries, eof: true } = host.ask(list).await.unwrap().body.reply else { panic!() };
    let mut found = Vec::new();
    for listed in &entries {
        found.extend(objects(&lookup(host, dir, &listed.name).await).iter().map(|(_, object)| *object));
    }
    found.sort();
    found
}

/// Asserts that each orphan is in one file, and that nothing is left to repair.
async fn assert_adopted(host: &Host, ost: &FakeOst, orphans: &BTreeSet<Fid>) {
    assert_eq!(adopted(host).await, orphans.iter().copied().collect::<Vec<_>>());
    assert_eq!(*ost.objects.lock(), *orphans, "an object was destroyed");
    let found = check(host, false).await;
    assert!(found.contains("problems: 0\n"), "{found}");
}

/// Asserts that a repair changed nothing, and says why for each of `count` orphans.
fn assert_refused(found: &str, why: &str, count: usize) {
    assert!(found.contains("repaired: 0\n"), "{found}");
    assert_eq!(found.matches(&format!("; not repaired: {why}\n")).count(), count, "{found}");
}

/// Starts the MDT again, and its OST.
async fn restarted(rt: &Rt, ost: &Arc<FakeOst>) -> Host {
    let host = Host::start(rt, config()).await;
    host.add_ost_again(0, ost).await;
    host.mdt.wait_osts(1).await;
    host
}

/// Crashes the MDT's host and starts the MDT again. `client`: a client on that host.
async fn crashed(sim: &Sim, host: Host, client: Client, ost: &Arc<FakeOst>) -> Host {
    std::mem::forget(client); // the crash ends it, not a destructor
    sim.crash_host(1);
    drop(host);
    restarted(&sim.rt(1), ost).await
}

/// Begins a repair that waits for a client before the first change: the client caches the root
/// directory, where the repair makes `/lost+found`. Returns the client and its lock.
async fn begin_waiting_repair(host: &Host) -> (Client, LockId) {
    let client = Client::lo(host, "b").await;
    let root = Request::GetAttr { fid: fid::ROOT, layout_known: true };
    let lock = client.keep(root).await.unwrap().grants[0].id;
    begin(host, true);
    until(&host.rt, || client.asked() == [lock]).await;
    (client, lock)
}

/// A repair in its first step of two: the files of that step are durable, and it waits for a client
/// that caches `/lost+found`.
struct LongRepair {
    ost: Arc<FakeOst>,
    client: Client,
    lock: LockId,
    /// One orphan was repaired before.
    orphans: BTreeSet<Fid>,
}

async fn begin_long_repair(host: &Host) -> LongRepair {
    let ost = add_ost(host).await;
    let mut orphans = make_orphans(host, &ost, 1).await;
    let found = check(host, true).await;
    assert!(found.contains("problems: 1\nrepaired: 1\n"), "{found}");
    orphans.extend(make_orphans(host, &ost, STEP + MORE).await);
    let client = Client::lo(host, "b").await;
    let lock = client.look("lost+found").await.1.id;
    begin(host, true);
    until(&host.rt, || client.asked() == [lock]).await;
    until(&host.rt, || host.param("mdt.*.last_committed") == host.param("mdt.*.last_transno")).await;
    LongRepair { ost, client, lock, orphans }
}

/// Makes a layout unreadable in the file of the store: zeros its magic number.
fn damage(disk: &Disk, layout: &[u8]) {
    let bytes = disk.read(STORE).unwrap();
    let store = disk.open(STORE, OpenOptions::READ_WRITE).unwrap();
    let mut damaged = 0;
    for (at, _) in bytes.windows(layout.len()).enumerate().filter(|(_, part)| *part == layout) {
        store.write_all_at(at as u64, &[0; 4]).unwrap();
        damaged += 1;
    }
    assert!(damaged > 0, "the store has the layout in another form");
}

#[test]
fn repair_with_a_damaged_layout_changes_nothing_and_names_sheen_fsck() {
    // Without the damage, the MDT would destroy empty objects, and make files of the others.
    for bytes in [4, 0] {
        with_host(1, config(), async |_, rt, host| {
            let ost = add_ost(&host).await;
            ost.object_bytes.store(bytes, Relaxed);
            let (entry, handle) = host.create("damaged").await.unwrap();
            host.ask(Request::close(entry.attr.fid, handle)).await.unwrap();
            make_orphans(&host, &ost, 1).await;
            // The object of the file with the damaged layout seems to be an orphan.
            ost.objects.lock().extend(objects(&entry).iter().map(|(_, object)| *object));
            let (listed, destroyed) = (ost.objects.lock().clone(), ost.destroyed());
            host.mdt.stop().await.unwrap();
            host.mgs.stop();
            damage(&rt.disk(), entry.layout.as_ref().unwrap());

            let host = restarted(&rt, &ost).await;
            let found = check(&host, true).await;
            assert!(found.contains("status: completed\n"), "{found}");
            assert!(found.contains("problems: 3\nrepaired: 0\n- bad_layout: file "), "{found}");
            assert_refused(&found, "the metadata has other problems; run sheen fsck", 2);
            host.sync().await.unwrap();
            assert!(!host.exists("lost+found").await);
            assert_eq!((ost.objects.lock().clone(), ost.destroyed()), (listed, destroyed));
        });
    }
}

#[test]
fn repair_that_a_crash_lost_before_its_commit_is_repeated() {
    with_host(2, slow_commits(), async |sim, _, host| {
        let ost = add_ost(&host).await;
        let orphans = make_orphans(&host, &ost, 3).await;
        let (client, _) = begin_waiting_repair(&host).await;
        let host = crashed(sim, host, client, &ost).await;
        assert!(!host.exists("lost+found").await, "it was not durable");
        let found = check(&host, true).await;
        assert!(found.contains("problems: 3\nrepaired: 3\n"), "{found}");
        assert_adopted(&host, &ost, &orphans).await;
    });
}

#[test]
fn durable_part_of_a_repair_survives_a_crash_and_the_rest_is_repeated() {
    with_host(3, config(), async |sim, _, host| {
        let LongRepair { ost, client, orphans, .. } = begin_long_repair(&host).await;
        let host = crashed(sim, host, client, &ost).await;
        assert_eq!(adopted(&host).await.len(), 1 + STEP);
        let found = check(&host, true).await;
        assert!(found.contains(&format!("problems: {MORE}\nrepaired: {MORE}\n")), "{found}");
        assert_adopted(&host, &ost, &orphans).await;
    });
}

#[test]
fn crash_at_any_moment_of_a_repair_loses_no_object() {
    for seed in 0..30 {
        with_host(seed, config(), async |sim, rt, host| {
            let ost = add_ost(&host).await;
            let orphans = make_orphans(&host, &ost, 2 * STEP).await;
            begin(&host, true);
            rt.sleep(Duration::from_micros(seed * 20)).await;
            sim.crash_host(1);
            drop(host);
            let host = restarted(&sim.rt(1), &ost).await;
            let done = if host.exists("lost+found").await { adopted(&host).await.len() } else { 0 };
            let left = orphans.len() - done;
            let found = check(&host, true).await;
            assert!(found.contains(&format!("problems: {left}\nrepaired: {left}\n")), "seed {seed}: {found}");
            assert_adopted(&host, &ost, &orphans).await;
        });
    }
}

#[test]
fn stop_of_a_repair_ends_it_after_the_step_in_progress() {
    with_host(4, config(), async |_, _, host| {
        let LongRepair { ost, client, lock, orphans } = begin_long_repair(&host).await;
        host.params.set("mdt.*.lfsck_namespace_run", "0").unwrap();
        client.cancel(&[lock]).await;
        let found = ended(&host).await;
        assert!(found.contains("status: stopped\n"), "{found}");
        assert!(found.contains(&format!("problems: {}\nrepaired: {STEP}\n", STEP + MORE)), "{found}");
        assert_eq!(found.matches(&format!("; not repaired: {}\n", Errno::ECANCELED)).count(), MORE, "{found}");
        assert_eq!(adopted(&host).await.len(), 1 + STEP, "{found}");
        assert_eq!(*ost.objects.lock(), orphans);
        let found = check(&host, true).await;
        assert!(found.contains(&format!("problems: {MORE}\nrepaired: {MORE}\n")), "{found}");
        assert_adopted(&host, &ost, &orphans).await;
    });
}

#[test]
fn mdt_stop_during_a_repair_keeps_the_durable_part() {
    with_host(5, config(), async |_, rt, host| {
        let LongRepair { ost, client: _caches, orphans, .. } = begin_long_repair(&host).await;
        host.mdt.stop().await.unwrap();
        host.mgs.stop();
        let again = restarted(&rt, &ost).await;
        let done = adopted(&again).await;
        let unique: BTreeSet<Fid> = done.iter().copied().collect();
        assert!(done.len() > STEP && unique.len() == done.len(), "{done:?}");
        let (left, found) = (orphans.len() - done.len(), check(&again, true).await);
        assert!(found.contains(&format!("problems: {left}\nrepaired: {left}\n")), "{found}");
        assert_adopted(&again, &ost, &orphans).await;
    });
}

#[test]
fn repair_that_meets_a_damaged_store_fails_and_loses_no_object() {
    with_host(6, MdtConfig { store_cache_bytes: 0, ..slow_commits() }, async |_, rt, host| {
        let ost = add_ost(&host).await;
        for n in 0..DIRS {
            host.mkdir(&format!("d{n}")).await.unwrap();
        }
        let orphans = make_orphans(&host, &ost, 3).await;
        let (client, lock) = begin_waiting_repair(&host).await;
        let sound = rt.disk().read(STORE).unwrap();
        overwrite_pages(&rt.disk());
        client.cancel(&[lock]).await;
        assert_refused(&ended(&host).await, &Errno::EIO.to_string(), orphans.len());
        assert_eq!(host.param("mdt.*.health"), "read-only: the store is damaged");
        let found = check(&host, true).await;
        assert!(found.contains("status: failed\n"), "{found}");
        assert_eq!(host.mdt.stop().await, Err(Errno::EIO));
        host.mgs.stop();
        assert_eq!(*ost.objects.lock(), orphans);

        rt.disk().write_atomic(STORE, &sound).unwrap();
        let again = restarted(&rt, &ost).await;
        let found = check(&again, true).await;
        assert!(found.contains("problems: 3\nrepaired: 3\n"), "{found}");
        assert_adopted(&again, &ost, &orphans).await;
    });
}

#[test]
fn repair_on_a_full_disk_is_refused_until_there_is_space() {
    let sim = Sim::new(7, disk_of(64));
    let rt = sim.rt(1);
    sim.run(async {
        let host = Host::start(&rt, config()).await;
        let ost = add_ost(&host).await;
        let orphans = make_orphans(&host, &ost, 3).await;
        let ballast = fill(&rt);
        // With its commit the MDT finds that the disk is full.
        host.mkdir("last").await.unwrap();
        host.sync().await.unwrap();
        assert_refused(&check(&host, true).await, &Errno::ENOSPC.to_string(), orphans.len());
        assert_eq!(*ost.objects.lock(), orphans);
        ballast.set_len(0).unwrap();
        let found = check(&host, true).await;
        assert!(found.contains("problems: 3\nrepaired: 3\n"), "{found}");
        assert_adopted(&host, &ost, &orphans).await;
    })
    .unwrap();
}
