//! An MDT whose store is lost or damaged, and an OST whose directory is empty. The server refuses
//! to start with a plain message and changes nothing. It serves a restored store or directory.

use std::{fs, os::unix::fs::FileExt, path::Path, process::ExitStatus};

use sheen_tests::{
    Fs,
    cluster::{Cluster, bash},
    noise, run, sheen,
    wait::{eventually, eventually_some},
};

/// Length of redb's header. Pages follow it.
const HEADER_BYTES: usize = 4096;

/// Waits until the server that was started last has ended.
fn wait_for_exit(cluster: &mut Cluster) -> ExitStatus {
    let (kind, mut server) = cluster.children.pop().unwrap();
    let mut ended = None;
    eventually(format!("the {kind} ends"), || {
        ended = server.try_wait().unwrap();
        ended.is_some()
    });
    ended.unwrap()
}

/// All files below a directory with their sizes, sorted.
fn listing(dir: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(listing(&path));
        } else {
            found.push((path.display().to_string(), entry.metadata().unwrap().len()));
        }
    }
    found.sort();
    found
}

#[test]
fn sheen_up_refuses_a_lost_or_damaged_store_and_serves_the_restored_one() {
    let Some(up) = Fs::up_or_skip(2) else { return };
    fs::write(up.path("old"), "old").unwrap();
    up.stop().ok();
    let store = up.dir().join("mdt0/store.redb");
    let sound = fs::read(&store).unwrap();
    let mut damaged = sound.clone();
    damaged[HEADER_BYTES..].fill(0xA5);
    let objects = || [listing(&up.dir().join("ost0/O")), listing(&up.dir().join("ost1/O"))];
    let before = objects();
    for (content, says) in [(Vec::new(), "has 0 bytes"), (damaged, "is damaged")] {
        fs::write(&store, &content).unwrap();
        let refused = up.start(&[]);
        assert_ne!(refused.code, 0, "{}", refused.out);
        let said = format!("{} {says}", store.display());
        assert!(refused.err.contains(&said) && refused.err.contains("backup"), "no '{said}' in: {}", refused.err);
        let log = fs::read_to_string(up.dir().join("sheen.log")).unwrap();
        assert!(!log.contains("panicked"), "{log}");
        let left = fs::read(&store).unwrap();
        assert_eq!(left.len(), content.len());
        assert!(left.iter().zip(&content).skip(HEADER_BYTES).all(|(left, old)| left == old), "pages were written");
        assert_eq!(objects(), before);
    }
    fs::write(&store, &sound).unwrap();
    up.start(&[]).ok();
    fs::write(up.path("new"), "new").unwrap();
    assert_eq!(up.sh("cat old new").ok(), "oldnew");
}

#[test]
fn an_mds_refuses_a_directory_without_its_store_and_clients_find_the_restored_one() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let mount = cluster.mount();
    bash(&mount.mnt, "echo old > old && sync .").ok();
    let at = cluster.children.iter().position(|(kind, _)| *kind == "mds").unwrap();
    let (_, mut mds) = cluster.children.remove(at);
    bash(&cluster.base, &format!("kill -TERM {}", mds.id())).ok();
    assert!(mds.wait().unwrap().success());

    let (store, backup) = (cluster.base.join("mds/store.redb"), cluster.base.join("backup"));
    fs::rename(&store, &backup).unwrap();
    cluster.spawn("mds");
    let ended = wait_for_exit(&mut cluster);
    let log = cluster.log();
    assert!(!ended.success(), "{log}");
    assert!(log.contains(&format!("{} is missing", store.display())) && log.contains("backup"), "{log}");
    assert!(!store.exists(), "a new store was created");

    fs::rename(&backup, &store).unwrap();
    cluster.spawn("mds");
    assert_eq!(bash(&mount.mnt, "echo new > new && cat old new").ok(), "old\nnew\n");
}

