//! `lctl`: parameters, devices and NIDs of every Sheen process of this machine that the user can
//! reach, pools of OSTs, and nodemaps.
//!
//! Each process answers on a control socket ([`sheen_control`]). `lctl` queries all of them
//! at once and merges the replies, sorted by name: the output does not depend on the number of
//! processes. It reports and skips a process that does not answer. An ordinary user also reads the
//! public parameters of root's processes. Options, output and exit codes are Lustre's. A failure
//! exits with its errno (2, 13, 22, 34). A usage error exits with 4 and prints the usage on
//! standard output.
//!
//! `--fsname` is Sheen's own. Lustre's `lctl` speaks to the modules of one kernel. Sheen's reaches
//! every file system of the machine, so a user must be able to select one.

mod changelog;
mod conf_param;
mod del_ost;
mod devices;
mod json;
mod lfsck;
mod llog;
mod mgs;
mod nodemap;
mod options;
mod param;
mod permanent;
mod ping;
mod pool;
mod processes;
mod refused;
mod set_here;
mod shown;
mod tool;
mod usage;
mod which_nid;

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use sheen_control::Request;
use sheen_wire::Errno;

use crate::command_lines::{self, Interpreter};
use crate::time_limits::scaled;

use processes::Running;
use tool::Tool;

pub use usage::{COMMANDS as USAGES, TOP as USAGE};

/// The commands that `--fsname` restricts to one file system. With [`nodemap::COMMANDS`] it selects
/// the MGS of that file system. The other commands name their file system themselves.
const FSNAME_COMMANDS: [&str; 8] =
    ["get_param", "set_param", "list_param", "llog_print", "llog_catlist", "dl", "device_list", "list_nids"];

/// Runs `lctl` with its arguments, of which the first is its name. Without others, it runs the
/// commands of standard input. Returns the exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let args: Vec<String> = args.into_iter().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let colors = io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (mut out, mut err) = (io::BufWriter::new(io::stdout().lock()), io::stderr().lock());
    let processes = Running::new(sheen_control::sockets, scaled(sheen_control::GREETING_TIMEOUT))
        .with_public(sheen_control::public_sockets)
        .with_closed(sheen_control::is_closed);
    let mut tool = Tool { processes: &processes, fsname: None, device: None, colors, out: &mut out, err: &mut err };
    let code = if args.is_empty() { command_lines::run(&mut tool) } else { run(&args, &mut tool) };
    match (code, out.flush()) {
        // The reader has seen enough and closed the pipe, as `head` does.
        (Ok(code), Ok(())) => code,
        (Err(e), _) | (_, Err(e)) if e.kind() == io::ErrorKind::BrokenPipe => 0,
        (Err(e), _) | (_, Err(e)) => {
            let _ = writeln!(err, "lctl: cannot write the output: {e}");
            1
        }
    }
}

impl Interpreter for Tool<'_> {
    fn prompt(&mut self) -> io::Result<()> {
        write!(self.out, "lctl > ")?;
        self.out.flush()
    }

    fn execute(&mut self, words: &[OsString]) -> io::Result<i32> {
        // `--fsname` is an option of one command, and each command queries all processes.
        self.fsname = None;
        self.processes.begin_command();
        let args: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let code = run(&args, self)?;
        self.out.flush()?;
        Ok(code)
    }

    fn report(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.err, "lctl: {text}")
    }
}

/// Runs one command and reports the processes that did not answer. Returns the exit code.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let code = command(args, tool)?;
    let silent = tool.processes.silent();
    if silent.is_empty() {
        return Ok(code);
    }
    tool.out.flush()?;
    for process in &silent {
        let resume = process.pid().map(|pid| format!(" ('kill -CONT {pid}' resumes a stopped one)"));
        let resume = resume.unwrap_or_default();
        writeln!(tool.err, "lctl: {process} and is left out: it may be stopped or hang{resume}")?;
    }
    let processes = tool.processes;
    let nobody_answers = processes.ask(&Request::Nids).is_empty() && processes.ask_public(&Request::Nids).is_empty();
    Ok(if code == 0 && nobody_answers { Errno::ETIMEDOUT.0 } else { code })
}

