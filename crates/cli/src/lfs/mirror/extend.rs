//! `lfs mirror extend`: adds mirrors to a file, either new ones or the objects of another file.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use sheen_admin::mirror::{self, Extend};
use sheen_layout::{Asked, MIRRORS_MAX, Template};
use sheen_wire::{Errno, Result, mirror::MirrorChange};

use super::{
    super::{
        pace::CopyOptions,
        setstripe,
        tool::{Tool, keep_first},
    },
    errors::wrong,
    progress::with_progress,
};

/// The options that `setstripe` does not have.
#[derive(Default)]
struct ExtendOptions {
    victim: Option<PathBuf>,
    no_verify: bool,
    manner: CopyOptions,
}

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (own, rest) = match own(args) {
        Ok(read) => read,
        Err(what) => return wrong(tool, "extend", &what),
    };
    let asked = match setstripe::mirrored(tool, &rest) {
        Ok(asked) => asked,
        Err(code) => return code,
    };
    let mut code = 0;
    for path in &asked.paths {
        if let Err(e) = tool.fs.kind(path, true) {
            tool.complain(format_args!("error: lfs extend: {}: cannot open source file: {e}", path.display()));
            keep_first(&mut code, e);
            continue;
        }
        if !setstripe::pools_exist(tool, path, &asked.pools) {
            tool.complain(format_args!("lfs mirror mirror: Invalid layout, unrecognized error: -1"));
            keep_first(&mut code, Errno(1));
            continue;
        }
        let template = asked.template.as_ref().filter(|_| own.victim.is_none());
        let fits = check(tool, path, template).map_err(|what| {
            tool.complain(format_args!("lfs mirror mirror: Invalid layout: {what}"));
            Errno::EINVAL
        });
        let mut add = || match (&own.victim, template) {
            (Some(victim), _) => merge(tool, path, victim, &own),
            (None, Some(template)) => {
                let template = Asked::Composite(template.clone()).encode();
                extend(tool, path, &MirrorChange::Extend { template }, false, own.manner)
            }
            (None, None) => Err(Errno::EINVAL),
        };
        if let Err(e) = fits.and_then(|()| add()) {
            let (path, busy) = (path.display(), e == Errno::EBUSY);
            let why = if busy { ": the file is in use" } else { "" };
            tool.complain(format_args!("error: lfs extend: cannot extend '{path}': {e}{why}"));
            keep_first(&mut code, e);
        }
    }
    code
}

/// Separates this command's own options from those of `setstripe`. The error is the message for the
/// user.
fn own(args: &[OsString]) -> Result<(ExtendOptions, Vec<OsString>), String> {
    let (mut own, mut rest) = (ExtendOptions::default(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        // `--name VALUE`, `--name=VALUE` or `-nVALUE`.
        let mut value = |names: &[&str]| -> Option<OsString> {
            let name = names.iter().find(|name| text.starts_with(**name))?;
            match text.strip_prefix(name)? {
                "" => args.next().cloned().or_else(|| Some(OsString::new())),
                glued if name.starts_with("--") => glued.strip_prefix('=').map(OsString::from),
                glued => Some(OsString::from(glued)),
            }
        };
        if text == "--no-verify" {
            own.no_verify = true;
        } else if text == "--stats" {
            own.manner.option("stats", None)?;
        } else if let Some(every) = value(&["--stats-interval"]) {
            own.manner.option("stats-interval", every.to_str())?;
        } else if let Some(bandwidth) = value(&["--bandwidth-limit", "--bandwidth", "-W"]) {
            own.manner.option("W", bandwidth.to_str())?;
        } else if let Some(file) = value(&["--file", "-f"]) {
            own.victim = Some(PathBuf::from(file));
        } else {
            rest.push(arg.clone());
        }
    }
    Ok((own, rest))
}

/// Checks the mirrors that a file is to get, before anything is compared or copied. `None`: the
/// mirror that another file becomes. The error is the message for the user.
fn check(tool: &Tool, path: &Path, template: Option<&Template>) -> Result<(), String> {
    let there = tool.fs.layout(path).map_or(1, |layout| layout.mirror_ids().len()).max(1) as u16;
    if template.map_or(1, |t| t.mirrors).saturating_add(there) > MIRRORS_MAX {
        let what = "ask for fewer with -N, or remove some with 'lfs mirror delete'";
        return Err(format!("A file has at most {MIRRORS_MAX} mirrors, and this one has {there}; {what}"));
    }
    template.map_or(Ok(()), |t| setstripe::check_beside(t, there)).map_err(str::to_owned)
}

/// Adds mirrors and resyncs them. `has_same_data`: they are known to hold the same data and are not
/// copied to.
fn extend(tool: &mut Tool, path: &Path, change: &MirrorChange, has_same_data: bool, manner: CopyOptions) -> Result<()> {
    let request = Extend { change, has_same_data, bandwidth: manner.bandwidth };
    with_progress(tool, path, manner.stats, |fs, progress| mirror::extend(fs, path, &request, progress))
}

/// Makes another file a mirror. It must hold the same data.
fn merge(tool: &mut Tool, path: &Path, victim: &Path, own: &ExtendOptions) -> Result<()> {
    if !own.no_verify && !mirror::is_same(path, victim)? {
        let (path, victim) = (path.display(), victim.display());
        tool.complain(format_args!("lfs mirror extend: '{path}' and '{victim}' have different contents"));
        return Err(Errno::EINVAL);
    }
    let other = tool.fs.fid(&tool.fs.resolve(victim)?)?;
    // A program may have written since the comparison, so a compared mirror is copied to as well.
    extend(tool, path, &MirrorChange::Merge { other }, own.no_verify, own.manner)
}
