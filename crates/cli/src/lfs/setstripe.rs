//! `lfs setstripe`: creates files with a layout, sets and deletes defaults of directories.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use sheen_layout::{Count, POOL_NAME_MAX, STRIPE_SIZE_UNIT, STRIPES_MAX, Spec};
use sheen_wire::{Errno, FileKind, Result};

use super::{
    Tool,
    fs::{self, FileSystem},
    getopt::{self, Item, Value},
    keep_first,
    numbers::{parse_signed, parse_size, parse_unsigned},
    text, usage,
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "c:C:dE:Fhi:I:L:m:N::o:p:s:S:vx:y:z:",
    long: &[
        ("stripe-count", Value::Required, "c"),
        ("stripe_count", Value::Required, "c"),
        ("count", Value::Required, "c"),
        ("overstripe-count", Value::Required, "C"),
        ("delete", Value::No, "d"),
        ("destroy", Value::No, "d"),
        ("help", Value::No, "h"),
        ("stripe-index", Value::Required, "i"),
        ("stripe_index", Value::Required, "i"),
        ("index", Value::Required, "i"),
        ("offset", Value::Required, "i"),
        ("layout", Value::Required, "L"),
        ("mode", Value::Required, "mode"),
        ("ost", Value::Required, "o"),
        ("ost-list", Value::Required, "o"),
        ("ost_list", Value::Required, "o"),
        ("pool", Value::Required, "p"),
        ("stripe-size", Value::Required, "S"),
        ("stripe_size", Value::Required, "S"),
        ("size", Value::Required, "S"),
        ("verbose", Value::No, "v"),
        ("comp-add", Value::No, "composite"),
        ("component-add", Value::No, "composite"),
        ("comp-del", Value::No, "composite"),
        ("component-del", Value::No, "composite"),
        ("comp-set", Value::No, "composite"),
        ("component-set", Value::No, "composite"),
        ("comp-end", Value::Required, "E"),
        ("component-end", Value::Required, "E"),
        ("comp-flags", Value::Required, "composite"),
        ("component-flags", Value::Required, "composite"),
        ("comp-id", Value::Required, "I"),
        ("component-id", Value::Required, "I"),
        ("mirror-count", Value::Optional, "N"),
        ("ext-size", Value::Required, "z"),
        ("extension-size", Value::Required, "z"),
        ("copy", Value::Required, "copied"),
        ("yaml", Value::Required, "y"),
        ("foreign", Value::Optional, "foreign"),
        ("xattr", Value::Required, "x"),
    ],
};

/// Mode of created files before the umask.
const MODE_DEFAULT: u32 = 0o644;
/// Most links in a row, as the kernel's.
const LINKS_MAX: usize = 40;

/// What was asked for.
struct Asked {
    spec: Spec,
    /// `-o`'s count must be this, where `-c` or `-C` says so.
    count: Option<i64>,
    delete: bool,
    mode: u32,
    pool: Option<String>,
    /// Anything but `-d`.
    sets: bool,
    /// `-x` was given, which belongs to foreign layouts alone.
    xattr: bool,
}

/// How a call was wrong.
enum Wrong {
    /// Print the usage and this.
    Call(String),
    /// Print this and fail.
    Value(String, Errno),
}

fn call(text: impl fmt::Display) -> Wrong {
    Wrong::Call(format!("lfs setstripe setstripe: {text}"))
}

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let mut asked = Asked {
        spec: Spec::default(),
        count: None,
        delete: false,
        mode: MODE_DEFAULT,
        pool: None,
        sets: false,
        xattr: false,
    };
    let mut paths = Vec::new();
    for item in OPTIONS.parse(args) {
        let done = match item {
            Item::Option { id: "h", .. } => return tool.help(usage::SETSTRIPE),
            Item::Option { id, value, next } => {
                option(&mut asked, id, value.as_deref().map_or("", text), args.get(next).map_or("(null)", |a| text(a)))
            }
            Item::Operand(path) => {
                paths.push(PathBuf::from(path));
                Ok(())
            }
            Item::Unrecognized(arg) => {
                Err(Wrong::Call(format!("lfs setstripe: unrecognized option '{}'", arg.display())))
            }
        };
        if let Err(wrong) = done {
            return report(tool, wrong);
        }
    }
    if let Err(wrong) = check(&asked, paths.is_empty()) {
        return report(tool, wrong);
    }
    if asked.xattr {
        tool.complain(format_args!("lfs setstripe setstripe: xattr has been specified for non-foreign layout"));
    }
    let mut code = 0;
    for path in &paths {
        if let Err(e) = apply(tool, path, &asked) {
            keep_first(&mut code, e);
        }
    }
    code
}

fn report(tool: &mut Tool, wrong: Wrong) -> i32 {
    match wrong {
        Wrong::Call(text) => tool.usage(usage::SETSTRIPE, format_args!("{text}")),
        Wrong::Value(text, e) => {
            tool.complain(format_args!("{text}"));
            e.0
        }
    }
}

