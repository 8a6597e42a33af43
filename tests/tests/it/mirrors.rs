//! Mirrored files on one mount and on two at once. Written data is read everywhere, and stale
//! mirrors are not read before a resync. Reads do without a mirror whose OSTs are disconnected or
//! inactive.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    fs::{XattrFlags, setxattr},
    ioctl::{Setter, ioctl},
};
use sheen_layout::Composite;
use sheen_tests::{
    Fs, Ran,
    cluster::Cluster,
    noise,
    posix::layout,
    progress::{Race, at_least},
    relayout::expect_stored_objects,
    sheen, two_mounts,
    wait::{eventually, let_pass, while_down},
};
use sheen_wire::{
    Time,
    ioctl::SET_MIRROR,
    mirror::{MirrorChange, XATTR},
};

const LIMIT: Duration = Duration::from_secs(580);
/// Length of a file: several chunks, and no multiple of a chunk, stripe or page.
const LEN: usize = (5 << 20) + 4321;
/// Two mirrors with entirely different layouts.
const MIRRORS: &str = "-N -c 2 -S 64K -o 0,1 -N -E 1M -c 1 -S 256K -o 2 -E -1 -c 2 -S 128K -o 3,2";

fn fresh(path: &Path) -> Vec<u16> {
    layout(path).fresh_mirrors().iter().map(|m| m.mirror_id()).collect()
}

/// Creates a mirrored file on the first mount.
fn create(fs: &Fs, name: &str) {
    fs.lfs(&format!("mirror create {MIRRORS} {name}")).ok();
}

/// Reads one mirror of a file.
fn mirror(fs: &Fs, id: u16, name: &str) -> Vec<u8> {
    let out = fs.mnt.with_extension(format!("mirror{id}"));
    fs.lfs(&format!("mirror read -N {id} -o {} {name}", out.display())).ok();
    let bytes = fs::read(&out).unwrap();
    fs::remove_file(&out).unwrap();
    bytes
}

#[test]
fn write_makes_other_mirrors_stale_and_resync_updates_them() {
    let two = two_mounts!(LIMIT);
    two.dir("d");
    let fs = &two.fs;
    create(fs, "f");
    let path = fs.path("f");
    assert_eq!((fresh(&path), layout(&path).mirror_state()), (vec![1, 2], Composite::READ_ONLY));
    let data = noise(1, LEN);
    fs::write(&path, &data).unwrap();
    assert_eq!((fresh(&path), layout(&path).mirror_state()), (vec![1], Composite::WRITE_PENDING));
    assert!(fs.lfs("getstripe f").ok().contains("init,stale"));
    assert_eq!(fs.lfs("mirror verify f").code, 116, "a mirror is stale");
    let written = |at: &Path| fs::metadata(at).unwrap().modified().unwrap();
    let when = written(&path);
    fs.lfs("mirror resync f").ok();
    assert_eq!((fresh(&path), layout(&path).mirror_state()), (vec![1, 2], Composite::READ_ONLY));
    for id in [1, 2] {
        assert!(mirror(fs, id, "f") == data, "mirror {id}");
        // The modification time is the same, whichever mirror is read.
        let component = layout(&path).mirrors()[id as usize - 1].components()[0].id;
        let prefer = |what: &str| {
            fs.lfs(&format!("setstripe --component-set -I {component} --component-flags={what}prefer f")).ok();
        };
        prefer("");
        assert_eq!((written(&path), written(&two.second.path("f"))), (when, when), "mirror {id}");
        prefer("^");
    }
    fs.lfs("mirror verify f").ok();
    assert!(fs::read(two.second.path("f")).unwrap() == data);

    // A shorter file, and one with a hole.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(100).unwrap();
    assert_eq!(fresh(&path), [1], "a truncate is a write");
    file.write_all_at(b"end", 3 << 20).unwrap();
    drop(file);
    fs.lfs("mirror resync f").ok();
    let mut data = data[..100].to_vec();
    data.resize(3 << 20, 0);
    data.extend(b"end");
    for id in [1, 2] {
        assert!(mirror(fs, id, "f") == data, "mirror {id}");
    }
    // A file emptied by O_TRUNC.
    File::create(&path).unwrap();
    assert_eq!((fresh(&path), fs::metadata(&path).unwrap().len()), (vec![1], 0));
    assert_eq!(fs::metadata(two.second.path("f")).unwrap().len(), 0);
    fs.lfs("mirror resync f").ok();
    assert_eq!((mirror(fs, 1, "f").len(), mirror(fs, 2, "f").len()), (0, 0));
}

