//! How long the markers of sealed objects stay.

use std::{path::Path, time::Duration};

use crate::common::{fid, open_store};
use bytes::Bytes;
use sheen_oss::{Store, store::Order};
use sheen_rt::{
    Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{Bulk, Errno, Fid, ost::Part};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

fn write(store: &Store, oid: u32) -> Result<(), Errno> {
    store.write(
        Fid::ZERO,
        &[Part { object: fid(oid), offset: 0, len: 1 }],
        &Bulk::from(Bytes::from_static(b"x")),
        false,
        None,
    )
}

fn close(store: &Store, oid: u32) -> Result<(), Errno> {
    store.seal_object(fid(oid), Some(store.version(fid(oid))?), Order::default())
}

/// A new OST with a written object 1.
async fn store(rt: &Rt) -> Store {
    let store = open_store(rt, Path::new("/srv/ost0"), 16).await;
    write(&store, 1).unwrap();
    store
}

#[test]
fn seal_marker_age_counts_from_the_last_seal() {
    let sim = Sim::new(1, SimConfig { time_max: 100 * HOUR, ..SimConfig::default() });
    let rt = sim.rt(1);
    let run = async {
        let store = store(&rt).await;
        close(&store, 1).unwrap();
        store.unseal(&[fid(1)], Order::default()).unwrap();
        rt.sleep(24 * HOUR - MINUTE).await;
        close(&store, 1).unwrap();
        store.destroy(&[fid(1)]).await.unwrap();
        rt.sleep(2 * MINUTE).await;
        close(&store, 2).unwrap();
        assert_eq!((store.sealed_count(), write(&store, 1)), (2, Err(Errno::MOVED)));
        rt.sleep(24 * HOUR + MINUTE).await;
        close(&store, 3).unwrap();
        assert_eq!(store.sealed_count(), 1, "markers older than a day are removed");
    };
    sim.run(run).unwrap();
}

#[test]
fn seal_marker_stays_as_long_as_the_object_exists() {
    let sim = Sim::new(1, SimConfig { time_max: 100 * HOUR, ..SimConfig::default() });
    let rt = sim.rt(1);
    let run = async {
        let store = store(&rt).await;
        close(&store, 1).unwrap();
        for _ in 0..3 {
            rt.sleep(25 * HOUR).await;
            close(&store, 2).unwrap();
            store.unseal(&[fid(2)], Order::default()).unwrap();
            assert_eq!((store.sealed_count(), write(&store, 1)), (1, Err(Errno::MOVED)));
        }
    };
    sim.run(run).unwrap();
}

/// Found by simulated swaps of layouts: such a write was repeated, and overwrote what other clients
/// had written meanwhile.
#[test]
fn sync_written_succeeds_on_an_object_sealed_since() {
    let sim = Sim::new(1, SimConfig::default());
    let rt = sim.rt(1);
    let run = async {
        let store = store(&rt).await;
        close(&store, 1).unwrap();
        assert_eq!(store.sync(&[fid(1)]).await, Err(Errno::MOVED), "its writer may have written elsewhere since");
        assert_eq!(store.sync_written(&[fid(1)]).await, Ok(()));
    };
    sim.run(run).unwrap();
}
