//! `sheen fsck`: the check of directories that no server uses. All tests with a file system of
//! `sheen up` end with such a check, too.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use sheen_tests::{
    Fs, Guarded, Ran, can_mount, run, sheen,
    wait::{eventually, eventually_some},
};

fn fsck(options: &[&str]) -> Ran {
    run(sheen(), [&["fsck"], options].concat())
}

/// The file of the only object of an OST.
fn object(ost: &Path) -> PathBuf {
    let seq = fs::read_dir(ost.join("O")).unwrap().flatten().next().unwrap().path();
    let objects = (0..32).flat_map(|slot| fs::read_dir(seq.join(format!("d{slot}"))).into_iter().flatten().flatten());
    let mut objects: Vec<PathBuf> = objects.map(|entry| entry.path()).collect();
    assert_eq!(objects.len(), 1, "{objects:?}");
    objects.remove(0)
}

#[test]
fn fsck_makes_a_file_of_an_object_without_one() {
    let Some(up) = Fs::up_or_skip(1) else { return };
    fs::write(up.path("file"), "data").unwrap();
    let dir = up.dir().to_string_lossy().into_owned();
    let refused = fsck(&["--dir", &dir]);
    assert_eq!(refused.code, 8, "{}", refused.out);
    assert!(refused.err.contains("in use by another process"), "{}", refused.err);
    up.stop().ok();

    let found = fsck(&["--dir", &dir]);
    assert_eq!(found.code, 0, "{}", found.out);
    assert_eq!(found.out, "sheen-MDT0000: 2 files and 1 objects, on 1 checked OSTs: no problems\n");

    let known = object(&up.dir().join("ost0"));
    let oid: u32 = known.file_name().unwrap().to_string_lossy().parse().unwrap();
    fs::write(known.with_file_name(format!("{:x}", oid + 32)), "lost").unwrap();
    let found = fsck(&["--dir", &dir, "--json"]);
    assert_eq!(found.code, 4, "{}", found.out);
    let found: serde_json::Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!(found["problems"][0]["problem"], "orphan_object");
    assert_eq!((&found["problem_count"], &found["left"], &found["copy"]), (&1.into(), &1.into(), &().into()));

    let repaired = fsck(&["--dir", &dir, "--repair"]);
    assert_eq!(repaired.code, 1, "{}", repaired.out);
    assert!(repaired.out.contains("  repaired: make it a file in /lost+found\n"), "{}", repaired.out);
    assert!(up.dir().join("mdt0/store.redb.before-repair.1").is_file());
    up.start(&[]).ok();
    assert_eq!(up.sh("cat file lost+found/OST0000-*").ok(), "datalost");
    assert_eq!(up.sh("stat -c %a lost+found && touch file2 && cat lost+found/*").ok(), "700\nlost");
}

#[test]
fn fsck_finds_another_owner_of_an_object_and_the_mdt_sends_the_files_owner() {
    let Some(up) = Fs::up_or_skip(1) else { return };
    fs::write(up.path("file"), "data").unwrap();
    let uid = fs::metadata(up.path("file")).unwrap().uid();
    up.stop().ok();
    let (dir, ost) = (up.dir().to_string_lossy().into_owned(), up.dir().join("ost0"));
    let oid: u64 = object(&ost).file_name().unwrap().to_string_lossy().parse().unwrap();
    let records = fs::read_dir(ost.join("owners")).unwrap().flatten().next().unwrap().path();
    let records = fs::File::options().read(true).write(true).open(records).unwrap();
    // User, group, project, and flags: the file and the owner are known.
    let record = [uid + 1, 0, 0, 3].map(u32::to_be_bytes).concat();
    records.write_all_at(&record, oid * 32 + 16).unwrap();

    let found = fsck(&["--dir", &dir]);
    assert_eq!(found.code, 4, "{}", found.out);
    let wrong = format!("is charged to user {}, group 0, project 0, and should be to user {uid}, group ", uid + 1);
    assert!(found.out.contains(&wrong), "{}", found.out);
    assert!(found.out.contains(" (/file)\n  repair: send the file's owner to its OSTs\n"), "{}", found.out);
    let found = fsck(&["--dir", &dir, "--json"]);
    let found: serde_json::Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!((&found["problem_count"], &found["problems"][0]["path"]), (&1.into(), &"/file".into()));
    assert_eq!(found["problems"][0]["problem"], "inconsistent_owner");
    let repaired = fsck(&["--dir", &dir, "--repair"]);
    assert_eq!(repaired.code, 1, "{}", repaired.out);
    let again = fsck(&["--dir", &dir]);
    assert_eq!(again.code, 0, "the next start sends the owner: {}", again.out);
    up.start(&[]).ok();
    let stored = || {
        let mut stored = [0; 4];
        records.read_exact_at(&mut stored, oid * 32 + 16).unwrap();
        u32::from_be_bytes(stored)
    };
    eventually("the OST has the file's owner", || stored() == uid);
}