fn option(asked: &mut Asked, id: &str, value: &str, next: &str) -> Result<(), Wrong> {
    asked.sets |= !matches!(id, "d" | "v" | "mode" | "x");
    match id {
        "c" | "C" => {
            let least = if id == "C" { -32 } else { -1 };
            let number = parse_signed(value).filter(|n| (least..=STRIPES_MAX as i64).contains(n));
            let number = number.ok_or_else(|| call(format_args!("invalid stripe count '{value}'")))?;
            // The last of -c and -C wins.
            asked.spec.count = Count::from_number(number).ok().flatten();
            asked.spec.overstripe = id == "C" && number != 0;
            asked.count = Some(number);
        }
        "S" | "s" => asked.spec.stripe_size = stripe_size(value)?,
        "i" => {
            let number = parse_signed(value).filter(|n| (-1..i64::from(u16::MAX)).contains(n));
            let number = number.ok_or_else(|| call(format_args!("invalid stripe offset '{value}'")))?;
            asked.spec.start = u32::try_from(number).ok();
        }
        "o" => {
            let list = ost_list(value).ok_or_else(|| call(format_args!("invalid OST target(s) '{value}'")))?;
            asked.spec.osts.extend(list);
        }
        "p" => asked.pool = Some(pool_name(value)?),
        "L" => match value {
            "raid0" => {}
            "mdt" => {
                let e = Errno::EINVAL;
                let text =
                    format!("lfs setstripe: Invalid pattern: '-L mdt', must be specified with -E: {e} ({})", e.0);
                return Err(Wrong::Value(text, e));
            }
            _ => {
                // Lustre names the argument after the wrong one.
                let text = format!("error: layout '{next}' is unknown, supported layouts are: 'mdt', 'raid0'");
                return Err(Wrong::Value(text, Errno::EINVAL));
            }
        },
        "mode" => {
            let mode = u32::from_str_radix(value, 8).ok().filter(|m| *m <= 0o7777);
            asked.mode = mode.ok_or_else(|| call(format_args!("invalid mode '{value}'")))?;
        }
        "d" => asked.delete = true,
        "v" => {}
        "x" => asked.xattr = true,
        _ => {
            let e = Errno::EOPNOTSUPP;
            let text = format!("lfs setstripe: only plain layouts (-c -C -S -i -o) are supported: {e} ({})", e.0);
            return Err(Wrong::Value(text, e));
        }
    }
    Ok(())
}

/// `-S`: 0 is the default.
fn stripe_size(value: &str) -> Result<Option<u32>, Wrong> {
    let size = parse_size(value).filter(|n| n.is_multiple_of(u64::from(STRIPE_SIZE_UNIT)));
    let size = size.ok_or_else(|| call(format_args!("invalid stripe size '{value}'")))?;
    let size = u32::try_from(size).map_err(|_| {
        let e = Errno::EINVAL;
        Wrong::Value(format!("lfs setstripe: error: stripe size '{size}' over 4GB limit: {e} ({})", e.0), e)
    })?;
    Ok((size != 0).then_some(size))
}

/// `0,2`, `0-3`, `0x1,2`. An index that cannot be (`-1`) is left for the MDT to refuse.
fn ost_list(value: &str) -> Option<Vec<u32>> {
    let mut list = Vec::new();
    for part in value.split(',') {
        if let Some(index) = parse_signed(part) {
            list.push(index as u32);
            continue;
        }
        let (first, last) = part.split_once('-')?;
        let (first, last) = (parse_unsigned(first)?, parse_unsigned(last)?);
        if last < first || last - first >= STRIPES_MAX as u64 {
            return None;
        }
        list.extend((first..=last).map(|i| i as u32));
    }
    (list.len() <= STRIPES_MAX).then_some(list)
}

/// `[FSNAME.]POOL`; empty for no pool.
fn pool_name(value: &str) -> Result<String, Wrong> {
    let name = value.split_once('.').map_or(value, |(_, pool)| pool);
    if name.len() > POOL_NAME_MAX {
        let e = Errno::EINVAL;
        return Err(Wrong::Value(format!("lfs setstripe: Invalid Poolname '{value}': {e} ({})", e.0), e));
    }
    Ok(if matches!(name, "none" | "ignore" | "inherit") { String::new() } else { name.to_owned() })
}

