//! Repairs of the metadata of a running MDT: the clients that cache what was wrong, clients that
//! change files meanwhile, crashes, and findings that only `sheen fsck` repairs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_mds::OfflineMdt;
use sheen_namespace::{Batch, Store};
use sheen_rt::Rt;
use sheen_wire::mds::{Reply, Request};
use sheen_wire::{Attr, Cred, Errno, Fid, fid};

use crate::common::client::{Client, chmod, link, mknod, unlink};
use crate::common::{Host, config, until, with_host};
use crate::lfsck::ended;

/// Records by key. `None`: there is none.
type Records = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Maximum number of records that these tests have.
const RECORDS_MAX: usize = 100_000;
/// Files of the test under load.
const FILES: usize = 20;

fn inode(fid: Fid) -> Vec<u8> {
    [&b"i"[..], &fid.to_key()].concat()
}

async fn stopped(host: Host) {
    host.mdt.stop().await.unwrap();
    host.mgs.stop();
}

/// Changes records of an MDT that has stopped. `change` gets all records.
fn damage(rt: &Rt, change: impl FnOnce(&Records) -> Records) -> Records {
    let mdt = OfflineMdt::open(&rt.disk(), Path::new("/mdt")).unwrap();
    let all = mdt.store().range(&[0], &[u8::MAX], RECORDS_MAX).unwrap();
    let all: Records = all.into_iter().map(|(key, value)| (key, Some(value))).collect();
    let changed = change(&all);
    if !changed.is_empty() {
        mdt.store().commit(&Batch::of_records(changed)).unwrap();
    }
    all
}

/// Returns the key of the entry with this name.
fn entry(all: &Records, name: &str) -> Vec<u8> {
    let has_name = |value: &[u8]| value.windows(name.len()).any(|part| part == name.as_bytes());
    let mut found = all.iter().filter(|(key, value)| key[0] == b'e' && value.as_deref().is_some_and(has_name));
    let (key, _) = found.next().unwrap();
    assert!(found.next().is_none(), "{name} is in several records");
    key.clone()
}

/// Requests a check that repairs.
fn begin(host: &Host) {
    assert_eq!(host.params.set("mdt.*.lfsck_namespace_repair", "1").unwrap()[0].result, Ok(()));
}

async fn repair(host: &Host) -> String {
    begin(host);
    ended(host).await
}

async fn attr(host: &Host, fid: Fid) -> Attr {
    let get = Request::GetAttr { fid, layout_known: true };
    let Reply::Entry(entry) = host.ask(get).await.unwrap().body.reply else { panic!() };
    entry.attr
}

async fn names(host: &Host, dir: Fid) -> Vec<Bytes> {
    let list = Request::ReadDir { fid: dir, cookie: 0, max_bytes: 1 << 16, attrs: false };
    let Reply::Entries { entries, eof: true } = host.ask(list).await.unwrap().body.reply else { panic!() };
    entries.into_iter().map(|entry| entry.name).collect()
}

/// Makes a file "f" with a second name "g", whose inode is as before the second name. Returns the
/// running MDT.
async fn with_stale_link_count(rt: &Rt, host: Host) -> (Host, Fid) {
    let f = Client::lo(&host, "a").await.make("f").await;
    stopped(host).await;
    let before = damage(rt, |_| Records::new());
    let host = Host::start(rt, config()).await;
    host.ask(link(f, "g")).await.unwrap();
    stopped(host).await;
    damage(rt, |_| Records::from([(inode(f), before[&inode(f)].clone())]));
    (Host::start(rt, config()).await, f)
}

#[test]
fn repair_of_a_link_count_waits_until_clients_have_cancelled() {
    with_host(1, config(), async |_, rt, host| {
        let (host, f) = with_stale_link_count(&rt, host).await;
        let client = Client::lo(&host, "b").await;
        let (found, grant) = client.look("g").await;
        assert_eq!((found, attr(&host, f).await.nlink), (f, 1));
        begin(&host);
        until(&rt, || client.asked() == [grant.id]).await;
        let (import, done) = (host.import.clone(), Arc::new(parking_lot::Mutex::new(None)));
        let seen = done.clone();
        let waits = rt.spawn("getattr", async move {
            let get = Request::GetAttr { fid: f, layout_known: true };
            *seen.lock() = Some(import.request(get).send().await.unwrap().body.reply);
        });
        client.a_while().await;
        assert!(done.lock().is_none(), "another client sees the repair before the client has cancelled");
        client.cancel(&[grant.id]).await;
        waits.await.unwrap();
        let reply = done.lock().take();
        assert!(matches!(reply, Some(Reply::Entry(entry)) if entry.attr.nlink == 2));
        let found = ended(&host).await;
        let line =
            format!("- link_count: file {f}: the number of links is 1, and should be 2; repaired: set the number\n");
        assert!(found.contains(&format!("problems: 1\nrepaired: 1\n{line}")), "{found}");
        let found = repair(&host).await;
        assert!(found.contains("status: completed\n") && found.contains("problems: 0\nrepaired: 0\n"), "{found}");
    });
}

