//! Projects on a mount: `lfs project`, inheritance, the boundary around a project, and the ioctls
//! of lsattr(1) and chattr(1).

use std::{
    fs::{self, File},
    os::unix::fs::{MetadataExt, chown},
    path::Path,
};

use rustix::{
    io::Errno,
    ioctl::{Setter, Updater, ioctl},
};
use sheen_tests::{Fs, mounts::as_nobody, run_command, sh};
use sheen_wire::{
    Project,
    project::{EXTENT_FLAG, FsXattr, GET_FLAGS, GET_FSXATTR, INHERIT_FLAG, INHERIT_XFLAG, SET_FLAGS, SET_FSXATTR},
};

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
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.sh("mkdir -p d/sub; touch d/f d/sub/g; ln -s f d/link; mkfifo d/pipe").ok();
    assert_eq!(fs.lfs("project d").ok(), "    0 - d/f\n    0 - d/link\n    0 - d/pipe\n    0 - d/sub\n");
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
    fs.lfs("project -C -k -r d").ok();
    assert_eq!(fs.lfs("project -d d d/sub").ok(), " 1000 - d\n 1000 - d/sub\n");
    fs.lfs("project -C -r d").ok();
    assert_eq!(fs.lfs("find d -projid 1000").ok(), "");
    assert_eq!(fs.lfs("project nosuch").code, 1);
}

#[test]
fn project_survives_kill_9_of_the_servers() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.sh("mkdir d; touch d/f; sync .").ok();
    fs.lfs("project -p 5 -s -r d").ok();
    fs.sh("mkdir d/s; touch d/s/g; sync .").ok();
    fs.kill();
    fs.start(&[]).ok();
    assert_eq!(fs.lfs("project -r d").ok(), "    5 P d/f\n    5 P d/s\n    5 - d/s/g\n");
    assert_eq!(fs.lfs("project -d d").ok(), "    5 P d\n");
}

#[test]
fn move_into_a_project_sets_the_id_of_files_and_copies_directories() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.sh("mkdir -p d sub; echo data > f; echo data > sub/g").ok();
    fs.lfs("project -p 5 -s d").ok();
    let ino = |path: &str| fs::metadata(fs.path(path)).unwrap().ino();
    let (f, sub) = (ino("f"), ino("sub"));
    assert_eq!(rustix::fs::link(fs.path("f"), fs.path("d/f")), Err(Errno::XDEV));
    assert_eq!(fs.lfs("project f").ok(), "    0 - f\n");
    fs.sh("mv f d/f").ok();
    assert_eq!(ino("d/f"), f, "mv(1) has renamed it");
    assert_eq!(fs.lfs("project d/f").ok(), "    5 - d/f\n");
    assert_eq!(rustix::fs::rename(fs.path("sub"), fs.path("d/sub")), Err(Errno::XDEV));
    fs.sh("mv sub d/sub").ok();
    assert_eq!(fs::read_to_string(fs.path("d/sub/g")).unwrap(), "data\n");
    assert_ne!(ino("d/sub"), sub, "mv(1) has copied it");
    assert_eq!(fs.lfs("project -d d/sub d/sub/g").ok(), "    5 P d/sub\n    5 - d/sub/g\n");
    fs.sh("mv d/f f && ln f g").ok();
    assert_eq!(fs.lfs("project f").ok(), "    5 - f\n");
}

#[test]
fn fsxattr_and_flags_ioctls_read_and_set_the_project() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.sh("mkdir d; touch d/f").ok();
    let (d, f) = (fs.path("d"), fs.path("d/f"));
    assert_eq!((fsxattr(&f), flags(&f)), (FsXattr::default(), EXTENT_FLAG));
    let before = fs::metadata(&f).unwrap();
    let project = Project { id: 77, inherits: false };
    set_fsxattr(&f, FsXattr::default().with_project(project)).unwrap();
    assert_eq!(fsxattr(&f).project(), project);
    let after = fs::metadata(&f).unwrap();
    assert!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()), "ctime is set");
    assert_eq!((after.mtime(), after.mtime_nsec()), (before.mtime(), before.mtime_nsec()));

    set_flags(&d, INHERIT_FLAG).unwrap();
    assert_eq!((flags(&d), fsxattr(&d).xflags), (EXTENT_FLAG | INHERIT_FLAG, INHERIT_XFLAG));
    set_flags(&d, EXTENT_FLAG | INHERIT_FLAG).unwrap();
    assert_eq!(set_flags(&f, 0x40), Err(Errno::OPNOTSUPP), "the flag of chattr +d");
    let extents = FsXattr { xflags: 0x800, extsize: 1 << 20, ..FsXattr::default() };
    assert!(set_fsxattr(&f, extents).is_err(), "an extent size hint");
    assert_eq!(fsxattr(&f).project(), project, "a refused change changes nothing");
    set_flags(&d, 0).unwrap();
    assert_eq!((flags(&d), fsxattr(&d)), (EXTENT_FLAG, FsXattr::default()));

    if ["lsattr", "chattr"].iter().any(|program| sh(&format!("command -v {program}")).code != 0) {
        return println!("skipped: lsattr and chattr are not installed");
    }
    fs.sh("chattr -p 42 d && chattr +P d && mkdir d/s").ok();
    let listed = fs.sh("lsattr -pd d/s").ok();
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert!(matches!(words[..], ["42", shown, "d/s"] if shown.replace('-', "") == "eP"), "{listed}");
}

#[test]
fn only_the_superuser_changes_the_project_and_everybody_reads_it() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.sh("chmod 1777 .; touch secret; chmod 600 secret; mkdir own").ok();
    chown(fs.path("own"), Some(65534), Some(65534)).unwrap();
    fs.lfs("project -p 8 secret own").ok();
    let program = sheen_tests::sheen().display().to_string();
    let at = fs.mnt.display().to_string();
    let as_user = |words: &str| run_command(as_nobody(&format!("cd {at} && {program} lfs {words}")));
    for change in ["-p 9", "-s", "-C"] {
        let refused = as_user(&format!("project {change} own"));
        let why = "lfs: failed to set xattr for 'own': Operation not permitted\n";
        assert_eq!((refused.code, refused.err.as_str()), (1, why), "{change}");
    }
    assert_eq!(as_user("project -d own secret").ok(), "    8 - own\n    8 - secret\n");
    assert_eq!(as_user("find secret -projid 8").ok(), "secret\n");
}

#[test]
fn enable_chprojid_gid_lets_owners_change_projects() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.sh("chmod 1777 .; mkdir own roots").ok();
    chown(fs.path("own"), Some(65534), Some(65534)).unwrap();
    let (program, at) = (sheen_tests::sheen().display().to_string(), fs.mnt.display().to_string());
    let as_user = |words: &str| run_command(as_nobody(&format!("cd {at} && {program} lfs {words}")));
    let permit = |gid: &str| sh(&format!("{program} lctl set_param -n mdt.*.enable_chprojid_gid={gid}")).ok();
    assert_eq!(as_user("project -p 7 own").code, 1);
    permit("-1");
    as_user("project -p 7 -s own").ok();
    assert_eq!(as_user("project -d own").ok(), "    7 P own\n");
    assert_eq!(as_user("project -p 7 roots").code, 1, "the directory of another user");
    permit("12345");
    assert_eq!(as_user("project -p 8 own").code, 1, "not in the group");
    permit("65534");
    as_user("project -C own").ok();
    permit("0");
    assert_eq!(as_user("project -p 9 own").code, 1);
    assert_eq!(fs.lfs("project -d own roots").ok(), "    0 - own\n    0 - roots\n");
}
