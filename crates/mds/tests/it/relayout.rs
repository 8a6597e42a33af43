//! The MDT's requests to seal, unseal and link objects, to an OST that is in recovery.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::common::{FakeOst, Host, config, with_host};
use sheen_wire::mds::Request;
use sheen_wire::{Cred, Errno, Fid, Time, ost};

/// Creates two files.
async fn two(host: &Host) -> [Fid; 2] {
    let mut fids = [Fid::ZERO; 2];
    for (fid, name) in fids.iter_mut().zip(["one", "other"]) {
        let (entry, handle) = host.create(name).await.unwrap();
        *fid = entry.attr.fid;
        host.ask(Request::close(*fid, handle)).await.unwrap();
    }
    fids
}

fn swap(fids: [Fid; 2]) -> Request {
    Request::SwapLayouts { cred: Cred::ROOT, fids, mtimes: [Time::default(); 2], nonce: 7 }
}

/// Returns the kinds of requests that the OST has executed for swaps, without repetitions.
fn asked(of: &FakeOst) -> Vec<&'static str> {
    let all = of.asked.lock().iter().map(ost::Request::op).collect::<Vec<_>>();
    let mut asked: Vec<_> = all.into_iter().filter(|op| ["seal", "unseal", "link", "destroy"].contains(op)).collect();
    asked.dedup();
    asked
}

/// Asserts that later requests have higher numbers.
fn check_order(of: &FakeOst) {
    let order = |request: &ost::Request| match request {
        ost::Request::Seal { order, .. } | ost::Request::Unseal { order, .. } | ost::Request::Link { order, .. } => {
            Some(*order)
        }
        _ => None,
    };
    let orders: Vec<u64> = of.asked.lock().iter().filter_map(order).collect();
    assert!(orders.is_sorted_by(|one, next| one < next), "{orders:?}");
}

#[test]
fn swap_waits_for_an_ost_in_recovery() {
    with_host(1, config(), async |_, rt, host| {
        let ost = host.add_ost(0).await;
        let fids = two(&host).await;
        ost.recovering.store(true, Relaxed);
        let import = host.import.clone();
        let swapping = rt.spawn("swap", async move { import.request(swap(fids)).send().await.map(drop) });
        rt.sleep(Duration::from_secs(30)).await;
        assert!(!swapping.is_finished() && asked(&ost).is_empty(), "{:?}", asked(&ost));
        ost.recovering.store(false, Relaxed);
        swapping.await.unwrap().unwrap();
        assert_eq!(asked(&ost)[..2], ["seal", "link"]);
        check_order(&ost);
    });
}

#[test]
fn swap_that_fails_because_of_a_long_recovery_seals_nothing_later() {
    with_host(2, config(), async |_, rt, host| {
        let ost = host.add_ost(0).await;
        let fids = two(&host).await;
        ost.recovering.store(true, Relaxed);
        assert_eq!(host.ask(swap(fids)).await.map(drop), Err(Errno::ETIMEDOUT));
        ost.recovering.store(false, Relaxed);
        rt.sleep(Duration::from_secs(60)).await;
        let failed = ["unseal", "destroy"];
        assert_eq!(asked(&ost), failed, "the reserved names are destroyed last");
        host.ask(swap(fids)).await.unwrap();
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(asked(&ost), [&failed[..], &["seal", "link", "destroy"]].concat());
        check_order(&ost);
    });
}
