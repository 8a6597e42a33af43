//! `lfs mirror extend`: adds mirrors to a file, either new ones or the objects of another file.
//!
//! A new mirror is stale at first and is resynced like any other, so writes during the command are
//! not lost. If the resync fails, the mirror is removed again.

use std::{
    ffi::OsString,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use sheen_layout::{Asked, Layout, MIRRORS_MAX, Template};
use sheen_wire::{Errno, Result, mirror::Change};

use super::{
    super::{Tool, fs, keep_first, pace::Manner, setstripe},
    change, copy, layout_of, wrong,
};

/// Bytes compared at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The options that `setstripe` does not have.
#[derive(Default)]
struct Own {
    victim: Option<PathBuf>,
    no_verify: bool,
    manner: Manner,
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
                extend(tool, path, &Change::Extend { template }, false, own.manner)
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
fn own(args: &[OsString]) -> Result<(Own, Vec<OsString>), String> {
    let (mut own, mut rest) = (Own::default(), Vec::new());
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
    let there = layout_of(tool, path).map_or(1, |layout| layout.mirror_ids().len()).max(1) as u16;
    if template.map_or(1, |t| t.mirrors).saturating_add(there) > MIRRORS_MAX {
        let what = "ask for fewer with -N, or remove some with 'lfs mirror delete'";
        return Err(format!("A file has at most {MIRRORS_MAX} mirrors, and this one has {there}; {what}"));
    }
    template.map_or(Ok(()), |t| setstripe::check_beside(t, there)).map_err(str::to_owned)
}

/// Adds mirrors and resyncs them. `same`: they are known to hold the same data and are not copied
/// to.
fn extend(tool: &mut Tool, path: &Path, what: &Change, same: bool, manner: Manner) -> Result<()> {
    let before = layout_of(tool, path).map(|layout| ids(&layout)).unwrap_or_default();
    change(tool, path, what)?;
    let added: Vec<u16> = ids(&layout_of(tool, path)?).into_iter().filter(|id| !before.contains(id)).collect();
    let done = if same { copy::declare(tool, path, &added) } else { copy::bring_up(tool, path, None, &added, manner) };
    if done.is_err() {
        for mirror in added {
            let _ = change(tool, path, &Change::Split { mirror, into: None });
        }
    }
    done
}

/// Returns the ids of a file's mirrors, as they will be when the file is mirrored.
fn ids(layout: &Layout) -> Vec<u16> {
    layout.mirror_ids().into_iter().map(|id| id.max(1)).collect()
}

/// Makes another file a mirror. It must hold the same data.
fn merge(tool: &mut Tool, path: &Path, victim: &Path, own: &Own) -> Result<()> {
    if !own.no_verify && !is_same(path, victim)? {
        let (path, victim) = (path.display(), victim.display());
        tool.complain(format_args!("lfs mirror extend: '{path}' and '{victim}' have different contents"));
        return Err(Errno::EINVAL);
    }
    let other = fs::fid_of(tool.fs, &tool.fs.resolve(victim)?)?;
    // A program may have written since the comparison, so a compared mirror is copied to as well.
    extend(tool, path, &Change::Merge { other }, own.no_verify, own.manner)
}

fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let (one, other) = (File::open(one).map_err(Errno::from)?, File::open(other).map_err(Errno::from)?);
    let len = |file: &File| file.metadata().map(|m| m.len()).map_err(Errno::from);
    let size = len(&one)?;
    if size != len(&other)? {
        return Ok(false);
    }
    let (mut a, mut b) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut at = 0;
    while at < size {
        let n = usize::try_from(size - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        one.read_exact_at(&mut a[..n], at).map_err(Errno::from)?;
        other.read_exact_at(&mut b[..n], at).map_err(Errno::from)?;
        if a[..n] != b[..n] {
            return Ok(false);
        }
        at += n as u64;
    }
    Ok(true)
}
