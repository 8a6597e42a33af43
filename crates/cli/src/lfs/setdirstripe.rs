//! `lfs setdirstripe` and `lfs mkdir`, which do the same: they create directories that are striped
//! over MDTs, and set or delete the default for subdirectories of existing ones.

use std::{ffi::OsString, fmt, path::Path};

use rustix::fs::{CWD, Mode};
use sheen_admin::{System, paths::parent_of};
use sheen_layout::lmv::{
    DIR_STRIPES_MAX, HashType, INHERIT_MAX, INHERIT_NONE, INHERIT_OVERSTRIPED, INHERIT_PLAIN, INHERIT_RR_NONE,
    INHERIT_RR_UNLIMITED, INHERIT_STRIPED, INHERIT_UNLIMITED, LmvUser, STRIPES_PER_MDT_MAX,
};
use sheen_wire::{
    Errno, FileKind, Result,
    control::{self, TargetInfo},
    mgs::{TargetKind, target_name},
};

use super::{
    getopt::{self, Item, Value},
    numbers::{parse_signed, parse_unsigned},
    tool::{Tool, keep_first, text},
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "c:C:dDi:hH:m:o:t:T:x:X:",
    long: &[
        ("count", Value::Required, "c"),
        ("mdt-count", Value::Required, "c"),
        ("mdt-overcount", Value::Required, "C"),
        ("delete", Value::No, "d"),
        ("default", Value::No, "D"),
        ("default_stripe", Value::No, "D"),
        ("flags", Value::Required, "flags"),
        ("foreign", Value::Optional, "foreign"),
        ("help", Value::No, "h"),
        ("mdt-hash", Value::Required, "H"),
        ("mdt-index", Value::Required, "i"),
        ("mdt", Value::Required, "i"),
        ("index", Value::Required, "i"),
        ("mode", Value::Required, "o"),
        ("hash-type", Value::Required, "t"),
        ("xattr", Value::Required, "x"),
        ("max-inherit", Value::Required, "X"),
        ("max-inherit-rr", Value::Required, "max-inherit-rr"),
    ],
};

macro_rules! options {
    () => {
        "\t\t[--mdt-count|-c stripe_count>\n\
        \t\t[--help|-h] [--mdt-hash|-H mdt_hash]\n\
        \t\t[--mdt-index|-i mdt_index[,mdt_index,...]\n\
        \t\t[--mdt-overcount|-C stripe_count>\n\
        \t\t[--default|-D] [--mode|-o mode]\n\
        \t\t[--max-inherit|-X max_inherit]\n\
        \t\t[--max-inherit-rr max_inherit_rr] <dir>\n\
        To create dir with a foreign (free format) layout :\n\
        setdirstripe|mkdir --foreign[=FOREIGN_TYPE] -x|-xattr STRING \t\t[--mode|-o MODE] [--flags HEX] DIRECTORY\n\n"
    };
}

/// Usage of `setdirstripe`, in Lustre's wording.
pub const USAGE: &str = concat!(
    "Create striped directory on specified MDT, same as mkdir.\n\
    May be restricted to root or group users, depending on settings.\n\
    usage: setdirstripe [OPTION] <directory>\n",
    options!()
);
/// Usage of `mkdir`.
pub const MKDIR_USAGE: &str = concat!(
    "Create striped directory on specified MDT, same as setdirstripe.\n\
    usage: mkdir [OPTION] <directory>\n",
    options!()
);

/// Mode of new directories before the umask.
const MODE_DEFAULT: u32 = 0o777;
/// First mode of a new directory for which a mode is given: its owner needs write permission to set
/// the layout. The given mode is set afterwards.
const MODE_FIRST: u32 = 0o700;

/// Operations on directories, which only this command uses.
trait Directories {
    /// Creates a directory. The umask applies to the mode.
    fn make(&self, path: &Path, mode: u32) -> Result<()>;
    /// Sets the mode of a directory.
    fn set_mode(&self, path: &Path, mode: u32) -> Result<()>;
    /// Removes an empty directory.
    fn remove(&self, path: &Path);
}

impl Directories for System {
    fn make(&self, path: &Path, mode: u32) -> Result<()> {
        rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(mode)).map_err(|e| Errno(e.raw_os_error()))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> Result<()> {
        rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(|e| Errno(e.raw_os_error()))
    }

    fn remove(&self, path: &Path) {
        // If another process has put entries into it meanwhile, the directory stays.
        let _ = rustix::fs::rmdir(path);
    }
}

