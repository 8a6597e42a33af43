//! Setting the parameters of this machine, and the parts of messages that the commands share.

use std::collections::BTreeSet;
use std::io;

use sheen_control::{Reply, Request, SetResult};
use sheen_wire::Errno;

use super::tool::Tool;

/// Result of setting the parameters of this machine that match a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SetHere {
    /// Number of parameters that were set.
    pub done: usize,
    /// Error of the first parameter that was not set.
    pub refused: Option<Errno>,
}

/// Sends a request: [`Tool::ask`] or [`Tool::ask_readable`].
pub type Ask<'a> = fn(&Tool<'a>, Request) -> Vec<Reply>;

/// Sets the parameters of this machine that match a pattern. Prints a line for each that was set,
/// an error for each that was not, and an error for the whole pattern. `ask`: decides whether the
/// parameters that the user may only read are among them; they refuse each value.
pub fn set_here<'a>(pattern: &str, value: &str, quiet: bool, ask: Ask<'a>, tool: &mut Tool<'a>) -> io::Result<SetHere> {
    let request = Request::Set { pattern: pattern.to_string(), value: value.to_string() };
    let mut results: Vec<SetResult> = Vec::new();
    for reply in ask(tool, request) {
        if let Reply::Results(some) = reply {
            results.extend(some);
        }
    }
    results.sort_by(|a, b| a.name.cmp(&b.name));
    for r in &results {
        match Errno(r.errno) {
            Errno(0) if quiet => {}
            Errno(0) => writeln!(tool.out, "{}={value}", r.name)?,
            errno => writeln!(tool.err, "error: set_param: setting {}={value}: {errno}", slashes(&r.name))?,
        }
    }
    name_systems(pattern, &results, tool)?;
    let done = results.iter().filter(|r| r.errno == 0).count();
    let Some(failed) = results.iter().find(|r| r.errno != 0) else { return Ok(SetHere { done, refused: None }) };
    let errno = Errno(failed.errno);
    writeln!(tool.err, "error: set_param: setting '{}'='{value}': {errno}", slashes(pattern))?;
    if let Some(accepts) = &failed.accepts {
        writeln!(tool.err, "{pattern} accepts {accepts}")?;
    }
    Ok(SetHere { done, refused: Some(errno) })
}

/// Warns if parameters of several file systems were set. A pattern reaches every file system of the
/// machine, which the user may not intend.
fn name_systems(pattern: &str, results: &[SetResult], tool: &mut Tool<'_>) -> io::Result<()> {
    let set = results.iter().filter(|r| r.errno == 0);
    let fsnames: BTreeSet<&str> = set.flat_map(|r| &r.fsnames).map(String::as_str).collect();
    if fsnames.len() < 2 {
        return Ok(());
    }
    let (count, names) = (fsnames.len(), fsnames.into_iter().collect::<Vec<_>>().join(", "));
    writeln!(
        tool.err,
        "warning: set_param: '{}' was set in {count} file systems: {names}; use --fsname NAME to restrict it to one",
        slashes(pattern)
    )
}

/// Returns the path of a parameter, as in Lustre's messages. An IPv4 address before `@`, as in a
/// NID, retains its dots, so that the path still matches the parameter.
pub fn slashes(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    // The last number of the address may have a port.
    let is_last_number = |part: &str| {
        let address = part.split_once('@').map(|(address, _)| address.split_once(':').map_or(address, |(ip, _)| ip));
        address.is_some_and(is_number)
    };
    // The first number may have a prefix: `MGC10.0.0.1@tcp`.
    let ends_address = |last: usize| {
        last >= 3
            && parts.get(last).is_some_and(|part| is_last_number(part))
            && is_number(parts[last - 1])
            && is_number(parts[last - 2])
            && parts[last - 3].ends_with(|c: char| c.is_ascii_digit())
    };
    let mut path = String::with_capacity(name.len());
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            path.push(if (i..i + 3).any(ends_address) { '.' } else { '/' });
        }
        path.push_str(part);
    }
    path
}

/// Returns the exit code after an error: the first error decides.
pub fn first(code: i32, errno: Errno) -> i32 {
    if code == 0 { errno.0 } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_retain_dots_of_addresses() {
        for (name, path) in [
            ("version", "version"),
            ("osc.*.active", "osc/*/active"),
            ("obdfilter.a-OST0000.exports.10.0.0.1@tcp.stats", "obdfilter/a-OST0000/exports/10.0.0.1@tcp/stats"),
            ("exports.127.0.0.1:7988@tcp.uuid", "exports/127.0.0.1:7988@tcp/uuid"),
            ("exports.0@lo.uuid", "exports/0@lo/uuid"),
            ("mgc.MGC10.0.2.15@tcp.active", "mgc/MGC10.0.2.15@tcp/active"),
            ("mgc/MGC10.0.2.15@tcp/active", "mgc/MGC10.0.2.15@tcp/active"),
            ("a.1.2.3.4.b@c", "a/1/2/3/4/b@c"),
        ] {
            assert_eq!(slashes(name), path, "{name}");
        }
    }
}
