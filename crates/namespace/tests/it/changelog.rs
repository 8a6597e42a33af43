//! The changelog: records of each operation, readers, users, crashes and replays.

use crate::common::*;
use bytes::Bytes;
use sheen_namespace::{ChangelogGc, Decided, Origin, read_changelog};
use sheen_wire::{
    Cred, Errno, Fid, Time,
    changelog::{Kind, LAST, Mask, Record},
    fid::ROOT,
    mds::{Closed, Opener, Reopened, Reply, Request, SetAttr, SetTime, flags, rename::EXCHANGE},
};

/// Returns a file system with one user of the changelog.
fn with_user(mask: Option<Mask>) -> Fs {
    let mut fs = Fs::new();
    // Reserves sequences and object ids.
    fs.touch(&ROOT_CRED, ROOT, "before", 0o644).unwrap();
    fs.ns.changelog_register("", mask, 1, fs.env.now).unwrap();
    fs.commit();
    fs
}

/// Returns the durable records that a user needs.
fn durable(fs: &Fs) -> Vec<Record> {
    let (first, last) = fs.ns.changelog_range();
    read_changelog(&*fs.store, first, last, usize::MAX).unwrap()
}

fn records(fs: &mut Fs) -> Vec<Record> {
    fs.commit();
    durable(fs)
}

fn kinds(fs: &mut Fs) -> Vec<Kind> {
    records(fs).into_iter().map(|record| record.kind).collect()
}

/// Returns the kind, the flags and the user of each record.
fn by_user(fs: &mut Fs) -> Vec<(Kind, u16, u32)> {
    records(fs).into_iter().map(|record| (record.kind, record.flags, record.uid)).collect()
}

fn mask(text: &str) -> Option<Mask> {
    Some(Mask::parse(text, Mask::DEFAULT).unwrap())
}

fn mkdir(fs: &mut Fs, name: &str) -> Request {
    let (fid, name) = (fs.fid(), Bytes::copy_from_slice(name.as_bytes()));
    let node = sheen_wire::mds::NewNode::Dir;
    Request::Create { cred: Cred::ROOT, parent: ROOT, name, fid, node, mode: 0o755, umask: 0 }
}

#[test]
fn each_operation_on_names_has_its_record() {
    let mut fs = with_user(None);
    let dir = fs.mkdir(&ROOT_CRED, ROOT, "d", 0o755).unwrap();
    let file = fs.mknod(&ROOT_CRED, dir, "f", 0o644).unwrap();
    fs.link(&ROOT_CRED, file, ROOT, "g").unwrap();
    let link = fs.symlink(&ROOT_CRED, ROOT, "l", "f").unwrap();
    fs.rename(&ROOT_CRED, (dir, "f"), (ROOT, "l"), 0).unwrap();
    fs.rename(&ROOT_CRED, (ROOT, "g"), (ROOT, "d"), EXCHANGE).unwrap();
    fs.unlink(&ROOT_CRED, ROOT, "l").unwrap();
    fs.unlink(&ROOT_CRED, ROOT, "d").unwrap();
    fs.rmdir(&ROOT_CRED, ROOT, "g").unwrap();
    assert_eq!(fs.unlink(&ROOT_CRED, ROOT, "g"), Err(Errno::ENOENT), "has no record");
    let found = records(&mut fs);
    let expected: [(Kind, Fid, Fid, &str, u16); 10] = [
        (Kind::Mkdir, dir, ROOT, "d", 0),
        (Kind::Creat, file, dir, "f", 0),
        (Kind::Hlink, file, ROOT, "g", 0),
        (Kind::Slink, link, ROOT, "l", 0),
        (Kind::Renme, link, ROOT, "l", LAST),
        (Kind::Renme, Fid::ZERO, ROOT, "d", 0),
        (Kind::Renme, Fid::ZERO, ROOT, "g", 0),
        (Kind::Unlnk, file, ROOT, "l", 0),
        (Kind::Unlnk, file, ROOT, "d", LAST),
        (Kind::Rmdir, dir, ROOT, "g", LAST),
    ];
    for ((index, record), (kind, target, parent, name, flags)) in (1..).zip(&found).zip(expected) {
        assert_eq!((record.index, record.kind, record.flags), (index, kind, flags), "{record:?}");
        assert_eq!((record.target, record.parent, &record.name[..]), (target, parent, name.as_bytes()), "{record:?}");
    }
    assert_eq!(found.len(), expected.len());
    let source = found[4].source.as_ref().unwrap();
    assert_eq!((source.fid, source.parent, &source.name[..]), (file, dir, &b"f"[..]));
}

