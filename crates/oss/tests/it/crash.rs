//! A host that loses power, on a simulated disk: synced data survives, destroyed objects stay
//! deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use crate::common::{SEQ, open_store};
use bytes::Bytes;
use sheen_objects::name::{self, Dir};
use sheen_oss::{Store, store::scrub::Pace};
use sheen_rt::{
    Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{Bulk, Errno, Fid, Time, ost::Part};

const SEEDS: u64 = 100;
const HOST: u32 = 1;
const OBJECTS: u64 = 80;

fn fid(oid: u64) -> Fid {
    Fid::new(SEQ, oid as u32)
}

/// Opens the store with few open files, so that objects are closed and opened again all the time.
async fn open(rt: &Rt) -> Store {
    open_store(rt, Path::new("/srv/ost0"), 1).await
}

/// The state that must be found after a crash; an object that is not here may be in any state.
#[derive(Default)]
struct Model {
    now: BTreeMap<u64, Vec<u8>>,
    /// Exactly this content; empty: deleted.
    durable: BTreeMap<u64, Vec<u8>>,
    /// Destroyed since the start: stays deleted.
    deleted: BTreeSet<u64>,
}

impl Model {
    fn sync(&mut self, oid: u64) {
        self.durable.insert(oid, self.now.get(&oid).cloned().unwrap_or_default());
    }
}

async fn random_step(rt: &Rt, store: &Store, model: &mut Model) {
    let pick = |n: u64| rt.random_u64() % n;
    let oid = 1 + pick(OBJECTS);
    match pick(12) {
        0..5 => {
            let (offset, data) = (pick(5000), vec![pick(255) as u8 + 1; 1 + pick(2000) as usize]);
            let part = Part { object: fid(oid), offset, len: data.len() as u32 };
            let written = store.write(Fid::ZERO, &[part], &Bulk::from(Bytes::from(data.clone())), false, None);
            if model.deleted.contains(&oid) {
                return assert_eq!(written, Err(Errno::ESTALE));
            }
            written.unwrap();
            let content = model.now.entry(oid).or_default();
            content.resize(content.len().max(offset as usize + data.len()), 0);
            content[offset as usize..][..data.len()].copy_from_slice(&data);
            model.durable.remove(&oid);
        }
        5 => {
            let size = 1 + pick(6000);
            let cut = store.truncate(Fid::ZERO, &[(fid(oid), size)]);
            if model.deleted.contains(&oid) {
                return assert_eq!(cut, Err(Errno::ESTALE));
            }
            cut.unwrap();
            model.now.entry(oid).or_default().resize(size as usize, 0);
            model.durable.remove(&oid);
        }
        6..9 => {
            let oids: Vec<_> = (0..1 + pick(3)).map(|_| 1 + pick(OBJECTS)).collect();
            store.sync(&oids.iter().copied().map(fid).collect::<Vec<_>>()).await.unwrap();
            oids.into_iter().for_each(|oid| model.sync(oid));
        }
        9..11 => {
            let scrubbed = store.scrub(fid(oid), true, Some(Duration::ZERO), &Pace::new(rt, 0)).await.unwrap();
            assert_eq!(scrubbed.damaged, 0, "object {oid}");
        }
        _ => {
            store.destroy(&[fid(oid)]).await.unwrap();
            model.now.remove(&oid);
            model.deleted.insert(oid);
            model.sync(oid);
        }
    }
}

fn content(store: &Store, oid: u64) -> Vec<u8> {
    store.read(&[Part { object: fid(oid), offset: 0, len: 1 << 20 }]).unwrap().1.into_bytes().to_vec()
}

#[test]
fn synced_data_survives_a_crash_and_destroyed_objects_do_not() {
    let (mut checked, mut lost) = (0, 0);
    for seed in 0..SEEDS {
        let sim = Sim::new(seed, SimConfig::default());
        let (seen, deleted) = sim
            .run(async {
                let mut model = Model::default();
                let mut lost = 0;
                for _life in 0..3 {
                    let rt = sim.rt(HOST);
                    let store = open(&rt).await;
                    for (&oid, want) in &model.durable {
                        assert_eq!(&content(&store, oid), want, "object {oid}, seed {seed}");
                    }
                    let all = (1..=OBJECTS).map(|oid| (oid, content(&store, oid)));
                    let found: BTreeMap<_, _> = all.filter(|(_, bytes)| !bytes.is_empty()).collect();
                    lost += model.now.iter().filter(|&(oid, bytes)| found.get(oid) != Some(bytes)).count();
                    model.now = found;
                    model.deleted.clear();
                    for _ in 0..150 {
                        random_step(&rt, &store, &mut model).await;
                    }
                    sim.crash_host(HOST);
                    // Objects that were found and not changed were not synced since the start, so
                    // they need not survive the next crash. Only synced objects are guaranteed, and
                    // these are in `durable`.
                }
                (model.durable.len(), lost)
            })
            .unwrap();
        checked += seen;
        lost += deleted;
    }
    assert!(checked > 0 && lost > 0, "the crashes lost some data that was not synced");
}

#[test]
fn sync_of_all_objects_survives_a_crash() {
    for seed in 0..20 {
        let sim = Sim::new(seed, SimConfig::default());
        sim.run(async {
            let rt = sim.rt(HOST);
            let store = open(&rt).await;
            let mut model = Model::default();
            for _ in 0..100 {
                random_step(&rt, &store, &mut model).await;
            }
            store.sync(&[]).await.unwrap();
            sim.crash_host(HOST);
            let store = open(&sim.rt(HOST)).await;
            for oid in 1..=OBJECTS {
                assert_eq!(content(&store, oid), model.now.get(&oid).cloned().unwrap_or_default(), "seed {seed}");
            }
        })
        .unwrap();
    }
}

#[test]
fn copy_of_a_lost_object_survives_a_crash_only_if_it_has_ended() {
    const DATA: &[u8] = b"data";
    let (disk_dir, bytes) = (Path::new("/srv/ost0"), Bulk::from(Bytes::from_static(DATA)));
    for seed in 0..20 {
        let sim = Sim::new(seed, SimConfig::default());
        sim.run(async {
            let rt = sim.rt(HOST);
            let store = open(&rt).await;
            for oid in [1, 2] {
                let part = Part { object: fid(oid), offset: 0, len: DATA.len() as u32 };
                store.write(Fid::ZERO, &[part], &bytes, false, None).unwrap();
            }
            store.sync(&[]).await.unwrap();
            store.close().await.unwrap();
            drop(store);
            for oid in [1, 2] {
                rt.disk().remove_file(disk_dir.join(name::path(fid(oid)))).unwrap();
                rt.disk().sync_dir(disk_dir.join(Dir::of(fid(oid)).path())).await.unwrap();
            }
            let store = open(&rt).await;
            for oid in [1, 2] {
                store.begin_copy(fid(oid), oid, DATA.len() as u64, 1).unwrap();
                store.write_copy(fid(oid), oid, 0, &bytes).unwrap();
                if oid == 1 {
                    store.end_copy(fid(oid), oid, Time::default()).await.unwrap();
                }
            }
            sim.crash_host(HOST);
            let store = open(&sim.rt(HOST)).await;
            assert_eq!(content(&store, 1), DATA, "seed {seed}");
            let lost = store.read(&[Part { object: fid(2), offset: 0, len: 1 }]).map(drop);
            assert_eq!((lost, store.end_copy(fid(2), 2, Time::default()).await), (Err(Errno::EIO), Err(Errno::ESTALE)));
            assert_eq!(copies(&sim), 0, "seed {seed}");
        })
        .unwrap();
    }
}

/// Returns the number of copies in the OST's directory.
fn copies(sim: &Sim) -> usize {
    sim.rt(HOST).disk().read_dir("/srv/ost0/copies").map_or(0, |names| names.len())
}
