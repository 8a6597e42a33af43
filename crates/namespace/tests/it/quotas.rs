//! Quotas: the number of files of each user, group and project, limits of files, and the attribute
//! `lustre.quota`.

use crate::common::*;
use bytes::Bytes;
use sheen_namespace::{Check, Decided, Store};
use sheen_wire::{
    Cred, Errno, Fid, PoolName, Project, Result,
    fid::ROOT,
    mds::{NewNode, Request, flags, rename},
    quota::{Change, Grace, Id, Kind, Limits, NewLimits, Setting, XATTR},
};

const ME: Cred = Cred::ROOT;

fn user_id(id: u32) -> Id {
    Id { kind: Kind::User, id }
}

/// Returns the numbers of files of a user, a group and a project.
fn used(fs: &Fs, [user, group, project]: [u32; 3]) -> [u64; 3] {
    let ids = [user_id(user), Id { kind: Kind::Group, id: group }, Id { kind: Kind::Project, id: project }];
    ids.map(|id| fs.ns.files_used(id))
}

fn change(fs: &mut Fs, change: Change) -> Result<()> {
    fs.set(&ME, ROOT, XATTR, &change.encode().unwrap(), 0)
}

fn both(soft: u64, hard: u64) -> NewLimits {
    NewLimits { soft: Some(soft), hard: Some(hard) }
}

/// Sets the limits of files of an id.
fn limit(fs: &mut Fs, id: Id, soft: u64, hard: u64) {
    change(fs, Change::Limits { id, pool: None, space: NewLimits::default(), files: both(soft, hard) }).unwrap();
}

fn of_files(soft: u64, hard: u64) -> Setting {
    Setting { files: Limits { soft, hard }, ..Setting::default() }
}

fn set_project(fs: &mut Fs, fid: Fid, id: u32, inherits: bool) {
    fs.set(&ME, fid, "lustre.project", &Project { id, inherits }.encode(), 0).unwrap();
}

/// Returns the keys of a table.
fn keys(fs: &Fs, table: u8) -> Vec<Vec<u8>> {
    fs.store.range(&[table], &[table + 1], 1000).unwrap().into_iter().map(|(key, _)| key).collect()
}

fn problems(fs: &Fs) -> Vec<String> {
    let check = Check::of(&*fs.store, &mut |_, _| {}).unwrap();
    check.problems().iter().map(ToString::to_string).collect()
}

#[test]
fn files_of_all_kinds_count_until_their_last_name_is_removed() {
    let mut fs = Fs::new();
    let (d, me) = (open_dir(&mut fs), user(5));
    assert_eq!(used(&fs, [0, 0, 0]), [2, 2, 2], "the root directory and d");
    let f = fs.touch(&me, d, "f", 0o644).unwrap();
    fs.mkdir(&me, d, "s", 0o755).unwrap();
    fs.symlink(&me, d, "l", "f").unwrap();
    fs.mknod(&me, d, "n", 0o644).unwrap();
    assert_eq!((used(&fs, [5, 5, 0]), used(&fs, [0, 0, 5])), ([4, 4, 6], [2, 2, 0]));
    fs.link(&me, f, d, "g").unwrap();
    fs.unlink(&me, d, "f").unwrap();
    assert_eq!(used(&fs, [5, 5, 0]), [4, 4, 6], "one of two names");
    fs.unlink(&me, d, "g").unwrap();
    fs.rename(&me, (d, "l"), (d, "n"), 0).unwrap();
    fs.rmdir(&me, d, "s").unwrap();
    assert_eq!(used(&fs, [5, 5, 0]), [1, 1, 3]);
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!((used(&fs, [5, 5, 0]), fs.ns.files()), ([1, 1, 3], 3));
    assert_eq!(fs.ns.quota_ids(Kind::User, None, 0, 9), [0, 5]);
    fs.unlink(&me, d, "n").unwrap();
    fs.commit();
    assert_eq!(keys(&fs, b'n').len(), 3, "user 0, group 0 and project 0");
    let fs = fs.crash();
    assert_eq!((used(&fs, [5, 5, 0]), fs.ns.quota_ids(Kind::User, None, 0, 9)), ([0, 0, 2], vec![0]));
}

