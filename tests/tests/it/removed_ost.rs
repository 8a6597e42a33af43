//! An OST that is removed from a running file system for good.

use std::{fs, path::Path};

use rustix::io::Errno;
use sheen_tests::{
    Fs, Ran,
    cluster::bash,
    mounts::{LIMIT, Watch},
    run, sheen,
    wait::eventually,
};

fn lctl(line: &str) -> Ran {
    run(sheen(), ["lctl"].into_iter().chain(line.split(' ')))
}

/// Returns the OSTs that a mount knows.
fn osts(at: &Path) -> Vec<u32> {
    let script = format!("{} lfs osts .", sheen().display());
    let listed = bash(at, &script).ok();
    listed.lines().filter_map(|line| line.split_once(':')?.0.trim().parse().ok()).collect()
}

fn read_error(path: &Path) -> Option<Errno> {
    fs::read(path).err().and_then(|e| Errno::from_io_error(&e))
}

#[test]
fn removed_ost_leaves_the_file_system_for_good() {
    let Some(fs) = Fs::up_or_skip(3) else { return };
    let other = fs.second_mount();
    let _watch = Watch::over(&[&fs.mnt, &other.mnt], LIMIT);
    fs.lfs("setstripe -i 1 -c 1 lost").ok();
    fs.lfs("setstripe -i 2 -c 1 whole").ok();
    fs.lfs("setstripe -c -1 wide").ok();
    for name in ["lost", "whole", "wide"] {
        fs::write(fs.path(name), name).unwrap();
    }
    let refused = lctl("del_ost -t sheen-OST0001");
    assert!(refused.code == 16 && refused.err.contains("it is in use"), "{refused:?}");
    assert_eq!(lctl("del_ost -t sheen-OST0007").code, 19);
    lctl("set_param -P osc.sheen-OST0001-osc-*.active=0").ok();
    assert!(lctl("del_ost --dryrun --target sheen-OST0001").ok().starts_with("[DRY RUN] sheen-OST0001 "));
    lctl("del_ost --target sheen-OST0001").ok();
    assert_eq!(lctl("del_ost --target sheen-OST0001").code, 19, "only once");
    // The setting is not needed any more.
    lctl("set_param -P -d osc.sheen-OST0001-osc-*.active").ok();
    let is_lost = |at: &Path| {
        assert_eq!(read_error(&at.join("lost")), Some(Errno::IO));
        assert_eq!(fs::read(at.join("whole")).unwrap(), b"whole");
    };
    for at in [&fs.mnt, &other.mnt] {
        eventually("the mount knows it", || osts(at) == [0, 2]);
        is_lost(at);
        bash(at, "sync -f . && df .").ok();
    }
    eventually("the MDT places nothing there", || {
        fs.lfs("setstripe -c -1 new").ok();
        let count = fs.lfs("getstripe -c new").ok();
        fs::remove_file(fs.path("new")).unwrap();
        count.trim() == "2"
    });
    assert_ne!(fs.lfs("setstripe -i 1 there").code, 0);
    let late = fs.second_mount();
    assert_eq!(osts(&late.mnt), [0, 2]);
    is_lost(&late.mnt);
    fs::remove_file(late.path("lost")).unwrap();
    drop((late, other));
    // A start neither needs its directory nor fills it.
    fs.stop().ok();
    fs::remove_dir_all(fs.dir().join("ost1")).unwrap();
    fs.start(&["--osts", "4"]).ok();
    assert_eq!(osts(&fs.mnt), [0, 2, 3]);
    assert_eq!(fs::read(fs.path("whole")).unwrap(), b"whole");
    assert!(!fs.dir().join("ost1").exists());
}
