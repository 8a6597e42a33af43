//! `lfs setstripe`: creates files with a layout, sets and deletes defaults of directories, and
//! changes the components of files.

mod components;
mod edit;
mod options;
mod sanity;
mod source;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use sheen_admin::{FileSystem, paths::parent_of};
use sheen_layout::{Asked, LAYOUT_BYTES_MAX, Template};
use sheen_wire::{
    Errno, FileKind, Result,
    control::{self, MountInfo, TargetInfo},
    mgs::{Pool, TargetKind},
};

use super::{
    getopt::Item,
    pool_list,
    tool::{Tool, keep_first, text},
    usage,
};
use components::Draft;
use edit::Edit;
pub use options::{Call, LAYOUT_LONG, Wrong};
use options::{OPTIONS, call, invalid};
pub use sanity::{check, check_beside};

/// Mode of created files before the umask.
const MODE_DEFAULT: u32 = 0o644;
/// Most symbolic links that are followed in a row, as in the kernel.
const LINKS_MAX: usize = 40;

/// The operation on each operand.
enum Work {
    Plain(Asked),
    Composite(Template),
    Copy(PathBuf),
    Delete,
    /// Adds components after a file's last one.
    Add(Template),
    Edit(Edit),
}

/// The work on all operands.
struct Job {
    work: Work,
    mode: u32,
    /// Pools that the options name.
    pools: Vec<String>,
    /// The file system whose pools were fetched last, and its pools.
    known: Option<(String, Result<Vec<Pool>>)>,
}

/// The options of `lfs mirror create` and `extend`, as far as they are those of `setstripe`.
pub struct MirrorOptions {
    /// The mirrors; `None` if the options describe none.
    pub template: Option<Template>,
    /// Mode of created files before the umask.
    pub mode: u32,
    /// Pools that the options name.
    pub pools: Vec<String>,
    /// The operands.
    pub paths: Vec<PathBuf>,
}

/// Parses the options of `lfs mirror create` and `extend`. Reports wrong options and returns the
/// exit code as the error.
pub fn mirrored(tool: &mut Tool, args: &[OsString]) -> Result<MirrorOptions, i32> {
    let (mut asked, paths) = read(tool, args)?;
    let (mode, pools) = (asked.mode.unwrap_or(MODE_DEFAULT), std::mem::take(&mut asked.pools));
    let template = match finish(tool, asked, &paths) {
        Ok(Work::Composite(template)) => Some(template),
        Ok(_) => None,
        Err(wrong) => return Err(report(tool, wrong)),
    };
    Ok(MirrorOptions { template, mode, pools, paths })
}

/// Whether these pools exist and have OSTs in the file system of `path`, which need not exist yet.
/// Returns true if that cannot be found out. Reports nothing.
pub fn pools_exist(tool: &mut Tool, path: &Path, pools: &[String]) -> bool {
    let Ok(mount) = ask_at::<MountInfo>(tool, path, control::MOUNT) else { return true };
    let has = |known: &[Pool], name: &String| known.iter().any(|p| p.name == *name && !p.osts.is_empty());
    // If the pools cannot be read, for example because the MGS does not answer, the MDT decides.
    pools.is_empty()
        || pool_list::pools_of(tool, &mount).map_or(true, |known| pools.iter().all(|name| has(&known, name)))
}

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut asked, paths) = match read(tool, args) {
        Ok(read) => read,
        Err(code) => return code,
    };
    let (mode, pools) = (asked.mode.unwrap_or(MODE_DEFAULT), std::mem::take(&mut asked.pools));
    let mut job = match finish(tool, asked, &paths) {
        Ok(work) => Job { work, mode, pools, known: None },
        Err(wrong) => return report(tool, wrong),
    };
    let mut code = 0;
    for path in &paths {
        if let Err(e) = apply(tool, path, &mut job) {
            keep_first(&mut code, e);
        }
    }
    code
}

