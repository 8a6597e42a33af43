//! `lfs getsom`: the size of a file that the MDT itself knows (Lustre's Size on MDT).
//!
//! The MDT stores no sizes of files with data on OSTs, so no size can be out of date. For a file
//! that lies entirely on the MDT, the MDT has the data and so the exact size.

use std::{ffi::OsString, path::Path};

use sheen_admin::not_sheen;
use sheen_layout::{Layout, flags};
use sheen_wire::{Errno, FileKind, Result};

use super::{
    getopt::{self, Item},
    tool::{Tool, keep_first},
};

const OPTIONS: getopt::Spec = getopt::Spec { short: "bfhs", long: &[("help", getopt::Value::No, "h")] };

/// `getsom`
pub const USAGE: &str = "\
Show the size and the blocks that the MDT stores for a file, and their accuracy.\n\
usage: getsom [-s] [-b] [-f] FILENAME ...\n\
\t-s: only the size\n\
\t-b: only the blocks\n\
\t-f: only the flags: 1 is strictly correct\n\
";

/// The flag for a strictly correct size: the only one of Lustre's flags that Sheen uses.
const STRICT: u32 = 1;

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut only, mut paths) = (None, Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "h", .. } => return tool.help(USAGE),
            Item::Option { id, .. } => only = Some(id),
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => {
                return tool.usage(USAGE, format_args!("lfs getsom: unrecognized option '{}'", arg.display()));
            }
        }
    }
    if paths.is_empty() {
        return tool.usage(USAGE, format_args!("lfs getsom: FILE must be specified"));
    }
    let mut code = 0;
    for path in &paths {
        let name = path.display();
        match known(tool, Path::new(path)) {
            Ok((size, blocks)) => match only {
                Some("s") => tool.print(format_args!("{size}\n")),
                Some("b") => tool.print(format_args!("{blocks}\n")),
                Some(_) => tool.print(format_args!("{STRICT}\n")),
                None => tool.print(format_args!("file: {name} size: {size} blocks: {blocks} flags: {STRICT}\n")),
            },
            Err(e) => {
                let why = if e == Errno::ENODATA { ": only the OSTs know the file's size; use stat(1)" } else { "" };
                tool.complain(format_args!("{name} failed to get som xattr: {e} ({}){why}", e.0));
                keep_first(&mut code, e);
            }
        }
    }
    code
}

/// Returns the size in bytes and the blocks of 512 bytes. ENODATA: part of the file may be on an
/// OST.
fn known(tool: &Tool, path: &Path) -> Result<(u64, u64)> {
    if tool.fs.kind(path, true)? != FileKind::Regular {
        return Err(Errno::EINVAL);
    }
    let value = match tool.fs.get(&tool.fs.resolve(path)?, "lustre.lov") {
        Err(Errno::ENODATA) => Err(Errno::ENODATA),
        value => value.map_err(not_sheen),
    }?;
    let layout = Layout::decode(&value)?;
    let on_mdt = |c: &sheen_layout::Component| c.is_on_mdt() || c.flags & flags::INIT == 0;
    let is_there = layout.part_on_mdt().is_some() && !layout.is_mirrored() && layout.components().iter().all(on_mdt);
    if is_there { Ok((tool.fs.size(path)?, tool.fs.blocks(path)?)) } else { Err(Errno::ENODATA) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case, lfs};

    #[test]
    fn getsom_prints_sizes_of_dom_files_only() {
        let mut fake = Fake::new("/mnt/c1");
        for line in ["lfs setstripe -E 64K -L mdt -E -1 -c 1 dom", "lfs setstripe -c 1 plain"] {
            assert_eq!(lfs(&mut fake, line).0, 0, "{line}");
        }
        check_case(&mut fake, "$ lfs getsom dom\n[exit 0]\n--- stdout\nfile: dom size: 0 blocks: 0 flags: 1\n");
        for (option, value) in [("-s", 0), ("-b", 0), ("-f", 1)] {
            check_case(&mut fake, &format!("$ lfs getsom {option} dom\n[exit 0]\n--- stdout\n{value}\n"));
        }
        check_case(
            &mut fake,
            "$ lfs getsom plain nosuch .\n[exit 61]\n--- stderr
plain failed to get som xattr: No data available (61): only the OSTs know the file's size; use stat(1)
nosuch failed to get som xattr: No such file or directory (2)
. failed to get som xattr: Invalid argument (22)
",
        );
        let (code, out, err) = lfs(&mut fake, "lfs getsom -x dom");
        assert_eq!((code, out.as_str(), err.as_str()), (4, super::USAGE, "lfs getsom: unrecognized option '-x'\n"));
    }
}
