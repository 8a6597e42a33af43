//! `lfs swap_layouts`: not there yet. What it is used for, giving a file another layout, is `lfs migrate`.

use std::ffi::OsString;

use sheen_wire::Errno;

use super::Tool;

/// `swap_layouts`
pub const USAGE: &str = "\
Swap layouts between 2 files.\n\
usage: swap_layouts <path1> <path2>\n\
";

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let [one, other] = args else { return tool.help(USAGE) };
    let e = Errno::EOPNOTSUPP;
    tool.complain(format_args!(
        "error: swap_layouts: cannot swap layouts of '{}' and '{}': {e} ({}); see 'lfs migrate'",
        one.display(),
        other.display(),
        e.0
    ));
    e.0
}
