//! Persistent parameters (`lctl set_param -P`). The MGS stores the values. Every process sets those
//! that match its parameters: now, after it was killed, and if it starts later.

use std::{ffi::OsStr, fs, path::Path};

use sheen_layout::Layout;
use sheen_tests::{Ran, can_mount, cluster::Cluster, is_root, processes, sandbox::Sandbox, wait::eventually};

const MNT: &str = "/mnt/c1";

fn on_mount(sandbox: &Sandbox, script: &str) -> Ran {
    sandbox.sh(Path::new(MNT), script)
}

/// The OSTs of a file, sorted.
fn osts(path: impl AsRef<Path>) -> Vec<u32> {
    let mut value = vec![0; 65536];
    let n = rustix::fs::getxattr(path.as_ref(), "lustre.lov", &mut value).unwrap();
    let mut osts: Vec<u32> = Layout::decode(&value[..n]).unwrap().stripes().iter().map(|s| s.ost).collect();
    osts.sort_unstable();
    osts
}

/// Waits until a command prints `want`. Other processes may set a value some moments later.
#[track_caller]
fn wait_until_prints(sandbox: &Sandbox, command: &str, want: &str) {
    let mut last = None;
    eventually(format!("{command} prints {want:?}"), || {
        let ran = sandbox.sh(Path::new("/"), command);
        let is_so = ran.out == want;
        if last.as_ref() != Some(&ran) {
            println!("{ran:?}");
            last = Some(ran);
        }
        is_so
    });
}

#[test]
fn persistent_params_survive_restarts_and_reach_new_processes() {
    Sandbox::enter("lasting-up", |s| {
        s.up("lustre", MNT);
        s.mount_again("/mnt/c2");
        let both =
            "osc.lustre-OST0001-osc-MDT0000.max_create_count=0\nosp.lustre-OST0001-osc-MDT0000.max_create_count=0\n";
        let set = on_mount(s, "lctl set_param -P os[cp].lustre-OST0001-*.max_create_count=0");
        assert_eq!(set, Ran { code: 0, out: both.into(), err: String::new() });
        // Of two settings that match a parameter, the later one counts.
        on_mount(s, "lctl set_param -n -P osc.*-osc-ff*.max_dirty_mb=32; lctl set_param -n -P osc.*OST0002-osc-ff*.max_dirty_mb=16M").ok();
        let dirty = "lctl get_param -n osc.*-osc-ff*.max_dirty_mb";
        let two = |osts: usize| [&["32", "32", "16"][..], &vec!["32"; osts - 3]].concat().join("\n") + "\n";
        // `lctl set_param -P` has waited until this process and the other mount's process set the
        // values.
        let per_ost = "for o in 0 1 2 3; do lctl get_param -n osc.*OST000$o-osc-ff*.max_dirty_mb; done | uniq -c | awk '{ print $1, $2 }'";
        assert_eq!(on_mount(s, per_ost).ok(), "4 32\n2 16\n2 32\n");
        on_mount(s, "lfs setstripe -c -1 wide && sync .").ok();
        assert_eq!(osts(Path::new(MNT).join("wide")), [0, 2, 3]);
        // A value that is set without -P stays until the process ends, whatever other settings the
        // MGS sends.
        on_mount(s, "lctl set_param -n osc.lustre-OST0003-*.max_dirty_mb=8; lctl pool_new lustre.p").ok();
        on_mount(s, "lctl set_param -n -P llite.*.statahead_max=7").ok();
        wait_until_prints(s, "lctl get_param -n llite.*.statahead_max", "7\n7\n");
        assert_eq!(on_mount(s, "lctl get_param -n osc.lustre-OST0003-*.max_dirty_mb").ok(), "8\n8\n");
        let log = on_mount(s, "lctl llog_print params").ok();
        assert_eq!(log.lines().count(), 4);
        assert_eq!(on_mount(s, "lctl get_param -n mgc.lustre.params | sort -u").ok(), log);

        s.sh(Path::new("/"), "sheen umount /mnt/c2").ok();
        let dir = s.dir().display().to_string();
        // The process holds a lock on this file as long as it lives.
        let kill = format!(
            "kill -9 $(sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p' {dir}/run.json); flock {dir}/run.json true; umount -l {MNT}"
        );
        for (stop, osts_now) in [(format!("sheen down --dir {dir}"), 4), (kill, 5)] {
            s.sh(Path::new("/"), &stop);
            // The second start has one OST more than before.
            let up = format!("sheen up --dir {dir} --mount {MNT} --osts {osts_now}");
            s.sh(Path::new("/"), &up).ok();
            assert_eq!(on_mount(s, dirty).ok(), two(osts_now));
            let wide = format!("wide{osts_now}");
            on_mount(s, &format!("lfs setstripe -c -1 {wide}")).ok();
            let all: Vec<u32> = (0..osts_now as u32).filter(|ost| *ost != 1).collect();
            assert_eq!(osts(Path::new(MNT).join(wide)), all);
            assert_eq!(on_mount(s, "lctl get_param -n llite.*.statahead_max").ok(), "7\n");
        }
        // After the setting is deleted, the value stays until the process ends.
        on_mount(s, "lctl set_param -P -d os[cp].lustre-OST0001-*.max_create_count").ok();
        assert_eq!(on_mount(s, "lctl get_param -n osp.*OST0001*.max_create_count").ok(), "0\n");
        s.sh(Path::new("/"), &format!("sheen down --dir {dir} && sheen up --dir {dir} --mount {MNT}")).ok();
        assert_eq!(on_mount(s, "lctl get_param -n osp.*OST0001*.max_create_count").ok(), "20000\n");
        assert_eq!(on_mount(s, "lctl llog_print params").ok().lines().count(), 3);
    });
}

