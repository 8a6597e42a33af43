//! `lfs project`: lists, sets, checks and clears project ids and inheritance flags of files.
//!
//! As in Lustre, a directory operand also stands for the entries of the directory, and with `-r`
//! for everything below. A list leaves out the directory itself. `-d` is about the directory alone.

use std::{
    collections::VecDeque,
    ffi::OsString,
    path::{Path, PathBuf},
};

use sheen_wire::{FileKind, Project, project::ID_MAX};

use super::{
    getopt::{self, Item, Value},
    host,
    tool::{Tool, text},
};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "0cCdkp:rs",
    long: &[
        ("print0", Value::No, "0"),
        ("check", Value::No, "c"),
        ("clear", Value::No, "C"),
        ("directory", Value::No, "d"),
        ("keep", Value::No, "k"),
        ("proj-inherit", Value::Required, "p"),
        ("recursive", Value::No, "r"),
        ("set-inherit", Value::No, "s"),
        ("inherit", Value::No, "s"),
    ],
};

/// Usage of `project`, in Lustre's wording.
pub const USAGE: &str = "\
Change or list project attribute for specified file or directory.
usage: project [-d|--directory] [-r|--recursive] FILE|DIRECTORY...
         list project ID and flags on file(s) or directories
       project [-p|--proj-inherit|--inherit ID] [-s|--set-inherit]
                       [-d|--directory] [-r|--recursive] FILE|DIRECTORY...
         set project ID and/or inherit flag for specified file(s) or directories
       project -c|--check [-p|--proj-inherit|--inherit ID]
               [-0|--print0] [-d|--directory] [-r|--recursive]
               FILE|DIRECTORY...
         check project ID and flags on file(s) or directories, print outliers
       project -C|--clear [-k|--keep] [-d|--directory]
               [-r|--recursive] FILE|DIRECTORY...
         clear the project inherit flag and ID on the file or directory

";

/// Exit code if lstat(2) or the change of a project failed, whatever the errno, as in Lustre. All
/// other failures exit with their errno.
const EXIT_FAILURE: i32 = 1;

/// The operation of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    List,
    Set,
    Check,
    Clear,
}

/// The options of a call.
struct ProjectOptions {
    action: Action,
    id: Option<u32>,
    /// Set the inheritance flag.
    inherit: bool,
    /// Only the operands themselves.
    directory: bool,
    recursive: bool,
    /// Clear only the flag.
    keep: bool,
    /// Names of a check end with a NUL, without a reason.
    print0: bool,
}

/// Runs `lfs project`.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (asked, paths) = match parse(args) {
        Ok(parsed) => parsed,
        Err(wrong) => return tool.usage(USAGE, format_args!("{wrong}")),
    };
    let mut code = 0;
    for path in &paths {
        if let Err(failed) = operand(tool, Path::new(path), &asked)
            && code == 0
        {
            code = failed;
        }
    }
    code
}

/// Parses the arguments. The error is the message for the user.
fn parse(args: &[OsString]) -> Result<(ProjectOptions, Vec<OsString>), String> {
    let mut asked = ProjectOptions {
        action: Action::List,
        id: None,
        inherit: false,
        directory: false,
        recursive: false,
        keep: false,
        print0: false,
    };
    let mut paths = Vec::new();
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id, value, .. } => option(&mut asked, id, value.as_deref().map_or("", text))?,
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => return Err(format!("lfs: unrecognized option '{}'", arg.display())),
        }
    }
    if asked.action == Action::List && asked.id.is_some() {
        asked.action = Action::Set;
    }
    check_options(&asked)?;
    if paths.is_empty() {
        return Err("lfs: missing file or directory target(s)".to_owned());
    }
    Ok((asked, paths))
}

fn option(asked: &mut ProjectOptions, id: &str, value: &str) -> Result<(), String> {
    let action = match id {
        "c" => Action::Check,
        "C" => Action::Clear,
        "s" => Action::Set,
        _ => Action::List,
    };
    if action != Action::List {
        if asked.action != Action::List {
            return Err("lfs: cannot specify '-c' '-C' '-s' together".to_owned());
        }
        asked.action = action;
    }
    match id {
        "0" => asked.print0 = true,
        "d" => asked.directory = true,
        "k" => asked.keep = true,
        "p" => {
            // Decimal only, as in Lustre: `010` is 10.
            let number = value.parse::<u32>().ok().or_else(|| host::project(value)).filter(|id| *id <= ID_MAX);
            asked.id = Some(number.ok_or_else(|| format!("invalid project id '{value}'"))?);
        }
        "r" => asked.recursive = true,
        "s" => asked.inherit = true,
        _ => {}
    }
    Ok(())
}

