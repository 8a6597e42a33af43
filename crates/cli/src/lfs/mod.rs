//! `lfs`: the user tool, with Lustre's options, output and exit codes.
//!
//! `lfs` talks to mounts and knows no servers. It uses extended attributes of paths
//! (`wire::control`, `lustre.lov`) and a few ioctls on open files (`wire::ioctl`). Only the list of
//! pools may come from a server: the MGS that the mount names.
//!
//! Every command follows Lustre's conventions:
//! * A usage error prints the command's usage on stdout and the error on stderr, and exits with 4.
//! * A failure exits with its errno.
//! * With several operands, the first failure decides the exit code.

mod check;
mod data_version;
mod df;
mod fid2path;
mod find;
mod flushctx;
mod fs;
mod getdirstripe;
mod getname;
pub mod getopt;
mod getsom;
mod getstripe;
mod group_lock;
mod ladvise;
mod migrate;
mod mirror;
mod numbers;
mod pace;
mod path2fid;
pub mod pool_list;
mod rm_entry;
mod setdirstripe;
mod setstripe;
mod show;
mod swap_layouts;
mod targets;
#[cfg(test)]
mod testing;
mod usage;

use std::{
    ffi::{OsStr, OsString},
    fmt,
    io::{self, BufRead, IsTerminal, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use sheen_wire::{Errno, control, control::MountInfo};

use fs::FileSystem;

/// Exit code of a usage error (Lustre's CMD_HELP).
const EXIT_USAGE: i32 = 4;

/// Runs `lfs` and returns the exit code. `args` begins with the program's name.
pub fn main(args: Vec<OsString>) -> i32 {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let mut out = io::BufWriter::new(stdout.lock());
    let mut err = stderr.lock();
    let mut tool = Tool { fs: &fs::System, out: &mut out, err: &mut err };
    let code = match args.get(1..) {
        Some(command) if !command.is_empty() => tool.run(command),
        _ => tool.interactive(),
    };
    // A closed stdout, as in `lfs getstripe … | head`, is not a failure.
    let _ = out.flush();
    code
}

/// A command: its name, its usage text, and the function that runs it.
struct Command {
    name: &'static str,
    usage: &'static str,
    run: fn(&mut Tool, &[OsString]) -> i32,
}

const COMMANDS: &[Command] = &[
    Command { name: "help", usage: usage::LFS, run: help },
    Command { name: "--help", usage: usage::LFS, run: help },
    Command { name: "version", usage: "print the version\nusage: version\n", run: version },
    Command { name: "--version", usage: "print the version\nusage: version\n", run: version },
    Command { name: "list-commands", usage: "list the commands\nusage: list-commands\n", run: list_commands },
    Command { name: "--list-commands", usage: "list the commands\nusage: list-commands\n", run: list_commands },
    Command { name: "setstripe", usage: usage::SETSTRIPE, run: setstripe::run },
    Command { name: "getstripe", usage: usage::GETSTRIPE_HELP, run: getstripe::run },
    Command { name: "check", usage: usage::CHECK, run: check::run },
    Command { name: "osts", usage: usage::OSTS, run: targets::osts },
    Command { name: "mdts", usage: usage::MDTS, run: targets::mdts },
    Command { name: "find", usage: find::USAGE, run: find::run },
    Command { name: "df", usage: usage::DF, run: df::run },
    Command { name: "getname", usage: usage::GETNAME, run: getname::run },
    Command { name: "fid2path", usage: usage::FID2PATH, run: fid2path::run },
    Command { name: "path2fid", usage: usage::PATH2FID, run: path2fid::run },
    Command { name: "ladvise", usage: usage::LADVISE, run: ladvise::run },
    Command { name: "group_lock", usage: usage::GROUP_LOCK, run: group_lock::run },
    Command { name: "mirror", usage: mirror::USAGE, run: mirror::run },
    Command { name: "setdirstripe", usage: setdirstripe::USAGE, run: setdirstripe::run },
    Command { name: "mkdir", usage: setdirstripe::MKDIR_USAGE, run: setdirstripe::mkdir },
    Command { name: "getdirstripe", usage: getdirstripe::USAGE, run: getdirstripe::run },
    Command { name: "migrate", usage: migrate::USAGE, run: migrate::run },
    Command { name: "swap_layouts", usage: swap_layouts::USAGE, run: swap_layouts::run },
    Command { name: "rm_entry", usage: rm_entry::USAGE, run: rm_entry::run },
    Command { name: "rmentry", usage: rm_entry::USAGE, run: rm_entry::run },
    Command { name: "flushctx", usage: flushctx::USAGE, run: flushctx::run },
    Command { name: "data_version", usage: data_version::USAGE, run: data_version::run },
    Command { name: "getsom", usage: getsom::USAGE, run: getsom::run },
    Command { name: "pool_list", usage: pool_list::USAGE, run: pool_list::run },
];

/// The environment of a command: the file system and the two output streams.
struct Tool<'a> {
    fs: &'a dyn FileSystem,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

impl Tool<'_> {
    /// Prints to stdout. A closed stdout is not a failure.
    fn print(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text);
    }

    /// Prints to stdout and flushes, for output that is read while the command runs.
    fn print_now(&mut self, text: &str) {
        self.print(format_args!("{text}"));
        let _ = self.out.flush();
    }

    /// Prints bytes, such as names that are not text, to stdout.
    fn print_bytes(&mut self, bytes: &[u8]) {
        let _ = self.out.write_all(bytes);
    }

    /// Flushes stdout, then prints a line to stderr.
    fn complain(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.out.flush();
        let _ = writeln!(self.err, "{text}");
    }

    /// Reports a usage error: prints the usage and the error, and returns [`EXIT_USAGE`].
    fn usage(&mut self, usage: &str, wrong: fmt::Arguments<'_>) -> i32 {
        self.print(format_args!("{usage}"));
        self.complain(wrong);
        EXIT_USAGE
    }

    /// Prints the usage for `--help` and returns [`EXIT_USAGE`].
    fn help(&mut self, usage: &str) -> i32 {
        self.print(format_args!("{usage}"));
        EXIT_USAGE
    }

    fn run(&mut self, args: &[OsString]) -> i32 {
        let Some((name, rest)) = args.split_first() else { return 0 };
        match COMMANDS.iter().find(|c| name == c.name) {
            Some(command) => (command.run)(self, rest),
            None => {
                self.complain(format_args!(
                    "lfs: '{}' is not a valid command. See 'lfs --list-commands'.",
                    name.display()
                ));
                1
            }
        }
    }

    /// Runs one command per line of stdin, until the end of input, `quit` or `exit`.
    fn interactive(&mut self) -> i32 {
        let stdin = io::stdin();
        let prompt = stdin.is_terminal();
        loop {
            if prompt {
                self.print(format_args!("lfs > "));
                let _ = self.out.flush();
            }
            let mut line = String::new();
            match stdin.lock().read_line(&mut line) {
                Ok(0) | Err(_) => return 0,
                Ok(_) => {}
            }
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            if words.first().is_some_and(|w| w == "quit" || w == "exit") {
                return 0;
            }
            self.run(&words);
        }
    }

    /// Returns the JSON value of the control attribute `name` from the mount that `path` lies on.
    fn ask<T: DeserializeOwned>(&self, path: &Path, name: &str) -> Result<T, Errno> {
        let value = self.fs.get(path, name).map_err(fs::not_sheen)?;
        serde_json::from_slice(&value).map_err(|_| Errno::EPROTO)
    }

    /// Returns the mount that `path` lies on, following symbolic links. ENOTTY: not a Sheen mount.
    fn mount_of(&self, path: &Path) -> Result<MountInfo, Errno> {
        self.ask(&self.fs.resolve(path)?, control::MOUNT)
    }

    /// Returns the mount that `path` lies on. Without a path, returns all mounts that answer, as
    /// [`Tool::answering`].
    fn mounts(&mut self, command: &str, path: Option<&OsStr>, code: &mut i32) -> Result<Vec<PathBuf>, Errno> {
        match path {
            // The FID of the root needs no server. Requests to servers have timeouts of their own.
            None => Ok(self.answering(command, control::FID, None, code)),
            Some(path) => Ok(vec![PathBuf::from(self.mount_of(Path::new(path))?.mountpoint)]),
        }
    }

    /// Returns the mounts of this host, or of one file system, that answer a request for the
    /// attribute `name` within [`fs::ANSWER_WAIT`]. A mount that does not answer is reported on
    /// stderr and sets `code`. It does not hide the other mounts.
    fn answering(&mut self, command: &str, name: &'static str, fsname: Option<&str>, code: &mut i32) -> Vec<PathBuf> {
        let mut mounts = self.fs.mounts();
        mounts.retain(|mount| fsname.is_none_or(|fsname| mount.fsname == fsname));
        let points: Vec<PathBuf> = mounts.into_iter().map(|mount| mount.point).collect();
        let answers = self.fs.answers(&points, name);
        let (answering, silent): (Vec<_>, Vec<_>) = points.into_iter().zip(answers).partition(|(_, answers)| *answers);
        for (point, _) in silent {
            self.complain(format_args!(
                "lfs {command}: '{}' does not answer within {} s and is left out: \
                 its process may be stopped, hang or wait for a server",
                point.display(),
                fs::ANSWER_WAIT.as_secs()
            ));
            keep_first(code, Errno::ETIMEDOUT);
        }
        answering.into_iter().map(|(point, _)| point).collect()
    }
}