#[test]
fn orphans_count_until_they_are_deleted() {
    let mut fs = Fs::new();
    let (d, me) = (open_dir(&mut fs), user(5));
    let open = fs.create(&me, d, "f", flags::RDWR, 0o644).unwrap();
    let fid = fs.fid();
    let tmp = Request::TmpFile { cred: me.clone(), parent: d, fid, flags: flags::RDWR, mode: 0o600, umask: 0 };
    fs.opened(tmp).unwrap();
    fs.unlink(&me, d, "f").unwrap();
    assert_eq!(used(&fs, [5, 5, 0]), [2, 2, 4]);
    fs.close(open).unwrap();
    assert_eq!(used(&fs, [5, 5, 0]), [1, 1, 3]);
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(used(&fs, [5, 5, 0]), [1, 1, 3]);
    fs.ns.finish_recovery().unwrap();
    assert_eq!(used(&fs, [5, 5, 0]), [0, 0, 2]);
    fs.commit();
}

#[test]
fn chown_project_and_rename_move_the_count() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let f = fs.touch(&user(5), d, "f", 0o644).unwrap();
    fs.chown(&ME, f, Some(6), None).unwrap();
    assert_eq!((used(&fs, [5, 5, 0]), used(&fs, [6, 6, 0])), ([0, 1, 3], [1, 0, 3]));
    fs.chown(&ME, f, None, Some(8)).unwrap();
    set_project(&mut fs, f, 7, false);
    assert_eq!((used(&fs, [6, 8, 7]), used(&fs, [5, 5, 0])), ([1, 1, 1], [0, 0, 2]));
    let p = fs.mkdir(&ME, ROOT, "p", 0o777).unwrap();
    set_project(&mut fs, p, 9, true);
    fs.rename(&ME, (d, "f"), (p, "f"), 0).unwrap();
    assert_eq!((used(&fs, [6, 8, 9]), used(&fs, [0, 0, 7])), ([1, 1, 2], [3, 3, 0]));
    fs.touch(&user(6), p, "g", 0o644).unwrap_err();
    fs.touch(&ME, p, "g", 0o644).unwrap();
    assert_eq!(used(&fs, [0, 0, 9]), [4, 4, 3], "the project is inherited");
    fs.commit();
    let fs = fs.crash();
    assert_eq!((used(&fs, [6, 8, 9]), used(&fs, [0, 0, 0])), ([1, 1, 3], [4, 4, 2]));
}

