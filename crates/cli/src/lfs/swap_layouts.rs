//! `lfs swap_layouts`: exchanges the layouts, and so the data, of two files.

use std::{ffi::OsString, path::Path};

use sheen_admin::{Failure, Step};
use sheen_wire::Errno;

use super::tool::Tool;

/// `swap_layouts`
pub const USAGE: &str = "\
Swap layouts between 2 files.\n\
usage: swap_layouts <path1> <path2>\n\
";

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let [one, other] = args else { return tool.help(USAGE) };
    let paths = [Path::new(one), Path::new(other)];
    match tool.fs.swap_layouts(paths) {
        Ok(()) => 0,
        Err(Failure { step: Step::OpenForSwap, path, errno: e }) => {
            let path = path.display();
            tool.complain(format_args!("lfs swap_layouts: error: cannot open '{path}' for write: {e} ({})", e.0));
            e.0
        }
        Err(Failure { errno: e, .. }) => {
            let is_mirrored = |path: &&Path| tool.fs.layout(path).is_ok_and(|layout| layout.is_mirrored());
            let why = match paths.iter().find(|path| e == Errno::EBUSY && is_mirrored(path)) {
                Some(path) => format!(": '{}' is mirrored, and one file is open elsewhere", path.display()),
                None => String::new(),
            };
            let [one, other] = paths.map(Path::display);
            let what = "error: cannot swap layout between";
            tool.complain(format_args!("lfs swap_layouts: {what} '{one}' and '{other}': {e} ({}){why}", e.0));
            e.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case};

    #[test]
    fn swap_layouts_exchanges_layouts_and_refuses_bad_paths() {
        let mut fake = Fake::new("/mnt/c1");
        check_case(&mut fake, "$ lfs setstripe -c 1 sw1\n[exit 0]\n");
        check_case(&mut fake, "$ lfs setstripe -c 2 sw2\n[exit 0]\n");
        check_case(&mut fake, "$ lfs swap_layouts sw1 sw2\n[exit 0]\n");
        check_case(&mut fake, "$ lfs getstripe -c sw1 sw2\n[exit 0]\n--- stdout\n2\n\n1\n\n");
        check_case(
            &mut fake,
            "$ lfs swap_layouts sw1 nosuch\n[exit 2]\n--- stderr
lfs swap_layouts: error: cannot open 'nosuch' for write: No such file or directory (2)
",
        );
        check_case(
            &mut fake,
            "$ lfs swap_layouts . sw1\n[exit 21]\n--- stderr
lfs swap_layouts: error: cannot open '.' for write: Is a directory (21)
",
        );
    }
}
