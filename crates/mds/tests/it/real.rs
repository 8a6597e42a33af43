//! An MDT on the real runtime and a real disk.

use std::time::Duration;

use crate::common::{Host, config};
use sheen_mds::MdtConfig;
use sheen_rt::{RealOptions, Rt};

#[test]
fn mdt_on_real_disk_retains_files_over_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
    let run = async {
        let mdt = MdtConfig { dir: dir.path().join("mdt"), ..config() };
        let host = Host::start_in(&rt, &dir.path().join("mgs"), mdt.clone()).await;
        let ost = host.add_ost(0).await;
        host.mkdir("a").await.unwrap();
        let file = host.create_closed("f").await.unwrap();
        host.unlink("f").await.unwrap();
        host.sync().await.unwrap();
        while ost.destroyed() != [file[0].1] {
            rt.sleep(Duration::from_millis(5)).await;
        }
        host.mdt.stop().await.unwrap();
        host.mgs.stop();
        let host = Host::start_in(&rt, &dir.path().join("mgs"), mdt).await;
        assert!(host.exists("a").await && !host.exists("f").await);
        host.mdt.stop().await.unwrap();
    };
    runtime.block_on(rt.timeout(Duration::from_secs(60), run)).expect("the test hangs");
}
