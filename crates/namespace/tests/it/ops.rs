//! The POSIX contract of each operation.

use std::sync::Arc;

use crate::common::*;
use bytes::Bytes;
use sheen_namespace::{ClientId, Config, MemStore};
use sheen_wire::{
    Cred, Errno, Fid, FileKind, Time,
    fid::ROOT,
    mds::{Closed, LINK_MAX, NewNode, Reopened, Reply, Request, SetAttr, SetTime, flags, rename},
};

#[test]
fn format_creates_the_root_directory() {
    let mut fs = Fs::new();
    let root = fs.attr(ROOT);
    assert_eq!((root.kind, root.perm, root.nlink, root.uid, root.size), (FileKind::Dir, 0o755, 2, 0, 4096));
    assert_eq!(fs.lookup(&user(1), ROOT, ".").unwrap().fid, ROOT);
    assert_eq!(fs.lookup(&user(1), ROOT, "..").unwrap().fid, ROOT);
    assert_eq!(fs.lookup(&user(1), ROOT, "x"), Err(Errno::ENOENT));
    assert_eq!(fs.lookup(&user(1), ROOT, &"x".repeat(255)), Err(Errno::ENOENT));
    assert_eq!(fs.lookup(&user(1), ROOT, &"x".repeat(256)), Err(Errno::ENAMETOOLONG));
    assert!(matches!(fs.call(Request::StatFs), Ok(Reply::StatFs(s)) if s.files == 1));
}

#[test]
fn format_sets_the_owner_of_the_root() {
    let me = user(100);
    let config = Config { root_uid: 100, root_gid: 200, ..Config::default() };
    let mut fs = Fs::on(Arc::new(MemStore::new()), config);
    let root = fs.attr(ROOT);
    assert_eq!((root.uid, root.gid, root.perm), (100, 200, 0o755));
    fs.mkdir(&me, ROOT, "d", 0o755).unwrap();
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!((fs.attr(ROOT).uid, fs.attr(ROOT).gid), (100, 200), "as formatted, whichever user starts the MDT later");
    assert_eq!(Fs::new().attr(ROOT).uid, 0);
}

#[test]
fn mtime_set_changes_only_with_mtime() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let f = fs.touch(&me, d, "f", 0o644).unwrap();
    let born = fs.attr(f);
    assert_eq!(born.mtime_set, born.btime);
    fs.chmod(&me, f, 0o600).unwrap();
    fs.chown(&ROOT_CRED, f, Some(2), Some(2)).unwrap();
    fs.chown(&ROOT_CRED, f, Some(1), Some(1)).unwrap();
    fs.rename(&me, (d, "f"), (d, "g"), 0).unwrap();
    fs.link(&me, f, d, "h").unwrap();
    fs.unlink(&me, d, "g").unwrap();
    fs.set(&me, f, "user.a", b"1", 0).unwrap();
    fs.setattr(&me, f, SetAttr { kill_priv: true, ..SetAttr::default() }).unwrap();
    fs.setattr(&me, f, SetAttr { atime: Some(SetTime::Now), ..SetAttr::default() }).unwrap();
    let open = fs.open(&me, f, flags::RDWR).unwrap();
    fs.close(open).unwrap();
    let after = fs.attr(f);
    assert!(after.ctime > born.ctime);
    assert_eq!((after.mtime, after.mtime_set), (born.mtime, born.mtime_set));

    let at = SetTime::At(Time { sec: 5, nsec: 6 });
    let set = fs.setattr(&me, f, SetAttr { mtime: Some(at), ..SetAttr::default() }).unwrap();
    assert!(set.mtime_set == set.ctime && set.mtime.sec == 5, "the time of the change, not the new value");
    let cut = fs.truncate(&me, f, 7).unwrap();
    assert!(cut.mtime_set == cut.mtime && cut.mtime_set > set.mtime_set);
    fs.open(&me, f, flags::RDWR | flags::TRUNC).unwrap();
    let cut_again = fs.attr(f);
    assert!(cut_again.mtime_set == cut_again.mtime && cut_again.mtime_set > cut.mtime_set);
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(fs.attr(f), cut_again);
}

#[test]
fn create_sets_owner_mode_times_and_links() {
    let mut fs = Fs::new();
    let me = user(100);
    let d = open_dir(&mut fs);
    let before = fs.attr(d);
    let f = fs.touch(&me, d, "f", 0o666).unwrap();
    let (attr, dir) = (fs.attr(f), fs.attr(d));
    assert_eq!((attr.kind, attr.perm, attr.nlink, attr.uid, attr.gid), (FileKind::Regular, 0o644, 1, 100, 100));
    assert!(attr.atime == attr.mtime && attr.mtime == attr.ctime && attr.ctime == attr.btime);
    assert!(dir.mtime > before.mtime && dir.ctime == dir.mtime && dir.mtime == attr.ctime);
    let sub = fs.mkdir(&me, d, "sub", 0o7777).unwrap();
    let attr = fs.attr(sub);
    assert_eq!((attr.perm, attr.nlink), (0o1755, 2), "mkdir takes the sticky bit and no other special one");
    assert_eq!(fs.attr(d).nlink, 3);
    let link = fs.symlink(&me, d, "l", "target").unwrap();
    assert_eq!((fs.attr(link).perm, fs.attr(link).size), (0o777, 6));
    assert!(matches!(fs.call(Request::ReadLink { fid: link }), Ok(Reply::Bytes(b)) if b == "target"));
    assert!(matches!(fs.call(Request::ReadLink { fid: f }), Err(Errno::EINVAL)));
    assert_eq!(fs.lookup(&me, sub, "..").unwrap().fid, d);
    assert_eq!(fs.ls(d), ["f", "l", "sub"]);
    for name in ["f", "sub", "l", ".", ".."] {
        assert_eq!(fs.mkdir(&user(200), d, name, 0o777), Err(Errno::EEXIST), "{name}");
        assert_eq!(fs.mknod(&me, d, name, 0o777), Err(Errno::EEXIST), "{name}");
    }
    assert_eq!(fs.mkdir(&me, f, "x", 0o777), Err(Errno::ENOTDIR));
    assert_eq!(fs.mkdir(&me, d, &"x".repeat(256), 0o777), Err(Errno::ENAMETOOLONG));
    assert_eq!(fs.symlink(&me, d, "e", ""), Err(Errno::ENOENT));
    assert_eq!(fs.symlink(&me, d, "e", &"x".repeat(4096)), Err(Errno::ENAMETOOLONG));
    assert!(fs.symlink(&me, d, "e", &"x".repeat(4095)).is_ok());
    fs.check();
}

