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

/// Sets the parameters of this machine that match a pattern. Prints a line for each that was set,
/// an error for each that was not, and an error for the whole pattern.
pub fn set_here(pattern: &str, value: &str, quiet: bool, tool: &mut Tool<'_>) -> io::Result<SetHere> {
    let request = Request::Set { pattern: pattern.to_string(), value: value.to_string() };
    let mut results: Vec<SetResult> = Vec::new();
    for reply in tool.ask(request) {
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

/// Lustre's messages name a parameter by its path.
pub fn slashes(name: &str) -> String {
    name.replace('.', "/")
}

/// Returns the exit code after an error: the first error decides.
pub fn first(code: i32, errno: Errno) -> i32 {
    if code == 0 { errno.0 } else { code }
}
