//! Pools of OSTs: how administrators create them, and how users place files in them.

use std::path::Path;

use sheen_layout::Layout;
use sheen_tests::{Ran, can_mount, cluster::Cluster, is_root, run, sandbox::Sandbox, sheen, wait::eventually};

const MNT: &str = "/mnt/c1";

/// Returns the pool and the OSTs of a file.
fn pool_and_osts(path: impl AsRef<Path>) -> (Option<String>, Vec<u32>) {
    let mut value = vec![0; 65536];
    let n = rustix::fs::getxattr(path.as_ref(), "lustre.lov", &mut value).unwrap();
    let layout = Layout::decode(&value[..n]).unwrap();
    let mut osts: Vec<u32> = layout.stripes().iter().map(|s| s.ost).collect();
    osts.sort_unstable();
    (layout.pool().map(ToString::to_string), osts)
}

fn in_pool(name: &str, osts: &[u32]) -> (Option<String>, Vec<u32>) {
    (Some(name.to_owned()), osts.to_vec())
}

fn on_mount(sandbox: &Sandbox, script: &str) -> Ran {
    sandbox.sh(Path::new(MNT), script)
}

fn says(sandbox: &Sandbox, command: &str, code: i32, out: &str, err: &str) {
    let want = Ran { code, out: out.to_owned(), err: err.to_owned() };
    assert_eq!(on_mount(sandbox, command), want, "{command}");
}

/// Waits until a command prints `want`. Mounts may learn of a change some moments later.
#[track_caller]
fn wait_until_prints(sandbox: &Sandbox, command: &str, want: &str) {
    eventually(format!("{command} prints {want:?}"), || on_mount(sandbox, command).out == want);
}

/// Runs a test on a fresh file system with the pools `p1` on OSTs 0 and 1, and `p2` on OSTs 2 and
/// 3.
fn with_pools(name: &'static str, test: impl FnOnce(&Sandbox) + Send + 'static) {
    Sandbox::enter(name, |sandbox| {
        sandbox.up("lustre", MNT);
        let made = on_mount(
            sandbox,
            "set -e; lctl pool_new lustre.p1; lctl pool_add lustre.p1 OST0000 OST0001
            lctl pool_new lustre.p2; lctl pool_add lustre.p2 lustre-OST[0002-0003]",
        );
        assert_eq!(made.code, 0, "{}", made.err);
        test(sandbox);
    });
}

