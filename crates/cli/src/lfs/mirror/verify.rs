//! `lfs mirror verify`: checks that the mirrors of a file hold the same data.
//!
//! A file is compared in chunks. Within a chunk, no component of any mirror ends. For each chunk,
//! the command calculates a checksum of every mirror. Checksums of stale mirrors are shown, but not
//! compared.

use std::{collections::BTreeSet, ffi::OsString, os::unix::fs::FileExt, path::Path};

use sheen_layout::Layout;
use sheen_wire::{Errno, Result};

use super::{
    super::{
        Tool,
        getopt::{self, Item, Value},
        keep_first,
    },
    crc::Crc,
    ids, layout_of, wrong,
};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 4 << 20;

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "ho:v",
    long: &[("help", Value::No, "h"), ("only", Value::Required, "o"), ("verbose", Value::No, "v")],
};

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut only, mut verbose, mut paths) = (Vec::new(), false, Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "o", value, .. } => match ids(value.as_deref()).filter(|ids| ids.len() > 1) {
                Some(ids) => only = ids,
                None => return wrong(tool, "verify", "at least two mirror IDs must be given with --only"),
            },
            Item::Option { id: "v", .. } => verbose = true,
            Item::Option { .. } => return tool.help(super::USAGE),
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => {
                return wrong(tool, "verify", &format!("unrecognized option '{}'", arg.display()));
            }
        }
    }
    if paths.is_empty() {
        return wrong(tool, "verify", "no file name given");
    }
    let mut code = 0;
    for path in &paths {
        if let Err(e) = file(tool, Path::new(path), &only, verbose) {
            keep_first(&mut code, e);
        }
    }
    code
}

/// Verifies one file. A file that is not mirrored passes. Reports failures.
fn file(tool: &mut Tool, path: &Path, only: &[u16], verbose: bool) -> Result<()> {
    let layout = match layout_of(tool, path) {
        Ok(layout) => layout,
        Err(Errno::ENODATA) => return Ok(()),
        Err(e) => {
            tool.complain(format_args!("lfs verify: cannot open '{}': {e}", path.display()));
            return Err(e);
        }
    };
    if !layout.is_mirrored() {
        return Ok(());
    }
    if let Some(unknown) = only.iter().find(|id| !layout.mirror_ids().contains(id)) {
        let path = path.display();
        tool.complain(format_args!("lfs verify: file '{path}' does not contain mirror with id {unknown}"));
        return Err(Errno::EINVAL);
    }
    let mut verdict = Ok(());
    for chunk in chunks(&layout) {
        let seen = compare(tool, path, &layout, only, chunk, verbose);
        verdict = verdict.and(seen);
        if !matches!(verdict, Ok(()) | Err(Errno::ESTALE | Errno::EUCLEAN)) {
            let why = verdict.err().unwrap_or(Errno::EIO);
            tool.complain(format_args!("lfs verify: cannot read '{}': {why}", path.display()));
            break;
        }
    }
    verdict
}

/// Returns ranges within which no component of any mirror ends.
fn chunks(layout: &Layout) -> Vec<(u64, u64)> {
    let ends: BTreeSet<u64> = layout.components().iter().flat_map(|c| [c.start, c.end]).collect();
    let ends: Vec<u64> = ends.into_iter().collect();
    ends.windows(2).map(|w| (w[0], w[1])).collect()
}

/// Compares one chunk.
fn compare(
    tool: &mut Tool,
    path: &Path,
    layout: &Layout,
    only: &[u16],
    (start, end): (u64, u64),
    verbose: bool,
) -> Result<()> {
    let size = tool.fs.size(path)?;
    if start >= size && start > 0 {
        return Ok(());
    }
    let (mut fresh, mut stale) = (Vec::new(), Vec::new());
    for mirror in layout.mirrors().iter().filter(|m| only.is_empty() || only.contains(&m.mirror_id())) {
        let id = mirror.mirror_id();
        let sum = checksum(tool, path, id, start, end.min(size))?;
        let is_stale = !mirror.is_fresh();
        if is_stale { &mut stale } else { &mut fresh }.push((id, sum));
    }
    let differ = fresh.windows(2).any(|w| w[0].1 != w[1].1);
    if !stale.is_empty() {
        show(tool, (start, end.min(size)), &stale, " (stale)");
    } else if differ || verbose {
        show(tool, (start, end.min(size)), &fresh, "");
    }
    match &fresh[..] {
        [(id, _)] if verbose => {
            let path = path.display();
            let chunk = format!("[{start:#x}, {end:#x})").replace("[0x0,", "[0,");
            tool.print(format_args!("lfs verify: '{path}' chunk {chunk} is only valid in mirror {id}: skipped\n"));
        }
        [first, rest @ ..] if differ => {
            let other = rest.iter().find(|other| other.1 != first.1).unwrap_or(first);
            let chunk = format!("[{start:#x}, {end:#x})").replace("[0x0,", "[0,");
            tool.complain(format_args!(
                "lfs verify: chunk {chunk} has different checksum value on mirror {}:{:x} and mirror {}:{:x}: {}",
                first.0,
                first.1,
                other.0,
                other.1,
                Errno::EUCLEAN
            ));
        }
        _ => {}
    }
    match (stale.is_empty(), differ) {
        (false, _) => Err(Errno::ESTALE),
        (true, true) => Err(Errno::EUCLEAN),
        (true, false) => Ok(()),
    }
}

fn show(tool: &mut Tool, (start, end): (u64, u64), sums: &[(u16, u32)], note: &str) {
    let chunk = format!("[{start:#x}, {end:#x})").replace("[0x0,", "[0,");
    tool.print(format_args!("CRC-32 checksum value for chunk {chunk}:\n"));
    for (id, sum) in sums {
        tool.print(format_args!("Mirror {id}:\t{sum:#x}{note}\n"));
    }
    tool.print(format_args!("\n"));
}

/// Returns the checksum of a range of a mirror. Bytes that the mirror lacks at its end are left
/// out.
fn checksum(tool: &Tool, path: &Path, id: u16, start: u64, end: u64) -> Result<u32> {
    let file = tool.fs.mirror(path, id, false)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut crc, mut at) = (Crc::default(), start);
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let n = file.read_at(&mut buffer[..len], at).map_err(Errno::from)?;
        if n == 0 {
            break;
        }
        crc.add(&buffer[..n]);
        at += n as u64;
    }
    Ok(crc.value())
}
