//! Data versions over several lives of an OST: clean stops, kills of the process, power failures.

use std::{collections::BTreeMap, path::Path};

use crate::common::{SEQ, open_store};
use bytes::Bytes;
use sheen_oss::Store;
use sheen_rt::{
    Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{Bulk, Fid, ost::Part};

const SEEDS: u64 = 60;
const HOST: u32 = 1;
const OBJECTS: u64 = 80;
const LIVES: usize = 6;
const STEPS: usize = 150;

fn fid(oid: u64) -> Fid {
    Fid::new(SEQ, oid as u32)
}

/// Opens the store with few open files, so that objects are closed and opened again all the time.
async fn open(rt: &Rt) -> Store {
    let store = open_store(rt, Path::new("/srv/ost0"), 1).await;
    store.replayed().unwrap();
    store
}

fn content(store: &Store, oid: u64) -> Vec<u8> {
    store.read(&[Part { object: fid(oid), offset: 0, len: 1 << 20 }]).unwrap().1.into_bytes().to_vec()
}

/// The versions that the store has reported.
#[derive(Default)]
struct Reported {
    /// The bytes of each version of an object.
    bytes: BTreeMap<(u64, u64), Vec<u8>>,
    /// The last version of each object that was not changed since.
    last: BTreeMap<u64, u64>,
    /// Number of objects whose version outlived the OST's process.
    survived: usize,
}

impl Reported {
    fn ask(&mut self, store: &Store, oid: u64) {
        let (version, bytes) = (store.version(fid(oid)).unwrap(), content(store, oid));
        if let Some(last) = self.last.insert(oid, version) {
            assert_eq!(version, last, "object {oid} was not changed");
        }
        let known = self.bytes.entry((oid, version)).or_insert_with(|| bytes.clone());
        assert!(*known == bytes, "object {oid}: version {version} has other bytes");
    }

    /// The process has ended. A power failure may have lost bytes.
    fn restarted(&mut self, by_power_failure: bool) {
        let bytes = &self.bytes;
        // The version of an empty object is not recorded.
        self.last.retain(|oid, version| !by_power_failure && !bytes[&(*oid, *version)].is_empty());
        self.survived += self.last.len();
    }
}

fn random_step(rt: &Rt, store: &Store, reported: &mut Reported) {
    let pick = |n: u64| rt.random_u64() % n;
    let oid = 1 + pick(OBJECTS);
    match pick(10) {
        0..3 => {
            let data = vec![pick(255) as u8 + 1; 1 + pick(2000) as usize];
            let part = Part { object: fid(oid), offset: pick(5000), len: data.len() as u32 };
            store.write(Fid::ZERO, &[part], &Bulk::from(Bytes::from(data)), false, None).unwrap();
            reported.last.remove(&oid);
        }
        3 => {
            store.truncate(Fid::ZERO, &[(fid(oid), pick(4000))]).unwrap();
            reported.last.remove(&oid);
        }
        _ => reported.ask(store, oid),
    }
}

#[test]
fn data_version_survives_the_end_of_the_process_and_never_has_other_bytes() {
    let mut survived = 0;
    for seed in 0..SEEDS {
        let sim = Sim::new(seed, SimConfig::default());
        survived += sim
            .run(async {
                let mut reported = Reported::default();
                for _ in 0..LIVES {
                    let rt = sim.rt(HOST);
                    let store = open(&rt).await;
                    (1..=OBJECTS).for_each(|oid| reported.ask(&store, oid));
                    (0..STEPS).for_each(|_| random_step(&rt, &store, &mut reported));
                    let end = rt.random_u64() % 3;
                    match end {
                        0 => drop(store), // a kill
                        1 => store.close().await.unwrap(),
                        _ => sim.crash_host(HOST),
                    }
                    reported.restarted(end > 1);
                }
                reported.survived
            })
            .unwrap();
    }
    assert!(survived > 0);
}
