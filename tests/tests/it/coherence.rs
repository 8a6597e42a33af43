//! Coherence of two mounts: a process on one mount sees at once what a process on another mount
//! did.
//!
//! Each statement is a function of two views of one directory. It runs with each of two mounts in
//! either role: the mount of the serving process, and a mount over tcp. All statements run once
//! more with servers in processes of their own. In each of them, B knows (and so has cached) the
//! old state before A changes it.

use sheen_tests::{
    Mount,
    cluster::Cluster,
    mounts::{LIMIT, Two, Watch},
    sheen, two_mounts,
};

macro_rules! statements {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            on_two_mounts(stringify!($name), says::$name);
        })*

        const ALL: &[(&str, fn(&Two))] = &[$((stringify!($name), says::$name)),*];
    };
}

statements! {
    overwrite_is_read_by_the_other_mount
    overwrite_is_read_through_an_open_descriptor
    mapping_shows_writes_of_the_other_mount
    msynced_stores_are_read_by_the_other_mount
    stat_shows_size_and_times_of_writes_elsewhere
    size_is_current_after_the_layout_was_set
    truncated_bytes_read_as_end_of_file_or_zeros
    punched_hole_reads_as_zeros_on_the_other_mount
    direct_io_and_page_cache_see_the_same_data
    new_names_are_found_at_once
    removed_names_are_missing_at_once
    renamed_files_are_found_under_their_new_names_at_once
    readdir_lists_the_current_entries
    file_permission_changes_apply_at_once
    directory_permission_changes_apply_at_once
    acl_changes_apply_at_once
    xattr_changes_are_seen_at_once
    replaced_symlink_resolves_to_its_new_target
    link_counts_are_current_after_link_rename_and_unlink
    open_file_survives_a_rename_over_it
    unlinked_file_stays_usable_while_open
    removed_working_directory_returns_enoent_or_estale
    recreated_name_resolves_to_the_new_file
    moved_directory_keeps_its_subtree_reachable
    copy_file_range_is_read_by_the_other_mount
}

fn on_two_mounts(name: &str, statement: fn(&Two)) {
    let two = two_mounts!(LIMIT);
    statement(&two.dir(name));
    statement(&two.dir(&format!("{name}-swapped")).swapped());
}

#[test]
fn all_statements_hold_with_servers_in_separate_processes() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let (first, second) = (cluster.mount(), cluster.mount_as("mnt2"));
    let stripe = |m: &Mount| {
        let mut command = std::process::Command::new(sheen());
        command.args(["lfs", "setstripe", "-c", "2", "-S", "64K", "."]).current_dir(&m.mnt);
        sheen_tests::run_command(command).ok()
    };
    stripe(&first);
    let _watch = Watch::over(&[&first.mnt, &second.mnt], LIMIT);
    for (name, statement) in ALL {
        std::fs::create_dir(first.path(name)).unwrap();
        eprintln!("{name}");
        statement(&Two { a: first.path(name), b: second.path(name) });
    }
}

/// The statements.
mod says {
    use std::{
        collections::BTreeSet,
        fs::{self, File, OpenOptions},
        io::{ErrorKind, Read, Write},
        os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
        path::Path,
        process::Stdio,
    };

    use rustix::{
        fs::{FallocateFlags, RenameFlags, XattrFlags},
        io::Errno,
    };
    use sheen_tests::{
        is_root,
        mounts::{Two, as_nobody},
        noise,
        posix::{Map, rw},
        run_command,
    };

    /// Several stripes, and no multiple of the page or stripe size.
    const LEN: usize = 300_017;
    const ROUNDS: u64 = 10;

    fn times(path: &Path) -> [(i64, i64); 2] {
        let m = fs::metadata(path).unwrap();
        [(m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec())]
    }