#[test]
fn mkdir_reports_an_existing_name_before_permission() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&ROOT_CRED, ROOT, "d", 0o755).unwrap();
    fs.mkdir(&ROOT_CRED, d, "x", 0o755).unwrap();
    assert_eq!(fs.mkdir(&user(1), d, "x", 0o755), Err(Errno::EEXIST));
    assert_eq!(fs.mkdir(&user(1), d, "y", 0o755), Err(Errno::EACCES));
    fs.chmod(&ROOT_CRED, d, 0o766).unwrap();
    assert_eq!(fs.mkdir(&user(1), d, "x", 0o755), Err(Errno::EACCES), "existence needs search permission");
    assert_eq!(fs.lookup(&user(1), d, "x"), Err(Errno::EACCES));
}

#[test]
fn mknod_of_a_device_needs_the_superuser() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let node = |kind, rdev| NewNode::Node { kind, rdev };
    assert_eq!(fs.make(&user(1), d, "b", node(FileKind::Block, 5), 0o600), Err(Errno::EPERM));
    assert_eq!(fs.make(&user(1), d, "c", node(FileKind::Char, 5), 0o600), Err(Errno::EPERM));
    assert!(fs.make(&user(1), d, "whiteout", node(FileKind::Char, 0), 0o600).is_ok());
    let b = fs.make(&ROOT_CRED, d, "b", node(FileKind::Block, 0x812), 0o600).unwrap();
    assert_eq!((fs.attr(b).kind, fs.attr(b).rdev), (FileKind::Block, 0x812));
    for kind in [FileKind::Fifo, FileKind::Socket] {
        let f = fs.make(&user(1), d, &format!("{kind:?}"), node(kind, 9), 0o600).unwrap();
        assert_eq!((fs.attr(f).kind, fs.attr(f).rdev), (kind, 0));
    }
}

#[test]
fn create_refuses_used_fids_and_foreign_sequences() {
    let mut fs = Fs::new();
    let used = fs.mkdir(&ROOT_CRED, ROOT, "a", 0o755).unwrap();
    let make = |fs: &mut Fs, fid| {
        let (cred, name) = (Cred::ROOT, Bytes::from_static(b"b"));
        fs.call(Request::Create { cred, parent: ROOT, name, fid, node: NewNode::Dir, mode: 0, umask: 0 }).map(drop)
    };
    let foreign = [ROOT, Fid::ZERO, Fid::new(used.seq + 1, 1), Fid::new(used.seq, 0), Fid { ver: 1, ..used }];
    for fid in foreign.into_iter().chain([used, Fid::new(used.seq, sheen_wire::fid::SEQ_WIDTH + 1)]) {
        assert_eq!(make(&mut fs, fid), Err(Errno::EINVAL), "{fid}");
    }
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(make(&mut fs, used), Err(Errno::EINVAL), "also after a restart");
    assert_eq!(make(&mut fs, Fid::new(used.seq, used.oid + 1)), Ok(()), "a client continues its sequence");
}

#[test]
fn set_group_id_directory_passes_its_group_to_new_files() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    fs.chown(&ROOT_CRED, d, None, Some(50)).unwrap();
    fs.chmod(&ROOT_CRED, d, 0o2777).unwrap();
    let me = user(100);
    let sub = fs.mkdir(&me, d, "sub", 0o755).unwrap();
    assert_eq!((fs.attr(sub).gid, fs.attr(sub).perm), (50, 0o2755));
    let f = fs.touch(&me, d, "f", 0o2755).unwrap();
    assert_eq!((fs.attr(f).gid, fs.attr(f).perm), (50, 0o755), "no privilege of a foreign group");
    let g = fs.touch(&user_in(100, &[50]), d, "g", 0o2755).unwrap();
    assert_eq!((fs.attr(g).gid, fs.attr(g).perm), (50, 0o2755));
    assert_eq!(fs.touch(&Cred { groups: None, ..me }, d, "h", 0o2755), Err(Errno::NEED_GROUPS));
    assert_eq!(fs.lookup(&ROOT_CRED, d, "h"), Err(Errno::ENOENT), "nothing was created");
}

#[test]
fn access_uses_the_first_matching_permission_class() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let f = fs.touch(&user(1), d, "f", 0o600).unwrap();
    fs.chown(&ROOT_CRED, f, None, Some(9)).unwrap();
    fs.chmod(&ROOT_CRED, f, 0o047).unwrap();
    assert_eq!(fs.access(&user(1), f, 4), Err(Errno::EACCES), "the owner has less than others");
    assert_eq!(fs.access(&user_in(2, &[9]), f, 4), Ok(()));
    assert_eq!(fs.access(&user_in(2, &[9]), f, 2), Err(Errno::EACCES));
    assert_eq!(fs.access(&user(2), f, 7), Ok(()));
    assert_eq!(fs.access(&ROOT_CRED, f, 7), Ok(()));
    let unknown = Cred { groups: None, ..user(2) };
    assert_eq!(fs.access(&unknown, f, 4), Ok(()), "group and others agree");
    assert_eq!(fs.access(&unknown, f, 2), Err(Errno::NEED_GROUPS));
    assert_eq!(
        fs.access(&Cred { groups: None, ..user(1) }, f, 2),
        Err(Errno::EACCES),
        "the owner's groups do not matter"
    );
    fs.chmod(&ROOT_CRED, f, 0o644).unwrap();
    assert_eq!(fs.access(&ROOT_CRED, f, 1), Err(Errno::EACCES), "nobody may execute it");
    assert_eq!(fs.access(&ROOT_CRED, f, 8), Err(Errno::EINVAL));
}

