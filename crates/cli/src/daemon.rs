//! Background processes, started without a fork.
//!
//! The command starts this program again with `--foreground`, in a new session, with its output in
//! a log file. It then waits until the new process reports on a pipe that it is ready, or why it
//! failed. Until then it prints the waits that the new process reports. If a user ends the command
//! before, the new process ends as well.

use std::{
    ffi::OsString,
    fmt::Display,
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sheen_rt::Rt;

use crate::error::{Context, Failure, Result};

/// Environment variable that names the pipe's descriptor to the background process.
const READY_FD: &str = "SHEEN_READY_FD";
/// Line of a process that is ready.
const OK: &str = "ok";
/// Begins a line for the user that is no failure.
const NOTE: &str = "> ";
/// Interval of [`Ready::abandoned`].
const ABANDONED_POLL: Duration = Duration::from_millis(200);

/// Starts this program again as `sheen WORDS --foreground`. Returns its pid once it is ready.
pub fn background(words: &[OsString], log: &Path) -> Result<u32> {
    let log_file =
        OpenOptions::new().create(true).append(true).open(log).context(format!("cannot write {}", log.display()))?;
    let (read, write) = rustix::pipe::pipe().context("cannot make a pipe")?;
    // If the new process had this end as well, it would not notice the end of this one.
    rustix::io::fcntl_setfd(&read, rustix::io::FdFlags::CLOEXEC).context("cannot set up a pipe")?;
    let me = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(me);
    command
        .args(words)
        .arg("--foreground")
        .env(READY_FD, write.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(log_file.try_clone().context(log.display())?)
        .stderr(log_file);
    // SAFETY: setsid is async-signal-safe and touches nothing of the parent's.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
    }
    let mut child = command.spawn().context("cannot start the background process")?;
    drop(write);
    let mut failure = Vec::new();
    for line in BufReader::new(File::from(read)).lines() {
        let line = line.context("cannot read the state of the background process")?;
        match line.strip_prefix(NOTE) {
            Some(note) => eprintln!("sheen: {note}"),
            None if line == OK => return Ok(child.id()),
            None => failure.push(line),
        }
    }
    let status = child.wait().map(|s| s.to_string()).unwrap_or_default();
    if failure.is_empty() {
        return Err(Failure::new(format!("the background process exited before it was ready ({status})"))
            .advise(format!("see its log: {}", log.display())));
    }
    Err(Failure::new(failure.join("\n")))
}

/// The background process's end of the pipe. Does nothing in a process that a user started by hand.
#[derive(Clone, Debug)]
pub struct Ready(Arc<Mutex<Option<File>>>);

impl Ready {
    /// Takes the pipe that the parent named. Call it once and early: a child process that inherits
    /// the pipe would keep the parent waiting.
    pub fn from_env() -> Ready {
        let fd = std::env::var(READY_FD).ok().and_then(|v| v.parse::<i32>().ok()).filter(|fd| *fd > 2);
        // SAFETY: the parent created this descriptor for this process, and no other code here uses
        // it.
        let pipe = fd.map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        if let Some(pipe) = &pipe {
            let _ = rustix::io::fcntl_setfd(pipe, rustix::io::FdFlags::CLOEXEC);
        }
        Ready(Arc::new(Mutex::new(pipe)))
    }

    /// Logs a line, and lets the parent print it.
    pub fn note(&self, line: impl Display) {
        tracing::info!("{line}");
        if let Some(pipe) = &mut *self.0.lock() {
            let _ = writeln!(pipe, "{NOTE}{line}");
        }
    }

    /// Resolves when the parent has ended without waiting for the report. Never, if a user started
    /// this process by hand.
    pub async fn abandoned(&self, rt: &Rt) {
        while !self.0.lock().as_ref().is_some_and(has_no_reader) {
            rt.sleep(ABANDONED_POLL).await;
        }
    }

    /// Reports that the process is ready.
    pub fn ok(self) {
        if let Some(mut pipe) = self.0.lock().take() {
            let _ = writeln!(pipe, "{OK}");
        }
    }

    /// Reports that the start failed. The parent prints the failure.
    pub fn failed(self, failure: &Failure) {
        if let Some(mut pipe) = self.0.lock().take() {
            let _ = writeln!(pipe, "{failure}");
        }
    }
}

/// Returns whether all processes have closed the other end of a pipe that this process writes.
fn has_no_reader(pipe: &File) -> bool {
    let mut ends = [PollFd::new(pipe, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ends, Some(&at_once)).is_ok() && ends.iter().any(|end| end.revents().contains(PollFlags::ERR))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use sheen_rt::RealOptions;

    use super::*;

    fn piped() -> (File, Ready) {
        let (read, write) = rustix::pipe::pipe().unwrap();
        (File::from(read), Ready(Arc::new(Mutex::new(Some(File::from(write))))))
    }

    #[test]
    fn background_process_reports_notes_and_then_its_state() {
        let (mut read, ready) = piped();
        ready.note("waiting");
        ready.clone().ok();
        ready.note("ignored");
        ready.failed(&Failure::new("ignored"));
        let mut said = String::new();
        read.read_to_string(&mut said).unwrap();
        assert_eq!(said, "> waiting\nok\n");
    }

    #[test]
    fn background_process_learns_that_its_parent_has_ended() {
        let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
        let (read, ready) = piped();
        assert!(!ready.0.lock().as_ref().is_some_and(has_no_reader));
        drop(read);
        runtime.block_on(ready.abandoned(&rt));
    }
}
