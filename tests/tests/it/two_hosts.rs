//! Servers on one host and mounts on others: keys, and the protection of connections between hosts.

use std::{fs, os::unix::fs::MetadataExt};

use sheen_tests::{Mount, hosts::Hosts, noise, run, sh, wait::eventually};

/// The host of all servers.
const SERVERS: u8 = 1;

/// Starts the servers of a file system with two OSTs, each kind in a process of its own. `mgs`:
/// further options of the MGS. Returns what a mount of the file system takes.
#[track_caller]
fn serve(hosts: &mut Hosts, mgs: &str) -> String {
    let nid = hosts.nid(SERVERS);
    hosts.start(SERVERS, "mgs", &format!("sheen mgs --dir mgs --listen {nid} {mgs}"));
    // It has made the key.
    hosts.says("mgs", "MGS ready");
    hosts.start(SERVERS, "mds", &format!("sheen mds --dir mds --mgs {nid} --fsname two --default-layout plain"));
    hosts.start(SERVERS, "oss", &format!("sheen oss --dir oss --mgs {nid} --fsname two --osts 2"));
    // A mount does not wait for servers that are not registered with the MGS.
    hosts.says("mgs", "two-MDT0000 (");
    hosts.says("oss", "OSTs of two ready");
    format!("{nid}:/two")
}

/// Copies the key of the cluster to a host, as docs/security.md says.
#[track_caller]
fn copy_key(hosts: &Hosts, host: u8) {
    let keys = hosts.dir(SERVERS).join("mgs/keys");
    hosts.sh(host, &format!("cat {}/*.key | sheen key add -", keys.display())).ok();
}

/// Returns whether a host's mount has connections to the MDT and both OSTs, all with this flavor.
#[track_caller]
fn has_flavor(hosts: &Hosts, host: u8, flavor: &str) -> bool {
    let flavors = hosts.sh(host, "lctl get_param -n '[mo][ds]c.*.srpc_info'").ok();
    let with_it = flavors.matches(&format!("rpc flavor:      {flavor}\n")).count();
    with_it == 3 && flavors.matches("rpc flavor:").count() == 3
}

/// Writes on each of two mounts, and reads on the other one.
#[track_caller]
fn exchange(one: &Mount, other: &Mount) {
    for (seed, (from, to)) in (0..).zip([(one, other), (other, one)]) {
        let (name, content) = (format!("from-{seed}"), noise(seed, 3 << 20));
        fs::write(from.path(&name), &content).expect("a file");
        assert!(fs::read(to.path(&name)).expect("readable") == content);
    }
}

#[test]
fn servers_on_one_host_and_a_mount_on_another_are_protected_by_default() {
    let Some(mut hosts) = Hosts::join(3) else { return };
    let source = serve(&mut hosts, "");
    let refused = hosts.sh(2, &format!("sheen mount {source} mnt"));
    assert!(refused.code == 1 && refused.err.contains("this user has no key of the file system"), "{}", refused.err);
    hosts.says("mgs", "refusing a connection: it has no key of this server");

    copy_key(&hosts, 2);
    let second = hosts.mount(2, &source);
    hosts.sh(2, "lfs setstripe -c 2 -S 64K mnt").ok();
    let content = noise(7, 3 << 20);
    fs::write(second.path("f"), &content).expect("a file");
    hosts.sh(2, "sync mnt/f").ok();
    eventually("connections of the second host have integrity", || has_flavor(&hosts, 2, "integrity"));

    // A host that only mounts gets a key of its own.
    hosts.sh(SERVERS, "umask 077; sheen key issue --dir mgs --host > issued").ok();
    let issued = hosts.dir(SERVERS).join("issued");
    hosts.sh(3, &format!("sheen key add - < {}", issued.display())).ok();
    let third = hosts.mount(3, &source);
    assert!(fs::read(third.path("f")).expect("readable") == content);
    exchange(&second, &third);
    eventually("connections of the third host have integrity", || has_flavor(&hosts, 3, "integrity"));
}

#[test]
fn frames_between_hosts_are_private_with_srpc_flavor() {
    let Some(mut hosts) = Hosts::join(3) else { return };
    let source = serve(&mut hosts, "");
    copy_key(&hosts, 2);
    let second = hosts.mount(2, &source);
    let content = noise(7, 3 << 20);
    fs::write(second.path("before"), &content).expect("a file");
    hosts.sh(2, "sync mnt/before").ok();
    eventually("connections have integrity", || has_flavor(&hosts, 2, "integrity"));
    hosts.sh(SERVERS, "lctl conf_param two.srpc.flavor.default=privacy").ok();
    // The servers close the connections. Requests open new ones.
    let wide = "lfs setstripe -c 2 -S 64k wide; dd if=before of=wide bs=64k count=2 conv=fsync,notrunc 2>&1; rm wide";
    eventually("connections are private", || {
        hosts.sh(2, &format!("cd mnt; {wide}")).ok();
        has_flavor(&hosts, 2, "privacy")
    });
    copy_key(&hosts, 3);
    let third = hosts.mount(3, &source);
    assert!(fs::read(third.path("before")).expect("readable") == content);
    exchange(&second, &third);
    eventually("connections of a later mount are private", || {
        hosts.sh(3, &format!("cd mnt; {wide}")).ok();
        has_flavor(&hosts, 3, "privacy")
    });
}