#[test]
fn an_oss_refuses_an_empty_directory_of_an_ost_and_serves_the_restored_one() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let mount = cluster.mount();
    let setstripe = format!("{} lfs setstripe -c 2 old", sheen().display());
    bash(&mount.mnt, &format!("{setstripe} && seq 1000000 > old && sync .")).ok();
    cluster.kill("oss");
    // As if the disk of one OST were not mounted.
    let (dir, elsewhere) = (cluster.base.join("oss/1"), cluster.base.join("elsewhere"));
    fs::rename(&dir, &elsewhere).unwrap();
    fs::create_dir(&dir).unwrap();
    cluster.spawn("oss");
    let ended = wait_for_exit(&mut cluster);
    let log = cluster.log();
    let said = format!("{} no longer holds many-OST000", dir.display());
    assert!(!ended.success() && log.contains(&said), "{log}");
    assert!(fs::read_dir(&dir).unwrap().next().is_none(), "a new OST was created");
    fs::remove_dir(&dir).unwrap();
    fs::rename(&elsewhere, &dir).unwrap();
    cluster.spawn("oss");
    assert_eq!(bash(&mount.mnt, "tail -n 1 old").ok(), "1000000\n");
    assert_eq!(bash(&mount.mnt, &format!("{} lfs df | grep -c OST", sheen().display())).ok(), "2\n");
}

/// Makes the OSTs store checksums at once, and scrubs one. Returns its state afterwards.
fn scrub(ost: u32) -> String {
    lctl("set_param obdfilter.*.scrub_quiet_secs=0");
    lctl(&format!("lfsck_start -M sheen-OST000{ost} -t scrub"));
    eventually_some("the scrub ends", || Some(query(ost)).filter(|text| text.contains("status: completed")))
}

fn query(ost: u32) -> String {
    lctl(&format!("lfsck_query -M sheen-OST000{ost}"))
}

fn lctl(line: &str) -> String {
    run(sheen(), std::iter::once("lctl").chain(line.split(' '))).ok()
}

/// Changes a byte of each large object of an OST.
fn damage_objects(ost: &Path, offset: u64) {
    for (path, len) in listing(&ost.join("O")) {
        if len > offset {
            let file = fs::File::options().read(true).write(true).open(path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset).unwrap();
            file.write_all_at(&[!byte[0]], offset).unwrap();
        }
    }
}

#[test]
fn reads_of_damaged_bytes_fail_or_use_another_mirror() {
    let Some(up) = Fs::up_or_skip(2) else { return };
    let data = noise(1, 300_000);
    up.lfs("setstripe -c 1 -i 0 plain").ok();
    up.lfs("mirror create -N -c 1 -i 0 -N -c 1 -i 1 mirrored").ok();
    for name in ["plain", "mirrored"] {
        fs::write(up.path(name), &data).unwrap();
        fs::File::open(up.path(name)).unwrap().sync_all().unwrap();
    }
    up.lfs("mirror resync mirrored").ok();
    if scrub(0).contains("unsupported") {
        return println!("skipped: no extended attributes in memory on this system");
    }
    up.stop().ok();
    damage_objects(&up.dir().join("ost0"), 70_000);
    up.start(&[]).ok();
    assert_eq!(fs::read(up.path("plain")).unwrap_err().raw_os_error(), Some(5), "EIO, not wrong bytes");
    assert!(fs::read(up.path("mirrored")).unwrap() == data, "from the other mirror");
    scrub(0);
    let fid = |name: &str| up.lfs(&format!("path2fid {name}")).ok().trim().to_owned();
    let line = |name: &str| format!("file: \"{}\", offset: 65536, bytes: 65536", fid(name));
    let found = eventually_some("the mirror is repaired", || Some(query(0)).filter(|t| t.contains("damaged_now: 1\n")));
    let (repaired, damaged) = found.split_once("damaged_now: 1\n").unwrap();
    assert!(repaired.contains("repaired: 1\n") && repaired.contains(&line("mirrored")), "{found}");
    assert!(damaged.contains(&line("plain")), "{found}");
    fs::write(up.path("plain"), &data).unwrap();
    assert!(fs::read(up.path("plain")).unwrap() == data);
    eventually("nothing is damaged any more", || {
        let found = lctl("lfsck_query -A -t scrub");
        found.lines().filter(|line| line.starts_with("damaged_now:")).all(|line| line == "damaged_now: 0")
    });
}