/// Parses options and operands. Reports wrong options and returns the exit code as the error.
fn read(tool: &mut Tool, args: &[OsString]) -> Result<(Call, Vec<PathBuf>), i32> {
    let mut asked = Call::default();
    let mut paths = Vec::new();
    for item in OPTIONS.parse(args) {
        let done = match item {
            Item::Option { id: "h", .. } => return Err(tool.help(usage::SETSTRIPE)),
            Item::Option { id, value, next } => {
                asked.option(id, value.as_deref().map(text), args.get(next).map_or("(null)", |a| text(a)))
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
            return Err(report(tool, wrong));
        }
    }
    if paths.is_empty() {
        return Err(report(tool, call("FILE must be specified")));
    }
    if asked.xattr {
        tool.complain(format_args!("lfs setstripe setstripe: xattr has been specified for non-foreign layout"));
    }
    Ok((asked, paths))
}

/// Returns the layout that the options request as a value of `lustre.lov`, for other commands that
/// create files.
///
/// # Errors
/// The message of this command about wrong options.
pub fn wanted(tool: &mut Tool, asked: Call) -> Result<Vec<u8>, Wrong> {
    let asked = match finish(tool, asked, &[])? {
        Work::Plain(asked) => asked,
        Work::Composite(template) => {
            sanity::check(&template).map_err(|what| invalid(format_args!("lfs setstripe: Invalid layout: {what}")))?;
            Asked::Composite(template)
        }
        Work::Copy(from) => source::copy(tool, &from).map_err(|e| {
            let from = from.display();
            Wrong::Value(format!("lfs setstripe: can't create composite layout from file {from}: {e}"), e)
        })?,
        Work::Delete | Work::Add(_) | Work::Edit(_) => return Err(call("a layout must be specified")),
    };
    let value = asked.encode();
    if value.len() > LAYOUT_BYTES_MAX { Err(Wrong::Value(String::new(), Errno::ERANGE)) } else { Ok(value) }
}

/// Returns a request for the same layout as that of `path`. `None`: a directory, or a file without
/// a layout.
///
/// # Errors
/// The layout cannot be read.
pub fn layout_request_of(tool: &Tool, path: &Path) -> Result<Option<Vec<u8>>> {
    if tool.fs.kind(path, true)? == FileKind::Dir {
        return Ok(None);
    }
    let asked = source::copy(tool, path)?;
    Ok((!asked.is_default()).then(|| asked.encode()))
}

fn report(tool: &mut Tool, wrong: Wrong) -> i32 {
    match wrong {
        Wrong::Call(text) => tool.usage(usage::SETSTRIPE, format_args!("{text}")),
        Wrong::Value(text, e) => {
            if !text.is_empty() {
                tool.complain(format_args!("{text}"));
            }
            e.0
        }
    }
}

/// Combines all options into the operation that they describe.
fn finish(tool: &mut Tool, mut asked: Call, paths: &[PathBuf]) -> Result<Work, Wrong> {
    let striped = asked.draft.is_striped();
    let flags = asked.draft.flags;
    let invalid_layout = |what| invalid(format_args!("{what}\nerror: lfs setstripe: invalid layout"));
    if asked.builder.is_mirrored() {
        asked.builder.complete_mirror(&mut asked.draft).map_err(invalid_layout)?;
    } else if asked.draft.end != 0 {
        asked.builder.complete(&mut asked.draft).map_err(invalid_layout)?;
    }
    let composite = !asked.builder.is_empty();
    let on_dir = paths.first().is_some_and(|path| tool.fs.kind(path, false) == Ok(FileKind::Dir));
    asked.check(striped || composite, flags, on_dir)?;
    let Call { id, clear, .. } = asked;
    Ok(match asked {
        Call { delete: true, .. } => Work::Delete,
        Call { del: true, .. } => Work::Edit(Edit::Del { id, with: flags, without: clear }),
        Call { set: true, .. } => Work::Edit(Edit::Set { id, set: flags, clear }),
        Call { add: true, builder, .. } => Work::Add(builder.finish()),
        Call { copy: Some(from), .. } => Work::Copy(from),
        Call { yaml: Some(file), .. } => match source::yaml(tool, &file) {
            Ok(Asked::Composite(template)) => Work::Composite(template),
            Ok(plain) => Work::Plain(plain),
            Err(()) => return Err(Wrong::Value(String::new(), Errno::EINVAL)),
        },
        Call { builder, .. } if composite => Work::Composite(builder.finish()),
        Call { draft, .. } => Work::Plain(whole_file(&draft)?),
    })
}

/// Returns the request for a layout without components.
fn whole_file(draft: &Draft) -> Result<Asked, Wrong> {
    if draft.is_mdt {
        let e = Errno::EINVAL;
        let what = "lfs setstripe: Invalid pattern: '-L mdt', must be specified with -E";
        return Err(invalid(format_args!("{what}: {e} ({})", e.0)));
    }
    match draft.check_list() {
        Ok(()) => Ok(Asked::Plain(draft.spec())),
        Err(text) if text.starts_with("stripe_count") => Err(Wrong::Call(text)),
        Err(text) => Err(invalid(text)),
    }
}

/// Applies the operation to one file or directory. Reports failures.
fn apply(tool: &mut Tool, path: &Path, job: &mut Job) -> Result<()> {
    check_pools(tool, path, job)?;
    let mode = job.mode;
    match &job.work {
        Work::Delete => delete(tool, path),
        Work::Edit(edit) => edit.apply(tool, path),
        Work::Add(template) => match edit::append(tool, path, template) {
            Ok(added) => edit::add(tool, path, added),
            // The file has no layout yet, so these are its first components.
            Err(Errno::ENODATA) => composite(tool, path, template, mode),
            Err(e) => Err(e),
        },
        Work::Copy(from) => match source::copy(tool, from) {
            Ok(Asked::Composite(template)) => composite(tool, path, &template, mode),
            Ok(asked) => plain(tool, path, &asked, mode),
            Err(e) => {
                let from = from.display();
                tool.complain(format_args!("lfs setstripe: can't create composite layout from file {from}: {e}"));
                Err(e)
            }
        },
        Work::Plain(asked) => plain(tool, path, asked, mode),
        Work::Composite(template) => composite(tool, path, template, mode),
    }
}

/// Refuses pools that do not exist in the file system of `path`, or that have no OSTs, before
/// anything is created.
fn check_pools(tool: &mut Tool, path: &Path, job: &mut Job) -> Result<()> {
    let Ok(mount) = ask_at::<MountInfo>(tool, path, control::MOUNT) else { return Ok(()) };
    let fsname = mount.fsname.as_str();
    for name in &job.pools {
        let known = match &mut job.known {
            Some((of, known)) if of == fsname => known,
            known => &mut known.insert((fsname.to_owned(), pool_list::pools_of(tool, &mount))).1,
        };
        // If the pools cannot be read, for example because the MGS does not answer, the MDT
        // decides.
        let Ok(known) = known else { continue };
        let (e, wrong) = match known.iter().find(|pool| pool.name == *name) {
            None => (Errno::ENOENT, "does not exist"),
            Some(pool) if pool.osts.is_empty() => (Errno::EINVAL, "has no OSTs"),
            Some(_) => continue,
        };
        tool.complain(format_args!("lfs setstripe: pool '{name} fsname {fsname}' {wrong}: {e} ({})", e.0));
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Sets a layout without components.
fn plain(tool: &mut Tool, path: &Path, asked: &Asked, mode: u32) -> Result<()> {
    let system = tool.fs;
    let set = |path: &Path, create| {
        system.fid(&system.resolve(path)?)?;
        system.set(path, "lustre.lov", &asked.encode(), create)
    };
    let listed = asked.plain().map_or(0, |spec| spec.osts.len());
    let done = match tool.fs.kind(path, true) {
        Ok(FileKind::Dir) => set(path, false).map_err(not_the_owner),
        Ok(FileKind::Regular) => set(path, true),
        Ok(_) => Err(Errno::ENOTTY),
        Err(Errno::ENOENT) => match create(tool.fs, path, mode) {
            Ok(path) => set(&path, true),
            Err(Errno::ENOTTY) => Err(Errno::ENOTTY),
            Err(e) => return Err(not_opened(tool, path, e)),
        },
        Err(e) => return Err(not_opened(tool, path, e)),
    };
    done.map_err(|e| refused(tool, path, listed, e))
}

/// Sets a composite layout. A file that already has a layout stays as it is.
fn composite(tool: &mut Tool, path: &Path, template: &Template, mode: u32) -> Result<()> {
    let asked = Asked::Composite(template.clone());
    let value = asked.encode();
    let sane = sanity::check(template).and_then(|()| {
        let known = asked.osts().next().and_then(|_| osts_at(tool, path));
        let exists = |ost: u32| known.as_ref().is_none_or(|osts| osts.contains(&ost));
        if asked.osts().all(exists) { Ok(()) } else { Err("An unknown OST idx is specified") }
    });
    let kind = tool.fs.kind(path, true);
    let done = match (sane, kind) {
        (Err(what), _) => {
            tool.complain(format_args!("lfs setstripe: Invalid layout: {what}"));
            Err(Errno::EINVAL)
        }
        _ if value.len() > LAYOUT_BYTES_MAX => Err(Errno::ERANGE),
        (Ok(()), Ok(FileKind::Dir | FileKind::Regular)) => Ok(path.to_owned()),
        (Ok(()), Ok(_)) => Err(Errno::ENOTTY),
        (Ok(()), Err(Errno::ENOENT)) => create(tool.fs, path, mode),
        (Ok(()), Err(e)) => Err(e),
    };
    let system = tool.fs;
    let set = |path: PathBuf| {
        system.fid(&system.resolve(&path)?)?;
        system.set(&path, "lustre.lov", &value, false).map_err(not_the_owner)
    };
    done.and_then(set).map_err(|e| {
        let what = match kind {
            Ok(FileKind::Dir) => "set default composite layout for",
            _ => "create composite file",
        };
        let path = path.display();
        tool.complain(format_args!("lfs setstripe: lfs setstripe: cannot {what} '{path}': {e} ({})", e.0));
        // The exit code 1 is Lustre's -1.
        Errno::EPERM
    })
}

/// Deletes the default of a directory (`-d`). A file with a layout is refused.
fn delete(tool: &mut Tool, path: &Path) -> Result<()> {
    let kind = match tool.fs.kind(path, true) {
        Err(Errno::ENOENT) => return Ok(()),
        Err(e) => return Err(not_opened(tool, path, e)),
        Ok(kind) => kind,
    };
    let on_sheen = tool.fs.resolve(path).and_then(|path| tool.fs.fid(&path));
    let done = match (on_sheen, kind) {
        (Err(e), _) => Err(e),
        (Ok(_), FileKind::Dir) => tool.fs.remove(path, "lustre.lov").map_err(not_the_owner),
        (Ok(_), FileKind::Regular) => tool.fs.get(path, "lustre.lov").and(Err(Errno::EEXIST)),
        (Ok(_), _) => Err(Errno::ENOTTY),
    };
    match done {
        Ok(()) | Err(Errno::ENODATA) => Ok(()),
        Err(e) => Err(refused(tool, path, 0, e)),
    }
}

/// Maps the kernel's EACCES to Lustre's EPERM: only the owner may set a directory's default.
fn not_the_owner(e: Errno) -> Errno {
    if e == Errno::EACCES { Errno::EPERM } else { e }
}

fn not_opened(tool: &mut Tool, path: &Path, e: Errno) -> Errno {
    tool.complain(format_args!("lfs setstripe: unable to open '{}': {e} ({})", path.display(), e.0));
    e
}

/// Creates the file without a layout and returns its path. Follows dangling links to the path at
/// which the file is created.
pub fn create(fs: &dyn FileSystem, path: &Path, mode: u32) -> Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if path.as_os_str().is_empty() {
            return Err(Errno::ENOENT);
        }
        if fs.kind(&path, false) != Ok(FileKind::Symlink) {
            fs.fid(&fs.resolve(parent_of(&path))?)?;
            return match fs.make_file(&path, mode) {
                Ok(()) | Err(Errno::EEXIST) => Ok(path),
                Err(e) => Err(e),
            };
        }
        let target = fs.read_link(&path)?;
        path = parent_of(&path).join(target);
    }
    Err(Errno::ELOOP)
}

/// Reports that the layout was refused. `listed`: number of OSTs that the layout names.
fn refused(tool: &mut Tool, path: &Path, listed: usize, e: Errno) -> Errno {
    const EREMOTEIO: Errno = Errno(121);
    let what = match e {
        Errno::EEXIST => "stripe already set".to_owned(),
        EREMOTEIO => format!("inactive OST among your specified {listed} OST(s)"),
        e => e.to_string(),
    };
    tool.complain(format_args!("lfs setstripe: setstripe error for '{}': {what}", path.display()));
    e
}

/// Returns the attribute `name` of the mount that holds `path` or, if it does not exist, its
/// parent.
fn ask_at<T: serde::de::DeserializeOwned>(tool: &Tool, path: &Path, name: &str) -> Result<T> {
    let ask = |path: &Path| tool.ask(&tool.fs.resolve(path)?, name);
    match ask(path) {
        Err(Errno::ENOENT) => ask(parent_of(path)),
        answer => answer,
    }
}

/// Returns the indices of the OSTs in the file system of `path`, if they are known.
fn osts_at(tool: &Tool, path: &Path) -> Option<Vec<u32>> {
    let targets: Vec<TargetInfo> = ask_at(tool, path, control::DF).ok()?;
    Some(targets.iter().filter(|t| t.kind == TargetKind::Ost).map(|t| t.index).collect())
}

#[cfg(test)]
mod tests;
