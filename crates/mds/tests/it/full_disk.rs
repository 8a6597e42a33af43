//! An MDT whose disk is full: new names are refused, removals go on, nothing is lost.

use std::time::Duration;

use sheen_lnet::{Net, Nid};
use sheen_rpc::{Import, ImportConfig};
use sheen_rt::sim::{Sim, SimConfig};
use sheen_rt::{File, OpenOptions, Rt};
use sheen_wire::ldlm::Cookie;
use sheen_wire::mds::Call;
use sheen_wire::{Errno, Mds, ost::Allocate};

use crate::common::client::lookup;
use crate::common::{Host, MDS, PORT, config};

const MIB: u64 = 1 << 20;

pub fn disk_of(mib: u64) -> SimConfig {
    SimConfig { disk_bytes: mib * MIB, ..SimConfig::default() }
}

/// Fills the remaining space of the disk.
pub fn fill(rt: &Rt) -> File {
    let ballast = rt.disk().open("/ballast", OpenOptions::CREATE).unwrap();
    let mut at = ballast.len().unwrap();
    for piece in [MIB, 4096] {
        while ballast.allocate(Allocate::Reserve { keep_size: false }, at, piece).is_ok() {
            at += piece;
        }
    }
    ballast.sync_data_blocking().unwrap();
    ballast
}

fn name(n: usize) -> String {
    format!("d{n}-{}", "x".repeat(200))
}

/// Creates directories of these numbers until one is refused. Commits after each thousand. Returns
/// how many were created, and the error.
async fn create_until_refused(host: &Host, first: usize) -> (usize, Errno) {
    for n in first.. {
        if let Err(errno) = host.mkdir(&name(n)).await {
            return (n - first, errno);
        }
        if n % 1000 == 0 {
            host.sync().await.unwrap();
        }
        assert!(n < 500_000, "the disk does not become full");
    }
    unreachable!("the numbers do not end")
}

#[test]
fn full_disk_refuses_new_names_and_lets_removals_go_on() {
    let sim = Sim::new(6, disk_of(256));
    let rt = sim.rt(1);
    sim.run(async {
        let host = Host::start(&rt, config()).await;
        for n in 0..6500 {
            host.mkdir(&name(n)).await.unwrap();
        }
        host.sync().await.unwrap();
        let ballast = fill(&rt);
        // The next commit frees a part of the reserve.
        let (created, refused) = create_until_refused(&host, 6500).await;
        let created = 6500 + created;
        assert_eq!(refused, Errno::ENOSPC);
        assert!(created >= 7000, "{created}");
        assert!(host.param("mdt.*.health").starts_with("no new files"));
        assert_eq!(host.param("mdt.*.filesfree"), "0");
        host.sync().await.unwrap();

        for n in (0..created).filter(|n| n % 2 == 0) {
            host.rmdir(&name(n)).await.unwrap();
        }
        host.sync().await.unwrap();
        // The store uses the pages of removed inodes again.
        let (again, refused) = create_until_refused(&host, created).await;
        assert_eq!(refused, Errno::ENOSPC);
        assert!((created / 3..created / 2).contains(&again), "{again} after {created}");
        host.sync().await.unwrap();

        ballast.set_len(0).unwrap();
        host.mkdir("after").await.unwrap();
        assert_eq!(host.param("mdt.*.health"), "healthy");
        host.sync().await.unwrap();
        let host = host.crash(&sim, config()).await;
        assert!(host.exists("after").await);
        for n in 0..created + again {
            assert_eq!(host.exists(&name(n)).await, n % 2 == 1 || n >= created, "{n} of {created} and {again}");
        }
    })
    .unwrap();
}

#[test]
fn mdt_is_read_only_while_the_reserve_is_used_up() {
    let sim = Sim::new(7, disk_of(40));
    let rt = sim.rt(1);
    sim.run(async {
        let host = Host::start(&rt, config()).await;
        for n in 0..20_000 {
            host.mkdir(&name(n)).await.unwrap();
        }
        host.sync().await.unwrap();
        // A commit that changes all pages needs more than the reserve.
        let ballast = fill(&rt);
        for n in 0..20_000 {
            host.rename(&name(n), &format!("e{n}")).await.unwrap();
        }
        assert_eq!(host.sync().await, Err(Errno::EIO));
        assert!(host.exists("e0").await);
        assert_eq!(host.mkdir("no").await, Err(Errno::EROFS));
        assert!(host.param("mdt.*.health").starts_with("read-only"));
        // A client gets a lock, although the list of clients cannot be written.
        let nid = Nid::Tcp(host.server.listen(sim.addr(MDS, PORT)).await.unwrap());
        let client = Import::<Mds>::new(Net::new(sim.rt(2)), ImportConfig::new("late", host.mdt.name(), vec![nid]));
        let cached = Call { keep: Some(Cookie(1)), ..lookup("e2").into() };
        assert_eq!(client.request(cached).send().await.unwrap().body.grants.len(), 1);

        ballast.set_len(0).unwrap();
        rt.sleep(Duration::from_secs(3)).await;
        assert!(!host.param("mdt.*.health").starts_with("read-only"));
        host.sync().await.unwrap();
        host.rmdir("e0").await.unwrap();
        assert!(host.exists("e1").await && !host.exists("e0").await);
        host.sync().await.unwrap();
        sim.crash_host(MDS);
        drop(host);
        let host = Host::start(&sim.rt(MDS), config()).await;
        assert_eq!(host.mdt.recovery_counts().clients, 1, "the list has the client now");
    })
    .unwrap();
}

#[test]
fn mdt_that_starts_on_a_full_disk_returns_the_space_of_removed_inodes() {
    let sim = Sim::new(8, disk_of(24));
    let rt = sim.rt(1);
    sim.run(async {
        let host = Host::start(&rt, config()).await;
        let (created, refused) = create_until_refused(&host, 0).await;
        assert_eq!(refused, Errno::ENOSPC);
        for n in 0..created {
            host.rmdir(&name(n)).await.unwrap();
        }
        host.mdt.stop().await.unwrap();
        host.mgs.stop();
        drop(host);
        let host = Host::start(&rt, config()).await;
        assert_eq!(host.param("mdt.*.health"), "healthy");
        let (again, refused) = create_until_refused(&host, 0).await;
        assert_eq!(refused, Errno::ENOSPC);
        assert!(again > created * 9 / 10, "{again} after {created}");
    })
    .unwrap();
}