#[test]
fn each_change_of_a_file_has_its_record() {
    let mut fs = with_user(Some(Mask::ALL));
    let (file, handle) = fs.create(&user(0), ROOT, "f", flags::RDWR, 0o644).unwrap();
    fs.chmod(&ROOT_CRED, file, 0o600).unwrap();
    fs.truncate(&ROOT_CRED, file, 5).unwrap();
    let now = Some(SetTime::Now);
    fs.setattr(&ROOT_CRED, file, SetAttr { atime: now, mtime: now, ..SetAttr::default() }).unwrap();
    fs.setattr(&ROOT_CRED, file, SetAttr::default()).unwrap();
    fs.set(&ROOT_CRED, file, "user.x", b"1", 0).unwrap();
    fs.close((file, handle)).unwrap();
    let reader = fs.open(&ROOT_CRED, file, flags::RDONLY).unwrap();
    let read = Closed { fid: file, handle: reader.1, read: Some(0) };
    fs.call(Request::Close { files: vec![read] }).unwrap();
    let truncated = fs.open(&ROOT_CRED, file, flags::WRONLY | flags::TRUNC).unwrap();
    fs.close(truncated).unwrap();
    let found = records(&mut fs);
    let of_kind: Vec<Kind> = found.iter().map(|record| record.kind).collect();
    assert_eq!(
        of_kind,
        [
            Kind::Creat,
            Kind::Open,
            Kind::Sattr,
            Kind::Trunc,
            Kind::Mtime,
            Kind::Ctime,
            Kind::Xattr,
            Kind::Close,
            Kind::Open,
            Kind::Close,
            Kind::Atime,
            Kind::Trunc,
            Kind::Open,
            Kind::Close
        ]
    );
    assert_eq!(&found[6].xattr[..], b"user.x");
    assert!(found.iter().all(|record| record.target == file));
}

#[test]
fn opens_of_a_user_with_the_same_flags_have_one_record_and_one_close() {
    let mut fs = with_user(mask("OPEN CLOSE"));
    let dir = open_dir(&mut fs);
    let file = fs.touch(&user(5), dir, "f", 0o644).unwrap();
    let first = fs.open(&user(5), file, flags::RDONLY).unwrap();
    let second = fs.open(&user(5), file, flags::RDONLY).unwrap();
    let other = fs.open(&user(6), file, flags::RDONLY).unwrap();
    for open in [first, other, second] {
        fs.close(open).unwrap();
    }
    let tmp = Request::TmpFile { cred: user(5), parent: dir, fid: fs.fid(), flags: flags::RDWR, mode: 0o600, umask: 0 };
    fs.opened(tmp).unwrap();
    let expected = [
        (Kind::Open, 0x4b, 5),
        (Kind::Close, 0x43, 5),
        (Kind::Open, 1, 5),
        (Kind::Open, 1, 6),
        (Kind::Close, 1, 6),
        (Kind::Close, 1, 5),
    ];
    assert_eq!(by_user(&mut fs), expected, "a file without a name has no OPEN");
}