#[test]
fn reads_never_use_mirrors_that_a_write_elsewhere_made_stale() {
    let (two, at) = two_mounts!(LIMIT, "d");
    create(&two.fs, "d/f");
    let mut version = 0_u64;
    for round in 0..6 {
        for (writer, reader) in [(&at.a("f"), &at.b("f")), (&at.b("f"), &at.a("f"))] {
            // Both mounts read, and so cache, pages of whichever mirrors are up to date.
            let open = [File::open(writer).unwrap(), File::open(reader).unwrap()];
            let mut byte = [0; 8];
            open.iter().for_each(|f| assert!(f.read_at(&mut byte, 4096).is_ok()));
            version += 1;
            let file = OpenOptions::new().write(true).open(writer).unwrap();
            file.write_all_at(&version.to_le_bytes(), 4096).unwrap();
            file.write_all_at(&version.to_le_bytes(), 2 << 20).unwrap();
            for f in &open {
                for offset in [4096, 2 << 20] {
                    f.read_exact_at(&mut byte, offset).unwrap();
                    assert_eq!(u64::from_le_bytes(byte), version, "round {round} at {offset}");
                }
            }
            assert_eq!(fs::metadata(reader).unwrap().len(), (2 << 20) + 8);
            if round % 2 == 0 {
                two.fs.lfs("mirror resync d/f").ok();
                let mut now = [0; 8];
                open.iter().for_each(|f| {
                    f.read_exact_at(&mut now, 2 << 20).unwrap();
                    assert_eq!(u64::from_le_bytes(now), version, "after a resync");
                });
            }
        }
    }
}

#[test]
fn resync_loses_no_concurrent_write() {
    const RESYNCS: u64 = 4;
    /// Minimum for each of the writers.
    const WRITES: u64 = 100;
    const WRITE_PAUSE: Duration = Duration::from_millis(3);
    let (two, at) = two_mounts!(LIMIT, "d");
    create(&two.fs, "d/f");
    fs::write(at.a("f"), vec![0; 2 << 20]).unwrap();
    let race = Race::new([at_least(RESYNCS), at_least(WRITES), at_least(WRITES)]);
    thread::scope(|scope| {
        for (n, path) in (0_u64..).zip([at.a("f"), at.b("f")]) {
            let writes = race.party(1 + n as usize);
            scope.spawn(move || {
                let file = OpenOptions::new().write(true).open(path).unwrap();
                while writes.goes_on() {
                    let count = writes.count() + 1;
                    file.write_all_at(&count.to_le_bytes(), n * (1 << 20) + count % 1000 * 16).unwrap();
                    writes.did_one();
                    let_pass(WRITE_PAUSE);
                }
            });
        }
        let resyncs = race.party(0);
        while resyncs.goes_on() {
            let ran = two.fs.lfs("mirror resync d/f");
            assert!(matches!(ran.code, 0 | 16), "done, or a write came during every attempt: {}", ran.err);
            resyncs.did_one();
        }
    });
    let last = [1, 2].map(|part| race.count(part));
    two.fs.lfs("mirror resync d/f").ok();
    two.fs.lfs("mirror verify d/f").ok();
    for id in [1, 2] {
        let bytes = mirror(&two.fs, id, "d/f");
        for (n, last) in (0..).zip(&last) {
            for count in last.saturating_sub(900).max(1)..=*last {
                let at = n * (1 << 20) + (count % 1000 * 16) as usize;
                assert_eq!(bytes[at..at + 8], count.to_le_bytes(), "mirror {id}, writer {n}");
            }
        }
    }
}

