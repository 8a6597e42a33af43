//! `lfs find`: searches directory trees for entries by their attributes, their striping, and the
//! targets of their objects.
//!
//! The arguments become a [`search::Search`]. [`sheen_admin::find`] examines the trees. One thread
//! prints the results here.

mod options;
mod print;
mod range;
mod search;
mod usage;

use std::{
    ffi::{CString, OsString},
    io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use sheen_admin::{
    Failure, Step,
    find::{Event, walk},
};
use sheen_wire::{Errno, Result, control, control::TargetInfo, mgs::TargetKind};

use self::{
    options::Word,
    search::{OptionError, Search},
};
use super::tool::{Tool, keep_first};

pub use self::usage::FIND as USAGE;

/// Fewest threads by default. The default is the number of processors, but the threads wait for the
/// file system most of the time.
const THREADS_LEAST: usize = 4;
/// Most threads by default: a mount answers no faster with more.
const THREADS_MOST: usize = 16;

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let mut search = Search::new(now);
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
                if let Err(wrong) = search.option(id, value.as_deref(), negated) {
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
    if let Err(wrong) = resolve(tool, &mut search, &paths) {
        return refuse(tool, &wrong);
    }
    for directive in &search.unknown {
        tool.complain(format_args!("lfs find: warning: unrecognized format directive: '{directive}'"));
    }
    run_search(tool, &search, paths)
}

fn refuse(tool: &mut Tool, OptionError(text, e): &OptionError) -> i32 {
    tool.complain(format_args!("{text}"));
    e.0
}

/// Walks the trees and prints the results.
fn run_search(tool: &mut Tool, search: &Search, paths: Vec<PathBuf>) -> i32 {
    let processors = || std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = search.threads.unwrap_or_else(|| processors().clamp(THREADS_LEAST, THREADS_MOST));
    // Paths on a command line contain no NUL.
    let roots = paths.into_iter().filter_map(|path| CString::new(path.into_os_string().into_vec()).ok()).collect();
    let mut code = 0;
    walk(&search.query, &search.format, roots, threads, |event| match event {
        // A closed stdout ends the search.
        Event::Found(lines) => tool.out.write_all(&lines).and_then(|()| tool.out.flush()).is_ok(),
        Event::Failed(failure) => {
            tool.complain(format_args!("{}", message(&failure)));
            keep_first(&mut code, failure.errno);
            true
        }
    });
    code
}

/// Returns the message about an entry that could not be examined.
fn message(Failure { step, path, errno }: &Failure) -> String {
    let (path, e) = (path.to_string_lossy(), errno);
    match step {
        Step::StartThread => {
            format!("lfs find: cannot start a thread: {}", io::Error::from_raw_os_error(e.0))
        }
        Step::ExamineRoot => format!("lfs: failed for '{path}': {e}"),
        _ => format!("lfs find: cannot access '{path}': {e} ({})", e.0),
    }
}

/// Looks up the targets that tests name.
fn resolve(tool: &Tool, search: &mut Search, paths: &[PathBuf]) -> Result<(), OptionError> {
    let mut known: Option<Vec<TargetInfo>> = None;
    for (is_ost, targets) in search.query.named_targets() {
        let known = match &known {
            Some(known) => known,
            None => known.insert(targets_of(tool, paths)?),
        };
        let kind = if is_ost { TargetKind::Ost } else { TargetKind::Mdt };
        let unknown = |name| OptionError(format!("error: find: unknown obduuid: '{name}'"), Errno::EINVAL);
        targets.look_up(known.iter().filter(|t| t.kind == kind)).map_err(unknown)?;
    }
    Ok(())
}

/// Returns the targets of the first operand's file system.
fn targets_of(tool: &Tool, paths: &[PathBuf]) -> Result<Vec<TargetInfo>, OptionError> {
    let path = paths.first().map_or(Path::new("."), PathBuf::as_path);
    let asked = tool.fs.resolve(path).and_then(|path| tool.ask(&path, control::DF));
    asked.map_err(|e| OptionError(format!("lfs: failed for '{}': {e}", path.display()), e))
}

#[cfg(test)]
mod tests;
