//! Self-extending components (`lfs setstripe -z`) on OSTs that are small, nearly full, inactive or
//! down. A file grows as on Lustre, and continues on another OST before its OST is full.
//!
//! Each OST lies on a device of its own, whose space a test can take away.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    fs::FallocateFlags,
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use sheen_tests::{
    Guarded,
    cluster::{Cluster, bash},
    mounts::{LIMIT, Watch},
    noise,
    posix::{layout, rw},
    sandbox::Sandbox,
    sheen,
    wait::{eventually, let_pass, while_down},
};

const M: u64 = 1 << 20;
/// `u64::MAX` in MiB, as [`shape`] returns it.
const EOF: u64 = 0;
/// Before the MDT gives a file objects, it asks the OSTs for their free space if it last asked a
/// second ago. No parameter shows that time, so a test lets this time pass. A longer time does no
/// harm.
const VIEW_AGE: Duration = Duration::from_millis(1100);

/// A file system whose OSTs have chosen sizes, mounted twice.
struct Stage<'a> {
    sandbox: &'a Sandbox,
    a: PathBuf,
    b: PathBuf,
}

/// Runs a test with OSTs of these sizes, in MiB.
fn stage(name: &str, sizes: [u64; 4], test: impl FnOnce(&Stage) + Send + 'static) {
    Sandbox::enter(name, move |sandbox| {
        for (i, size) in sizes.iter().enumerate() {
            let dir = sandbox.dir().join(format!("ost{i}"));
            fs::create_dir_all(&dir).unwrap();
            sandbox.sh(&dir, &format!("mount -t tmpfs -o mode=755,size={size}m none {}", dir.display())).ok();
        }
        let (a, b) = (PathBuf::from("/mnt/a"), PathBuf::from("/mnt/b"));
        sandbox.up("small", "/mnt/a");
        sandbox.mount_again("/mnt/b");
        let _watch = Watch::over(&[&a, &b], LIMIT);
        test(&Stage { sandbox, a, b });
    });
}

impl Stage<'_> {
    #[track_caller]
    fn sh(&self, script: &str) -> String {
        self.sandbox.sh(&self.a, script).ok()
    }

    fn ost(&self, index: u32) -> PathBuf {
        self.sandbox.dir().join(format!("ost{index}"))
    }

    /// MiB free on the device of an OST.
    fn free(&self, index: u32) -> u64 {
        let device = rustix::fs::statvfs(self.ost(index)).unwrap();
        device.f_bavail * device.f_frsize / M
    }

    /// Fills an OST until it has `mib` MiB left, and waits until the MDT's view of free space
    /// expires.
    fn leave(&self, index: u32, mib: u64) {
        let filler = OpenOptions::new().write(true).create(true).truncate(false).open(self.ost(index).join("filler"));
        let (filler, free) = (filler.unwrap(), self.free(index));
        let (at, more) = (filler.metadata().unwrap().len(), free.checked_sub(mib).expect("it has less already") * M);
        rustix::fs::fallocate(&filler, FallocateFlags::empty(), at, more).unwrap();
        let_pass(VIEW_AGE);
    }
}

/// Returns the extents of the components that are not extensions, and their OSTs. Extents are in
/// MiB, with [`EOF`] for no end.
fn shape(path: &Path) -> Vec<(u64, u64, Vec<u32>)> {
    let mib = |at| if at == u64::MAX { EOF } else { at / M };
    let (layout, mut shape) = (layout(path), Vec::new());
    for c in layout.components().iter().filter(|c| !c.is_extension()) {
        shape.push((mib(c.start), mib(c.end), c.objects().iter().map(|s| s.ost).collect()));
    }
    shape
}

/// Returns bytes that do not repeat at multiples of a stripe or object size.
fn bytes(seed: u64, mib: u64) -> Vec<u8> {
    let mut bytes = noise(seed, 1_000_003).repeat(mib as usize + mib as usize / 16 + 1);
    bytes.truncate((mib * M) as usize);
    bytes
}

