//! Tasks that mpirun, or another launcher of MPI, has started: on several hosts, without MPI.
//!
//! The launcher starts this program once for each task, and says by environment variables which one
//! it is. The first process is the parent of the tasks. The others find it through a file in a
//! directory that all hosts share, connect to it, and serve it as tasks. Then all is as with tasks
//! that the parent has started itself ([`crate::team`]).
//!
//! Invariants:
//! * the file is readable for its user alone. It has two random words: a task sends the one, and
//!   the parent then the other;
//! * a task ends with its parent, also in the middle of its work;
//! * tasks of different hosts take turns in the ranks: the next rank is on the next host;
//! * times are those of the parent's clock: each task measures the difference when it connects.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, ToSocketAddrs},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    net::sockopt,
    process::getuid,
    system::uname,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{clock, output::named, stop, task_clock};

/// Variables with the rank and the number of processes, and one that differs between runs: Open
/// MPI, then MPICH, Intel MPI and Slurm (`srun --mpi=pmi2`).
const RANKS: [[&str; 3]; 2] =
    [["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"], ["PMI_RANK", "PMI_SIZE", "PMI_JOBID"]];
/// Variables with the job of a batch system, which are the same on all hosts.
const JOBS: [&str; 3] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"];
/// Most processes.
const SIZE_MAX: u32 = 4096;
/// Time in which all processes must have found each other.
const MEETING: Duration = Duration::from_secs(180);
/// Time limit for all first messages of a connection.
const GREETING: Duration = Duration::from_secs(5);
/// Most connections that are greeted at a time, besides those of the tasks.
const STRANGERS_MAX: usize = 64;
const POLL: Duration = Duration::from_millis(20);
/// After so long, a task that has not found the file makes NFS look again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Seconds until a lost host is noticed: idle, between probes; and the number of probes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 4);
/// Longest line of the first messages.
const LINE_MAX: usize = 4096;
/// Messages from which the difference of the clocks is computed.
const PINGS: usize = 16;

/// The connections to tasks between two runs, and the number of hosts.
static REMOTES: Mutex<Vec<Remote>> = Mutex::new(Vec::new());
static HOSTS: Mutex<u32> = Mutex::new(1);

/// The place of this process among those that a launcher has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its rank.
    pub rank: u32,
    /// Number of processes.
    pub size: u32,
}

/// A connection to a task, or to its parent.
#[derive(Debug)]
pub struct Remote {
    /// For messages to it.
    pub stream: TcpStream,
    /// For messages from it.
    pub lines: BufReader<TcpStream>,
}

/// The file through which tasks find their parent.
#[derive(Serialize, Deserialize)]
struct Address {
    host: String,
    port: u16,
    /// Word that a task must send.
    word: String,
    /// Word that the parent must answer.
    answer: String,
}

/// The first message of a task.
#[derive(Serialize, Deserialize)]
struct Hello {
    word: String,
    rank: u32,
    host: String,
}

