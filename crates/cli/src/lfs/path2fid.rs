//! `lfs path2fid`: prints the FID of a path, or the names and parent directories of its inode.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::Path};

use sheen_admin::not_sheen;
use sheen_wire::{Errno, Result, control};

use super::{
    getopt::{self, Item, Value},
    tool::{Tool, keep_first},
    usage,
};

const OPTIONS: getopt::Spec =
    getopt::Spec { short: "hp", long: &[("parents", Value::No, "p"), ("help", Value::No, "h")] };

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let mut parents = false;
    let mut paths = Vec::new();
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "h", .. } => return tool.help(usage::PATH2FID),
            Item::Option { .. } => parents = true,
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => {
                let wrong = format_args!("lfs path2fid: unrecognized option '{}'", arg.display());
                return tool.usage(usage::PATH2FID, wrong);
            }
        }
    }
    if paths.is_empty() {
        return tool.usage(usage::PATH2FID, format_args!("lfs path2fid: FILE... must be specified"));
    }
    let mut code = 0;
    for path in &paths {
        let found = if parents { parents_of(tool, Path::new(path)) } else { fid_of(tool, Path::new(path)) };
        match found {
            Ok(line) => {
                if paths.len() > 1 {
                    tool.print_bytes(path.as_bytes());
                    tool.print(format_args!(": "));
                }
                tool.print_bytes(&line);
                tool.print(format_args!("\n"));
            }
            Err(e) => {
                let what = if parents { "parent " } else { "" };
                tool.complain(format_args!("lfs path2fid: cannot get {what}fid for '{}': {e}", path.display()));
                keep_first(&mut code, e);
            }
        }
    }
    code
}

/// Returns the FID. As in Lustre, a path of another file system has none (61): `lfs` looks for the
/// attribute in which the local file system of a target stores the FID.
fn fid_of(tool: &Tool, path: &Path) -> Result<Vec<u8>> {
    let fid = tool.fs.fid(path).map_err(|e| if e == Errno::ENOTTY { Errno::ENODATA } else { e })?;
    Ok(fid.to_string().into_bytes())
}

/// Returns `[parent FID]/name` of each link, separated by tabs.
fn parents_of(tool: &Tool, path: &Path) -> Result<Vec<u8>> {
    let value = tool.fs.get(path, control::PARENTS).map_err(not_sheen)?;
    let parents = control::decode_paths(&value);
    if parents.is_empty() {
        return Err(Errno::ENODATA);
    }
    Ok(parents.join(&b'\t'))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case};

    #[test]
    fn path2fid_prints_fids_and_parents_like_lustre() {
        let mut fake = Fake::new("/mnt/c1");
        fake.file("fA", "[0x200000402:0x1b9:0x0]", None);
        fake.file("fB", "[0x200000402:0x1ba:0x0]", None);
        fake.attribute("fA", "sheen.parents", b"[0x200000402:0x180:0x0]/fA\0[0x240000402:0x3d:0x0]/link\0");
        for case in [
            "$ lfs path2fid fA\n[exit 0]\n--- stdout\n[0x200000402:0x1b9:0x0]\n",
            "$ lfs path2fid fA fB\n[exit 0]\n--- stdout\nfA: [0x200000402:0x1b9:0x0]\nfB: [0x200000402:0x1ba:0x0]\n",
            "$ lfs path2fid --parents fA\n[exit 0]\n--- stdout\n[0x200000402:0x180:0x0]/fA\t[0x240000402:0x3d:0x0]/link\n",
            "$ lfs path2fid -l fA\n[exit 4]\n--- stdout
Display the fid(s) for a given path(s).
usage: path2fid [--parents] <path> ...
--- stderr
lfs path2fid: unrecognized option '-l'
",
            "$ lfs path2fid nosuch\n[exit 2]\n--- stderr
lfs path2fid: cannot get fid for 'nosuch': No such file or directory
",
            "$ lfs path2fid /tmp\n[exit 61]\n--- stderr
lfs path2fid: cannot get fid for '/tmp': No data available
",
            "$ lfs path2fid -p /tmp\n[exit 25]\n--- stderr
lfs path2fid: cannot get parent fid for '/tmp': Inappropriate ioctl for device
",
            "$ lfs path2fid\n[exit 4]\n--- stdout
Display the fid(s) for a given path(s).
usage: path2fid [--parents] <path> ...
--- stderr
lfs path2fid: FILE... must be specified
",
        ] {
            check_case(&mut fake, case);
        }
    }
}
