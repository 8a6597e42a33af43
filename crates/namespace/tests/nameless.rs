//! A file that loses its last name while clients may have it open unknown to the MDT.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use bytes::Bytes;
use common::*;
use sheen_namespace::{Done, Nameless};
use sheen_wire::{
    Cred, Fid,
    fid::ROOT,
    mds::{NO_HANDLE, Reply, Request, flags},
};

fn unlink(fs: &mut Fs, name: &'static str) -> Done {
    let name = Bytes::from_static(name.as_bytes());
    fs.execute(&Request::Unlink { cred: Cred::ROOT, parent: ROOT, name, dir: false }).unwrap()
}

/// With a file "f" of which clients have the lock on OPEN, and which has just lost its name.
fn nameless() -> (Fs, Fid, Nameless) {
    let mut fs = Fs::new();
    let f = fs.touch(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
    fs.env.may_be_open = true;
    let nameless = unlink(&mut fs, "f").nameless.unwrap();
    assert_eq!(nameless.fid, f);
    (fs, f, nameless)
}

fn reopen(fs: &mut Fs, fid: Fid) -> u64 {
    match fs.call(Request::Reopen { files: vec![(fid, flags::RDONLY, NO_HANDLE)] }).unwrap() {
        Reply::Handles(handles) => handles[0].unwrap(),
        other => panic!("{other:?}"),
    }
}

fn lives(fs: &mut Fs, fid: Fid) -> bool {
    fs.call(Request::GetAttr { fid, layout_known: true }).is_ok()
}

/// Files whose objects are to be destroyed.
fn destroyed(fs: &mut Fs) -> usize {
    fs.commit();
    fs.ns.destroys(0, 10).unwrap().len()
}

#[test]
fn it_lives_until_all_have_said_whether_they_have_it_open() {
    let (mut fs, f, nameless) = nameless();
    assert!(lives(&mut fs, f));
    assert_eq!(destroyed(&mut fs), 0);
    assert!(fs.ns.revoked(nameless), "nobody has");
    assert!(!lives(&mut fs, f));
    assert_eq!(destroyed(&mut fs), 1);
}

#[test]
fn it_lives_on_for_who_has_it_open() {
    let (mut fs, f, nameless) = nameless();
    let handle = reopen(&mut fs, f);
    assert!(!fs.ns.revoked(nameless));
    assert!(lives(&mut fs, f));
    fs.close((f, handle)).unwrap();
    assert!(!lives(&mut fs, f));
    assert_eq!(destroyed(&mut fs), 1);
}

#[test]
fn a_close_before_all_have_said_so_does_not_remove_it() {
    let (mut fs, f, nameless) = nameless();
    let handle = reopen(&mut fs, f);
    fs.close((f, handle)).unwrap();
    fs.ns.disconnect(ME);
    assert!(lives(&mut fs, f));
    assert!(fs.ns.revoked(nameless));
}

#[test]
fn a_crash_before_that_leaves_it_to_recovery() {
    let (mut fs, f, _) = nameless();
    fs.commit();
    let mut fs = fs.crash();
    let handle = reopen(&mut fs, f);
    fs.ns.finish_recovery().unwrap();
    assert!(lives(&mut fs, f), "open again");
    let mut fs = fs.crash();
    assert!(lives(&mut fs, f), "it may be opened again");
    fs.ns.finish_recovery().unwrap();
    assert!(!lives(&mut fs, f));
    assert!(fs.close((f, handle)).is_err());
    assert_eq!(destroyed(&mut fs), 1);
}

#[test]
fn one_of_several_names_is_nobodys_business() {
    let mut fs = Fs::new();
    let f = fs.touch(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
    fs.link(&Cred::ROOT, f, ROOT, "g").unwrap();
    fs.env.may_be_open = true;
    assert_eq!(unlink(&mut fs, "f").nameless, None);
    assert!(unlink(&mut fs, "g").nameless.is_some());
}

#[test]
fn reading_without_a_handle_moves_the_access_time_by_the_same_rules() {
    let mut fs = Fs::new();
    let f = fs.touch(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
    let before = fs.attr(f).atime;
    let mut close = |read| fs.call(Request::Close { fid: f, handle: NO_HANDLE, read, wrote: false }).unwrap();
    assert!(matches!(close(false), Reply::Ok));
    let Reply::Entry(first) = close(true) else { panic!() };
    assert!(first.attr.atime > before);
    let Reply::Entry(second) = close(true) else { panic!() };
    assert_eq!(second.attr.atime, first.attr.atime, "it is newer than the last change");
    fs.unlink(&Cred::ROOT, ROOT, "f").unwrap();
    assert!(matches!(fs.call(Request::Close { fid: f, handle: NO_HANDLE, read: true, wrote: false }), Ok(Reply::Ok)));
}
