//! `lfs getdirstripe`: prints the striping of directories over MDTs, and the default of their
//! subdirectories.

use std::{
    ffi::OsString,
    fmt::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use sheen_layout::lmv::{INHERIT_NONE, INHERIT_RR_UNLIMITED, INHERIT_UNLIMITED, LmvUser, MAGIC_USER};
use sheen_wire::{
    Errno, Fid, FileKind, Result,
    control::{self, TargetInfo},
    mgs::TargetKind,
};

use super::{
    getopt::{self, Item, Value},
    tool::{Tool, keep_first, text},
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "cDFhHimO:rRtTvXy",
    long: &[
        ("mdt-count", Value::No, "c"),
        ("default", Value::No, "D"),
        ("fid", Value::No, "F"),
        ("help", Value::No, "h"),
        ("mdt-hash", Value::No, "H"),
        ("hex-idx", Value::No, "hex-idx"),
        ("mdt-index", Value::No, "i"),
        ("obd", Value::Required, "O"),
        ("recursive", Value::No, "r"),
        ("raw", Value::No, "R"),
        ("verbose", Value::No, "v"),
        ("max-inherit", Value::No, "X"),
        ("max-inherit-rr", Value::No, "max-inherit-rr"),
        ("yaml", Value::No, "y"),
    ],
};

/// Usage of the command.
pub const USAGE: &str = "\
To list the layout pattern info for a given directory\n\
or recursively for all directories in a directory tree.\n\
usage: getdirstripe [--mdt-count|-c] [--mdt-index|-m|-i]\n\
\t\t      [--help|-h] [--mdt-hash|-H] [--obd|-O UUID]\n\
\t\t      [--recursive|-r] [--yaml|-y] [--raw|-R]\n\
\t\t      [--verbose|-v] [--default|-D]\n\
\t\t      [--fid|-F] [--hex-idx]\n\
\t\t      [--max-inherit|-X]\n\
\t\t      [--max-inherit-rr] <dir> ...\n\
";

/// A set of fields to show. A single field is shown without its name.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Fields(u16);

impl Fields {
    const FID: Fields = Fields(1);
    const MAGIC: Fields = Fields(1 << 1);
    const COUNT: Fields = Fields(1 << 2);
    const OFFSET: Fields = Fields(1 << 3);
    const HASH: Fields = Fields(1 << 4);
    const INHERIT: Fields = Fields(1 << 5);
    const INHERIT_RR: Fields = Fields(1 << 6);
    const OBJECTS: Fields = Fields(1 << 7);
    /// The fields shown if none is requested.
    const DEFAULT: Fields = Fields(0xfc);
    const VERBOSE: Fields = Fields(0xff);

    fn has(self, other: Fields) -> bool {
        self.0 & other.0 != 0
    }

    fn add(&mut self, other: Fields) {
        self.0 |= other.0;
    }
}

/// The options of a call.
#[derive(Default)]
struct GetdirstripeOptions {
    fields: Fields,
    /// The default of subdirectories instead of the directory's own layout.
    default: bool,
    /// Only a default that is stored with the directory: set on it, or inherited.
    raw: bool,
    recursive: bool,
    yaml: bool,
    hex: bool,
    /// Only directories on this MDT.
    mdt: Option<String>,
}

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let mut asked = GetdirstripeOptions::default();
    let mut paths = Vec::new();
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "h", .. } => return tool.help(USAGE),
            Item::Option { id: "O", .. } if asked.mdt.is_some() => {
                return tool.usage(USAGE, format_args!("lfs: only one obduuid allowed"));
            }
            Item::Option { id, value, .. } => {
                if id == "t" {
                    tool.complain(format_args!("warning: '-t' deprecated, use '--mdt-hash' or '-H' instead"));
                }
                option(&mut asked, id, value.as_deref().map(text));
            }
            Item::Operand(path) => paths.push(PathBuf::from(path)),
            Item::Unrecognized(arg) => {
                return tool.usage(USAGE, format_args!("lfs: unrecognized option '{}'", arg.display()));
            }
        }
    }
    if paths.is_empty() {
        return tool.help(USAGE);
    }
    if asked.fields == Fields::default() {
        asked.fields = Fields::DEFAULT;
    }
    let mut code = 0;
    for path in &paths {
        if let Err(e) = getdirstripe(tool, path, &asked) {
            tool.complain(format_args!("lfs: getdirstripe for '{}' failed: {e}", path.display()));
            keep_first(&mut code, e);
        }
    }
    code
}

