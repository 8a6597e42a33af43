//! Errors that the commands for mirrors have in common.

use std::path::Path;

use sheen_layout::Layout;
use sheen_wire::{Errno, Result};

use super::{super::tool::Tool, usage::USAGE};

/// Returns the layout of a mirrored file. EINVAL: the file is not mirrored. Reports failures in
/// Lustre's words, under the name `command`.
pub fn mirrored(tool: &mut Tool, path: &Path, command: &str) -> Result<Layout> {
    let layout = match tool.fs.layout(path) {
        Err(Errno::ENOENT) => {
            tool.complain(format_args!("lfs{command}: cannot stat file '{}': {}.", path.display(), Errno::ENOENT));
            return Err(Errno::ENOENT);
        }
        layout => layout.ok().filter(Layout::is_mirrored),
    };
    layout.ok_or_else(|| {
        tool.complain(format_args!("lfs{command}: '{}' is not a FLR file.", path.display()));
        Errno::EINVAL
    })
}

/// Returns the reason why a single mirror cannot be written, for messages.
pub fn why(errno: Errno) -> &'static str {
    match errno {
        Errno::EBUSY => ": the file is being written, or another command is resyncing it",
        Errno::EUCLEAN => ": no other mirror is up to date",
        _ => "",
    }
}

/// Reports a usage error.
pub fn wrong(tool: &mut Tool, command: &str, what: &str) -> i32 {
    tool.usage(USAGE, format_args!("lfs mirror {command}: {what}"))
}
