//! Draining an OST while its files are used: `osp.*.max_create_count=0` stops new objects, and
//! `lfs migrate` moves existing ones. `obdfilter.*.degraded=1` spares an OST whose disks are being
//! repaired.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rustix::io::Errno;
use sheen_tests::{
    Ran,
    cluster::{Cluster, bash},
    mounts::{LIMIT, TwoMounts, Watch},
    noise,
    posix::{layout, rw},
    progress::{Race, at_least},
    run_command, sheen, two_mounts,
    wait::{eventually, let_pass},
};

/// Pause between two lines of a log that is migrated meanwhile.
const LOG_PAUSE: Duration = Duration::from_millis(200);
const M: usize = 1 << 20;

fn tool(of: &str, line: &str) -> Ran {
    let mut command = Command::new(sheen());
    command.arg(of).args(line.split(' '));
    run_command(command)
}

/// Sets `max_create_count` of OST 1: 0 stops new objects.
fn create_count(two: &TwoMounts, count: &str) -> Ran {
    tool("lctl", &format!("set_param osp.{}-OST0001-osc-MDT0000.max_create_count={count}", two.fsname))
}

/// Returns the OSTs of each component that has objects.
fn osts(path: &Path) -> Vec<BTreeSet<u32>> {
    let of = |objects: &[sheen_layout::Stripe]| objects.iter().map(|o| o.ost).collect::<BTreeSet<_>>();
    layout(path).components().iter().map(|c| of(c.objects())).filter(|osts| !osts.is_empty()).collect()
}

fn on(osts: &[u32]) -> BTreeSet<u32> {
    osts.iter().copied().collect()
}

#[test]
fn max_create_count_0_stops_new_objects_and_existing_ones_stay_in_use() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let lfs = |line: &str| tool("lfs", &line.replace("@", at.a.to_str().unwrap()));
    lfs("setstripe -c 4 -S 64K @/old").ok();
    lfs("setstripe -E 1M -c 1 -S 64K -E 2M -c 4 -S 64K -E -1 -C 8 -S 64K @/steps").ok();
    lfs("setstripe -E 64M -c 1 -S 64K -i 0 -E -1 -z 64M -c 1 -i 1 -S 64K @/grows").ok();
    lfs("setstripe -E 1M -c 1 -i 0 -E -1 -o 1,2 @/listed").ok();
    let data = noise(1, M);
    let (old, elsewhere) = (rw(&at.a("old")), rw(&at.b("old")));
    old.write_all_at(&data, 0).unwrap();

    assert!(create_count(&two, "0").ok().ends_with("max_create_count=0\n"));
    // Existing files stay in use, also where their objects on this OST have no data yet.
    old.write_all_at(&data, M as u64).unwrap();
    elsewhere.write_all_at(&data, 2 * M as u64).unwrap();
    elsewhere.sync_all().unwrap();
    let read = fs::read(at.a("old")).unwrap();
    assert!(read.chunks(M).all(|part| part == data) && read.len() == 3 * M);
    // The OST stays active.
    for (param, value) in [("lod.{}-*.activeobd", "4"), ("osp.{}-OST0001-*.active", "1")] {
        assert!(two.param(param).ends_with(&format!("={value}\n")), "{param}");
    }
    assert!(lfs("osts @").ok().contains(&format!("1: {}-OST0001_UUID ACTIVE", two.fsname)));
    assert!(lfs("df @").ok().contains("[OST:1]"));

    // New objects are created elsewhere, for each mount and each way to choose stripes.
    for n in 0..12 {
        fs::write(if n % 2 == 0 { at.a(&format!("f{n}")) } else { at.b(&format!("f{n}")) }, "new").unwrap();
        assert_eq!(osts(&at.a(&format!("f{n}"))), [on(&[0, 2, 3])]);
    }
    for (options, osts_now, stripes) in
        [("-c -1", &[0, 2, 3][..], 3), ("-c 4", &[0, 2, 3], 3), ("-C 8", &[0, 2, 3], 8), ("-C -2", &[0, 2, 3], 6)]
    {
        lfs(&format!("setstripe {options} @/new")).ok();
        assert_eq!(osts(&at.b("new")), [on(osts_now)], "{options}");
        assert_eq!(layout(&at.b("new")).stripe_count(), stripes, "{options}");
        fs::remove_file(at.a("new")).unwrap();
    }
    // A first OST is a hint, a list is not.
    lfs("setstripe -i 1 -c 1 @/hinted").ok();
    assert_eq!(osts(&at.a("hinted")), [on(&[2])]);
    let refused = lfs("setstripe -o 1,2 @/insisted");
    assert!(refused.code == 121 && refused.err.contains("inactive OST among your specified 2 OST(s)"), "{refused:?}");
    // Components that are instantiated now avoid the OST as well.
    let steps = rw(&at.b("steps"));
    steps.write_all_at(&data, M as u64).unwrap();
    steps.write_all_at(&data, 2 * M as u64).unwrap();
    assert_eq!(osts(&at.a("steps"))[1..], [on(&[0, 2, 3]), on(&[0, 2, 3])]);
    let listed = rw(&at.a("listed")).write_at(b"x", M as u64).map_err(|e| Errno::from_io_error(&e));
    assert_eq!(listed, Err(Some(Errno::from_raw_os_error(121))), "EREMOTEIO: no other OST is used");
    rw(&at.b("grows")).write_all_at(b"grown", 64 * M as u64).unwrap();
    assert!(osts(&at.a("grows"))[1].is_disjoint(&on(&[1])), "{:?}", osts(&at.a("grows")));

    // The older name of the parameter.
    assert!(two.param("osc.{}-OST0001-osc-MDT0000.max_create_count").ends_with("=0\n"));
    // A change of the configuration does not reset the value.
    tool("lctl", &format!("pool_new {}.p", two.fsname)).ok();
    tool("lctl", &format!("pool_add {}.p OST0001", two.fsname)).ok();
    assert!(two.param("osp.{}-OST0001-*.max_create_count").ends_with("=0\n"));
    let refused = lfs("setstripe -p p @/pooled");
    assert_eq!(refused.code, 28, "ENOSPC: no OST of the pool takes new objects; {refused:?}");
    for bad in ["-1", "20001"] {
        let refused = create_count(&two, bad);
        assert!(refused.code == 34 && refused.err.contains("accepts 0 to 20000"), "{bad}: {refused:?}");
    }

    // Creation is allowed again.
    create_count(&two, "20000").ok();
    lfs("setstripe -c -1 @/wide").ok();
    assert_eq!(osts(&at.b("wide")), [on(&[0, 1, 2, 3])]);
    rw(&at.b("listed")).write_all_at(b"x", M as u64).unwrap();
    assert_eq!(osts(&at.a("listed"))[1], on(&[1, 2]));
}