fn option(asked: &mut GetdirstripeOptions, id: &str, value: Option<&str>) {
    match id {
        "c" | "T" => asked.fields.add(Fields::COUNT),
        "F" => asked.fields.add(Fields::FID),
        "H" | "t" => asked.fields.add(Fields::HASH),
        "i" | "m" => asked.fields.add(Fields::OFFSET),
        "X" => asked.fields.add(Fields::INHERIT),
        "max-inherit-rr" => asked.fields.add(Fields::INHERIT_RR),
        "v" => asked.fields.add(Fields::VERBOSE),
        "D" => asked.default = true,
        "R" => asked.raw = true,
        "r" => asked.recursive = true,
        "y" => asked.yaml = true,
        "hex-idx" => asked.hex = true,
        "O" => asked.mdt = value.map(str::to_owned),
        _ => {}
    }
}

fn getdirstripe(tool: &mut Tool, path: &Path, asked: &GetdirstripeOptions) -> Result<()> {
    // Other files have no such layout: the command prints nothing and exits with 0.
    if tool.fs.kind(path, true)? != FileKind::Dir {
        return Ok(());
    }
    tool.check_readable("getdirstripe", path)?;
    let mark = match &asked.mdt {
        Some(name) => Some(find_mdt(tool, path, name)?),
        None => None,
    };
    show(tool, path, asked, mark)?;
    if asked.recursive { descend(tool, path, asked, mark) } else { Ok(()) }
}

/// Shows all directories below `path`. Continues after a failure and returns the first one.
fn descend(tool: &mut Tool, path: &Path, asked: &GetdirstripeOptions, mark: Option<u32>) -> Result<()> {
    let mut first = Ok(());
    // A stack instead of recursion, because the depth of a user's tree is unbounded.
    let mut stack = vec![tool.children("getdirstripe", path, &mut first)];
    while let Some(level) = stack.last_mut() {
        let Some(child) = level.pop() else {
            stack.pop();
            continue;
        };
        if tool.fs.kind(&child, false) != Ok(FileKind::Dir) {
            continue;
        }
        if let Err(e) = tool.check_readable("getdirstripe", &child) {
            first = first.and(Err(e));
            continue;
        }
        if let Err(e) = show(tool, &child, asked, mark) {
            tool.complain(format_args!("lfs getdirstripe: cannot get layout of '{}': {e} ({})", child.display(), e.0));
            first = first.and(Err(e));
        }
        stack.push(tool.children("getdirstripe", &child, &mut first));
    }
    first
}

fn show(tool: &mut Tool, path: &Path, asked: &GetdirstripeOptions, mark: Option<u32>) -> Result<()> {
    let place = tool.fs.resolve(path)?;
    let fid = tool.fs.fid(&place).inspect_err(|e| {
        if *e == Errno::ENOTTY {
            let path = path.display();
            tool.complain(format_args!("lfs getdirstripe: cb_getstripe: '{path}' not on a Lustre fs?: {e} ({})", e.0));
        }
    })?;
    let Some(lmv) = (if asked.default { default_of(tool, &place, asked.raw)? } else { Some(layout_of(tool, &place)?) })
    else {
        return Ok(());
    };
    if mark.is_some_and(|mdt| !is_on(&lmv, mdt)) {
        return Ok(());
    }
    if asked.recursive || (mark.is_some() && lmv.stripe_count > 0) {
        tool.print(format_args!("{}", if asked.default { "(Default)" } else { "" }));
        tool.print_bytes(path.as_os_str().as_bytes());
        tool.print(format_args!("\n"));
    }
    tool.print(format_args!("{}", draw(&lmv, fid, asked, mark)));
    Ok(())
}

/// Returns the striping of the directory's entries.
fn layout_of(tool: &Tool, place: &Path) -> Result<LmvUser> {
    match tool.fs.get(place, "lustre.lmv") {
        Ok(value) => Ok(LmvUser::decode(&value)?),
        Err(Errno::ENODATA) => {
            let mdt = tool.fs.get(place, control::MDT).ok();
            let index = mdt.and_then(|text| std::str::from_utf8(&text).ok()?.trim().parse().ok());
            Ok(LmvUser::plain(index.unwrap_or(0)))
        }
        Err(e) => Err(e),
    }
}

/// Returns the default in force in the directory, or with `raw` (superuser only) the default that
/// is stored with it. `None`: nothing to show.
fn default_of(tool: &Tool, place: &Path, raw: bool) -> Result<Option<LmvUser>> {
    match tool.fs.get(place, if raw { "trusted.dmv" } else { "lustre.dmv" }) {
        Ok(value) => Ok(Some(LmvUser::decode(&value)?)),
        Err(Errno::ENODATA) => Ok((!raw).then(|| LmvUser::new(0))),
        Err(e) => Err(e),
    }
}

fn is_on(lmv: &LmvUser, mdt: u32) -> bool {
    match lmv.stripe_count {
        0 => lmv.mdt == Some(mdt),
        _ => lmv.stripes.iter().any(|s| s.mdt == mdt),
    }
}

