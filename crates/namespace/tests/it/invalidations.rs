//! Invalidations: an operation reports exactly the parts of inodes that other clients must drop.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::*;
use bytes::Bytes;
use sheen_wire::{
    Attr, Cred, Errno, Fid, FileKind, Time,
    fid::ROOT,
    ldlm::bits::{LAYOUT, LOOKUP, PERM, UPDATE, XATTR},
    mds::{Closed, Reply, Request, SetAttr, SetTime, flags, rename},
};

const ALL: u64 = LOOKUP | UPDATE | PERM | XATTR | LAYOUT;
const ME: Cred = Cred::ROOT;

/// Returns the invalidations by inode, which appears once.
fn invalidations(fs: &Fs) -> BTreeMap<Fid, u64> {
    let map: BTreeMap<Fid, u64> = fs.invalidations.iter().copied().collect();
    assert_eq!(map.len(), fs.invalidations.len(), "an inode is reported twice: {:?}", fs.invalidations);
    map
}

fn expect(fs: &Fs, wanted: &[(Fid, u64)]) {
    assert_eq!(invalidations(fs), wanted.iter().copied().collect());
}

#[test]
fn create_invalidates_only_the_directory() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&ME, ROOT, "d", 0o777).unwrap();
    expect(&fs, &[(ROOT, UPDATE)]);
    let (f, _) = fs.create(&ME, d, "f", flags::RDWR, 0o644).unwrap();
    expect(&fs, &[(d, UPDATE)]);
    fs.symlink(&ME, d, "l", "f").unwrap();
    expect(&fs, &[(d, UPDATE)]);
    assert_eq!(fs.mknod(&ME, d, "f", 0o644), Err(Errno::EEXIST));
    fs.link(&ME, f, ROOT, "g").unwrap();
    expect(&fs, &[(ROOT, UPDATE), (f, UPDATE | XATTR)]);
    let fid = fs.fid();
    fs.opened(Request::TmpFile { cred: ME, parent: d, fid, flags: flags::RDWR, mode: 0o600, umask: 0 }).unwrap();
    expect(&fs, &[]);
    fs.link(&ME, fid, d, "t").unwrap();
    expect(&fs, &[(d, UPDATE), (fid, UPDATE | XATTR)]);
}

#[test]
fn read_open_and_close_invalidate_nothing() {
    let mut fs = Fs::new();
    let f = fs.touch(&ME, ROOT, "f", 0o644).unwrap();
    expect(&fs, &[]);
    let (_, handle) = fs.open(&ME, f, flags::RDWR).unwrap();
    expect(&fs, &[]);
    let atime = fs.attr(f).atime;
    fs.call(Request::Close { files: vec![Closed { fid: f, handle, read: Some(0) }] }).unwrap();
    expect(&fs, &[]);
    assert!(fs.attr(f).atime > atime, "the access time has changed");
    fs.lookup(&ME, ROOT, "f").unwrap();
    fs.readdir(ROOT, 0, 4096).unwrap();
    fs.access(&ME, f, 4).unwrap();
    expect(&fs, &[]);
}

#[test]
fn unlink_invalidates_the_directory_and_the_named_inode() {
    let mut fs = Fs::new();
    let (d, f) = (fs.mkdir(&ME, ROOT, "d", 0o755).unwrap(), fs.touch(&ME, ROOT, "f", 0o644).unwrap());
    fs.link(&ME, f, ROOT, "g").unwrap();
    fs.unlink(&ME, ROOT, "f").unwrap();
    expect(&fs, &[(ROOT, UPDATE), (f, LOOKUP | UPDATE | XATTR)]);
    let open = fs.open(&ME, f, flags::RDONLY).unwrap();
    fs.unlink(&ME, ROOT, "g").unwrap();
    expect(&fs, &[(ROOT, UPDATE), (f, LOOKUP | UPDATE | XATTR)]);
    fs.close(open).unwrap();
    expect(&fs, &[]);
    fs.rmdir(&ME, ROOT, "d").unwrap();
    expect(&fs, &[(ROOT, UPDATE), (d, ALL)]);
}

