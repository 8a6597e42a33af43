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
    /// `-N=TOTAL`: the number of mirrors that the file has afterwards, at least.
    total: Option<u16>,
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
    let mirrors = asked.template.as_ref().map_or(1, |template| template.mirrors);
    if own.total.is_some() && (mirrors > 1 || own.victim.is_some()) {
        return wrong(tool, "extend", "-N=TOTAL excludes a further -N, and -f");
    }
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
        if let Err(e) = add(tool, path, &own, asked.template.as_ref()) {
            let (path, busy) = (path.display(), e == Errno::EBUSY);
            let why = if busy { ": the file is in use" } else { "" };
            tool.complain(format_args!("error: lfs extend: cannot extend '{path}': {e}{why}"));
            keep_first(&mut code, e);
        }
    }
    code
}

/// Adds the mirrors to one file.
fn add(tool: &mut Tool, path: &Path, own: &ExtendOptions, template: Option<&Template>) -> Result<()> {
    let there = mirrors_of(tool, path)?;
    let template = match own.total.map(|total| total.saturating_sub(there)) {
        Some(0) => {
            let path = path.display();
            tool.complain(format_args!(
                "warning: '{path}' already has {there} mirrors, no new mirrors will be created"
            ));
            return Ok(());
        }
        Some(missing) => template.map(|one| repeated(one, missing)),
        None => template.filter(|_| own.victim.is_none()).cloned(),
    };
    if let Err(what) = check(there, template.as_ref()) {
        tool.complain(format_args!("lfs mirror mirror: Invalid layout: {what}"));
        return Err(Errno::EINVAL);
    }
    match (&own.victim, template) {
        (Some(victim), _) => merge(tool, path, victim, own),
        (None, Some(template)) => {
            let template = Asked::Composite(template).encode();
            extend(tool, path, &MirrorChange::Extend { template }, false, own.manner)
        }
        (None, None) => Err(Errno::EINVAL),
    }
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
        } else if let Some(total) = text.strip_prefix("-N=").or_else(|| text.strip_prefix("--mirror-count==")) {
            if own.total.is_some() {
                return Err("-N=TOTAL can be given once".to_owned());
            }
            let count = total.parse::<u16>().ok().filter(|count| *count > 0);
            own.total = Some(count.ok_or_else(|| format!("bad mirror count: {total}"))?);
            rest.push(OsString::from("-N")); // the mirror that is added until they are enough
        } else {
            rest.push(arg.clone());
        }
    }
    Ok((own, rest))
}

/// Returns the number of mirrors of a file. A file without mirrors, or without a layout, counts as
/// one.
fn mirrors_of(tool: &Tool, path: &Path) -> Result<u16> {
    match tool.fs.layout(path) {
        Ok(layout) => Ok(layout.mirror_ids().len().max(1) as u16),
        Err(Errno::ENODATA) => Ok(1),
        Err(e) => Err(e),
    }
}

/// Returns a template with `count` mirrors like that of `one`. One mirror more than the limit is
/// enough for [`check`] to refuse it.
fn repeated(one: &Template, count: u16) -> Template {
    let mirrors = count.min(MIRRORS_MAX + 1);
    let components = std::iter::repeat_n(&one.components, mirrors.into()).flatten().cloned().collect();
    Template { components, mirrors }
}

/// Checks the mirrors that a file with `there` mirrors is to get, before anything is compared or
/// copied. `None`: the mirror that another file becomes. The error is the message for the user.
fn check(there: u16, template: Option<&Template>) -> Result<(), String> {
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