#[test]
fn creation_beyond_the_hard_limit_returns_edquot() {
    let mut fs = Fs::new();
    let (d, me) = (open_dir(&mut fs), user(5));
    limit(&mut fs, user_id(5), 0, 2);
    let a = fs.touch(&me, d, "a", 0o644).unwrap();
    fs.mkdir(&me, d, "b", 0o755).unwrap();
    let full = Err(Errno::EDQUOT);
    assert_eq!(fs.touch(&me, d, "c", 0o644), full);
    assert_eq!(fs.mkdir(&me, d, "c", 0o755), full);
    assert_eq!(fs.symlink(&me, d, "c", "a"), full);
    assert_eq!(fs.mknod(&me, d, "c", 0o644), full);
    let fid = fs.fid();
    let tmp = Request::TmpFile { cred: me.clone(), parent: d, fid, flags: flags::RDWR, mode: 0o600, umask: 0 };
    assert_eq!(fs.opened(tmp).map(drop), Err(Errno::EDQUOT));
    let (name, new_name, flags) = (Bytes::from_static(b"a"), Bytes::from_static(b"c"), rename::WHITEOUT);
    let whiteout = Some(Box::new(fs.fid()));
    let leaving = Request::Rename { cred: me.clone(), parent: d, name, new_parent: d, new_name, flags, whiteout };
    assert_eq!(fs.call(leaving).map(drop), Err(Errno::EDQUOT));
    assert_eq!((used(&fs, [5, 5, 0]), fs.ls(d)), ([2, 2, 4], vec!["a".to_owned(), "b".to_owned()]));

    // Requests that create no file are not refused, nor are others and the superuser.
    let open = fs.create(&me, d, "a", flags::RDWR, 0o644).unwrap();
    fs.close(open).unwrap();
    fs.link(&me, a, d, "l").unwrap();
    fs.rename(&me, (d, "l"), (d, "m"), 0).unwrap();
    fs.touch(&user(6), d, "of 6", 0o644).unwrap();
    let given = fs.touch(&ME, d, "of 0", 0o644).unwrap();
    fs.chown(&ME, given, Some(5), Some(5)).unwrap();
    assert_eq!(used(&fs, [5, 5, 0]), [3, 3, 6], "chown is not refused");
    fs.rmdir(&me, d, "b").unwrap();
    assert_eq!(fs.mkdir(&me, d, "c", 0o755), full);
    fs.unlink(&ME, d, "of 0").unwrap();
    fs.mkdir(&me, d, "c", 0o755).unwrap();
}

#[test]
fn limits_of_group_and_project_refuse_creations() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    limit(&mut fs, Id { kind: Kind::Group, id: 5 }, 0, 1);
    fs.mkdir(&user(5), d, "a", 0o755).unwrap();
    assert_eq!(fs.mkdir(&user(5), d, "b", 0o755), Err(Errno::EDQUOT));
    set_project(&mut fs, d, 9, true);
    limit(&mut fs, Id { kind: Kind::Project, id: 9 }, 0, 2);
    fs.mkdir(&user(6), d, "c", 0o755).unwrap();
    assert_eq!(fs.mkdir(&user(6), d, "e", 0o755), Err(Errno::EDQUOT), "the project has d and c");
    fs.mkdir(&ME, d, "e", 0o755).unwrap();
    fs.commit();
    assert_eq!(fs.crash().mkdir(&user(7), d, "g", 0o755), Err(Errno::EDQUOT));
}

#[test]
fn soft_limit_refuses_after_the_grace_time() {
    let mut fs = Fs::new();
    let (d, me, id) = (open_dir(&mut fs), user(5), user_id(5));
    change(&mut fs, Change::Grace { kind: Kind::User, pool: None, space: None, files: Some(100) }).unwrap();
    assert_eq!(fs.ns.quota_grace(Kind::User, None), Grace { files: 100, ..Grace::default() });
    limit(&mut fs, id, 1, 3);
    fs.mkdir(&me, d, "a", 0o755).unwrap();
    assert_eq!(fs.ns.files_grace(id), None);
    fs.mkdir(&me, d, "b", 0o755).unwrap();
    let since = fs.env.now;
    assert_eq!(fs.ns.files_grace(id), Some(since));
    fs.mkdir(&me, d, "c", 0o755).unwrap();
    assert_eq!(fs.mkdir(&me, d, "d", 0o755), Err(Errno::EDQUOT), "the hard limit");
    fs.rmdir(&me, d, "c").unwrap();
    assert_eq!(fs.ns.files_grace(id), Some(since), "the soft limit is still exceeded");
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(fs.ns.files_grace(id), Some(since));
    // The clock advances by a second with each request, also by one for a sequence.
    fs.fid();
    fs.env.now.sec = since.sec + 98;
    fs.mkdir(&me, d, "c", 0o755).unwrap();
    fs.rmdir(&me, d, "c").unwrap();
    assert_eq!(fs.mkdir(&me, d, "c", 0o755), Err(Errno::EDQUOT), "the grace time is over");
    fs.rmdir(&me, d, "b").unwrap();
    assert_eq!(fs.ns.files_grace(id), None);
    fs.mkdir(&me, d, "c", 0o755).unwrap();
    assert_eq!(fs.ns.files_grace(id), Some(fs.env.now), "another grace time begins");

    // Also with a change of the limits or of the owner.
    limit(&mut fs, id, 0, 0);
    assert_eq!(fs.ns.files_grace(id), None);
    limit(&mut fs, id, 1, 0);
    assert_eq!(fs.ns.files_grace(id), Some(fs.env.now));
    let other = fs.mkdir(&ME, d, "e", 0o755).unwrap();
    limit(&mut fs, user_id(6), 1, 0);
    for dir in ["a", "c"] {
        let fid = fs.lookup(&ME, d, dir).unwrap().fid;
        fs.chown(&ME, fid, Some(6), None).unwrap();
    }
    assert_eq!((fs.ns.files_grace(id), fs.ns.files_grace(user_id(6))), (None, Some(fs.env.now)));
    fs.chown(&ME, other, Some(5), None).unwrap();
    assert_eq!(fs.ns.files_grace(id), None, "at the limit");
    fs.commit();
}