#[test]
fn open_checks_kind_and_mode() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let f = fs.touch(&me, d, "f", 0o400).unwrap();
    let l = fs.symlink(&me, d, "l", "f").unwrap();
    assert!(fs.open(&me, f, flags::RDONLY).is_ok());
    assert_eq!(fs.open(&me, f, flags::WRONLY).err(), Some(Errno::EACCES));
    assert_eq!(fs.open(&me, f, flags::RDONLY | flags::TRUNC).err(), Some(Errno::EACCES));
    assert_eq!(fs.open(&me, f, flags::RDONLY | flags::EXEC).err(), Some(Errno::EACCES));
    assert_eq!(fs.open(&me, f, flags::DIRECTORY).err(), Some(Errno::ENOTDIR));
    assert_eq!(fs.open(&me, l, flags::RDONLY).err(), Some(Errno::ELOOP));
    assert!(fs.open(&me, d, flags::DIRECTORY).is_ok());
    for flags in [flags::WRONLY, flags::RDWR, flags::TRUNC] {
        assert_eq!(fs.open(&me, d, flags).err(), Some(Errno::EISDIR));
    }
    assert_eq!(fs.create(&me, d, "f", flags::EXCL, 0o600).err(), Some(Errno::EEXIST));
    assert_eq!(fs.create(&me, ROOT, "d", flags::RDONLY, 0o600).err(), Some(Errno::EISDIR));
    assert_eq!(fs.create(&me, d, "f", flags::RDONLY, 0o777).unwrap().0, f);
    assert_eq!(fs.create(&me, ROOT, "new", flags::RDWR, 0o777).err(), Some(Errno::EACCES));
    assert!(fs.create(&me, d, "locked", flags::RDWR, 0o000).is_ok(), "the mode does not restrict the creating open");
    fs.chmod(&me, f, 0o100).unwrap();
    assert!(fs.open(&me, f, flags::RDONLY | flags::EXEC).is_ok(), "execution needs no read permission");
}

#[test]
fn truncating_open_sets_times_and_clears_privilege() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let f = fs.touch(&user(1), d, "f", 0o777).unwrap();
    fs.chmod(&ROOT_CRED, f, 0o6777).unwrap();
    let before = fs.attr(f);
    fs.open(&user(2), f, flags::WRONLY).unwrap();
    assert_eq!(fs.attr(f).perm, 0o6777);
    assert_eq!(fs.attr(f).mtime, before.mtime);
    fs.open(&user(2), f, flags::WRONLY | flags::TRUNC).unwrap();
    let after = fs.attr(f);
    assert_eq!(after.perm, 0o777);
    assert!(after.mtime > before.mtime && after.ctime == after.mtime && after.atime == before.atime);
}

#[test]
fn layout_is_allocated_at_the_first_write() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let (me, mode) = (user(1), 0o644);
    let created = fs.touch(&me, d, "created", mode).unwrap();
    assert_eq!(sheen_layout::Layout::decode(&fs.layout(created).unwrap()).unwrap().fid(), created);
    let node = fs.mknod(&me, d, "node", mode).unwrap();
    assert_eq!(fs.layout(node), None);
    fs.open(&me, node, flags::RDONLY).unwrap();
    assert_eq!(fs.layout(node), None);
    fs.open(&me, node, flags::WRONLY).unwrap();
    assert!(fs.layout(node).is_some());
    let cut = fs.mknod(&me, d, "cut", mode).unwrap();
    fs.truncate(&me, cut, 5).unwrap();
    assert!(fs.layout(cut).is_some());
    assert_eq!(fs.truncate(&me, cut, 16 << 40), Err(Errno::EFBIG), "an object holds less than 16 TiB");
    assert_eq!(fs.truncate(&me, cut, u64::MAX), Err(Errno::EFBIG));
    let known = Request::GetAttr { fid: created, layout_known: true };
    assert!(matches!(fs.call(known), Ok(Reply::Entry(e)) if e.layout.is_none()));
}

#[test]
fn unlink_and_rmdir_check_kind_and_permission() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let me = user(1);
    let f = fs.touch(&me, d, "f", 0o644).unwrap();
    let sub = fs.mkdir(&me, d, "sub", 0o755).unwrap();
    fs.mkdir(&me, sub, "x", 0o755).unwrap();
    assert_eq!(fs.unlink(&me, d, "nope"), Err(Errno::ENOENT));
    assert_eq!(fs.unlink(&me, d, "sub"), Err(Errno::EISDIR));
    assert_eq!(fs.rmdir(&me, d, "f"), Err(Errno::ENOTDIR));
    assert_eq!(fs.rmdir(&me, d, "sub"), Err(Errno::ENOTEMPTY));
    assert_eq!(fs.rmdir(&me, sub, "."), Err(Errno::EINVAL));
    assert_eq!(fs.rmdir(&me, sub, ".."), Err(Errno::ENOTEMPTY));
    let before = fs.link(&me, f, d, "g").unwrap();
    assert_eq!(before.nlink, 2);
    fs.unlink(&me, d, "f").unwrap();
    let after = fs.attr(f);
    assert!(after.nlink == 1 && after.ctime > before.ctime && after.mtime == before.mtime);
    assert_eq!(fs.attr(d).mtime, after.ctime);
    fs.unlink(&me, d, "g").unwrap();
    assert!(matches!(fs.call(Request::GetAttr { fid: f, layout_known: true }), Err(Errno::ENOENT)));
    fs.rmdir(&me, sub, "x").unwrap();
    assert_eq!(fs.attr(sub).nlink, 2);
    fs.rmdir(&me, d, "sub").unwrap();
    assert_eq!(fs.attr(d).nlink, 2);
    assert_eq!(fs.unlink(&user(1), ROOT, "d"), Err(Errno::EACCES), "permission comes before the kind");
    fs.check();
}