/// Writes the bytes `from..to` of `data` at these offsets.
#[track_caller]
fn put(file: &File, data: &[u8], from: u64, to: u64) {
    for at in (from..to).step_by(1 << 20) {
        let end = to.min(at + M);
        file.write_all_at(&data[at as usize..end as usize], at).unwrap();
    }
}

/// Asserts that a file has these bytes and no others.
#[track_caller]
fn assert_holds(path: &Path, data: &[u8]) {
    let found = fs::read(path).unwrap();
    assert_eq!(found.len(), data.len(), "of {}", path.display());
    let wrong = || found.iter().zip(data).position(|(a, b)| a != b);
    assert!(found == data, "{}: byte {:?} is not what was written", path.display(), wrong());
}

#[test]
fn component_extends_until_its_ost_is_low_and_repeats_on_another_ost() {
    stage("grow", [300, 300, 300, 300], |stage| {
        stage.sh("lfs setstripe -E -1 -c 1 -i 0 -z 64M f");
        let (a, b) = (stage.a.join("f"), stage.b.join("f"));
        let (data, file) = (bytes(1, 200), rw(&a));
        stage.leave(0, 150);
        assert_eq!(shape(&b), [(0, 64, vec![0])]);
        put(&file, &data, 0, 64 * M);
        assert_eq!(shape(&b), [(0, 64, vec![0])], "a component grows only if a write goes past its end");
        put(&file, &data, 64 * M, 100 * M);
        assert_eq!(shape(&b), [(0, 128, vec![0])]);
        let said = stage.sh("lfs getstripe f");
        let count = |what: &str| said.lines().filter(|l| l.trim() == what).count();
        assert_eq!((count("lcme_extent.e_start: 134217728"), count("lcme_extent.e_end:   EOF")), (1, 1), "{said}");
        assert_eq!((count("lcme_flags:          extension"), count("lmm_extension_size: 67108864")), (1, 1), "{said}");
        // 22 MiB are left: too few for another 64 MiB.
        put(&file, &data, 100 * M, 130 * M);
        let found = shape(&b);
        assert_eq!((found.len(), found[0].clone()), (2, (0, 128, vec![0])));
        assert!(found[1].0 == 128 && found[1].1 == 192 && found[1].2 != [0] && found[1].2.len() == 1, "{found:?}");
        // The other mount continues. The repeated component grows as the first one did.
        put(&rw(&b), &data, 130 * M, 200 * M);
        let found = shape(&a);
        assert_eq!((found.len(), found[1].0, found[1].1), (2, 128, 256), "{found:?}");
        file.sync_all().unwrap();
        assert_holds(&b, &data);
        let said = stage.sh("lfs getstripe f");
        assert!(said.contains("lcme_extent.e_start: 268435456"), "the remaining extension: {said}");
    });
}

#[test]
fn next_component_takes_over_where_an_ost_runs_low() {
    stage("spill", [300, 300, 300, 300], |stage| {
        stage.sh("lfs setstripe -E 256M -c 1 -i 0 -z 64M -E 1G -c 2 -S 1M -z 128M -E -1 -c 4 -S 1M f");
        let (a, b) = (stage.a.join("f"), stage.b.join("f"));
        let data = bytes(2, 70);
        stage.leave(0, 100);
        let (first, second) = (rw(&a), rw(&b));
        put(&first, &data, 0, 64 * M);
        // 36 MiB are left there: the second component begins here, on two other OSTs.
        put(&second, &data, 64 * M, 70 * M);
        let found = shape(&a);
        assert_eq!((found.len(), &found[0], found[1].0, found[1].1), (3, &(0, 64, vec![0]), 64, 192), "{found:?}");
        let osts: BTreeSet<u32> = found[1].2.iter().copied().collect();
        assert!(osts.len() == 2 && !osts.contains(&0), "{found:?}");
        // None of the three OSTs has another 64 MiB: the third component begins, on OSTs that are
        // not full.
        for ost in osts {
            stage.leave(ost, 60);
        }
        first.write_all_at(b"far away", 192 * M).unwrap();
        let found = shape(&b);
        assert_eq!((found.len(), found[1].1, found[2].0, found[2].1, found[2].2.len()), (3, 192, 192, EOF, 4));
        for path in [&a, &b] {
            let all = fs::read(path).unwrap();
            assert!(all.len() as u64 == 192 * M + 8 && all.ends_with(b"far away"));
            assert!(all[..70 << 20] == data && all[70 << 20..192 << 20] == vec![0; 122 << 20]);
        }
    });
}