#[test]
fn mirror_extend_and_split_keep_the_data_of_a_cached_file() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let fs = &two.fs;
    let data = noise(2, LEN);
    fs::write(at.a("f"), &data).unwrap();
    assert!(fs::read(at.b("f")).unwrap() == data, "the other mount knows the file as a plain one");
    fs.lfs("mirror extend -N -c 1 -N -E 2M -c 1 -E -1 -c 3 d/f").ok();
    assert_eq!(fresh(&at.b("f")), [1, 2, 3]);
    for id in [1, 2, 3] {
        assert!(mirror(fs, id, "d/f") == data, "mirror {id}");
    }
    // A write by the mount that has cached the plain layout.
    OpenOptions::new().write(true).open(at.b("f")).unwrap().write_all_at(b"changed", 12345).unwrap();
    let mut data = data;
    data[12345..12352].copy_from_slice(b"changed");
    assert_eq!(fresh(&at.a("f")).len(), 1);
    assert!(fs::read(at.a("f")).unwrap() == data);
    fs.lfs("mirror resync d/f").ok();

    fs.lfs("mirror split --mirror-id 2 d/f").ok();
    assert!(fs::read(at.b("f.mirror~2")).unwrap() == data, "the mirror is a file now");
    fs.lfs("mirror split --mirror-id 1 -f d/g d/f").ok();
    assert!(fs::read(at.b("g")).unwrap() == data && fs::read(at.b("f")).unwrap() == data);
    assert!(!layout(&at.a("f")).is_mirrored());
    fs::write(at.a("g"), b"its own").unwrap();
    assert!(fs::read(at.b("f")).unwrap() == data, "the split file has objects of its own");
    assert_eq!(fs.lfs("mirror delete --mirror-id 3 d/f").code, 22, "the last mirror cannot be deleted");
    // Only a file with the same data can become a mirror.
    assert_eq!(fs.lfs("mirror extend -N -f d/g d/f").code, 22);
    fs.lfs("mirror extend -N -f d/f.mirror~2 d/f").ok();
    assert_eq!(layout(&at.b("f")).mirrors().len(), 2);
    fs.lfs("mirror verify d/f").ok();
    assert_eq!(fs::metadata(at.a("f.mirror~2")).unwrap().len(), 0);
    fs::remove_file(at.a("f")).unwrap();
}

#[test]
fn mirror_read_and_write_use_one_mirror_and_verify_finds_differences() {
    let two = two_mounts!(LIMIT);
    two.dir("d");
    let fs = &two.fs;
    create(fs, "f");
    let data = noise(3, LEN);
    fs::write(fs.path("f"), &data).unwrap();
    fs.lfs("mirror resync f").ok();
    let other = noise(4, LEN);
    let from = fs.mnt.with_extension("from");
    fs::write(&from, &other).unwrap();
    fs.lfs(&format!("mirror write -N 2 -i {} f", from.display())).ok();
    fs::remove_file(&from).unwrap();
    assert_eq!(fresh(&fs.path("f")), [1, 2], "the mirror still counts as up to date");
    assert!(mirror(fs, 2, "f") == other && mirror(fs, 1, "f") == data);
    let Ran { code, err, .. } = fs.lfs("mirror verify f");
    assert!(code == 117 && err.contains("has different checksum value on mirror 1:"), "{code} {err}");
    assert_eq!(fs.lfs("mirror copy -i 1 -o 2 f").ok(), "mirror copied successfully: 2 \n");
    fs.lfs("mirror verify f").ok();
    assert!(mirror(fs, 2, "f") == data);
    let Ran { code, err, .. } = fs.lfs("mirror read -N 9 f");
    assert!(code == 22 && err.contains("cannot find mirror with ID 9 in 'f'"), "{code} {err}");
}

/// Opens a file so that reads and writes use one mirror of its present layout.
fn as_mirror(path: &Path, id: u64) -> rustix::io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc_direct()).open(path).unwrap();
    // SAFETY: the ioctl number says that the kernel reads an argument of the size of a `u64`.
    unsafe { ioctl(&file, Setter::<{ SET_MIRROR }, u64>::new(id)) }.map(|()| file)
}

fn change(path: &Path, change: &MirrorChange) -> rustix::io::Result<()> {
    setxattr(path, XATTR, &change.encode().unwrap(), XattrFlags::empty())
}

