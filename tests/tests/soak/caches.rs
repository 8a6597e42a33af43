//! Cached data costs no request, including data in the kernel's page cache. A kernel may drop any
//! page at any time, so these tests belong to soak and not to the gate.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, PermissionsExt},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
};

use sheen_tests::{
    mounts::{Counts, LIMIT, Two, TwoMounts},
    noise,
    posix::Map,
    tree::{FILES, LEN, name, plant, read_all},
    two_mounts,
    wait::eventually,
};

fn rw(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Repeats the reads until two passes in a row send no request. Data read while the writer cancels
/// its locks may be dropped from the cache again.
fn read_until_cached(two: &TwoMounts, at: &Two) {
    let mut cached_reads = 0;
    eventually("reads are served from the cache", || {
        cached_reads = if two.cost(|| read_all(at)).is_empty() { cached_reads + 1 } else { 0 };
        two.quiet();
        cached_reads == 2
    });
}

/// Runs a check that depends on pages in the kernel's page cache, in both directions between the
/// mounts. The check must succeed once in `TRIES` tries, each in a directory of its own. A page
/// that the kernel drops and a bug of Sheen look the same, so one failed try does not count.
fn succeeds_in_one_of_several_tries(two: &TwoMounts, show: impl Fn(&Two)) {
    const TRIES: usize = 6;
    for (name, swapped) in [("d", false), ("e", true)] {
        for n in 1..=TRIES {
            let at = two.dir(&format!("{name}{n}"));
            let at = if swapped { at.swapped() } else { at };
            match catch_unwind(AssertUnwindSafe(|| show(&at))) {
                Ok(()) => break,
                Err(panic) if n == TRIES => resume_unwind(panic),
                Err(_) => println!("once more"),
            }
        }
    }
}

#[test]
fn second_open_sends_no_request() {
    let two = two_mounts!(LIMIT);
    succeeds_in_one_of_several_tries(&two, |at| {
        plant(&two, at);
        read_until_cached(&two, at);
        two.quiet();
        assert_eq!(
            two.cost(|| read_all(at)),
            Counts::new(),
            "nor does a second read: it does not move the access time"
        );
        let open_all = |open: &dyn Fn(&Path) -> File| (0..FILES).for_each(|i| drop(open(&at.b(&name(i)))));
        open_all(&|path| File::open(path).unwrap());
        assert_eq!(two.cost(|| open_all(&|path| File::open(path).unwrap())), Counts::new());
        assert_eq!(two.cost(|| open_all(&rw)), Counts::new(), "for writing");
        // Also while the file is open.
        let file = File::open(at.b(&name(5))).unwrap();
        assert_eq!(two.cost(|| open_all(&rw)), Counts::new());
        drop(file);
        // Changes by A elsewhere do not matter. Changes by A to the file do.
        fs::write(at.a("tree/new"), "x").unwrap();
        fs::remove_file(at.a("tree/new")).unwrap();
        fs::set_permissions(at.a(&name(1)), fs::Permissions::from_mode(0o600)).unwrap();
        fs::metadata(at.b("tree")).unwrap();
        assert_eq!(two.cost(|| drop(rw(&at.b(&name(2))))), Counts::new());
        assert_ne!(two.cost(|| drop(rw(&at.b(&name(1))))), Counts::new());
        assert_eq!(two.cost(|| drop(rw(&at.b(&name(1))))), Counts::new(), "known again");
    });
}

#[test]
fn second_read_sends_no_request() {
    let two = two_mounts!(LIMIT);
    succeeds_in_one_of_several_tries(&two, |at| {
        plant(&two, at);
        read_until_cached(&two, at);
        assert_eq!(two.cost(|| read_all(at)), Counts::new());
        let file = File::open(at.b(&name(5))).unwrap();
        let mut bytes = vec![0; LEN];
        let mut again = || file.read_exact_at(&mut bytes, 0).unwrap();
        again();
        assert_eq!(two.cost(again), Counts::new(), "a file that stays open");
        let map = Map::new(&rw(&at.b(&name(10))), LEN);
        map.read(0, LEN);
        assert_eq!(two.cost(|| drop(map.read(0, LEN))), Counts::new(), "a mapping");
    });
}

/// Changes of other files through the other mount leave a file's pages cached.
#[test]
fn changes_of_other_files_leave_pages_cached() {
    let two = two_mounts!(LIMIT);
    succeeds_in_one_of_several_tries(&two, |at| {
        plant(&two, at);
        read_until_cached(&two, at);
        fs::write(at.a("elsewhere"), noise(1, LEN)).unwrap();
        // Without fsync, A would write its dirty data to the OSTs at any time.
        File::open(at.a("elsewhere")).unwrap().sync_all().unwrap();
        two.quiet();
        // The directory itself changed, so the kernel asks for its attributes during the path
        // lookup.
        let asked = two.cost(|| assert!(fs::metadata(at.b("")).unwrap().is_dir()));
        assert_eq!(asked.values().sum::<u64>(), 1, "{asked:?}");
        assert_eq!(two.cost(|| read_all(at)), Counts::new(), "after A made another file");
        rw(&at.a(&name(1))).write_all_at(b"short", 0).unwrap();
        assert_eq!(two.cost(|| read_all(at)), Counts::new(), "after A wrote to another file");
    });
}