/// The options of a call.
#[derive(Default)]
struct SetdirstripeOptions {
    count: Option<i32>,
    /// Several stripes may lie on one MDT. Once set, this also applies to a later `-c`.
    overstriped: bool,
    hash: HashType,
    /// Indices of MDTs. -1: any.
    mdts: Vec<i64>,
    mode: Option<u32>,
    default: bool,
    delete: bool,
    foreign: bool,
    xattr: bool,
    max_inherit: Option<u8>,
    max_inherit_rr: Option<u8>,
}

/// Runs `lfs setdirstripe`.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    run_as(tool, args, "setdirstripe", &System)
}

/// Runs `lfs mkdir`.
pub fn mkdir(tool: &mut Tool, args: &[OsString]) -> i32 {
    run_as(tool, args, "mkdir", &System)
}

fn run_as(tool: &mut Tool, args: &[OsString], command: &'static str, directories: &dyn Directories) -> i32 {
    let usage = if command == "mkdir" { MKDIR_USAGE } else { USAGE };
    let mut asked = SetdirstripeOptions::default();
    let mut paths = Vec::new();
    for item in OPTIONS.parse(args) {
        let done = match item {
            Item::Option { id: "h", .. } => return tool.help(usage),
            Item::Option { id, value, .. } => {
                if id == "t" {
                    let instead = "use '--mdt-hash' or '-H' instead";
                    tool.complain(format_args!("warning: '--hash-type' and '-t' deprecated, {instead}"));
                }
                option(&mut asked, command, id, value.as_deref().map_or("", text))
            }
            Item::Operand(path) => {
                paths.push(path);
                Ok(())
            }
            Item::Unrecognized(arg) => Err(format!("lfs: unrecognized option '{}'", arg.display())),
        };
        if let Err(wrong) = done {
            return tool.usage(usage, format_args!("{wrong}"));
        }
    }
    if let Err(wrong) = check(&asked, command, paths.is_empty()) {
        return tool.usage(usage, format_args!("{wrong}"));
    }
    if asked.foreign {
        let e = Errno::EOPNOTSUPP;
        tool.complain(format_args!("lfs {command}: foreign directories are not supported: {e} ({})", e.0));
        return e.0;
    }
    warn(tool, &asked, command);
    let task = Task { command, directories, wanted: wanted(&asked), mode: asked.mode };
    let mut code = 0;
    for path in &paths {
        let path = Path::new(path);
        let (done, what) = match asked.default {
            true => (set_default(tool, path, &task), "set default stripe on"),
            false => (create(tool, path, &task), "create"),
        };
        if let Err(e) = done {
            tool.complain(format_args!("lfs setdirstripe: cannot {what} dir '{}': {e}", path.display()));
            keep_first(&mut code, e);
        }
    }
    code
}

/// Takes one option. The error is the message for the user.
fn option(asked: &mut SetdirstripeOptions, command: &str, id: &str, value: &str) -> Result<(), String> {
    let bad = |what: &str| Err(format!("lfs {command}: {what} '{value}'"));
    match id {
        "c" | "C" | "T" => {
            asked.overstriped |= id == "C";
            let least = if asked.overstriped { -i64::from(STRIPES_PER_MDT_MAX) } else { -1 };
            let count = parse_signed(value).filter(|n| (least..=i64::from(DIR_STRIPES_MAX)).contains(n));
            let count = count.and_then(|n| i32::try_from(n).ok());
            asked.count = Some(count.ok_or_else(|| format!("lfs: invalid stripe count '{value}'"))?);
        }
        "d" => (asked.delete, asked.default) = (true, true),
        "D" => asked.default = true,
        "H" | "t" => match HashType::parse(value) {
            Some(hash) => asked.hash = hash,
            None => return bad("bad directory hash type"),
        },
        "i" | "m" => match mdt_list(value, asked.mdts.len()) {
            Some(list) => asked.mdts.extend(list),
            None => return bad("invalid MDT target(s)"),
        },
        "o" => match u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777) {
            Some(mode) => asked.mode = Some(mode),
            None => return bad("bad MODE"),
        },
        "X" => asked.max_inherit = depth(command, "max-inherit", value, [INHERIT_NONE, INHERIT_UNLIMITED])?,
        "max-inherit-rr" if !asked.default => {
            return Err(format!("lfs {command}: '--max-inherit-rr' must be specified with '-D'"));
        }
        "max-inherit-rr" => {
            asked.max_inherit_rr = depth(command, "max-inherit-rr", value, [INHERIT_RR_NONE, INHERIT_RR_UNLIMITED])?;
        }
        "foreign" => asked.foreign = true,
        "flags" if !asked.foreign => {
            return Err(format!("lfs {command}: hex flags must be specified with --foreign option"));
        }
        "x" => asked.xattr = true,
        _ => {}
    }
    Ok(())
}

