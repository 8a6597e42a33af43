//! `lfs rm_entry`, alias `rmentry`: in Lustre, removes the name of a remote directory whose inode
//! on another MDT is lost.
//!
//! Sheen has one MDT, which creates and removes a name and its inode in one step. No name dangles,
//! and removing only a name would lose the inode. The command therefore removes nothing.

use std::{ffi::OsString, path::Path};

use sheen_wire::{Errno, Result};

use super::tool::{Tool, keep_first};

/// `rm_entry`
pub const USAGE: &str = "\
Remove the name entry of a remote directory that is lost.\n\
usage: rm_entry DIRECTORY ...\n\
";

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    if let Some(option) = args.iter().find(|arg| arg.to_string_lossy().starts_with('-')) {
        return tool.usage(USAGE, format_args!("lfs rm_entry: unrecognized option '{}'", option.display()));
    }
    if args.is_empty() {
        return tool.usage(USAGE, format_args!("lfs rm_entry: DIRECTORY must be specified"));
    }
    let mut code = 0;
    for path in args {
        let e = look(tool, Path::new(path)).err().unwrap_or(Errno::EOPNOTSUPP);
        let why = match e {
            Errno::EOPNOTSUPP => ": the entry is valid; use rmdir(1) or rm(1)",
            _ => "",
        };
        tool.complain(format_args!("lfs rm_entry: cannot remove the entry '{}': {e} ({}){why}", path.display(), e.0));
        keep_first(&mut code, e);
    }
    code
}

/// Checks that the name exists on a Sheen mount.
fn look(tool: &Tool, path: &Path) -> Result<()> {
    tool.fs.kind(path, false)?;
    tool.fs.fid(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case, lfs};

    #[test]
    fn rm_entry_removes_nothing() {
        let mut fake = Fake::new("/mnt/c1");
        fake.dir("d");
        for command in ["rm_entry", "rmentry"] {
            check_case(
                &mut fake,
                &format!(
                    "$ lfs {command} d nosuch /tmp\n[exit 95]\n--- stderr
lfs rm_entry: cannot remove the entry 'd': Operation not supported (95): the entry is valid; use rmdir(1) or rm(1)
lfs rm_entry: cannot remove the entry 'nosuch': No such file or directory (2)
lfs rm_entry: cannot remove the entry '/tmp': Inappropriate ioctl for device (25)
"
                ),
            );
        }
        assert!(fake.exists("d"));
        assert_eq!((lfs(&mut fake, "lfs rm_entry").0, lfs(&mut fake, "lfs rm_entry -r d").0), (4, 4));
    }
}
