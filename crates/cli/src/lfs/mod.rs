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

mod changelog;
mod check;
mod data_version;
mod df;
mod fid2path;
mod find;
mod flushctx;
mod getdirstripe;
mod getname;
pub mod getopt;
mod getsom;
mod getstripe;
mod group_lock;
mod host;
mod ladvise;
mod migrate;
mod mirror;
mod mv;
mod numbers;
mod pace;
mod path2fid;
pub mod pool_list;
mod project;
mod quota;
mod rm_entry;
mod rmfid;
mod setdirstripe;
mod setquota;
mod setstripe;
mod show;
mod swap_layouts;
mod targets;
#[cfg(test)]
mod testing;
mod tool;
mod usage;

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    path::Path,
};

use sheen_admin::{FileSystem, PROBE, System};
use sheen_wire::Errno;

use crate::command_lines::{self, Interpreter};
use tool::{Command, Tool};

pub use usage::LFS as USAGE;

/// Runs `lfs` and returns the exit code. `args` begins with the program's name.
pub fn main(args: Vec<OsString>) -> i32 {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let mut out = io::BufWriter::new(stdout.lock());
    let mut err = stderr.lock();
    let mut tool = Tool { fs: &System, out: &mut out, err: &mut err };
    let code = match args.get(1..) {
        Some([name, attribute, point]) if name == PROBE => probe(attribute, point),
        Some(command) if !command.is_empty() => run(&mut tool, command),
        _ => interactive(&mut tool),
    };
    // A closed stdout, as in `lfs getstripe … | head`, is not a failure.
    let _ = out.flush();
    code
}

/// Asks a mount for an attribute: [`PROBE`]. Any answer is good.
fn probe(attribute: &OsStr, point: &OsStr) -> i32 {
    let _ = System.get(Path::new(point), tool::text(attribute));
    0
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
    Command { name: "rmfid", usage: rmfid::USAGE, run: rmfid::run },
    Command { name: "ladvise", usage: usage::LADVISE, run: ladvise::run },
    Command { name: "group_lock", usage: usage::GROUP_LOCK, run: group_lock::run },
    Command { name: "mirror", usage: mirror::USAGE, run: mirror::run },
    Command { name: "setdirstripe", usage: setdirstripe::USAGE, run: setdirstripe::run },
    Command { name: "mkdir", usage: setdirstripe::MKDIR_USAGE, run: setdirstripe::mkdir },
    Command { name: "getdirstripe", usage: getdirstripe::USAGE, run: getdirstripe::run },
    Command { name: "migrate", usage: usage::MIGRATE, run: migrate::run },
    Command { name: "mv", usage: mv::USAGE, run: mv::run },
    Command { name: "swap_layouts", usage: swap_layouts::USAGE, run: swap_layouts::run },
    Command { name: "rm_entry", usage: rm_entry::USAGE, run: rm_entry::run },
    Command { name: "rmentry", usage: rm_entry::USAGE, run: rm_entry::run },
    Command { name: "flushctx", usage: flushctx::USAGE, run: flushctx::run },
    Command { name: "data_version", usage: data_version::USAGE, run: data_version::run },
    Command { name: "getsom", usage: getsom::USAGE, run: getsom::run },
    Command { name: "pool_list", usage: pool_list::USAGE, run: pool_list::run },
    Command { name: "project", usage: project::USAGE, run: project::run },
    Command { name: "quota", usage: quota::HELP, run: quota::run },
    Command { name: "setquota", usage: setquota::HELP, run: setquota::run },
    Command { name: "changelog", usage: changelog::USAGE, run: changelog::run },
    Command { name: "changelog_clear", usage: changelog::CLEAR_USAGE, run: changelog::clear },
];

/// Returns the name and the usage text of each command.
pub fn usages() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.iter().map(|command| (command.name, command.usage))
}

/// Runs the command that the first argument names.
fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let Some((name, rest)) = args.split_first() else { return 0 };
    match COMMANDS.iter().find(|c| name == c.name) {
        Some(command) => (command.run)(tool, rest),
        None => {
            tool.complain(format_args!("lfs: '{}' is not a valid command. See 'lfs --list-commands'.", name.display()));
            1
        }
    }
}

impl Interpreter for Tool<'_> {
    fn prompt(&mut self) -> io::Result<()> {
        self.print_now("lfs > ");
        Ok(())
    }

    fn execute(&mut self, words: &[OsString]) -> io::Result<i32> {
        let code = run(self, words);
        let _ = self.out.flush();
        Ok(code)
    }

    fn report(&mut self, text: &str) -> io::Result<()> {
        self.complain(format_args!("lfs: {text}"));
        Ok(())
    }
}

/// Runs the commands of standard input. Returns the exit code.
fn interactive(tool: &mut Tool) -> i32 {
    command_lines::run(tool).unwrap_or_else(|e| {
        tool.complain(format_args!("lfs: cannot read commands: {e}"));
        Errno::from(e).0
    })
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
            tool.print(format_args!("{:<19} ", command.name));
        }
        tool.print(format_args!("\n"));
    }
    0
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
