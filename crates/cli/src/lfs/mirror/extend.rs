//! `lfs mirror extend`: gives a file more mirrors, made anew or of another file.
//!
//! A new mirror is stale at first and is brought up to date as any other is; so whoever writes meanwhile is not lost. If that fails the
//! mirror is taken away again.

use std::{
    ffi::OsString,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use sheen_layout::{Asked, Layout};
use sheen_wire::{Errno, Result, mirror::Change};

use super::{
    super::{Tool, fs, keep_first, setstripe},
    change, copy, layout_of,
};

/// Bytes that are compared at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The options that `setstripe` does not have.
#[derive(Default)]
struct Own {
    victim: Option<PathBuf>,
    no_verify: bool,
}

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (own, rest) = own(args);
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
        let done = match (&own.victim, &asked.template) {
            (Some(victim), _) => merge(tool, path, victim, own.no_verify),
            (None, Some(template)) => {
                let template = Asked::Composite(template.clone()).encode();
                extend(tool, path, &Change::Extend { template }, false)
            }
            (None, None) => Err(Errno::EINVAL),
        };
        if let Err(e) = done {
            let (path, busy) = (path.display(), e == Errno::EBUSY);
            let why = if busy { ": it is in use" } else { "" };
            tool.complain(format_args!("error: lfs extend: cannot extend '{path}': {e}{why}"));
            keep_first(&mut code, e);
        }
    }
    code
}

/// Takes this command's own options out.
fn own(args: &[OsString]) -> (Own, Vec<OsString>) {
    let (mut own, mut rest) = (Own::default(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        if text == "--no-verify" {
            own.no_verify = true;
        } else if text == "-f" || text == "--file" {
            own.victim = args.next().map(PathBuf::from);
        } else if let Some(file) = text.strip_prefix("--file=").or_else(|| text.strip_prefix("-f")) {
            own.victim = Some(PathBuf::from(file));
        } else {
            rest.push(arg.clone());
        }
    }
    (own, rest)
}

/// Adds mirrors and makes them hold what the file does, unless they are known to.
fn extend(tool: &mut Tool, path: &Path, what: &Change, same: bool) -> Result<()> {
    let before = layout_of(tool, path).map(|layout| ids(&layout)).unwrap_or_default();
    change(tool, path, what)?;
    let added: Vec<u16> = ids(&layout_of(tool, path)?).into_iter().filter(|id| !before.contains(id)).collect();
    let done = if same { copy::declare(tool, path, &added) } else { copy::bring_up(tool, path, None, &added) };
    if done.is_err() {
        for mirror in added {
            let _ = change(tool, path, &Change::Split { mirror, into: None });
        }
    }
    done
}

/// Ids of a file's mirrors, as they are once it is mirrored.
fn ids(layout: &Layout) -> Vec<u16> {
    layout.mirror_ids().into_iter().map(|id| id.max(1)).collect()
}

/// Another file becomes a mirror. It must hold the same bytes.
fn merge(tool: &mut Tool, path: &Path, victim: &Path, no_verify: bool) -> Result<()> {
    if !no_verify && !is_same(path, victim)? {
        let (path, victim) = (path.display(), victim.display());
        tool.complain(format_args!("lfs mirror extend: '{path}' and '{victim}' have different contents"));
        return Err(Errno::EINVAL);
    }
    let other = fs::fid_of(tool.fs, &tool.fs.resolve(victim)?)?;
    // Somebody may have written since they were compared: then it is copied.
    extend(tool, path, &Change::Merge { other }, no_verify)
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