#[test]
fn mirror_that_is_being_written_is_not_read() {
    let (two, at) = two_mounts!(LIMIT, "d");
    create(&two.fs, "d/f");
    let data = noise(7, LEN);
    fs::write(at.a("f"), &data).unwrap();
    two.fs.lfs("mirror resync d/f").ok();
    // Every read uses the second mirror.
    let second = layout(&at.a("f")).mirrors()[1].components()[0].id;
    two.fs.lfs(&format!("setstripe --component-set -I {second} --component-flags=prefer d/f")).ok();
    for dies in [true, false] {
        let mut tool = Command::new(sheen());
        tool.args(["lfs", "mirror", "write", "-N", "2", "d/f"]).current_dir(&two.fs.mnt).stdin(Stdio::piped());
        let mut tool = tool.spawn().unwrap();
        let other = noise(8, LEN);
        let mut pipe = tool.stdin.take().unwrap();
        pipe.write_all(&other).unwrap();
        eventually("its first bytes are written", || mirror(&two.fs, 2, "d/f")[..1000] == other[..1000]);
        for path in [at.a("f"), at.b("f")] {
            assert!(fs::read(&path).unwrap() == data, "a mirror is read while it is copied to");
            assert_eq!(fresh(&path), [1]);
        }
        if dies {
            tool.kill().unwrap();
        }
        drop(pipe);
        tool.wait().unwrap();
        if dies {
            assert_eq!(fresh(&at.b("f")), [1], "a killed tool leaves the mirror stale");
            assert!(fs::read(at.b("f")).unwrap() == data);
            two.fs.lfs("mirror resync d/f").ok();
            assert!(mirror(&two.fs, 2, "d/f") == data);
        } else {
            assert_eq!(fresh(&at.b("f")), [2, 1]);
            assert!(mirror(&two.fs, 2, "d/f") == other);
        }
    }
    // The only mirror that is up to date cannot be copied to, and is not lost.
    fs::write(at.a("f"), &data).unwrap();
    let last = fresh(&at.a("f"))[0];
    let ran = two.fs.lfs(&format!("mirror resync -f --only {last} d/f"));
    assert!(ran.code == 117 && ran.err.contains("no other mirror is up to date"), "{} {}", ran.code, ran.err);
    assert_eq!(two.fs.lfs(&format!("mirror write -N {last} -i /dev/null d/f")).code, 117);
    assert!(fs::read(at.b("f")).unwrap() == data);
}