#[test]
fn default_limits_apply_to_ids_without_own_ones() {
    let mut fs = Fs::new();
    let (d, id) = (open_dir(&mut fs), user_id(5));
    let default = |fs: &mut Fs, hard| {
        change(fs, Change::Default { kind: Kind::User, pool: None, space: NewLimits::default(), files: both(0, hard) })
            .unwrap();
    };
    default(&mut fs, 1);
    assert_eq!(fs.ns.quota_default(Kind::User, None), of_files(0, 1));
    let generation = fs.ns.quota_generation();
    fs.mkdir(&user(5), d, "a", 0o755).unwrap();
    assert!(fs.ns.quota_generation() > generation, "user 5 has a limit with the first file");
    assert_eq!(fs.mkdir(&user(5), d, "b", 0o755), Err(Errno::EDQUOT));
    fs.mkdir(&ME, d, "of 0", 0o755).unwrap();
    assert_eq!(fs.ns.quota_setting(id, None), (of_files(0, 1), true));
    assert_eq!(fs.ns.quota_setting(user_id(0), None), (Setting::default(), false));
    assert_eq!(fs.ns.limited_ids(), [id]);

    limit(&mut fs, id, 0, 2);
    fs.mkdir(&user(5), d, "b", 0o755).unwrap();
    assert_eq!(fs.mkdir(&user(5), d, "c", 0o755), Err(Errno::EDQUOT));
    assert_eq!(fs.ns.quota_setting(id, None), (of_files(0, 2), false));
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(
        (fs.ns.quota_setting(id, None), fs.ns.quota_default(Kind::User, None)),
        ((of_files(0, 2), false), of_files(0, 1))
    );
    limit(&mut fs, id, 0, 0);
    fs.mkdir(&user(5), d, "c", 0o755).unwrap();
    assert_eq!(
        (fs.ns.quota_setting(id, None).1, fs.ns.limited_ids()),
        (false, vec![]),
        "own limits that limit nothing"
    );
    for to_default in [Change::UseDefault { id, pool: None }, Change::Delete { id, pool: None }] {
        limit(&mut fs, id, 0, 9);
        change(&mut fs, to_default).unwrap();
        assert_eq!(fs.ns.quota_setting(id, None), (of_files(0, 1), true));
        assert_eq!(fs.mkdir(&user(5), d, "e", 0o755), Err(Errno::EDQUOT));
    }
    fs.commit();
    assert!(keys(&fs, b'd').is_empty());
    default(&mut fs, 0);
    fs.mkdir(&user(5), d, "e", 0o755).unwrap();
    assert_eq!(fs.ns.limited_ids(), []);
}