#[test]
fn check_without_repair_changes_nothing() {
    with_host(2, config(), async |_, rt, host| {
        let (host, f) = with_stale_link_count(&rt, host).await;
        host.params.set("mdt.*.lfsck_namespace_run", "1").unwrap();
        let found = ended(&host).await;
        assert!(found.contains("problems: 1\nrepaired: 0\n- link_count: file "), "{found}");
        assert!(found.ends_with("and should be 2\n"), "{found}");
        assert_eq!(attr(&host, f).await.nlink, 1);
    });
}

#[test]
fn repair_with_an_unreadable_record_changes_nothing_and_names_sheen_fsck() {
    with_host(3, config(), async |_, rt, host| {
        let f = Client::lo(&host, "a").await.make("f").await;
        stopped(host).await;
        damage(&rt, |all| {
            let mut record = all[&inode(f)].clone().unwrap();
            record.truncate(5);
            Records::from([(inode(f), Some(record))])
        });
        let host = Host::start(&rt, config()).await;
        let found = repair(&host).await;
        assert!(found.contains("status: completed\n") && found.contains("repaired: 0\n"), "{found}");
        assert!(found.contains("; not repaired: stop the MDT and run sheen fsck --repair\n"), "{found}");
        let why = "does not exist; not repaired: the metadata has other problems; run sheen fsck\n";
        let refused = format!("file {f} {why}");
        assert!(found.contains(&refused), "{found}");
        assert!(names(&host, fid::ROOT).await.contains(&Bytes::from_static(b"f")));
    });
}

#[test]
fn repair_with_a_bad_entry_leaves_link_counts_and_names_it() {
    with_host(4, config(), async |_, rt, host| {
        let f = Client::lo(&host, "a").await.make("first").await;
        host.ask(link(f, "second")).await.unwrap();
        stopped(host).await;
        damage(&rt, |all| {
            let bad = entry(all, "first");
            let mut record = all[&bad].clone().unwrap();
            // The number of the entry follows the version of the record.
            record[1] = 0x80;
            Records::from([(bad, Some(record))])
        });
        let host = Host::start(&rt, config()).await;
        let found = repair(&host).await;
        assert!(found.contains("status: completed\n") && found.contains("repaired: 0\n"), "{found}");
        let why = "not repaired: bad entries must be removed first; stop the MDT and run sheen fsck --repair\n";
        let link_count = format!("- link_count: file {f}: the number of links is 2, and should be 1; {why}");
        assert!(found.contains(&link_count), "{found}");
        let others = found.lines().filter(|line| line.starts_with("- ") && !line.starts_with("- bad_entry: "));
        assert!(others.clone().count() >= 2 && others.clone().all(|line| line.ends_with(why.trim_end())), "{found}");
        host.ask(unlink("second")).await.unwrap();
        assert_eq!(attr(&host, f).await.nlink, 1);
        assert!(names(&host, fid::ROOT).await.contains(&Bytes::from_static(b"first")));
    });
}

#[test]
fn repair_leaves_out_a_file_under_change_and_repairs_the_others() {
    with_host(5, config(), async |_, rt, host| {
        let client = Client::lo(&host, "a").await;
        let files = [client.make("first").await, client.make("other").await];
        drop(client);
        stopped(host).await;
        let before = damage(&rt, |_| Records::new());
        let host = Host::start(&rt, config()).await;
        for (file, name) in files.iter().zip(["first2", "other2"]) {
            host.ask(link(*file, name)).await.unwrap();
        }
        stopped(host).await;
        damage(&rt, |_| files.iter().map(|file| (inode(*file), before[&inode(*file)].clone())).collect());
        let host = Host::start(&rt, config()).await;
        let [hot, other] = files;
        let (caches, changes) = (Client::lo(&host, "b").await, Client::lo(&host, "c").await);
        let (_, grant) = caches.look("first").await;
        let change = changes.spawn(chmod(hot, 0o600));
        until(&rt, || caches.asked() == [grant.id]).await;
        let found = repair(&host).await;
        let number = "the number of links is 1, and should be 2";
        let busy = "not repaired: programs change it all the time; start another check later\n";
        assert!(found.contains(&format!("- link_count: file {hot}: {number}; {busy}")), "{found}");
        let repaired = format!("- link_count: file {other}: {number}; repaired: set the number\n");
        assert!(found.contains(&repaired), "{found}");
        assert!(!change.is_finished(), "the change ended before the repair");
        caches.cancel(&[grant.id]).await;
        change.await.unwrap().unwrap();
        assert_repaired(&host).await;
        assert_eq!((attr(&host, hot).await.nlink, attr(&host, hot).await.perm), (2, 0o600));
    });
}

