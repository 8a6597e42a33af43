//! Projects: the attribute `lustre.project`, inheritance, and the boundary around a project.

use crate::common::*;
use sheen_namespace::Permitted;
use sheen_wire::{
    Cred, Errno, Fid, FileKind, Project,
    fid::ROOT,
    ldlm::bits::{UPDATE, XATTR},
    mds::{NewNode, Request, flags, rename},
};

const ME: Cred = Cred::ROOT;
const NAME: &str = "lustre.project";

fn of(fs: &mut Fs, fid: Fid) -> (u32, bool) {
    let project = Project::decode(&fs.get(&user(9), fid, NAME).unwrap()).unwrap();
    (project.id, project.inherits)
}

fn set(fs: &mut Fs, fid: Fid, id: u32, inherits: bool) {
    fs.set(&ME, fid, NAME, &Project { id, inherits }.encode(), 0).unwrap();
}

/// A directory whose new entries get this project.
fn project_dir(fs: &mut Fs, name: &str, id: u32) -> Fid {
    let dir = fs.mkdir(&ME, ROOT, name, 0o755).unwrap();
    set(fs, dir, id, true);
    dir
}

#[test]
fn new_entries_inherit_the_project_and_new_directories_the_flag() {
    let mut fs = Fs::new();
    let plain = fs.mkdir(&ME, ROOT, "plain", 0o755).unwrap();
    set(&mut fs, plain, 5, false);
    let f = fs.touch(&ME, plain, "f", 0o644).unwrap();
    assert_eq!((of(&mut fs, plain), of(&mut fs, f)), ((5, false), (0, false)), "without the flag nothing is inherited");

    let dir = project_dir(&mut fs, "d", 7);
    let made = [
        fs.touch(&ME, dir, "f", 0o644).unwrap(),
        fs.mknod(&ME, dir, "n", 0o644).unwrap(),
        fs.symlink(&ME, dir, "l", "f").unwrap(),
        fs.make(&ME, dir, "p", NewNode::Node { kind: FileKind::Fifo, rdev: 0 }, 0o644).unwrap(),
    ];
    let fid = fs.fid();
    fs.opened(Request::TmpFile { cred: ME, parent: dir, fid, flags: flags::RDWR, mode: 0o600, umask: 0 }).unwrap();
    for fid in made.into_iter().chain([fid]) {
        assert_eq!(of(&mut fs, fid), (7, false));
    }
    let sub = fs.mkdir(&ME, dir, "s", 0o755).unwrap();
    let below = fs.touch(&ME, sub, "f", 0o644).unwrap();
    assert_eq!((of(&mut fs, sub), of(&mut fs, below)), ((7, true), (7, false)));

    fs.commit();
    let mut fs = fs.crash();
    assert_eq!((of(&mut fs, dir), of(&mut fs, sub), of(&mut fs, below)), ((7, true), (7, true), (7, false)));
    set(&mut fs, dir, 0, false);
    fs.commit();
    assert_eq!(of(&mut fs.crash(), dir), (0, false));
}

#[test]
fn only_the_superuser_changes_the_project() {
    let mut fs = Fs::new();
    let f = fs.touch(&ME, ROOT, "f", 0o666).unwrap();
    fs.chown(&ME, f, Some(9), Some(9)).unwrap();
    let value = Project { id: 3, inherits: false }.encode();
    for uid in [8, 9] {
        assert_eq!(fs.set(&user(uid), f, NAME, &value, 0), Err(Errno::EPERM), "{uid}");
    }
    assert_eq!(of(&mut fs, f), (0, false));
    let same = Project::default().encode();
    assert_eq!(fs.set(&user(8), f, NAME, &same, 0), Err(Errno::EPERM), "not the owner");
    fs.set(&user(9), f, NAME, &same, 0).unwrap();
    let flag = Project { id: 0, inherits: true }.encode();
    assert_eq!(fs.set(&user(9), f, NAME, &flag, 0), Err(Errno::EPERM), "the flag alone");
    let before = fs.attr(f);
    fs.set(&ME, f, NAME, &value, 0).unwrap();
    assert_eq!(fs.invalidations, [(f, UPDATE | XATTR)]);
    let after = fs.attr(f);
    assert!(after.ctime > before.ctime, "ctime is set");
    assert_eq!((after.mtime, after.perm), (before.mtime, before.perm));
    fs.set(&ME, f, NAME, &Project { id: 4, inherits: true }.encode(), 0).unwrap();
    assert_eq!(of(&mut fs, f), (4, true));
}

#[test]
fn permitted_owners_change_the_project_of_their_own_files() {
    let mut fs = Fs::new();
    let f = fs.touch(&ME, ROOT, "f", 0o666).unwrap();
    fs.chown(&ME, f, Some(9), Some(9)).unwrap();
    let value = |id| Project { id, inherits: false }.encode();
    fs.env.project_changers = Permitted::Everybody;
    fs.set(&user(9), f, NAME, &value(1), 0).unwrap();
    assert_eq!(fs.set(&user(8), f, NAME, &value(2), 0), Err(Errno::EPERM), "not the owner");
    fs.env.project_changers = Permitted::Group(50);
    assert_eq!(fs.set(&user_in(9, &[51]), f, NAME, &value(2), 0), Err(Errno::EPERM), "in another group");
    let unknown = Cred { groups: None, ..user(9) };
    assert_eq!(fs.set(&unknown, f, NAME, &value(2), 0), Err(Errno::NEED_GROUPS));
    fs.set(&user_in(9, &[50]), f, NAME, &value(2), 0).unwrap();
    fs.set(&Cred { gid: 50, ..user(9) }, f, NAME, &value(3), 0).unwrap();
    fs.env.project_changers = Permitted::from_gid(0);
    assert_eq!(fs.set(&Cred { gid: 0, ..user(9) }, f, NAME, &value(4), 0), Err(Errno::EPERM), "0 is no group");
    fs.set(&ME, f, NAME, &value(5), 0).unwrap();
    assert_eq!(of(&mut fs, f), (5, false));
}

