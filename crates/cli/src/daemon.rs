//! Background processes, started without a fork.
//!
//! The command starts this program again with `--foreground`, in a new session, with its output in
//! a log file. It then waits until the new process reports on a pipe that it is ready, or why it
//! failed.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
};

use crate::error::{Context, Failure, Result};

/// Environment variable that names the pipe's descriptor to the background process.
const READY_FD: &str = "SHEEN_READY_FD";
const OK: &str = "ok\n";

/// Starts this program again as `sheen WORDS --foreground`. Returns its pid once it is ready.
pub fn background(words: &[OsString], log: &Path) -> Result<u32> {
    let log_file =
        OpenOptions::new().create(true).append(true).open(log).context(format!("cannot write {}", log.display()))?;
    let (read, write) = rustix::pipe::pipe().context("cannot make a pipe")?;
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
    let mut said = String::new();
    std::fs::File::from(read).read_to_string(&mut said).context("cannot read the state of the background process")?;
    match said.strip_suffix(OK) {
        Some("") => Ok(child.id()),
        _ if said.is_empty() => {
            let status = child.wait().map(|s| s.to_string()).unwrap_or_default();
            Err(Failure::new(format!("the background process exited before it was ready ({status})"))
                .advise(format!("see its log: {}", log.display())))
        }
        _ => {
            let _ = child.wait();
            Err(Failure::new(said.trim_end().to_owned()))
        }
    }
}

/// The background process's end of the pipe. Does nothing in a process that a user started by hand.
#[derive(Debug)]
pub struct Ready(Option<std::fs::File>);

impl Ready {
    /// Takes the pipe that the parent named. Call it once and early: a child process that inherits
    /// the pipe would keep the parent waiting.
    pub fn from_env() -> Ready {
        let fd = std::env::var(READY_FD).ok().and_then(|v| v.parse::<i32>().ok()).filter(|fd| *fd > 2);
        // SAFETY: the parent created this descriptor for this process, and no other code here uses
        // it.
        let pipe = fd.map(|fd| std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        if let Some(pipe) = &pipe {
            let _ = rustix::io::fcntl_setfd(pipe, rustix::io::FdFlags::CLOEXEC);
        }
        Ready(pipe)
    }

    /// Reports that the process is ready.
    pub fn ok(mut self) {
        if let Some(mut pipe) = self.0.take() {
            let _ = pipe.write_all(OK.as_bytes());
        }
    }

    /// Reports that the start failed. The parent prints the failure.
    pub fn failed(mut self, failure: &Failure) {
        if let Some(mut pipe) = self.0.take() {
            let _ = writeln!(pipe, "{failure}");
        }
    }
}