#[test]
fn later_resync_takes_over_and_fresh_mirrors_refuse_direct_writes() {
    /// Number of copies by each tool.
    const COPIES: u64 = 4;
    const WRITE_PAUSE: Duration = Duration::from_millis(100);
    let (two, at) = two_mounts!(LIMIT, "d");
    create(&two.fs, "d/f");
    let data = noise(9, LEN);
    fs::write(at.a("f"), &data).unwrap();
    let begin = MirrorChange::Resync { mirrors: vec![2], end: LEN as u64 };
    let refused = |file: &File| {
        let write = file.write_all_at(&[1; 4096], 0).map_err(|e| e.raw_os_error());
        let cut = file.set_len(0).map_err(|e| e.raw_os_error());
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        let punched = rustix::fs::fallocate(file, punch, 0, 4096).map_err(|e| Some(e.raw_os_error()));
        [write, cut, punched] == [Err(Some(16)); 3]
    };
    // The second tool runs on the same mount, then on the other one.
    for path in [at.a("f"), at.b("f")] {
        change(&at.a("f"), &begin).unwrap();
        let old = as_mirror(&at.a("f"), 2).unwrap();
        old.write_all_at(&[1; 4096], 0).unwrap();
        change(&path, &begin).unwrap();
        assert!(refused(&old), "the second tool has taken over the copy");
        let new = as_mirror(&path, 2).unwrap();
        new.write_all_at(&data, 0).unwrap();
        let done =
            MirrorChange::Resynced { generation: layout(&path).generation(), mirrors: vec![2], mtime: Time::default() };
        change(&path, &done).unwrap();
        assert_eq!(fresh(&path), [1, 2]);
        assert!(refused(&old) && refused(&new), "the mirror is up to date");
        assert!(refused(&as_mirror(&path, 1).unwrap()));
    }
    two.fs.lfs("mirror verify d/f").ok();
    // Without O_DIRECT the ioctl is refused: other programs would find the mirror's data in the
    // page cache.
    let plain = File::open(at.a("f")).unwrap();
    // SAFETY: as in `as_mirror`.
    let cached = unsafe { ioctl(&plain, Setter::<{ SET_MIRROR }, u64>::new(2)) };
    assert_eq!(cached, Err(rustix::io::Errno::INVAL));
    // A component without objects is instantiated by the write.
    create(&two.fs, "d/g");
    let path = at.a("g");
    change(&path, &MirrorChange::Resync { mirrors: vec![2], end: 0 }).unwrap();
    let ticket = layout(&path).generation();
    let file = as_mirror(&path, 2).unwrap();
    for offset in [3 << 20, 0] {
        file.write_all_at(&data[..4096], offset).unwrap();
    }
    let done = |generation| {
        change(&at.b("g"), &MirrorChange::Resynced { generation, mirrors: vec![2], mtime: Time::default() })
    };
    assert_eq!(done(ticket), Err(rustix::io::Errno::BUSY), "the ticket is older than the new objects");
    done(layout(&path).generation()).unwrap();
    assert!(mirror(&two.fs, 2, "d/g")[3 << 20..] == data[..4096]);

    // Both tools at once, while a program writes: each command succeeds or reports an error.
    let race = Race::new([at_least(COPIES), at_least(COPIES), at_least(1)]);
    thread::scope(|scope| {
        for (part, command) in ["mirror resync -f --only 2 d/f", "mirror copy -i 1 -o 2 d/f"].into_iter().enumerate() {
            let (fs, copies) = (&two.fs, race.party(part));
            scope.spawn(move || {
                for _ in 0..COPIES {
                    let ran = fs.lfs(command);
                    assert!(matches!(ran.code, 0 | 16 | 117), "{} {}", ran.code, ran.err);
                    copies.did_one();
                }
            });
        }
        let (writes, file) = (race.party(2), OpenOptions::new().write(true).open(at.b("f")).unwrap());
        while writes.goes_on() {
            let count = writes.count() + 1;
            file.write_all_at(&count.to_le_bytes(), 4096).unwrap();
            let mut read = [0; 8];
            File::open(at.a("f")).unwrap().read_exact_at(&mut read, 4096).unwrap();
            assert_eq!(u64::from_le_bytes(read), count);
            assert_eq!(fs::metadata(at.a("f")).unwrap().len(), LEN as u64);
            writes.did_one();
            let_pass(WRITE_PAUSE);
        }
    });
    let now = fs::read(at.b("f")).unwrap();
    two.fs.lfs("mirror resync d/f").ok();
    two.fs.lfs("mirror verify d/f").ok();
    assert!(now.len() == LEN && now[8192..] == data[8192..] && mirror(&two.fs, 1, "d/f") == now);
}

#[test]
fn mirror_copy_from_a_stale_mirror_restores_its_data() {
    let (two, at) = two_mounts!(LIMIT, "d");
    create(&two.fs, "d/f");
    let good = noise(10, LEN);
    fs::write(at.a("f"), &good).unwrap();
    two.fs.lfs("mirror resync d/f").ok();
    OpenOptions::new().write(true).open(at.a("f")).unwrap().write_all_at(b"a mistake", 0).unwrap();
    assert_eq!(fresh(&at.b("f")), [1]);
    two.fs.lfs("mirror copy -i 2 -o 1 d/f").ok();
    assert_eq!(fresh(&at.b("f")), [1, 2]);
    assert!(fs::read(at.b("f")).unwrap() == good && mirror(&two.fs, 1, "d/f") == good);
    two.fs.lfs("mirror verify d/f").ok();
}