    fn names(dir: &Path) -> BTreeSet<String> {
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Errno {
        Errno::from_io_error(&result.expect_err("must fail")).unwrap()
    }

    pub fn overwrite_is_read_by_the_other_mount(at: &Two) {
        for round in 0..ROUNDS {
            let data = noise(round, LEN - round as usize * 1000);
            fs::write(at.a("f"), &data).unwrap();
            for _ in 0..2 {
                assert!(fs::read(at.b("f")).unwrap() == data, "round {round}: B reads what A wrote");
            }
            rw(&at.a("f")).write_all_at(b"in the middle", 65_530).unwrap();
            let text = fs::read(at.b("f")).unwrap();
            assert_eq!(&text[65_530..65_543], b"in the middle", "round {round}: a part");
            assert!(text[65_543..] == data[65_543..] && text[..65_530] == data[..65_530], "nothing else changed");
            assert!(fs::read(at.a("f")).unwrap() == text, "A reads its own");
        }
    }

    pub fn overwrite_is_read_through_an_open_descriptor(at: &Two) {
        let (a, b) = (rw(&at.a("f")), rw(&at.b("f")));
        for round in 0..ROUNDS {
            let data = noise(round, LEN);
            a.write_all_at(&data, 0).unwrap();
            let mut back = vec![0; LEN];
            b.read_exact_at(&mut back, 0).unwrap();
            assert!(back == data, "round {round}: through a descriptor that was open before");
            b.write_all_at(b"an answer", 1000).unwrap();
            a.read_exact_at(&mut back[..2000], 0).unwrap();
            assert_eq!(&back[1000..1009], b"an answer", "round {round}: and back");
            let end = LEN as u64 + round;
            a.write_all_at(b"!", end).unwrap();
            assert_eq!(b.read_at(&mut back[..10], end).unwrap(), 1, "the appended byte, and no more");
        }
    }

    pub fn mapping_shows_writes_of_the_other_mount(at: &Two) {
        let data = noise(1, LEN);
        fs::write(at.a("f"), &data).unwrap();
        let file = rw(&at.b("f"));
        let map = Map::new(&file, LEN);
        assert!(map.read(0, LEN) == data);
        for round in 0..ROUNDS {
            let data = noise(100 + round, LEN);
            rw(&at.a("f")).write_all_at(&data, 0).unwrap();
            assert!(map.read(0, LEN) == data, "round {round}: the mapping made before the write shows it");
        }
        // The mapping shows bytes past the old end of the file once B has the new size.
        let longer = Map::new(&file, LEN + 100_000);
        rw(&at.a("f")).write_all_at(b"grown", LEN as u64 + 90_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), LEN as u64 + 90_005);
        assert_eq!(longer.read(LEN + 90_000, 5), b"grown");
        assert!(longer.read(LEN, 90_000).iter().all(|b| *b == 0));
    }

    pub fn msynced_stores_are_read_by_the_other_mount(at: &Two) {
        fs::write(at.a("f"), noise(1, LEN)).unwrap();
        let file = rw(&at.a("f"));
        let map = Map::new(&file, LEN);
        let mut want = fs::read(at.b("f")).unwrap();
        let other = rw(&at.b("f"));
        let before = times(&at.b("f"));
        for round in 0..ROUNDS as usize {
            let (place, bytes) = (round * 29_000 + 4090, noise(round as u64, 5000));
            map.write(place, &bytes);
            map.sync().unwrap();
            want[place..place + 5000].copy_from_slice(&bytes);
            let mut back = vec![0; LEN];
            other.read_exact_at(&mut back, 0).unwrap();
            assert!(back == want, "round {round}: what msync(2) wrote");
            other.write_all_at(&noise(50 + round as u64, 3000), place as u64 + 1000).unwrap();
            want[place + 1000..place + 4000].copy_from_slice(&noise(50 + round as u64, 3000));
            assert!(map.read(0, LEN) == want, "round {round}: and what B wrote into it");
        }
        assert!(times(&at.b("f"))[0] > before[0]);
        assert_eq!(other.metadata().unwrap().len(), LEN as u64);
    }

