//! The identity of an MDT's directory.

use std::sync::Arc;

use crate::common::{Host, config, simulate, with_host};
use sheen_lnet::Net;
use sheen_mds::{IdentityError, Mdt, MdtConfig, MdtError};
use sheen_objects::Sharing;
use sheen_params::Params;
use sheen_rpc::Server;
use sheen_rt::{Rt, target_dir::DirError};
use sheen_wire::fid;
use sheen_wire::mds::{Reply, Request};
use sheen_wire::seq::MdtIndex;

async fn start(rt: &Rt, config: MdtConfig) -> Result<Arc<Mdt>, MdtError> {
    let net = Net::new(rt.clone());
    let server = Server::new(net.clone());
    Mdt::start(rt.clone(), net, &server, config, Params::new()).await
}

#[test]
fn directory_in_use_or_of_another_target_is_refused() {
    with_host(1, config(), async |_, rt, host| {
        assert!(matches!(start(&rt, config()).await, Err(MdtError::Dir(DirError::InUse(_)))));
        host.mdt.stop().await.unwrap();

        let other = MdtConfig { fsname: "other".into(), ..config() };
        let error = start(&rt, other).await.err().unwrap();
        assert!(matches!(error, MdtError::Identity { error: IdentityError::Other { .. }, .. }), "{error}");
        assert!(error.to_string().contains("it holds sheen-MDT0000, not other-MDT0000"), "{error}");

        rt.disk().remove_file("/mdt/store.redb").unwrap();
        assert!(matches!(start(&rt, config()).await, Err(MdtError::StoreMissing(_))));
    });
}

/// Changes the format in the identity file.
fn set_format(rt: &Rt, from: u32, to: u32) {
    let text = String::from_utf8(rt.disk().read("/mdt/identity").unwrap()).unwrap();
    let changed = text.replace(&format!("format = {from}\n"), &format!("format = {to}\n"));
    assert_ne!(changed, text, "no format {from}");
    rt.disk().write_atomic("/mdt/identity", changed.as_bytes()).unwrap();
}

#[test]
fn directory_of_format_1_is_served_and_raised() {
    with_host(6, config(), async |_, rt, host| {
        host.mkdir("a").await.unwrap();
        host.mdt.stop().await.unwrap();
        host.mgs.stop();
        let now = rt.disk().read("/mdt/identity").unwrap();
        set_format(&rt, 2, 1);
        let host = Host::start(&rt, config()).await;
        assert!(host.exists("a").await);
        assert_eq!(rt.disk().read("/mdt/identity").unwrap(), now);
    });
}

#[test]
fn directory_of_a_later_format_is_refused() {
    with_host(7, config(), async |_, rt, host| {
        host.mdt.stop().await.unwrap();
        set_format(&rt, 2, 3);
        let error = start(&rt, config()).await.err().unwrap();
        let is_refused = matches!(error, MdtError::Identity { error: IdentityError::Unreadable(_), .. });
        assert!(is_refused, "{error}");
        let says = "it has format 3, this release reads up to 2; use the release that wrote it, or a later one";
        assert!(error.to_string().ends_with(says), "{error}");
    });
}

#[test]
fn mdt_index_without_sequences_is_refused() {
    simulate(8, async |_, rt| {
        let index = MdtIndex::MAX + 1;
        let error = start(&rt, MdtConfig { index, ..config() }).await.err().unwrap();
        assert_eq!(error.to_string(), "MDT index 2029 is too large; use one from 0 to 2028");
        assert!(rt.disk().metadata("/mdt").is_err(), "something was created");
    });
}

#[test]
fn root_owner_is_set_when_the_mdt_is_formatted() {
    simulate(4, async |_, rt| {
        let owner = async |host: &Host| {
            let request = Request::GetAttr { fid: fid::ROOT, layout_known: false };
            match host.ask(request).await.unwrap().body.reply {
                Reply::Entry(entry) => (entry.attr.uid, entry.attr.gid),
                other => panic!("{other:?}"),
            }
        };
        let host = Host::start(&rt, MdtConfig { root_uid: 1000, root_gid: 100, ..config() }).await;
        assert_eq!(owner(&host).await, (1000, 100));
        host.mdt.stop().await.unwrap();
        host.mgs.stop();
        let host = Host::start(&rt, MdtConfig { root_uid: 7, root_gid: 7, ..config() }).await;
        assert_eq!(owner(&host).await, (1000, 100), "a later start does not change it");
    });
}

#[test]
fn targets_of_one_device_share_its_space() {
    simulate(5, async |_, rt| {
        let sharing = Sharing::new();
        let host = Host::start(&rt, MdtConfig { sharing: sharing.clone(), ..config() }).await;
        let space = async || match host.ask(Request::StatFs).await.unwrap().body.reply {
            Reply::StatFs(space) => space,
            other => panic!("{other:?}"),
        };
        // The MDT stores the nodemaps of the first configuration.
        rt.sleep(std::time::Duration::from_secs(1)).await;
        let alone = space().await;
        let device = rt.disk().device("/mdt").unwrap();
        let others = [sharing.join(device), sharing.join(device), sharing.join(device)];
        let shared = space().await;
        assert_eq!((shared.blocks, shared.bfree), (alone.blocks / 4, alone.bfree / 4));
        // Each has whole blocks, and a block is space for several inodes.
        assert!((alone.ffree / 4).abs_diff(shared.ffree) < 4, "{} {}", alone.ffree, shared.ffree);
        assert_eq!(shared.files, shared.ffree + 1, "one inode is in use");
        drop(others);
        assert_eq!(space().await, alone);
    });
}

#[test]
fn a_directory_with_other_files_is_not_formatted() {
    simulate(2, async |_, rt| {
        rt.disk().create_dir_all("/mdt").unwrap();
        rt.disk().write_atomic("/mdt/thesis.tex", b"years of work").unwrap();
        assert!(matches!(start(&rt, config()).await, Err(MdtError::Foreign(_))));
        assert_eq!(rt.disk().read_dir("/mdt").unwrap().len(), 2, "the file and the lock");
    });
}

#[test]
fn interrupted_format_is_completed_at_next_start() {
    for seed in 0..30 {
        simulate(seed, async |sim, rt| {
            let starting = rt.clone();
            let task = rt.spawn("start", async move { drop(start(&starting, config()).await) });
            rt.sleep(std::time::Duration::from_micros(rt.random_u64() % 300)).await;
            sim.crash_host(1);
            drop(task);
            let host = Host::start(&sim.rt(1), config()).await;
            host.mkdir("a").await.unwrap();
        });
    }
}