/// Parses a number of levels, -1 to 250. -2 means not set.
fn depth(command: &str, name: &str, value: &str, [none, unlimited]: [u8; 2]) -> Result<Option<u8>, String> {
    match value.parse::<i64>() {
        Ok(-2) => Ok(None),
        Ok(n) if n > i64::from(INHERIT_MAX) => Err(format!("lfs {command}: {name} {n} exceeds maximum {INHERIT_MAX}")),
        Ok(-1) => Ok(Some(unlimited)),
        Ok(0) => Ok(Some(none)),
        Ok(n) if n > 0 => Ok(Some(n as u8)),
        _ => Err(format!("lfs {command}: invalid {name} '{value}'")),
    }
}

/// Parses `0,2`, `0-3`, or `-1` for any. `before`: the number of MDTs listed before.
pub fn mdt_list(value: &str, before: usize) -> Option<Vec<i64>> {
    if value == "-1" {
        return (before == 0).then(|| vec![-1]);
    }
    let mut list = Vec::new();
    for part in value.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_unsigned(first)?, parse_unsigned(last)?);
        let room = (DIR_STRIPES_MAX as usize).checked_sub(before + list.len())?;
        if last < first || last - first >= room as u64 || last >= u64::from(u32::MAX) {
            return None;
        }
        list.extend((first..=last).map(|index| index as i64));
    }
    Some(list)
}

/// Checks the options against each other. The error is the message for the user.
fn check(asked: &SetdirstripeOptions, command: &str, no_directory: bool) -> Result<(), String> {
    let wrong = |text: &dyn fmt::Display| Err(format!("lfs {command}: {text}"));
    let somewhere = asked.count.is_some() || !asked.mdts.is_empty();
    if no_directory {
        return wrong(&"DIR must be specified");
    }
    if asked.foreign && !asked.xattr {
        return wrong(&"xattr must be provided in foreign mode");
    }
    if asked.foreign && (asked.default || somewhere) {
        return wrong(&"only --xattr/--flags/--mode options are valid with --foreign");
    }
    if asked.delete && somewhere {
        return wrong(&"cannot specify -d with -c or -i options");
    }
    if asked.default && asked.mdts.len() > 1 && asked.count.is_none() {
        return wrong(
            &"trying to create unrecommended default striped directory layout,\n\
            \t'-D -i x,y,z' will stripe every new directory across all MDTs,\n\
            \tadd -c with the number of MDTs to do this anyway",
        );
    }
    if let (Some(_), Some(mdt @ 0..)) = (asked.max_inherit_rr, asked.mdts.first().copied()) {
        return wrong(&format_args!("max-inherit-rr needs mdt-index=-1, not {mdt}"));
    }
    match (asked.mdts.len(), asked.count) {
        (listed @ 2.., Some(count @ 1..)) if usize::try_from(count) != Ok(listed) => {
            Err(format!("error: {command}: stripe count {count} doesn't match the number of MDTs: {listed}"))
        }
        _ => Ok(()),
    }
}

/// Warns of options that are allowed but probably a mistake.
fn warn(tool: &mut Tool, asked: &SetdirstripeOptions, command: &str) {
    if asked.xattr {
        tool.complain(format_args!("lfs {command}: xattr has been specified for non-foreign layout"));
    }
    let Some(count) = asked.count.filter(|n| asked.default && !matches!(n, 0 | 1)) else { return };
    let depth = match asked.max_inherit {
        Some(INHERIT_UNLIMITED) => -1,
        Some(depth) if depth > INHERIT_STRIPED + 2 && depth != INHERIT_NONE => i32::from(depth),
        _ => return,
    };
    tool.complain(format_args!("lfs {command}: unrecommended max-inherit={depth} when default stripe-count={count}"));
}

/// Returns the layout request that is sent.
fn wanted(asked: &SetdirstripeOptions) -> LmvUser {
    let first = asked.mdts.first().copied();
    let nothing_said = !asked.delete && first.is_none() && asked.count.is_none();
    let any_one = asked.default && first == Some(-1) && asked.count.unwrap_or(0) == 0;
    let count = if nothing_said || any_one { 1 } else { asked.count.unwrap_or(0) };
    let indices: Vec<u32> = asked.mdts.iter().filter_map(|mdt| u32::try_from(*mdt).ok()).collect();
    let twice = indices.iter().enumerate().any(|(i, mdt)| indices[..i].contains(mdt));
    let overstriped = asked.overstriped || twice;
    let by_count = if matches!(count, 0 | 1) { INHERIT_PLAIN } else { INHERIT_STRIPED };
    let one = LmvUser {
        mdt: indices.first().copied(),
        hash: if overstriped { asked.hash.with(HashType::OVERSTRIPED) } else { asked.hash },
        max_inherit: if overstriped { INHERIT_OVERSTRIPED } else { asked.max_inherit.unwrap_or(by_count) },
        max_inherit_rr: asked.max_inherit_rr.unwrap_or(INHERIT_RR_NONE),
        ..LmvUser::new(count)
    };
    if indices.len() > 1 { one.with_mdts(&indices) } else { one }
}

