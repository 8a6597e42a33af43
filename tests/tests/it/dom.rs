//! Data on MDT (DoM): files whose first component lies on the MDT. A small file lies there alone,
//! a larger one continues on OSTs. Programs notice only the different cost. `pfl` tests what two
//! mounts see of such files at once, as for all other components.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::io::Errno;
use sheen_tests::{
    Fs, can_mount,
    mounts::{Counts, LIMIT, Two, TwoMounts},
    noise,
    posix::layout,
    run, sheen,
    wait::eventually,
};

const K: u64 = 1 << 10;
/// Default layout of a file system with many small files.
const SMALL_ON_MDT: &str = "-E 64K -L mdt -E 256M -c 1 -E -1 -c 4";

fn two() -> Option<(TwoMounts, Two)> {
    if !can_mount() {
        println!("skipped: /dev/fuse cannot be opened here");
        return None;
    }
    let two = TwoMounts::up(LIMIT);
    let at = two.dir("dir");
    two.fs.lfs(&format!("setstripe {SMALL_ON_MDT} dir")).ok();
    Some((two, at))
}

/// Returns for each component whether it has objects or lies on the MDT.
fn with_objects(path: &Path) -> Vec<bool> {
    layout(path).components().iter().map(|c| c.is_instantiated()).collect()
}

/// Returns the object files below directories of this name, with their sizes.
fn stored(fs: &Fs, targets: &str) -> Vec<(PathBuf, u64)> {
    let dir = fs.dir().to_string_lossy().into_owned();
    let found = run("find", [&dir, "-path", &format!("*/{targets}/O/*"), "-type", "f", "-printf", "%p %s\n"]).ok();
    let one = |line: &str| line.rsplit_once(' ').map(|(path, size)| (path.into(), size.parse().unwrap()));
    found.lines().filter_map(one).collect()
}

fn sync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

#[test]
fn small_file_lies_on_the_mdt_alone_and_is_destroyed_with_its_last_name() {
    let Some((two, at)) = two() else { return };
    let data = noise(1, 3901);
    fs::write(at.a("f"), &data).unwrap();
    assert_eq!(fs::read(at.b("f")).unwrap(), data);
    sync(&at.a("f"));
    for path in [at.a("f"), at.b("f")] {
        let meta = fs::metadata(path).unwrap();
        assert_eq!((meta.len(), meta.blocks()), (3901, 8));
    }
    assert_eq!(stored(&two.fs, "ost*"), []);
    let [(path, 3901)] = &stored(&two.fs, "mdt0/dom")[..] else { panic!("one object of the file's size") };
    // The object can be found by hand: its name is made of the file's FID.
    let fid = layout(&at.a("f")).fid();
    let slot = (fid.seq as u32).wrapping_add(fid.oid) % 32;
    assert!(path.ends_with(format!("files/d{slot}/{:x}:{:x}:1", fid.seq, fid.oid)), "{path:?}");
    assert_eq!(fs::read(path).unwrap(), data);
    assert_eq!(with_objects(&at.b("f")), [true, false, false]);

    // A larger file continues on an OST, also if a single write crosses the boundary.
    let large = noise(2, 200 << 10);
    fs::write(at.b("large"), &large).unwrap();
    sync(&at.b("large"));
    assert!(fs::read(at.a("large")).unwrap() == large);
    let sizes = |targets: &str| stored(&two.fs, targets).into_iter().map(|(_, size)| size).max();
    assert_eq!((sizes("mdt0/dom"), sizes("ost*")), (Some(64 * K), Some(200 * K)));

    // A file with two names is destroyed with the second name, an open file with its last close.
    fs::hard_link(at.a("f"), at.a("g")).unwrap();
    fs::remove_file(at.b("f")).unwrap();
    assert_eq!(fs::read(at.a("g")).unwrap(), data);
    let open = File::open(at.a("g")).unwrap();
    fs::remove_file(at.b("g")).unwrap();
    let mut got = vec![0; 3901];
    open.read_exact_at(&mut got, 0).unwrap();
    assert!(got == data);
    drop(open);
    fs::remove_file(at.a("large")).unwrap();
    eventually("no objects are left behind", || {
        stored(&two.fs, "mdt0/dom").is_empty() && stored(&two.fs, "ost*").is_empty()
    });
}

