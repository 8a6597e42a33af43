//! Servers that restart at other ports, as with `--listen HOST:0@tcp`. Mounts and the MDT find them
//! there.

use std::fs;

use sheen_tests::{
    cluster::{Cluster, bash},
    mounts::{LIMIT, Watch},
    noise,
    posix::layout,
    sheen,
    wait::eventually,
};

const ANY_PORT: &str = "127.0.0.1:0@tcp";

#[test]
fn operations_continue_after_the_mds_restarts_at_another_port() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let mounts = [cluster.mount(), cluster.mount_as("other")];
    let _watch = Watch::over(&[&mounts[0].mnt, &mounts[1].mnt], LIMIT);
    let lfs = format!("{} lfs", sheen().display());
    let script = format!("{lfs} setstripe -E 64K -L mdt -E -1 -c 1 on-mdt && mkdir d && echo x > d/f && sync .");
    bash(&mounts[0].mnt, &script).ok();
    for round in 0..2 {
        cluster.kill("mds");
        cluster.spawn_at("mds", ANY_PORT);
        for (n, mount) in mounts.iter().enumerate() {
            // A request fails when its server has been down for 100 s; the script has 60 s.
            let text = format!("{round}.{n}");
            let script = format!("echo {text} > on-mdt; mkdir {text}; echo y > {text}/g; cat d/f {text}/g on-mdt");
            assert_eq!(bash(&mount.mnt, &script).ok(), format!("x\ny\n{text}\n"));
        }
        assert_eq!(bash(&mounts[0].mnt, "cat on-mdt").ok(), format!("{round}.1\n"), "what the other mount wrote");
    }
}

#[test]
fn data_is_read_and_objects_placed_after_the_oss_restarts_at_another_port() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let mount = cluster.mount();
    let _watch = Watch::over(&[&mount.mnt], LIMIT);
    let setstripe = |name: &str| bash(&mount.mnt, &format!("{} lfs setstripe -c 2 -S 64K {name}", sheen().display()));
    let data = noise(1, 300_000);
    setstripe("before").ok();
    fs::write(mount.path("before"), &data).unwrap();
    bash(&mount.mnt, "sync before").ok();
    cluster.kill("oss");
    cluster.spawn_at("oss", ANY_PORT);
    assert!(fs::read(mount.path("before")).unwrap() == data);
    // The MDT may connect a moment later. It places nothing on an OST before it is connected.
    eventually("the MDT finds the OSTs", || {
        let _ = fs::remove_file(mount.path("after"));
        setstripe("after").code == 0 && layout(&mount.path("after")).stripe_count() == 2
    });
    fs::write(mount.path("after"), &data).unwrap();
    assert!(fs::read(mount.path("after")).unwrap() == data);
}
