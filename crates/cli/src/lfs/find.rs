//! `lfs find`: searches directory trees for entries by their attributes, their striping, and the
//! targets of their objects.
//!
//! The arguments become a [`query::Query`]: tests that must all hold ([`predicate`]). Cheap tests
//! come first. Attributes are therefore fetched only if the name matches, and layouts only if the
//! attributes match ([`facts`], [`entry`]). Threads share the directories among themselves
//! ([`walk`]). One thread prints the results here.

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

/// Fewest threads by default. The default is the number of processors, but the threads wait for the
/// file system most of the time.
const THREADS_LEAST: usize = 4;
/// Most threads by default: a mount answers no faster with more.
const THREADS_MOST: usize = 16;

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let mut query = Query::new(now);
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut negated = false;
    // Changes between options and operands. With more than one, operands lie between options.
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

/// Walks the trees and prints the results.
fn search(tool: &mut Tool, query: &Query, paths: Vec<PathBuf>) -> i32 {
    let processors = || std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = query.threads.unwrap_or_else(|| processors().clamp(THREADS_LEAST, THREADS_MOST));
    // Paths on a command line contain no NUL.
    let roots = paths.into_iter().filter_map(|path| CString::new(path.into_os_string().into_vec()).ok()).collect();
    let mut code = 0;
    walk::walk(query, roots, threads, |output| match output {
        // A closed stdout ends the search.
        Output::Lines(lines) => tool.out.write_all(&lines).and_then(|()| tool.out.flush()).is_ok(),
        Output::Failed(text, e) => {
            tool.complain(format_args!("{text}"));
            keep_first(&mut code, e);
            true
        }
    });
    code
}

/// Looks up the targets that tests name.
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

/// Returns the targets of the first operand's file system.
fn targets_of(tool: &Tool, paths: &[PathBuf]) -> Result<Vec<TargetInfo>, Wrong> {
    let path = paths.first().map_or(Path::new("."), PathBuf::as_path);
    let asked = tool.fs.resolve(path).and_then(|path| tool.ask(&path, control::DF));
    asked.map_err(|e| Wrong(format!("lfs: failed for '{}': {e}", path.display()), e))
}

/// Looks up targets by UUID, such as `sheen-OST0001_UUID`. The suffix and the file system's name
/// may be left out.
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