/// Checks the options against the action.
fn check_options(asked: &ProjectOptions) -> Result<(), String> {
    let (useless, with) = match asked.action {
        Action::Check if asked.keep => ("-k", "-c"),
        Action::Clear if asked.print0 => ("-0", "-C"),
        Action::Clear if asked.id.is_some() => ("-p", "-C"),
        Action::Set if asked.print0 => ("-0", "-s"),
        Action::Set if asked.keep => ("-k", "-s"),
        Action::List if asked.print0 => return Err("lfs: '-0' is useless for list operations".to_owned()),
        _ => return Ok(()),
    };
    Err(format!("lfs: '{useless}' is useless together with '{with}'"))
}

/// Works on an operand, and on the entries that it stands for. If the operand itself fails, its
/// entries stay as they are. A failure of an entry does not stop the work on others. Failures are
/// reported. The error is the exit code of the first one.
fn operand(tool: &mut Tool, path: &Path, asked: &ProjectOptions) -> Result<(), i32> {
    let is_dir = kind(tool, path)? == FileKind::Dir;
    let alone = !is_dir || asked.directory;
    let mut tree = None;
    if alone || asked.action != Action::List {
        file(tool, path, is_dir, asked, &mut tree)?;
    }
    let mut done = Ok(());
    let mut dirs: VecDeque<PathBuf> = (!alone).then(|| path.to_owned()).into_iter().collect();
    while let Some(dir) = dirs.pop_front() {
        done = done.and(directory(tool, &dir, asked, &mut tree, &mut dirs));
    }
    done
}

/// Works on the entries of a directory, in the order of their names. With `-r` adds subdirectories
/// to `dirs`.
fn directory(
    tool: &mut Tool,
    dir: &Path,
    asked: &ProjectOptions,
    tree: &mut Option<u32>,
    dirs: &mut VecDeque<PathBuf>,
) -> Result<(), i32> {
    let mut names = tool.fs.list(dir).map_err(|e| {
        tool.complain(format_args!("lfs: failed to opendir '{}': {e}", dir.display()));
        e.0
    })?;
    names.sort_unstable();
    let mut done = Ok(());
    for name in names {
        let path = dir.join(name);
        let entry = kind(tool, &path).and_then(|kind| {
            let is_dir = kind == FileKind::Dir;
            if is_dir && asked.recursive {
                dirs.push_back(path.clone());
            }
            file(tool, &path, is_dir, asked, tree)
        });
        done = done.and(entry);
    }
    done
}

/// Returns the type of a file, without following a symbolic link.
fn kind(tool: &mut Tool, path: &Path) -> Result<FileKind, i32> {
    tool.fs.kind(path, false).map_err(|e| {
        tool.complain(format_args!("lfs: failed to lstat '{}': {e}", path.display()));
        EXIT_FAILURE
    })
}

/// Works on one file. `tree`: the id with which a check without `-p` compares; that of the first
/// file.
fn file(tool: &mut Tool, path: &Path, is_dir: bool, asked: &ProjectOptions, tree: &mut Option<u32>) -> Result<(), i32> {
    let project = tool.fs.project(path).map_err(|e| {
        tool.complain(format_args!("lfs: failed to get xattr for '{}': {e}", path.display()));
        e.0
    })?;
    let wanted = match asked.action {
        Action::List => {
            let flag = if project.inherits { 'P' } else { '-' };
            tool.print(format_args!("{:>5} {flag} ", project.id));
            print_name(tool, path, b"\n");
            return Ok(());
        }
        Action::Check => {
            let tree = asked.id.unwrap_or_else(|| *tree.get_or_insert(project.id));
            check(tool, path, is_dir, project, tree, asked.print0);
            return Ok(());
        }
        Action::Set => Project { id: asked.id.unwrap_or(project.id), inherits: project.inherits || asked.inherit },
        Action::Clear => Project { id: if asked.keep { project.id } else { 0 }, inherits: false },
    };
    if wanted == project {
        return Ok(());
    }
    tool.fs.set_project(path, wanted).map_err(|e| {
        tool.complain(format_args!("lfs: failed to set xattr for '{}': {e}", path.display()));
        EXIT_FAILURE
    })
}

/// Prints a file that does not belong to the project as a whole.
fn check(tool: &mut Tool, path: &Path, is_dir: bool, project: Project, tree: u32, print0: bool) {
    let (lacks_flag, differs) = (is_dir && !project.inherits, project.id != tree);
    if print0 {
        if lacks_flag || differs {
            print_name(tool, path, b"\0");
        }
        return;
    }
    if lacks_flag {
        print_name(tool, path, b" - project inheritance flag is not set\n");
    }
    if differs {
        print_name(tool, path, b" - project identifier is not set ");
        tool.print(format_args!("(inode={}, tree={tree})\n", project.id));
    }
}

/// Prints a path, which need not be text, and `end` after it.
fn print_name(tool: &mut Tool, path: &Path, end: &[u8]) {
    tool.print_bytes(path.as_os_str().as_encoded_bytes());
    tool.print_bytes(end);
}

#[cfg(test)]
mod tests;
