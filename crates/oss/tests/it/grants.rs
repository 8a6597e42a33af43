//! Space that an OST grants to clients, on simulated disks that fill up.

use std::sync::{Arc, Mutex, atomic::AtomicU32};

use crate::common::{FakeMgs, fid};
use bytes::Bytes;
use sheen_lnet::{Net, Nid};
use sheen_oss::{Ost, OstConfig, Sharing};
use sheen_params::Params;
use sheen_rpc::{Import, ImportConfig, Server};
use sheen_rt::{
    Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ost::{Allocate, Grant, Part, Reply, Request},
};

const HOST: u32 = 1;
const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 32 * MIB;
/// More than any client gets.
const ALL: u64 = 1 << 40;

/// A process with OSTs on one disk.
struct Process {
    net: Arc<Net>,
    server: Arc<Server>,
    params: Params,
    sharing: Sharing,
}

impl Process {
    fn new(rt: Rt) -> Process {
        let net = Net::new(rt);
        let server = Server::new(net.clone());
        let mgs = FakeMgs { net: net.clone(), next: AtomicU32::new(0), found: Mutex::default() };
        server.add::<sheen_wire::Mgs>("MGS", Arc::new(mgs));
        Process { net, server, params: Params::new(), sharing: Sharing::new() }
    }

    async fn start(&self, index: u32) -> Arc<Ost> {
        let (dir, nids) = (format!("/ost{index}"), vec!["0@lo".into()]);
        let config = OstConfig {
            sharing: self.sharing.clone(),
            ..OstConfig::new(dir, "sheen", Some(index), vec![Nid::Lo], nids)
        };
        Ost::start(self.net.clone(), &self.server, config, self.params.clone()).await.unwrap()
    }

    fn client(&self, ost: &Ost, name: &str) -> Client {
        Client(Import::new(self.net.clone(), ImportConfig::new(name, ost.name(), vec![Nid::Lo])))
    }
}

struct Client(Arc<Import<sheen_wire::Ost>>);

impl Client {
    /// Writes `len` bytes at `offset` of an object. Returns the bytes granted in addition.
    async fn write(&self, oid: u32, offset: u64, len: u64, grant: Grant) -> Result<u64> {
        let parts = vec![Part { object: fid(oid), offset, len: len as u32 }];
        let request = Request::Write { file: Fid::ZERO, parts, sync: false, mtime: None, grant, held: false };
        match self.0.request(request).bulk(Bulk::from(Bytes::from(vec![oid as u8; len as usize]))).send().await?.body {
            Reply::Done { granted, .. } => Ok(granted),
            other => panic!("{other:?}"),
        }
    }

    /// Requests more grant, without a write.
    async fn want(&self, want: u64) -> u64 {
        match self.0.request(Request::Enqueue { locks: vec![], want }).send().await.unwrap().body {
            Reply::Enqueued { granted, .. } => granted,
            other => panic!("{other:?}"),
        }
    }

    /// Writes pieces to an object's unwritten range from `offset` on, until there is no more space.
    /// Returns the number of bytes written.
    async fn fill(&self, oid: u32, offset: u64, piece: u64) -> u64 {
        let mut at = offset;
        loop {
            match self.write(oid, at, piece, Grant::default()).await {
                Ok(_) => at += piece,
                Err(Errno::ENOSPC) => return at - offset,
                Err(other) => panic!("{other}"),
            }
        }
    }

    async fn has(&self, oid: u32, offset: u64, len: u64) -> bool {
        let parts = vec![Part { object: fid(oid), offset, len: len as u32 }];
        let bytes = self.0.request(Request::Read { parts }).send().await.unwrap().bulk.into_bytes();
        bytes.len() as u64 == len && bytes.iter().all(|byte| *byte == oid as u8)
    }
}

fn run(test: impl AsyncFnOnce(Process)) {
    let sim = Sim::new(1, SimConfig { disk_bytes: DISK_BYTES, ..SimConfig::default() });
    sim.run(async { test(Process::new(sim.rt(HOST))).await }).unwrap();
}

#[test]
fn write_within_grant_succeeds_on_a_full_disk() {
    run(async |process| {
        let ost = process.start(0).await;
        let (a, b) = (process.client(&ost, "a"), process.client(&ost, "b"));
        let granted = a.want(ALL).await;
        assert!(granted > 0 && granted <= DISK_BYTES / 8, "{granted}");
        assert_eq!((granted % 4096, ost.granted()), (0, granted));
        let shown = process.params.get("obdfilter.sheen-OST0000.tot_granted").unwrap()[0].value.clone();
        assert_eq!(shown, granted.to_string());

        let filled = b.fill(1, 0, MIB).await + b.fill(2, 0, 4096).await;
        assert!(filled > DISK_BYTES / 2, "{filled}");
        let free = ost.store().free().unwrap();
        assert!(granted <= free && free < granted + MIB, "{granted} of {free}");
        let more = b.want(ALL).await;
        assert!(granted + more <= free);

        for piece in 0..granted / 4096 {
            a.write(3, 2 * piece * 4096, 4096, Grant { used: 4096, want: 0 }).await.unwrap();
        }
        assert_eq!(ost.granted(), more);
        assert!(a.has(3, 0, 4096).await && a.has(3, 2 * (granted / 4096 - 1) * 4096, 4096).await);
        assert_eq!(a.write(3, 4096, 4096 + granted, Grant { used: granted, want: 0 }).await, Err(Errno::ENOSPC));
    });
}