#[test]
fn fsck_finds_bytes_of_an_object_beyond_its_component() {
    let Some(up) = Fs::up_or_skip(1) else { return };
    up.lfs("setstripe -E 64M -c 1 -E -1 file").ok();
    fs::write(up.path("file"), "data").unwrap();
    up.stop().ok();
    let dir = up.dir().to_string_lossy().into_owned();
    let object = fs::File::options().write(true).open(object(&up.dir().join("ost0"))).unwrap();
    object.set_len((64 << 20) + 1).unwrap();
    let found = fsck(&["--dir", &dir, "--repair"]);
    assert_eq!(found.code, 4, "{}", found.out);
    let line = "has 67108865 bytes; its layout ends at 67108864 (/file)\n  there is no repair\n";
    assert!(found.out.contains(line), "{}", found.out);
    object.set_len(64 << 20).unwrap();
    assert_eq!(fsck(&["--dir", &dir]).code, 0);
}

#[test]
fn mdt_restored_from_an_older_backup_gets_the_objects_of_later_files() {
    let Some(up) = Fs::up_or_skip(1) else { return };
    fs::write(up.path("before"), "before").unwrap();
    up.stop().ok();
    let (mdt, backup) = (up.dir().join("mdt0"), up.dir().with_file_name("backup"));
    run("cp", [Path::new("-a"), &mdt, &backup]).ok();
    up.start(&[]).ok();
    fs::write(up.path("after"), "after").unwrap();
    up.stop().ok();
    fs::remove_dir_all(&mdt).unwrap();
    run("cp", [Path::new("-a"), &backup, &mdt]).ok();

    let repaired = fsck(&["--dir", &up.dir().to_string_lossy(), "--repair"]);
    assert_eq!(repaired.code, 1, "{}", repaired.out);
    up.start(&[]).ok();
    fs::write(up.path("new"), "new file").unwrap();
    assert_eq!(up.sh("ls; cat before lost+found/*").ok(), "before\nlost+found\nnew\nbeforeafter");
}

#[test]
fn salvage_makes_a_new_store_of_what_is_readable() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    const FILES: usize = 1000;
    const PAGE_BYTES: usize = 4096;
    let up = Fs::up(1);
    up.sh(&format!("mkdir d; for i in $(seq {FILES}); do echo $i >d/name$i; done")).ok();
    up.stop().ok();
    let (dir, store) = (up.dir().to_string_lossy().into_owned(), up.dir().join("mdt0/store.redb"));
    let sound = fs::read(&store).unwrap();
    let names = |page: &[u8], name: &[u8]| page.windows(name.len()).any(|part| part == name);
    let pages = (1..sound.len() / PAGE_BYTES).map(|page| page * PAGE_BYTES..(page + 1) * PAGE_BYTES);
    // A page with the entry of a file. Pages that are not used any more may have it, too, and pages
    // that are used for something else now.
    let damaged = pages.filter(|page| names(&sound[page.clone()], b"name500")).find_map(|page| {
        let mut damaged = sound.clone();
        damaged[page].fill(0xa5);
        fs::write(&store, &damaged).unwrap();
        let found = fsck(&["--dir", &dir]);
        (found.code == 8 && found.err.contains("is damaged") && found.err.contains("--salvage")).then_some(damaged)
    });
    let damaged = damaged.expect("one of the pages is in use");
    let found = fsck(&["--dir", &dir, "--salvage"]);
    assert_eq!(found.code, 1, "{}\n{}", found.out, found.err);
    assert!(found.out.contains("the damaged metadata store was replaced"), "{}", found.out);
    // The header says whether the store was closed.
    let left = fs::read(up.dir().join("mdt0/store.redb.damaged.1")).unwrap();
    assert!(left[PAGE_BYTES..] == damaged[PAGE_BYTES..]);
    up.start(&[]).ok();
    let numbers = up.sh("cat $(find . -type f) | sort -n").ok();
    let numbers: Vec<usize> = numbers.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, (1..=FILES).collect::<Vec<_>>(), "the data of all files is there");
}

