//! A rename that leaves a whiteout, as overlayfs requests it (RENAME_WHITEOUT).

use bytes::Bytes;
use sheen_wire::{
    Cred, Errno, Fid, FileKind, Result,
    fid::ROOT,
    ldlm::bits::{LOOKUP, UPDATE, XATTR},
    mds::{NewNode, Reply, Request, rename},
};

use crate::common::*;

const ME: Cred = Cred::ROOT;

fn request(cred: &Cred, from: (Fid, &str), to: (Fid, &str), flags: u32, whiteout: Option<Fid>) -> Request {
    let (parent, new_parent) = (from.0, to.0);
    let name = |name: &str| Bytes::copy_from_slice(name.as_bytes());
    let (name, new_name) = (name(from.1), name(to.1));
    Request::Rename { cred: cred.clone(), parent, name, new_parent, new_name, flags, whiteout: whiteout.map(Box::new) }
}

/// Renames and leaves a whiteout; returns its FID.
fn leave(fs: &mut Fs, cred: &Cred, from: (Fid, &str), to: (Fid, &str), flags: u32) -> Result<Fid> {
    let left = fs.fid();
    fs.call(request(cred, from, to, flags | rename::WHITEOUT, Some(left))).map(|_| left)
}

#[test]
fn rename_leaves_a_whiteout_in_place_of_the_source() {
    let mut fs = Fs::new();
    let (a, b) = (fs.mkdir(&ME, ROOT, "a", 0o777).unwrap(), fs.mkdir(&ME, ROOT, "b", 0o777).unwrap());
    let f = fs.touch(&ME, a, "f", 0o644).unwrap();
    for dir in [a, b] {
        fs.chmod(&ME, dir, 0o777).unwrap();
    }
    let left = leave(&mut fs, &user(1), (a, "f"), (b, "g"), 0).unwrap();
    let whiteout = fs.lookup(&ME, a, "f").unwrap();
    assert_eq!((whiteout.fid, whiteout.kind, whiteout.rdev, whiteout.nlink), (left, FileKind::Char, 0, 1));
    assert_eq!((whiteout.perm, whiteout.uid, whiteout.gid), (0, 1, 1));
    assert_eq!(fs.lookup(&ME, b, "g").unwrap().fid, f);
    assert_eq!((fs.ls(a), fs.ls(b)), (vec!["f".to_owned()], vec!["g".to_owned()]));
    // Over a file, which is deleted, and within one directory.
    let old = fs.touch(&ME, b, "old", 0o644).unwrap();
    leave(&mut fs, &ME, (b, "g"), (b, "old"), 0).unwrap();
    assert_eq!((fs.lookup(&ME, b, "old").unwrap().fid, fs.lookup(&ME, b, "g").unwrap().kind), (f, FileKind::Char));
    assert!(matches!(fs.call(Request::GetAttr { fid: old, layout_known: true }), Err(Errno::ENOENT)));
    // A directory: the link count of its parents changes with the rename.
    let sub = fs.mkdir(&ME, a, "sub", 0o755).unwrap();
    leave(&mut fs, &ME, (a, "sub"), (b, "sub"), rename::NOREPLACE).unwrap();
    assert_eq!((fs.attr(a).nlink, fs.attr(b).nlink, fs.lookup(&ME, sub, "..").unwrap().fid), (2, 3, b));
    fs.check();
    // A whiteout is a file like others.
    fs.unlink(&ME, a, "f").unwrap();
    fs.unlink(&ME, a, "sub").unwrap();
    fs.rmdir(&ME, ROOT, "a").unwrap();
    fs.check();
}

#[test]
fn whiteout_rename_refuses_invalid_requests() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&ME, ROOT, "d", 0o755).unwrap();
    let f = fs.touch(&ME, d, "f", 0o644).unwrap();
    fs.touch(&ME, d, "g", 0o644).unwrap();
    fs.link(&ME, f, d, "same").unwrap();
    let left = fs.fid();
    for (flags, whiteout) in [(0, Some(left)), (rename::WHITEOUT, None), (rename::WHITEOUT | 8, Some(left))] {
        assert_eq!(fs.call(request(&ME, (d, "f"), (d, "x"), flags, whiteout)).err(), Some(Errno::EINVAL));
    }
    assert_eq!(leave(&mut fs, &ME, (d, "f"), (d, "g"), rename::EXCHANGE), Err(Errno::EINVAL));
    assert_eq!(leave(&mut fs, &ME, (d, "f"), (d, "g"), rename::NOREPLACE), Err(Errno::EEXIST));
    assert_eq!(leave(&mut fs, &ME, (d, "none"), (d, "x"), 0), Err(Errno::ENOENT));
    assert_eq!(leave(&mut fs, &user(1), (d, "f"), (d, "x"), 0), Err(Errno::EACCES));
    let known = request(&ME, (d, "f"), (d, "x"), rename::WHITEOUT, Some(d));
    assert_eq!(fs.call(known).err(), Some(Errno::EINVAL), "the FID belongs to another file");
    // Two names of one file: nothing happens, as in a rename without a whiteout.
    leave(&mut fs, &ME, (d, "f"), (d, "same"), 0).unwrap();
    assert_eq!(fs.lookup(&ME, d, "f").unwrap().fid, f);
    fs.check();
}

#[test]
fn whiteout_and_its_rename_survive_a_crash_together() {
    let mut fs = Fs::new();
    let f = fs.touch(&ME, ROOT, "f", 0o644).unwrap();
    fs.commit();
    leave(&mut fs, &ME, (ROOT, "f"), (ROOT, "g"), 0).unwrap();
    let mut fs = fs.crash();
    assert_eq!((fs.ls(ROOT), fs.lookup(&ME, ROOT, "f").unwrap().fid), (vec!["f".to_owned()], f));
    let left = fs.fid();
    let mv = request(&ME, (ROOT, "f"), (ROOT, "g"), rename::WHITEOUT, Some(left));
    fs.call(mv.clone()).unwrap();
    fs.commit();
    let mut fs = fs.crash();
    // The reply was lost, and the request is resent.
    assert!(matches!(fs.call(mv), Ok(Reply::Ok)));
    assert_eq!((fs.lookup(&ME, ROOT, "f").unwrap().fid, fs.lookup(&ME, ROOT, "g").unwrap().fid), (left, f));
    assert_eq!(fs.ls(ROOT), ["f", "g"]);
    fs.check();
}

#[test]
fn whiteout_rename_invalidates_the_moved_name_only() {
    let mut fs = Fs::new();
    let (a, b) = (fs.mkdir(&ME, ROOT, "a", 0o755).unwrap(), fs.mkdir(&ME, ROOT, "b", 0o755).unwrap());
    let f = fs.touch(&ME, a, "f", 0o644).unwrap();
    leave(&mut fs, &ME, (a, "f"), (b, "f"), 0).unwrap();
    let invalidations: std::collections::BTreeMap<_, _> = fs.invalidations.iter().copied().collect();
    assert_eq!(invalidations, [(a, UPDATE), (b, UPDATE), (f, LOOKUP | UPDATE | XATTR)].into_iter().collect());
    // A device 0:0 created by mknod is the same.
    let node = NewNode::Node { kind: FileKind::Char, rdev: 0 };
    let made = fs.make(&user(0), a, "made", node, 0).unwrap();
    let (made, left) = (fs.attr(made), fs.lookup(&ME, a, "f").unwrap());
    assert_eq!((made.kind, made.rdev, made.perm), (left.kind, left.rdev, left.perm));
}
