//! `lfs mirror split` and `lfs mirror delete`: make a mirror a file of its own, or delete it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use sheen_admin::mirror;
use sheen_layout::Layout;
use sheen_wire::{Errno, Result};

use super::{
    super::{
        getopt::{self, Item, Value},
        numbers::parse_unsigned,
        tool::{Tool, text},
    },
    errors::{mirrored, wrong},
    ids::id,
    usage::USAGE,
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "df:hI:p:",
    long: &[
        ("mirror-id", Value::Required, "mirror-id"),
        ("comp-id", Value::Required, "I"),
        ("component-id", Value::Required, "I"),
        ("pool", Value::Required, "p"),
        ("destroy", Value::No, "d"),
        ("help", Value::No, "h"),
    ],
};

/// Selection of a mirror.
enum Which {
    Mirror(u16),
    /// The mirror that contains this component.
    Component(u32),
    /// The first mirror that has a component in this pool.
    Pool(String),
}

impl Which {
    fn of(&self, layout: &Layout) -> Option<u16> {
        match self {
            Which::Mirror(id) => layout.mirror_ids().into_iter().find(|known| known == id),
            Which::Component(id) => layout.components().iter().find(|c| c.id == *id).map(|c| c.mirror_id()),
            Which::Pool(name) => {
                let named = |c: &&sheen_layout::Component| c.pool.as_ref().is_some_and(|p| p.as_str() == name);
                layout.components().iter().find(named).map(|c| c.mirror_id())
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Which::Mirror(id) => format!("mirror with id {id}"),
            Which::Component(id) => format!("component with id {id:#x}"),
            Which::Pool(name) => format!("pool '{name}'"),
        }
    }
}

/// Runs `lfs mirror split`.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    run_as(tool, args, "split", false)
}

/// Runs `lfs mirror delete`.
pub fn delete(tool: &mut Tool, args: &[OsString]) -> i32 {
    run_as(tool, args, "delete", true)
}

fn run_as(tool: &mut Tool, args: &[OsString], command: &str, mut destroy: bool) -> i32 {
    let (mut which, mut into, mut paths) = (None, None, Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "mirror-id", value, .. } => match id(value.as_deref()) {
                Some(id) => which = Some(Which::Mirror(id)),
                None => return wrong(tool, command, "invalid mirror ID"),
            },
            Item::Option { id: "I", value, .. } => {
                let id = parse_unsigned(text(&value.unwrap_or_default())).and_then(|id| u32::try_from(id).ok());
                match id {
                    Some(id) => which = Some(Which::Component(id)),
                    None => return wrong(tool, command, "invalid component ID"),
                }
            }
            Item::Option { id: "p", value, .. } => {
                which = Some(Which::Pool(text(&value.unwrap_or_default()).to_owned()));
            }
            Item::Option { id: "d", .. } => destroy = true,
            Item::Option { id: "f", value, .. } => into = value.map(PathBuf::from),
            Item::Option { .. } => return tool.help(USAGE),
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => {
                return wrong(tool, command, &format!("unrecognized option '{}'", arg.display()));
            }
        }
    }
    let ([path], Some(which)) = (&paths[..], which) else {
        return wrong(tool, command, "a file and one of --mirror-id, --component-id and --pool must be given");
    };
    if destroy && into.is_some() {
        return wrong(tool, command, "-d and -f are mutually exclusive");
    }
    match split(tool, Path::new(path), &which, destroy, into, command) {
        Ok(()) => 0,
        Err(e) => e.0,
    }
}

/// Splits one file. Reports failures.
fn split(
    tool: &mut Tool,
    path: &Path,
    which: &Which,
    destroy: bool,
    into: Option<PathBuf>,
    command: &str,
) -> Result<()> {
    let layout = mirrored(tool, path, &format!(" {command}")).inspect_err(|e| {
        if *e == Errno::EINVAL {
            tool.complain(format_args!("Cannot resync file"));
        }
    })?;
    let Some(mirror) = which.of(&layout) else {
        let (path, what) = (path.display(), which.describe());
        tool.complain(format_args!("error lfs {command}: file '{path}' does not contain {what}"));
        // As in Lustre: exits with 0.
        return Ok(());
    };
    let target = match destroy {
        true => None,
        false => Some(into.unwrap_or_else(|| PathBuf::from(format!("{}.mirror~{mirror}", path.display())))),
    };
    let done = mirror::split(tool.fs, path, mirror, target.as_deref());
    done.inspect_err(|e| {
        let (path, last) = (path.display(), *e == Errno::EUCLEAN);
        let why = if last { ": the other mirrors are stale; resync the file first" } else { "" };
        tool.complain(format_args!("lfs mirror {command}: cannot split '{path}': {e}{why}"));
    })
}
