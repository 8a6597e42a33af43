//! Asks the Sheen processes of this machine how they are, through their control sockets: each one
//! in a thread of its own, and all within one time limit.

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Instant,
};

use rustix::process::geteuid;
use sheen_control::{DIR_ENV, GREETING_TIMEOUT, NoReply, Reply, Request, ask, runtime_dir, sockets};

use super::{
    mounts::Mounts,
    parse,
    processes::{Processes, SocketDir},
    read::can_create_in,
};
use crate::time_limits::scaled;

/// Environment variable with the directory in which that of control sockets is, for ordinary users.
const SESSION_DIR_ENV: &str = "XDG_RUNTIME_DIR";
/// Parameters that are read.
const PATTERNS: [&str; 3] = ["mdt.*.health", "*.*.state", "*.*.active"];
/// Permission bits with which others can write.
const OTHERS_WRITE: u32 = 0o022;

/// Names and values of parameters.
type Values = Vec<(String, String)>;

/// Returns the Sheen processes of this user, by the names of their sockets. Some of them may have
/// ended.
pub fn pids(mounts: &Mounts) -> Vec<u32> {
    match blocking_dir(mounts) {
        Some(_) => Vec::new(),
        None => sockets().iter().filter_map(|socket| pid(socket)).collect(),
    }
}

/// Asks the processes. Those that have not answered at `end` count as silent.
pub fn processes(mounts: &Mounts, end: Instant) -> Processes {
    if let Some(dir) = blocking_dir(mounts) {
        return Processes::new(dir, SocketDir::MayBlock);
    }
    let dir = runtime_dir();
    let state = dir_state(&dir);
    let Answers { count, values, silent } = ask_all(sockets(), end);
    Processes {
        answering: count,
        silent: silent.iter().filter_map(|socket| pid(socket)).collect(),
        disconnected: parse::disconnected(&values),
        unhealthy: parse::unhealthy(&values),
        ..Processes::new(dir, state)
    }
}

/// Returns the directory of control sockets, or the one that holds it, if access to it may block.
fn blocking_dir(mounts: &Mounts) -> Option<PathBuf> {
    let mut named = [DIR_ENV, SESSION_DIR_ENV].into_iter().filter_map(env::var_os).map(PathBuf::from);
    named.find(|dir| mounts.place(dir).may_block())
}

/// Returns the process of a control socket.
fn pid(socket: &Path) -> Option<u32> {
    socket.file_stem()?.to_str()?.parse().ok()
}

/// The answers of processes.
#[derive(Default)]
struct Answers {
    /// Number of processes that have answered.
    count: usize,
    /// Their parameters.
    values: Values,
    /// Sockets of processes that have not answered.
    silent: BTreeSet<PathBuf>,
}

/// Asks the processes of these sockets at once. Skips those that have ended, and other users'.
fn ask_all(sockets: Vec<PathBuf>, end: Instant) -> Answers {
    let (send, receive) = mpsc::channel();
    let mut answers = Answers::default();
    for socket in sockets {
        let (send, path) = (send.clone(), socket.clone());
        let asks = move || {
            let reply = values_of(&path);
            // The answer is not needed any more if the channel is closed.
            let _ = send.send((path, reply));
        };
        if thread::Builder::new().spawn(asks).is_ok() {
            answers.silent.insert(socket);
        }
    }
    drop(send);
    while let Ok((socket, reply)) = receive.recv_timeout(end.saturating_duration_since(Instant::now())) {
        match reply {
            Ok(values) => {
                answers.count += 1;
                answers.values.extend(values);
                answers.silent.remove(&socket);
            }
            Err(NoReply::Failed(_)) => {
                answers.silent.remove(&socket);
            }
            Err(NoReply::Silent(_)) => {}
        }
    }
    answers
}

/// Asks one process.
fn values_of(socket: &Path) -> Result<Values, NoReply> {
    let mut values = Vec::new();
    for pattern in PATTERNS {
        let request = Request::Get { pattern: pattern.to_owned() };
        // A process without such parameters replies with an error.
        if let Reply::Values(found) = ask(socket, &request, scaled(GREETING_TIMEOUT))? {
            values.extend(found.into_iter().map(|found| (found.name, found.value)));
        }
    }
    Ok(values)
}

/// Returns the state of the directory of control sockets.
fn dir_state(dir: &Path) -> SocketDir {
    match fs::symlink_metadata(dir) {
        Ok(found) if !found.is_dir() || found.uid() != geteuid().as_raw() => SocketDir::Foreign,
        Ok(found) if found.mode() & OTHERS_WRITE != 0 => SocketDir::Exposed(found.mode()),
        Ok(_) => SocketDir::Usable,
        Err(_) => match dir.ancestors().skip(1).find(|above| above.exists()) {
            Some(above) if can_create_in(above) => SocketDir::Usable,
            _ => SocketDir::Denied,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixListener, time::Duration};

    use sheen_control::STALL;

    use super::*;

    #[test]
    fn process_that_hangs_after_its_greeting_is_silent() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let hung = UnixListener::bind(path("17.sock")).unwrap();
        drop(UnixListener::bind(path("18.sock")).unwrap());
        let (release, wait) = mpsc::channel::<()>();
        let server = thread::spawn(move || {
            let (mut peer, _) = hung.accept().unwrap();
            peer.write_all(b" ").unwrap();
            // It sends no reply until the test has ended.
            let _ = wait.recv_timeout(STALL);
        });
        let answers = ask_all(vec![path("17.sock"), path("18.sock")], Instant::now() + Duration::from_secs(2));
        assert_eq!((answers.count, answers.silent), (0, BTreeSet::from([path("17.sock")])));
        drop(release);
        server.join().unwrap();
    }
}