#[test]
fn damaged_mirrors_are_repaired_from_each_other() {
    let Some(up) = Fs::up_or_skip(4) else { return };
    let data = noise(1, 2_000_000);
    // Of two stripes, of components, and of one stripe.
    up.lfs("mirror create -N -c 2 -S 64k -o 0,1 -N -E 1M -c 1 -o 2 -E -1 -c 2 -S 128k -o 2,3 -N -c 1 -o 3 file").ok();
    up.lfs("mirror create -N -c 1 -o 0 -N -c 1 -o 3 twice").ok();
    up.lfs("mirror create -N -c 1 -o 0 -N -c 1 -o 1 moved").ok();
    for name in ["file", "twice", "moved"] {
        fs::write(up.path(name), &data).unwrap();
        up.lfs(&format!("mirror resync {name}")).ok();
    }
    // The OSTs know the files of objects that came from another file.
    up.lfs("migrate -N -c 1 -o 2 -N -c 1 -o 0 moved").ok();
    up.sh("sync -f .").ok();
    if (0..4).map(scrub).any(|text| text.contains("unsupported")) {
        return println!("skipped: no extended attributes in memory on this system");
    }
    up.stop().ok();
    for (ost, offset) in [(0, 70_000), (0, 800_000), (1, 500_000), (2, 3), (2, 1_400_000), (3, 70_000)] {
        damage_objects(&up.dir().join(format!("ost{ost}")), offset);
    }
    up.start(&[]).ok();
    let found: Vec<String> = (0..4).map(scrub).collect();
    assert!(found.iter().all(|text| !text.contains("damaged_blocks: 0\n")), "{found:?}");
    // Only in one place both mirrors of a file are damaged.
    let fid = up.lfs("path2fid twice").ok().trim().to_owned();
    for (ost, damaged) in [(0, 1), (1, 0), (2, 0), (3, 1)] {
        let wanted = format!("damaged_now: {damaged}\n");
        let text = eventually_some(format!("OST {ost} is repaired"), || {
            Some(query(ost)).filter(|text| text.contains(&wanted))
        });
        let rest = text.split_once(&wanted).unwrap().1;
        assert!(damaged == 0 || rest.contains(&format!("file: \"{fid}\", offset: 65536,")), "{text}");
    }
    for name in ["file", "moved"] {
        up.lfs(&format!("mirror verify {name}")).ok();
        assert!(fs::read(up.path(name)).unwrap() == data, "{name}");
    }
    // The repairs are durable and have the right checksums.
    up.stop().ok();
    up.start(&[]).ok();
    assert!(scrub(1).contains("damaged_blocks: 0\n") && scrub(2).contains("damaged_blocks: 0\n"));
    assert!(scrub(0).contains("damaged_blocks: 1\n") && scrub(3).contains("damaged_blocks: 1\n"));
}

