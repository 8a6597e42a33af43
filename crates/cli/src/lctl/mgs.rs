//! The MGS of this machine: its process, its parameters, and changes that it makes.
//!
//! The process that serves an MGS has parameters that show its state. Setting such a parameter
//! makes a change. A user who can reach the control socket of that process can therefore make
//! changes.

use std::{io, thread, time::Duration};

use sheen_control::{Reply, Request};
use sheen_wire::Errno;

use super::tool::Tool;
use crate::time_limits::scaled;

/// Time limit for the MDTs of this machine to receive a change.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// An MGS of this machine.
pub struct FoundMgs {
    /// The file system whose name selects the MGS's parameters, if there are several MGSs or
    /// `--fsname` was given.
    pub fsname: Option<String>,
    /// The file systems that it knows.
    pub fsnames: Vec<String>,
}

/// Returns the MGS of this machine. If there are several, returns the one with the file system that
/// `--fsname` or the pattern names. On failure it has printed an error.
pub fn find(command: &str, pattern: Option<&str>, tool: &mut Tool<'_>) -> io::Result<Result<FoundMgs, Errno>> {
    let mut known: Vec<Vec<String>> = values("mgs.MGS.filesystems", tool)
        .iter()
        .map(|names| names.lines().map(ToString::to_string).collect())
        .collect();
    if let Some(fsname) = &tool.fsname {
        known.retain(|fsnames| fsnames.contains(fsname));
    }
    if let [fsnames] = &known[..] {
        return Ok(Ok(FoundMgs { fsname: tool.fsname.clone(), fsnames: fsnames.clone() }));
    }
    if known.is_empty() {
        let of = tool.fsname.as_ref().map(|fsname| format!(" of the file system '{fsname}'")).unwrap_or_default();
        writeln!(tool.err, "This command must be run on the MGS.\nerror: {command}: {}", Errno::ENODEV)?;
        writeln!(tool.err, "{}", none_runs(&of))?;
        return Ok(Err(Errno::ENODEV));
    }
    let named = |fsname: &&String| pattern.is_some_and(|pattern| names(pattern, fsname));
    let mut meant = known.iter().filter_map(|fsnames| fsnames.iter().find(named).map(|fsname| (fsname, fsnames)));
    match (meant.next(), meant.next()) {
        (Some((fsname, fsnames)), None) => Ok(Ok(FoundMgs { fsname: Some(fsname.clone()), fsnames: fsnames.clone() })),
        _ => {
            let hint =
                if pattern.is_some() { "name the file system in the pattern (osc.FSNAME-*.active), or " } else { "" };
            writeln!(
                tool.err,
                "error: {command}: several MGSs run on this machine; {hint}use --fsname or SHEEN_RUNTIME_DIR to select \
                 one"
            )?;
            Ok(Err(Errno::EINVAL))
        }
    }
}

/// Returns the value of `param`, which the MGS of this machine has for each file system that it
/// knows. If not exactly one MGS has it, returns the errno and the reason, for the user.
pub fn value_of(param: &str, fsname: &str, tool: &Tool<'_>) -> Result<String, (Errno, String)> {
    let mut found = values(param, tool);
    if found.len() > 1 {
        let several = format!("several MGSs on this machine know a file system '{fsname}'");
        return Err((Errno::EINVAL, format!("{several}; use SHEEN_RUNTIME_DIR to select one")));
    }
    found.pop().ok_or_else(|| {
        if values("mgs.*.filesystems", tool).is_empty() {
            (Errno::ENODEV, none_runs(""))
        } else {
            (Errno::EINVAL, format!("the MGS knows no file system '{fsname}'"))
        }
    })
}

/// Returns the message that this machine has no MGS. `of`: a restriction to some MGSs.
fn none_runs(of: &str) -> String {
    format!("no MGS{of} that you can reach runs on this machine; run this command where 'sheen up' or 'sheen mgs' runs")
}

/// Returns whether a component of the pattern names a target or mount of the file system.
pub fn names(pattern: &str, fsname: &str) -> bool {
    let is_of = |part: &str| part.strip_prefix(fsname).is_some_and(|rest| rest.starts_with('-'));
    // A server names its locks `filter-TARGET_UUID` or `mdt-TARGET_UUID`.
    let is_locks = |part: &str| ["filter-", "mdt-"].iter().any(|kind| part.strip_prefix(kind).is_some_and(is_of));
    pattern.split(['.', '/']).any(|part| is_of(part) || is_locks(part))
}

/// Returns the values of the parameters that match, of all processes of this machine.
pub fn values(pattern: &str, tool: &Tool<'_>) -> Vec<String> {
    let replies = tool.processes.ask(&Request::Get { pattern: pattern.to_string() });
    let found = replies.into_iter().flat_map(|reply| if let Reply::Values(found) = reply { found } else { Vec::new() });
    found.map(|f| f.value).collect()
}

/// Waits until the MDTs of this machine have received a change of the MGS. Returns whether they
/// have, within the time limit.
pub fn wait_for_mdts(received: impl Fn() -> bool) -> bool {
    (0..scaled(RECEIVE_TIMEOUT).as_millis() / POLL_INTERVAL.as_millis()).any(|_| {
        let done = received();
        if !done {
            thread::sleep(POLL_INTERVAL);
        }
        done
    })
}

/// Makes the MGS execute a change, by setting its parameter. Returns the MGS's errno, or ENODEV if
/// no process has the parameter.
pub fn order(param: &str, change: String, tool: &Tool<'_>) -> Errno {
    let request = Request::Set { pattern: param.to_string(), value: change };
    let results =
        tool.processes.ask(&request).into_iter().find_map(|r| if let Reply::Results(r) = r { Some(r) } else { None });
    results.and_then(|r| r.first().map(|set| Errno(set.errno))).unwrap_or(Errno::ENODEV)
}