#[test]
fn rename_invalidates_both_parents_child_and_victim() {
    let mut fs = Fs::new();
    let (a, b) = (fs.mkdir(&ME, ROOT, "a", 0o755).unwrap(), fs.mkdir(&ME, ROOT, "b", 0o755).unwrap());
    let (f, g) = (fs.touch(&ME, a, "f", 0o644).unwrap(), fs.touch(&ME, b, "g", 0o644).unwrap());
    let moved = LOOKUP | UPDATE | XATTR;
    fs.rename(&ME, (a, "f"), (b, "h"), 0).unwrap();
    expect(&fs, &[(a, UPDATE), (b, UPDATE), (f, moved)]);
    fs.rename(&ME, (b, "h"), (b, "g"), 0).unwrap();
    expect(&fs, &[(b, UPDATE), (f, moved), (g, ALL)]);
    let sub = fs.mkdir(&ME, a, "sub", 0o755).unwrap();
    fs.rename(&ME, (a, "sub"), (b, "g"), rename::EXCHANGE).unwrap();
    expect(&fs, &[(a, UPDATE), (b, UPDATE), (f, moved), (sub, moved)]);
    fs.rename(&ME, (b, "g"), (b, "g"), 0).unwrap();
    expect(&fs, &[]);
}

#[test]
fn setattr_invalidates_the_changed_attributes() {
    let mut fs = Fs::new();
    let (d, f) = (fs.mkdir(&ME, ROOT, "d", 0o755).unwrap(), fs.mknod(&ME, ROOT, "f", 0o644).unwrap());
    fs.chmod(&ME, f, 0o600).unwrap();
    expect(&fs, &[(f, UPDATE | PERM)]);
    fs.chmod(&ME, d, 0o700).unwrap();
    expect(&fs, &[(d, LOOKUP | UPDATE | PERM)]);
    fs.chown(&ME, f, Some(1), None).unwrap();
    expect(&fs, &[(f, UPDATE | PERM)]);
    let at = Some(SetTime::At(Time { sec: 5, nsec: 0 }));
    fs.setattr(&ME, f, SetAttr { atime: at, ..SetAttr::default() }).unwrap();
    expect(&fs, &[(f, UPDATE)]);
    fs.truncate(&ME, f, 5).unwrap();
    expect(&fs, &[(f, UPDATE | LAYOUT | XATTR)]);
    fs.truncate(&ME, f, 6).unwrap();
    expect(&fs, &[(f, UPDATE)]);
    fs.open(&ME, f, flags::RDWR | flags::TRUNC).unwrap();
    expect(&fs, &[(f, UPDATE)]);
    fs.set(&ME, f, "user.a", b"1", 0).unwrap();
    expect(&fs, &[(f, UPDATE | XATTR)]);
    fs.set(&ME, f, "user.a", b"2", 0).unwrap();
    expect(&fs, &[(f, UPDATE | XATTR)]);
    fs.unset(&ME, f, "user.a").unwrap();
    expect(&fs, &[(f, UPDATE | XATTR)]);
}

#[test]
fn a_request_involves_the_inodes_that_it_names() {
    let mut fs = Fs::new();
    let (d, f) = (fs.mkdir(&ME, ROOT, "d", 0o755).unwrap(), fs.touch(&ME, ROOT, "f", 0o644).unwrap());
    let mut involved = |request: Request| {
        let mut found = BTreeSet::new();
        fs.ns.involved(&request, &mut |fid| found.extend([fid]));
        found.into_iter().collect::<Vec<_>>()
    };
    let name = |s: &str| Bytes::copy_from_slice(s.as_bytes());
    let lookup = |parent, n: &str| Request::Lookup { cred: ME, parent, name: name(n) };
    assert_eq!(involved(lookup(ROOT, "f")), [ROOT, f]);
    assert_eq!(involved(lookup(ROOT, "none")), [ROOT]);
    assert_eq!(involved(lookup(d, "..")), [ROOT, d]);
    let (cred, flags) = (ME, 0);
    let (parent, new_name, left) = (ROOT, name("x"), Fid::new(f.seq, f.oid + 1));
    let mv =
        Request::Rename { cred, parent, name: name("f"), new_parent: d, new_name, flags, whiteout: Some(left.into()) };
    assert_eq!(involved(mv), [ROOT, d, f, left]);
    assert_eq!(involved(Request::close(f, 1)), []);
}

/// Everything that a client could cache of an inode, by the bits that protect it.
#[derive(PartialEq, Debug)]
struct Seen {
    update: (Attr, BTreeMap<Vec<u8>, Fid>),
    perm: (u32, u32, u32),
    layout: Option<Bytes>,
    xattr: BTreeMap<String, Bytes>,
    /// (parent, name).
    lookup: BTreeSet<(Fid, Vec<u8>)>,
}

