//! Directories of servers, and mount points in them. A wrong directory or mount point is refused
//! before anything is registered or covered. A server exits when its directory is removed.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sheen_tests::{
    Fs, Guarded,
    cluster::Cluster,
    detach, is_mounted, is_root,
    mounts::get_param,
    processes, run, sheen,
    wait::{eventually, eventually_some},
};

/// Runs `sheen`, which must fail before it is ready, and returns its error output.
#[track_caller]
fn refused<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> String {
    let ran = run(sheen(), words);
    assert!(ran.code == 1 && !ran.out.contains("ready"), "{ran:?}");
    ran.err
}

/// Returns the arguments that start another server beside a cluster.
fn server(cluster: &Cluster, kind: &str, dir: &Path, fsname: &str) -> Vec<String> {
    let dir = dir.display().to_string();
    let mut words = vec![kind.to_owned(), "--dir".into(), dir, "--listen".into(), "127.0.0.1:0@tcp".into()];
    if kind != "mgs" {
        words.extend(["--mgs".into(), cluster.nid("mgs"), "--fsname".into(), fsname.to_owned()]);
    }
    words
}

/// Starts `sheen`, which appends its output to a log.
#[track_caller]
fn start(words: Vec<String>, log: &Path) -> Guarded {
    let log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    let mut command = Command::new(sheen());
    command.args(words).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Guarded(command.spawn().unwrap())
}

/// Removes a directory that is in use. A server may add files to it meanwhile.
#[track_caller]
fn remove(dir: &Path) {
    eventually(format!("{} is removed", dir.display()), || {
        let _ = fs::remove_dir_all(dir);
        !dir.exists()
    });
}

#[test]
fn up_refuses_a_mount_point_over_its_directory_or_inside() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().canonicalize().unwrap();
    let dir = base.join("fs");
    let check = |at: PathBuf| {
        let is_bound = is_mounted(&at);
        let words = [OsStr::new("up"), "--dir".as_ref(), dir.as_os_str(), "--mount".as_ref(), at.as_os_str()];
        let said = refused(words);
        assert!(said.contains("where the file system is stored"), "{}: {said}", at.display());
        assert_eq!(is_mounted(&at), is_bound);
    };
    symlink(&base, base.join("link")).unwrap();
    for is_made in [false, true] {
        if is_made {
            fs::create_dir(&dir).unwrap();
        }
        for at in ["", "fs", "fs/mnt", "fs/ost0/O", "link/fs", "link/fs/mnt"] {
            check(base.join(at));
        }
        assert_eq!(dir.exists(), is_made, "nothing was started");
    }
    let bind = base.join("bind");
    fs::create_dir(&bind).unwrap();
    if is_root() && run("mount", [OsStr::new("--bind"), dir.as_os_str(), bind.as_os_str()]).code == 0 {
        ["bind", "bind/mnt"].into_iter().for_each(|at| check(base.join(at)));
        detach(&bind);
    }
}

#[test]
fn mount_refuses_the_directories_of_servers() {
    let cluster = Cluster::start();
    let source = format!("{}:/many", cluster.nid("mgs"));
    for name in ["", "mgs", "mds", "mds/dom", "oss", "oss/0", "oss/new"] {
        let at = cluster.base.join(name);
        let said = refused([OsStr::new("mount"), source.as_ref(), at.as_os_str()]);
        assert!(said.contains("cannot mount at") && said.contains(" holds "), "'{name}': {said}");
        assert!(!is_mounted(&at));
    }
}