#[test]
fn numbers_of_groups_permit_all_users_none_or_a_group() {
    for (gid, permitted) in [
        (-1, Permitted::Everybody),
        (0, Permitted::Nobody),
        (1, Permitted::Group(1)),
        (4_294_967_294, Permitted::Group(4_294_967_294)),
        (-2, Permitted::Nobody),
        (1 << 32, Permitted::Nobody),
    ] {
        assert_eq!(Permitted::from_gid(gid), permitted, "{gid}");
    }
}

#[test]
fn bad_project_values_and_removal_are_refused() {
    let mut fs = Fs::new();
    let f = fs.touch(&ME, ROOT, "f", 0o644).unwrap();
    let nobody = Project { id: u32::MAX, inherits: false }.encode();
    for value in [&b""[..], b"7", &[0; 9], &[0, 0, 0, 0, 2, 0, 0, 0], &nobody] {
        assert_eq!(fs.set(&ME, f, NAME, value, 0), Err(Errno::EINVAL), "{value:?}");
    }
    assert_eq!(fs.unset(&ME, f, NAME), Err(Errno::EINVAL));
    assert!(!fs.names(&ME, f).iter().any(|name| name == NAME), "it is not listed");
    assert_eq!(of(&mut fs, f), (0, false));
}

#[test]
fn link_directory_and_exchange_into_another_project_are_refused() {
    let mut fs = Fs::new();
    let (d7, d8) = (project_dir(&mut fs, "d7", 7), project_dir(&mut fs, "d8", 8));
    let f = fs.touch(&ME, ROOT, "f", 0o644).unwrap();
    let f7 = fs.touch(&ME, d7, "f7", 0o644).unwrap();
    fs.touch(&ME, d8, "f8", 0o644).unwrap();
    fs.mkdir(&ME, ROOT, "s", 0o755).unwrap();
    fs.mkdir(&ME, d7, "s7", 0o755).unwrap();
    let refused = Err(Errno::EXDEV);

    assert_eq!(fs.link(&ME, f, d7, "x").map(drop), refused);
    assert_eq!(fs.link(&ME, f7, d8, "x").map(drop), refused);
    fs.link(&ME, f7, d7, "again").unwrap();
    fs.link(&ME, f7, ROOT, "f7").unwrap();
    fs.rename(&ME, (ROOT, "f7"), (d7, "back"), 0).unwrap();

    for (from, to) in [((ROOT, "s"), (d7, "x")), ((d7, "s7"), (d8, "x"))] {
        assert_eq!(fs.rename(&ME, from, to, 0), refused, "{from:?}");
    }
    for (a, b) in [((ROOT, "f"), (d7, "f7")), ((d7, "f7"), (ROOT, "f")), ((d7, "f7"), (d8, "f8"))] {
        assert_eq!(fs.rename(&ME, a, b, rename::EXCHANGE), refused, "{a:?}");
    }
    assert_eq!(
        (fs.ls(d7), fs.ls(d8)),
        (vec!["again".into(), "back".into(), "f7".into(), "s7".into()], vec!["f8".into()])
    );
    assert_eq!((of(&mut fs, f), of(&mut fs, f7)), ((0, false), (7, false)));

    // Out of a project everything may move, and a directory of the same project may move in.
    fs.rename(&ME, (d7, "s7"), (ROOT, "s7"), 0).unwrap();
    fs.rename(&ME, (ROOT, "s7"), (d7, "s7"), 0).unwrap();
    set(&mut fs, f, 7, false);
    fs.rename(&ME, (ROOT, "f"), (d7, "f7"), rename::EXCHANGE).unwrap();
    fs.check();
}

#[test]
fn rename_of_a_file_into_a_project_sets_its_id() {
    let mut fs = Fs::new();
    let (d7, d8) = (project_dir(&mut fs, "d7", 7), project_dir(&mut fs, "d8", 8));
    let f = fs.touch(&ME, ROOT, "f", 0o644).unwrap();
    fs.touch(&ME, d8, "f8", 0o644).unwrap();
    fs.rename(&ME, (ROOT, "f"), (d7, "f"), 0).unwrap();
    assert_eq!(of(&mut fs, f), (7, false));
    fs.rename(&ME, (d7, "f"), (d8, "f8"), 0).unwrap();
    assert_eq!(of(&mut fs, f), (8, false), "over an existing file");
    fs.rename(&ME, (d8, "f8"), (ROOT, "f"), 0).unwrap();
    assert_eq!(of(&mut fs, f), (8, false), "the root directory has no flag");
    fs.check();
    fs.commit();
    assert_eq!(of(&mut fs.crash(), f), (8, false));
}

#[test]
fn rename_within_a_directory_of_another_project_acts_like_a_move() {
    let mut fs = Fs::new();
    let dir = fs.mkdir(&ME, ROOT, "d", 0o755).unwrap();
    let f = fs.touch(&ME, dir, "f", 0o644).unwrap();
    fs.mkdir(&ME, dir, "s", 0o755).unwrap();
    set(&mut fs, dir, 7, true);
    assert_eq!(fs.rename(&ME, (dir, "s"), (dir, "t"), 0), Err(Errno::EXDEV));
    fs.rename(&ME, (dir, "f"), (dir, "g"), 0).unwrap();
    assert_eq!(of(&mut fs, f), (7, false));
}
