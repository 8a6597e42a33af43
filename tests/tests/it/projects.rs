//! Projects on a mount: `lfs project`, inheritance, the boundary around a project, and the ioctls
//! of lsattr(1) and chattr(1).

use std::{
    fs::{self, File},
    os::unix::fs::{MetadataExt, chown},
    path::Path,
};

use rustix::{
    fs::XattrFlags,
    io::Errno,
    ioctl::{Setter, Updater, ioctl},
};
use sheen_tests::{Fs, can_mount, is_root, mounts::as_nobody, run_command, sh};
use sheen_wire::{
    Project,
    project::{FsXattr, GET_FLAGS, GET_FSXATTR, INHERIT_FLAG, INHERIT_XFLAG, SET_FLAGS, SET_FSXATTR, XATTR},
};

macro_rules! fs1 {
    () => {
        match can_mount().then(|| Fs::up(1)) {
            Some(fs) => fs,
            None => return println!("skipped: /dev/fuse cannot be opened here"),
        }
    };
}

fn fsxattr(path: &Path) -> FsXattr {
    let (file, mut attributes) = (File::open(path).unwrap(), FsXattr::default());
    // SAFETY: the ioctl writes a `FsXattr`.
    unsafe { ioctl(&file, Updater::<{ GET_FSXATTR }, FsXattr>::new(&mut attributes)) }.unwrap();
    attributes
}

fn set_fsxattr(path: &Path, attributes: FsXattr) -> Result<(), Errno> {
    let file = File::open(path).unwrap();
    // SAFETY: the ioctl reads a `FsXattr`.
    unsafe { ioctl(&file, Setter::<{ SET_FSXATTR }, FsXattr>::new(attributes)) }
}

fn flags(path: &Path) -> u32 {
    // The kernel writes the first half.
    let (file, mut flags) = (File::open(path).unwrap(), [0u32; 2]);
    // SAFETY: the ioctl writes at most a `long`.
    unsafe { ioctl(&file, Updater::<{ GET_FLAGS }, [u32; 2]>::new(&mut flags)) }.unwrap();
    flags[0]
}

fn set_flags(path: &Path, flags: u32) -> Result<(), Errno> {
    let file = File::open(path).unwrap();
    // SAFETY: the ioctl reads at most a `long`.
    unsafe { ioctl(&file, Setter::<{ SET_FLAGS }, [u32; 2]>::new([flags, 0])) }
}

#[test]
fn lfs_project_sets_lists_checks_and_clears() {
    let fs = fs1!();
    fs.sh("mkdir -p d/sub; touch d/f d/sub/g; ln -s f d/link; mkfifo d/pipe").ok();
    assert_eq!(fs.lfs("project d").ok(), "    0 - d/f\n    0 - d/link\n    0 - d/pipe\n    0 - d/sub\n");
    if !is_root() {
        // Only the superuser sets the project of these.
        fs.sh("rm d/link d/pipe").ok();
    }
    fs.lfs("project -p 1000 -s -r d").ok();
    assert_eq!(fs.lfs("project -d d").ok(), " 1000 P d\n");
    assert_eq!(fs.lfs("project -c -r d").ok(), "");
    assert_eq!(fs.lfs("project d/sub").ok(), " 1000 P d/sub/g\n");
    fs.sh("touch d/sub/new; mkdir d/sub/dir; ln -s x d/sub/other").ok();
    let second = fs.second_mount();
    for at in [&fs.mnt, &second.mnt] {
        let found = sh(&format!("cd {} && {} lfs project d/sub", at.display(), sheen_tests::sheen().display()));
        let want = " 1000 P d/sub/dir\n 1000 P d/sub/g\n 1000 - d/sub/new\n 1000 - d/sub/other\n";
        assert_eq!(found.ok(), want, "{}", at.display());
    }
    let checked = fs.lfs("project -c -p 7 d/sub");
    let wants = "project identifier is not set (inode=1000, tree=7)";
    assert_eq!((checked.code, checked.out.matches(wants).count()), (0, 5), "{}", checked.out);
    assert_eq!(fs.lfs("find d -projid 1000 -type d").ok().lines().count(), 3);
    assert_eq!(fs.lfs("find d ! -projid 1000").ok(), "");
    assert_eq!(fs.lfs("find d/f -printf %LP\\n").ok(), "1000\n");
    if is_root() {
        fs.lfs("project -C -k -r d").ok();
        assert_eq!(fs.lfs("project -d d d/sub").ok(), " 1000 - d\n 1000 - d/sub\n");
        fs.lfs("project -C -r d").ok();
        assert_eq!(fs.lfs("find d -projid 1000").ok(), "");
    }
    assert_eq!(fs.lfs("project nosuch").code, 1);
}