#[test]
fn sticky_directory_refuses_removal_by_other_users() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&ROOT_CRED, ROOT, "d", 0o777).unwrap();
    fs.chmod(&ROOT_CRED, d, 0o1777).unwrap();
    fs.chown(&ROOT_CRED, d, Some(5), None).unwrap();
    for name in ["a", "b", "c"] {
        fs.touch(&user(1), d, name, 0o666).unwrap();
    }
    fs.touch(&user(2), d, "mine", 0o666).unwrap();
    assert_eq!(fs.unlink(&user(2), d, "a"), Err(Errno::EPERM));
    assert_eq!(fs.rename(&user(2), (d, "a"), (d, "z"), 0), Err(Errno::EPERM));
    assert_eq!(fs.rename(&user(2), (d, "mine"), (d, "a"), 0), Err(Errno::EPERM));
    assert_eq!(fs.unlink(&user(1), d, "a"), Ok(()));
    assert_eq!(fs.unlink(&user(5), d, "b"), Ok(()), "the directory's owner may");
    assert_eq!(fs.unlink(&ROOT_CRED, d, "c"), Ok(()));
}

#[test]
fn open_file_outlives_its_last_name() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let open = fs.create(&me, d, "f", flags::RDWR, 0o644).unwrap();
    let again = fs.open(&me, open.0, flags::RDONLY).unwrap();
    fs.unlink(&me, d, "f").unwrap();
    assert_eq!(fs.attr(open.0).nlink, 0);
    assert_eq!(fs.link(&me, open.0, d, "g"), Err(Errno::ENOENT));
    fs.close(open).unwrap();
    assert_eq!(fs.attr(open.0).nlink, 0);
    for not_open in [open, (d, again.1)] {
        fs.close(not_open).unwrap();
    }
    fs.client = ClientId(8);
    fs.close(again).unwrap();
    fs.client = ME;
    fs.commit();
    assert_eq!(fs.ns.destroys(0, 10).unwrap(), [], "none of these handles was an open of the file");
    assert_eq!(fs.attr(open.0).nlink, 0);
    let closed = [(open.0, open.1), (d, again.1), again].map(|(fid, handle)| Closed { fid, handle, read: None });
    fs.call(Request::Close { files: closed.to_vec() }).unwrap();
    assert!(matches!(fs.call(Request::GetAttr { fid: open.0, layout_known: true }), Err(Errno::ENOENT)));
    assert_eq!(fs.ns.destroys(0, 10).unwrap(), [], "not before it is durable");
    fs.commit();
    let destroys = fs.ns.destroys(0, 10).unwrap();
    assert_eq!(destroys.len(), 1);
    assert_eq!(destroys[0].objects.len(), 1);
    assert_eq!(fs.ns.destroys(destroys[0].seqno, 10).unwrap(), []);
    fs.ns.destroyed(&[destroys[0].seqno]);
    assert_eq!(fs.ns.destroys(0, 10).unwrap(), []);
    fs.commit();
    assert_eq!(fs.crash().ns.destroys(0, 10).unwrap(), []);
}

#[test]
fn disconnect_closes_the_clients_files() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let (f, _) = fs.create(&user(1), d, "f", flags::RDWR, 0o644).unwrap();
    fs.unlink(&user(1), d, "f").unwrap();
    fs.ns.disconnect(ClientId(8));
    assert_eq!(fs.attr(f).nlink, 0);
    fs.ns.disconnect(ME);
    assert!(matches!(fs.call(Request::GetAttr { fid: f, layout_known: true }), Err(Errno::ENOENT)));
    assert_eq!(fs.ns.files(), 2);
}

#[test]
fn restart_keeps_orphans_that_clients_reopen() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let orphan = fs.create(&user(1), d, "open", flags::RDWR, 0o644).unwrap();
    let left = fs.create(&user(1), d, "left", flags::RDWR, 0o644).unwrap();
    fs.unlink(&user(1), d, "open").unwrap();
    fs.unlink(&user(1), d, "left").unwrap();
    fs.commit();
    let mut fs = fs.crash();
    let deleted = Fid::new(left.0.seq, 9999);
    let files = vec![Reopened::new(orphan.0, flags::RDWR, orphan.1), Reopened::new(deleted, flags::RDWR, 1)];
    let Ok(Reply::Handles(handles)) = fs.call(Request::Reopen { files, first: false, last: false }) else { panic!() };
    assert_eq!(handles[1], Err(Errno::ESTALE));
    assert_ne!(handles[0], Ok(orphan.1), "handles from before the restart are invalid");
    fs.ns.finish_recovery().unwrap();
    assert_eq!(fs.attr(orphan.0).nlink, 0);
    assert!(matches!(fs.call(Request::GetAttr { fid: left.0, layout_known: true }), Err(Errno::ENOENT)));
    fs.close((orphan.0, handles[0].unwrap())).unwrap();
    fs.check();
}

#[test]
fn tmpfile_is_deleted_at_its_last_close_unless_linked() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let tmp = |fs: &mut Fs, flags| {
        let fid = fs.fid();
        fs.opened(Request::TmpFile { cred: user(1), parent: d, fid, flags, mode: 0o666, umask: 0o027 })
    };
    assert_eq!(tmp(&mut fs, flags::RDONLY), Err(Errno::EINVAL));
    let lost = tmp(&mut fs, flags::RDWR).unwrap();
    assert_eq!((fs.attr(lost.0).nlink, fs.attr(lost.0).perm), (0, 0o640));
    assert!(fs.layout(lost.0).is_some());
    fs.close(lost).unwrap();
    let bound = tmp(&mut fs, flags::RDWR | flags::EXCL).unwrap();
    assert_eq!(fs.link(&me, bound.0, d, "x"), Err(Errno::ENOENT));
    fs.close(bound).unwrap();
    let linked = tmp(&mut fs, flags::RDWR).unwrap();
    assert_eq!(fs.link(&me, linked.0, d, "x").unwrap().nlink, 1);
    fs.close(linked).unwrap();
    assert_eq!(fs.lookup(&me, d, "x").unwrap().fid, linked.0);
    fs.commit();
    let mut fs = fs.crash();
    fs.ns.finish_recovery().unwrap();
    assert_eq!(fs.lookup(&me, d, "x").unwrap().fid, linked.0);
    fs.check();
}

