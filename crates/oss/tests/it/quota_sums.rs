//! The sums of an OST by owner: they are the space of its objects, after any changes and restarts.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::common::{fid, open_store};
use bytes::Bytes;
use sheen_objects::name;
use sheen_oss::{Store, store::Order};
use sheen_rt::{
    OpenOptions, RealOptions, Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Bulk, Fid, Result, echo,
    ost::{Allocate, Owned, Part, QuotaUse},
    quota::{Id, Kind, Owner},
};

const OBJECTS: u32 = 80;
const FILE: Fid = Fid::new(0x2_0000_0401, 5);
const ALICE: Owner = Owner { uid: 1000, gid: 100, project: 7 };
const BOB: Owner = Owner { uid: 1001, gid: 100, project: 0 };
const FIRST: Id = Id { kind: Kind::User, id: 0 };

fn owned(oid: u32, owner: Owner) -> Owned {
    Owned { object: fid(oid), file: Fid::ZERO, owner }
}

/// Opens a store with few open files, so that objects are closed and opened again all the time.
async fn open(rt: &Rt, dir: &Path) -> Store {
    open_store(rt, dir, 1).await
}

fn write(store: &Store, file: Fid, object: Fid, offset: u64, len: usize) -> Result<()> {
    let bulk = Bulk::from(Bytes::from(vec![7; len]));
    store.write(file, &[Part { object, offset, len: len as u32 }], &bulk, false, None)
}

/// Counts all objects, as the task does after a start.
fn count(store: &Store) {
    store.count_objects(&store.objects_after(Fid::ZERO, usize::MAX).unwrap(), false);
}

fn uses(store: &Store) -> BTreeMap<Id, QuotaUse> {
    store.accounting().uses(FIRST, usize::MAX).0.into_iter().collect()
}

/// Checks that the sums are the space of the objects.
fn check(store: &Store, owners: &BTreeMap<u32, Owner>, what: &str) {
    let mut expected: BTreeMap<Id, QuotaUse> = BTreeMap::new();
    for (oid, owner) in owners {
        let Some(attr) = store.attr(fid(*oid)).ok().filter(|attr| attr.mtime.is_some()) else { continue };
        for id in owner.ids() {
            let used = expected.entry(id).or_default();
            used.bytes += attr.blocks * 512;
            used.objects += 1;
        }
    }
    assert_eq!(uses(store), expected, "{what}");
}

#[test]
fn sums_follow_the_space_of_objects_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, rt) = Rt::real(RealOptions { worker_threads: 2, name: "test".into() }).unwrap();
    let store = runtime.block_on(open(&rt, dir.path()));
    let mut owners = BTreeMap::from([(1, ALICE), (2, ALICE), (3, BOB)]);
    let own: Vec<_> = owners.iter().map(|(oid, owner)| owned(*oid, *owner)).collect();
    runtime.block_on(store.set_owners(&own, false)).unwrap();
    assert!(uses(&store).is_empty(), "none exists");
    for oid in 1..=3 {
        write(&store, FILE, fid(oid), 0, 300_000).unwrap();
        check(&store, &owners, "written");
    }
    write(&store, FILE, fid(1), 1 << 30, 5000).unwrap();
    check(&store, &owners, "sparse");
    store.truncate(FILE, &[(fid(1), 150_000), (fid(2), 0)]).unwrap();
    check(&store, &owners, "truncated");
    store.allocate(FILE, Allocate::Reserve { keep_size: true }, &[(fid(2), 0, 1 << 20)]).unwrap();
    store.allocate(FILE, Allocate::PunchHole, &[(fid(3), 0, 1 << 17)]).unwrap();
    check(&store, &owners, "allocated");
    owners.insert(1, BOB);
    runtime.block_on(store.set_owners(&[owned(1, BOB)], false)).unwrap();
    check(&store, &owners, "another owner");
    store.seal_object(fid(1), None, Order::default()).unwrap();
    runtime.block_on(store.link(&[(fid(1), fid(9))], Order::default())).unwrap();
    owners.insert(9, BOB);
    check(&store, &owners, "another name");
    runtime.block_on(store.destroy(&[fid(1), fid(2)])).unwrap();
    check(&store, &owners, "destroyed");
    runtime.block_on(store.destroy_range(fid(1).seq, 0, u32::MAX)).unwrap();
    assert!(uses(&store).is_empty());
    assert_eq!(store.owner(fid(9)), None);
}

