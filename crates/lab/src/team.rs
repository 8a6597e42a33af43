//! The tasks of a benchmark: processes that work in step with each other. This is the part of MPI
//! that IOR and mdtest need.
//!
//! * The parent ([`Team`]) starts this program once for each task and sends each task its job. If a
//!   launcher has started the tasks ([`launch`]), it starts only the first of them.
//! * A task ([`Member`]) and its parent exchange values, each a line of JSON. Each task sends one
//!   value; the parent then sends one value to all tasks. So an exchange is also a barrier.
//! * A task that fails sends its error in place of the next value.
//! * A run ends with an empty line. Tasks end when their parent ends or closes the pipe. An
//!   interruption kills them ([`stop`]).
//!
//! Times of different tasks can be compared ([`crate::task_clock`]).

use std::{
    io::{self, BufRead, BufReader, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::process::CommandExt,
    },
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::Timespec,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    launch::{self, Remote},
    stop,
};

/// Longest wait for a task before the parent looks for an interruption.
const AWAKE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Words of the command line that starts a task.
pub const TASK: [&str; 2] = ["lab", "task"];

/// Returns a processor for each task: one of its own if there are enough for all, else none.
///
/// So do mpirun and srun. A task that moves between processors makes results differ: the rate of
/// renames of one task varied by a factor of 2.4.
pub fn processors(tasks: usize) -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    if tasks <= all.len() { all[..tasks].to_vec() } else { Vec::new() }
}

fn bind_to(processor: usize) -> io::Result<()> {
    let mut one = CpuSet::new();
    one.set(processor);
    Ok(sched_setaffinity(None, &one)?)
}

/// The first message to a task.
#[derive(Serialize, Deserialize)]
struct Start<J> {
    processor: Option<usize>,
    job: J,
}

/// The tasks of a run, seen from their parent.
#[derive(Debug)]
pub struct Team {
    tasks: Vec<Task>,
    finished: bool,
}

#[derive(Debug)]
enum Task {
    /// A process that the parent has started.
    Process(Child, BufReader<ChildStdout>),
    /// One that a launcher has started.
    Remote(Remote),
}

impl Task {
    fn start() -> io::Result<Task> {
        let mut command = Command::new(std::env::current_exe()?);
        // With a process group of its own, a task does not get the Ctrl-C that the parent gets.
        command.args(TASK).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        stop::worker_started(child.id());
        let out = child.stdout.take().ok_or_else(|| io::Error::other("a task has no pipe"))?;
        Ok(Task::Process(child, BufReader::new(out)))
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Task::Process(child, _) => child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(line),
            Task::Remote(remote) => remote.stream.write_all(line),
        }
    }

    fn lines(&mut self) -> &mut dyn BufRead {
        match self {
            Task::Process(_, lines) => lines,
            Task::Remote(remote) => &mut remote.lines,
        }
    }

    /// Whether a part of its next message was read together with the last one.
    fn is_read_already(&self) -> bool {
        match self {
            Task::Process(_, lines) => !lines.buffer().is_empty(),
            Task::Remote(remote) => !remote.lines.buffer().is_empty(),
        }
    }

    /// Returns how the task has ended.
    fn end(&mut self) -> String {
        match self {
            Task::Process(child, _) => child.wait().map_or_else(|e| e.to_string(), |status| status.to_string()),
            Task::Remote(_) => "connection closed".into(),
        }
    }
}

impl AsFd for Task {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Task::Process(_, lines) => lines.get_ref().as_fd(),
            Task::Remote(remote) => remote.stream.as_fd(),
        }
    }
}