#[test]
fn persistent_params_reach_separate_servers_and_mounts() {
    if !can_mount() || !is_root() {
        return println!("skipped: needs root and /dev/fuse");
    }
    Sandbox::enter("lasting-servers", |s| {
        let mut cluster = Cluster::start();
        let mount = cluster.mount();
        let ok = |script: &str| s.sh(&mount.mnt, script).ok();
        // Not in the mount's directory: there the shell itself would send requests to a server.
        let lctl = |script: &str| s.sh(Path::new("/"), script).ok();
        ok("set -e; lctl set_param -P osp.many-OST0001-*.active=0
            lctl set_param -P ldlm.namespaces.filter-many-OST*.lock_expand=0 osc.many-*-osc-ff*.max_rpcs_in_flight=3
            lctl set_param -P mdt.many-MDT0000.commit_interval_ms=777");
        let all = "lctl get_param -n osp.many-OST0001-*.active ldlm.namespaces.filter-many-OST*.lock_expand \
                   mdt.*.commit_interval_ms osc.*-osc-ff*.max_rpcs_in_flight";
        let want = "0\n0\n0\n777\n3\n3\n";
        assert_eq!(ok(all), want);
        // Each server may be killed. An MDT that restarts places no objects on an inactive OST, not
        // even at first.
        for kind in ["oss", "mds", "mgs"] {
            cluster.kill(kind);
            cluster.spawn(kind);
            wait_until_prints(s, all, want);
            ok(&format!("lfs setstripe -c -1 after-{kind}"));
            assert_eq!(osts(mount.path(&format!("after-{kind}"))), [0], "{kind}");
        }
        wait_until_prints(s, "lctl llog_print params | wc -l", "4\n");
        let later = cluster.mount_as("later");
        assert_eq!(ok("lctl get_param -n osc.*-osc-ff*.max_rpcs_in_flight"), "3\n3\n3\n3\n");
        let words = [OsStr::new("mount"), later.mnt.as_os_str()].map(OsStr::to_owned);
        drop(later);
        // Servers that are killed before it has left them would wait for it.
        eventually("the mount has left its servers", || processes(&words.each_ref().map(|w| w.as_os_str())).is_empty());
        // Servers that were down get the values that were set meanwhile.
        cluster.kill("oss");
        cluster.kill("mds");
        lctl(
            "lctl set_param -n -P ldlm.namespaces.filter-many-OST0000*.lock_expand=1 osp.many-OST0001-*.active=1 2>/dev/null",
        );
        cluster.spawn("oss");
        cluster.spawn("mds");
        wait_until_prints(s, all, "1\n1\n0\n777\n3\n3\n");
        wait_until_prints(
            s,
            &format!("cd {} && lfs setstripe -c -1 both && lfs getstripe -c both; rm both", mount.mnt.display()),
            "2\n\n",
        );
        // An OST is degraded from its start on: no object is placed there in between.
        ok("lctl set_param -n -P obdfilter.many-OST0001.degraded=1");
        for kind in ["oss", "mds"] {
            cluster.kill(kind);
        }
        for kind in ["oss", "mds"] {
            cluster.spawn(kind);
        }
        wait_until_prints(s, &format!("lfs df {} | grep -c 'OST:1. D$'", mount.mnt.display()), "1\n");
        for n in 0..4 {
            ok(&format!("lfs setstripe -c 1 spared{n}"));
            assert_eq!(osts(mount.path(&format!("spared{n}"))), [0]);
        }
        // A refused value is logged once, by the process that has the parameter.
        cluster.kill("mds");
        lctl("lctl set_param -n -P mdt.many-MDT0000.commit_interval_ms=0 2>/dev/null");
        cluster.spawn("mds");
        let refusals = || cluster.log().matches("rejects the value '0' of 'lctl set_param -P mdt.many").count();
        eventually("the parameter refuses the value", || refusals() > 0);
        ok("lctl pool_new many.p");
        assert_eq!(refusals(), 1);
    });
}

#[test]
fn ost_that_starts_without_its_mgs_uses_its_stored_settings() {
    Sandbox::enter("lasting-no-mgs", |s| {
        let mut cluster = Cluster::start();
        let get = "lctl get_param -n obdfilter.many-OST*.scrub_quiet_secs";
        let copies = [0, 1].map(|slot| cluster.base.join(format!("oss/{slot}/config.json")));
        let is_stored = |value: &str| {
            let has_it = |text: String| text.contains("scrub_quiet_secs") && text.contains(value);
            copies.iter().all(|copy| fs::read_to_string(copy).is_ok_and(has_it))
        };
        s.sh(Path::new("/"), "lctl set_param -n -P obdfilter.many-OST*.scrub_quiet_secs=77").ok();
        eventually("the OSTs have stored the setting", || is_stored("\"77\""));
        cluster.stop("oss");
        cluster.stop("mgs");
        cluster.spawn("oss");
        wait_until_prints(s, get, "77\n77\n");
        assert!(cluster.log().contains("using the permanent settings in"), "{}", cluster.log());
        cluster.kill("oss");
        copies.iter().for_each(|copy| fs::write(copy, "{\"fsname\": \"many\", \"ver").unwrap());
        cluster.spawn("oss");
        wait_until_prints(s, get, "60\n60\n");
        let at = copies[0].display().to_string();
        assert!(cluster.log().contains(&format!("{at} is not usable")), "{}", cluster.log());
        // With the MGS the OST gets its settings, and a new copy.
        cluster.spawn("mgs");
        wait_until_prints(s, get, "77\n77\n");
        eventually("the copies are usable", || is_stored("\"77\""));
        s.sh(Path::new("/"), "lctl set_param -n -P obdfilter.many-OST*.scrub_quiet_secs=88").ok();
        eventually("the OSTs have stored the new value", || is_stored("\"88\""));
    });
}