#[test]
fn close_of_a_file_opened_before_the_registration_has_its_user_if_it_was_written() {
    let mut fs = Fs::new();
    let dir = open_dir(&mut fs);
    let file = fs.touch(&user(5), dir, "f", 0o644).unwrap();
    let opens = [flags::RDONLY, flags::WRONLY].map(|flags| fs.open(&user(5), file, flags).unwrap());
    fs.commit();
    fs.ns.changelog_register("", mask("OPEN CLOSE"), 1, fs.env.now).unwrap();
    for open in opens {
        fs.close(open).unwrap();
    }
    assert_eq!(by_user(&mut fs), [(Kind::Close, 2, 5)]);
}

#[test]
fn recorded_open_has_its_close_also_after_a_crash() {
    let mut fs = with_user(mask("OPEN CLOSE"));
    let file = fs.mknod(&ROOT_CRED, ROOT, "f", 0o644).unwrap();
    let (_, before) = fs.open(&user(5), file, flags::RDONLY).unwrap();
    fs.commit();
    let mut fs = fs.crash();
    let opener = Opener::of(&user(5));
    let files = vec![Reopened { opener, ..Reopened::new(file, flags::RDONLY, before) }];
    let reopened = fs.call(Request::Reopen { files, first: true, last: true });
    let Ok(Reply::Handles(handles)) = reopened else { panic!("not reopened") };
    let handle = handles.into_iter().next().unwrap().unwrap();
    fs.close((file, handle)).unwrap();
    assert_eq!(by_user(&mut fs), [(Kind::Open, 1, 5), (Kind::Close, 1, 5)], "the client knows the user");
}

#[test]
fn refused_open_is_recorded_once_per_interval() {
    let mut fs = with_user(mask("NOPEN"));
    let dir = open_dir(&mut fs);
    let file = fs.touch(&ROOT_CRED, dir, "f", 0o600).unwrap();
    let refused = Err(Errno::EACCES);
    for (uid, flags) in [(5, flags::RDONLY), (5, flags::RDONLY), (5, flags::RDWR), (6, flags::RDONLY)] {
        assert_eq!(fs.open(&user(uid), file, flags).map(drop), refused);
    }
    assert_eq!(fs.create(&user(6), dir, "f", flags::RDONLY, 0o600).map(drop), refused);
    assert_eq!(fs.open(&user(6), dir, flags::WRONLY).map(drop), Err(Errno::EISDIR), "has no record");
    fs.env.now.sec += 60;
    assert_eq!(fs.open(&user(5), file, flags::RDONLY).map(drop), refused);
    fs.ns.set_changelog_refused_secs(0);
    assert_eq!(fs.open(&user(5), file, flags::RDONLY).map(drop), refused);
    let found = records(&mut fs);
    let shown: Vec<_> = found.iter().map(|record| (record.index, record.kind, record.flags, record.uid)).collect();
    let expected = [(1, 5), (3, 5), (1, 6), (0x41, 6), (1, 5), (1, 5)];
    let expected: Vec<_> = (1..).zip(expected).map(|(index, (flags, uid))| (index, Kind::Nopen, flags, uid)).collect();
    assert_eq!(shown, expected);
    assert!(found.iter().all(|record| record.target == file));
}

#[test]
fn reads_of_user_attributes_are_recorded() {
    let mut fs = with_user(mask("GXATR"));
    let file = fs.touch(&ROOT_CRED, ROOT, "f", 0o644).unwrap();
    fs.set(&ROOT_CRED, file, "user.x", b"1", 0).unwrap();
    for (name, found) in [("user.x", true), ("user.none", false), ("trusted.link", true)] {
        assert_eq!(fs.get(&ROOT_CRED, file, name).is_ok(), found, "{name}");
    }
    let found = records(&mut fs);
    assert_eq!(found.iter().map(|record| &record.xattr[..]).collect::<Vec<_>>(), [b"user.x"]);
    assert_eq!((found[0].kind, found[0].target), (Kind::Gxatr, file));
}

