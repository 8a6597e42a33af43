//! `lfs mirror verify`: checks that the mirrors of a file hold the same data.
//!
//! The checksums of stale mirrors are shown, but not compared.

use std::{ffi::OsString, path::Path};

use sheen_admin::mirror::{self, Chunk};
use sheen_wire::{Errno, Result};

use super::{
    super::{
        getopt::{self, Item, Value},
        tool::{Tool, keep_first},
    },
    errors::wrong,
    ids::ids,
    usage::USAGE,
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "ho:v",
    long: &[("help", Value::No, "h"), ("only", Value::Required, "o"), ("verbose", Value::No, "v")],
};

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut only, mut verbose, mut paths) = (Vec::new(), false, Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "o", value, .. } => match ids(value.as_deref()).filter(|ids| ids.len() > 1) {
                Some(ids) => only = ids,
                None => return wrong(tool, "verify", "at least two mirror IDs must be given with --only"),
            },
            Item::Option { id: "v", .. } => verbose = true,
            Item::Option { .. } => return tool.help(USAGE),
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => {
                return wrong(tool, "verify", &format!("unrecognized option '{}'", arg.display()));
            }
        }
    }
    if paths.is_empty() {
        return wrong(tool, "verify", "no file name given");
    }
    let mut code = 0;
    for path in &paths {
        if let Err(e) = file(tool, Path::new(path), &only, verbose) {
            keep_first(&mut code, e);
        }
    }
    code
}

/// Verifies one file. A file that is not mirrored passes. Reports failures.
fn file(tool: &mut Tool, path: &Path, only: &[u16], verbose: bool) -> Result<()> {
    let layout = match tool.fs.layout(path) {
        Ok(layout) => layout,
        Err(Errno::ENODATA) => return Ok(()),
        Err(e) => {
            tool.complain(format_args!("lfs verify: cannot open '{}': {e}", path.display()));
            return Err(e);
        }
    };
    if !layout.is_mirrored() {
        return Ok(());
    }
    if let Some(unknown) = only.iter().find(|id| !layout.mirror_ids().contains(id)) {
        let path = path.display();
        tool.complain(format_args!("lfs verify: file '{path}' does not contain mirror with id {unknown}"));
        return Err(Errno::EINVAL);
    }
    let fs = tool.fs;
    let done = mirror::verify(fs, path, &layout, only, &mut |chunk| report(tool, path, chunk, verbose));
    if let Err(e) = done
        && !matches!(e, Errno::ESTALE | Errno::EUCLEAN)
    {
        tool.complain(format_args!("lfs verify: cannot read '{}': {e}", path.display()));
    }
    done
}

/// Prints what was found in a chunk.
fn report(tool: &mut Tool, path: &Path, chunk: &Chunk, verbose: bool) {
    let differ = chunk.differs();
    if !chunk.stale.is_empty() {
        show(tool, (chunk.start, chunk.end_of_data), &chunk.stale, " (stale)");
    } else if differ || verbose {
        show(tool, (chunk.start, chunk.end_of_data), &chunk.fresh, "");
    }
    let bounds = bounds(chunk.start, chunk.end);
    match &chunk.fresh[..] {
        [(id, _)] if verbose => {
            let path = path.display();
            tool.print(format_args!("lfs verify: '{path}' chunk {bounds} is only valid in mirror {id}: skipped\n"));
        }
        [first, rest @ ..] if differ => {
            let other = rest.iter().find(|other| other.1 != first.1).unwrap_or(first);
            tool.complain(format_args!(
                "lfs verify: chunk {bounds} has different checksum value on mirror {}:{:x} and mirror {}:{:x}: {}",
                first.0,
                first.1,
                other.0,
                other.1,
                Errno::EUCLEAN
            ));
        }
        _ => {}
    }
}

fn show(tool: &mut Tool, (start, end): (u64, u64), sums: &[(u16, u32)], note: &str) {
    tool.print(format_args!("CRC-32 checksum value for chunk {}:\n", bounds(start, end)));
    for (id, sum) in sums {
        tool.print(format_args!("Mirror {id}:\t{sum:#x}{note}\n"));
    }
    tool.print(format_args!("\n"));
}

/// Formats the bounds of a chunk like Lustre, which prints zero without a prefix.
fn bounds(start: u64, end: u64) -> String {
    format!("[{start:#x}, {end:#x})").replace("[0x0,", "[0,")
}