#[test]
fn link_refuses_directories_and_deleted_files() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let f = fs.touch(&me, d, "f", 0o644).unwrap();
    let before = fs.attr(f);
    fs.link(&me, f, d, "g").unwrap();
    let after = fs.attr(f);
    assert!(after.nlink == 2 && after.ctime > before.ctime && after.mtime == before.mtime);
    assert_eq!(fs.attr(d).mtime, after.ctime);
    assert_eq!(fs.link(&me, f, d, "g"), Err(Errno::EEXIST));
    assert_eq!(fs.link(&me, d, d, "h"), Err(Errno::EPERM));
    assert_eq!(fs.link(&me, f, ROOT, "h"), Err(Errno::EACCES));
    for i in 2..LINK_MAX {
        fs.link(&me, f, d, &format!("l{i}")).unwrap();
    }
    assert_eq!(fs.link(&me, f, d, "toomany"), Err(Errno::EMLINK));
    assert_eq!(fs.attr(f).nlink, LINK_MAX);
}

#[test]
fn rename_moves_and_replaces() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let (a, b) = (fs.mkdir(&me, d, "a", 0o755).unwrap(), fs.mkdir(&me, d, "b", 0o755).unwrap());
    let f = fs.touch(&me, a, "f", 0o644).unwrap();
    let old = fs.attr(f);
    fs.rename(&me, (a, "f"), (b, "g"), 0).unwrap();
    let new = fs.attr(f);
    assert!(new.ctime > old.ctime && new.mtime == old.mtime);
    assert_eq!((fs.attr(a).mtime, fs.attr(b).mtime), (new.ctime, new.ctime));
    assert_eq!(fs.lookup(&me, a, "f"), Err(Errno::ENOENT));
    let g = fs.touch(&me, b, "h", 0o644).unwrap();
    fs.rename(&me, (b, "g"), (b, "h"), 0).unwrap();
    assert_eq!(fs.lookup(&me, b, "h").unwrap().fid, f);
    assert!(matches!(fs.call(Request::GetAttr { fid: g, layout_known: true }), Err(Errno::ENOENT)));
    // Directories: links of the parents, and `..`.
    let sub = fs.mkdir(&me, a, "sub", 0o755).unwrap();
    fs.rename(&me, (a, "sub"), (b, "sub2"), 0).unwrap();
    assert_eq!((fs.attr(a).nlink, fs.attr(b).nlink), (2, 3));
    assert_eq!(fs.lookup(&me, sub, "..").unwrap().fid, b);
    fs.mkdir(&me, b, "empty", 0o755).unwrap();
    fs.rename(&me, (b, "sub2"), (b, "empty"), 0).unwrap();
    assert_eq!(fs.attr(b).nlink, 3);
    fs.mkdir(&me, a, "full", 0o755).unwrap();
    fs.rename(&me, (a, "full"), (b, "empty"), 0).unwrap();
    assert_eq!((fs.attr(a).nlink, fs.attr(b).nlink), (2, 3));
    fs.check();
}

#[test]
fn rename_refuses_invalid_moves() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let a = fs.mkdir(&me, d, "a", 0o755).unwrap();
    let b = fs.mkdir(&me, a, "b", 0o755).unwrap();
    let f = fs.touch(&me, d, "f", 0o644).unwrap();
    fs.link(&me, f, d, "same").unwrap();
    let t = fs.attr(d).mtime;
    assert_eq!(fs.rename(&me, (d, "f"), (d, "same"), 0), Ok(()));
    assert_eq!((fs.attr(d).mtime, fs.attr(f).nlink), (t, 2), "two names of one file: nothing happens");
    assert_eq!(fs.rename(&me, (d, "nope"), (d, "x"), 0), Err(Errno::ENOENT));
    assert_eq!(fs.rename(&me, (d, "a"), (b, "x"), 0), Err(Errno::EINVAL));
    assert_eq!(fs.rename(&me, (d, "a"), (a, "x"), 0), Err(Errno::EINVAL));
    assert_eq!(fs.rename(&me, (a, "b"), (d, "a"), 0), Err(Errno::ENOTEMPTY));
    assert_eq!(fs.rename(&me, (d, "f"), (a, "b"), 0), Err(Errno::EISDIR));
    assert_eq!(fs.rename(&me, (a, "b"), (d, "f"), 0), Err(Errno::ENOTDIR));
    assert_eq!(fs.rename(&me, (a, "."), (d, "x"), 0), Err(Errno::EBUSY));
    assert_eq!(fs.rename(&me, (d, "f"), (a, "b"), rename::NOREPLACE), Err(Errno::EEXIST));
    assert_eq!(fs.rename(&me, (d, "f"), (d, "x"), rename::EXCHANGE), Err(Errno::ENOENT));
    assert_eq!(fs.rename(&me, (d, "f"), (d, "x"), 3), Err(Errno::EINVAL));
    assert_eq!(fs.rename(&me, (d, "f"), (d, "x"), 4), Err(Errno::EINVAL));
    assert_eq!(fs.rename(&me, (d, "a"), (b, "x"), rename::EXCHANGE), Err(Errno::ENOENT));
    fs.mkdir(&me, b, "c", 0o755).unwrap();
    assert_eq!(fs.rename(&me, (d, "a"), (b, "c"), rename::EXCHANGE), Err(Errno::EINVAL));
    assert_eq!(fs.rename(&me, (b, "c"), (d, "a"), rename::EXCHANGE), Err(Errno::EINVAL));
    let theirs = fs.mkdir(&user(2), d, "theirs", 0o755).unwrap();
    assert_eq!(fs.rename(&me, (d, "theirs"), (a, "x"), 0), Err(Errno::EACCES), "its .. would change");
    assert_eq!(fs.rename(&me, (d, "theirs"), (d, "x"), 0), Ok(()), "the parent stays");
    assert_eq!(fs.rename(&me, (a, "b"), (theirs, "x"), 0), Err(Errno::EACCES));
    assert_eq!(fs.rename(&me, (d, "f"), (d, "new"), rename::NOREPLACE), Ok(()));
    fs.check();
}

