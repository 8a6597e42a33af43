//! `lctl`: parameters, devices and NIDs of every Sheen process of this machine that the user may reach, and pools of OSTs.
//!
//! Each process answers on a control socket ([`sheen_params::control`]); `lctl` asks them all and merges what they say, sorted by name,
//! so that one process or ten look alike. Options, output and exit codes are Lustre's: a failure exits with its errno (2, 13,
//! 22, 34), a usage error with 4 and the usage on standard output.

mod conf_param;
mod devices;
mod lasting;
mod options;
mod param;
mod pool;
mod usage;

use std::ffi::OsString;
use std::io::{self, Write};

use sheen_params::control::{self, Reply, Request};

/// What a command works with; injected so that tests need no process.
pub struct Tool<'a> {
    /// Asks all processes.
    pub ask: &'a dyn Fn(&Request) -> Vec<Reply>,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

/// Runs `lctl` with its arguments, the first being its name. Answers the exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let args: Vec<String> = args.into_iter().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let (mut out, mut err) = (io::BufWriter::new(io::stdout().lock()), io::stderr().lock());
    let code = run(&args, &mut Tool { ask: &ask_all, out: &mut out, err: &mut err });
    match (code, out.flush()) {
        // Whoever read the output has seen enough, as `head` does.
        (Ok(code), Ok(())) => code,
        (Err(e), _) | (_, Err(e)) if e.kind() == io::ErrorKind::BrokenPipe => 0,
        (Err(e), _) | (_, Err(e)) => {
            let _ = writeln!(err, "lctl: cannot write: {e}");
            1
        }
    }
}

/// Asks every process that answers. One that ended, or is another user's, is passed over.
fn ask_all(request: &Request) -> Vec<Reply> {
    control::sockets().iter().filter_map(|socket| control::ask(socket, request).ok()).collect()
}

/// Runs one command; answers the exit code.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some((command, rest)) = args.split_first() else {
        tool.out.write_all(usage::TOP.as_bytes())?;
        return Ok(0);
    };
    match command.as_str() {
        "dl" | "device_list" => devices::dl(rest, tool),
        "list_nids" => devices::list_nids(rest, tool),
        "get_param" => param::get(rest, tool),
        "set_param" => param::set(rest, tool),
        "list_param" => param::list(rest, tool),
        "conf_param" => conf_param::run(rest, tool),
        "llog_print" => lasting::print(rest, tool),
        // The only device with commands of its own, and they find it by themselves.
        "--device" if rest.first().is_some_and(|device| device == "MGS") => run(&rest[1..], tool),
        "pool_new" => pool::new(rest, tool),
        "pool_add" => pool::add(rest, tool),
        "pool_remove" => pool::remove(rest, tool),
        "pool_destroy" => pool::destroy(rest, tool),
        "pool_list" => pool::list(rest, tool),
        "help" | "--help" | "-h" => help(rest, tool),
        "--version" | "version" => {
            writeln!(tool.out, "lctl {}", env!("CARGO_PKG_VERSION"))?;
            Ok(0)
        }
        "--list-commands" => {
            for row in usage::COMMANDS.chunks(4) {
                row.iter().try_for_each(|(name, _)| write!(tool.out, "{name:<20}"))?;
                writeln!(tool.out)?;
            }
            Ok(0)
        }
        unknown => {
            writeln!(tool.err, "lctl: '{unknown}' is not a valid command. See 'lctl --list-commands'.")?;
            Ok(1)
        }
    }
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
        None => {
            writeln!(tool.err, "lctl: '{command}' is not a valid command. See 'lctl --list-commands'.")?;
            Ok(1)
        }
    }
}

#[cfg(test)]
mod tests;