/// Returns the index of an MDT that is given as `fsname-MDT0000` or by UUID.
fn find_mdt(tool: &mut Tool, path: &Path, name: &str) -> Result<u32> {
    let targets: Vec<TargetInfo> = tool.ask(&tool.fs.resolve(path)?, control::DF)?;
    let is_it = |t: &&TargetInfo| t.uuid == name || t.uuid.strip_suffix("_UUID") == Some(name);
    match targets.iter().filter(|t| t.kind == TargetKind::Mdt).find(is_it) {
        Some(target) => Ok(target.index),
        None => {
            tool.complain(format_args!("lfs getdirstripe: error: llapi_ostlist: unknown obduuid: {name}"));
            Err(Errno::EINVAL)
        }
    }
}

/// Formats the layout, without the path before it.
fn draw(lmv: &LmvUser, fid: Fid, asked: &GetdirstripeOptions, mark: Option<u32>) -> String {
    let GetdirstripeOptions { fields, yaml, hex, .. } = *asked;
    let is_default = lmv.magic == MAGIC_USER;
    let inherit = |shown: String| if is_default { Some(shown) } else { None };
    let offset = match lmv.mdt {
        Some(mdt) => index(mdt, hex),
        None if hex => index(u32::MAX, hex),
        None => "-1".to_owned(),
    };
    let mut out = String::new();
    let mut separator = "";
    for (field, label, room, value) in [
        (Fields::FID, "lmv_fid: ", "          ", Some(bare(fid))),
        (Fields::MAGIC, "lmv_magic: ", "        ", Some(format!("{:#x}", lmv.magic))),
        (Fields::COUNT, "lmv_stripe_count: ", " ", Some(lmv.stripe_count.to_string())),
        (Fields::OFFSET, "lmv_stripe_offset: ", "", Some(offset)),
        (Fields::HASH, "lmv_hash_type: ", "    ", Some(lmv.hash.to_string())),
        (Fields::INHERIT, "lmv_max_inherit: ", "  ", inherit(levels(lmv.max_inherit, INHERIT_UNLIMITED, INHERIT_NONE))),
        (Fields::INHERIT_RR, "lmv_max_inherit_rr: ", "", inherit(levels(lmv.max_inherit_rr, INHERIT_RR_UNLIMITED, 0))),
    ] {
        let Some(value) = value.filter(|_| fields.has(field)) else { continue };
        out.push_str(separator);
        if fields != field {
            out.push_str(label);
            out.push_str(if yaml { room } else { "" });
        }
        out.push_str(&value);
        separator = if yaml { "\n" } else { " " };
    }
    out.push('\n');
    if fields.has(Fields::OBJECTS) && !is_default {
        draw_stripes(&mut out, lmv, fid, asked, mark);
    }
    out
}

/// Prints a row for each stripe. As YAML, a directory that is not striped has one row.
fn draw_stripes(out: &mut String, lmv: &LmvUser, fid: Fid, asked: &GetdirstripeOptions, mark: Option<u32>) {
    let whole = [(lmv.mdt.unwrap_or(0), fid)];
    let stripes: Vec<(u32, Fid)> = lmv.stripes.iter().map(|s| (s.mdt, s.fid)).collect();
    let shown = if asked.yaml && stripes.is_empty() { &whole[..] } else { &stripes[..] };
    if asked.yaml {
        out.push_str("lmv_objects:\n");
    } else if !shown.is_empty() {
        out.push_str("mdtidx\t\t FID[seq:oid:ver]\n");
    }
    for (mdt, fid) in shown.iter().filter(|(mdt, _)| mark.is_none_or(|mark| mark == *mdt)) {
        let index = index(*mdt, asked.hex);
        let _ = match asked.yaml {
            true => writeln!(out, "      - l_mdt_idx: {index}\n        l_fid:     {}", bare(*fid)),
            false => writeln!(out, "{index:>6}\t\t {fid}\t\t{}", if mark.is_some() { " *" } else { "" }),
        };
    }
}

/// Formats levels of inheritance as users write them. -1: unlimited.
fn levels(stored: u8, unlimited: u8, none: u8) -> String {
    match stored {
        n if n == unlimited => "-1".to_owned(),
        n if n == none => "0".to_owned(),
        n => n.to_string(),
    }
}

/// Formats like C's `%d` or `%#x`, which prints zero without a prefix.
fn index(n: u32, hex: bool) -> String {
    if hex && n != 0 { format!("{n:#x}") } else { n.to_string() }
}

/// Formats a FID without brackets.
fn bare(fid: Fid) -> String {
    fid.to_string().trim_matches(['[', ']']).to_owned()
}

#[cfg(test)]
mod tests;