#[test]
fn rename_exchange_swaps_files_and_link_counts() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let (a, b) = (fs.mkdir(&me, d, "a", 0o755).unwrap(), fs.mkdir(&me, d, "b", 0o755).unwrap());
    let sub = fs.mkdir(&me, a, "x", 0o755).unwrap();
    fs.touch(&me, sub, "inside", 0o644).unwrap();
    let f = fs.touch(&me, b, "y", 0o644).unwrap();
    fs.rename(&me, (a, "x"), (b, "y"), rename::EXCHANGE).unwrap();
    assert_eq!(fs.lookup(&me, a, "x").unwrap().fid, f);
    assert_eq!(fs.lookup(&me, b, "y").unwrap().fid, sub);
    assert_eq!(fs.lookup(&me, sub, "..").unwrap().fid, b);
    assert_eq!((fs.attr(a).nlink, fs.attr(b).nlink), (2, 3));
    fs.check();
}

#[test]
fn removed_directory_accepts_no_entries() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let sub = fs.mkdir(&me, d, "sub", 0o755).unwrap();
    let f = fs.touch(&me, d, "f", 0o644).unwrap();
    let open = fs.open(&me, sub, flags::DIRECTORY).unwrap();
    fs.rmdir(&me, d, "sub").unwrap();
    assert_eq!(fs.attr(sub).nlink, 0);
    assert_eq!(fs.ls(sub), [] as [&str; 0]);
    assert_eq!(fs.mkdir(&me, sub, "x", 0o755), Err(Errno::ENOENT));
    assert_eq!(fs.touch(&me, sub, "x", 0o644), Err(Errno::ENOENT));
    assert_eq!(fs.link(&me, f, sub, "x"), Err(Errno::ENOENT));
    assert_eq!(fs.rename(&me, (d, "f"), (sub, "x"), 0), Err(Errno::ENOENT));
    assert_eq!(fs.lookup(&me, sub, ".."), Err(Errno::ENOENT));
    fs.close(open).unwrap();
    assert_eq!(fs.mkdir(&me, sub, "x", 0o755), Err(Errno::ENOENT));
    fs.check();
}

#[test]
fn chmod_needs_the_owner_and_drops_foreign_set_group_id() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let f = fs.touch(&user(1), d, "f", 0o644).unwrap();
    let before = fs.attr(f);
    assert_eq!(fs.chmod(&user(2), f, 0o600), Err(Errno::EPERM));
    let after = fs.chmod(&user(1), f, 0o7654).unwrap();
    assert!(after.perm == 0o7654 && after.ctime > before.ctime && after.mtime == before.mtime);
    fs.chown(&ROOT_CRED, f, None, Some(9)).unwrap();
    assert_eq!(fs.chmod(&user(1), f, 0o2755).unwrap().perm, 0o755, "not in the group");
    assert_eq!(fs.chmod(&user_in(1, &[9]), f, 0o2755).unwrap().perm, 0o2755);
    assert_eq!(fs.chmod(&Cred { groups: None, ..user(1) }, f, 0o2700), Err(Errno::NEED_GROUPS));
    assert_eq!(fs.chmod(&Cred { groups: None, ..user(1) }, f, 0o700).unwrap().perm, 0o700);
    let l = fs.symlink(&user(1), d, "l", "f").unwrap();
    assert_eq!(fs.chmod(&user(1), l, 0o600), Err(Errno::EOPNOTSUPP));
}

#[test]
fn chown_needs_privilege_and_clears_set_id_bits() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let f = fs.touch(&user(1), d, "f", 0o644).unwrap();
    assert_eq!(fs.chown(&user(1), f, Some(2), None), Err(Errno::EPERM));
    assert_eq!(fs.chown(&user(2), f, Some(2), None), Err(Errno::EPERM));
    assert_eq!(fs.chown(&user(2), f, None, Some(2)), Err(Errno::EPERM));
    assert_eq!(fs.chown(&user(1), f, None, Some(9)), Err(Errno::EPERM));
    assert_eq!(fs.chown(&Cred { groups: None, ..user(1) }, f, None, Some(9)), Err(Errno::NEED_GROUPS));
    assert_eq!(fs.chown(&Cred { groups: None, ..user(2) }, f, None, Some(9)), Err(Errno::EPERM));
    assert_eq!(fs.chown(&user_in(1, &[9]), f, Some(1), Some(9)).unwrap().gid, 9);
    assert_eq!(fs.chown(&ROOT_CRED, f, Some(u32::MAX), None), Err(Errno::EINVAL));
    fs.chmod(&ROOT_CRED, f, 0o6775).unwrap();
    assert_eq!(fs.chown(&user_in(1, &[9]), f, None, Some(9)).unwrap().perm, 0o775);
    fs.chmod(&ROOT_CRED, f, 0o6765).unwrap();
    assert_eq!(fs.chown(&user_in(1, &[9]), f, None, Some(9)).unwrap().perm, 0o2765, "a mark for locking only");
    fs.chmod(&ROOT_CRED, d, 0o6777).unwrap();
    assert_eq!(fs.chown(&ROOT_CRED, d, Some(3), Some(3)).unwrap().perm, 0o6777, "directories keep the bits");
    let before = fs.attr(f).ctime;
    assert!(fs.chown(&ROOT_CRED, f, None, None).unwrap().ctime > before);
}

