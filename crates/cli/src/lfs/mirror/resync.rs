//! `lfs mirror resync`: brings stale mirrors up to date.

use std::{ffi::OsString, path::Path};

use sheen_wire::{Errno, Result};

use super::{
    super::{
        Tool,
        getopt::{self, Item, Value},
        keep_first,
        pace::{self, Manner},
        text,
    },
    copy::bring_up,
    ids, mirrored, why, wrong,
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "fho:vW:",
    long: &[
        ("force-resync", Value::No, "f"),
        ("help", Value::No, "h"),
        ("only", Value::Required, "o"),
        ("verbose", Value::No, "v"),
        pace::LONG[0],
        pace::LONG[1],
        pace::LONG[2],
        pace::LONG[3],
    ],
};

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut force, mut only, mut paths, mut manner) = (false, Vec::new(), Vec::new(), Manner::default());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "f", .. } => force = true,
            Item::Option { id: "o", value, .. } => match ids(value.as_deref()) {
                Some(ids) => only = ids,
                None => return wrong(tool, "resync", "invalid mirror ID"),
            },
            Item::Option { id: "v", .. } => {}
            Item::Option { id: "h", .. } => return tool.help(super::USAGE),
            Item::Option { id, value, .. } => {
                if let Err(what) = manner.option(id, value.as_deref().map(text)) {
                    return wrong(tool, "resync", &what);
                }
            }
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => {
                return wrong(tool, "resync", &format!("unrecognized option '{}'", arg.display()));
            }
        }
    }
    if force && only.is_empty() {
        tool.complain(format_args!("lfs: --force-resync requires --only option to specify target mirrors."));
        return Errno::EINVAL.0;
    }
    if paths.is_empty() {
        return wrong(tool, "resync", "no file name given");
    }
    let mut code = 0;
    for path in &paths {
        if let Err(e) = resync(tool, Path::new(path), &only, force, manner) {
            keep_first(&mut code, e);
        }
    }
    code
}

/// Resyncs one file. Reports failures.
fn resync(tool: &mut Tool, path: &Path, only: &[u16], force: bool, manner: Manner) -> Result<()> {
    let layout = mirrored(tool, path, "")?;
    if let Some(unknown) = only.iter().find(|id| !layout.mirror_ids().contains(id)) {
        let path = path.display();
        tool.complain(format_args!("lfs resync: file '{path}' does not contain mirror with id {unknown}"));
        return Err(Errno::EINVAL);
    }
    let chosen = |id: &u16| only.is_empty() || only.contains(id);
    let targets = if force { only.to_vec() } else { layout.stale_mirrors().into_iter().filter(chosen).collect() };
    if targets.is_empty() {
        return Ok(());
    }
    bring_up(tool, path, None, &targets, manner).inspect_err(|e| {
        tool.complain(format_args!("lfs resync: cannot resync '{}': {e}{}", path.display(), why(*e)));
    })
}
