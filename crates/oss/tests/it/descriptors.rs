//! A process that runs out of file descriptors closes objects rather than failing its clients.
//! Alone in its file, since the limit is the whole process's.

use crate::common::fid;
use bytes::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sheen_oss::{Sharing, Store};
use sheen_rt::{RealOptions, Rt};
use sheen_wire::{Bulk, Fid, ost::Part};

#[test]
fn store_closes_objects_when_descriptors_run_out() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
    let store = runtime
        .block_on(Store::open(&rt, dir.path(), "sheen", None, 4096, |device| Sharing::new().join(device)))
        .unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), ..limit }).unwrap();
    let part = |oid| Part { object: fid(oid), offset: 0, len: 4 };
    for oid in 1..=2000u32 {
        store
            .write(Fid::ZERO, &[part(oid)], &Bulk::from(Bytes::copy_from_slice(&oid.to_le_bytes())), false, None)
            .unwrap();
    }
    for oid in 1..=2000u32 {
        assert_eq!(store.read(&[part(oid)]).unwrap().1.into_bytes()[..], oid.to_le_bytes());
    }
    assert!(store.open_files() < 100);
}