#[test]
fn dom_service_is_not_listed_as_an_ost() {
    let Some((two, _)) = two() else { return };
    let listed = two.fs.lfs(&format!("df {}", two.fs.mnt.display())).ok();
    assert!(!listed.contains("dom") && listed.lines().count() == 2 + 1 + 4 + 2, "{listed}");
    assert_eq!(two.fs.lfs("osts .").ok().lines().count(), 1 + 4);
    let one = |name: &str| two.param(name).trim().rsplit_once('=').map(|(_, n)| n.to_owned()).unwrap();
    assert_eq!((one("lod.{}-*.numobd"), one("lod.{}-*.activeobd")), ("4".into(), "4".into()));
    assert_eq!(
        run(sheen(), ["lctl", "get_param", &format!("lod.{}-*.target_obd", two.fsname)]).ok().lines().count(),
        1 + 4
    );
    let checked = two.fs.lfs(&format!("check osts {}", two.fs.mnt.display())).ok();
    assert!(checked.lines().count() == 4 && checked.lines().all(|line| line.contains("-OST000")), "{checked}");
}

#[test]
fn dom_limits_apply_to_new_files_only() {
    let Some((two, at)) = two() else { return };
    let lod = |what: &str| format!("lod.{}-MDT0000-mdtlov.{what}", two.fsname);
    let set = |what: &str, value: &str| run(sheen(), ["lctl", "set_param", "-n", &format!("{}={value}", lod(what))]);
    let ends = |name: &str| -> Vec<(u64, bool)> {
        layout(&at.b(name)).components().iter().map(|c| (c.end, c.is_on_mdt())).collect()
    };
    two.fs.lfs("setstripe -E 2M -L mdt -E -1 -c 1 dir/cut").ok();
    assert_eq!(ends("cut"), [(1024 * K, true), (u64::MAX, false)]);
    set("dom_stripesize", "128K").ok();
    two.fs.lfs("setstripe -E 1M -L mdt -E -1 -c 1 dir/short").ok();
    assert_eq!(ends("short"), [(128 * K, true), (u64::MAX, false)]);
    assert_eq!(two.param("lod.{}-*.dom_stripesize_max_kb").trim().rsplit('=').next(), Some("128"));
    set("dom_stripesize", "0").ok();
    fs::write(at.a("none"), b"x").unwrap();
    assert_eq!(ends("none"), [(256 << 20, false), (u64::MAX, false)]);
    two.fs.lfs("setstripe -E 64K -L mdt dir/instead").ok();
    assert_eq!(ends("instead"), [(64 * K, false)]);
    assert_eq!(set("dom_stripesize", "2G").code, Errno::RANGE.raw_os_error());

    // An MDT that is low on space stores no data of new files. Existing DoM files stay.
    set("dom_stripesize", "1M").ok();
    fs::write(at.a("before"), b"before").unwrap();
    set("dom_threshold_free_mb", "1000000000").ok();
    fs::write(at.a("low"), b"low").unwrap();
    assert_eq!(ends("low"), [(256 << 20, false), (u64::MAX, false)]);
    assert_eq!((fs::read(at.b("before")).unwrap(), ends("before").len()), (b"before".to_vec(), 3));
    fs::write(at.b("before"), noise(3, 5000)).unwrap();
    set("dom_threshold_free_mb", "1").ok();
    fs::write(at.a("again"), b"again").unwrap();
    assert!(ends("again")[0].1);
}