/// The work on each operand.
struct Task<'a> {
    command: &'static str,
    directories: &'a dyn Directories,
    wanted: LmvUser,
    mode: Option<u32>,
}

impl Task<'_> {
    /// Checks that the path is on a mount and that the requested MDTs exist.
    fn verify(&self, tool: &mut Tool, path: &Path) -> Result<()> {
        let Task { command, wanted, .. } = self;
        let here = if tool.fs.kind(path, true).is_ok() { path } else { parent_of(path) };
        let info = match tool.fs.resolve(here) {
            Err(e) => {
                let path = path.display();
                tool.complain(format_args!("lfs {command}: cannot resolve path '{path}': {e} ({})", e.0));
                Err(e)
            }
            Ok(_) => tool.mount_of(here).map_err(|e| if e == Errno::ENOTTY { Errno::ENODEV } else { e }),
        };
        let info = info.inspect_err(|e| {
            let path = path.display();
            tool.complain(format_args!("lfs {command}: '{path}' is not on a Lustre filesystem: {e} ({})", e.0));
        })?;
        if wanted.mdt.is_none() && wanted.stripes.is_empty() {
            return Ok(());
        }
        let targets: Vec<TargetInfo> = tool.ask(&tool.fs.resolve(here)?, control::DF)?;
        let there: Vec<u32> = targets.iter().filter(|t| t.kind == TargetKind::Mdt).map(|t| t.index).collect();
        let mut asked_for = wanted.mdt.into_iter().chain(wanted.stripes.iter().map(|s| s.mdt));
        match asked_for.find(|mdt| !there.contains(mdt)) {
            None => Ok(()),
            Some(mdt) => {
                let (e, name) = (Errno::ENODEV, target_name(&info.fsname, TargetKind::Mdt, mdt));
                tool.complain(format_args!("lfs {command}: cannot find MDT {name}_UUID in system: {e} ({})", e.0));
                Err(e)
            }
        }
    }

    /// Reports that the directory or its layout was refused.
    fn refused(&self, tool: &mut Tool, kind: &str, path: &Path, e: Errno) -> Errno {
        let what = if e == Errno::EEXIST { "stripe already set".to_owned() } else { e.to_string() };
        tool.complain(format_args!("lfs {}: {kind} error on '{}': {what}", self.command, path.display()));
        e
    }
}

/// Creates a directory. If the MDT refuses its layout, removes it again.
fn create(tool: &mut Tool, path: &Path, task: &Task) -> Result<()> {
    task.verify(tool, path)?;
    let made = task.directories.make(path, if task.mode.is_some() { MODE_FIRST } else { MODE_DEFAULT });
    let done = made.and_then(|()| {
        let set = tool.fs.set(path, "lustre.lmv", &task.wanted.encode(), false);
        let set = set.and_then(|()| task.mode.map_or(Ok(()), |mode| task.directories.set_mode(path, mode)));
        set.inspect_err(|_| task.directories.remove(path))
    });
    done.map_err(|e| task.refused(tool, "dirstripe", path, e))
}

/// Sets or deletes the default of an existing directory.
fn set_default(tool: &mut Tool, path: &Path, task: &Task) -> Result<()> {
    task.verify(tool, path)?;
    if !task.wanted.stripes.is_empty() {
        return Err(Errno::EINVAL);
    }
    let directory = match tool.fs.kind(path, true) {
        Ok(FileKind::Dir) => Ok(()),
        Ok(_) => Err(Errno::ENOTDIR),
        Err(e) => Err(e),
    };
    if let Err(e) = directory {
        let (command, path) = (task.command, path.display());
        tool.complain(format_args!("lfs {command}: unable to open '{path}': {e} ({})", e.0));
        return Err(e);
    }
    let set = tool.fs.set(path, "lustre.dmv", &task.wanted.encode(), false);
    // A user without write permission gets EPERM, like one who may write but is not the owner.
    set.map_err(|e| task.refused(tool, "default dirstripe", path, if e == Errno::EACCES { Errno::EPERM } else { e }))
}

#[cfg(test)]
mod tests;
