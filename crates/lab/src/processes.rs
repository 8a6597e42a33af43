//! The Sheen processes on this host, and their parameters, through their control sockets.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use sheen_control::{GREETING_TIMEOUT, NoReply, Reply, Request, Silent, ask, ask_all, public_sockets, sockets};
use sheen_wire::{
    Errno,
    control::{self, MountInfo, TargetInfo, open_name},
    mgs::TargetKind,
};

use crate::output::named;

/// Time limit for the greeting of a process that has answered before: it may be busy with a
/// measurement.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest description of a mount: some numbers and a few addresses.
const INFO_BYTES_MAX: usize = 64 << 10;
/// Longest value of an extended attribute.
const TARGETS_BYTES_MAX: usize = 64 << 10;

/// A process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    socket: PathBuf,
}

impl Process {
    /// Returns the directory of its control socket.
    pub fn dir(&self) -> &Path {
        self.socket.parent().unwrap_or(Path::new("/"))
    }

    /// Returns the value of a parameter.
    ///
    /// # Errors
    /// The process does not answer, or has no such parameter.
    pub fn get(&self, name: &str) -> io::Result<String> {
        match self.ask(Request::Get { pattern: name.into() })? {
            Reply::Values(found) => {
                found.into_iter().next().map(|found| found.value).ok_or_else(|| Errno::ENOENT.into())
            }
            other => Err(refusal(&other)),
        }
    }