#[test]
fn reads_of_lost_objects_fail_or_use_another_mirror() {
    let Some(up) = Fs::up_or_skip(2) else { return };
    let data = noise(1, 300_000);
    up.lfs("setstripe -c 1 -i 0 plain").ok();
    up.lfs("setstripe -c 2 -S 64k sparse").ok();
    up.lfs("mirror create -N -c 1 -i 0 -N -c 1 -i 1 mirrored").ok();
    for name in ["plain", "mirrored"] {
        fs::write(up.path(name), &data).unwrap();
    }
    up.lfs("mirror resync mirrored").ok();
    // One of its objects was never written.
    fs::File::options().write(true).open(up.path("sparse")).unwrap().write_all_at(b"x", 65_535).unwrap();
    up.sh("sync -f .").ok();
    up.stop().ok();
    for (path, len) in listing(&up.dir().join("ost0/O")) {
        if len == data.len() as u64 {
            fs::remove_file(path).unwrap();
        }
    }
    up.start(&[]).ok();
    assert_eq!(fs::read(up.path("plain")).unwrap_err().raw_os_error(), Some(5), "EIO, not an empty file");
    assert!(fs::read(up.path("mirrored")).unwrap() == data, "from the other mirror");
    assert_eq!(fs::read(up.path("sparse")).unwrap().len(), 65_536);
    up.sh("rm plain mirrored && seq 3 > plain && grep -c 2 plain").ok();
}

#[test]
fn lost_objects_of_mirrors_are_made_again() {
    let Some(up) = Fs::up_or_skip(3) else { return };
    let data = noise(1, 9_000_000);
    up.lfs("setstripe -c 1 -i 0 plain").ok();
    up.lfs("mirror create -N -c 1 -o 0 -N -c 1 -o 1 file").ok();
    up.lfs("mirror create -N -c 2 -S 64k -o 0,2 -N -E 1M -c 1 -o 1 -E -1 -c 2 -S 128k -o 1,2 striped").ok();
    up.lfs("mirror create -N -c 1 -o 0 -N -c 1 -o 1 stale").ok();
    let mirrored = ["file", "striped"];
    for name in ["plain", "file", "striped", "stale"] {
        fs::write(up.path(name), &data).unwrap();
    }
    for name in mirrored {
        up.lfs(&format!("mirror resync {name}")).ok();
    }
    up.sh("sync -f .").ok();
    let modified = |name: &str| fs::metadata(up.path(name)).unwrap().modified().unwrap();
    let times = mirrored.map(modified);
    up.stop().ok();
    let large: Vec<_> = listing(&up.dir().join("ost0/O")).into_iter().filter(|(_, len)| *len > 0).collect();
    large.iter().for_each(|(path, _)| fs::remove_file(path).unwrap());
    up.start(&[]).ok();
    // Each scrub lets the MDT be asked again, should an OST not be connected yet.
    let found =
        eventually_some("mirrors are repaired", || Some(scrub(0)).filter(|text| text.contains("repaired: 2\n")));
    let (repaired, _) = found.split_once("damaged_now: ").unwrap();
    let line = |name: &str| format!("file: \"{}\", lost: true", up.lfs(&format!("path2fid {name}")).ok().trim());
    assert!(mirrored.iter().all(|name| repaired.contains(&line(name))), "{found}");
    assert_eq!(mirrored.map(modified), times);
    for name in mirrored {
        up.lfs(&format!("mirror verify {name}")).ok();
        assert!(fs::read(up.path(name)).unwrap() == data, "{name}");
    }
    // No other mirror has the bytes of these objects.
    let left = eventually_some("the others are listed", || Some(scrub(0)).filter(|t| t.contains("damaged_now: 2\n")));
    let (_, left) = left.split_once("damaged_now: ").unwrap();
    assert!(["plain", "stale"].iter().all(|name| left.contains(&line(name))), "{left}");
    assert_eq!(fs::read(up.path("plain")).unwrap_err().raw_os_error(), Some(5));
    // The copies are durable, and can be written.
    up.stop().ok();
    for (path, len) in large.iter().filter(|(path, _)| Path::new(path).exists()) {
        assert_eq!(fs::metadata(path).unwrap().len(), *len);
    }
    up.start(&[]).ok();
    assert_eq!(mirrored.map(modified), times);
    for name in mirrored {
        up.lfs(&format!("mirror verify {name}")).ok();
        fs::write(up.path(name), "new").unwrap();
        up.lfs(&format!("mirror resync {name}")).ok();
        assert_eq!(fs::read(up.path(name)).unwrap(), b"new");
    }
}