#[test]
fn utimens_needs_the_owner_or_write_permission() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let f = fs.touch(&user(1), d, "f", 0o600).unwrap();
    let at = Time { sec: -5, nsec: 999_999_999 };
    let times = |atime, mtime| SetAttr { atime, mtime, ..SetAttr::default() };
    let (now, old) = (Some(SetTime::Now), Some(SetTime::At(at)));
    let set = fs.setattr(&user(1), f, times(old, None)).unwrap();
    assert!(set.atime == at && set.mtime > at && set.ctime > set.mtime);
    assert_eq!(fs.setattr(&user(2), f, times(now, now)), Err(Errno::EACCES));
    assert_eq!(fs.setattr(&user(2), f, times(old, old)), Err(Errno::EPERM));
    fs.chmod(&user(1), f, 0o606).unwrap();
    assert!(fs.setattr(&user(2), f, times(now, now)).is_ok());
    for (a, m) in [(old, old), (now, old), (old, None), (now, None), (None, now)] {
        assert_eq!(fs.setattr(&user(2), f, times(a, m)), Err(Errno::EPERM), "{a:?} {m:?}");
    }
    let bad = Some(SetTime::At(Time { sec: 0, nsec: 1_000_000_000 }));
    assert_eq!(fs.setattr(&user(1), f, times(bad, None)), Err(Errno::EINVAL));
}

#[test]
fn truncate_needs_write_permission_or_a_writable_handle() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let (f, w) = fs.create(&user(1), d, "f", flags::WRONLY, 0o444).unwrap();
    let (_, r) = fs.open(&user(1), f, flags::RDONLY).unwrap();
    assert_eq!(fs.truncate(&user(1), f, 3), Err(Errno::EACCES));
    let mut ftruncate = |handle| {
        let set = SetAttr { size: Some(3), ..SetAttr::default() };
        fs.call(Request::SetAttr { cred: user(1), fid: f, set, handle: Some(handle) }).map(drop)
    };
    assert_eq!(ftruncate(w), Ok(()), "checked at open");
    assert_eq!(ftruncate(r), Err(Errno::EINVAL));
    assert_eq!(ftruncate(99), Err(Errno::EBADF));
    assert_eq!(fs.truncate(&ROOT_CRED, d, 3), Err(Errno::EISDIR));
    fs.chmod(&ROOT_CRED, f, 0o6777).unwrap();
    let before = fs.attr(f);
    assert_eq!(fs.truncate(&ROOT_CRED, f, 3).unwrap().perm, 0o6777);
    let after = fs.truncate(&user(2), f, 0).unwrap();
    assert!(after.perm == 0o777 && after.mtime > before.mtime && after.ctime == after.mtime);
    fs.chmod(&ROOT_CRED, f, 0o6777).unwrap();
    let kill = SetAttr { kill_priv: true, ..SetAttr::default() };
    assert_eq!(fs.setattr(&user(2), f, kill).unwrap().perm, 0o777);
}

#[test]
fn reads_update_atime_by_relatime() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let f = fs.touch(&user(1), d, "f", 0o644).unwrap();
    let read = |fs: &mut Fs| {
        let (fid, handle) = fs.open(&user(1), f, flags::RDONLY).unwrap();
        fs.call(Request::Close { files: vec![Closed { fid, handle, read: Some(0) }] }).unwrap();
        fs.attr(f).atime
    };
    let first = read(&mut fs);
    assert!(first > fs.attr(f).mtime);
    assert_eq!(read(&mut fs), first, "newer than the last change");
    fs.chmod(&user(1), f, 0o600).unwrap();
    let second = read(&mut fs);
    assert!(second > first);
    fs.env.now.sec += 86400;
    assert!(read(&mut fs) > second, "a day old");
}

#[test]
fn fid2path_returns_paths_and_parents() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let sub = fs.mkdir(&me, d, "sub", 0o755).unwrap();
    let f = fs.touch(&me, sub, "f", 0o644).unwrap();
    fs.link(&me, f, d, "g").unwrap();
    let mut paths = |cred: Cred, fid| match fs.call(Request::Paths { cred, fid }) {
        Ok(Reply::Paths(paths)) => Ok(paths),
        Ok(other) => panic!("{other:?}"),
        Err(e) => Err(e),
    };
    assert_eq!(paths(ROOT_CRED, f).unwrap(), ["d/sub/f", "d/g"]);
    assert_eq!(paths(ROOT_CRED, ROOT).unwrap(), [""]);
    assert_eq!(paths(me.clone(), f), Err(Errno::EPERM));
    assert_eq!(paths(ROOT_CRED, Fid::ZERO), Err(Errno::ENOENT));
    fs.rename(&me, (d, "sub"), (d, "moved"), 0).unwrap();
    fs.unlink(&me, d, "g").unwrap();
    assert!(matches!(fs.call(Request::Paths { cred: ROOT_CRED, fid: f }), Ok(Reply::Paths(p)) if p == ["d/moved/f"]));
    assert!(matches!(fs.call(Request::Parents { fid: f }), Ok(Reply::Parents(p)) if p == [(sub, Bytes::from("f"))]));
}