/// One random change of a store, and of the owners that its objects should have.
async fn random_change(rt: &Rt, store: &Store, owners: &mut BTreeMap<u32, Owner>, removed: &mut BTreeSet<u32>) {
    let pick = |n: u64| rt.random_u64() % n;
    let oid = 1 + pick(OBJECTS.into()) as u32;
    match pick(12) {
        0..5 => _ = write(store, FILE, fid(oid), pick(50_000), 1 + pick(20_000) as usize),
        5 => _ = store.truncate(FILE, &[(fid(oid), pick(60_000))]),
        6 => _ = store.allocate(FILE, Allocate::PunchHole, &[(fid(oid), pick(40_000), 1 + pick(20_000))]),
        7..10 => {
            let owner = if pick(2) == 0 { ALICE } else { BOB };
            store.set_owners(&[owned(oid, owner)], false).await.unwrap();
            if !removed.contains(&oid) {
                owners.insert(oid, owner);
            }
        }
        10 => {
            store.destroy(&[fid(oid)]).await.unwrap();
            owners.remove(&oid);
            removed.insert(oid);
        }
        _ => {
            // Moves to another name.
            let new = 1000 + pick(1 << 30) as u32;
            if store.seal_object(fid(oid), None, Order::default()).is_err() {
                return;
            }
            let exists = store.objects_after(Fid::ZERO, usize::MAX).unwrap().contains(&fid(oid));
            store.link(&[(fid(oid), fid(new))], Order::default()).await.unwrap();
            store.destroy(&[fid(oid)]).await.unwrap();
            removed.insert(oid);
            if let Some(owner) = owners.remove(&oid).filter(|_| exists) {
                owners.insert(new, owner);
            }
        }
    }
}

#[test]
fn sums_are_exact_after_random_changes_and_restarts() {
    for seed in 0..30 {
        let sim = Sim::new(seed, SimConfig::default());
        sim.run(async {
            let (rt, mut owners) = (sim.rt(1), BTreeMap::new());
            for life in 0..3 {
                let store = open(&rt, Path::new("/srv/ost0")).await;
                let mut removed = BTreeSet::new();
                for step in 0..200 {
                    random_change(&rt, &store, &mut owners, &mut removed).await;
                    if step == 100 {
                        count(&store);
                        check(&store, &owners, &format!("seed {seed}, life {life}"));
                    }
                }
                check(&store, &owners, &format!("seed {seed}, life {life}, at its end"));
                for _ in 0..3 {
                    store.recount_changed();
                }
                check(&store, &owners, &format!("seed {seed}, life {life}, counted again"));
                store.close().await.unwrap();
            }
        })
        .unwrap();
    }
}

#[test]
fn second_count_agrees_with_the_sums_after_changes_meanwhile() {
    for seed in 0..30 {
        let sim = Sim::new(seed, SimConfig::default());
        sim.run(async {
            let (rt, mut owners, mut removed) = (sim.rt(1), BTreeMap::new(), BTreeSet::new());
            let store = open(&rt, Path::new("/srv/ost0")).await;
            assert!(!store.accounting().begin_recount(), "the first count has not ended");
            store.accounting().complete();
            for _ in 0..100 {
                random_change(&rt, &store, &mut owners, &mut removed).await;
            }
            assert!(store.accounting().begin_recount());
            let mut after = Fid::ZERO;
            while let Some(object) = store.objects_after(after, 1).unwrap().pop() {
                store.count_again(object).unwrap();
                after = object;
                random_change(&rt, &store, &mut owners, &mut removed).await;
            }
            assert_eq!(store.accounting().end_recount(true), [], "seed {seed}");
            check(&store, &owners, &format!("seed {seed}"));
        })
        .unwrap();
    }
}