#[test]
fn unset_parts_of_a_change_stay() {
    let mut fs = Fs::new();
    let id = user_id(5);
    let of_space = Change::Limits { id, pool: None, space: both(7, 8), files: NewLimits::default() };
    change(&mut fs, of_space).unwrap();
    let hard_alone = NewLimits { hard: Some(4), soft: None };
    change(&mut fs, Change::Limits { id, pool: None, space: NewLimits::default(), files: hard_alone }).unwrap();
    let expected = Setting { space: Limits { soft: 7, hard: 8 }, files: Limits { soft: 0, hard: 4 } };
    assert_eq!(fs.ns.quota_setting(id, None), (expected, false));
    assert_eq!(fs.ns.limited_ids(), [id], "without files");
    assert_eq!((fs.ns.quota_ids(Kind::User, None, 1, 9), fs.ns.quota_ids(Kind::User, None, 6, 9)), (vec![5], vec![]));
    assert_eq!((fs.ns.quota_ids(Kind::User, None, 0, 1), fs.ns.quota_ids(Kind::Group, None, 0, 9)), (vec![0], vec![0]));
}

#[test]
fn quota_attribute_is_set_by_the_superuser_on_the_root_alone() {
    let mut fs = Fs::new();
    let (d, id) = (open_dir(&mut fs), user_id(5));
    let good = Change::Limits { id, pool: None, space: both(0, 1), files: both(0, 1) }.encode().unwrap();
    let (generation, ctime) = (fs.ns.quota_generation(), fs.attr(ROOT).ctime);
    assert_eq!(fs.set(&user(5), ROOT, XATTR, &good, 0), Err(Errno::EPERM));
    assert_eq!(fs.unset(&user(5), ROOT, XATTR), Err(Errno::EPERM));
    assert_eq!(fs.set(&ME, d, XATTR, &good, 0), Err(Errno::EOPNOTSUPP));
    assert_eq!(fs.unset(&ME, ROOT, XATTR), Err(Errno::EINVAL));
    assert_eq!(fs.set(&ME, ROOT, XATTR, b"\xff", 0), Err(Errno::EINVAL));
    assert_eq!(
        change(&mut fs, Change::Limits { id, pool: None, space: both(2, 1), files: both(0, 1) }),
        Err(Errno::EINVAL)
    );
    assert_eq!(
        change(&mut fs, Change::Limits { id, pool: None, space: both(0, 1), files: both(2, 1) }),
        Err(Errno::EINVAL)
    );
    for id in [0, u32::MAX].map(user_id) {
        let limits = Change::Limits { id, pool: None, space: both(0, 1), files: both(0, 1) };
        for bad in [limits, Change::UseDefault { id, pool: None }, Change::Delete { id, pool: None }] {
            assert_eq!(change(&mut fs, bad), Err(Errno::EINVAL), "{id:?}");
        }
    }
    assert_eq!(fs.get(&ME, ROOT, XATTR), Err(Errno::ENODATA));
    assert_eq!((fs.ns.quota_generation(), fs.attr(ROOT).ctime), (generation, ctime), "nothing has changed");
    assert_eq!(fs.ns.quota_setting(id, None).0, Setting::default());
    fs.set(&ME, ROOT, XATTR, &good, 0).unwrap();
    assert!(fs.ns.quota_generation() > generation && fs.attr(ROOT).ctime > ctime);
    assert!(!fs.names(&ME, ROOT).iter().any(|name| name == XATTR), "it is not listed");
}

#[test]
fn space_since_survives_a_restart() {
    let mut fs = Fs::new();
    let (id, since) = (user_id(5), Some(fs.env.now));
    fs.ns.set_space_since(id, None, since);
    assert!(fs.ns.dirty().1 > 0, "the service commits it");
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!((fs.ns.space_since(id, None), fs.ns.files_grace(id)), (since, None));
    fs.ns.set_space_since(id, None, since);
    assert_eq!(fs.ns.dirty().1, 0, "no change");
    fs.ns.set_space_since(id, None, None);
    fs.commit();
    let fs = fs.crash();
    assert_eq!((fs.ns.space_since(id, None), keys(&fs, b'd')), (None, vec![]));
}

