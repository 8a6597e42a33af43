//! `lfs migrate`: moves files to new objects while programs use them.
//!
//! Without layout options, a file gets its own layout again, on newly chosen OSTs.
//! [`sheen_admin::migrate`] copies the data and exchanges the objects. If a program wrote to the
//! file meanwhile, the copy starts over, a few times. With `--block`, writers wait instead. If the
//! new layout has mirrors, the first one gets the copy. The others are resynced afterwards, as
//! after any write.

mod auto;
mod job;
mod mdt;
mod names;
mod options;
mod progress;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use sheen_admin::{Failure, Step, migrate::MigrateOptions};
use sheen_layout::Asked;
use sheen_wire::{Errno, FileKind, Result};

use super::{
    getopt::Item,
    mirror,
    pace::Stats,
    setstripe::{Call, Wrong, layout_request_of, pools_exist, wanted},
    tool::{Tool, keep_first, text},
    usage::MIGRATE,
};
pub use job::Job;
pub use mdt::run as run_on_mdts;
pub use names::Names;
use names::{names, report_unread_names};
use options::OPTIONS;
use progress::Progress;

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut asked, mut job) = (Call::default(), Job::default());
    let (mut paths, mut null, mut list) = (Vec::new(), false, None);
    for item in OPTIONS.parse(args) {
        let done = match item {
            Item::Option { id: "h", .. } => return tool.help(MIGRATE),
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
        return mdt::run(tool, "migrate", names, &job, asked.sets && asked.draft.count != Some(1));
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
    report_unread_names(tool, failed, code)
}

/// Reports an error. Errors of `setstripe` in the layout options name `migrate` instead.
fn report(tool: &mut Tool, wrong: Wrong) -> i32 {
    let ours =
        |text: String| text.replace("setstripe setstripe", "migrate migrate").replace("lfs setstripe", "lfs migrate");
    match wrong {
        Wrong::Call(text) => tool.usage(MIGRATE, format_args!("{}", ours(text))),
        Wrong::Value(text, e) => {
            if !text.is_empty() {
                tool.complain(format_args!("{}", ours(text)));
            }
            e.0
        }
    }
}

/// Migrates one file. Reports failures.
fn migrate(tool: &mut Tool, path: &Path, job: &Job, progress: &mut Progress) -> Result<()> {
    let layout = job.layout.clone();
    let mut options = MigrateOptions { layout, bandwidth: job.manner.bandwidth, ..job.options.clone() };
    if options.layout.is_none() {
        let own = layout_request_of(tool, path);
        let layout = if job.auto { own.and_then(|own| auto::by_size(tool, path, own)) } else { own };
        options.layout = layout.inspect_err(|e| {
            progress.clear();
            let path = path.display();
            tool.complain(format_args!("lfs migrate: can't create composite layout from file {path}: {e}"));
        })?;
    }
    reaches_end(tool, path, options.layout.as_deref()).inspect_err(|_| progress.clear())?;
    let mut stats = job.manner.stats.map(|every| Stats::new(path, every));
    let fs = tool.fs;
    let done = fs.migrate(path, &options, &mut |copy| {
        let (copied, total) = copy.bytes();
        progress.note(copied, total);
        if let Some(line) = stats.as_mut().and_then(|stats| stats.note(copied, total)) {
            tool.print_now(&line);
        }
    });
    let done = done.map_err(|Failure { step, errno, .. }| (message(step), errno));
    // Only one mirror has the copy.
    let synced = |()| {
        mirror::resync_stale(tool, path, job.manner.bandwidth, || progress.clear())
            .map_err(|e| ("the file is migrated, but its mirrors are not up to date", e))
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
        Err((what, e)) => {
            progress.clear();
            let lacks_pool = e == Errno::EINVAL && !pools_exist(tool, path, &job.pools);
            let what = if lacks_pool { "the pool does not exist or has no OSTs" } else { what };
            tool.complain(format_args!("error: lfs migrate: {}: {what}: {e}", path.display()));
            Err(e)
        }
    }
}

/// Returns the message about a failed step, in Lustre's words.
fn message(step: Step) -> &'static str {
    match step {
        Step::CreateVolatile => "cannot create volatile file",
        Step::IdentifyVolatile => "cannot get the volatile file's FID",
        Step::LockGroup => "cannot get group lock",
        Step::BeginMigration => "cannot begin",
        Step::Stat => "cannot stat",
        Step::Read => "cannot read",
        Step::Write => "cannot write",
        Step::Resize => "cannot copy",
        Step::Sync => "cannot sync",
        Step::ReadCopy => "cannot verify",
        Step::CompareCopy => "the copy differs from the file",
        Step::Swap => "cannot swap layout",
        _ => "cannot open source file",
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