#[test]
fn dom_refuses_writes_past_the_layout_and_component_deletion() {
    let Some((two, at)) = two() else { return };
    // The layout of this file ends on the MDT.
    two.fs.lfs("setstripe -E 64K -L mdt dir/only").ok();
    let only = OpenOptions::new().write(true).open(at.b("only")).unwrap();
    let data = noise(4, 100_000);
    assert_eq!(only.write_at(&data, 0).unwrap(), 65536);
    let refused = |result: std::io::Result<usize>| Errno::from_io_error(&result.expect_err("must fail"));
    assert_eq!(refused(only.write_at(b"x", 64 * K)), Some(Errno::NODATA));
    assert!(fs::read(at.a("only")).unwrap() == data[..65536]);
    two.fs.lfs("setstripe --component-add -E -1 -c 1 dir/only").ok();
    assert_eq!(only.write_at(&data[65536..], 64 * K).unwrap(), 100_000 - 65536);
    assert!(fs::read(at.a("only")).unwrap() == data);

    // The component on the MDT cannot be deleted.
    let all = two.fs.lfs("setstripe --component-del --component-flags init dir/only");
    assert!(all.code != 0 && all.err.contains("Operation not supported"), "{all:?}");
    assert!(fs::read(at.b("only")).unwrap() == data);
    let mirrored = two.fs.lfs("setstripe -N2 -E 64K -L mdt -E -1 -c 1 dir/mirrored");
    assert_ne!(mirrored.code, 0, "{mirrored:?}");
}

/// Creates `n` files with different data, and returns their paths and data.
fn files(dir: &Path, n: u64) -> Vec<(PathBuf, Vec<u8>)> {
    let make = |i: u64| {
        let (path, data) = (dir.join(format!("f{i}")), noise(i, 100 + 7919 * i as usize));
        fs::write(&path, &data).unwrap();
        (path, data)
    };
    (0..n).map(make).collect()
}

#[test]
fn dom_files_survive_a_restart() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.lfs(&format!("setstripe {SMALL_ON_MDT} .")).ok();
    let made = files(&fs.mnt, 20);
    fs.stop().ok();
    fs.start(&[]).ok();
    for (path, data) in &made {
        assert!(fs::read(path).unwrap() == *data, "{path:?}");
        assert_eq!(fs::metadata(path).unwrap().len(), data.len() as u64);
    }
    // A mount continues across a restart of the servers.
    let second = fs.second_mount();
    let open = OpenOptions::new().read(true).write(true).open(second.path("f3")).unwrap();
    open.write_all_at(b"begun", 0).unwrap();
    fs.stop().ok();
    fs.start(&[]).ok();
    open.write_all_at(b"resumed", 5).unwrap();
    open.sync_all().unwrap();
    assert_eq!(&fs::read(fs.path("f3")).unwrap()[..12], b"begunresumed");
    drop((open, second));
    made.iter().for_each(|(path, _)| fs::remove_file(path).unwrap());
    eventually("no objects are left behind", || stored(&fs, "mdt0/dom").is_empty() && stored(&fs, "ost*").is_empty());
}

#[test]
fn crash_keeps_synced_dom_files_and_destroys_objects_of_lost_ones() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    let fsname = format!("d{:x}", std::process::id() & 0xff_ffff);
    let fs = Fs::up_in(Path::new("/dev/shm"), 2, &["--fsname", &fsname]);
    fs.lfs(&format!("setstripe {SMALL_ON_MDT} .")).ok();
    let made = files(&fs.mnt, 20);
    made.iter().for_each(|(path, _)| sync(path));
    // The MDT will lose these creates. Their data has reached the objects.
    run(sheen(), ["lctl", "set_param", &format!("mdt.{fsname}-*.commit_interval_ms=60000")]).ok();
    fs.sh("for i in $(seq 50); do dd if=/dev/zero of=lost$i bs=4k count=1 oflag=direct status=none; done").ok();
    let there = stored(&fs, "mdt0/dom").len();
    fs.kill();
    fs.start(&[]).ok();
    for (path, data) in &made {
        assert!(fs::read(path).unwrap() == *data, "{path:?}");
    }
    let lives = fs.sh("ls").ok().lines().count();
    assert!(there >= 70 && lives < 70, "nothing was lost: {there} objects, {lives} files");
    eventually("no objects of lost files are left", || stored(&fs, "mdt0/dom").len() == lives);
    made.iter().for_each(|(path, data)| assert!(fs::read(path).unwrap() == *data, "{path:?}"));
}

