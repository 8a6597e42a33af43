//! The tasks of a benchmark: processes that work in step with each other. This is the part of MPI
//! that IOR and mdtest need, on one machine.
//!
//! * The parent ([`Team`]) starts this program once for each task and sends each task its job.
//! * A task ([`Member`]) and its parent exchange values, each a line of JSON. Each task sends one
//!   value; the parent then sends one value to all tasks. So an exchange is also a barrier.
//! * A task that fails sends its error in place of the next value.
//! * Tasks end when their parent ends or closes the pipe. An interruption kills them ([`stop`]).
//!
//! Times of different tasks can be compared: [`now`] reads the same clock in all processes.

use std::{
    io::{self, BufRead, BufReader, StdinLock, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::stop;

/// Words of the command line that starts a task.
pub const TASK: [&str; 2] = ["lab", "task"];

/// Returns the time in nanoseconds since a moment that all processes of the machine share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

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
struct Task {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Team {
    /// Starts one task for each job, bound to processors as [`processors`] says.
    ///
    /// # Errors
    /// If a process cannot be started.
    pub fn start<J: Serialize>(bind: bool, jobs: impl ExactSizeIterator<Item = J>) -> io::Result<Team> {
        let processors = if bind { processors(jobs.len()) } else { Vec::new() };
        let program = std::env::current_exe()?;
        let mut team = Team { tasks: Vec::new(), finished: false };
        for job in jobs {
            stop::check()?;
            let mut command = Command::new(&program);
            // With a process group of its own, a task does not get the Ctrl-C that the parent gets.
            command.args(TASK).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn()?;
            stop::worker_started(child.id());
            let out = child.stdout.take().ok_or_else(|| io::Error::other("a task has no pipe"))?;
            team.tasks.push(Task { child, lines: BufReader::new(out) });
            let rank = team.tasks.len() - 1;
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
        let stdin = self.tasks[rank].child.stdin.as_mut();
        let sent = stdin.ok_or(io::ErrorKind::BrokenPipe.into()).and_then(|pipe| pipe.write_all(&line));
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
        let pipes = ranks.iter().map(|rank| self.tasks[*rank].lines.get_ref());
        let mut pipes: Vec<PollFd<'_>> = pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        match poll(&mut pipes, None) {
            // A signal: its handler runs in another thread.
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            other => other?,
        };
        Ok(ranks.iter().zip(&pipes).filter(|(_, pipe)| !pipe.revents().is_empty()).map(|(rank, _)| *rank).collect())
    }

    fn receive_from<T: DeserializeOwned>(&mut self, rank: usize) -> io::Result<T> {
        let task = &mut self.tasks[rank];
        let mut line = String::new();
        let read = task.lines.read_line(&mut line);
        stop::check()?;
        read?;
        if line.is_empty() {
            let end = task.child.wait()?;
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
            drop(task.child.stdin.take());
        }
        self.finished = true;
    }
}

impl Drop for Team {
    /// Ends the tasks. After an orderly run, they wait for their parent. Otherwise they are killed.
    fn drop(&mut self) {
        for task in &mut self.tasks {
            stop::worker_ending(task.child.id());
            if !self.finished {
                let _ = task.child.kill();
            }
            let _ = task.child.wait();
        }
    }
}

/// A task, seen from itself.
#[derive(Debug)]
pub struct Member {
    lines: StdinLock<'static>,
}

impl Member {
    /// Runs `work` with the job that the parent sends, and reports its error to the parent. Returns
    /// whether it succeeded.
    pub fn run<J: DeserializeOwned>(work: impl FnOnce(J, &mut Member) -> io::Result<()>) -> bool {
        let mut member = Member { lines: io::stdin().lock() };
        let outcome = match member.receive::<Start<J>>() {
            Ok(Some(Start { processor, job })) => {
                if let Some(processor) = processor {
                    // Without permission to choose, the task runs where the system puts it.
                    let _ = bind_to(processor);
                }
                work(job, &mut member)
            }
            Ok(None) => Ok(()),
            Err(e) => Err(e),
        };
        if let Err(e) = &outcome {
            let _ = member.send_result::<()>(Err(e.to_string()));
        }
        outcome.is_ok()
    }

    /// Sends a value to the parent.
    ///
    /// # Errors
    /// If the parent has ended.
    pub fn send<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        self.send_result(Ok(value))
    }

    fn send_result<T: Serialize>(&mut self, value: Result<&T, String>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(&to_line(&value)?)?;
        out.flush()
    }

    /// Receives a value from the parent; `None` if the parent has ended the run.
    ///
    /// # Errors
    /// If the pipe fails.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
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
