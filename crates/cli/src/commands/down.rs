//! `sheen down`: unmounts the file system of a directory and stops its process. The process commits
//! its data before it exits.

use std::{
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

use crate::{
    args::DownArgs,
    commands::umount::unmount,
    config::Config,
    error::{Context, Failure, Result},
    paths::Home,
    run_file::{Running, State, state},
};

/// Time limit for a process to commit and exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// After this time the command reports what it waits for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the command. A file system that is not running is no error.
///
/// # Errors
/// The directory holds no file system: the user probably meant another one. Or the process does not
/// stop in time.
pub fn run(args: &DownArgs) -> Result {
    let home = Home::new(args.dir.dir.as_deref())?;
    let Some(running) = wait_settled(&home)? else {
        if Config::load(&home.config())?.is_none() {
            return Err(home.no_file_system());
        }
        println!("not running: the file system in {}", home.dir().display());
        return Ok(());
    };
    if let Some(mount) = running.mounted() {
        unmount(mount, args.force)?;
    }
    stop(&home, &running)?;
    println!("stopped {}; its data remains in {}", running.fsname, home.dir().display());
    Ok(())
}

/// Waits for a process that is starting or stopping, then returns what is running.
fn wait_settled(home: &Home) -> Result<Option<Running>> {
    let start = Instant::now();
    loop {
        match state(&home.run())? {
            State::Down => return Ok(None),
            State::Up(running) => return Ok(Some(running)),
            State::Changing if start.elapsed() > STOP_TIMEOUT => {
                return Err(Failure::new("timed out while the file system was starting or stopping")
                    .advise(format!("see its log: {}", home.log().display())));
            }
            State::Changing => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn stop(home: &Home, process: &Running) -> Result {
    let pid = Pid::from_raw(process.pid as i32).ok_or_else(|| Failure::new("run.json contains no valid pid"))?;
    // `None`: it has ended, or the kernel is older than Linux 5.3.
    let ends = pidfd_open(pid, PidfdFlags::empty()).ok();
    match kill_process(pid, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(e) => {
            return Err(Failure::new(format!("cannot stop process {}: {e}", process.pid))
                .advise("it belongs to another user; run this command as that user or as root"));
        }
    }
    let start = Instant::now();
    let mut reported = false;
    // An ending process closes its lock file before its other files. As long as these are open, the
    // disk of the directory cannot be unmounted.
    while state(&home.run()).context("cannot tell whether the process has exited")? != State::Down
        || !ends.as_ref().is_none_or(has_ended)
    {
        if start.elapsed() > STOP_TIMEOUT {
            return Err(Failure::new(format!("process {} did not exit within {STOP_TIMEOUT:?}", process.pid))
                .advise(format!("see its log: {}", home.log().display())));
        }
        if !reported && start.elapsed() > PATIENCE {
            eprintln!("waiting for process {} to commit its data and exit …", process.pid);
            reported = true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Returns whether a process has ended and closed its files.
fn has_ended(process: &OwnedFd) -> bool {
    let mut waiting = [PollFd::new(process, PollFlags::IN)];
    poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
