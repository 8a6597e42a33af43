//! `lfs find`: entries of directory trees by what they are, how they are striped, and where their
//! objects lie.
//!
//! Words become a [`query::Query`]: tests that must all hold ([`predicate`]), cheapest first, so
//! that attributes are asked for only where the name fits and layouts only where the attributes do
//! ([`facts`], [`entry`]). Threads share the directories among themselves ([`walk`]); what they
//! find is printed here, by one.

mod entry;
mod facts;
mod glob;
mod host;
mod options;
mod predicate;
mod print;
mod query;
mod range;
mod usage;
mod walk;

use std::{
    ffi::{CString, OsString},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use sheen_wire::{Errno, Result, control, control::TargetInfo, mgs::TargetKind};

use self::{
    options::Word,
    predicate::Targets,
    query::{Query, Wrong},
    walk::Output,
};
use super::{Tool, keep_first};

pub use self::usage::FIND as USAGE;

/// Threads where nobody asks for a number: as many as there are processors, but a few at least,
/// since most of the time they wait for the file system.
const THREADS_LEAST: usize = 4;
/// Most of them unless somebody asks for more: a mount answers no faster for more.
const THREADS_MOST: usize = 16;

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let mut query = Query::new(now);
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut negated = false;
    // Changes between options and operands: at most one, or operands lie in the middle.
    let mut changes = 0;
    let mut last_is_operand = None;
    for word in options::parse(args) {
        let is_operand = matches!(word, Word::Operand(_));
        changes += usize::from(last_is_operand.replace(is_operand).is_some_and(|last| last != is_operand));
        let is_option = matches!(word, Word::Option(..));
        match word {
            Word::Operand(_) if changes > 1 => {
                let wrong = "err: find: filename|dirname must either precede options or follow options";
                return tool.usage(USAGE, format_args!("{wrong}"));
            }
            Word::Operand(path) => paths.push(path.into()),
            Word::Not => negated = true,
            Word::Option("help", _) => return tool.help(USAGE),
            Word::Option(id, value) => {
                if let Err(wrong) = query.option(id, value.as_deref(), negated) {
                    return refuse(tool, &wrong);
                }
            }
            Word::Unrecognized(arg) => {
                return tool.usage(USAGE, format_args!("lfs: unrecognized option '{}'", arg.display()));
            }
        }
        negated &= !is_option;
    }
    if paths.is_empty() {
        return tool.usage(USAGE, format_args!("error: find: no filename|pathname"));
    }
    if let Err(wrong) = resolve(tool, &mut query, &paths) {
        return refuse(tool, &wrong);
    }
    for directive in &query.unknown {
        tool.complain(format_args!("lfs find: warning: unrecognized format directive: '{directive}'"));
    }
    search(tool, &query, paths)
}

fn refuse(tool: &mut Tool, Wrong(text, e): &Wrong) -> i32 {
    tool.complain(format_args!("{text}"));
    e.0
}

/// Walks and prints.
fn search(tool: &mut Tool, query: &Query, paths: Vec<PathBuf>) -> i32 {
    let processors = || std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = query.threads.unwrap_or_else(|| processors().clamp(THREADS_LEAST, THREADS_MOST));
    // No path of the command line has a NUL in it.
    let roots = paths.into_iter().filter_map(|path| CString::new(path.into_os_string().into_vec()).ok()).collect();
    let mut code = 0;
    walk::walk(query, roots, threads, |output| match output {
        // A reader that went away ends the search.
        Output::Lines(lines) => tool.out.write_all(&lines).and_then(|()| tool.out.flush()).is_ok(),
        Output::Failed(text, e) => {
            tool.complain(format_args!("{text}"));
            keep_first(&mut code, e);
            true
        }
    });
    code
}

/// Finds the targets that tests name.
fn resolve(tool: &Tool, query: &mut Query, paths: &[PathBuf]) -> Result<(), Wrong> {
    let mut known: Option<Vec<TargetInfo>> = None;
    for (is_ost, targets) in query.named() {
        let known = match &known {
            Some(known) => known,
            None => known.insert(targets_of(tool, paths)?),
        };
        let kind = if is_ost { TargetKind::Ost } else { TargetKind::Mdt };
        find_targets(targets, known.iter().filter(|t| t.kind == kind))?;
    }
    Ok(())
}

/// The targets of the first operand's file system.
fn targets_of(tool: &Tool, paths: &[PathBuf]) -> Result<Vec<TargetInfo>, Wrong> {
    let path = paths.first().map_or(Path::new("."), PathBuf::as_path);
    let asked = tool.fs.resolve(path).and_then(|path| tool.ask(&path, control::DF));
    asked.map_err(|e| Wrong(format!("lfs: failed for '{}': {e}", path.display()), e))
}

/// A target goes by its uuid, `sheen-OST0001_UUID`, also without the ending and without the file
/// system's name.
fn find_targets<'a>(targets: &mut Targets, known: impl Iterator<Item = &'a TargetInfo> + Clone) -> Result<(), Wrong> {
    for name in std::mem::take(&mut targets.names) {
        let is_it = |t: &&TargetInfo| {
            let short = t.uuid.strip_suffix("_UUID").unwrap_or(&t.uuid);
            let bare = short.rsplit_once('-').map(|(_, bare)| bare);
            t.uuid == name || short == name || bare == Some(name.as_str())
        };
        match known.clone().find(is_it) {
            Some(target) => targets.indices.push(target.index..=target.index),
            None => return Err(Wrong(format!("error: find: unknown obduuid: '{name}'"), Errno::EINVAL)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
