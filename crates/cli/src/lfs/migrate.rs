//! `lfs migrate`: moves files to new objects while programs use them.
//!
//! Without layout options, a file gets its own layout again, on newly chosen OSTs. The data is
//! copied to a volatile file in the same directory. Then the file takes over the copy's objects in
//! one step ([`copy`]). If a program wrote to the file meanwhile, the copy starts over, a few
//! times. With `--block`, writers wait instead. If the new layout has mirrors, the first one gets
//! the copy. The others are resynced afterwards, as after any write.

mod auto;
pub mod copy;
mod mdt;
mod options;
mod progress;

use std::{
    ffi::{OsStr, OsString},
    io::{self, BufRead, Read},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use sheen_layout::Asked;
use sheen_wire::{Errno, FileKind, Result};

use super::{
    Tool,
    getopt::Item,
    keep_first, mirror,
    pace::{Manner, Stats},
    setstripe::{Call, Wrong, asked_again, pools_exist, wanted},
    text,
};
use copy::{Failure, How};
use options::OPTIONS;
pub use options::USAGE;
use progress::Progress;

/// Longest name in a list of files in bytes, with the byte that ends it: PATH_MAX.
const NAME_BYTES_MAX: u64 = 4096;

/// The work on each file.
#[derive(Default)]
struct Job {
    /// The requested layout; `None`: the file's own.
    layout: Option<Vec<u8>>,
    /// Choose the stripe count by the file's size.
    auto: bool,
    /// Pools that the options name.
    pools: Vec<String>,
    how: How,
    verbose: bool,
    manner: Manner,
    /// MDTs of `-m`, -1 for any. With them, only directories are migrated, and no objects.
    mdts: Vec<i64>,
}

/// Source of the file names.
enum Names {
    Operands(Vec<PathBuf>),
    /// A list in which this byte ends each name.
    List(Box<dyn BufRead>, u8),
}

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut asked, mut job) = (Call::default(), Job::default());
    let (mut paths, mut null, mut list) = (Vec::new(), false, None);
    for item in OPTIONS.parse(args) {
        let done = match item {
            Item::Option { id: "h", .. } => return tool.help(USAGE),
            Item::Option { id, value, next } => {
                let given = value.as_deref().map(text);
                match id {
                    "0" => {
                        null = true;
                        Ok(())
                    }
                    "files-from" => {
                        list = value.clone();
                        Ok(())
                    }
                    _ => match job.option(id, given) {
                        Some(done) => done,
                        None => asked.option(id, given, args.get(next).map_or("(null)", |a| text(a))),
                    },
                }
            }
            Item::Operand(path) => {
                paths.push(PathBuf::from(path));
                Ok(())
            }
            Item::Unrecognized(arg) => {
                Err(Wrong::Call(format!("lfs migrate: unrecognized option '{}'", arg.display())))
            }
        };
        if let Err(wrong) = done {
            return report(tool, wrong);
        }
    }
    let names = match names(paths, null, list.as_deref()) {
        Ok(names) => names,
        Err(wrong) => return report(tool, wrong),
    };
    if !job.mdts.is_empty() {
        // With -m, the stripe options describe striping over MDTs.
        return mdt::run(tool, names, &job, asked.sets && asked.draft.count != Some(1));
    }
    if asked.delete || asked.add || asked.del || asked.set {
        return report(tool, Wrong::Call("lfs migrate migrate: cannot add, delete or change components".to_owned()));
    }
    if asked.sets && job.auto {
        let text = "lfs migrate migrate: -A chooses stripes by size and cannot be combined with layout options";
        return report(tool, Wrong::Call(text.to_owned()));
    }
    if asked.sets {
        job.pools = std::mem::take(&mut asked.pools);
        match wanted(tool, asked) {
            Ok(layout) => job.layout = Some(layout),
            Err(wrong) => return report(tool, wrong),
        }
    }
    let mut code = 0;
    let mut progress = Progress::new(names.count(), job.manner.stats.is_some());
    let failed = names.each(|name| {
        progress.begin(name);
        if let Err(e) = migrate(tool, name, &job, &mut progress) {
            keep_first(&mut code, e);
        }
        progress.end();
    });
    progress.clear();
    told(tool, failed, code)
}

/// Reports if not all names could be read. Returns the exit code.
fn told(tool: &mut Tool, read: io::Result<()>, mut code: i32) -> i32 {
    if let Err(e) = read {
        let e = Errno::from(e);
        tool.complain(format_args!("lfs migrate: cannot read the list of files: {e}"));
        keep_first(&mut code, e);
    }
    code
}

/// Reports an error. Errors of `setstripe` in the layout options name `migrate` instead.
fn report(tool: &mut Tool, wrong: Wrong) -> i32 {
    let ours =
        |text: String| text.replace("setstripe setstripe", "migrate migrate").replace("lfs setstripe", "lfs migrate");
    match wrong {
        Wrong::Call(text) => tool.usage(USAGE, format_args!("{}", ours(text))),
        Wrong::Value(text, e) => {
            if !text.is_empty() {
                tool.complain(format_args!("{}", ours(text)));
            }
            e.0
        }
    }
}

