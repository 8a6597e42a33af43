//! A file that loses its last name while clients may have it open without the MDT's knowledge.

use crate::common::*;
use bytes::Bytes;
use sheen_namespace::{Done, HeldOrphan};
use sheen_wire::{
    Attr, Cred, Errno, Fid, Time,
    fid::ROOT,
    mds::{CLOSED_MAX, Closed, NO_HANDLE, Reopened, Reply, Request, SetAttr, SetTime, flags},
};

fn unlink(fs: &mut Fs, name: &'static str) -> Done {
    let name = Bytes::from_static(name.as_bytes());
    fs.execute(&Request::Unlink { cred: Cred::ROOT, parent: ROOT, name, dir: false }).unwrap()
}

/// A file system with a file "f" that has just lost its name while clients hold a lock on OPEN.
fn orphan() -> (Fs, Fid, HeldOrphan) {
    let mut fs = Fs::new();
    let f = fs.touch(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
    fs.env.may_be_open = true;
    let orphan = unlink(&mut fs, "f").orphan.unwrap();
    assert_eq!(orphan.fid, f);
    (fs, f, orphan)
}

fn reopen(fs: &mut Fs, fid: Fid) -> u64 {
    let files = vec![Reopened::new(fid, flags::RDONLY, NO_HANDLE)];
    match fs.call(Request::Reopen { files, first: false, last: false }).unwrap() {
        Reply::Handles(handles) => handles[0].unwrap(),
        other => panic!("{other:?}"),
    }
}

fn lives(fs: &mut Fs, fid: Fid) -> bool {
    fs.call(Request::GetAttr { fid, layout_known: true }).is_ok()
}

/// Returns the number of files whose objects are to be destroyed.
fn destroyed(fs: &mut Fs) -> usize {
    fs.commit();
    fs.ns.destroys(0, 10).unwrap().len()
}

#[test]
fn orphan_is_held_until_open_locks_are_cancelled() {
    let (mut fs, f, orphan) = orphan();
    assert!(lives(&mut fs, f));
    assert_eq!(destroyed(&mut fs), 0);
    assert!(fs.ns.release_orphan(orphan), "no client has it open");
    assert!(!lives(&mut fs, f));
    assert_eq!(destroyed(&mut fs), 1);
}

#[test]
fn handles_of_an_interrupted_reopen_are_closed_by_the_next_one() {
    let (mut fs, f, orphan) = orphan();
    let all = |fs: &mut Fs, files: usize, first, last| {
        let files = vec![Reopened::new(f, flags::RDONLY, NO_HANDLE); files];
        match fs.call(Request::Reopen { files, first, last }).unwrap() {
            Reply::Handles(handles) => handles.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    all(&mut fs, 2, true, false);
    assert!(!fs.ns.release_orphan(orphan));
    // The connection broke, and the client has not got the handles.
    all(&mut fs, 1, true, true);
    let handles = all(&mut fs, 1, true, true);
    assert!(lives(&mut fs, f), "open under the new handle");
    fs.call(Request::close(f, handles[0])).unwrap();
    assert!(!lives(&mut fs, f));
    assert_eq!(destroyed(&mut fs), 1);
}

#[test]
fn reopened_orphan_lives_until_its_last_close() {
    let (mut fs, f, orphan) = orphan();
    let handle = reopen(&mut fs, f);
    assert!(!fs.ns.release_orphan(orphan));
    assert!(lives(&mut fs, f));
    fs.close((f, handle)).unwrap();
    assert!(!lives(&mut fs, f));
    assert_eq!(destroyed(&mut fs), 1);
}

#[test]
fn close_before_open_locks_are_cancelled_keeps_the_orphan() {
    let (mut fs, f, orphan) = orphan();
    let handle = reopen(&mut fs, f);
    fs.close((f, handle)).unwrap();
    fs.ns.disconnect(ME);
    assert!(lives(&mut fs, f));
    assert!(fs.ns.release_orphan(orphan));
}

#[test]
fn crash_leaves_a_held_orphan_to_recovery() {
    let (mut fs, f, _) = orphan();
    fs.commit();
    let mut fs = fs.crash();
    let handle = reopen(&mut fs, f);
    fs.ns.finish_recovery().unwrap();
    assert!(lives(&mut fs, f), "open again");
    let mut fs = fs.crash();
    assert!(lives(&mut fs, f), "clients may reopen it during recovery");
    fs.ns.finish_recovery().unwrap();
    assert!(!lives(&mut fs, f));
    // A handle from before the crash.
    fs.close((f, handle)).unwrap();
    assert_eq!(destroyed(&mut fs), 1);
}

#[test]
fn unlink_of_one_of_two_names_holds_no_orphan() {
    let mut fs = Fs::new();
    let f = fs.touch(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
    fs.link(&Cred::ROOT, f, ROOT, "g").unwrap();
    fs.env.may_be_open = true;
    assert_eq!(unlink(&mut fs, "f").orphan, None);
    assert!(unlink(&mut fs, "g").orphan.is_some());
}

#[test]
fn close_without_handle_updates_atime_by_relatime() {
    let mut fs = Fs::new();
    let [f, g] = ["f", "g"].map(|name| fs.touch(&Cred::ROOT, ROOT, name, 0o644).unwrap());
    let before = fs.attr(f).atime;
    let [first, other] = accessed(&mut fs, &[(f, 0), (g, 0)])[..] else { panic!() };
    assert!(first.atime > before && other.fid == g && other.atime > before);
    assert_eq!(accessed(&mut fs, &[(f, 0)])[0].atime, first.atime, "the access time is newer than the last change");
    fs.unlink(&Cred::ROOT, ROOT, "f").unwrap();
    assert_eq!(accessed(&mut fs, &[(f, 0), (g, 0)]).iter().map(|attr| attr.fid).collect::<Vec<_>>(), [g]);
    let many = vec![Closed { fid: g, handle: NO_HANDLE, read: Some(0) }; CLOSED_MAX + 1];
    assert_eq!(fs.call(Request::Close { files: many }).unwrap_err(), Errno::EINVAL);
}

#[test]
fn close_sets_atime_to_the_close_time_unless_changed_later() {
    let mut fs = Fs::new();
    let f = fs.touch(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
    fs.env.now.sec += 10;
    let [read] = accessed(&mut fs, &[(f, 4_000_000)])[..] else { panic!() };
    assert_eq!(read.atime.sec, fs.env.now.sec - 4, "the time of the close");
    let set = SetAttr { atime: Some(SetTime::At(Time { sec: 5, nsec: 0 })), ..SetAttr::default() };
    fs.setattr(&Cred::ROOT, f, set).unwrap();
    let [read_attr] = accessed(&mut fs, &[(f, 4_000_000)])[..] else { panic!() };
    assert_eq!(read_attr.atime.sec, 5, "the time set after the read stays");
    let [again] = accessed(&mut fs, &[(f, 0)])[..] else { panic!() };
    assert_eq!(again.atime, fs.env.now, "a read after the change updates it");
}

fn accessed(fs: &mut Fs, files: &[(Fid, u64)]) -> Vec<Attr> {
    let closed = |(fid, micros): &(Fid, u64)| Closed { fid: *fid, handle: NO_HANDLE, read: Some(*micros) };
    match fs.call(Request::Close { files: files.iter().map(closed).collect() }).unwrap() {
        Reply::Attrs(attrs) => attrs,
        other => panic!("{other:?}"),
    }
}