#[test]
fn limits_within_a_pool_survive_a_restart_and_limit_no_files() {
    let mut fs = Fs::new();
    let (d, id, pool) = (open_dir(&mut fs), user_id(5), Some(PoolName::new("ssd").unwrap()));
    let files = NewLimits::default();
    change(&mut fs, Change::Default { kind: Kind::User, pool, space: both(0, 9), files }).unwrap();
    assert_eq!(fs.ns.limited_ids(), []);
    let generation = fs.ns.quota_generation();
    fs.mkdir(&user(5), d, "a", 0o755).unwrap();
    assert!(fs.ns.quota_generation() > generation, "user 5 has a limit with the first file");
    change(&mut fs, Change::Limits { id: user_id(7), pool, space: both(3, 4), files }).unwrap();
    change(&mut fs, Change::Grace { kind: Kind::User, pool, space: Some(60), files: None }).unwrap();
    let bad = Change::Limits { id, pool, space: both(0, 1), files: both(0, 1) };
    assert_eq!(change(&mut fs, bad), Err(Errno::EINVAL));
    let since = Some(fs.env.now);
    fs.ns.set_space_since(id, pool, since);
    fs.commit();

    let mut fs = fs.crash();
    let of_space = |soft, hard| Setting { space: Limits { soft, hard }, ..Setting::default() };
    assert_eq!((fs.ns.limited_ids(), fs.ns.quota_ids(Kind::User, pool, 1, 9)), (vec![id, user_id(7)], vec![5, 7]));
    assert_eq!(fs.ns.quota_ids(Kind::User, None, 1, 9), [5]);
    assert_eq!(fs.ns.quota_setting(id, pool), (of_space(0, 9), true));
    assert_eq!(fs.ns.quota_setting(user_id(7), pool), (of_space(3, 4), false));
    assert_eq!(
        (fs.ns.quota_setting(id, None).0, fs.ns.quota_default(Kind::User, pool)),
        (Setting::default(), of_space(0, 9))
    );
    assert_eq!(
        (fs.ns.quota_grace(Kind::User, pool).space, fs.ns.quota_grace(Kind::User, None)),
        (60, Grace::default())
    );
    assert_eq!((fs.ns.space_since(id, pool), fs.ns.space_since(id, None)), (since, None));
    assert_eq!(fs.ns.limiting_pools(id).into_iter().map(Some).collect::<Vec<_>>(), [pool]);
    assert!(problems(&fs).is_empty());
    change(&mut fs, Change::Delete { id: user_id(7), pool }).unwrap();
    assert_eq!((fs.ns.limited_ids(), fs.ns.quota_setting(user_id(7), pool).1), (vec![id], true));
    fs.commit();
    assert_eq!((keys(&fs, b'b').len(), keys(&fs, b'm').len()), (1, 1));
}

#[test]
fn crash_between_seal_and_commit_loses_files_and_their_count_together() {
    let mut fs = Fs::new();
    let (d, me, id) = (open_dir(&mut fs), user(5), user_id(5));
    fs.mkdir(&me, d, "a", 0o755).unwrap();
    limit(&mut fs, id, 0, 7);
    fs.commit();
    let lost = |fs: &mut Fs| {
        fs.mkdir(&me, d, "b", 0o755).unwrap();
        limit(fs, id, 0, 8);
        fs.seal();
        fs.mkdir(&me, d, "c", 0o755).unwrap();
        limit(fs, id, 0, 9);
    };
    lost(&mut fs);
    let mut fs = fs.crash();
    assert_eq!((used(&fs, [5, 5, 0]), fs.ns.quota_setting(id, None).0), ([1, 1, 3], of_files(0, 7)));
    lost(&mut fs);
    fs.land();
    let mut fs = fs.crash();
    assert_eq!((used(&fs, [5, 5, 0]), fs.ns.quota_setting(id, None).0), ([2, 2, 4], of_files(0, 8)));
    assert_eq!(fs.ls(d), ["a", "b"]);
}