#[test]
fn appends_of_two_mounts_succeed_until_all_osts_are_full() {
    const RECORD: usize = 300_007;
    stage("log", [200, 200, 200, 200], |stage| {
        stage.sh("lfs setstripe -E -1 -c 1 -S 1M -z 64M log");
        for (ost, mib) in [(0, 70), (1, 100), (2, 20), (3, 90)] {
            stage.leave(ost, mib);
        }
        // Appends records until ENOSPC, and returns the bytes written of each. The last number is
        // smaller if the space ended within a record.
        let append = |path: PathBuf, who: u8| {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            let mut written = Vec::new();
            for n in 0..2000_u32 {
                let mut record = vec![who; RECORD];
                record[1..5].copy_from_slice(&n.to_le_bytes());
                match file.write(&record) {
                    Ok(len) => written.push(len),
                    Err(e) => {
                        assert_eq!(Errno::from_io_error(&e), Some(Errno::NOSPC));
                        return written;
                    }
                }
                if written.last() != Some(&RECORD) {
                    return written;
                }
            }
            panic!("the OSTs never become full");
        };
        let (a, b) = (stage.a.join("log"), stage.b.join("log"));
        let written = thread::scope(|scope| {
            let writers = [scope.spawn(|| append(a.clone(), 1)), scope.spawn(|| append(b.clone(), 2))];
            writers.map(|writer| writer.join().unwrap())
        });
        let free: Vec<u64> = (0..4).map(|ost| stage.free(ost)).collect();
        let total: usize = written.iter().flatten().sum();
        println!("{} MiB written, MiB left: {free:?}, {:?}", total >> 20, shape(&a));
        assert!(free.iter().all(|mib| *mib < 4), "ENOSPC, though OSTs have room: {free:?} MiB");
        for path in [&a, &b] {
            let all = fs::read(path).unwrap();
            // Part of the record that got ENOSPC may be in the file.
            assert!((total..total + RECORD).contains(&all.len()), "{} instead of {total} bytes", all.len());
            let (mut at, mut seen) = (0, [0_usize; 2]);
            while at < total {
                let who = usize::from(all[at]) - 1;
                let len = written[who][seen[who]];
                assert_eq!(all[at + 1..at + 5], (seen[who] as u32).to_le_bytes(), "in order, at {at}");
                assert!(all[at + 5..at + len] == vec![who as u8 + 1; len - 5], "at {at}");
                (at, seen[who]) = (at + len, seen[who] + 1);
            }
            assert_eq!(seen.to_vec(), written.iter().map(Vec::len).collect::<Vec<_>>());
        }
    });
}

/// The OSTs that each component is on.
fn osts(path: &Path) -> Vec<BTreeSet<u32>> {
    layout(path).components().iter().map(|c| c.objects().iter().map(|s| s.ost).collect()).collect()
}