#[test]
fn second_count_corrects_the_sums_of_an_object_whose_space_changed_at_rest() {
    let sim = Sim::new(1, SimConfig::default());
    sim.run(async {
        let (rt, dir) = (sim.rt(1), Path::new("/srv/ost0"));
        let store = open(&rt, dir).await;
        write(&store, FILE, fid(1), 0, 5000).unwrap();
        store.set_owners(&[owned(1, ALICE)], false).await.unwrap();
        store.close().await.unwrap();
        drop(store);
        let store = open(&rt, dir).await;
        count(&store);
        store.accounting().complete();
        let before = uses(&store);
        let file = rt.disk().open(dir.join(name::path(fid(1))), OpenOptions::READ_WRITE).unwrap();
        file.write_all_at(8192, &[7; 5000]).unwrap();
        assert!(store.accounting().begin_recount());
        store.count_again(fid(1)).unwrap();
        let wrong = store.accounting().end_recount(true);
        assert_eq!(wrong.iter().map(|wrong| wrong.id).collect::<Vec<_>>(), ALICE.ids());
        assert!(wrong.iter().all(|wrong| wrong.counted == before[&wrong.id]), "{wrong:?}");
        check(&store, &BTreeMap::from([(1, ALICE)]), "corrected");
        assert_ne!(uses(&store), before);
    })
    .unwrap();
}

#[test]
fn objects_from_before_the_index_are_unowned_until_the_mdt_names_their_owners() {
    let sim = Sim::new(1, SimConfig::default());
    sim.run(async {
        let (rt, dir) = (sim.rt(1), Path::new("/srv/ost0"));
        let store = open(&rt, dir).await;
        for oid in 1..=3 {
            write(&store, Fid::ZERO, fid(oid), 0, 5000).unwrap();
        }
        store.close().await.unwrap();
        assert!(rt.disk().metadata(dir.join("owners")).is_err(), "as an earlier release leaves it");
        let store = open(&rt, dir).await;
        count(&store);
        let unowned = [1, 2, 3].map(|oid| (fid(oid), Fid::ZERO));
        assert_eq!(store.accounting().report_unowned(), unowned);
        assert!(uses(&store).is_empty(), "nobody is charged");
        write(&store, FILE, fid(2), 5000, 5000).unwrap();
        assert_eq!(store.accounting().report_unowned(), [(fid(2), FILE)], "its file is known now");
        store.set_owners(&[owned(2, ALICE), owned(3, ALICE)], false).await.unwrap();
        check(&store, &BTreeMap::from([(2, ALICE), (3, ALICE)]), "named");
        store.accounting().report_again();
        assert_eq!(store.accounting().report_unowned(), [(fid(1), Fid::ZERO)]);
        // An owner survives a power failure after the answer to the MDT.
        sim.crash_host(1);
        let store = open(&sim.rt(1), dir).await;
        assert_eq!((store.owner(fid(2)), store.owner(fid(1))), (Some(ALICE), None));
    })
    .unwrap();
}

#[test]
fn objects_of_measurements_are_not_charged() {
    let sim = Sim::new(1, SimConfig::default());
    sim.run(async {
        let store = open(&sim.rt(1), Path::new("/srv/ost0")).await;
        let object = Fid::new(echo::SEQ, 1);
        write(&store, FILE, object, 0, 5000).unwrap();
        count(&store);
        assert_eq!((store.accounting().unowned(), uses(&store).len()), (0, 0));
        store.destroy_range(echo::SEQ, 0, u32::MAX).await.unwrap();
        assert_eq!(uses(&store).len(), 0);
    })
    .unwrap();
}

#[test]
fn missing_bytes_are_the_blocks_that_are_holes() {
    let sim = Sim::new(1, SimConfig::default());
    sim.run(async {
        let store = open(&sim.rt(1), Path::new("/srv/ost0")).await;
        let missing = |offset, len| store.missing_bytes(fid(1), offset, len).unwrap();
        assert_eq!(missing(5000, 100), 4096, "no object");
        write(&store, FILE, fid(1), 0, 5000).unwrap();
        write(&store, FILE, fid(1), 40_960, 4096).unwrap();
        assert_eq!([missing(0, 5000), missing(5000, 3192), missing(5000, 3193)], [0, 0, 4096]);
        assert_eq!([missing(8192, 1), missing(4096, 40_000), missing(40_960, 8192)], [4096, 8 * 4096, 4096]);
        assert_eq!(missing(1 << 30, 10_000), 3 * 4096);
    })
    .unwrap();
}