#[test]
fn mirror_split_keeps_mode_and_owner() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let fs = &two.fs;
    let mode = |name: &str| fs::metadata(at.b(name)).unwrap().mode() & 0o777;
    for bits in [0o600, 0o640, 0o666] {
        create(fs, "d/secret");
        fs::write(at.a("secret"), b"secret").unwrap();
        fs::set_permissions(at.a("secret"), fs::Permissions::from_mode(bits)).unwrap();
        fs.lfs("mirror resync d/secret").ok();
        // An existing file of that name stays as it is.
        let taken = at.a("secret.mirror~2");
        std::os::unix::fs::symlink("elsewhere", &taken).unwrap();
        assert_eq!(fs.lfs("mirror split --mirror-id 2 d/secret").code, 17);
        assert!(taken.is_symlink() && !at.a("elsewhere").exists());
        fs::remove_file(&taken).unwrap();
        fs.lfs("mirror split --mirror-id 2 d/secret").ok();
        assert_eq!(mode("secret.mirror~2"), bits);
        assert_eq!(fs::read(at.b("secret.mirror~2")).unwrap(), b"secret");
        // A split that fails leaves nothing behind.
        assert_ne!(fs.lfs("mirror split --mirror-id 1 -f d/new d/secret").code, 0);
        assert!(!at.b("new").exists());
        fs::remove_file(taken).unwrap();
        fs::remove_file(at.a("secret")).unwrap();
    }
    if rustix::process::geteuid().is_root() {
        create(fs, "d/theirs");
        fs::write(at.a("theirs"), b"theirs").unwrap();
        std::os::unix::fs::chown(at.a("theirs"), Some(1234), Some(2345)).unwrap();
        fs.lfs("mirror resync d/theirs").ok();
        fs.lfs("mirror split --mirror-id 1 d/theirs").ok();
        let split = fs::metadata(at.b("theirs.mirror~1")).unwrap();
        assert_eq!((split.uid(), split.gid()), (1234, 2345));
    }
}

#[test]
fn appends_mapped_stores_and_holes_reach_all_mirrors_by_resync() {
    let (two, at) = two_mounts!(LIMIT, "d");
    create(&two.fs, "d/f");
    for i in 0..20_u8 {
        let path = if i % 2 == 0 { at.a("f") } else { at.b("f") };
        OpenOptions::new().append(true).open(path).unwrap().write_all(&[i; 1000]).unwrap();
        if i == 9 {
            two.fs.lfs("mirror resync d/f").ok();
        }
    }
    let appended: Vec<u8> = (0..20_u8).flat_map(|i| [i; 1000]).collect();
    assert!(fs::read(at.b("f")).unwrap() == appended);
    two.fs.lfs("mirror resync d/f").ok();
    let file = OpenOptions::new().read(true).write(true).open(at.b("f")).unwrap();
    rustix::fs::fallocate(
        &file,
        rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
        0,
        4096,
    )
    .unwrap();
    assert_eq!(fresh(&at.a("f")), [1]);
    assert!(fs::read(at.a("f")).unwrap()[..4096].iter().all(|b| *b == 0));
    two.fs.lfs("mirror resync d/f").ok();
    let map = sheen_tests::posix::Map::new(&file, 8192);
    map.write(5000, &[77]);
    file.sync_all().unwrap();
    assert_eq!(fs::read(at.a("f")).unwrap()[5000], 77);
    two.fs.lfs("mirror resync d/f").ok();
    two.fs.lfs("mirror verify d/f").ok();
    assert_eq!(fs::metadata(at.a("f")).unwrap().size(), 20_000);
}

#[test]
fn mirror_on_inactive_osts_is_not_read() {
    let (two, at) = two_mounts!(LIMIT, "d");
    create(&two.fs, "d/f");
    let data = noise(5, LEN);
    fs::write(at.a("f"), &data).unwrap();
    two.fs.lfs("mirror resync d/f").ok();
    let set = |active: u8, osts: &[u8]| {
        for ost in osts {
            let name = format!("osc.{}-OST000{ost}-osc-*.active={active}", two.fsname);
            sheen_tests::run(sheen(), ["lctl", "set_param", &name]).ok();
        }
    };
    for osts in [[0, 1], [2, 3]] {
        set(0, &osts);
        let file = OpenOptions::new().read(true).custom_flags(libc_direct()).open(at.b("f")).unwrap();
        let mut read = vec![0; LEN];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == data, "OSTs {osts:?} are inactive");
        assert_eq!(fs::metadata(at.b("f")).unwrap().len(), LEN as u64);
        set(1, &osts);
    }
}

/// O_DIRECT.
fn libc_direct() -> i32 {
    rustix::fs::OFlags::DIRECT.bits() as i32
}