#[test]
fn new_components_avoid_full_and_inactive_osts() {
    stage("avoid", [150, 150, 150, 150], |stage| {
        for name in ["f", "g"] {
            stage.sh(&format!("lfs setstripe -E 1M -c 1 -S 64K -E 2M -c 4 -S 64K -E -1 -C 8 -S 64K {name}"));
        }
        stage.sh("lfs setstripe -E 64M -c 1 -S 64K -i 1 -E -1 -c 4 -S 1M -z 64M grows; echo begun > grows");
        let data = noise(3, 3 << 20);
        // At the creation all OSTs were usable.
        stage.leave(1, 0);
        stage.sh("lctl set_param osp.small-OST0002-osc-MDT0000.active=0");
        let (f, g, grows) = (stage.a.join("f"), stage.b.join("g"), stage.b.join("grows"));
        put(&rw(&f), &data, M, 3 * M);
        let on = |osts: &[u32]| osts.iter().copied().collect::<BTreeSet<u32>>();
        assert_eq!(osts(&f)[1..], [on(&[0, 3]), on(&[0, 3])]);
        assert_eq!(layout(&f).components()[2].objects().len(), 8, "as many stripes as were asked for");
        rw(&grows).write_all_at(b"grown", 64 * M).unwrap();
        assert_eq!(osts(&grows)[..2], [on(&[1]), on(&[0, 3])]);
        assert_eq!(shape(&grows)[1].1, 128);
        // A component with listed OSTs gets no other ones.
        stage.sh("lfs setstripe -E 1M -c 1 -E -1 -o 2,3 listed");
        let listed = rw(&stage.a.join("listed"));
        let refused = listed.write_at(b"x", M).map_err(|e| Errno::from_io_error(&e));
        assert_eq!(refused, Err(Some(Errno::from_raw_os_error(121))), "EREMOTEIO: there or nowhere");
        // OSTs that are usable again get new objects again.
        fs::remove_file(stage.ost(1).join("filler")).unwrap();
        stage.sh("lctl set_param osp.small-OST0002-osc-MDT0000.active=1");
        let_pass(VIEW_AGE);
        put(&rw(&g), &data, M, 3 * M);
        assert_eq!(osts(&g)[1..], [on(&[0, 1, 2, 3]), on(&[0, 1, 2, 3])]);
        listed.write_all_at(b"x", M).unwrap();
        for path in [&stage.b.join("f"), &stage.a.join("g")] {
            let all = fs::read(path).unwrap();
            assert!(all[..1 << 20].iter().all(|byte| *byte == 0) && all[1 << 20..] == data[1 << 20..]);
        }
    });
}

#[test]
fn new_components_avoid_disconnected_osts() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let third = Oss::start(&cluster);
    let (a, b) = (cluster.mount_as("a"), cluster.mount_as("b"));
    let lfs = |line: &str| bash(&a.mnt, &format!("{} lfs {line}", sheen().display())).ok();
    let wait_for_three = || {
        eventually("the MDT places objects on three OSTs", || {
            lfs("setstripe -c 3 probe");
            let found = layout(&a.path("probe")).stripe_count();
            fs::remove_file(a.path("probe")).unwrap();
            found == 3
        });
    };
    wait_for_three();
    let data = noise(4, 3 << 20);
    for name in ["killed", "stopped", "back"] {
        lfs(&format!("setstripe -E 1M -c 1 -i 0 -S 64K -E 2M -c 3 -S 64K -E -1 -C 6 -S 64K {name}"));
    }
    let write = |name: &str, expected: &[u32]| {
        let (on_a, on_b, data) = (a.path(name), b.path(name), data.clone());
        let expected: BTreeSet<u32> = expected.iter().copied().collect();
        // A stopped or killed OST stays so until this thread ends.
        while_down(format!("a write to '{name}'"), move || {
            put(&rw(&on_a), &data, 0, 3 << 20);
            assert_eq!(osts(&on_b)[1..], [expected.clone(), expected]);
            assert_holds(&on_b, &data);
        });
    };
    third.signal(Signal::STOP);
    let_pass(VIEW_AGE);
    write("stopped", &[0, 1]);
    third.signal(Signal::CONT);
    wait_for_three();
    third.kill();
    let_pass(VIEW_AGE);
    write("killed", &[0, 1]);
    let third = Oss::start(&cluster);
    wait_for_three();
    write("back", &[0, 1, 2]);
    drop((a, b, third));
}

/// Another OSS of a cluster, with one OST.
struct Oss(Guarded);

impl Oss {
    #[track_caller]
    fn start(cluster: &Cluster) -> Oss {
        let log = OpenOptions::new().append(true).open(cluster.base.join("log")).unwrap();
        let mut command = Command::new(sheen());
        command.arg("oss").arg("--dir").arg(cluster.base.join("oss2")).args(["--listen", &cluster.second_oss()]);
        command.args(["--mgs", &cluster.nid("mgs"), "--fsname", "many", "--osts", "1"]);
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        Oss(Guarded(child))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0.0), signal).expect("signals what it started");
    }

    fn kill(self) {
        drop(self);
    }
}