    /// Returns the names and values of the parameters that match a shell pattern.
    ///
    /// # Errors
    /// The process does not answer, or has no such parameter.
    pub fn values(&self, pattern: &str) -> io::Result<Vec<(String, String)>> {
        match self.ask(Request::Get { pattern: pattern.into() })? {
            Reply::Values(found) => Ok(found.into_iter().map(|found| (found.name, found.value)).collect()),
            other => Err(refusal(&other)),
        }
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// The process does not answer, or refuses the value.
    pub fn set(&self, name: &str, value: &str) -> io::Result<()> {
        match self.ask(Request::Set { pattern: name.into(), value: value.into() })? {
            Reply::Results(results) => {
                let refused = results.iter().find(|result| result.errno != 0);
                refused.map_or(Ok(()), |result| Err(Errno(result.errno).into()))
            }
            other => Err(refusal(&other)),
        }
    }

    /// Returns its NIDs.
    ///
    /// # Errors
    /// The process does not answer.
    pub fn nids(&self) -> io::Result<Vec<String>> {
        match self.ask(Request::Nids)? {
            Reply::Nids(nids) => Ok(nids),
            other => Err(refusal(&other)),
        }
    }

    fn ask(&self, request: Request) -> io::Result<Reply> {
        ask(&self.socket, &request, PATIENCE).map_err(|e| match e {
            NoReply::Failed(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                io::Error::new(e.kind(), "its process has ended")
            }
            e => io::Error::other(e),
        })
    }

    /// Returns the names of its parameters that match a shell pattern.
    fn names(&self, pattern: &str) -> Result<Vec<String>, NoReply> {
        let request = Request::List { pattern: pattern.into() };
        Ok(match ask(&self.socket, &request, GREETING_TIMEOUT)? {
            Reply::Nodes(nodes) => nodes.into_iter().map(|node| node.name).collect(),
            _ => Vec::new(),
        })
    }
}

fn refusal(reply: &Reply) -> io::Error {
    match reply {
        Reply::Error { errno } => Errno(*errno).into(),
        _ => Errno::EPROTO.into(),
    }
}

fn all() -> impl Iterator<Item = Process> {
    sockets().into_iter().map(|socket| Process { socket })
}

/// The parameters that match a shell pattern.
#[derive(Default, Debug)]
pub struct Matches {
    /// Their names, each with its process.
    pub found: Vec<(String, Process)>,
    /// The processes that did not answer at once. They may have such parameters, too.
    pub silent: Vec<Silent>,
}

/// Returns all parameters that match a shell pattern.
pub fn with(pattern: &str) -> Matches {
    matches(all(), pattern)
}

/// Returns the public parameters that match a shell pattern, of processes of others. These answer
/// to [`Process::get`] and [`Process::values`] of public parameters only.
pub fn public_with(pattern: &str) -> Matches {
    matches(public_sockets().into_iter().map(|socket| Process { socket }), pattern)
}

fn matches(processes: impl Iterator<Item = Process>, pattern: &str) -> Matches {
    let mut matches = Matches::default();
    for process in processes {
        match process.names(pattern) {
            Ok(names) => matches.found.extend(names.into_iter().map(|name| (name, process.clone()))),
            Err(NoReply::Silent(waited)) => matches.silent.push(Silent { socket: process.socket, waited }),
            // It has ended, or belongs to another user.
            Err(NoReply::Failed(_)) => {}
        }
    }
    matches
}

/// Returns the process of the mount that contains a file or directory.
///
/// # Errors
/// The file is not on a mount of Sheen. The mount's process is not one of this user's, or contains
/// servers as well, which the mount then calls directly.
pub fn of_mount(path: &Path) -> io::Result<Process> {
    let failed = |e: io::Error| named("find the mount of", path, &e);
    let info = mount_info(path)?;
    let its = format!("llite.{}-{}.uuid", info.fsname, info.instance);
    let Some((_, process)) = with(&its).found.into_iter().next() else {
        return Err(failed(io::Error::other("its process is not one of yours, or does not answer")));
    };
    if ["mdt.*", "obdfilter.*"].iter().any(|servers| process.names(servers).is_ok_and(|names| !names.is_empty())) {
        let text = "its process contains servers, which it calls without a network; use one of `sheen mount`";
        return Err(failed(io::Error::other(text)));
    }
    Ok(process)
}

/// Returns the description of the mount that contains a file or directory.
///
/// # Errors
/// The file is not on a mount of Sheen.
pub fn mount_info(path: &Path) -> io::Result<MountInfo> {
    let failed = |e: io::Error| named("find the mount of", path, &e);
    let mut info = vec![0; INFO_BYTES_MAX];
    let len = rustix::fs::getxattr(path, &*open_name(control::MOUNT), &mut info).map_err(|e| {
        let e = io::Error::from(e);
        failed(match e.raw_os_error().map(Errno) {
            Some(Errno::EOPNOTSUPP | Errno::ENODATA) => io::Error::new(e.kind(), "it is not on a mount of Sheen"),
            _ => e,
        })
    })?;
    serde_json::from_slice(&info[..len]).map_err(|e| failed(e.into()))
}

/// Returns the indices of the OSTs of the file system that contains a file or directory, without
/// deactivated ones.
///
/// # Errors
/// As [`mount_info`].
pub fn osts(path: &Path) -> io::Result<Vec<u32>> {
    let failed = |e: io::Error| named("find the OSTs of", path, &e);
    let mut targets = vec![0; TARGETS_BYTES_MAX];
    let len = rustix::fs::getxattr(path, &*open_name(control::DF), &mut targets).map_err(|e| failed(e.into()))?;
    let targets: Vec<TargetInfo> = serde_json::from_slice(&targets[..len]).map_err(|e| failed(e.into()))?;
    let active = targets.iter().filter(|target| target.kind == TargetKind::Ost && target.active);
    Ok(active.map(|target| target.index).collect())
}

/// Returns the indices of the OSTs of a pool, in the order in which they were added, without
/// deactivated ones. `path`: in the file system.
///
/// # Errors
/// There is no such pool. Otherwise as [`mount_info`].
pub fn osts_of_pool(path: &Path, pool: &str) -> io::Result<Vec<u32>> {
    let failed = |e: io::Error| named("find the pools of", path, &e);
    let mut text = vec![0; TARGETS_BYTES_MAX];
    let len = rustix::fs::getxattr(path, &*open_name(control::POOLS), &mut text).map_err(|e| failed(e.into()))?;
    let pools = control::decode_pools(&text[..len]).ok_or_else(|| failed(Errno::EPROTO.into()))?;
    let Some(found) = pools.into_iter().find(|found| found.name == pool) else {
        return Err(io::Error::other(format!("the file system of {} has no pool {pool}", path.display())));
    };
    let active = osts(path)?;
    Ok(found.osts.into_iter().filter(|ost| active.contains(ost)).collect())
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