#[test]
fn stale_mirror_stays_stale_after_a_crash() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    create(&fs, "f");
    for round in 0..3_u8 {
        fs.lfs("mirror resync f").ok();
        assert_eq!(fresh(&fs.path("f")), [1, 2], "round {round}");
        let file = OpenOptions::new().write(true).open(fs.path("f")).unwrap();
        file.write_all_at(&vec![round + 1; LEN], 0).unwrap();
        fs.kill();
        drop(file);
        fs.start(&[]).ok();
        assert_eq!(fresh(&fs.path("f")), [1], "round {round}: the other one missed the write");
        // The end of the write was still dirty on the mount that was killed.
        let read = fs::read(fs.path("f")).unwrap();
        let wrong = read.iter().take(4 << 20).position(|b| *b != round + 1);
        assert!(read.len() >= 4 << 20 && wrong.is_none(), "round {round}: {} bytes, {wrong:?}", read.len());
    }
}

/// An OSS is killed: reads of a mirror on its OSTs continue with another mirror.
#[test]
fn reads_continue_on_another_mirror_when_osts_are_killed() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let nid = cluster.second_oss();
    let mut oss = Command::new(sheen());
    oss.arg("oss").arg("--dir").arg(cluster.base.join("oss2")).args(["--listen", &nid, "--osts", "2"]);
    oss.args(["--mgs", &cluster.nid("mgs"), "--fsname", "many"]);
    let mut oss = oss.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mount = cluster.mount();
    let outcome = std::panic::catch_unwind(|| {
        let path = mount.path("f");
        let lfs = |line: &str| {
            sheen_tests::cluster::bash(mount.path("").as_path(), &format!("{} lfs {line}", sheen().display()))
        };
        eventually("the second process's OSTs are there", || lfs("df").out.matches("OST").count() >= 4);
        lfs("mirror create -N -c 2 -o 0,1 -N -c 2 -o 2,3 f").ok();
        let data = noise(6, LEN);
        fs::write(&path, &data).unwrap();
        lfs("mirror resync f").ok();
        (path, data)
    });
    let killed = oss.kill();
    oss.wait().unwrap();
    killed.unwrap();
    let (path, data) = outcome.unwrap();
    while_down("a read of a file with a mirror on other OSTs", move || {
        let mut read = vec![0; LEN];
        let file = OpenOptions::new().read(true).custom_flags(libc_direct()).open(&path).unwrap();
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == data);
        assert_eq!(fs::metadata(&path).unwrap().len(), LEN as u64);
    });
}

