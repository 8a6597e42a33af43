//! Parameters of the Sheen processes on this host, through their control sockets.

use std::{io, path::PathBuf};

use sheen_control::{GREETING_TIMEOUT, Reply, Request, ask, ask_all, sockets};
use sheen_wire::Errno;

/// A process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    socket: PathBuf,
}

impl Process {
    /// Sets a parameter of this process.
    ///
    /// # Errors
    /// The process does not answer, or refuses.
    pub fn set(&self, name: &str, value: &str) -> io::Result<()> {
        let request = Request::Set { pattern: name.into(), value: value.into() };
        let reply =
            ask(&self.socket, &request, GREETING_TIMEOUT).map_err(|e| io::Error::other(format!("{name}: {e}")))?;
        match reply {
            Reply::Results(results) if results.iter().all(|result| result.errno == 0) => Ok(()),
            _ => Err(io::Error::other(format!("{name}: the process of {} refuses it", self.socket.display()))),
        }
    }

    fn has(&self, pattern: &str) -> bool {
        let request = Request::List { pattern: pattern.into() };
        matches!(ask(&self.socket, &request, GREETING_TIMEOUT), Ok(Reply::Nodes(nodes)) if !nodes.is_empty())
    }
}

/// Returns the processes that have mounts and no server.
pub fn mounts_alone() -> Vec<Process> {
    let all = sockets().into_iter().map(|socket| Process { socket });
    all.filter(|process| process.has("llite.*") && !process.has("mdt.*") && !process.has("obdfilter.*")).collect()
}

/// Returns the names and values of all parameters that match a shell pattern, sorted by name.
pub fn get(pattern: &str) -> Vec<(String, String)> {
    let asked = ask_all(&sockets(), &Request::Get { pattern: pattern.into() }, GREETING_TIMEOUT);
    let values = asked.replies.into_iter().filter_map(|reply| match reply {
        Reply::Values(found) => Some(found),
        _ => None,
    });
    let mut found: Vec<_> = values.flatten().map(|found| (found.name, found.value)).collect();
    found.sort();
    found
}

/// Returns the NIDs of all processes.
pub fn nids() -> Vec<String> {
    let asked = ask_all(&sockets(), &Request::Nids, GREETING_TIMEOUT);
    let nids = asked.replies.into_iter().filter_map(|reply| match reply {
        Reply::Nids(nids) => Some(nids),
        _ => None,
    });
    nids.flatten().collect()
}

/// Sets all parameters that match.
///
/// # Errors
/// The first refusal, as an error of the system. NotFound: nothing matches.
pub fn set(pattern: &str, value: &str) -> io::Result<()> {
    let request = Request::Set { pattern: pattern.into(), value: value.into() };
    let asked = ask_all(&sockets(), &request, GREETING_TIMEOUT);
    let results = asked.replies.into_iter().filter_map(|reply| match reply {
        Reply::Results(results) => Some(results),
        _ => None,
    });
    let mut errnos = results.flatten().map(|result| result.errno).peekable();
    if errnos.peek().is_none() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("{pattern}: no process has it")));
    }
    errnos.find(|errno| *errno != 0).map_or(Ok(()), |errno| Err(Errno(errno).into()))
}
