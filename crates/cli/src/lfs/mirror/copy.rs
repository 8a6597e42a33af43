//! `lfs mirror copy`: copies one mirror to others.

use std::{ffi::OsString, path::Path};

use sheen_admin::mirror;
use sheen_wire::Errno;

use super::{
    super::{
        getopt::{self, Item, Value},
        tool::Tool,
    },
    errors::{mirrored, why, wrong},
    ids::{id, ids},
    progress::with_progress,
    usage::USAGE,
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "i:o:h",
    long: &[("read-mirror", Value::Required, "i"), ("write-mirror", Value::Required, "o"), ("help", Value::No, "h")],
};

/// Runs `lfs mirror copy`.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut from, mut to, mut paths) = (None, None, Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "i", value, .. } => match id(value.as_deref()) {
                Some(id) => from = Some(id),
                None => return wrong(tool, "copy", "invalid source mirror ID"),
            },
            Item::Option { id: "o", value, .. } if value.as_ref().is_some_and(|v| v == "-1") => to = Some(Vec::new()),
            Item::Option { id: "o", value, .. } => match ids(value.as_deref()) {
                Some(ids) => to = Some(ids),
                None => return wrong(tool, "copy", "invalid destination mirror ID"),
            },
            Item::Option { .. } => return tool.help(USAGE),
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => {
                return wrong(tool, "copy", &format!("unrecognized option '{}'", arg.display()));
            }
        }
    }
    let ([path], Some(from), Some(to)) = (&paths[..], from, to) else {
        return wrong(tool, "copy", "a file, -i and -o must be given");
    };
    let path = Path::new(path);
    let layout = match mirrored(tool, path, " mirror copy") {
        Ok(layout) => layout,
        Err(e) => return e.0,
    };
    // `-o -1`: all other mirrors.
    let to = if to.is_empty() { layout.mirror_ids().into_iter().filter(|id| *id != from).collect() } else { to };
    let known = |id: &u16| layout.mirror_ids().contains(id);
    if to.contains(&from) || !known(&from) || !to.iter().all(known) {
        tool.complain(format_args!("lfs mirror copy: invalid or duplicate mirror IDs for '{}'", path.display()));
        return Errno::EINVAL.0;
    }
    let done = with_progress(tool, path, None, |fs, progress| mirror::copy(fs, path, &layout, from, &to, progress));
    match done {
        Ok(()) => {
            tool.print(format_args!("mirror copied successfully: "));
            to.iter().for_each(|id| tool.print(format_args!("{id} ")));
            tool.print(format_args!("\n"));
            0
        }
        Err(e) => {
            tool.complain(format_args!("lfs mirror copy: cannot copy '{}': {e}{}", path.display(), why(e)));
            e.0
        }
    }
}