/// Counts requests by target and operation. Closes are left out, because the kernel sends them at
/// any later time.
fn by_target(asked: &Counts) -> Counts {
    let mut sum = Counts::new();
    for (name, n) in asked {
        let (device, op) = name.split_once(' ').unwrap();
        if op == "mds_close" {
            continue;
        }
        let target = ["-mdc-", "-MDT0000-dom-", "-OST"].into_iter().find(|t| device.contains(t)).unwrap();
        *sum.entry(format!("{} {op}", target.trim_matches('-'))).or_insert(0) += n;
    }
    sum
}

/// Writes a new file on one mount and reads it on the other. Returns the requests of the write and
/// of the read.
#[track_caller]
fn write_and_read(two: &TwoMounts, dir: &str, name: &str, data: &[u8]) -> [Counts; 2] {
    let (a, b) = (two.fs.path(dir).join(name), two.second.path(dir).join(name));
    two.quiet();
    let written = by_target(&two.cost(|| fs::write(&a, data).unwrap()));
    sync(&a);
    two.quiet();
    let read = by_target(&two.cost(|| assert!(fs::read(&b).unwrap() == data)));
    println!("{} bytes in {dir}: write {written:?}, read {read:?}", data.len());
    [written, read]
}

#[test]
fn small_dom_file_is_read_by_its_lookup() {
    let Some((two, _at)) = two() else { return };
    two.dir("plain");
    two.fs.lfs("setstripe -c 1 plain").ok();
    for (dir, read_on) in [("dir", 0), ("plain", 2)] {
        // Makes the connections and grants.
        for i in 0..4 {
            fs::write(two.fs.path(dir).join(format!("before{i}")), noise(5, 4096)).unwrap();
            fs::read(two.second.path(dir).join(format!("before{i}"))).unwrap();
        }
        let mut n = 0;
        // Each pass writes a new file.
        eventually(format!("a small file in {dir} costs what it should"), || {
            n += 1;
            let [written, read] = write_and_read(&two, dir, &format!("small{n}"), &noise(6, 4096));
            let objects =
                |costs: &Counts| costs.iter().filter(|(op, _)| !op.starts_with("mdc")).map(|(_, n)| n).sum::<u64>();
            // The write takes no lock. A read from an OST costs a lock and the data. The MDT gets a
            // lookup, and perhaps a getattr.
            (objects(&written), objects(&read)) == (1, read_on)
                && read.values().sum::<u64>() <= 2 + read_on
                && written.values().sum::<u64>() <= 3
        });
    }
    let mut n = 0;
    // The larger file needs objects on an OST, and requests go to both targets.
    eventually("a large file that begins on the MDT costs little more than one that does not", || {
        n += 1;
        let large = ["dir", "plain"].map(|dir| {
            let costs = write_and_read(&two, dir, &format!("large{n}"), &noise(7, 1 << 20));
            costs.map(|costs| costs.values().sum::<u64>())
        });
        large[0][0] <= large[1][0] + 4 && large[0][1] <= large[1][1] + 4
    });
}

/// Changes a file of 3,000 bytes or more, and returns its new content.
type FileChange = fn(&TwoMounts, &Two, &str, Vec<u8>) -> Vec<u8>;