fn names(paths: Vec<PathBuf>, null: bool, list: Option<&OsStr>) -> Result<Names, Wrong> {
    let end = if null { 0 } else { b'\n' };
    match (list, &paths[..]) {
        (Some(_), [_, ..]) => {
            Err(Wrong::Call("lfs migrate migrate: give either --files-from or files as operands".to_owned()))
        }
        (Some(list), []) if list == "-" => Ok(Names::List(Box::new(io::BufReader::new(io::stdin())), end)),
        (Some(list), []) => {
            let open = std::fs::File::open(list).map_err(|e| {
                let e = Errno::from(e);
                Wrong::Value(format!("lfs migrate: cannot open '{}': {e}", list.display()), e)
            })?;
            Ok(Names::List(Box::new(io::BufReader::new(open)), end))
        }
        (None, []) if null => Ok(Names::List(Box::new(io::BufReader::new(io::stdin())), 0)),
        (None, []) => Err(Wrong::Call("lfs migrate migrate: FILE must be specified".to_owned())),
        (None, _) => Ok(Names::Operands(paths)),
    }
}

impl Names {
    /// Returns the number of names, if it is known beforehand.
    fn count(&self) -> Option<usize> {
        match self {
            Names::Operands(paths) => Some(paths.len()),
            Names::List(..) => None,
        }
    }

    /// Calls `f` with each name.
    fn each(self, mut f: impl FnMut(&Path)) -> io::Result<()> {
        let (mut list, end) = match self {
            Names::Operands(paths) => {
                paths.iter().for_each(|path| f(path));
                return Ok(());
            }
            Names::List(list, end) => (list, end),
        };
        loop {
            let mut name = Vec::new();
            (&mut list).take(NAME_BYTES_MAX).read_until(end, &mut name)?;
            match name.last() {
                None => return Ok(()),
                Some(last) if *last == end => drop(name.pop()),
                Some(_) if name.len() as u64 == NAME_BYTES_MAX => return Err(io::ErrorKind::InvalidFilename.into()),
                Some(_) => {}
            }
            if !name.is_empty() {
                f(Path::new(&OsString::from_vec(name)));
            }
        }
    }
}

/// Migrates one file. Reports failures.
fn migrate(tool: &mut Tool, path: &Path, job: &Job, progress: &mut Progress) -> Result<()> {
    let mut how = How { layout: job.layout.clone(), bandwidth: job.manner.bandwidth, ..job.how.clone() };
    if how.layout.is_none() {
        let own = asked_again(tool, path);
        let layout = if job.auto { own.and_then(|own| auto::by_size(tool, path, own)) } else { own };
        how.layout = layout.inspect_err(|e| {
            progress.clear();
            let path = path.display();
            tool.complain(format_args!("lfs migrate: can't create composite layout from file {path}: {e}"));
        })?;
    }
    reaches_end(tool, path, how.layout.as_deref()).inspect_err(|_| progress.clear())?;
    let mut stats = job.manner.stats.map(|every| Stats::new(path, every));
    let fs = tool.fs;
    let done = fs.migrate(path, &how, &mut |copied, total| {
        progress.note(copied, total);
        if let Some(line) = stats.as_mut().and_then(|stats| stats.note(copied, total)) {
            tool.print_now(&line);
        }
    });
    // Only one mirror has the copy.
    let synced = |()| {
        mirror::resync(tool, path, job.manner.bandwidth, || progress.clear())
            .map_err(|errno| Failure { what: "the file is migrated, but its mirrors are not up to date", errno })
    };
    match done.and_then(synced) {
        Ok(()) => {
            if job.verbose {
                progress.clear();
                tool.print_bytes(path.as_os_str().as_encoded_bytes());
                tool.print(format_args!("\n"));
            }
            if let Some(mut stats) = stats {
                tool.print_now(&stats.line());
            }
            Ok(())
        }
        Err(failed) => {
            progress.clear();
            let lacks_pool = failed.errno == Errno::EINVAL && !pools_exist(tool, path, &job.pools);
            let what = if lacks_pool { "the pool does not exist or has no OSTs" } else { failed.what };
            tool.complain(format_args!("error: lfs migrate: {}: {what}: {}", path.display(), failed.errno));
            Err(failed.errno)
        }
    }
}

/// Refuses a layout that ends before the file does, because it has no place for the rest of the
/// data. Reports that.
fn reaches_end(tool: &mut Tool, path: &Path, layout: Option<&[u8]>) -> Result<()> {
    let Some(Ok(Asked::Composite(template))) = layout.map(Asked::decode) else { return Ok(()) };
    let end = template.end();
    // Other problems with the file are reported when it is opened.
    let is_file = end < u64::MAX && tool.fs.kind(path, true) == Ok(FileKind::Regular);
    match if is_file { tool.fs.size(path) } else { Ok(0) } {
        Ok(size) if size > end => {
            let (path, e) = (path.display(), Errno::ENODATA);
            let what = format!("the layout ends at {end}, the file at {size}: end the layout with '-E -1'");
            tool.complain(format_args!("error: lfs migrate: {path}: {what}: {e}"));
            Err(e)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