fn see(fs: &mut Fs, known: &BTreeSet<Fid>) -> BTreeMap<Fid, Seen> {
    let mut seen = BTreeMap::new();
    let mut names = BTreeMap::<Fid, BTreeSet<(Fid, Vec<u8>)>>::new();
    for fid in known.iter().copied() {
        let Ok(Reply::Entry(entry)) = fs.call(Request::GetAttr { fid, layout_known: false }) else { continue };
        let mut entries = BTreeMap::new();
        if entry.attr.kind == FileKind::Dir {
            for e in fs.readdir(fid, 0, 1 << 20).unwrap().0 {
                names.entry(e.fid).or_default().insert((fid, e.name.to_vec()));
                entries.insert(e.name.to_vec(), e.fid);
            }
        }
        let xattr = fs.names(&ME, fid).into_iter().map(|n| (n.clone(), fs.get(&ME, fid, &n).unwrap())).collect();
        let attr = Attr { atime: Time::default(), ..entry.attr };
        let perm = (attr.perm, attr.uid, attr.gid);
        let lookup = BTreeSet::new();
        seen.insert(fid, Seen { update: (attr, entries), perm, layout: entry.layout, xattr, lookup });
    }
    for (fid, names) in names {
        seen.get_mut(&fid).unwrap().lookup = names;
    }
    seen
}

/// Returns the bits that protect state which has changed.
fn outdated(before: &Seen, after: Option<&Seen>) -> u64 {
    // Only clients that had an orphan open could see it, so its deletion invalidates nothing.
    let Some(after) = after else { return if before.update.0.nlink == 0 { 0 } else { ALL } };
    let mut bits = 0;
    for (same, bit) in [
        (before.update == after.update, UPDATE),
        (before.perm == after.perm, PERM),
        (before.layout == after.layout, LAYOUT),
        (before.xattr == after.xattr, XATTR),
        (before.lookup.is_subset(&after.lookup), LOOKUP),
    ] {
        bits |= if same { 0 } else { bit };
    }
    bits
}

#[test]
fn every_outdated_attribute_is_invalidated() {
    let mut fs = Fs::new();
    let mut known = BTreeSet::from([ROOT]);
    let mut random = 1u64;
    let mut pick = |n: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as usize % n
    };
    let (mut open, mut changes) = (Vec::new(), 0);
    for _ in 0..800 {
        let before = see(&mut fs, &known);
        let dirs: Vec<Fid> = before.iter().filter(|(_, s)| s.update.0.kind == FileKind::Dir).map(|(f, _)| *f).collect();
        let files: Vec<Fid> = before.keys().copied().collect();
        let (d, e, f) = (dirs[pick(dirs.len())], dirs[pick(dirs.len())], files[pick(files.len())]);
        let (n, m) = (["a", "b", "c", "d"][pick(4)], ["a", "b", "c", "d"][pick(4)]);
        fs.invalidations.clear();
        let made = match pick(16) {
            0 | 1 => fs.mkdir(&ME, d, n, 0o777).ok(),
            2 | 3 => fs.create(&ME, d, n, flags::RDWR, 0o666).inspect(|o| open.push(*o)).ok().map(|o| o.0),
            4 => fs.mknod(&ME, d, n, 0o666).ok(),
            5 => fs.link(&ME, f, d, n).map(|_| f).ok(),
            6 => fs.unlink(&ME, d, n).map(|()| f).ok(),
            7 => fs.rmdir(&ME, d, n).map(|()| f).ok(),
            8 | 9 => fs.rename(&ME, (d, n), (e, m), 0).map(|()| f).ok(),
            10 => fs.rename(&ME, (d, n), (e, m), rename::EXCHANGE).map(|()| f).ok(),
            11 => fs.chmod(&ME, f, 0o600 + pick(8) as u32).map(|_| f).ok(),
            12 => fs.truncate(&ME, f, 9).map(|_| f).ok(),
            13 => fs.set(&ME, f, "user.x", &[pick(3) as u8], 0).map(|()| f).ok(),
            14 => fs.open(&ME, f, flags::RDWR).inspect(|o| open.push(*o)).ok().map(|o| o.0),
            _ if open.is_empty() => None,
            _ => fs.close(open.swap_remove(pick(open.len()))).map(|()| f).ok(),
        };
        let invalidations = invalidations(&fs);
        known.extend(made);
        changes += usize::from(!invalidations.is_empty());
        let after = see(&mut fs, &known);
        for (fid, was) in &before {
            let (outdated, said) = (outdated(was, after.get(fid)), invalidations.get(fid).copied().unwrap_or(0));
            assert_eq!(outdated & !said, 0, "{fid}: {was:?} became {:?}, reported {said:#x}", after.get(fid));
        }
    }
    assert!(changes > 200, "too few operations changed anything: {changes}");
}