fn put(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

fn cut(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// Changes to a file after the second mount has looked up its name, and before it reads the file.
const CHANGES: [(&str, FileChange); 10] = [
    ("nothing", |_, _, _, data| data),
    ("written elsewhere", |_, at, name, mut data| {
        data[100..200].fill(1);
        put(&at.a(name), 100, &[1; 100]);
        data
    }),
    ("cut elsewhere", |_, at, name, data| {
        cut(&at.a(name), 1234);
        data[..1234].to_vec()
    }),
    ("longer than inline DoM data", |_, at, name, mut data| {
        let len = data.len();
        data.resize(len + 17_000, 2);
        put(&at.a(name), len as u64, &[2; 17_000]);
        data
    }),
    ("written here", |_, at, name, mut data| {
        data[..50].fill(3);
        put(&at.b(name), 0, &[3; 50]);
        data
    }),
    ("written here twice", |_, at, name, mut data| {
        let file = OpenOptions::new().write(true).open(at.b(name)).unwrap();
        for i in 0..3 {
            file.write_all_at(&[4], i).unwrap();
        }
        data[..3].fill(4);
        data
    }),
    ("cut here", |_, at, name, data| {
        cut(&at.b(name), 77);
        data[..77].to_vec()
    }),
    ("a hole here", |_, at, name, mut data| {
        data[..1000].fill(0);
        let file = OpenOptions::new().write(true).open(at.b(name)).unwrap();
        let how = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, how, 0, 1000).unwrap();
        data
    }),
    ("another file", |_, at, name, _| {
        fs::write(at.a("new"), [5; 99]).unwrap();
        fs::rename(at.a("new"), at.a(name)).unwrap();
        vec![5; 99]
    }),
    ("moved to an OST and written there", |two, at, name, mut data| {
        two.fs.lfs(&format!("migrate -c 1 dir/{name}")).ok();
        data[2000..2500].fill(6);
        put(&at.a(name), 2000, &[6; 500]);
        data
    }),
];

#[test]
fn inline_dom_data_is_never_stale() {
    let Some((two, at)) = two() else { return };
    fs::write(at.a("before"), "connected").unwrap();
    fs::read(at.b("before")).unwrap();
    for (i, (what, change)) in CHANGES.iter().enumerate() {
        for len in [3000, 16 << 10] {
            let name = format!("{i}.{len}");
            let data = noise(i as u64, len);
            fs::write(at.a(&name), &data).unwrap();
            sync(&at.a(&name));
            assert_eq!(fs::metadata(at.b(&name)).unwrap().len(), data.len() as u64);
            let mut want = change(&two, &at, &name, data.clone());
            assert!(fs::read(at.b(&name)).unwrap() == want, "{what}, {len}");
            assert!(fs::read(at.a(&name)).unwrap() == want, "{what}, {len}, elsewhere");
            // Reads in pieces, after a write through A has invalidated B's cache.
            want.push(7);
            put(&at.a(&name), want.len() as u64 - 1, &[7]);
            let file = File::open(at.b(&name)).unwrap();
            let mut piece = [0; 512];
            for (n, bytes) in want.chunks(512).enumerate() {
                assert_eq!(file.read_at(&mut piece, n as u64 * 512).unwrap(), bytes.len(), "{what}, {len}");
                assert_eq!(piece[..bytes.len()], *bytes, "{what}, {len}");
            }
        }
    }
}

#[test]
fn small_dom_file_is_read_in_pieces_with_direct_io() {
    const O_DIRECT: i32 = 0o40000;
    let Some((_two, at)) = two() else { return };
    let data = noise(9, 5000);
    fs::write(at.a("f"), &data).unwrap();
    fs::write(at.a("empty"), "").unwrap();
    fs::read(at.b("empty")).unwrap();
    let file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(at.b("f")).unwrap();
    let mut got = vec![0; 5000];
    for (n, piece) in got.chunks_mut(512).enumerate() {
        file.read_exact_at(piece, n as u64 * 512).unwrap();
    }
    assert!(got == data);
    assert_eq!(file.read_at(&mut [0; 512], 5000).unwrap(), 0);
    assert_eq!(fs::read(at.b("empty")).unwrap(), b"");
}