#[test]
fn project_survives_kill_9_of_the_servers() {
    let fs = fs1!();
    fs.sh("mkdir d; touch d/f; sync .").ok();
    fs.lfs("project -p 5 -s -r d").ok();
    fs.sh("mkdir d/s; touch d/s/g; sync .").ok();
    fs.kill();
    fs.start(&[]).ok();
    assert_eq!(fs.lfs("project -r d").ok(), "    5 P d/f\n    5 P d/s\n    5 - d/s/g\n");
    assert_eq!(fs.lfs("project -d d").ok(), "    5 P d\n");
}

#[test]
fn move_into_a_project_copies_and_link_is_refused() {
    let fs = fs1!();
    fs.sh("mkdir d; echo data > f").ok();
    fs.lfs("project -p 5 -s d").ok();
    let inode = fs::metadata(fs.path("f")).unwrap().ino();
    assert_eq!(rustix::fs::rename(fs.path("f"), fs.path("d/f")), Err(Errno::XDEV));
    assert_eq!(rustix::fs::link(fs.path("f"), fs.path("d/f")), Err(Errno::XDEV));
    fs.sh("mv f d/f").ok();
    assert_eq!(fs::read_to_string(fs.path("d/f")).unwrap(), "data\n");
    assert_ne!(fs::metadata(fs.path("d/f")).unwrap().ino(), inode, "mv(1) has copied it");
    assert_eq!(fs.lfs("project d/f").ok(), "    5 - d/f\n");
    fs.sh("mv d/f f && ln f g").ok();
    assert_eq!(fs.lfs("project f").ok(), "    5 - f\n");
}

#[test]
fn fsxattr_and_flags_ioctls_read_and_set_the_project() {
    let fs = fs1!();
    fs.sh("mkdir d; touch d/f").ok();
    let (d, f) = (fs.path("d"), fs.path("d/f"));
    assert_eq!((fsxattr(&f), flags(&f)), (FsXattr::default(), 0));
    let before = fs::metadata(&f).unwrap();
    let project = Project { id: 77, inherits: false };
    set_fsxattr(&f, FsXattr::default().with_project(project)).unwrap();
    assert_eq!(fsxattr(&f).project(), project);
    let after = fs::metadata(&f).unwrap();
    assert!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()), "ctime is set");
    assert_eq!((after.mtime(), after.mtime_nsec()), (before.mtime(), before.mtime_nsec()));

    set_flags(&d, INHERIT_FLAG).unwrap();
    assert_eq!((flags(&d), fsxattr(&d).xflags), (INHERIT_FLAG, INHERIT_XFLAG));
    assert_eq!(set_flags(&f, 0x40), Err(Errno::OPNOTSUPP), "the flag of chattr +d");
    let extents = FsXattr { xflags: 0x800, extsize: 1 << 20, ..FsXattr::default() };
    assert!(set_fsxattr(&f, extents).is_err(), "an extent size hint");
    assert_eq!(fsxattr(&f).project(), project, "a refused change changes nothing");
    set_flags(&d, 0).unwrap();
    assert_eq!((flags(&d), fsxattr(&d)), (0, FsXattr::default()));

    if ["lsattr", "chattr"].iter().any(|program| sh(&format!("command -v {program}")).code != 0) {
        return println!("skipped: lsattr and chattr are not installed");
    }
    fs.sh("chattr -p 42 d && chattr +P d && mkdir d/s").ok();
    let listed = fs.sh("lsattr -pd d/s").ok();
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert!(matches!(words[..], ["42", shown, "d/s"] if shown.trim_matches('-') == "P"), "{listed}");
}

#[test]
fn only_the_owner_sets_the_project() {
    let fs = fs1!();
    if !is_root() {
        return println!("skipped: needs root to have files of several users");
    }
    fs.sh("chmod 1777 .; touch other; mkdir own").ok();
    chown(fs.path("own"), Some(65534), Some(65534)).unwrap();
    let program = sheen_tests::sheen().display().to_string();
    let at = fs.mnt.display().to_string();
    let as_user = |words: &str| run_command(as_nobody(&format!("cd {at} && {program} lfs project {words}")));
    as_user("-p 9 -s own").ok();
    assert_eq!(fs.lfs("project -d own").ok(), "    9 P own\n");
    let refused = as_user("-p 9 other");
    let why = "lfs: failed to set xattr for 'other': Operation not permitted\n";
    assert_eq!((refused.code, refused.err.as_str()), (1, why));
    // Without the kernel's check of the user namespace, only the superuser sets it.
    let value = Project { id: 8, inherits: false }.encode();
    rustix::fs::setxattr(fs.path("own"), XATTR, &value, XattrFlags::empty()).unwrap();
    let direct = run_command(as_nobody(&format!("cd {at} && setfattr -n {XATTR} -v 0x0900000000000000 own")));
    assert!(direct.code != 0, "{}", direct.err);
    assert_eq!(fs.lfs("project -d own").ok(), "    8 - own\n");
}