#[test]
fn survey_on_a_client_host_measures_osts_of_another() {
    let Some(mut hosts) = Hosts::join(3) else { return };
    let source = serve(&mut hosts, "");
    copy_key(&hosts, 2);
    hosts.sh(SERVERS, "umask 077; sheen key issue --dir mgs --host > issued").ok();
    let issued = hosts.dir(SERVERS).join("issued");
    hosts.sh(3, &format!("sheen key add - < {}", issued.display())).ok();
    let _mounts = [2, 3].map(|host| hosts.mount(host, &source));
    let survey = |host, case: &str| {
        let options = "--size 256k --records 64k --objects 2 --threads 2 -i 1";
        hosts.sh(host, &format!("sheen lab survey --case {case} {options}"))
    };
    for (host, case) in [(2, "netdisk"), (2, "network"), (3, "network")] {
        let out = survey(host, case).ok();
        let line = out.lines().find(|line| line.starts_with("ost ")).expect("a point");
        assert!(line.starts_with("ost  2 sz       512K rsz   64K obj    4 thr    4 write "), "{host} {case}: {out}");
    }
    let disk = survey(2, "disk");
    assert!(disk.code == 1 && disk.err.contains("no OST on this host answers"), "{disk:?}");
    // An issued key gives no right to objects without a file.
    let limited = survey(3, "netdisk");
    assert!(limited.code == 1 && limited.err.contains("needs the key of the servers"), "{limited:?}");
    assert_eq!(hosts.sh(SERVERS, "find oss -path '*/O/2/*' -type f").ok(), "", "objects are left");
}

/// Starts a MUNGE daemon on a host, whose key lies there already.
#[track_caller]
fn munged(hosts: &mut Hosts, host: u8) {
    let dir = hosts.dir(host).join("munge").display().to_string();
    let files = format!("--key-file {dir}/key --socket {dir}/socket --pid-file {dir}/pid --seed-file {dir}/seed");
    let line = format!("munged --foreground --log-file {dir}/log {files}");
    hosts.start(host, &format!("munged{host}"), &line);
    eventually("munged answers", || hosts.sh(host, "munge --no-input --socket $PWD/munge/socket").code == 0);
}

#[test]
fn user_of_another_host_mounts_by_munge_without_a_key() {
    let missing = ["munged", "munge", "unmunge", "fusermount3"].into_iter().find(|p| run("which", [p]).code != 0);
    if missing.is_some() {
        return println!("skipped: needs fusermount3 and MUNGE (missing: {missing:?})");
    }
    let Some(mut hosts) = Hosts::join(2) else { return };
    // Distributions let all users open /dev/fuse; a bare container may not.
    sh("chmod 666 /dev/fuse").ok();
    let shared = hosts.dir(SERVERS).join("munge/key");
    let make = "umask 077; mkdir munge; chmod 711 munge";
    hosts.sh(SERVERS, &format!("{make}; head -c 128 /dev/urandom > munge/key")).ok();
    hosts.sh(2, &format!("{make}; cp {} munge/key; mkdir home; chown nobody home", shared.display())).ok();
    for host in [SERVERS, 2] {
        munged(&mut hosts, host);
    }
    let source = serve(&mut hosts, "--munge users");
    let admin = hosts.mount(SERVERS, &source);
    hosts.sh(SERVERS, "cd mnt; chmod 1777 .; echo secret > private; chmod 600 private").ok();

    // Root of the other host gets no key, and a user gets its own.
    let refused = hosts.sh(2, &format!("sheen mount {source} mnt"));
    assert!(refused.code != 0 && refused.err.contains("gives root no key"), "{}", refused.err);
    let user = |script: &str| {
        let home = "cd home; export HOME=$PWD SHEEN_KEY_DIR=$PWD/keys SHEEN_RUNTIME_DIR=$PWD/run";
        let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
        hosts.sh(2, &format!("{home}; {nobody} bash -ec '{script}'"))
    };
    let theirs = Mount { mnt: hosts.dir(2).join("home/mnt") };
    user(&format!("mkdir mnt; sheen mount {source} {}", theirs.mnt.display())).ok();
    assert_eq!(user("echo mine > mnt/own; stat -c %u mnt/own; ! cat mnt/private").ok(), "65534\n");
    assert_eq!(fs::metadata(admin.path("own")).expect("a file").uid(), 65534);
    assert!(!hosts.dir(2).join("home/keys").exists(), "the key is in memory only");
    let flavors = "lctl get_param -n [mo][ds]c.*.srpc_info | grep -c \"^rpc flavor:      integrity\"";
    eventually("all connections have integrity", || user(flavors).out == "3\n");
}