#[test]
fn without_users_and_outside_of_the_mask_nothing_is_recorded() {
    let mut fs = Fs::new();
    fs.mkdir(&ROOT_CRED, ROOT, "a", 0o755).unwrap();
    assert_eq!((kinds(&mut fs), fs.ns.changelog_range()), (vec![], (1, 0)));
    let mask = Mask::parse("RMDIR", Mask::DEFAULT);
    fs.ns.changelog_register("one", mask, 1, fs.env.now).unwrap();
    fs.mkdir(&ROOT_CRED, ROOT, "b", 0o755).unwrap();
    fs.rmdir(&ROOT_CRED, ROOT, "b").unwrap();
    assert_eq!(kinds(&mut fs), [Kind::Rmdir]);
    fs.ns.changelog_register("two", None, 2, fs.env.now).unwrap();
    fs.mkdir(&ROOT_CRED, ROOT, "c", 0o755).unwrap();
    assert_eq!(kinds(&mut fs), [Kind::Rmdir, Kind::Mkdir]);
    assert_eq!(fs.ns.changelog_register("two", None, 3, fs.env.now), Err(Errno::EEXIST));
    assert_eq!(fs.ns.changelog_register("a b", None, 3, fs.env.now), Err(Errno::EINVAL));
    let labels: Vec<String> = fs.ns.changelog_registered().map(|user| user.label()).collect();
    assert_eq!(labels, ["cl1-one", "cl2-two"]);
}

#[test]
fn records_are_readable_when_durable_and_numbers_are_not_used_twice() {
    let mut fs = with_user(None);
    fs.mkdir(&ROOT_CRED, ROOT, "a", 0o755).unwrap();
    assert!(durable(&fs).is_empty());
    fs.commit();
    fs.mkdir(&ROOT_CRED, ROOT, "b", 0o755).unwrap();
    fs.seal();
    fs.mkdir(&ROOT_CRED, ROOT, "c", 0o755).unwrap();
    assert_eq!(durable(&fs).len(), 1);
    fs.land();
    let before = durable(&fs);
    assert_eq!(before.len(), 2);
    let mut fs = fs.crash();
    fs.mkdir(&ROOT_CRED, ROOT, "d", 0o755).unwrap();
    let after = records(&mut fs);
    assert_eq!(after[..2], before);
    assert_eq!((after.len(), after[2].index, &after[2].name[..]), (3, 3, &b"d"[..]), "c was lost with its record");
}