/// What only the options together tell.
fn check(asked: &Asked, no_file: bool) -> Result<(), Wrong> {
    let listed = asked.spec.osts.len();
    if asked.delete && asked.sets {
        return Err(call("option -d is mutually exclusive with -s, -c, -o, -p, -I, -F and -E options"));
    }
    if let Some(count) = asked.count
        && listed != 0
        && count > 0
        && usize::try_from(count) != Ok(listed)
    {
        return Err(Wrong::Call(format!("stripe_count({count}) != nr_tgts({listed})")));
    }
    if let Some(start) = asked.spec.start
        && listed != 0
        && !asked.spec.osts.contains(&start)
    {
        return Err(Wrong::Value(format!("Invalid stripe offset '{start}', not in the target list"), Errno::EINVAL));
    }
    if no_file {
        return Err(call("FILE must be specified"));
    }
    Ok(())
}

/// One file or directory. What went wrong was told.
fn apply(tool: &mut Tool, path: &Path, asked: &Asked) -> Result<()> {
    if let Some(pool) = asked.pool.as_deref().filter(|p| !p.is_empty()) {
        let (e, fsname) = (Errno::ENOENT, fsname_at(tool, path));
        let text = format_args!("lfs setstripe: pool '{pool} fsname {fsname}' does not exist: {e} ({})", e.0);
        tool.complain(text);
        return Err(Errno::EINVAL);
    }
    let spec = wire_spec(asked);
    let result = match tool.fs.kind(path, true) {
        Ok(FileKind::Dir) => return set_dir(tool.fs, path, asked, &spec).map_err(|e| refused(tool, path, asked, e)),
        Ok(FileKind::Regular) => Ok(path.to_owned()),
        Ok(_) => return Err(refused(tool, path, asked, Errno::ENOTTY)),
        Err(Errno::ENOENT) if asked.delete => return Ok(()),
        Err(Errno::ENOENT) => create(tool.fs, path, asked.mode),
        Err(e) => Err(e),
    };
    let path_of_file = result.map_err(|e| match e {
        Errno::ENOTTY => refused(tool, path, asked, e),
        e => {
            tool.complain(format_args!("lfs setstripe: unable to open '{}': {e} ({})", path.display(), e.0));
            e
        }
    })?;
    set_file(tool.fs, &path_of_file, asked, &spec).map_err(|e| refused(tool, path, asked, e))
}

/// The spec as it is sent: a count that only repeats the list's length is the list's.
fn wire_spec(asked: &Asked) -> Spec {
    let mut spec = asked.spec.clone();
    if !spec.osts.is_empty() {
        spec.count = None;
    }
    spec
}

/// Makes the file without a layout and says where; follows links to where it shall be.
fn create(fs: &dyn FileSystem, path: &Path, mode: u32) -> Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if path.as_os_str().is_empty() {
            return Err(Errno::ENOENT);
        }
        if fs.kind(&path, false) != Ok(FileKind::Symlink) {
            fs::fid_of(fs, &fs.resolve(fs::parent_of(&path))?)?;
            return match fs.make_file(&path, mode) {
                Ok(()) | Err(Errno::EEXIST) => Ok(path),
                Err(e) => Err(e),
            };
        }
        let target = fs.read_link(&path)?;
        path = fs::parent_of(&path).join(target);
    }
    Err(Errno::ELOOP)
}

fn set_file(fs: &dyn FileSystem, path: &Path, asked: &Asked, spec: &Spec) -> Result<()> {
    fs::fid_of(fs, &fs.resolve(path)?)?;
    if asked.delete {
        return match fs.get(path, "lustre.lov") {
            Ok(_) => Err(Errno::EEXIST),
            Err(Errno::ENODATA) => Ok(()),
            Err(e) => Err(e),
        };
    }
    fs.set(path, "lustre.lov", &spec.encode(), true)
}

fn set_dir(fs: &dyn FileSystem, path: &Path, asked: &Asked, spec: &Spec) -> Result<()> {
    fs::fid_of(fs, &fs.resolve(path)?)?;
    let done =
        if asked.delete { fs.remove(path, "lustre.lov") } else { fs.set(path, "lustre.lov", &spec.encode(), false) };
    match done {
        Err(Errno::ENODATA) if asked.delete => Ok(()),
        Err(Errno::EACCES) => Err(Errno::EPERM),
        done => done,
    }
}

/// Says that the layout was not accepted.
fn refused(tool: &mut Tool, path: &Path, asked: &Asked, e: Errno) -> Errno {
    const EREMOTEIO: Errno = Errno(121);
    let what = match e {
        Errno::EEXIST => "stripe already set".to_owned(),
        EREMOTEIO => format!("inactive OST among your specified {} OST(s)", asked.spec.osts.len()),
        e => e.to_string(),
    };
    tool.complain(format_args!("lfs setstripe: setstripe error for '{}': {what}", path.display()));
    e
}

/// The name of the file system where `path` is or shall be.
fn fsname_at(tool: &Tool, path: &Path) -> String {
    let info = tool.mount_of(path).or_else(|_| tool.mount_of(fs::parent_of(path)));
    info.map_or_else(|_| String::new(), |i| i.fsname)
}

#[cfg(test)]
mod tests;