#[test]
fn lfsck_makes_a_file_of_an_orphan_object_on_a_running_file_system() {
    let Some(up) = Fs::up_or_skip(1) else { return };
    let lctl = |line: &str| run(sheen(), std::iter::once("lctl").chain(line.split(' '))).ok();
    let check = |options: &str| {
        lctl(format!("lfsck_start -M sheen-MDT0000 {options}").trim());
        eventually_some("the check ends", || {
            let found = lctl("lfsck_query -M sheen-MDT0000 -t namespace");
            Some(found).filter(|found| !found.contains("status: scanning"))
        })
    };
    fs::write(up.path("file"), "data").unwrap();
    let known = object(&up.dir().join("ost0"));
    fs::remove_file(up.path("file")).unwrap();
    eventually("the object is destroyed", || !known.exists());
    let found = check("");
    assert!(found.contains("status: completed\n") && found.contains("problems: 0\n"), "{found}");
    // Programs go on during a check.
    let script = "for i in $(seq 300); do mkdir d$i; echo $i >d$i/f; ln d$i/f l$i; mv d$i e$i; rm l$i; done";
    let mut load = Command::new("bash");
    let mut load = Guarded(load.args(["-c", script]).current_dir(&up.mnt).spawn().unwrap());
    while load.0.try_wait().unwrap().is_none() {
        let found = check("");
        assert!(found.contains("problems: 0\n"), "{found}");
    }
    fs::write(&known, "lost").unwrap();
    let found = check("");
    assert!(found.contains("problems: 1\nrepaired: 0\n- orphan_object: object "), "{found}");
    assert!(found.contains("belongs to no file; it has 4 bytes\n"), "{found}");
    // Found by a mount that has cached the root directory.
    assert_eq!(up.sh("ls -d lost+found").code, 2);
    let found = check("-o");
    assert!(found.contains("repaired: 1\n- orphan_object: object "), "{found}");
    assert!(found.contains("; it has 4 bytes; repaired: make it a file in /lost+found\n"), "{found}");
    assert_eq!(
        up.sh("cat lost+found/OST0000-*; stat -c %a%A lost+found lost+found/*").ok(),
        "lost700drwx------\n600-rw-------\n"
    );
    assert!(check("").contains("problems: 0\n"));
    up.sh("rm -r lost+found").ok();
    eventually("the object is destroyed", || !known.exists());
    fs::write(&known, "").unwrap();
    // Until the log of removals is written, the object counts as one that is being destroyed.
    let found = eventually_some("the object is an orphan", || {
        Some(check("--orphan")).filter(|found| found.contains("problems: 1\n"))
    });
    assert!(found.contains("it has 0 bytes; repaired: destroy the object, which is empty\n"), "{found}");
    eventually("the object is destroyed", || !known.exists());
    fs::write(&known, "again").unwrap();
    let found = eventually_some("the object is an orphan", || {
        Some(check("--repair")).filter(|found| found.contains("problems: 1\n"))
    });
    assert!(found.contains("it has 5 bytes; repaired: make it a file in /lost+found\n"), "{found}");
    assert_eq!(up.sh("cat lost+found/OST0000-*").ok(), "again");
    assert_eq!(lctl("lfsck_start -A -t namespace"), "Started LFSCK on all devices: namespace\n");
    let refused = run(sheen(), ["lctl", "lfsck_start", "-o", "-M", "sheen-OST0000"]);
    assert!(refused.code == 22 && refused.err.contains("has no such check"), "{}", refused.err);
    let refused = run(sheen(), ["lctl", "lfsck_start", "-M", "sheen-OST0000", "-t", "namespace"]);
    assert!(refused.code == 22 && refused.err.contains("of type obdfilter has no such check"), "{}", refused.err);
}

#[test]
fn fsck_refuses_directories_without_an_mdt() {
    let base = tempfile::tempdir().unwrap();
    let found = fsck(&["--dir", &base.path().to_string_lossy()]);
    assert_eq!(found.code, 8, "{}", found.out);
    assert!(found.err.contains("holds no MDT and no OST"), "{}", found.err);
}