#[test]
fn replayed_change_has_one_record_and_a_resent_one_none() {
    let mut fs = with_user(None);
    fs.ns.list_client("me");
    fs.commit();
    let (first, second) = (mkdir(&mut fs, "a"), mkdir(&mut fs, "b"));
    fs.commit();
    let origin = |xid| Some(Origin { client: "me", xid, acknowledged: 0 });
    fs.ns.execute_from(ME, origin(1), &first, &mut fs.env).unwrap();
    fs.commit();
    let done = fs.ns.execute_from(ME, origin(2), &second, &mut fs.env).unwrap();
    let mut fs = fs.crash();
    fs.ns.client_returned("me");
    let decided = Decided { transno: done.transno, time: done.time, layout: None, named: Vec::new() };
    fs.ns.replay(ME, &second, decided, &mut fs.env).unwrap();
    assert!(fs.ns.execute_from(ME, origin(1), &first, &mut fs.env).unwrap().repeated);
    fs.commit();
    let names: Vec<Bytes> = durable(&fs).into_iter().map(|record| record.name).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn cleared_records_of_all_users_are_deleted_in_portions() {
    let mut fs = with_user(None);
    let empty = fs.store.len();
    // More chunks than one batch deletes.
    for i in 0..100 {
        fs.mkdir(&ROOT_CRED, ROOT, &i.to_string(), 0o755).unwrap();
        fs.rmdir(&ROOT_CRED, ROOT, &i.to_string()).unwrap();
        fs.commit();
    }
    fs.ns.changelog_register("late", None, 2, fs.env.now).unwrap();
    fs.mkdir(&ROOT_CRED, ROOT, "last", 0o755).unwrap();
    assert_eq!(kinds(&mut fs).len(), 201);
    let now = Time { sec: 5000, nsec: 0 };
    assert_eq!(fs.ns.changelog_clear(1, 202, now), Err(Errno::EINVAL));
    assert_eq!(fs.ns.changelog_clear(9, 1, now), Err(Errno::ENOENT));
    fs.ns.changelog_clear(1, 199, now).unwrap();
    fs.ns.changelog_clear(1, 10, now).unwrap();
    assert_eq!(records(&mut fs).iter().map(|record| record.index).collect::<Vec<_>>(), [200, 201]);
    assert!(fs.ns.has_unneeded_records());
    while fs.ns.has_unneeded_records() {
        fs.commit();
    }
    // The chunk with records 199 and 200, the one with record 201, and the new directory.
    assert!(fs.store.len() <= empty + 4, "{}", fs.store.len() - empty);
    fs.ns.changelog_clear(1, 0, now).unwrap();
    assert_eq!(records(&mut fs).len(), 1, "the other user holds it");
    fs.ns.changelog_deregister(2).unwrap();
    fs.ns.changelog_deregister(1).unwrap();
    assert_eq!(fs.ns.changelog_deregister(1), Err(Errno::ENOENT));
    fs.commit();
    fs.commit();
    assert_eq!((fs.ns.changelog_bytes(), durable(&fs).len()), (0, 0));
    fs.ns.changelog_register("", None, 3, now).unwrap();
    fs.mkdir(&ROOT_CRED, ROOT, "again", 0o755).unwrap();
    assert_eq!(records(&mut fs)[0].index, 202);
}

#[test]
fn deregistered_user_is_leaving_until_that_is_durable() {
    let mut fs = with_user(None);
    fs.ns.changelog_register("other", None, 2, fs.env.now).unwrap();
    fs.seal();
    fs.ns.changelog_deregister(1).unwrap();
    let leaving = |fs: &Fs| fs.ns.changelog_leaving().collect::<Vec<_>>();
    fs.land();
    assert_eq!(leaving(&fs), [1], "the batch was sealed before");
    let mut fs = fs.crash();
    assert_eq!((fs.ns.changelog_users().len(), leaving(&fs)), (2, vec![]));
    fs.ns.changelog_deregister(1).unwrap();
    fs.seal();
    assert_eq!(leaving(&fs), [1]);
    fs.land();
    assert!(leaving(&fs).is_empty());
    assert_eq!(fs.crash().ns.changelog_users().len(), 1);
}

#[test]
fn records_cleared_while_others_are_read_are_deleted_later() {
    let mut fs = with_user(None);
    for name in ["a", "b"] {
        fs.mkdir(&ROOT_CRED, ROOT, name, 0o755).unwrap();
        fs.commit();
    }
    let stored = fs.store.len();
    fs.ns.changelog_clear(1, 1, fs.env.now).unwrap();
    let read = fs.ns.unneeded_records().unwrap().read(&*fs.store).unwrap();
    fs.ns.changelog_clear(1, 2, fs.env.now).unwrap();
    fs.ns.delete_unneeded(read);
    assert!(fs.ns.has_unneeded_records());
    fs.sealed = fs.ns.seal();
    fs.land();
    assert_eq!(fs.store.len(), stored - 1);
    fs.commit();
    assert_eq!((fs.store.len(), fs.ns.changelog_bytes()), (stored - 2, 0));
    assert!(!fs.ns.has_unneeded_records());
}

#[test]
fn user_that_holds_too_many_records_is_deregistered() {
    let mut fs = with_user(None);
    fs.ns.changelog_register("quick", None, 2, fs.env.now).unwrap();
    fs.ns.set_changelog_held_max(10);
    for i in 0..12 {
        fs.mkdir(&ROOT_CRED, ROOT, &i.to_string(), 0o755).unwrap();
        fs.commit();
        fs.ns.changelog_clear(2, 0, fs.env.now).unwrap();
    }
    let laggards = fs.ns.take_changelog_laggards();
    let laggards: Vec<String> = laggards.iter().map(|laggard| laggard.user.label()).collect();
    assert_eq!(laggards, ["cl1"]);
    assert!(fs.ns.take_changelog_laggards().is_empty());
    let mut fs = fs.crash();
    assert_eq!(fs.ns.changelog_users().iter().map(|user| user.id).collect::<Vec<_>>(), [2]);
    fs.mkdir(&ROOT_CRED, ROOT, "x", 0o755).unwrap();
    assert_eq!(records(&mut fs).last().map(|record| record.index), Some(13));
}

#[test]
fn idle_user_is_deregistered_by_the_first_record_after_the_limit() {
    let mut fs = with_user(None);
    fs.ns.changelog_register("quick", None, 2, fs.env.now).unwrap();
    let gc = ChangelogGc { idle_secs: 100, interval_secs: 10, ..ChangelogGc::default() };
    fs.ns.set_changelog_gc(gc);
    fs.mkdir(&ROOT_CRED, ROOT, "a", 0o755).unwrap();
    fs.commit();
    fs.env.now.sec += 200;
    fs.ns.changelog_clear(2, 0, fs.env.now).unwrap();
    fs.commit();
    assert_eq!(fs.ns.changelog_users().len(), 2, "there is no new record");
    fs.mkdir(&ROOT_CRED, ROOT, "b", 0o755).unwrap();
    fs.commit();
    let laggards = fs.ns.take_changelog_laggards();
    assert_eq!(laggards.iter().map(|laggard| laggard.user.id).collect::<Vec<_>>(), [1]);
    assert!(laggards[0].records == 2 && laggards[0].idle_secs >= 200, "{laggards:?}");
    let fs = fs.crash();
    assert_eq!(fs.ns.changelog_users().iter().map(|user| user.id).collect::<Vec<_>>(), [2]);
    assert_eq!(fs.ns.changelog_gc(), gc, "the limits are stored");
}

#[test]
fn user_that_has_cleared_all_records_is_not_idle_before_the_next_one() {
    let mut fs = with_user(None);
    fs.ns.set_changelog_gc(ChangelogGc { idle_secs: 100, interval_secs: 10, ..ChangelogGc::default() });
    let users = [1, 0].map(|left| {
        fs.env.now.sec += 1000;
        fs.mkdir(&ROOT_CRED, ROOT, if left == 1 { "first" } else { "second" }, 0o755).unwrap();
        fs.commit();
        fs.ns.changelog_users().len()
    });
    assert_eq!(users, [1, 0]);
}

#[test]
fn users_stay_registered_without_gc() {
    let mut fs = with_user(None);
    let gc = ChangelogGc { is_on: false, idle_secs: 1, interval_secs: 1 };
    fs.ns.set_changelog_gc(gc);
    fs.ns.set_changelog_held_max(1);
    for name in ["a", "b", "c"] {
        fs.mkdir(&ROOT_CRED, ROOT, name, 0o755).unwrap();
        fs.env.now.sec += 100;
        fs.commit();
    }
    assert_eq!((fs.ns.changelog_users().len(), fs.ns.take_changelog_laggards()), (1, vec![]));
    fs.ns.set_changelog_gc(ChangelogGc { is_on: true, ..gc });
    fs.commit();
    assert_eq!((fs.ns.changelog_users().len(), fs.ns.take_changelog_laggards().len()), (0, 1));
}

#[test]
fn reading_returns_records_in_pages() {
    let mut fs = with_user(None);
    for i in 0..600 {
        fs.mkdir(&ROOT_CRED, ROOT, &i.to_string(), 0o755).unwrap();
    }
    fs.commit();
    let (mut next, mut all) = (1, Vec::new());
    loop {
        let page = read_changelog(&*fs.store, next, 590, 4096).unwrap();
        let Some(last) = page.last() else { break };
        next = last.index + 1;
        assert!(page.iter().map(Record::bytes).sum::<usize>() <= 4096);
        all.extend(page.into_iter().map(|record| record.index));
    }
    assert_eq!(all, (1..=590).collect::<Vec<u64>>());
}