#[test]
fn transnos_rise_with_changes_and_follow_commits() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    fs.fid();
    fs.commit();
    let last = fs.ns.last_transno();
    assert_eq!((fs.ns.last_committed(), fs.ns.needs_commit(None)), (last, None));
    let lookup = Request::Lookup { cred: ROOT_CRED, parent: ROOT, name: Bytes::from("d") };
    assert_eq!(fs.execute(&lookup).unwrap().transno, 0);
    let set = SetAttr { perm: Some(0o700), ..SetAttr::default() };
    let chmod = Request::SetAttr { cred: ROOT_CRED, fid: d, set, handle: None };
    assert_eq!(fs.execute(&chmod).unwrap().transno, last + 1);
    assert_eq!(fs.execute(&chmod).unwrap().transno, last + 2);
    assert_eq!((fs.ns.needs_commit(Some(d)), fs.ns.needs_commit(Some(ROOT))), (Some(last + 2), None));
    assert_eq!(fs.ns.dirty().0, 2);
    let batch = fs.ns.seal().unwrap();
    assert_eq!((batch.first(), batch.last()), (last + 1, last + 2));
    assert_eq!(fs.execute(&chmod).unwrap().transno, last + 3);
    assert!(fs.ns.seal().is_none(), "one batch at a time");
    assert_eq!(fs.ns.needs_commit(Some(d)), Some(last + 3));
    use sheen_namespace::Store;
    fs.store.commit(&batch).unwrap();
    fs.ns.committed(batch.last());
    assert_eq!((fs.ns.last_committed(), fs.ns.needs_commit(Some(ROOT))), (last + 2, None));
    let fs = fs.crash();
    assert_eq!((fs.ns.last_transno(), fs.ns.last_committed()), (last + 2, last + 2));
}

#[test]
fn open_beyond_the_clients_limit_returns_enfile() {
    let config = sheen_namespace::Config { open_files_max: 2, ..Default::default() };
    let mut fs = Fs::on(Default::default(), config);
    let f = fs.touch(&ROOT_CRED, ROOT, "f", 0o644).unwrap();
    fs.open(&ROOT_CRED, f, 0).unwrap();
    let second = fs.open(&ROOT_CRED, f, 0).unwrap();
    assert_eq!(fs.open(&ROOT_CRED, f, 0), Err(Errno::ENFILE));
    assert_eq!(fs.touch(&ROOT_CRED, ROOT, "g", 0o644), Err(Errno::ENFILE));
    assert_eq!(fs.lookup(&ROOT_CRED, ROOT, "g"), Err(Errno::ENOENT));
    fs.close(second).unwrap();
    assert!(fs.touch(&ROOT_CRED, ROOT, "g", 0o644).is_ok());
}

#[test]
fn batch_records_are_in_key_order() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    for i in 0..20 {
        let open = fs.create(&ROOT_CRED, d, &format!("f{i}"), flags::RDWR, 0o644).unwrap();
        fs.set(&ROOT_CRED, open.0, "user.a", b"1", 0).unwrap();
        if i % 3 == 0 {
            fs.unlink(&ROOT_CRED, d, &format!("f{i}")).unwrap();
        }
        if i % 2 == 0 {
            fs.close(open).unwrap();
        }
    }
    let batch = fs.ns.seal().unwrap();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let result: std::result::Result<(), sheen_namespace::StoreError> = batch.for_each(|key, _| {
        keys.push(key.to_vec());
        Ok(())
    });
    result.unwrap();
    assert_eq!(keys.len(), batch.len());
    assert!(keys.is_sorted_by(|a, b| a < b));
    for table in b"ceiopux" {
        assert!(keys.iter().any(|k| k[0] == *table), "{}", char::from(*table));
    }
}

#[test]
fn refused_request_changes_nothing() {
    let mut fs = Fs::new();
    let f = fs.mknod(&ROOT_CRED, ROOT, "f", 0o644).unwrap();
    fs.touch(&ROOT_CRED, ROOT, "g", 0o644).unwrap();
    fs.commit();
    let (before, transno) = (fs.attr(f), fs.ns.last_transno());
    assert_eq!(fs.truncate(&ROOT_CRED, f, 17 << 40), Err(Errno::EFBIG));
    assert_eq!(fs.truncate(&user(1), f, 1), Err(Errno::EACCES));
    assert_eq!(fs.rename(&user(1), (ROOT, "f"), (ROOT, "g"), 0), Err(Errno::EACCES));
    assert_eq!((fs.attr(f), fs.layout(f), fs.ns.last_transno()), (before, None, transno));
    assert_eq!(fs.ns.needs_commit(Some(f)), None);
}

#[test]
fn unlink_log_scan_skips_destroyed_entries() {
    let mut fs = Fs::new();
    for i in 0..10 {
        fs.touch(&ROOT_CRED, ROOT, &format!("f{i}"), 0o644).unwrap();
        fs.unlink(&ROOT_CRED, ROOT, &format!("f{i}")).unwrap();
    }
    fs.commit();
    let seqnos =
        |fs: &Fs, after, limit| -> Vec<u64> { fs.ns.destroys(after, limit).unwrap().iter().map(|d| d.seqno).collect() };
    let all = seqnos(&fs, 0, 100);
    assert_eq!(all.len(), 10);
    fs.ns.destroyed(&all[..5]);
    assert!(fs.ns.dirty().1 > 0, "the next batch is not empty");
    assert_eq!(seqnos(&fs, 0, 3), all[5..8]);
    assert_eq!(seqnos(&fs, all[7], 3), all[8..]);
}

#[test]
fn deleted_or_linked_orphans_leave_no_orphan_record() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let fid = fs.fid();
    let request = Request::TmpFile { cred: ROOT_CRED, parent: d, fid, flags: flags::RDWR, mode: 0o600, umask: 0 };
    let linked = fs.opened(request).unwrap();
    let unlinked = fs.create(&ROOT_CRED, d, "f", flags::RDWR, 0o600).unwrap();
    fs.unlink(&ROOT_CRED, d, "f").unwrap();
    let orphans = |fs: &mut Fs| {
        fs.commit();
        sheen_namespace::Store::range(&*fs.store, b"p", b"q", 10).unwrap().len()
    };
    assert_eq!(orphans(&mut fs), 2);
    fs.link(&ROOT_CRED, linked.0, d, "g").unwrap();
    assert_eq!(orphans(&mut fs), 1);
    fs.close(unlinked).unwrap();
    assert_eq!(orphans(&mut fs), 0);
}