impl Place {
    /// Returns the place of this process; `None`: no launcher has started it, or it is alone.
    ///
    /// # Errors
    /// The variables of the launcher make no sense.
    pub fn of_this_process() -> Result<Option<Place>, String> {
        Place::read(|name| std::env::var(name).ok())
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Place>, String> {
        let Some([rank, size, _]) = RANKS.into_iter().find(|[_, size, _]| variable(size).is_some()) else {
            return Ok(None);
        };
        let number = |name: &str| -> Result<u32, String> {
            let text = variable(name).unwrap_or_default();
            text.parse().map_err(|_| format!("{name}={text}: not a number; unset it if no launcher runs this program"))
        };
        let place = Place { rank: number(rank)?, size: number(size)? };
        if place.size > SIZE_MAX || place.rank >= place.size {
            return Err(format!("{rank}={} and {size}={}: at most {SIZE_MAX} processes", place.rank, place.size));
        }
        Ok((place.size > 1).then_some(place))
    }
}

/// Returns the number of hosts with tasks: 1 without a launcher.
pub fn hosts() -> u32 {
    *lock(&HOSTS)
}

/// Takes the connections to the tasks, for a run. Empty: the parent starts the tasks itself.
pub fn take() -> Vec<Remote> {
    std::mem::take(&mut *lock(&REMOTES))
}

/// Returns the connections after a run.
pub fn put_back(remotes: Vec<Remote>) {
    *lock(&REMOTES) = remotes;
}

/// Waits, in the first process, until all others have connected. `words`: the command line, which
/// all processes share.
///
/// # Errors
/// The directory cannot be written, a process is missing, or the user has interrupted the program.
pub fn gather(place: Place, dir: &Path, words: &str) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let address = Arc::new(Address { host: host(), port, word: random_word()?, answer: random_word()? });
    let path = meeting_point(place, dir, words);
    publish(&path, &address).map_err(|e| named("write", &path, &e))?;
    let result = accept_all(place, &listener, &address);
    // Another run may have replaced it.
    if read(&path).is_ok_and(|found| found.word == address.word) {
        let _ = fs::remove_file(&path);
    }
    let (names, remotes): (Vec<String>, Vec<Remote>) = result?.into_values().unzip();
    let (order, hosts) = turns(&names.iter().map(String::as_str).collect::<Vec<&str>>(), &address.host);
    let mut remotes: Vec<Option<Remote>> = remotes.into_iter().map(Some).collect();
    put_back(order.into_iter().filter_map(|n| remotes[n].take()).collect());
    *lock(&HOSTS) = hosts;
    Ok(())
}