#[test]
fn full_disk_accepts_overwrites_and_hole_punches() {
    run(async |process| {
        let ost = process.start(0).await;
        let (a, b) = (process.client(&ost, "a"), process.client(&ost, "b"));
        a.want(ALL).await;
        assert!(b.fill(1, 0, MIB).await >= 8 * MIB);
        b.write(1, 0, 8 * MIB, Grant::default()).await.unwrap();
        let reserve = |mode| Request::Allocate { file: Fid::ZERO, mode, runs: vec![(fid(9), 0, 4 * MIB)] };
        let mode = Allocate::Reserve { keep_size: false };
        assert_eq!(b.0.request(reserve(mode)).send().await.unwrap_err(), Errno::ENOSPC, "it is granted");
        b.0.request(reserve(Allocate::PunchHole)).send().await.unwrap();
    });
}

#[test]
fn grants_are_released_on_disconnect_and_restart() {
    run(async |process| {
        let ost = process.start(0).await;
        let (a, b) = (process.client(&ost, "a"), process.client(&ost, "b"));
        let granted = a.want(ALL).await;
        let filled = b.fill(1, 0, MIB).await;
        drop(a);
        process.net.rt().sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(ost.granted(), 0);
        assert!(b.fill(1, filled, MIB).await + MIB > granted, "other clients may use it");

        let ost = {
            b.0.request(Request::Destroy { objects: vec![fid(1)] }).send().await.unwrap();
            assert!(b.want(ALL).await > 0);
            ost.stop().await;
            drop(ost);
            process.start(0).await
        };
        assert_eq!(ost.granted(), 0, "a restarted OST has granted nothing");
        let a = process.client(&ost, "a");
        a.write(1, 0, MIB, Grant { used: MIB, want: 0 }).await.unwrap();
        assert_eq!(ost.granted(), 0);
    });
}

#[test]
fn targets_on_one_disk_never_grant_more_than_its_free_space() {
    run(async |process| {
        let (one, two) = (process.start(0).await, process.start(1).await);
        let (a, b) = (process.client(&one, "a"), process.client(&two, "b"));
        let (mut mine, mut theirs) = (0, 0);
        for _ in 0..50 {
            mine += a.want(MIB / 2).await;
            theirs += b.want(MIB / 2).await;
            assert!(one.granted() + two.granted() <= two.store().free().unwrap());
        }
        assert_eq!((one.granted(), two.granted()), (mine, theirs));
        assert!(mine > 0 && theirs > 0);
        b.fill(1, 0, MIB).await;
        b.fill(2, 0, 4096).await;
        assert!(mine + theirs <= one.store().free().unwrap(), "no target fills space that another one has granted");
        a.write(1, 0, mine, Grant { used: mine, want: 0 }).await.unwrap();
        b.write(3, 0, theirs, Grant { used: theirs, want: 0 }).await.unwrap();
    });
}

#[test]
fn write_replies_extend_the_grant() {
    run(async |process| {
        let ost = process.start(0).await;
        let a = process.client(&ost, "a");
        let mut has = a.want(MIB).await;
        for piece in 0..16 {
            let used = has.min(MIB / 2);
            has += a.write(1, piece * MIB / 2, MIB / 2, Grant { used, want: MIB + used - has }).await.unwrap() - used;
            assert_eq!(ost.granted(), has);
            assert!(has >= MIB / 2, "{has}");
        }
    });
}

/// Found by simulated swaps of layouts.
#[test]
fn link_markers_use_no_granted_space() {
    run(async |process| {
        let ost = process.start(0).await;
        let (a, b) = (process.client(&ost, "a"), process.client(&ost, "b"));
        let granted = a.want(ALL).await;
        b.fill(1, 0, MIB).await;
        b.fill(2, 0, 4096).await;
        let (object, other) = (fid(1), fid(9));
        let close = Request::Seal { objects: vec![(object, None)], group: None, order: 1 };
        b.0.request(close).send().await.unwrap();
        let link = Request::Link { objects: vec![(object, other)], order: 1 };
        assert_eq!(b.0.request(link).send().await.unwrap_err(), Errno::ENOSPC);
        assert!(granted <= ost.store().free().unwrap());
    });
}