impl Team {
    /// Starts one task for each job, bound to processors as [`processors`] says.
    ///
    /// # Errors
    /// If a process cannot be started.
    pub fn start<J: Serialize>(bind: bool, jobs: impl ExactSizeIterator<Item = J>) -> io::Result<Team> {
        let mut remotes = launch::take().into_iter();
        if remotes.len() > 0 && remotes.len() + 1 != jobs.len() {
            let [wanted, there] = [jobs.len(), remotes.len() + 1];
            return Err(io::Error::other(format!("{wanted} tasks are wanted, and the launcher has started {there}")));
        }
        // A launcher binds its processes itself.
        let processors = if bind && remotes.len() == 0 { processors(jobs.len()) } else { Vec::new() };
        let mut team = Team { tasks: Vec::new(), finished: false };
        for (rank, job) in jobs.enumerate() {
            stop::check()?;
            let remote = if rank == 0 { None } else { remotes.next() };
            team.tasks.push(remote.map_or_else(Task::start, |remote| Ok(Task::Remote(remote)))?);
            team.send_to(rank, &Start { processor: processors.get(rank).copied(), job })?;
        }
        Ok(team)
    }

    /// Sends a value to all tasks.
    ///
    /// # Errors
    /// If a task has ended, or if the user has interrupted the program.
    pub fn send<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        (0..self.tasks.len()).try_for_each(|rank| self.send_to(rank, value))
    }

    fn send_to<T: Serialize>(&mut self, rank: usize, value: &T) -> io::Result<()> {
        let line = to_line(value)?;
        let sent = self.tasks[rank].send(&line);
        // The reason is in what the task has sent before it ended.
        sent.or_else(|_| self.receive_from::<serde_json::Value>(rank).map(drop))
    }

    /// Receives a value from each task, in the order of their ranks.
    ///
    /// # Errors
    /// The first error of a task, or an interruption by the user.
    pub fn gather<T: DeserializeOwned>(&mut self) -> io::Result<Vec<T>> {
        let mut values: Vec<Option<T>> = self.tasks.iter().map(|_| None).collect();
        loop {
            let missing: Vec<usize> = (0..values.len()).filter(|rank| values[*rank].is_none()).collect();
            if missing.is_empty() {
                return Ok(values.into_iter().flatten().collect());
            }
            // The first that fails ends the run, whatever its rank.
            for rank in self.ready(&missing)? {
                values[rank] = Some(self.receive_from(rank)?);
            }
        }
    }

    /// Waits until at least one of these tasks has sent something or has ended. Returns which.
    fn ready(&self, ranks: &[usize]) -> io::Result<Vec<usize>> {
        let read: Vec<usize> = ranks.iter().copied().filter(|rank| self.tasks[*rank].is_read_already()).collect();
        if !read.is_empty() {
            return Ok(read);
        }
        let tasks = ranks.iter().map(|rank| &self.tasks[*rank]);
        let mut pipes: Vec<PollFd<'_>> = tasks.map(|task| PollFd::new(task, PollFlags::IN)).collect();
        match poll(&mut pipes, Some(&AWAKE)) {
            // A signal: its handler runs in another thread.
            Err(rustix::io::Errno::INTR) => 0,
            other => other?,
        };
        stop::check()?;
        Ok(ranks.iter().zip(&pipes).filter(|(_, pipe)| !pipe.revents().is_empty()).map(|(rank, _)| *rank).collect())
    }

    fn receive_from<T: DeserializeOwned>(&mut self, rank: usize) -> io::Result<T> {
        let task = &mut self.tasks[rank];
        let mut line = String::new();
        let read = task.lines().read_line(&mut line);
        stop::check()?;
        read?;
        if line.is_empty() {
            let end = task.end();
            return Err(io::Error::other(format!("task {rank} ended unexpectedly: {end}")));
        }
        let result: Result<T, String> = serde_json::from_str(&line).map_err(io::Error::other)?;
        result.map_err(|e| io::Error::other(format!("task {rank}: {e}")))
    }

    /// Waits until all tasks call [`Member::barrier`].
    ///
    /// # Errors
    /// As [`Team::gather`].
    pub fn barrier(&mut self) -> io::Result<()> {
        self.gather::<()>()?;
        self.send(&())
    }

    /// Ends the run: the tasks receive `None`.
    pub fn finish(mut self) {
        for task in &mut self.tasks {
            // One that has ended meanwhile is noticed by the next run.
            let _ = task.send(b"\n");
            if let Task::Process(child, _) = task {
                drop(child.stdin.take());
            }
        }
        self.finished = true;
        let remotes = self.tasks.extract_if(.., |task| matches!(task, Task::Remote(_)));
        let remotes = remotes.filter_map(|task| match task {
            Task::Remote(remote) => Some(remote),
            Task::Process(..) => None,
        });
        launch::put_back(remotes.collect());
    }
}