fn command(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some((name, rest)) = args.split_first() else {
        tool.out.write_all(usage::TOP.as_bytes())?;
        return Ok(0);
    };
    match name.as_str() {
        "dl" | "device_list" => devices::dl(rest, tool),
        "list_nids" => devices::list_nids(rest, tool),
        "ping" => ping::run(rest, tool),
        "which_nid" => which_nid::run(rest, tool),
        "get_param" => param::get(rest, tool),
        "set_param" => param::set(rest, tool),
        "list_param" => param::list(rest, tool),
        "conf_param" => conf_param::run(rest, tool),
        "llog_print" => llog::print(rest, tool),
        "llog_catlist" => llog::catlist(rest, tool),
        "lfsck_start" | "lfsck_stop" | "lfsck_query" => lfsck::run(name, rest, tool),
        "--device" => with_device(rest, tool),
        "device" => devices::select(rest, tool),
        "--fsname" => with_fsname(rest.first().map(String::as_str), rest.get(1..).unwrap_or_default(), tool),
        option if option.starts_with("--fsname=") => {
            with_fsname(option.split_once('=').map(|(_, name)| name), rest, tool)
        }
        "changelog_register" | "changelog_deregister" => match tool.device.clone() {
            Some(device) => changelog::run(name, &device, rest, tool),
            None => {
                writeln!(tool.err, "error: {name}: name the MDT first: lctl --device FSNAME-MDT0000 {name}")?;
                Ok(usage::EXIT)
            }
        },
        "activate" | "deactivate" | "abort_recovery" => {
            if let Some(device) = tool.device.clone().filter(|_| rest.is_empty()) {
                return with_device(&[device, name.clone()], tool);
            }
            let what = if name == "abort_recovery" { "MDT or OST" } else { "connection to an OST" };
            writeln!(tool.err, "error: {name}: name the {what} first: lctl --device DEVICE {name}")?;
            Ok(usage::EXIT)
        }
        "del_ost" => del_ost::run(rest, tool),
        "pool_new" => pool::new(rest, tool),
        "pool_add" => pool::add(rest, tool),
        "pool_remove" => pool::remove(rest, tool),
        "pool_destroy" => pool::destroy(rest, tool),
        "pool_list" => pool::list(rest, tool),
        command if nodemap::COMMANDS.contains(&command) => nodemap::run(command, rest, tool),
        "help" | "--help" | "-h" => help(rest, tool),
        "--version" | "version" => {
            writeln!(tool.out, "lctl {}", env!("CARGO_PKG_VERSION"))?;
            Ok(0)
        }
        "--list-commands" => {
            for row in usage::COMMANDS.chunks(4) {
                row.iter().try_for_each(|(name, _)| write!(tool.out, "{name:<19} "))?;
                writeln!(tool.out)?;
            }
            Ok(0)
        }
        unknown => refuse(unknown, tool),
    }
}

/// `--device DEVICE COMMAND...`. The commands of the device `MGS` find the MGS by themselves.
fn with_device(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    match args {
        [device, name] if name == "activate" || name == "deactivate" => devices::set_active(device, name, tool),
        [device, name] if name == "abort_recovery" => devices::abort_recovery(device, tool),
        [device, name, rest @ ..] if name == "changelog_register" || name == "changelog_deregister" => {
            changelog::run(name, device, rest, tool)
        }
        [device, rest @ ..] if device == "MGS" => command(rest, tool),
        _ => {
            writeln!(
                tool.err,
                "lctl: '--device DEVICE' must be followed by activate, deactivate, abort_recovery, changelog_register or \
                 changelog_deregister, and '--device MGS' by a command"
            )?;
            Ok(usage::EXIT)
        }
    }
}

/// `--fsname NAME COMMAND...`
fn with_fsname(fsname: Option<&str>, args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let takes = |command: &str| FSNAME_COMMANDS.contains(&command) || nodemap::COMMANDS.contains(&command);
    let fsname = fsname.filter(|_| args.first().is_some_and(|command| takes(command)));
    let Some(fsname) = fsname else {
        let known = FSNAME_COMMANDS.join(", ");
        writeln!(tool.err, "lctl: '--fsname NAME' must be followed by one of {known}, or by a nodemap command")?;
        return Ok(usage::EXIT);
    };
    tool.fsname = Some(fsname.to_owned());
    command(args, tool)
}

fn help(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some(command) = args.first() else {
        tool.out.write_all(usage::TOP.as_bytes())?;
        return Ok(0);
    };
    match usage::of(command) {
        Some(text) => {
            tool.out.write_all(text.as_bytes())?;
            Ok(0)
        }
        None => refuse(command, tool),
    }
}

/// Reports that a command does not exist here. Returns the exit code.
fn refuse(command: &str, tool: &mut Tool<'_>) -> io::Result<i32> {
    if let Some(reason) = refused::reason(command) {
        writeln!(tool.err, "error: {command}: {}: {reason}", Errno::EOPNOTSUPP)?;
        return Ok(Errno::EOPNOTSUPP.0);
    }
    writeln!(tool.err, "lctl: '{command}' is not a valid command. See 'lctl --list-commands'.")?;
    Ok(1)
}

#[cfg(test)]
mod tests;
