//! Pools: on which OSTs files of a pool are placed, and the effect of changes of the pool.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{FakeOst, Host, config, with_host};
use bytes::Bytes;
use sheen_layout::{Count, Layout, Pool, Spec};
use sheen_lnet::{Net, Nid};
use sheen_mds::Mdt;
use sheen_mgc::MGS_TARGET;
use sheen_mgs::Mgs;
use sheen_params::Params;
use sheen_rpc::{Import, ImportConfig, Server};
use sheen_wire::mds::{NewNode, Reply, Request, flags};
use sheen_wire::mgs::{PoolChange, TargetKind, target_name};
use sheen_wire::{Cred, Errno, Fid, FileKind, Mds, Ost, Result, fid};

const NEW: PoolChange = PoolChange::New;

fn add(ost: u32) -> PoolChange {
    PoolChange::Add { ost }
}

fn in_pool(name: &str) -> Spec {
    Spec { pool: Some(Pool::new(name).unwrap()), ..Spec::default() }
}

/// Adds four OSTs. Pool `p1` has 1 and 3, `p2` has 0 and 2, and `empty` none.
async fn four(host: &Host) {
    host.add_osts(4).await;
    for (pool, change) in
        [("p1", NEW), ("p1", add(3)), ("p1", add(1)), ("p2", NEW), ("p2", add(0)), ("p2", add(2)), ("empty", NEW)]
    {
        change_pool(host, pool, change).await;
    }
}

/// Changes a pool and waits until the MDT has learned of it.
async fn change_pool(host: &Host, pool: &str, change: PoolChange) {
    host.mgc.change_pool("sheen", pool, change).await.unwrap();
    host.rt.sleep(Duration::from_millis(10)).await;
}

async fn make(host: &Host, parent: Fid, name: &str, node: NewNode) -> Fid {
    let (fid, name) = (host.new_fid(), Bytes::copy_from_slice(name.as_bytes()));
    let create = Request::Create { cred: Cred::ROOT, parent, name, fid, node, mode: 0o755, umask: 0 };
    host.ask(create).await.unwrap();
    fid
}

async fn set_lov(host: &Host, fid: Fid, spec: &Spec) -> Result<()> {
    let (name, value) = (Bytes::from_static(b"lustre.lov"), spec.encode().into());
    host.ask(Request::SetXattr { cred: Cred::ROOT, fid, name, value, flags: 0 }).await.map(drop)
}

/// Creates a file with this layout; returns its pool and OSTs.
async fn file(host: &Host, parent: Fid, name: &str, spec: &Spec) -> Result<(Option<String>, Vec<u32>)> {
    let fid = make(host, parent, name, NewNode::Node { kind: FileKind::Regular, rdev: 0 }).await;
    if !spec.is_default() {
        set_lov(host, fid, spec).await?;
    } else {
        let open = Request::Open { cred: Cred::ROOT, fid, flags: flags::RDWR };
        host.ask(open).await?;
    }
    let get = Request::GetXattr { cred: Cred::ROOT, fid, name: Bytes::from_static(b"lustre.lov") };
    let Reply::Bytes(bytes) = host.ask(get).await?.body.reply else { panic!() };
    let layout = Layout::decode(&bytes).unwrap();
    let component = &layout.components()[0];
    let pool = component.pool.as_ref().map(|p| p.as_str().to_string());
    Ok((pool, component.stripes.iter().map(|s| s.ost).collect()))
}

fn sorted(mut osts: Vec<u32>) -> Vec<u32> {
    osts.sort_unstable();
    osts
}

