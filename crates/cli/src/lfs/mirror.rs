//! `lfs mirror`: commands for mirrored files, one module per command. The requests to the MDT are
//! those of [`sheen_wire::mirror`].
//!
//! The data of one mirror is read and written through an open file that is bound to that mirror
//! ([`super::fs::FileSystem::mirror`]).

mod copy;
mod crc;
mod create;
mod extend;
mod io;
mod resync;
mod split;
mod verify;

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use sheen_layout::Layout;
use sheen_wire::{
    Errno, Result,
    mirror::{Change, XATTR},
};

use super::{
    Command, Tool,
    fs::{self},
    numbers::parse_unsigned,
    pace::Manner,
    text,
};

/// Usage of all commands.
pub const USAGE: &str = "\
lfs commands used to manage files with mirrored components:\n\
usage: lfs mirror create [--mirror-count|-N[COUNT]] [SETSTRIPE_OPTIONS] ... <FILE|DIRECTORY> ...\n\
       lfs mirror extend [--mirror-count|-N[COUNT]] [SETSTRIPE_OPTIONS|-f VICTIM_FILE [--no-verify]] ...\n\
                         [--bandwidth|-W BANDWIDTH_MB[MG]] [--stats] [--stats-interval SECONDS] <FILE> ...\n\
       lfs mirror split {--mirror-id MIRROR_ID} [--destroy|-d] [-f NEW_FILE] <FILE>\n\
       lfs mirror delete {--mirror-id MIRROR_ID} <FILE>\n\
       lfs mirror resync [--only MIRROR_ID[,...]] [--bandwidth|-W BANDWIDTH_MB[MG]]\n\
                         [--stats] [--stats-interval SECONDS] <FILE> ...\n\
       lfs mirror verify [--only MIRROR_ID,MIRROR_ID[,...]] [--verbose|-v] <FILE> ...\n\
       lfs mirror read {--mirror-id|-N MIRROR_ID} [--outfile|-o FILE] <FILE>\n\
       lfs mirror write {--mirror-id|-N MIRROR_ID} [--inputfile|-i FILE] <FILE>\n\
       lfs mirror copy {--read-mirror|-i MIRROR_ID} {--write-mirror|-o MIRROR_ID[,...]} <FILE>\n\
";

const COMMANDS: &[Command] = &[
    Command { name: "create", usage: USAGE, run: create::run },
    Command { name: "extend", usage: USAGE, run: extend::run },
    Command { name: "split", usage: USAGE, run: split::run },
    Command { name: "delete", usage: USAGE, run: split::delete },
    Command { name: "resync", usage: USAGE, run: resync::run },
    Command { name: "verify", usage: USAGE, run: verify::run },
    Command { name: "read", usage: USAGE, run: io::read },
    Command { name: "write", usage: USAGE, run: io::write },
    Command { name: "copy", usage: USAGE, run: copy::run },
];

/// Runs the command that the first argument names.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let Some((name, rest)) = args.split_first() else { return 0 };
    match COMMANDS.iter().find(|c| name == c.name) {
        Some(command) => (command.run)(tool, rest),
        None if name == "--list-commands" => {
            COMMANDS.iter().for_each(|c| tool.print(format_args!("{}\n", c.name)));
            0
        }
        None if name == "help" || name == "--help" => tool.help(USAGE),
        None => {
            let name = name.display();
            tool.complain(format_args!(
                "lfs mirror: '{name}' is not a valid command. See 'lfs mirror --list-commands'."
            ));
            1
        }
    }
}

/// Returns the layout of a file. ENODATA: it has none.
pub fn layout_of(tool: &Tool, path: &Path) -> Result<Layout> {
    let value = tool.fs.get(&tool.fs.resolve(path)?, "lustre.lov")?;
    Ok(Layout::decode(&value)?)
}

/// Resyncs all stale mirrors of a file, at most `bandwidth` bytes per second. Calls `begins` before
/// the first copy. Does nothing if no mirror is stale.
///
/// # Errors
/// As [`copy::bring_up`].
pub fn resync(tool: &mut Tool, path: &Path, bandwidth: Option<u64>, begins: impl FnOnce()) -> Result<()> {
    let stale = layout_of(tool, path).map(|layout| layout.stale_mirrors()).unwrap_or_default();
    if stale.is_empty() {
        return Ok(());
    }
    begins();
    copy::bring_up(tool, path, None, &stale, Manner { bandwidth, stats: None })
}

/// Returns the layout of a mirrored file. EINVAL: the file is not mirrored. Reports failures in
/// Lustre's words, under the name `command`.
fn mirrored(tool: &mut Tool, path: &Path, command: &str) -> Result<Layout> {
    let layout = match layout_of(tool, path) {
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

/// Sends a change of mirrors to the MDT.
fn change(tool: &Tool, path: &Path, change: &Change) -> Result<()> {
    let path = tool.fs.resolve(path)?;
    fs::fid_of(tool.fs, &path)?;
    tool.fs.set(&path, XATTR, &change.encode()?, false)
}

/// Parses the id of a mirror.
fn id(value: Option<&OsStr>) -> Option<u16> {
    parse_unsigned(text(value?)).and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0)
}

/// Parses ids of mirrors, separated by commas.
fn ids(value: Option<&OsStr>) -> Option<Vec<u16>> {
    text(value?).split(',').map(|one| id(Some(OsStr::new(one)))).collect()
}

/// Returns the reason why a single mirror cannot be written, for messages.
fn why(errno: Errno) -> &'static str {
    match errno {
        Errno::EBUSY => ": the file is being written, or another command is resyncing it",
        Errno::EUCLEAN => ": no other mirror is up to date",
        _ => "",
    }
}

/// Reports a usage error.
fn wrong(tool: &mut Tool, command: &str, what: &str) -> i32 {
    tool.usage(USAGE, format_args!("lfs mirror {command}: {what}"))
}

#[cfg(test)]
mod tests;