#[test]
fn store_of_format_3_is_counted_when_it_is_opened() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    for n in 0..5 {
        fs.touch(&user(n % 2 + 5), d, &n.to_string(), 0o644).unwrap();
    }
    set_project(&mut fs, d, 9, true);
    fs.touch(&user(5), d, "f", 0o644).unwrap();
    fs.commit();
    let all = |fs: &Fs| [used(fs, [0, 0, 0]), used(fs, [5, 5, 9]), used(fs, [6, 6, 1])];
    let before = all(&fs);
    assert_eq!(before, [[2, 2, 6], [4, 4, 2], [2, 2, 0]]);
    keys(&fs, b'n').iter().for_each(|key| fs.store.remove(key));
    // A number that is outdated, as in a salvaged store.
    fs.store.put(vec![b'n', 2, 0, 0, 0, 1], vec![1, 7]);
    fs.store.put(b"f".to_vec(), vec![1, 3]);
    assert!(problems(&fs).is_empty(), "format 3 has no numbers");
    let fs = fs.crash();
    assert_eq!(all(&fs), before);
    assert_eq!((fs.store.get(b"f").unwrap(), problems(&fs)), (Some(vec![1, 4]), vec![]));
    let fs = fs.crash();
    assert_eq!(all(&fs), before, "opening it has stored the numbers");
}

#[test]
fn count_skips_an_unreadable_inode() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let f = fs.touch(&user(5), d, "f", 0o644).unwrap();
    fs.mkdir(&user(5), d, "s", 0o755).unwrap();
    fs.commit();
    fs.store.put([&b"i"[..], &f.to_key()].concat(), vec![0xff]);
    fs.store.put(b"f".to_vec(), vec![1, 3]);
    assert_eq!(used(&fs.crash(), [5, 5, 0]), [1, 1, 3]);
}

#[test]
fn check_repairs_a_wrong_number_of_files() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    fs.mkdir(&user(5), d, "a", 0o755).unwrap();
    fs.commit();
    fs.store.put(vec![b'n', 0, 0, 0, 0, 5], vec![1, 99]);
    fs.store.put(vec![b'n', 1, 0, 0, 0, 6], vec![1, 1]);
    assert_eq!(
        problems(&fs),
        [
            "the number of files of user 5 is 99, and should be 1",
            "the number of files of group 6 is 1, and should be 0"
        ]
    );
    let check = Check::of(&*fs.store, &mut |_, _| {}).unwrap();
    let (batch, count) = check.repair(&*fs.store, fs.env.now).unwrap().unwrap();
    fs.store.commit(&batch).unwrap();
    assert_eq!((count, problems(&fs)), (2, vec![]));
    assert_eq!(used(&fs.crash(), [5, 6, 0]), [1, 0, 3]);
}

#[test]
fn replayed_creation_is_not_refused() {
    let mut fs = Fs::new();
    let (d, me) = (open_dir(&mut fs), user(5));
    limit(&mut fs, user_id(5), 0, 1);
    fs.mkdir(&me, d, "a", 0o755).unwrap();
    fs.commit();
    fs.rmdir(&me, d, "a").unwrap();
    let (name, fid, node) = (Bytes::from_static(b"b"), fs.fid(), NewNode::Dir);
    let create = Request::Create { cred: me.clone(), parent: d, name, fid, node, mode: 0o755, umask: 0 };
    let transno = fs.execute(&create).unwrap().transno;
    let decided = Decided { transno, time: fs.env.now, layout: None, named: Vec::new() };
    // The client that removed "a" does not come back.
    let mut fs = fs.crash();
    fs.ns.replay(crate::common::ME, &create, decided, &mut fs.env).unwrap();
    assert_eq!(used(&fs, [5, 5, 0]), [2, 2, 4]);
    assert_eq!(fs.mkdir(&me, d, "c", 0o755), Err(Errno::EDQUOT));
    fs.commit();
}