    pub fn stat_shows_size_and_times_of_writes_elsewhere(at: &Two) {
        let (file, seen) = (rw(&at.a("f")), rw(&at.b("f")));
        let mut last = times(&at.b("f"));
        let mut changed = |what: &str, size: u64| {
            let now = times(&at.b("f"));
            assert!(now[0] > last[0] && now[1] > last[1], "{what} moves the times that B sees");
            assert_eq!(now, times(&at.a("f")), "{what}: A and B see the same times");
            let found = (fs::metadata(at.b("f")).unwrap(), seen.metadata().unwrap(), fs::metadata(at.a("f")).unwrap());
            assert_eq!((found.0.len(), found.1.len(), found.2.len()), (size, size, size), "{what}: B, B's open, A");
            assert_eq!(found.0.blocks(), found.2.blocks(), "{what}");
            last = now;
        };
        for round in 0..ROUNDS {
            file.set_len(0).unwrap();
            file.write_all_at(b"x", 0).unwrap();
            changed("a write", 1);
            file.write_all_at(&noise(round, LEN), 0).unwrap();
            changed("a longer write", LEN as u64);
            OpenOptions::new().append(true).open(at.a("f")).unwrap().write_all(b"more").unwrap();
            changed("an append", LEN as u64 + 4);
            file.write_all_at(b"far", 1 << 20).unwrap();
            changed("a sparse write", (1 << 20) + 3);
            file.set_len(100_000).unwrap();
            changed("a truncate", 100_000);
            file.set_len(3 << 20).unwrap();
            changed("an extending truncate", 3 << 20);
            file.write_all_at(b"inside", 70_000).unwrap();
            changed("a write that leaves the size", 3 << 20);
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 3 << 20, 4096).unwrap();
            changed("fallocate", (3 << 20) + 4096);
            File::create(at.a("f")).unwrap();
            changed("O_TRUNC", 0);
        }
        let set = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1));
        file.set_times(set).unwrap();
        assert_eq!(times(&at.b("f"))[0], (0, 1), "utimensat");
    }

    pub fn size_is_current_after_the_layout_was_set(two: &Two) {
        for layout in ["-c 1", "-C 3", "-E 64K -L mdt -E -1"] {
            let mut setstripe = std::process::Command::new(super::sheen());
            setstripe.args(["lfs", "setstripe"]).args(layout.split(' ')).arg(two.b("new"));
            run_command(setstripe).ok();
            assert_eq!(fs::metadata(two.b("new")).unwrap().len(), 0);
            rw(&two.a("new")).write_all_at(&noise(1, LEN), 0).unwrap();
            assert_eq!(fs::metadata(two.b("new")).unwrap().len(), LEN as u64, "{layout}");
            assert!(fs::read(two.b("new")).unwrap() == noise(1, LEN), "{layout}");
            fs::remove_file(two.a("new")).unwrap();
        }
    }

    pub fn truncated_bytes_read_as_end_of_file_or_zeros(at: &Two) {
        let (file, other) = (rw(&at.a("f")), rw(&at.b("f")));
        let map = Map::new(&other, LEN);
        for round in 0..ROUNDS {
            file.write_all_at(&noise(round, LEN), 0).unwrap();
            assert!(fs::read(at.b("f")).unwrap() == noise(round, LEN));
            assert!(map.read(0, LEN) == noise(round, LEN));
            let cut = [0, 1, 65_536, 65_537, 131_072, 200_000, 4096, 4097, 299_999, 70_000][round as usize];
            file.set_len(cut).unwrap();
            let mut back = vec![0; LEN];
            assert_eq!(other.read_at(&mut back, 0).unwrap() as u64, cut, "round {round}: cut to {cut}");
            file.set_len(LEN as u64).unwrap();
            let back = fs::read(at.b("f")).unwrap();
            let mut want = noise(round, LEN);
            want[cut as usize..].fill(0);
            assert!(back == want, "round {round}: zeros from {cut}");
            assert!(map.read(0, LEN) == want, "round {round}: in a mapping, too");
        }
    }

    pub fn punched_hole_reads_as_zeros_on_the_other_mount(at: &Two) {
        let file = rw(&at.a("f"));
        file.write_all_at(&noise(1, LEN), 0).unwrap();
        let mut want = fs::read(at.b("f")).unwrap();
        for (from, len) in [(10u64, 100u64), (60_000, 10_000), (131_072, 65_536), (200_001, 99_000)] {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, from, len).unwrap();
            want[from as usize..(from + len) as usize].fill(0);
            assert!(fs::read(at.b("f")).unwrap() == want, "{len} bytes punched from {from}");
        }
    }

    pub fn direct_io_and_page_cache_see_the_same_data(at: &Two) {
        const O_DIRECT: i32 = 0o40000;
        let open =
            |p: &Path| OpenOptions::new().read(true).write(true).create(true).custom_flags(O_DIRECT).open(p).unwrap();
        let len = 64 * 4096;
        let mut room = vec![0u8; len + 4096];
        let skip = room.as_ptr().align_offset(4096);
        let (direct, cached) = (open(&at.a("f")), rw(&at.b("f")));
        let map = Map::new(&cached, len);
        for round in 0..ROUNDS {
            let data = noise(round, len);
            room[skip..skip + len].copy_from_slice(&data);
            direct.write_all_at(&room[skip..skip + len], 0).unwrap();
            assert!(fs::read(at.b("f")).unwrap() == data, "round {round}: B's page cache after A's O_DIRECT");
            assert!(map.read(0, len) == data);
            assert!(fs::read(at.a("f")).unwrap() == data, "round {round}: A's own page cache after its O_DIRECT");
            let data = noise(1000 + round, len);
            cached.write_all_at(&data, 0).unwrap();
            direct.read_exact_at(&mut room[skip..skip + len], 0).unwrap();
            assert!(room[skip..skip + len] == data, "round {round}: O_DIRECT after B's write");
        }
    }

    pub fn new_names_are_found_at_once(at: &Two) {
        for round in 0..ROUNDS {
            let name = |kind: &str| format!("{kind}{round}");
            let kinds = ["file", "dir", "symlink", "link", "fifo", "excl", "renamed"].map(name);
            for kind in &kinds {
                for _ in 0..2 {
                    assert_eq!(errno(fs::symlink_metadata(at.b(kind))), Errno::NOENT, "cached as missing");
                }
            }
            fs::write(at.a(&kinds[0]), "text").unwrap();
            fs::create_dir(at.a(&kinds[1])).unwrap();
            symlink("x", at.a(&kinds[2])).unwrap();
            fs::hard_link(at.a(&kinds[0]), at.a(&kinds[3])).unwrap();
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, at.a(&kinds[4]), rustix::fs::FileType::Fifo, mode, 0).unwrap();
            File::create_new(at.a(&kinds[5])).unwrap();
            fs::write(at.a("temporary"), "moved").unwrap();
            fs::rename(at.a("temporary"), at.a(&kinds[6])).unwrap();
            for kind in &kinds {
                assert!(fs::symlink_metadata(at.b(kind)).is_ok(), "{kind} is there");
                assert_eq!(File::create_new(at.b(kind)).unwrap_err().kind(), ErrorKind::AlreadyExists, "{kind}");
            }
            assert_eq!(fs::read(at.b(&kinds[0])).unwrap(), b"text");
            assert_eq!(fs::read(at.b(&kinds[6])).unwrap(), b"moved");
        }
    }

    pub fn removed_names_are_missing_at_once(at: &Two) {
        for _ in 0..ROUNDS {
            fs::write(at.a("f"), "x").unwrap();
            fs::create_dir(at.a("d")).unwrap();
            symlink("f", at.a("s")).unwrap();
            assert_eq!(fs::read(at.b("s")).unwrap(), b"x");
            assert!(fs::metadata(at.b("d")).unwrap().is_dir());
            fs::remove_file(at.a("f")).unwrap();
            assert_eq!(errno(fs::metadata(at.b("f"))), Errno::NOENT);
            assert_eq!(errno(File::open(at.b("f"))), Errno::NOENT);
            assert_eq!(errno(fs::read(at.b("s"))), Errno::NOENT, "the link dangles");
            fs::remove_dir(at.a("d")).unwrap();
            assert_eq!(errno(File::create(at.b("d/f"))), Errno::NOENT);
            assert_eq!(errno(fs::remove_dir(at.b("d"))), Errno::NOENT);
            fs::remove_file(at.a("s")).unwrap();
            assert_eq!(errno(fs::symlink_metadata(at.b("s"))), Errno::NOENT);
        }
    }

    pub fn renamed_files_are_found_under_their_new_names_at_once(at: &Two) {
        fs::create_dir(at.a("from")).unwrap();
        fs::create_dir(at.a("to")).unwrap();
        let ino = |p: &Path| fs::metadata(p).unwrap().ino();
        fs::write(at.a("from/f"), "0").unwrap();
        for round in 0..ROUNDS {
            let (here, there) = if round % 2 == 0 { ("from/f", "to/g") } else { ("to/g", "from/f") };
            let before = ino(&at.b(here));
            assert_eq!(errno(fs::metadata(at.b(there))), Errno::NOENT);
            fs::rename(at.a(here), at.a(there)).unwrap();
            assert_eq!(errno(fs::metadata(at.b(here))), Errno::NOENT, "round {round}");
            assert_eq!(ino(&at.b(there)), before, "round {round}");
        }
        fs::write(at.a("x"), "x").unwrap();
        fs::write(at.a("y"), "yy").unwrap();
        for round in 0..ROUNDS {
            let before = (ino(&at.b("x")), ino(&at.b("y")));
            let cwd = rustix::fs::CWD;
            rustix::fs::renameat_with(cwd, at.a("x"), cwd, at.a("y"), RenameFlags::EXCHANGE).unwrap();
            assert_eq!((ino(&at.b("y")), ino(&at.b("x"))), before, "round {round}: exchanged");
            assert_eq!(fs::read(at.b("x")).unwrap().len(), 2 - (round % 2) as usize);
        }
    }

    pub fn readdir_lists_the_current_entries(at: &Two) {
        let mut want = BTreeSet::new();
        assert_eq!(names(&at.b), want);
        for round in 0..3 * ROUNDS {
            let name = format!("n{round}");
            match round % 3 {
                0 => fs::write(at.a(&name), "x").unwrap(),
                1 => fs::create_dir(at.a(&name)).unwrap(),
                _ => fs::hard_link(at.a(&format!("n{}", round - 2)), at.a(&name)).unwrap(),
            }
            want.insert(name);
            assert_eq!(names(&at.b), want);
            let count = fs::metadata(&at.b).unwrap().nlink();
            assert_eq!(count, 2 + round.div_ceil(3), "subdirectories count");
            if round % 3 == 2 {
                let deleted = format!("n{}", round - 2);
                fs::remove_file(at.a(&deleted)).unwrap();
                want.remove(&deleted);
                fs::rename(at.a(&format!("n{round}")), at.a(&format!("m{round}"))).unwrap();
                want.remove(&format!("n{round}"));
                want.insert(format!("m{round}"));
                assert_eq!(names(&at.b), want);
            }
        }
    }

    fn nobody(script: &str, dir: &Path) -> i32 {
        let mut command = as_nobody(script);
        command.current_dir(dir);
        run_command(command).code
    }

    pub fn file_permission_changes_apply_at_once(at: &Two) {
        fs::write(at.a("f"), "x").unwrap();
        let chmod = |mode| fs::set_permissions(at.a("f"), fs::Permissions::from_mode(mode)).unwrap();
        for _ in 0..3 {
            chmod(0o644);
            assert_eq!(fs::metadata(at.b("f")).unwrap().mode() & 0o7777, 0o644);
            if is_root() {
                assert_eq!(nobody("cat f && cat f", &at.b), 0);
            }
            chmod(0o600);
            assert_eq!(fs::metadata(at.b("f")).unwrap().mode() & 0o7777, 0o600);
            if is_root() {
                assert_ne!(nobody("cat f", &at.b), 0, "denied at once");
                std::os::unix::fs::chown(at.a("f"), Some(65534), None).unwrap();
                assert_eq!(nobody("cat f && echo more >> f && chmod 400 f", &at.b), 0, "allowed at once");
                assert_eq!(fs::metadata(at.a("f")).unwrap().mode() & 0o7777, 0o400);
                std::os::unix::fs::chown(at.a("f"), Some(0), None).unwrap();
                assert_ne!(nobody("chmod 644 f", &at.b), 0);
            }
        }
    }

    pub fn directory_permission_changes_apply_at_once(at: &Two) {
        if !is_root() {
            return println!("skipped: needs root to become another user");
        }
        fs::create_dir_all(at.a("d/e")).unwrap();
        fs::write(at.a("d/e/f"), "x").unwrap();
        for _ in 0..3 {
            assert_eq!(nobody("cat d/e/f && ls d && stat d/e/f", &at.b), 0);
            fs::set_permissions(at.a("d"), fs::Permissions::from_mode(0o700)).unwrap();
            assert_ne!(nobody("cat d/e/f", &at.b), 0, "names below are cached, and still out of reach");
            assert_ne!(nobody("stat d/e/f", &at.b), 0);
            assert_ne!(nobody("ls d", &at.b), 0);
            fs::set_permissions(at.a("d"), fs::Permissions::from_mode(0o777)).unwrap();
            assert_eq!(nobody("cat d/e/f && touch d/new && rm d/new", &at.b), 0);
            fs::set_permissions(at.a("d"), fs::Permissions::from_mode(0o755)).unwrap();
            assert_ne!(nobody("touch d/new", &at.b), 0);
        }
    }

    pub fn acl_changes_apply_at_once(at: &Two) {
        if !is_root() {
            return println!("skipped: needs root to become another user");
        }
        fs::write(at.a("f"), "x").unwrap();
        fs::set_permissions(at.a("f"), fs::Permissions::from_mode(0o600)).unwrap();
        let on_a = |script: &str| {
            let mut command = std::process::Command::new("bash");
            command.args(["-c", script]).current_dir(&at.a);
            run_command(command).ok()
        };
        for _ in 0..3 {
            assert_ne!(nobody("cat f", &at.b), 0);
            on_a("setfacl -m u:65534:r f");
            assert_eq!(nobody("cat f && ! echo x >> f", &at.b), 0, "the ACL allows access at once");
            on_a("setfacl -m u:65534:rw f");
            assert_eq!(nobody("echo x >> f && getfacl -cpn f | grep -q user:65534:rw-", &at.b), 0);
            on_a("setfacl -b f");
            assert_ne!(nobody("cat f", &at.b), 0, "access is denied at once");
        }
    }

    pub fn xattr_changes_are_seen_at_once(at: &Two) {
        fs::write(at.a("f"), "x").unwrap();
        let get = |name: &str| {
            let mut buffer = vec![0; 70_000];
            rustix::fs::getxattr(at.b("f"), name, &mut buffer).map(|n| buffer[..n].to_vec())
        };
        let list = || {
            let mut buffer = vec![0; 1000];
            let n = rustix::fs::listxattr(at.b("f"), &mut buffer).unwrap();
            String::from_utf8(buffer[..n].to_vec()).unwrap()
        };
        for round in 0..ROUNDS {
            assert_eq!(get("user.k"), Err(Errno::NODATA), "round {round}");
            assert!(!list().contains("user.k"));
            for len in [1, 300, 60_000] {
                let value = noise(round, len);
                rustix::fs::setxattr(at.a("f"), "user.k", &value, XattrFlags::empty()).unwrap();
                assert!(get("user.k").unwrap() == value, "round {round}: {len} bytes");
            }
            assert!(list().contains("user.k"));
            rustix::fs::removexattr(at.a("f"), "user.k").unwrap();
        }
    }

    pub fn replaced_symlink_resolves_to_its_new_target(at: &Two) {
        fs::write(at.a("f0"), "0").unwrap();
        fs::write(at.a("f1"), "1").unwrap();
        for round in 0..ROUNDS {
            let target = format!("f{}", round % 2);
            symlink(&target, at.a("new")).unwrap();
            fs::rename(at.a("new"), at.a("s")).unwrap();
            assert_eq!(fs::read_link(at.b("s")).unwrap(), Path::new(&target));
            assert_eq!(fs::read_to_string(at.b("s")).unwrap(), (round % 2).to_string());
            if round % 3 == 0 {
                fs::remove_file(at.a("s")).unwrap();
                symlink("nowhere", at.a("s")).unwrap();
                assert_eq!(fs::read_link(at.b("s")).unwrap(), Path::new("nowhere"));
            }
        }
    }

    pub fn link_counts_are_current_after_link_rename_and_unlink(at: &Two) {
        fs::write(at.a("f"), "x").unwrap();
        let open = File::open(at.b("f")).unwrap();
        let counts = || (fs::metadata(at.b("f")).unwrap().nlink(), open.metadata().unwrap().nlink());
        assert_eq!(counts(), (1, 1));
        for round in 0..ROUNDS {
            fs::hard_link(at.a("f"), at.a("g")).unwrap();
            assert_eq!(counts(), (2, 2), "round {round}");
            assert_eq!(fs::metadata(at.b("g")).unwrap().nlink(), 2);
            fs::rename(at.a("g"), at.a("h")).unwrap();
            assert_eq!(counts(), (2, 2));
            fs::remove_file(at.a("h")).unwrap();
            assert_eq!(counts(), (1, 1));
        }
        fs::remove_file(at.a("f")).unwrap();
        assert_eq!(open.metadata().unwrap().nlink(), 0);
    }

    pub fn open_file_survives_a_rename_over_it(at: &Two) {
        for round in 0..ROUNDS {
            fs::write(at.a("f"), format!("old {round}")).unwrap();
            let mut old = File::open(at.b("f")).unwrap();
            assert_eq!(fs::read_to_string(at.b("f")).unwrap(), format!("old {round}"));
            fs::write(at.a("new"), format!("the new one {round}")).unwrap();
            fs::rename(at.a("new"), at.a("f")).unwrap();
            assert_eq!(fs::read_to_string(at.b("f")).unwrap(), format!("the new one {round}"));
            let mut text = String::new();
            old.read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("old {round}"), "the open file keeps its data");
            assert_eq!(old.metadata().unwrap().nlink(), 0);
        }
    }

    pub fn unlinked_file_stays_usable_while_open(at: &Two) {
        fs::write(at.a("f"), noise(1, LEN)).unwrap();
        let (a, b) = (rw(&at.a("f")), rw(&at.b("f")));
        assert!(fs::read(at.b("f")).unwrap() == noise(1, LEN));
        fs::remove_file(at.a("f")).unwrap();
        assert_eq!(errno(fs::metadata(at.b("f"))), Errno::NOENT);
        let mut back = vec![0; LEN];
        for round in 2..ROUNDS {
            b.write_all_at(&noise(round, LEN), 0).unwrap();
            a.read_exact_at(&mut back, 0).unwrap();
            assert!(back == noise(round, LEN), "both mounts share the orphan");
            a.write_all_at(b"from A", LEN as u64 + round).unwrap();
            assert_eq!(b.metadata().unwrap().len(), LEN as u64 + round + 6);
        }
        drop(a);
        b.read_exact_at(&mut back, 0).unwrap();
        assert!(back == noise(ROUNDS - 1, LEN), "B's open file keeps its data after A closed");
    }

    pub fn removed_working_directory_returns_enoent_or_estale(at: &Two) {
        fs::create_dir_all(at.a("d/e")).unwrap();
        let script = "
import os, sys, errno
os.chdir(sys.argv[1]); os.listdir('.'); os.stat('e')
print('there', flush=True); sys.stdin.readline()
expected = (errno.ENOENT, errno.ESTALE)
def fails(what, call):
    try: call()
    except OSError as e: assert e.errno in expected, (what, e)
    else: raise Exception(what + ' succeeds')
fails('create', lambda: open('x', 'w')); fails('mkdir', lambda: os.mkdir('x'))
fails('stat e', lambda: os.stat('e')); fails('open e', lambda: os.listdir('e'))
try: assert os.listdir('.') == []
except OSError as e: assert e.errno in expected, e
print('all fail')";
        let mut child = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(at.b("d"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut said = [0; 6];
        output.read_exact(&mut said).unwrap();
        fs::remove_dir(at.a("d/e")).unwrap();
        fs::remove_dir(at.a("d")).unwrap();
        input.write_all(b"\n").unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        child.wait().unwrap();
        assert_eq!(rest, "all fail\n");
        assert_eq!(errno(fs::metadata(at.b("d"))), Errno::NOENT);
    }

    pub fn recreated_name_resolves_to_the_new_file(at: &Two) {
        for round in 0..ROUNDS {
            let len = (round as usize * 50_000) + 1;
            fs::write(at.a("f"), noise(round, len)).unwrap();
            assert!(fs::read(at.b("f")).unwrap() == noise(round, len));
            let before = fs::metadata(at.b("f")).unwrap().ino();
            fs::remove_file(at.a("f")).unwrap();
            fs::write(at.a("f"), noise(round + 100, len)).unwrap();
            let after = fs::metadata(at.b("f")).unwrap();
            assert_ne!(after.ino(), before, "round {round}");
            assert!(fs::read(at.b("f")).unwrap() == noise(round + 100, len), "round {round}");
            fs::remove_file(at.b("f")).unwrap();
            assert_eq!(errno(fs::metadata(at.a("f"))), Errno::NOENT);
            fs::create_dir(at.b("f")).unwrap();
            assert!(fs::metadata(at.a("f")).unwrap().is_dir(), "a directory in its place");
            fs::remove_dir(at.a("f")).unwrap();
        }
    }

    pub fn moved_directory_keeps_its_subtree_reachable(at: &Two) {
        fs::create_dir_all(at.a("d/e/f")).unwrap();
        fs::write(at.a("d/e/f/file"), "deep").unwrap();
        fs::create_dir(at.a("other")).unwrap();
        let mut place = "d";
        for _ in 0..ROUNDS {
            let next = if place == "d" { "other/d" } else { "d" };
            let below = |top: &str| at.b(&format!("{top}/e/f/file"));
            assert_eq!(fs::read_to_string(below(place)).unwrap(), "deep");
            fs::rename(at.a(place), at.a(next)).unwrap();
            assert_eq!(errno(fs::metadata(below(place))), Errno::NOENT);
            assert_eq!(fs::read_to_string(below(next)).unwrap(), "deep");
            let up = fs::canonicalize(at.b(&format!("{next}/e/.."))).unwrap();
            assert_eq!(up, at.b(next), "and .. leads where it should");
            place = next;
        }
    }

    pub fn copy_file_range_is_read_by_the_other_mount(at: &Two) {
        fs::write(at.a("from"), noise(7, LEN)).unwrap();
        fs::write(at.a("to"), noise(8, LEN)).unwrap();
        let mut want = fs::read(at.b("to")).unwrap();
        let (from, to) = (File::open(at.a("from")).unwrap(), rw(&at.a("to")));
        for start in [0u64, 65_000, 131_072, 200_001] {
            let (mut source, mut target) = (start, start + 10_000);
            let n = rustix::fs::copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 60_000).unwrap();
            assert!(n > 0);
            let (s, t) = (start as usize, start as usize + 10_000);
            want.resize(want.len().max(t + n), 0);
            want[t..t + n].copy_from_slice(&noise(7, LEN)[s..s + n]);
            assert!(fs::read(at.b("to")).unwrap() == want, "copied from {start}");
        }
    }
}