impl Drop for Team {
    /// Ends the tasks, and waits for that. After an orderly run, they wait for their parent.
    /// Otherwise they are killed; those of a launcher end because the connection is closed.
    fn drop(&mut self) {
        for task in self.tasks.drain(..) {
            match task {
                Task::Process(mut child, _) => {
                    stop::worker_ending(child.id());
                    if !self.finished {
                        let _ = child.kill();
                    }
                    let _ = child.wait();
                }
                Task::Remote(remote) => remote.end(),
            }
        }
    }
}

/// A task, seen from itself.
pub struct Member {
    lines: Box<dyn BufRead>,
    out: Box<dyn Write>,
}

impl Member {
    /// Returns the task that a parent has started.
    pub fn of_parent() -> Member {
        Member { lines: Box::new(io::stdin().lock()), out: Box::new(io::stdout()) }
    }

    /// Returns the task that a launcher has started.
    pub fn of_launcher(remote: Remote) -> Member {
        Member { lines: Box::new(remote.lines), out: Box::new(remote.stream) }
    }

    /// Runs `work` with each job that the parent sends, and reports its error to the parent.
    /// Returns whether all succeeded.
    pub fn run<J: DeserializeOwned>(mut self, work: impl Fn(J, &mut Member) -> io::Result<()>) -> bool {
        loop {
            let outcome = match self.receive::<Start<J>>() {
                Ok(Some(Start { processor, job })) => {
                    if let Some(processor) = processor {
                        // Without permission to choose, the task runs where the system puts it.
                        let _ = bind_to(processor);
                    }
                    work(job, &mut self)
                }
                Ok(None) => return true,
                Err(e) => Err(e),
            };
            if let Err(e) = &outcome {
                let _ = self.send_result::<()>(Err(e.to_string()));
                // Until the parent has read that: a launcher ends all processes when one fails.
                let _ = io::copy(&mut self.lines, &mut io::sink());
                return false;
            }
        }
    }

    /// Sends a value to the parent.
    ///
    /// # Errors
    /// If the parent has ended.
    pub fn send<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        self.send_result(Ok(value))
    }

    fn send_result<T: Serialize>(&mut self, value: Result<&T, String>) -> io::Result<()> {
        self.out.write_all(&to_line(&value)?)?;
        self.out.flush()
    }

    /// Receives a value from the parent; `None` if the parent has ended the run.
    ///
    /// # Errors
    /// If the pipe fails.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        if line.trim_end().is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&line).map(Some).map_err(io::Error::other)
    }

    /// Sends a value, and receives the value that the parent sends to all tasks.
    ///
    /// # Errors
    /// If the parent has ended.
    pub fn exchange<T: Serialize, R: DeserializeOwned>(&mut self, value: &T) -> io::Result<R> {
        self.send(value)?;
        self.receive()?.ok_or_else(|| io::Error::other("the parent process has ended"))
    }

    /// Waits until all tasks are here.
    ///
    /// # Errors
    /// If the parent has ended.
    pub fn barrier(&mut self) -> io::Result<()> {
        self.exchange(&())
    }
}

fn to_line<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value).map_err(io::Error::other)?;
    line.push(b'\n');
    Ok(line)
}