#[test]
fn pool_files_are_placed_round_robin_on_pool_osts() {
    with_host(1, config(), async |_, _, host| {
        four(&host).await;
        let mut first = Vec::new();
        for i in 0..8 {
            let (pool, osts) = file(&host, fid::ROOT, &format!("a{i}"), &in_pool("p1")).await.unwrap();
            assert_eq!(pool.as_deref(), Some("p1"));
            first.extend(osts);
            // Files of another pool in between do not disturb the round robin.
            assert!(file(&host, fid::ROOT, &format!("b{i}"), &in_pool("p2")).await.unwrap().1[0] % 2 == 0);
        }
        assert_eq!(sorted(first), [1, 1, 1, 1, 3, 3, 3, 3]);
        for (i, (count, overstripe, osts)) in [
            (Count::All, false, &[1, 3][..]),
            (Count::Stripes(4), false, &[1, 3]),
            (Count::Stripes(4), true, &[1, 1, 3, 3]),
            (Count::PerOst(3), true, &[1, 1, 1, 3, 3, 3]),
        ]
        .into_iter()
        .enumerate()
        {
            let spec = Spec { count: Some(count), overstripe, ..in_pool("p1") };
            let (pool, got) = file(&host, fid::ROOT, &format!("c{i}"), &spec).await.unwrap();
            assert_eq!((pool.as_deref(), sorted(got)), (Some("p1"), osts.to_vec()), "{spec:?}");
        }
        let started = Spec { start: Some(3), ..in_pool("p1") };
        assert_eq!(file(&host, fid::ROOT, "start", &started).await.unwrap().1, [3]);
        let listed = Spec { osts: vec![3, 1], ..in_pool("p1") };
        assert_eq!(file(&host, fid::ROOT, "listed", &listed).await.unwrap(), (Some("p1".into()), vec![3, 1]));
    });
}

#[test]
fn layout_with_unknown_pool_or_ost_outside_it_is_refused() {
    with_host(2, config(), async |_, _, host| {
        four(&host).await;
        let dir = make(&host, fid::ROOT, "d", NewNode::Dir).await;
        for (i, spec) in [
            in_pool("nopool"),
            in_pool("empty"),
            Spec { start: Some(0), ..in_pool("p1") },
            Spec { osts: vec![1, 0], ..in_pool("p1") },
        ]
        .iter()
        .enumerate()
        {
            let refused = file(&host, fid::ROOT, &format!("f{i}"), spec).await;
            assert_eq!(refused.unwrap_err(), Errno::EINVAL, "{spec:?}");
            assert_eq!(set_lov(&host, dir, spec).await.unwrap_err(), Errno::EINVAL, "{spec:?} as a default");
        }
    });
}

#[test]
fn default_pool_is_inherited_and_ignored_once_destroyed() {
    with_host(3, config(), async |_, _, host| {
        four(&host).await;
        let dir = make(&host, fid::ROOT, "d", NewNode::Dir).await;
        set_lov(&host, dir, &Spec { count: Some(Count::All), ..in_pool("p1") }).await.unwrap();
        let nothing = Spec::default();
        let inside = async |name: &str| {
            let (pool, osts) = file(&host, dir, name, &nothing).await.unwrap();
            (pool, sorted(osts))
        };
        let p1 = || Some("p1".to_string());
        assert_eq!(inside("f").await, (p1(), vec![1, 3]));
        let sub = make(&host, dir, "sub", NewNode::Dir).await;
        assert_eq!(file(&host, sub, "f", &nothing).await.unwrap().0, p1());
        let other = file(&host, dir, "other", &Spec { count: Some(Count::All), ..in_pool("p2") }).await.unwrap();
        assert_eq!((other.0.as_deref(), sorted(other.1)), (Some("p2"), vec![0, 2]));
        // OSTs that the user names may be outside of a pool that the file only inherits.
        let listed = file(&host, dir, "listed", &Spec { osts: vec![0, 1], ..nothing.clone() }).await;
        assert_eq!(listed, Ok((None, vec![0, 1])));
        // The file system's default first OST does not lead out of a pool.
        host.params.set("lod.*.stripeoffset", "2").unwrap();
        assert_eq!(inside("g").await, (p1(), vec![1, 3]));
        host.params.set("lod.*.stripeoffset", "-1").unwrap();

        change_pool(&host, "p1", PoolChange::Remove { ost: 3 }).await;
        assert_eq!(inside("one").await, (p1(), vec![1]));
        change_pool(&host, "p1", PoolChange::Remove { ost: 1 }).await;
        assert_eq!(inside("none").await, (None, vec![0, 1, 2, 3]), "an empty pool is ignored");
        change_pool(&host, "p1", add(2)).await;
        assert_eq!(inside("again").await, (p1(), vec![2]));
        change_pool(&host, "p1", PoolChange::Destroy).await;
        assert_eq!(inside("destroyed").await, (None, vec![0, 1, 2, 3]));
    });
}

