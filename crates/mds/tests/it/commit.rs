//! Replies, commits, crashes and a store that cannot be written.

use std::time::Duration;

use crate::common::{Host, config, slow_commits, with_host};
use sheen_rt::sim::{Sim, SimConfig};
use sheen_wire::{
    Attr, Cred, fid,
    mds::{Reply, Request, SetAttr},
};

#[test]
fn replies_come_before_the_commit_and_sync_after_it() {
    with_host(1, slow_commits(), async |_, rt, host| {
        let before = rt.now();
        let transno = host.mkdir("a").await.unwrap();
        assert_eq!(rt.now(), before, "the reply was delayed");
        let response = host.ask(Request::Lookup { cred: Cred::ROOT, parent: fid::ROOT, name: "a".into() });
        assert!(response.await.unwrap().last_committed < transno);
        host.sync().await.unwrap();
        assert!(rt.now().since(before) < Duration::from_secs(1), "sync waited for the interval");
        let committed: u64 = host.param("mdt.*.last_committed").parse().unwrap();
        assert!(committed >= transno);

        // Nothing is uncommitted: the sync takes no time.
        let before = rt.now();
        host.sync().await.unwrap();
        assert_eq!(rt.now(), before);
    });
}

#[test]
fn sync_of_a_file_waits_for_that_file_alone() {
    with_host(2, slow_commits(), async |_, rt, host| {
        host.mkdir("other").await.unwrap();
        host.sync().await.unwrap();
        let other = fid_of(&host, "other").await;
        host.mkdir("new").await.unwrap();
        let new = fid_of(&host, "new").await;
        let before = rt.now();
        host.ask(Request::Sync { fid: Some(other) }).await.unwrap();
        assert_eq!(rt.now(), before);
        host.ask(Request::Sync { fid: Some(new) }).await.unwrap();
        assert!(rt.now() > before);
    });
}

async fn fid_of(host: &Host, name: &'static str) -> sheen_wire::Fid {
    attr_of(host, name).await.fid
}

async fn attr_of(host: &Host, name: &'static str) -> Attr {
    let lookup = Request::Lookup { cred: Cred::ROOT, parent: fid::ROOT, name: name.into() };
    match host.ask(lookup).await.unwrap().body.reply {
        Reply::Entry(entry) => entry.attr,
        other => panic!("{other:?}"),
    }
}

#[test]
fn answered_chmod_survives_a_crash_of_mdt_and_client_with_sync_permission() {
    for on in [false, true] {
        with_host(6, slow_commits(), async |sim, rt, host| {
            host.params.set("mdt.*.sync_permission", if on { "1" } else { "0" }).unwrap();
            host.mkdir("a").await.unwrap();
            host.sync().await.unwrap();
            let dir = attr_of(&host, "a").await;
            let (perm, uid) = (0o700, 5);
            let chmod = SetAttr { perm: Some(perm), ..SetAttr::default() };
            let chown = SetAttr { uid: Some(uid), ..SetAttr::default() };
            for set in [chmod, chown] {
                let before = rt.now();
                host.ask(Request::SetAttr { cred: Cred::ROOT, fid: dir.fid, set, handle: None }).await.unwrap();
                assert_eq!(rt.now() > before, on, "whether the reply waits for the disk");
            }
            // A client of the next life has nothing to replay.
            let host = host.crash(sim, slow_commits()).await;
            let after = attr_of(&host, "a").await;
            let wanted = if on { (perm, uid) } else { (dir.perm, dir.uid) };
            assert_eq!((after.perm, after.uid), wanted, "sync_permission={on}");
        });
    }
}

#[test]
fn group_commit_waits_for_interval_or_operation_bound() {
    with_host(3, slow_commits(), async |_, rt, host| {
        host.sync().await.unwrap();
        let committed = || host.param("mdt.*.last_committed").parse::<u64>().unwrap();
        let before = committed();
        let mut last = 0;
        for i in 0..1000 {
            last = host.mkdir(&format!("d{i}")).await.unwrap();
        }
        rt.sleep(Duration::from_secs(9)).await;
        assert_eq!(committed(), before, "committed before the interval");
        rt.sleep(Duration::from_secs(2)).await;
        assert!(committed() >= last);

        // A bound on the number of operations brings the commit forward.
        host.params.set("mdt.*.commit_ops_max", "100").unwrap();
        for i in 0..100 {
            last = host.mkdir(&format!("e{i}")).await.unwrap();
        }
        rt.sleep(Duration::from_secs(1)).await;
        assert!(committed() >= last);
    });
}

#[test]
fn crash_preserves_synced_changes_and_a_prefix_of_the_others() {
    for seed in 0..40 {
        with_host(seed, config(), async |sim, rt, host| {
            host.mkdir("synced").await.unwrap();
            host.sync().await.unwrap();
            for i in 0..200 {
                host.mkdir(&format!("d{i}")).await.unwrap();
                // Some of them are part of a commit under way.
                rt.sleep(Duration::from_micros(rt.random_u64() % 4000)).await;
            }
            sim.crash_host(1);
            drop(host);

            let rt = sim.rt(1);
            let host = Host::start(&rt, config()).await;
            assert!(host.exists("synced").await, "seed {seed}");
            let mut lost = false;
            for i in 0..200 {
                let there = host.exists(&format!("d{i}")).await;
                assert!(!(lost && there), "seed {seed}: d{i} outlived an earlier one");
                lost = !there;
            }
            host.mkdir("after").await.unwrap();
            host.sync().await.unwrap();
        });
    }
}

#[test]
fn clean_stop_commits_all_changes() {
    with_host(5, slow_commits(), async |_, rt, host| {
        host.mkdir("a").await.unwrap();
        host.server.remove(host.mdt.name());
        host.mdt.stop().await.unwrap();
        host.mdt.stop().await.unwrap();
        assert!(host.params.get("mdt.*.*").is_err(), "a stopped MDT has parameters");
        host.mgs.stop();
        let host = Host::start(&rt, slow_commits()).await;
        assert!(host.exists("a").await);
    });
}

#[test]
fn same_seed_replays_the_same_mdt_trace() {
    let run = |seed| {
        let sim = Sim::new(seed, SimConfig::default());
        let rt = sim.rt(1);
        sim.run(async {
            let host = Host::start(&rt, config()).await;
            host.add_ost(0).await;
            for i in 0..300 {
                host.mkdir(&format!("d{i}")).await.unwrap();
                host.create_closed(&format!("f{i}")).await.unwrap();
                if i % 3 == 0 {
                    host.unlink(&format!("f{i}")).await.unwrap();
                }
                rt.sleep(Duration::from_millis(rt.random_u64() % 20)).await;
            }
            host.mdt.stop().await.unwrap();
        })
        .unwrap();
        sim.trace_hash()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