#[test]
fn servers_refuse_the_directories_of_other_servers() {
    let cluster = Cluster::start();
    for (kind, name, held) in [
        ("oss", "mds", "an MDT"),
        ("oss", "mgs", "an MGS"),
        ("oss", "oss/0", "an OST"),
        ("mds", "oss", "OSTs of `sheen oss`"),
        ("mds", "mgs", "an MGS"),
        ("mgs", "mds", "an MDT"),
        ("mgs", "oss", "OSTs of `sheen oss`"),
    ] {
        let said = refused(server(&cluster, kind, &cluster.base.join(name), "many"));
        assert!(said.contains(&format!("holds {held}, not ")), "sheen {kind} --dir {name}: {said}");
    }
    let mds = cluster.base.join("mds");
    let said = refused([OsStr::new("up"), "--dir".as_ref(), mds.as_os_str()]);
    assert!(said.contains("holds an MDT, not a file system of `sheen up`"), "{said}");
    for made in ["mds/0", "mds/mgs", "mgs/0", "oss/0/0", "oss/identity", "oss/registry.json"] {
        assert!(!cluster.base.join(made).exists(), "{made}");
    }
    assert!(!cluster.log().contains("many-OST0002"), "no further OST is registered");
}

#[test]
fn servers_refuse_the_directories_of_other_file_systems() {
    let mut cluster = Cluster::start();
    for (kind, why) in
        [("oss", "belongs to the file system 'many', not 'other'"), ("mds", "it holds many-MDT0000, not other-MDT0000")]
    {
        cluster.kill(kind);
        let said = refused(server(&cluster, kind, &cluster.base.join(kind), "other"));
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn start_and_stop_of_an_oss_log_no_refused_clients() {
    let mut cluster = Cluster::start();
    cluster.stop("oss");
    cluster.spawn("oss");
    eventually("the OSS is ready again", || cluster.log().matches("OSTs of many ready").count() == 2);
    cluster.stop("oss");
    // The MDT asks for its OSTs again while they stop and start.
    let log = cluster.log();
    assert!(!log.contains("refusing a client"), "{log}");
}

#[test]
fn a_new_ost_waits_for_the_mdt_of_its_file_system() {
    let cluster = Cluster::start();
    let (dir, log) = (cluster.base.join("new-oss"), cluster.base.join("new-log"));
    let said = |words: &str| fs::read_to_string(&log).unwrap_or_default().contains(words);
    let _oss = start(server(&cluster, "oss", &dir, "typo"), &log);
    eventually("the OSS logs what it waits for", || {
        said("the MGS knows no MDT of the file system 'typo' (file systems: many)")
    });
    assert!(!dir.join("0").exists(), "nothing is formatted yet");
    let known = run(sheen(), ["lctl", "get_param", "-n", "mgs.MGS.filesystems"]).ok();
    assert_eq!(known.trim(), "many", "the MGS does not know the other one");
    let _mds = start(server(&cluster, "mds", &cluster.base.join("new-mds"), "typo"), &log);
    eventually("the OST joins the MDT", || said("1 OSTs of typo ready"));
}

#[test]
fn second_mdt_is_refused_before_it_is_ready() {
    let cluster = Cluster::start();
    let new = cluster.base.join("new-mds");
    let said = refused(server(&cluster, "mds", &new, "many"));
    assert!(said.contains("has an MDT, many-MDT0000 at "), "{said}");
    assert!(!new.join("identity").exists(), "nothing is formatted");
    let said = refused(server(&cluster, "mds", &cluster.base.join("mds"), "many"));
    assert!(said.contains("in use by another process"), "{said}");
    // The MDT of another cluster, whose MGS the MGS of this cluster does not know.
    let mut other = Cluster::start();
    other.kill("mds");
    let said = refused(server(&cluster, "mds", &other.base.join("mds"), "many"));
    assert!(said.contains("the server belongs to cluster"), "{said}");
    fs::remove_dir_all(other.base.join("mds/keys")).expect("the keys of the other cluster");
    let said = refused(server(&cluster, "mds", &other.base.join("mds"), "many"));
    assert!(said.contains("the MGS refused to register many-MDT0000: File exists"), "{said}");
}

#[test]
fn up_refuses_a_missing_ost_unless_it_is_inactive() {
    let Some(system) = Fs::up_or_skip(2) else { return };
    for (name, ost) in [("here", 0), ("there", 1)] {
        system.lfs(&format!("setstripe -c 1 -i {ost} {name}")).ok();
        fs::write(system.path(name), name).unwrap();
    }
    let (dir, elsewhere) = (system.dir().join("ost1"), system.dir().join("away"));
    let active = |value: u8| {
        let param = format!("osc.sheen-OST0001-osc-*.active={value}");
        run(sheen(), ["lctl", "set_param", "-P", &param]).ok();
    };
    let read = |name: &str| fs::read_to_string(system.path(name));

    system.stop().ok();
    fs::rename(&dir, &elsewhere).unwrap();
    let ran = system.start(&[]);
    assert!(ran.code == 1 && ran.err.contains("the directory of OST 1 is missing: "), "{ran:?}");
    assert!(!dir.exists(), "a new OST directory would block a restore of the backup");
    fs::rename(&elsewhere, &dir).unwrap();
    system.start(&[]).ok();
    assert_eq!((read("here").unwrap(), read("there").unwrap()), ("here".into(), "there".into()));

    active(0);
    system.stop().ok();
    fs::rename(&dir, &elsewhere).unwrap();
    system.start(&[]).ok();
    assert_eq!(read("here").unwrap(), "here");
    assert!(read("there").is_err(), "its bytes are on the lost OST");
    assert!(!dir.exists());

    system.stop().ok();
    fs::rename(&elsewhere, &dir).unwrap();
    system.start(&[]).ok();
    active(1);
    eventually("the restored OST is used again", || read("there").is_ok_and(|text| text == "there"));
}

#[test]
fn status_and_down_fail_where_there_is_no_file_system() {
    let tmp = tempfile::tempdir().unwrap();
    let none = tmp.path().join("none");
    for dir in [tmp.path(), &none] {
        for words in [&["status"][..], &["status", "--json"], &["down"], &["down", "--force"]] {
            let words = words.iter().map(OsStr::new).chain([OsStr::new("--dir"), dir.as_os_str()]);
            let ran = run(sheen(), words);
            assert!(ran.code == 1 && ran.out.is_empty() && ran.err.contains("no file system in "), "{ran:?}");
        }
    }
    assert!(!none.exists());
}

#[test]
fn a_file_system_ends_when_its_directory_is_removed() {
    let Some(system) = Fs::up_or_skip(2) else { return };
    fs::write(system.path("f"), "bytes").unwrap();
    let dir = system.dir();
    remove(&dir);
    eventually("its process ends", || processes(&[OsStr::new("up"), dir.as_os_str()]).is_empty());
    eventually("it is unmounted", || !is_mounted(&system.mnt));
    assert!(!dir.join("ost0/O").exists(), "no OST has made its directory again");
}

#[test]
fn a_server_ends_when_its_directory_is_removed() {
    let mut cluster = Cluster::start();
    for kind in ["oss", "mds", "mgs"] {
        let dir = cluster.base.join(kind);
        remove(&dir);
        let (_, child) = cluster.children.iter_mut().find(|(name, _)| *name == kind).unwrap();
        let status = eventually_some(format!("sheen {kind} ends"), || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(1), "sheen {kind}");
        let (log, dir) = (cluster.log(), dir.display().to_string());
        let is_said = log.lines().any(|line| line.contains(&dir) && line.contains("was removed while it was served"));
        assert!(is_said, "sheen {kind}:\n{log}");
    }
}

#[test]
fn free_space_of_a_target_ignores_mounts_over_its_directory() {
    let Some(system) = Fs::up_as_root_or_skip(1) else { return };
    let totals = || get_param("*.sheen-*.kbytestotal");
    let before = totals();
    assert!(before.contains("mdt.sheen-MDT0000.") && before.contains("obdfilter.sheen-OST0000."), "{before}");
    let covered = ["mdt0", "ost0"].map(|name| system.dir().join(name));
    for dir in &covered {
        let options = ["-t", "tmpfs", "-o", "size=1m", "none"].map(OsStr::new);
        run("mount", options.into_iter().chain([dir.as_os_str()])).ok();
    }
    let after = totals();
    covered.iter().for_each(|dir| detach(dir));
    assert_eq!(after, before);
}