/// Follows `docs/administration.md` while programs write, on the default layout of a new file
/// system and on others.
#[test]
fn migrate_empties_an_ost_while_programs_write() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let run = |script: &str| {
        let script = script.replace("lfs ", &format!("{} lfs ", sheen().display()));
        bash(&at.a, &script).ok()
    };
    run(
        "lfs setstripe -E 64K -L mdt -E 1M -c 1 -i 1 -S 64K -E -1 -c 4 -S 64K . && mkdir sub && lfs setstripe -c 1 -i 1 sub",
    );
    let names: Vec<PathBuf> =
        (0..6).map(|n| ["small", "sub/f", "large"][n % 3].to_owned() + &n.to_string()).map(PathBuf::from).collect();
    let data = |n: usize| noise(n as u64, [1000, 300_000, 3 * M + 5][n % 3]);
    for (n, name) in names.iter().enumerate() {
        fs::write(at.a.join(name), data(n)).unwrap();
    }
    let log = rw(&at.b("sub/log"));
    assert_eq!(run("lfs find . --type f --ost 1 | wc -l"), "5\n");

    create_count(&two, "0").ok();
    let (race, mut lines) = (Race::new([at_least(1)]), 0);
    thread::scope(|scope| {
        let emptying = race.party(0);
        let writer = scope.spawn(|| {
            let mut lines = 0;
            while race.goes_on() {
                log.write_all_at(&[b'a' + (lines % 26) as u8; 1000], 1000 * lines).unwrap();
                lines += 1;
                let_pass(LOG_PAUSE);
            }
            lines
        });
        let empty =
            "lfs find . --type f --ost 1 --print0 | lfs migrate -0 --block; lfs find . --type f --ost 1 | wc -l";
        eventually("the OST becomes empty", || run(empty) == "0\n");
        emptying.did_one();
        lines = writer.join().unwrap();
    });
    for (n, name) in names.iter().enumerate() {
        assert!(fs::read(at.b.join(name)).unwrap() == data(n), "{}", name.display());
    }
    let written = fs::read(at.a("sub/log")).unwrap();
    assert!(written.chunks(1000).zip(0..).all(|(line, i)| line == [b'a' + (i % 26) as u8; 1000]));
    assert_eq!(written.len() as u64, 1000 * lines);
    assert!(osts(&at.a("large2")).iter().all(|osts| osts.is_disjoint(&on(&[1]))));
    // The objects are destroyed a moment later.
    let left = || two.fs.sh("find ../fs/ost1 -path '*/O/*' -type f -size +0 | wc -l").ok();
    eventually("no objects are left", || left() == "0\n");
    create_count(&two, "20000").ok();
    run("lfs setstripe -c 1 -i 1 again");
    assert_eq!(osts(&at.b("again")), [on(&[1])]);
}