fn help(tool: &mut Tool, args: &[OsString]) -> i32 {
    let mut code = 0;
    if args.is_empty() {
        tool.print(format_args!("{}", usage::LFS));
    }
    for name in args {
        match COMMANDS.iter().find(|c| name == c.name) {
            Some(c) => tool.print(format_args!("{}: {}", c.name, c.usage)),
            None => {
                tool.complain(format_args!(
                    "lfs help: '{}' is not a valid command. See 'lfs --list-commands'.",
                    name.display()
                ));
                code = 1;
            }
        }
    }
    code
}

fn version(tool: &mut Tool, _: &[OsString]) -> i32 {
    tool.print(format_args!("lfs {}\n", env!("CARGO_PKG_VERSION")));
    0
}

/// Lists the commands in four columns of 20 characters.
fn list_commands(tool: &mut Tool, _: &[OsString]) -> i32 {
    for row in COMMANDS.chunks(4) {
        for command in row {
            tool.print(format_args!("{:<20}", command.name));
        }
        tool.print(format_args!("\n"));
    }
    0
}

/// Stores the errno of the first failure as the exit code.
fn keep_first(code: &mut i32, e: Errno) {
    if *code == 0 {
        *code = e.0;
    }
}

/// Returns an operand as text for parsing. Invalid UTF-8 becomes U+FFFD, which the parsers of
/// numbers, FIDs and option values refuse.
fn text(arg: &OsStr) -> &str {
    std::str::from_utf8(arg.as_bytes()).unwrap_or("\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::testing::{Fake, check_case, lfs};

    #[test]
    fn lfs_answers_help_version_and_unknown_command_like_lustre() {
        let mut fake = Fake::new("/mnt/c1");
        check_case(
            &mut fake,
            "$ lfs help\n[exit 0]\n--- stdout
usage: lfs [COMMAND] [OPTIONS]... [ARGS]
Without any parameters, interactive mode is invoked
Try 'lfs help <COMMAND>', or 'lfs --list-commands' for a list of commands.
",
        );
        check_case(
            &mut fake,
            "$ lfs nosuchcmd\n[exit 1]\n--- stderr
lfs: 'nosuchcmd' is not a valid command. See 'lfs --list-commands'.
",
        );
        check_case(&mut fake, &format!("$ lfs --version\n[exit 0]\n--- stdout\nlfs {}\n", env!("CARGO_PKG_VERSION")));
        let (_, list, _) = lfs(&mut fake, "lfs --list-commands");
        let widths: Vec<usize> = list.lines().map(str::len).collect();
        let (last, full) = widths.split_last().unwrap();
        assert!(full.len() > 3 && full.iter().all(|w| *w == 80) && *last <= 80, "{list}");
        assert!(list.contains("getstripe           \ncheck               osts                "), "{list}");
    }
}
