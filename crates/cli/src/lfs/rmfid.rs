//! `lfs rmfid`: removes files by FID, with all their names ([`remove_fid`]).

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use sheen_admin::{BY_FID, remove_fid};
use sheen_wire::{Errno, Fid, Result};

use super::tool::{Tool, keep_first, text};

/// `rmfid`
pub const USAGE: &str = "\
Remove file(s) by FID(s)\n\
usage: rmfid <fsname|rootpath> <fid> ...\n\
";

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    if let Some(option) = args.iter().find(|arg| arg.as_bytes().starts_with(b"-")) {
        if option == "-h" || option == "--help" {
            return tool.help(USAGE);
        }
        return tool.usage(USAGE, format_args!("lfs rmfid: unrecognized option '{}'", option.display()));
    }
    let Some((device, fids)) = args.split_first() else {
        return tool.usage(USAGE, format_args!("lfs rmfid: missing dirname"));
    };
    if fids.is_empty() {
        return tool.usage(USAGE, format_args!("lfs rmfid: missing FID"));
    }
    let mount = match find_mount(tool, device) {
        Ok(mount) => mount,
        Err(e) => {
            tool.complain(format_args!("lfs rmfid: cannot remove FIDs: {e}"));
            return e.0;
        }
    };
    let mut code = 0;
    for given in fids {
        let Ok(fid) = text(given).parse::<Fid>() else {
            tool.complain(format_args!("lfs rmfid: Wrong FID format '{}'", given.display()));
            keep_first(&mut code, Errno::EINVAL);
            continue;
        };
        if let Err(e) = remove_fid(tool.fs, &mount, fid) {
            let hint = hint(e, &mount, fid);
            tool.complain(format_args!("lfs rmfid: cannot remove {fid}: {e}{hint}"));
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

/// Returns how to find the names that an error leaves.
fn hint(e: Errno, mount: &Path, fid: Fid) -> String {
    let why = match e {
        Errno::EMLINK => "the MDT does not store its other names",
        Errno::EOVERFLOW | Errno::ERANGE | Errno::E2BIG => "the path of a name is too long",
        _ => return String::new(),
    };
    let mount = mount.display();
    format!(": {why}; 'find {mount} -samefile {mount}/{BY_FID}/{fid}' finds its names")
}

#[cfg(test)]
mod tests {
    use sheen_wire::control;

    use super::super::testing::{Fake, OVERFLOW, check_case, lfs};

    fn fake() -> Fake {
        let mut fake = Fake::new("/mnt/c1");
        for (path, fid) in [("a", "0x10"), ("link", "0x10"), ("b", "0x11"), ("other", "0x12")] {
            fake.file(path, &format!("[0x200000402:{fid}:0x0]"), None);
        }
        fake.dir("d");
        fake.attribute("d", control::FID, b"[0x200000402:0x13:0x0]");
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
    fn rmfid_fails_if_the_file_has_names_that_are_not_stored() {
        let mut fake = fake();
        fake.file("unstored", "[0x200000402:0x11:0x0]", None);
        for stored in ["b", "unstored"] {
            assert!(fake.exists(stored));
            check_case(
                &mut fake,
                "$ lfs rmfid . [0x200000402:0x11:0x0]
[exit 31]
--- stderr
lfs rmfid: cannot remove [0x200000402:0x11:0x0]: Too many links: the MDT does not store its other names; \
'find /mnt/c1 -samefile /mnt/c1/.lustre/fid/[0x200000402:0x11:0x0]' finds its names
",
            );
            assert_eq!(["b", "unstored"].map(|path| fake.exists(path)), [false, true]);
        }
    }

    #[test]
    fn rmfid_removes_other_names_if_a_path_is_too_long() {
        let mut fake = fake();
        let fid = "[0x200000402:0x16:0x0]";
        for name in ["near", "far"] {
            fake.file(name, fid, None);
        }
        fake.file(&format!("/mnt/c1/.lustre/fid/{fid}"), fid, None);
        let parents = |parents: &[u8], fake: &mut Fake| {
            fake.attribute(&format!("/mnt/c1/.lustre/fid/{fid}"), control::PARENTS, parents);
        };
        parents(b"[0x200000402:0x77:0x0]/near\0[0x200000402:0x78:0x0]/far\0", &mut fake);
        fake.attribute("/mnt/c1", &format!("sheen.paths.{fid}"), OVERFLOW);
        fake.attribute("/mnt/c1", "sheen.paths.[0x200000402:0x77:0x0]", b"t\0");
        fake.attribute("/mnt/c1", "sheen.paths.[0x200000402:0x78:0x0]", OVERFLOW);
        check_case(
            &mut fake,
            "$ lfs rmfid . [0x200000402:0x16:0x0]
[exit 75]
--- stderr
lfs rmfid: cannot remove [0x200000402:0x16:0x0]: Value too large for defined data type: the path of a name is too \
long; 'find /mnt/c1 -samefile /mnt/c1/.lustre/fid/[0x200000402:0x16:0x0]' finds its names
",
        );
        assert_eq!(["near", "far"].map(|path| fake.exists(path)), [false, true]);
        parents(b"[0x200000402:0x77:0x0]/far\0", &mut fake);
        check_case(&mut fake, "$ lfs rmfid . [0x200000402:0x16:0x0]\n[exit 0]\n");
        assert!(!fake.exists("far"));
    }

    #[test]
    fn rmfid_reports_wrong_fids_and_removes_the_others() {
        let mut fake = fake();
        check_case(
            &mut fake,
            "$ lfs rmfid /mnt/c1 a [0x200000402:0x10:0x0]\n[exit 22]\n--- stderr\nlfs rmfid: Wrong FID format 'a'\n",
        );
        assert_eq!(["a", "link"].map(|path| fake.exists(path)), [false, false]);
    }

    #[test]
    fn rmfid_refuses_bad_calls() {
        let mut fake = fake();
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
        for line in ["lfs rmfid", "lfs rmfid .", "lfs rmfid -x /mnt/c1"] {
            let (code, out, _) = lfs(&mut fake, line);
            assert!(code == 4 && out.contains("usage: rmfid"), "{line}: {out}");
        }
        assert!(fake.exists("a"));
    }
}