#[test]
fn pool_commands_print_what_lustre_prints() {
    Sandbox::enter("pools-print", |sandbox| {
        sandbox.up("lustre", MNT);
        sandbox.mount_again("/mnt/c2");
        let s = sandbox;
        says(s, "lctl pool_new lustre.p1", 0, "", "Pool lustre.p1 created\n");
        let added =
            "OST lustre-OST0000_UUID added to pool lustre.p1\nOST lustre-OST0001_UUID added to pool lustre.p1\n";
        says(s, "lctl pool_add lustre.p1 OST0000 OST0001", 0, "", added);
        let members = "Pool: lustre.p1\nlustre-OST0000_UUID\nlustre-OST0001_UUID\n";
        for tool in ["lctl", "lfs"] {
            says(s, &format!("{tool} pool_list lustre"), 0, "Pools from lustre:\nlustre.p1\n", "");
            says(s, &format!("{tool} pool_list {MNT}"), 0, "Pools from lustre:\nlustre.p1\n", "");
            says(s, &format!("{tool} pool_list lustre.p1"), 0, members, "");
            says(s, &format!("{tool} pool_list nosuch"), 2, "", "");
        }
        says(s, "lctl pool_new lustre.p1", 17, "", "pool_new: pool lustre.p1 already exists\n");
        says(s, "lctl pool_new p2", 22, "", "pool_new: Invalid argument\n");
        assert_eq!(on_mount(s, "lctl pool_new nofs.p2").code, 22);
        let stranger = "pool_add: lustre-OST0009_UUID is not part of the 'lustre' fs.\n";
        says(s, "lctl pool_add lustre.p1 OST0009", 19, "", stranger);
        says(s, "lctl pool_add lustre.nopool OST0001", 123, "", "pool_add: pool lustre.nopool not found\n");
        let values = "lov.lustre-MDT0000-mdtlov.pools.p1=\nlustre-OST0000_UUID\nlustre-OST0001_UUID\n";
        says(s, "lctl get_param lov.*-mdtlov.pools.*", 0, values, "");
        let each = "lov.lustre-clilov-*.pools.p1=\nlustre-OST0000_UUID\nlustre-OST0001_UUID\n";
        let of_mounts = "lctl get_param lov.*-clilov-*.pools.* | sed 's/-[0-9a-f]*[.]pools/-*.pools/'";
        // Both mounts learn of the pool.
        wait_until_prints(s, of_mounts, &each.repeat(2));
        for mount in [MNT, "/mnt/c2"] {
            says(s, &format!("getfattr --absolute-names -n sheen.pools --only-values {mount}"), 0, "p1 0-1\n", "");
        }

        let df = on_mount(s, "lfs df -p lustre.p1 | sed 's/ .*//'").ok();
        let mount = "UUID\nlustre-MDT0000_UUID\nlustre-OST0000_UUID\nlustre-OST0001_UUID\n\nfilesystem_summary:\n\n";
        assert_eq!(df, mount.repeat(2), "both mounts");
        let summary = |command: &str| -> u64 {
            let out = on_mount(s, command).ok();
            let line = out.lines().find(|l| l.starts_with("filesystem_summary")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let (pool, all) = (summary("lfs df -p p1 /mnt/c1"), summary("lfs df /mnt/c1"));
        assert!(pool * 19 < all * 10 && pool * 21 > all * 10, "half of the OSTs: {pool} of {all}");

        let removed = "OST lustre-OST0001_UUID removed from pool lustre.p1\n";
        says(s, "lctl pool_remove lustre.p1 OST0001", 0, "", removed);
        says(s, "lfs pool_list lustre.p1", 0, "Pool: lustre.p1\nlustre-OST0000_UUID\n", "");
        says(s, "lctl pool_destroy lustre.p1", 0, "", "Pool lustre.p1 destroyed\n");
        says(s, "lctl pool_destroy lustre.p1", 2, "", "pool_destroy: pool lustre.p1 not found\n");
        says(s, "lfs pool_list lustre", 0, "Pools from lustre:\n", "");
        assert_eq!(on_mount(s, "lctl get_param lov.*-mdtlov.pools.*").code, 2);
        // Both mounts learn that the pool is deleted.
        wait_until_prints(s, of_mounts, "");
        says(s, "getfattr -n sheen.pools --only-values .", 0, "", "");
    });
}

#[test]
fn setstripe_with_a_pool_places_files_on_its_osts() {
    with_pools("pools-place", |s| {
        for (command, file, want) in [
            ("lfs setstripe -p p1 -c -1 a", "a", in_pool("p1", &[0, 1])),
            ("lfs setstripe -p lustre.p2 -c 4 b", "b", in_pool("p2", &[2, 3])),
            ("lfs setstripe -p p1 -C 4 c", "c", in_pool("p1", &[0, 0, 1, 1])),
            ("lfs setstripe -p p1 -o 0,1 d", "d", in_pool("p1", &[0, 1])),
            ("lfs setstripe -p p1 -i 1 e", "e", in_pool("p1", &[1])),
            ("lfs setstripe -p none -c -1 f", "f", (None, vec![0, 1, 2, 3])),
        ] {
            on_mount(s, command).ok();
            assert_eq!(pool_and_osts(Path::new(MNT).join(file)), want, "{command}");
        }
        says(s, "lfs getstripe -p a", 0, "p1\n\n", "");
        let text = on_mount(s, "lfs getstripe a").ok();
        assert!(text.contains("\nlmm_pool:          p1\n\tobdidx"), "{text}");
        let refused = |file| format!("lfs setstripe: setstripe error for '{file}': Invalid argument\n");
        says(s, "lfs setstripe -p p1 -i 3 g", 22, "", &refused("g"));
        says(s, "lfs setstripe -p p1 -o 3 h", 22, "", &refused("h"));
        let unknown = "lfs setstripe: pool 'nopool fsname lustre' does not exist: No such file or directory (2)\n";
        says(s, "lfs setstripe -p nopool i", 22, "", unknown);
        on_mount(s, "lctl pool_new lustre.empty").ok();
        assert_eq!(on_mount(s, "lfs setstripe -p empty j").code, 22);
        // Data that is written to such files is read back.
        let script =
            "head -c 9000000 /dev/urandom > a; cat a > c; cmp a c && lfs setstripe -p p2 k && cp a k && cmp a k";
        on_mount(s, script).ok();
        assert!(pool_and_osts(Path::new(MNT).join("k")).1[0] >= 2);
    });
}

#[test]
fn new_files_inherit_their_directorys_pool_while_it_exists() {
    with_pools("pools-inherit", |s| {
        let at = |file: &str| pool_and_osts(Path::new(MNT).join(file));
        on_mount(s, "mkdir d && lfs setstripe -p p1 -c -1 d && touch d/f && mkdir d/s && touch d/s/f").ok();
        assert_eq!(at("d/f"), in_pool("p1", &[0, 1]));
        assert_eq!(at("d/s/f"), in_pool("p1", &[0, 1]));
        says(s, "lfs getstripe -dp d/s", 0, "p1\n\n", "");
        let refused = "lfs setstripe: setstripe error for 'd': Invalid argument\n";
        says(s, "lfs setstripe -p p1 -i 3 d", 22, "", refused);

        on_mount(s, "lctl pool_remove lustre.p1 OST0001 && touch d/one").ok();
        assert_eq!(at("d/one"), in_pool("p1", &[0]));
        on_mount(s, "lctl pool_destroy lustre.p1 && touch d/none").ok();
        assert_eq!(at("d/none"), (None, vec![0, 1, 2, 3]));
        assert_eq!(at("d/f"), in_pool("p1", &[0, 1]), "existing files stay");
        on_mount(s, "lctl pool_new lustre.p1 && touch d/empty && lctl pool_add lustre.p1 OST0003 && touch d/back").ok();
        assert_eq!(at("d/empty"), (None, vec![0, 1, 2, 3]));
        assert_eq!(at("d/back"), in_pool("p1", &[3]));
    });
}

#[test]
fn pools_survive_a_restart() {
    with_pools("pools-restart", |s| {
        on_mount(s, "mkdir d && lfs setstripe -p p2 -c -1 d && sync .").ok();
        let dir = s.dir().display().to_string();
        s.sh(Path::new("/"), &format!("sheen down --dir {dir}")).ok();
        s.up("lustre", MNT);
        on_mount(s, "touch d/f").ok();
        assert_eq!(pool_and_osts(Path::new(MNT).join("d/f")), in_pool("p2", &[2, 3]));
        let list = "Pools from lustre:\nlustre.p1\nlustre.p2\n";
        says(s, "lfs pool_list lustre", 0, list, "");
        says(s, "lctl pool_list lustre", 0, list, "");
    });
}

#[test]
fn separate_servers_learn_pools_and_keep_them_after_kills() {
    if !can_mount() || !is_root() {
        return println!("skipped: needs root and /dev/fuse");
    }
    Sandbox::enter("pools-servers", |s| {
        let mut cluster = Cluster::start();
        let mount = cluster.mount();
        let script = "set -e; lctl pool_new many.p; lctl pool_add many.p OST0001
            lfs setstripe -p p f; mkdir d; lfs setstripe -p p d; touch d/f; lfs pool_list .";
        assert_eq!(s.sh(&mount.mnt, script).ok(), "Pools from many:\nmany.p\n");
        assert_eq!(pool_and_osts(mount.path("f")), in_pool("p", &[1]));
        assert_eq!(pool_and_osts(mount.path("d/f")), in_pool("p", &[1]));
        // The MGS has its pools again after a restart. The MDT keeps them meanwhile.
        cluster.kill("mgs");
        s.sh(&mount.mnt, "touch d/g").ok();
        assert_eq!(pool_and_osts(mount.path("d/g")), in_pool("p", &[1]));
        let none = s.sh(&mount.mnt, "lctl pool_destroy many.p");
        assert_eq!(none.code, 19, "{}", none.err);
        cluster.spawn("mgs");
        let listed = || run(sheen(), ["lctl", "pool_list", "many.p"]).out;
        eventually("the MGS lists its pools", || listed() == "Pool: many.p\nmany-OST0001_UUID\n");
        s.sh(&mount.mnt, "lctl pool_add many.p OST0000 && lfs setstripe -p p -c -1 both").ok();
        assert_eq!(pool_and_osts(mount.path("both")), in_pool("p", &[0, 1]));
        // An MDT that was killed has them again, too.
        cluster.kill("mds");
        cluster.spawn("mds");
        s.sh(&mount.mnt, "lfs setstripe -p p -c -1 after").ok();
        assert_eq!(pool_and_osts(mount.path("after")), in_pool("p", &[0, 1]));
    });
}