#[test]
fn degraded_ost_gets_no_new_objects_and_is_marked_in_df() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let lfs = |line: &str| tool("lfs", &line.replace("@", at.a.to_str().unwrap()));
    let degraded = |on: u8| tool("lctl", &format!("set_param obdfilter.{}-OST0001.degraded={on}", two.fsname)).ok();
    let marked = |line: &str| {
        let out = lfs(line).ok();
        out.lines().filter(|l| l.ends_with(" D")).map(|l| l.split('[').nth(1).map(str::to_owned)).collect::<Vec<_>>()
    };
    fs::write(at.a("before"), noise(2, M)).unwrap();
    assert_eq!(marked("df @"), []);
    assert!(degraded(1).ends_with("OST0001.degraded=1\n"));
    for df in ["df @", "df -i @", "df -hv @"] {
        assert_eq!(marked(df), [Some("OST:1] D".to_owned())], "{df}");
    }
    // The MDT learns of it with its next query of free space, a second after the last one.
    let mut made = 0;
    let mut gets_one = || {
        made += 1;
        lfs(&format!("setstripe -c 1 @/f{made}")).ok();
        osts(&at.b(&format!("f{made}"))) == [on(&[1])]
    };
    // More files than OSTs: OSTs that are equally full take turns.
    eventually("new files avoid the OST", || (0..12).all(|_| !gets_one()));
    for (options, osts_now) in [
        ("-c 3", &[0, 2, 3][..]),
        ("-c -1", &[0, 1, 2, 3]),
        ("-c 4", &[0, 1, 2, 3]),
        ("-i 1 -c 1", &[1]),
        ("-o 1,2", &[1, 2]),
    ] {
        lfs(&format!("setstripe {options} @/new")).ok();
        assert_eq!(osts(&at.b("new")), [on(osts_now)], "{options}");
        fs::remove_file(at.a("new")).unwrap();
    }
    // Existing objects stay in use.
    assert!(fs::read(at.b("before")).unwrap() == noise(2, M));
    rw(&at.b("before")).write_all_at(b"more", M as u64).unwrap();
    degraded(0);
    assert_eq!(marked("df @"), []);
    eventually("the OST gets objects again", gets_one);
}

/// `lfs find` by OST does not wait for a disconnected OST, not even on a mount that has nothing
/// cached.
#[test]
fn find_by_ost_does_not_wait_for_a_disconnected_ost() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let (mount, cold) = (cluster.mount(), cluster.mount_as("cold"));
    let _watch = Watch::over(&[&mount.mnt, &cold.mnt], LIMIT);
    fs::create_dir(mount.path("d")).unwrap();
    let lfs = |at: &Path, line: &str| {
        let mut command = Command::new(sheen());
        command.arg("lfs").args(line.split(' ')).current_dir(at);
        run_command(command).ok()
    };
    for (name, options) in [("d/zero", "-c 1 -i 0"), ("d/one", "-c 1 -i 1"), ("d/both", "-c 2")] {
        lfs(&mount.mnt, &format!("setstripe {options} {name}"));
        fs::write(mount.path(name), noise(4, M)).unwrap();
        File::open(mount.path(name)).unwrap().sync_all().unwrap();
    }
    cluster.kill("oss");
    // One mount has cached the files and loses its connections, the other one has never had any.
    // The OSTs stay down until both are done.
    for at in [&mount.mnt, &cold.mnt] {
        let found = lfs(at, "find . --type f --ost 1");
        assert_eq!(found.lines().collect::<BTreeSet<_>>(), ["./d/both", "./d/one"].into());
        assert_eq!(lfs(at, "find . --type f -c 2 -printf %p:%Lo"), "./d/both:[0,1]");
    }
    cluster.spawn("oss");
    assert!(fs::read(cold.path("d/both")).unwrap() == noise(4, M));
}
