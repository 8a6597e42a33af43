//! `sheen down`: unmounts what the process of a directory mounted, then ends the process, which
//! commits all it holds.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    args::DownArgs,
    commands::umount::unmount,
    config::Config,
    error::{Context, Failure, Result},
    paths::Home,
    run_file::{Running, State, state},
};

/// How long a process may take to commit and end.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// After this long, say what is being waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the command. Nothing to stop is no failure.
///
/// # Errors
/// The directory holds no file system: another one was meant. Or it does not stop.
pub fn run(args: &DownArgs) -> Result {
    let home = Home::new(args.dir.dir.as_deref())?;
    let Some(running) = settled(&home)? else {
        if Config::load(&home.config())?.is_none() {
            return Err(home.no_file_system());
        }
        println!("nothing runs in {}", home.dir().display());
        return Ok(());
    };
    if let Some(mount) = running.mounted() {
        unmount(mount, args.force)?;
    }
    stop(&home, &running)?;
    println!("stopped {}; its data stays in {}", running.fsname, home.dir().display());
    Ok(())
}

/// What runs, once a process that is just starting or ending has done so.
fn settled(home: &Home) -> Result<Option<Running>> {
    let start = Instant::now();
    loop {
        match state(&home.run())? {
            State::Down => return Ok(None),
            State::Up(running) => return Ok(Some(running)),
            State::Changing if start.elapsed() > STOP_TIMEOUT => {
                return Err(Failure::new("the file system neither gets up nor ends")
                    .advise(format!("its log may say why: {}", home.log().display())));
            }
            State::Changing => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn stop(home: &Home, process: &Running) -> Result {
    let pid = Pid::from_raw(process.pid as i32).ok_or_else(|| Failure::new("run.json names no process"))?;
    match kill_process(pid, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(e) => {
            return Err(Failure::new(format!("cannot stop process {}: {e}", process.pid))
                .advise("it belongs to another user; run this command as that user"));
        }
    }
    let start = Instant::now();
    let mut told = false;
    while state(&home.run()).context("while waiting")? != State::Down {
        if start.elapsed() > STOP_TIMEOUT {
            return Err(Failure::new(format!("process {} has not ended within {STOP_TIMEOUT:?}", process.pid))
                .advise(format!("its log may say why: {}", home.log().display())));
        }
        if !told && start.elapsed() > PATIENCE {
            eprintln!("waiting for process {} to commit and end …", process.pid);
            told = true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
