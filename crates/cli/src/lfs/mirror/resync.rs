//! `lfs mirror resync`: brings stale mirrors up to date.

use std::{ffi::OsString, path::Path};

use sheen_admin::mirror::{self, Resync};
use sheen_wire::{Errno, Result};

use super::{
    super::{
        getopt::{self, Item, Value},
        pace::{self, CopyOptions},
        tool::{Tool, keep_first, text},
    },
    errors::{mirrored, why, wrong},
    ids::ids,
    progress::with_progress,
    usage::USAGE,
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
    let (mut force, mut only, mut paths, mut manner) = (false, Vec::new(), Vec::new(), CopyOptions::default());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "f", .. } => force = true,
            Item::Option { id: "o", value, .. } => match ids(value.as_deref()) {
                Some(ids) => only = ids,
                None => return wrong(tool, "resync", "invalid mirror ID"),
            },
            Item::Option { id: "v", .. } => {}
            Item::Option { id: "h", .. } => return tool.help(USAGE),
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
fn resync(tool: &mut Tool, path: &Path, only: &[u16], force: bool, manner: CopyOptions) -> Result<()> {
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
    resync_mirrors(tool, path, &targets, manner).inspect_err(|e| {
        tool.complain(format_args!("lfs resync: cannot resync '{}': {e}{}", path.display(), why(*e)));
    })
}

/// Resyncs all stale mirrors of a file, at most `bandwidth` bytes per second. Calls `begins` before
/// the first copy. Does nothing if no mirror is stale.
///
/// # Errors
/// As [`mirror::resync`].
pub fn resync_stale(tool: &mut Tool, path: &Path, bandwidth: Option<u64>, begins: impl FnOnce()) -> Result<()> {
    let stale = tool.fs.layout(path).map(|layout| layout.stale_mirrors()).unwrap_or_default();
    if stale.is_empty() {
        return Ok(());
    }
    begins();
    resync_mirrors(tool, path, &stale, CopyOptions { bandwidth, stats: None })
}

fn resync_mirrors(tool: &mut Tool, path: &Path, mirrors: &[u16], manner: CopyOptions) -> Result<()> {
    let request = Resync { source: None, mirrors, bandwidth: manner.bandwidth };
    with_progress(tool, path, manner.stats, |fs, progress| mirror::resync(fs, path, &request, progress))
}