fn accept_all(
    place: Place,
    listener: &TcpListener,
    address: &Arc<Address>,
) -> io::Result<BTreeMap<u32, (String, Remote)>> {
    let mut found = BTreeMap::new();
    let (greeted, tasks) = mpsc::channel();
    let busy = Arc::new(());
    let end = Instant::now() + MEETING;
    while found.len() + 1 < place.size as usize {
        match listener.accept() {
            // A stranger that sends nothing, or slowly, must not hold up the tasks.
            Ok((stream, _)) if Arc::strong_count(&busy) <= STRANGERS_MAX + place.size as usize => {
                let (address, greeted, busy) = (address.clone(), greeted.clone(), busy.clone());
                thread::Builder::new().name("greeting".into()).spawn(move || {
                    // A stranger, or a process that has ended again, does not end the run.
                    if let Ok(task) = greet(stream, &address) {
                        let _ = greeted.send(task);
                    }
                    drop(busy);
                })?;
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => stop::sleep(POLL)?,
            Err(e) => return Err(e),
        }
        stop::check()?;
        let here = tasks.try_iter().filter(|(hello, _)| (1..place.size).contains(&hello.rank));
        found.extend(here.map(|(hello, remote): (Hello, Remote)| (hello.rank, (hello.host, remote))));
        if Instant::now() > end {
            let missing: Vec<String> =
                (1..place.size).filter(|rank| !found.contains_key(rank)).take(5).map(|r| r.to_string()).collect();
            return Err(io::Error::other(format!(
                "processes {} of the launcher have not connected within {MEETING:?}: all hosts must share the directory \
                 of --rendezvous, and reach this one",
                missing.join(", ")
            )));
        }
    }
    Ok(found)
}

/// Checks the first message of a task, proves to be its parent, and answers its pings with the
/// time.
fn greet(stream: TcpStream, address: &Address) -> io::Result<(Hello, Remote)> {
    stream.set_nonblocking(false)?;
    let (mut remote, end) = (Remote::new(stream)?, Instant::now() + GREETING);
    let hello: Hello = remote.first_message(end)?;
    if hello.word != address.word {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    remote.send(&address.answer)?;
    for _ in 0..PINGS {
        remote.first_message::<()>(end)?;
        remote.send(&task_clock::now())?;
    }
    remote.stream.set_read_timeout(None)?;
    Ok((hello, remote))
}

/// Connects to the parent, from a process other than the first.
///
/// # Errors
/// The parent is not found.
pub fn connect(place: Place, dir: &Path, words: &str) -> io::Result<Remote> {
    let path = meeting_point(place, dir, words);
    let end = Instant::now() + MEETING;
    let mut look_again = Instant::now() + LOOK_AGAIN;
    loop {
        // The file may be that of a killed run, until the parent replaces it.
        let failed = match read(&path).and_then(|address| join(place, &address)) {
            Ok(remote) => return Ok(remote),
            Err(e) => e,
        };
        if Instant::now() > end {
            return Err(io::Error::other(format!(
                "process {} of the launcher has not found the first one through {}: {failed}",
                place.rank,
                path.display()
            )));
        }
        if Instant::now() > look_again {
            // NFS remembers for up to a minute that a file does not exist, unless the directory
            // changes.
            let own = path.with_extension(format!("task{}", place.rank));
            let _ = fs::write(&own, "").and_then(|()| fs::remove_file(&own));
            look_again = Instant::now() + LOOK_AGAIN;
        }
        thread::sleep(POLL);
    }
}

fn join(place: Place, address: &Address) -> io::Result<Remote> {
    let here = host();
    let name = if address.host == here { "127.0.0.1" } else { &address.host };
    let mut failed = io::Error::other(format!("the host {name} has no address"));
    for target in (name, address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&target, GREETING) {
            Ok(stream) => {
                let (mut remote, end) = (Remote::new(stream)?, Instant::now() + GREETING);
                remote.send(&Hello { word: address.word.clone(), rank: place.rank, host: here })?;
                // A stranger that has got the port of a killed run cannot answer.
                if remote.first_message::<String>(end)? != address.answer {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                task_clock::set_ahead(difference(&mut remote, end)?);
                remote.stream.set_read_timeout(None)?;
                return Ok(remote);
            }
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// Measures the difference of the parent's clock from this one, in nanoseconds. The fastest answer
/// counts, so the error is at most half of its round trip.
fn difference(remote: &mut Remote, end: Instant) -> io::Result<i64> {
    let mut best = (u64::MAX, 0);
    for _ in 0..PINGS {
        let before = task_clock::now();
        remote.send(&())?;
        let theirs: u64 = remote.first_message(end)?;
        let took = task_clock::now() - before;
        best = best.min((took, theirs.wrapping_sub(before + took / 2) as i64));
    }
    Ok(best.1)
}

impl Remote {
    fn new(stream: TcpStream) -> io::Result<Remote> {
        let (idle, interval, probes) = KEEPALIVE;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, idle)?;
        sockopt::set_tcp_keepintvl(&stream, interval)?;
        sockopt::set_tcp_keepcnt(&stream, probes)?;
        Ok(Remote { lines: BufReader::new(stream.try_clone()?), stream })
    }

    fn send<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(value).map_err(io::Error::other)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// Receives a message of limited length, until `end` at the latest.
    fn first_message<T: DeserializeOwned>(&mut self, end: Instant) -> io::Result<T> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
            self.stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
            let read = self.lines.fill_buf()?;
            let len = read.iter().position(|byte| *byte == b'\n').map_or(read.len(), |at| at + 1);
            line.extend_from_slice(&read[..len]);
            self.lines.consume(len);
            if len == 0 || line.len() > LINE_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        serde_json::from_slice(&line).map_err(io::Error::other)
    }

    /// Ends a task that is at work, and waits until it has ended, for a short time.
    pub fn end(mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let end = Instant::now() + GREETING;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            let _ = self.stream.set_read_timeout(Some(left));
            match self.lines.fill_buf().map(<[u8]>::len) {
                Ok(len) if len > 0 => self.lines.consume(len),
                _ => break,
            }
        }
    }

    /// Ends this process, a task, as soon as its parent closes the connection.
    ///
    /// # Errors
    /// The thread that waits for it cannot be started.
    pub fn end_with_parent(&self) -> io::Result<()> {
        let stream = self.stream.try_clone()?;
        let wait = move || {
            loop {
                let mut closed = [PollFd::new(&stream, PollFlags::RDHUP)];
                match poll(&mut closed, None) {
                    Err(rustix::io::Errno::INTR) => {}
                    // The parent reports all errors. A launcher would end it if a task failed.
                    _ => std::process::exit(0),
                }
            }
        };
        thread::Builder::new().name("parent".into()).spawn(wait).map(drop)
    }
}

/// Returns an order in which tasks of these hosts take turns after one of the host `first`, and the
/// number of hosts.
fn turns(names: &[&str], first: &str) -> (Vec<usize>, u32) {
    let mut waiting: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    waiting.insert(first, Vec::new());
    names.iter().enumerate().rev().for_each(|(n, name)| waiting.entry(name).or_default().push(n));
    let hosts = waiting.len() as u32;
    let mut names: Vec<&str> = waiting.keys().copied().filter(|name| *name != first).collect();
    names.push(first);
    let mut order = Vec::new();
    while waiting.values().any(|tasks| !tasks.is_empty()) {
        for name in &names {
            order.extend(waiting.get_mut(name).and_then(Vec::pop));
        }
    }
    (order, hosts)
}

fn host() -> String {
    uname().nodename().to_string_lossy().into_owned()
}

/// Returns the path of the file, which is the same in all processes of a run.
fn meeting_point(place: Place, dir: &Path, words: &str) -> PathBuf {
    let mut hash = DefaultHasher::new();
    (words, place.size).hash(&mut hash);
    let variable = |name: &str| std::env::var(name).ok();
    let run = RANKS.into_iter().find(|[_, size, _]| variable(size).is_some()).and_then(|[.., run]| variable(run));
    (run, JOBS.map(variable)).hash(&mut hash);
    dir.join(format!(".sheen-lab.{:016x}", hash.finish()))
}

fn random_word() -> io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes the file for this user alone, and replaces one of a killed run.
fn publish(path: &Path, address: &Address) -> io::Result<()> {
    let new = path.with_extension(format!("{}.{}", std::process::id(), clock::seconds()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(serde_json::to_string(address).map_err(io::Error::other)?.as_bytes())?;
    fs::rename(&new, path).inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Reads the file, if this user has written it.
fn read(path: &Path) -> io::Result<Address> {
    let file = fs::File::open(path)?;
    if file.metadata()?.uid() != getuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut text = String::new();
    file.take(LINE_MAX as u64).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(io::Error::other)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_that_of_the_launcher() {
        let place = |all: &[(&str, &str)]| {
            Place::read(|name| all.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(place(&[]), Ok(None));
        let [open_mpi, pmi] = RANKS;
        assert_eq!(place(&[(open_mpi[0], "3"), (open_mpi[1], "8")]), Ok(Some(Place { rank: 3, size: 8 })));
        assert_eq!(place(&[(pmi[0], "0"), (pmi[1], "2")]), Ok(Some(Place { rank: 0, size: 2 })));
        assert_eq!(place(&[(pmi[0], "0"), (pmi[1], "1")]), Ok(None), "alone");
        for wrong in [[("PMI_RANK", "2"), ("PMI_SIZE", "2")], [("PMI_RANK", "x"), ("PMI_SIZE", "2")]] {
            assert!(place(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn hosts_take_turns() {
        assert_eq!(turns(&["a", "a", "b", "b", "b"], "a"), (vec![2, 0, 3, 1, 4], 2));
        assert_eq!(turns(&["b", "c"], "a"), (vec![0, 1], 3));
        assert_eq!(turns(&["a"], "a"), (vec![0], 1));
    }
}
