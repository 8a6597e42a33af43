//! `lctl --device FSNAME-MDT0000 changelog_register` and `changelog_deregister`.
//!
//! The MDT's process has parameters for both. A registration has a random number, with which the
//! MDT lists the new user once the registration is durable. So a user that was printed is not lost
//! in a crash. The MDT lists a deregistered user until that is durable, and `lctl` waits for it.

use std::io;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use sheen_control::{Reply, Request};
use sheen_wire::Errno;

use super::options::{self, ParsedArgs};
use super::{devices, tool::Tool, usage};
use crate::lfs::getopt::{Spec, Value};
use crate::time_limits::scaled;

const REGISTER: &str = "changelog_register";
const DEREGISTER: &str = "changelog_deregister";
const OPTIONS: Spec = Spec {
    short: "nm:u:",
    long: &[("nameonly", Value::No, "n"), ("mask", Value::Required, "m"), ("user", Value::Required, "u")],
};
/// Longest wait until a change of the users is durable.
const WAIT: Duration = Duration::from_secs(30);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs one of the two commands on a device, which is given by its name or number.
///
/// # Errors
/// The output cannot be written.
pub fn run(command: &str, device: &str, args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some(given) = options::parse(command, &OPTIONS, args, tool)? else { return Ok(usage::EXIT) };
    let takes = if command == REGISTER { given.rest.is_empty() } else { given.rest.len() <= 1 };
    if !takes {
        return options::wrong(command, tool);
    }
    let found = match devices::find(device, command, tool)? {
        Ok(found) => found,
        Err(errno) => return Ok(errno.0),
    };
    if found.kind != "mdt" {
        writeln!(tool.err, "error: {command}: '{}' of type {} is not an MDT", found.name, found.kind)?;
        return Ok(Errno::EINVAL.0);
    }
    if command == DEREGISTER { deregister(&found.name, &given, tool) } else { register(&found.name, &given, tool) }
}

fn register(mdt: &str, given: &ParsedArgs, tool: &mut Tool<'_>) -> io::Result<i32> {
    let nonce = nonce();
    let (user, mask) = (given.value("u").unwrap_or("-"), given.value("m").unwrap_or("-"));
    let errno = if user.contains(' ') {
        Errno::EINVAL
    } else {
        set(&format!("mdd.{mdt}.{REGISTER}"), format!("{nonce} {user} {mask}"), tool)
    };
    if errno != Errno(0) {
        writeln!(tool.err, "error: {REGISTER}: {mdt}: {errno}")?;
        return Ok(errno.0);
    }
    match wait_for(|| registered(mdt, nonce, tool)) {
        Some(id) if given.has("n") => writeln!(tool.out, "{id}")?,
        Some(id) => writeln!(tool.out, "{mdt}: Registered changelog userid '{id}'")?,
        None => {
            let errno = Errno::ETIMEDOUT;
            writeln!(tool.err, "error: {REGISTER}: {mdt} cannot store the user: {errno}; see its log")?;
            return Ok(errno.0);
        }
    }
    Ok(0)
}

fn deregister(mdt: &str, given: &ParsedArgs, tool: &mut Tool<'_>) -> io::Result<i32> {
    let id = match (given.rest.first(), given.value("u")) {
        (Some(id), None) => id.clone(),
        (None, Some(name)) => match named(mdt, name, tool) {
            Some(id) => id,
            None => {
                writeln!(tool.err, "error: {DEREGISTER}: {mdt}: user '{name}': {}", Errno::ENOENT)?;
                return Ok(Errno::ENOENT.0);
            }
        },
        _ => return options::wrong(DEREGISTER, tool),
    };
    let number = id.strip_prefix("cl").unwrap_or(&id).split('-').next().unwrap_or_default().to_owned();
    let errno = set(&format!("mdd.{mdt}.{DEREGISTER}"), number.clone(), tool);
    if errno != Errno(0) {
        writeln!(tool.err, "error: {DEREGISTER}: {mdt}: user '{id}': {errno}")?;
        return Ok(errno.0);
    }
    if wait_for(|| is_deregistered(mdt, &number, tool).then_some(())).is_none() {
        let errno = Errno::ETIMEDOUT;
        writeln!(
            tool.err,
            "error: {DEREGISTER}: {mdt} cannot store the deregistration of '{id}': {errno}; see its log"
        )?;
        return Ok(errno.0);
    }
    writeln!(tool.out, "{mdt}: Deregistered changelog user '{id}'")?;
    Ok(0)
}

/// Calls `check` until it returns a value, for at most [`WAIT`].
fn wait_for<T>(check: impl Fn() -> Option<T>) -> Option<T> {
    let until = Instant::now() + scaled(WAIT);
    loop {
        let found = check();
        if found.is_some() || Instant::now() >= until {
            return found;
        }
        thread::sleep(PAUSE);
    }
}

/// Returns a number that no other registration has.
fn nonce() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ u64::from(std::process::id()) << 40
}

/// Sets a parameter of the MDT's process. Returns 0, or the error.
fn set(name: &str, value: String, tool: &Tool<'_>) -> Errno {
    let set = Request::Set { pattern: name.to_owned(), value };
    let results = tool.ask(set).into_iter().flat_map(|r| if let Reply::Results(r) = r { r } else { Vec::new() });
    results.map(|result| Errno(result.errno)).next().unwrap_or(Errno::ENOENT)
}

/// Returns the text of a parameter of the MDT; `None`: no process has it.
fn text_of(mdt: &str, parameter: &str, tool: &Tool<'_>) -> Option<String> {
    let asked = Request::Get { pattern: format!("mdd.{mdt}.{parameter}") };
    let found = tool.ask(asked).into_iter().flat_map(|r| if let Reply::Values(found) = r { found } else { Vec::new() });
    found.map(|found| found.value).next()
}

/// Returns the lines of `changelog_register`: the numbers and ids of the durable users.
fn users(mdt: &str, tool: &Tool<'_>) -> Vec<(String, String)> {
    let text = text_of(mdt, REGISTER, tool).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(nonce, id)| (nonce.to_owned(), id.to_owned())).collect()
}

/// Whether the deregistration of a user is durable. An MDT of an earlier release lists none.
fn is_deregistered(mdt: &str, id: &str, tool: &Tool<'_>) -> bool {
    let id = id.trim().parse::<u32>();
    let text = text_of(mdt, DEREGISTER, tool);
    text.is_some_and(|text| !text.lines().any(|line| line.trim().parse::<u32>() == id))
}

fn registered(mdt: &str, nonce: u64, tool: &Tool<'_>) -> Option<String> {
    let nonce = nonce.to_string();
    users(mdt, tool).into_iter().find(|(of, _)| *of == nonce).map(|(_, id)| id)
}

fn named(mdt: &str, name: &str, tool: &Tool<'_>) -> Option<String> {
    let is_named = |id: &String| id.split_once('-').is_some_and(|(_, of)| of == name);
    users(mdt, tool).into_iter().map(|(_, id)| id).find(is_named)
}