/// Most files of a new file system begin on the MDT. Mirrors may be added to them later.
#[test]
fn mirror_extend_gives_a_dom_file_mirrors_on_osts() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let fs = &two.fs;
    fs.lfs("setstripe -E 64K -L mdt -E 256M -c 1 -E -1 -c 2 d").ok();
    for (name, len) in [("small", 3901), ("large", LEN)] {
        let (path, mut data) = (at.a(name), noise(8, len));
        fs::write(&path, &data).unwrap();
        fs.lfs(&format!("mirror extend -N -c 2 -S 128K d/{name}")).ok();
        assert_eq!(fresh(&path), [1, 2]);
        assert!(fs::read(at.b(name)).unwrap() == data);
        // A write on the other mount, also to the small file.
        let file = OpenOptions::new().write(true).open(at.b(name)).unwrap();
        data[100..200].fill(7);
        data.extend([9; 70_000]);
        file.write_all_at(&data[100..200], 100).unwrap();
        file.write_all_at(&data[len..], len as u64).unwrap();
        assert_eq!(fresh(&path), [1]);
        assert!(fs::read(&path).unwrap() == data);
        fs.lfs(&format!("mirror resync d/{name}")).ok();
        fs.lfs(&format!("mirror verify d/{name}")).ok();
        for id in [1, 2] {
            assert!(mirror(fs, id, &format!("d/{name}")) == data, "{name}, mirror {id}");
        }
        // A mirror with a DoM component cannot become another file, but it can be deleted.
        let refused = fs.lfs(&format!("mirror split --mirror-id 1 -f d/{name}.part d/{name}"));
        assert!(refused.code != 0 && refused.err.contains("not supported"), "{refused:?}");
        fs.lfs(&format!("mirror split --mirror-id 1 -d d/{name}")).ok();
        assert!(fs::read(&path).unwrap() == data && fs::read(at.b(name)).unwrap() == data);
        assert_eq!(layout(&path).mdt_end(), 0);
        fs::write(at.b(name), "new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}

/// A mirror with a DoM component beside one without, from the creation on: by command, and by a
/// directory's default layout.
#[test]
fn mirror_create_accepts_one_mirror_with_dom() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let fs = &two.fs;
    const DOM: &str = "-N -E 64K -L mdt -E -1 -c 1";
    for (n, options) in [format!("{DOM} -N -c 2 -S 128K"), format!("-N -c 2 -S 128K {DOM}")].iter().enumerate() {
        let (id, name) = (n as u16 + 1, format!("f{n}"));
        fs.lfs(&format!("mirror create {options} d/{name}")).ok();
        let (a, b) = (at.a(&name), at.b(&name));
        assert_eq!((fresh(&a), layout(&a).mirrors()[n].mdt_end()), (vec![1, 2], 64 << 10));
        let mut data = noise(n as u64, 3901);
        // Small, then past the DoM component, then small again.
        for (round, len) in [3901, 200_000, 100].into_iter().enumerate() {
            data = [&data[..], &noise(round as u64, len)].concat();
            data.truncate(len);
            fs::write(if round % 2 == 0 { &a } else { &b }, &data).unwrap();
            assert_eq!(fresh(&a), [1], "{options}");
            assert!(fs::read(&a).unwrap() == data && fs::read(&b).unwrap() == data, "{options}, {len} bytes");
            fs.lfs(&format!("mirror resync d/{name}")).ok();
            fs.lfs(&format!("mirror verify d/{name}")).ok();
            for id in [1, 2] {
                assert!(mirror(fs, id, &format!("d/{name}")) == data, "{options}, mirror {id}, {len} bytes");
            }
            // Each of the mirrors in turn is preferred for reads and writes.
            for id in [1, 2] {
                let component = layout(&a).mirrors()[id - 1].components()[0].id;
                let prefer = |what: &str| {
                    let line =
                        format!("setstripe --component-set -I {component} --component-flags={what}prefer d/{name}");
                    fs.lfs(&line).ok();
                };
                prefer("");
                assert!(fs::read(&b).unwrap() == data, "{options}, mirror {id}, {len} bytes");
                data[50..60].fill(id as u8);
                OpenOptions::new().write(true).open(&b).unwrap().write_all_at(&data[50..60], 50).unwrap();
                assert_eq!(fresh(&a), [id as u16]);
                assert!(fs::read(&a).unwrap() == data);
                fs.lfs(&format!("mirror resync d/{name}")).ok();
                prefer("^");
            }
        }
        // The mirror is deleted and created again, without its old data.
        fs.lfs(&format!("mirror delete --mirror-id {id} d/{name}")).ok();
        assert!(fs::read(&b).unwrap() == data);
        fs::write(&b, "other bytes").unwrap();
        fs.lfs(&format!("mirror extend {DOM} d/{name}")).ok();
        let again = *layout(&a).mirror_ids().last().unwrap();
        assert_eq!((mirror(fs, again, &format!("d/{name}")), fresh(&b).len()), (b"other bytes".to_vec(), 2));
        fs.lfs(&format!("mirror verify d/{name}")).ok();
        fs::remove_file(&a).unwrap();
        // A file that gets the directory's default layout.
        fs::create_dir(at.a("by-default")).unwrap();
        fs.lfs(&format!("setstripe {options} d/by-default")).ok();
        fs::write(at.b("by-default/f"), &data).unwrap();
        assert_eq!(layout(&at.a("by-default/f")).mirrors()[n].mdt_end(), 64 << 10);
        assert!(fs::read(at.a("by-default/f")).unwrap() == data);
        fs::remove_dir_all(at.a("by-default")).unwrap();
    }
    // Two such mirrors are refused before a file is created.
    for line in [format!("mirror create {DOM} {DOM} d/no"), format!("mirror create -N2{} d/no", &DOM[2..])] {
        let Ran { code, err, .. } = fs.lfs(&line);
        assert!(code == 1 && err.contains("Only one mirror of a file can begin on the MDT"), "{code} {err}");
        assert!(!at.a("no").exists());
    }
    // No object of any of these files is left.
    expect_stored_objects(&two.fs.dir(), 0);
}
