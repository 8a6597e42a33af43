//! Offsets of directories are stable while entries are added and removed.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::*;
use proptest::prelude::*;
use sheen_namespace::Config;
use sheen_wire::{
    Errno,
    fid::ROOT,
    mds::{Reply, Request},
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A reader sees entries that exist all the time exactly once, and nonexistent ones never,
    /// whatever happens between its calls.
    #[test]
    fn readdir_returns_lasting_entries_exactly_once(
        stay in 1..150usize,
        max_bytes in 1..2000u32,
        between in prop::collection::vec((0..100u32, any::<bool>(), 0..4u8), 0..300),
        hash_bits in prop_oneof![Just(3), Just(8), Just(Config::HASH_BITS_MAX)],
    ) {
        let mut fs = Fs::on(Default::default(), Config { hash_bits, ..Config::default() });
        for i in 0..stay {
            fs.mkdir(&ROOT_CRED, ROOT, &format!("stay{i}"), 0o755).unwrap();
            if i == stay / 2 {
                fs.commit();
            }
        }
        let mut between = between.into_iter();
        let (mut seen, mut cookie) = (BTreeMap::new(), 0);
        loop {
            let (entries, eof) = fs.readdir(ROOT, cookie, max_bytes).unwrap();
            prop_assert!(eof || !entries.is_empty());
            for e in entries {
                prop_assert!(e.cookie > cookie && e.cookie > 2 && e.cookie < 1 << 63);
                cookie = e.cookie;
                *seen.entry(String::from_utf8(e.name.to_vec()).unwrap()).or_insert(0) += 1;
            }
            if eof {
                break;
            }
            for (n, add, commit) in between.by_ref().take(8) {
                let name = format!("brief{n}");
                let _ = if add { fs.mkdir(&ROOT_CRED, ROOT, &name, 0).map(drop) } else { fs.rmdir(&ROOT_CRED, ROOT, &name) };
                if commit == 0 {
                    fs.commit();
                }
            }
        }
        for i in 0..stay {
            prop_assert_eq!(seen.get(&format!("stay{i}")), Some(&1));
        }
    }
}

#[test]
fn readdir_reads_a_large_directory_across_all_layers() {
    let mut fs = Fs::new();
    let make = |fs: &mut Fs, range: std::ops::Range<u32>| {
        for i in range {
            fs.mknod(&ROOT_CRED, ROOT, &format!("f{i:05}"), 0o644).unwrap();
        }
    };
    make(&mut fs, 0..6000);
    fs.commit();
    make(&mut fs, 6000..8000);
    let sealed = fs.ns.seal().unwrap();
    make(&mut fs, 8000..9000);
    for i in (0..9000).step_by(3) {
        fs.unlink(&ROOT_CRED, ROOT, &format!("f{i:05}")).unwrap();
    }
    let want: Vec<String> = (0..9000).filter(|i| i % 3 != 0).map(|i| format!("f{i:05}")).collect();
    assert_eq!(fs.ls(ROOT), want);
    fs.ns.committed(sealed.last());
    sheen_namespace::Store::commit(&*fs.store, &sealed).unwrap();
    assert_eq!(fs.ls(ROOT), want);
    fs.commit();
    assert_eq!(fs.crash().ls(ROOT), want);
}

#[test]
fn readdir_returns_attributes_within_its_size_limit() {
    let mut fs = Fs::new();
    let f = fs.touch(&ROOT_CRED, ROOT, "f", 0o640).unwrap();
    for i in 0..200 {
        fs.mkdir(&ROOT_CRED, ROOT, &format!("{i}{}", "x".repeat(200)), 0o755).unwrap();
    }
    let (mut cookie, mut names) = (0, BTreeSet::new());
    loop {
        let request = Request::ReadDir { fid: ROOT, cookie, max_bytes: 4096, attrs: true };
        let Ok(Reply::Entries { entries, eof }) = fs.call(request) else { panic!() };
        let bytes: usize = entries.iter().map(|e| 24 + 128 + e.name.len()).sum();
        assert!(bytes <= 4096, "{bytes}");
        cookie = entries.last().unwrap().cookie;
        for e in entries {
            let entry = e.entry.unwrap();
            assert_eq!((entry.attr.fid, entry.attr.kind), (e.fid, e.kind));
            assert_eq!(entry.layout.is_some(), e.fid == f);
            names.insert(e.name);
        }
        if eof {
            break;
        }
    }
    assert_eq!(names.len(), 201);
    let tiny = fs.readdir(ROOT, 0, 0).unwrap();
    assert_eq!(tiny.0.len(), 1, "at least one entry before the end");
    assert_eq!(fs.readdir(f, 0, 4096).err(), Some(Errno::ENOTDIR));
    assert!(fs.readdir(ROOT, u64::MAX, 4096).unwrap().0.is_empty());
}
