//! `lfs rmfid`: removes files by FID, with all their names.
//!
//! The MDT returns the paths of the file, as for `lfs fid2path`: only the superuser may ask. Each
//! name is removed like by unlink(2), so the kernel and the MDT check permissions. A name that was
//! given to another file meanwhile is not removed.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use sheen_wire::{Errno, Fid, FileKind, Result, control};

use super::tool::{Tool, keep_first, text};

/// `rmfid`
pub const USAGE: &str = "\
Remove file(s) by FID(s)\n\
usage: rmfid <fsname|rootpath> <fid> ...\n\
";

/// Exit code for an invalid FID, as in Lustre.
const EXIT_INVALID_FID: i32 = 1;

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    if let Some(option) = args.iter().find(|arg| arg.as_bytes().starts_with(b"-")) {
        if option == "-h" || option == "--help" {
            return tool.help(USAGE);
        }
        return tool.usage(USAGE, format_args!("lfs rmfid: unrecognized option '{}'", option.display()));
    }
    let Some((device, given)) = args.split_first() else {
        return tool.usage(USAGE, format_args!("lfs rmfid: missing dirname"));
    };
    // An invalid FID is reported before any file is removed.
    let mut fids = Vec::with_capacity(given.len());
    for fid in given {
        let Ok(fid) = text(fid).parse::<Fid>() else {
            tool.complain(format_args!("lfs rmfid: unrecognized FID: {}", fid.display()));
            return EXIT_INVALID_FID;
        };
        fids.push(fid);
    }
    // As in Lustre, no FID is no error.
    if fids.is_empty() {
        return 0;
    }
    let mount = match find_mount(tool, device) {
        Ok(mount) => mount,
        Err(e) => {
            tool.complain(format_args!("lfs rmfid: cannot remove FIDs: {e}"));
            return e.0;
        }
    };
    let mut code = 0;
    for fid in fids {
        if let Err(e) = remove(tool, &mount, fid) {
            tool.complain(format_args!("lfs rmfid: cannot remove {fid}: {e}"));
            keep_first(&mut code, e);
        }
    }
    code
}

/// Finds the mount of a path. As in Lustre, a path that does not exist is the name of a file
/// system.
fn find_mount(tool: &mut Tool, device: &OsStr) -> Result<PathBuf> {
    match tool.mount_of(Path::new(device)) {
        Ok(mount) => Ok(PathBuf::from(mount.mountpoint)),
        Err(Errno::ENOENT) => tool.mount_named("rmfid", device).ok_or(Errno::ENOENT),
        Err(e) => Err(e),
    }
}

/// Removes all names of a file, also those that it gets meanwhile. EISDIR: it is a directory.
/// EBUSY: it was renamed during each attempt to remove a name.
fn remove(tool: &Tool, mount: &Path, fid: Fid) -> Result<()> {
    let mut names = paths(tool, mount, fid)?;
    loop {
        let mut removed = false;
        for name in &names {
            removed |= remove_name(tool, name, fid)?;
        }
        names = match paths(tool, mount, fid) {
            Err(Errno::ENOENT) => return Ok(()),
            Ok(_) if !removed => return Err(Errno::EBUSY),
            names => names?,
        };
    }
}

/// Returns the absolute paths of a file.
fn paths(tool: &Tool, mount: &Path, fid: Fid) -> Result<Vec<PathBuf>> {
    let value = match tool.fs.get(mount, &format!("{}{fid}", control::PATHS_PREFIX)) {
        Err(Errno::ENODATA) => return Err(Errno::ENOENT),
        value => value?,
    };
    let paths = control::decode_paths(&value);
    if paths.is_empty() {
        return Err(Errno::ENOENT);
    }
    Ok(paths.into_iter().map(|path| mount.join(OsStr::from_bytes(path))).collect())
}

/// Removes one name. Returns whether the file still had it.
fn remove_name(tool: &Tool, name: &Path, fid: Fid) -> Result<bool> {
    let done = match tool.fs.kind(name, false) {
        Ok(FileKind::Dir) => Err(Errno::EISDIR),
        Ok(_) => tool.fs.unlink_fid(name, fid),
        Err(e) => Err(e),
    };
    match done {
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE) => Ok(false),
        done => done.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case, lfs};

    fn fake() -> Fake {
        let mut fake = Fake::new("/mnt/c1");
        for (path, fid) in [("a", "0x10"), ("link", "0x10"), ("b", "0x11"), ("other", "0x12")] {
            fake.file(path, &format!("[0x200000402:{fid}:0x0]"), None);
        }
        fake.dir("d");
        for (fid, paths) in [("0x10", "t/a\0t/link\0"), ("0x11", "t/b\0"), ("0x13", "t/d\0"), ("0x14", "t/other\0")] {
            fake.attribute("/mnt/c1", &format!("sheen.paths.[0x200000402:{fid}:0x0]"), paths.as_bytes());
        }
        fake
    }

    #[test]
    fn rmfid_removes_all_names_of_each_file() {
        let mut fake = fake();
        check_case(&mut fake, "$ lfs rmfid /mnt/c1 [0x200000402:0x10:0x0]\n[exit 0]\n");
        check_case(&mut fake, "$ lfs rmfid lustre 0x200000402:0x11:0x0\n[exit 0]\n");
        assert_eq!(["a", "link", "b", "other"].map(|path| fake.exists(path)), [false, false, false, true]);
        check_case(&mut fake, "$ lfs rmfid .\n[exit 0]\n");
    }

    #[test]
    fn rmfid_refuses_directories_and_names_of_other_files() {
        let mut fake = fake();
        check_case(
            &mut fake,
            "$ lfs rmfid . [0x200000402:0x13:0x0] [0x200000402:0x99:0x0] [0x200000402:0x14:0x0] [0x200000402:0x11:0x0]
[exit 21]
--- stderr
lfs rmfid: cannot remove [0x200000402:0x13:0x0]: Is a directory
lfs rmfid: cannot remove [0x200000402:0x99:0x0]: No such file or directory
lfs rmfid: cannot remove [0x200000402:0x14:0x0]: Device or resource busy
",
        );
        assert_eq!(["d", "other", "b"].map(|path| fake.exists(path)), [true, true, false]);
    }

    #[test]
    fn rmfid_refuses_bad_calls_before_it_removes_a_file() {
        let mut fake = fake();
        check_case(
            &mut fake,
            "$ lfs rmfid /mnt/c1 [0x200000402:0x10:0x0] a\n[exit 1]\n--- stderr\nlfs rmfid: unrecognized FID: a\n",
        );
        for (device, code, text) in
            [("/tmp", 25, "Inappropriate ioctl for device"), ("nosuch", 2, "No such file or directory")]
        {
            check_case(
                &mut fake,
                &format!(
                    "$ lfs rmfid {device} [0x200000402:0x10:0x0]\n[exit {code}]\n--- stderr
lfs rmfid: cannot remove FIDs: {text}
"
                ),
            );
        }
        assert_eq!((lfs(&mut fake, "lfs rmfid").0, lfs(&mut fake, "lfs rmfid -x /mnt/c1").0), (4, 4));
        assert!(fake.exists("a"));
    }
}