/// Makes files with two names each. Damages some of them: the number of links, the inode, or an
/// entry.
async fn with_damaged_files(rt: &Rt, host: Host) -> Host {
    let client = Client::lo(&host, "a").await;
    let mut files = Vec::new();
    for n in 0..FILES {
        files.push(client.make(&format!("first{n:02}")).await);
    }
    drop(client);
    stopped(host).await;
    let before = damage(rt, |_| Records::new());
    let host = Host::start(rt, config()).await;
    for (n, fid) in files.iter().enumerate() {
        host.ask(link(*fid, &format!("second{n:02}"))).await.unwrap();
    }
    stopped(host).await;
    damage(rt, |all| {
        let damaged = files.iter().enumerate().flat_map(|(n, fid)| match n % 4 {
            0 => vec![(inode(*fid), before[&inode(*fid)].clone())],
            1 => vec![(inode(*fid), None)],
            2 => vec![(entry(all, &format!("first{n:02}")), None), (entry(all, &format!("second{n:02}")), None)],
            _ => vec![],
        });
        damaged.collect()
    });
    Host::start(rt, config()).await
}

/// Changes files until a number of changes is made. Many of them fail.
async fn load(host: &Host, changes: usize) {
    let client = Client::lo(host, "load").await;
    for n in 0..changes {
        let file = format!("first{:02}", n % FILES);
        let request = match n % 5 {
            0 => mknod(&format!("new{n}"), client.new_fid()),
            1 => unlink(&format!("second{:02}", n * 7 % FILES)),
            2 => unlink(&format!("new{}", n - 2)),
            3 => match client.ask(crate::common::client::lookup(&file)).await {
                Ok(answer) => match answer.reply {
                    Reply::Entry(entry) => link(entry.attr.fid, &format!("third{n}")),
                    other => panic!("{other:?}"),
                },
                Err(_) => continue,
            },
            _ => Request::Rename {
                cred: Cred::ROOT,
                parent: fid::ROOT,
                name: Bytes::from(file),
                new_parent: fid::ROOT,
                new_name: Bytes::from(format!("moved{n}")),
                flags: 0,
                whiteout: None,
            },
        };
        match client.ask(request).await {
            Ok(_) | Err(Errno::ENOENT | Errno::EEXIST) => {}
            Err(e) => panic!("{e:?}"),
        }
    }
}

/// Asserts that repairs leave nothing to repair.
async fn assert_repaired(host: &Host) {
    // A finding that a client changed during the last check is left to the next one.
    repair(host).await;
    let found = repair(host).await;
    assert!(found.contains("status: completed\n") && found.contains("problems: 0\n"), "{found}");
    assert_eq!(host.mdt.check().await.unwrap().problems(), []);
}

#[test]
fn damaged_names_are_repaired_while_clients_change_files() {
    for seed in 0..10 {
        with_host(seed, config(), async |_, rt, host| {
            let host = with_damaged_files(&rt, host).await;
            begin(&host);
            load(&host, 60).await;
            let found = ended(&host).await;
            assert!(found.contains("status: completed\n"), "seed {seed}: {found}");
            assert_repaired(&host).await;
            // Each fourth file had lost both names.
            let lost = host.ask(crate::common::client::lookup("lost+found")).await.unwrap().body.reply;
            let Reply::Entry(lost) = lost else { panic!("{lost:?}") };
            assert_eq!(names(&host, lost.attr.fid).await.len(), FILES / 4, "seed {seed}");
        });
    }
}

#[test]
fn crash_at_any_moment_of_a_repair_leaves_what_the_next_one_repairs() {
    for seed in 0..20 {
        with_host(seed, config(), async |sim, rt, host| {
            let host = with_damaged_files(&rt, host).await;
            begin(&host);
            rt.sleep(Duration::from_micros(seed * 40)).await;
            let host = host.crash(sim, config()).await;
            assert_repaired(&host).await;
            let count = names(&host, fid::ROOT).await.len();
            // The names of half of the files, two each, and lost+found.
            assert_eq!(count, FILES / 2 * 2 + 1, "seed {seed}");
        });
    }
}