#[test]
fn creates_after_restart_wait_until_mgs_reports_pools() {
    with_host(4, config(), async |sim, _, host| {
        four(&host).await;
        let dir = make(&host, fid::ROOT, "d", NewNode::Dir).await;
        set_lov(&host, dir, &in_pool("p1")).await.unwrap();
        host.sync().await.unwrap();
        sim.crash_host(1);
        drop(host);

        // Everything restarts except the MGS, which starts later. A file created without a pool now
        // would never get one.
        let rt = sim.rt(1);
        let net = Net::new(rt.clone());
        let (server, params) = (Server::new(net.clone()), Params::new());
        let ost = Arc::new(FakeOst::default());
        (0..4).for_each(|i| server.add::<Ost>(&target_name("sheen", TargetKind::Ost, i), ost.clone()));
        let mdt = Mdt::start(rt.clone(), net.clone(), &server, config(), params.clone()).await.unwrap();
        let import = Import::<Mds>::new(net, ImportConfig::new("client", mdt.name(), vec![Nid::Lo]));
        let ask = async |request: Request| import.request(request).send().await.unwrap().body.reply;
        let Reply::Seq(seq) = ask(Request::AllocSeq).await else { panic!() };
        let (fid, flags) = (Fid::new(seq, 1), flags::CREAT | flags::RDWR);
        let (cred, name) = (Cred::ROOT, Bytes::from_static(b"f"));
        let create = Request::OpenCreate { cred, parent: dir, name, fid, flags, mode: 0o644, umask: 0 };
        let (named, node) = (Fid::new(seq, 2), NewNode::Node { kind: FileKind::Regular, rdev: 0 });
        let name = Bytes::from_static(b"named");
        ask(Request::Create { cred: Cred::ROOT, parent: dir, name, fid: named, node, mode: 0o644, umask: 0 }).await;
        let (name, value) = (Bytes::from_static(b"lustre.lov"), in_pool("p2").encode().into());
        let set = Request::SetXattr { cred: Cred::ROOT, fid: named, name: name.clone(), value, flags: 0 };
        let (made, _, mgs) = tokio::join!(ask(create), ask(set), async {
            rt.sleep(Duration::from_secs(3)).await;
            let mgs = Mgs::start(rt.clone(), Path::new("/mgs"), params.clone()).await.unwrap();
            server.add::<sheen_wire::Mgs>(MGS_TARGET, mgs.clone());
            mgs
        });
        let Reply::Opened { entry, .. } = made else { panic!() };
        let Reply::Bytes(set) = ask(Request::GetXattr { cred: Cred::ROOT, fid: named, name }).await else { panic!() };
        for (bytes, pool, osts) in [(entry.layout.unwrap(), "p1", [1, 3]), (set, "p2", [0, 2])] {
            let layout = Layout::decode(&bytes).unwrap();
            let component = &layout.components()[0];
            assert_eq!(component.pool.as_ref().map(Pool::as_str), Some(pool));
            assert!(osts.contains(&component.stripes[0].ost), "{component:?}");
        }
        let shown = |name: &str| params.get(name).map(|found| found[0].value.clone()).map_err(|e| e.errno);
        assert_eq!(shown("lov.*-mdtlov.pools.p1").as_deref(), Ok("sheen-OST0003_UUID\nsheen-OST0001_UUID\n"));
        assert_eq!(shown("lov.*-mdtlov.pools.empty").as_deref(), Ok(""));
        drop((mgs, mdt));
    });
}

#[test]
fn mdt_parameters_list_existing_pools() {
    with_host(5, config(), async |_, _, host| {
        four(&host).await;
        let names = || -> Vec<String> {
            let found = host.params.get("lov.*.pools.*").unwrap();
            found.into_iter().map(|f| f.name.rsplit('.').next().unwrap().to_string()).collect()
        };
        assert_eq!(names(), ["empty", "p1", "p2"]);
        change_pool(&host, "p1", PoolChange::Destroy).await;
        change_pool(&host, "p0", NEW).await;
        assert_eq!(names(), ["empty", "p0", "p2"]);
        host.mdt.stop().await.unwrap();
        assert!(host.params.get("lov.*.pools.*").is_err(), "a stopped MDT shows none");
    });
}
