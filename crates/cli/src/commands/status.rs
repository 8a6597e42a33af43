//! `sheen status`: shows the state of the file system in a directory, and how to mount it.

use std::{collections::BTreeMap, net::SocketAddr};

use serde::Serialize;
use sheen_control::{GREETING_TIMEOUT, Reply, Request};
use sheen_mount::IoUringSwitch;

use crate::{
    args::StatusArgs,
    config::Config,
    error::{Context, Result},
    paths::Home,
    run_file::{Running, State, state},
    time_limits::scaled,
};

/// Value of `mdt.*.health` of an MDT without problems.
const HEALTHY: &str = "healthy";

#[derive(Serialize)]
struct Report {
    dir: String,
    running: bool,
    /// A process is starting or stopping.
    changing: bool,
    fsname: Option<String>,
    /// The part of `sheen mount`'s source argument before `:/fsname`.
    mgs: Option<String>,
    /// The whole source argument of `sheen mount`.
    source: Option<String>,
    mount: Option<String>,
    osts: Option<u32>,
    pid: Option<u32>,
    since: Option<u64>,
    /// Address of its metrics.
    metrics: Option<SocketAddr>,
    /// `mdt.*.health` of the MDTs of the process.
    health: BTreeMap<String, String>,
    log: String,
}

/// Runs the command. The exit code is 0 whether or not the file system is running: the output says
/// which.
///
/// # Errors
/// The directory holds no file system: the user probably meant another one.
pub fn run(args: &StatusArgs) -> Result {
    let home = Home::new(args.dir.dir.as_deref())?;
    let state = state(&home.run())?;
    let config = Config::load(&home.config())?;
    if config.is_none() && state == State::Down {
        return Err(home.no_file_system());
    }
    let report = Report::new(&home, config, &state);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report).context("cannot print")?);
    } else {
        report.print();
    }
    Ok(())
}

impl Report {
    fn new(home: &Home, config: Option<Config>, state: &State) -> Report {
        let running = if let State::Up(running) = state { Some(running) } else { None };
        Report {
            changing: *state == State::Changing,
            dir: home.dir().display().to_string(),
            running: running.is_some(),
            fsname: running.map(|r| r.fsname.clone()).or(config.as_ref().map(|c| c.fsname.clone())),
            mgs: running.map(|r| r.mgs.clone()),
            source: running.map(Running::source),
            mount: running.and_then(Running::mounted).map(|m| m.display().to_string()),
            osts: running.map(|r| r.osts).or(config.map(|c| c.osts)),
            pid: running.map(|r| r.pid),
            since: running.map(|r| r.since),
            metrics: running.and_then(|r| r.metrics),
            health: running.map(|r| health(r.pid)).unwrap_or_default(),
            log: home.log().display().to_string(),
        }
    }

    fn print(&self) {
        let Some(fsname) = &self.fsname else {
            println!("the file system in {} is being created", self.dir);
            return;
        };
        let line = |label: &str, value: &str| println!("{label:12}{value}");
        line("file system", fsname);
        line("directory", &self.dir);
        if let Some(osts) = self.osts {
            line("OSTs", &osts.to_string());
        }
        let Some(pid) = self.pid else {
            line("state", if self.changing { "starting or stopping" } else { "stopped; `sheen up` starts it" });
            return;
        };
        line("state", &format!("running, pid {pid}"));
        for (mdt, health) in self.health.iter().filter(|(_, health)| *health != HEALTHY) {
            line("problem", &format!("{mdt}: {health}; the log has the reason"));
        }
        line("mounted at", self.mount.as_deref().unwrap_or("not mounted by this process"));
        if let Some(source) = &self.source {
            line("to mount", &format!("sheen mount {source} DIRECTORY"));
        }
        if let Some(at) = self.metrics {
            line("metrics", &format!("http://{at}/metrics"));
        }
        line("log", &self.log);
        if self.mount.is_some() && IoUringSwitch::now() == IoUringSwitch::Off {
            line("io_uring", "off in the kernel; root's `-o io_uring=on` makes small requests of a mount faster");
        }
    }
}

/// Returns the health of the MDTs of a process, by name. Nothing if the process does not answer.
fn health(pid: u32) -> BTreeMap<String, String> {
    let name = format!("{pid}.sock");
    let sockets = sheen_control::sockets().into_iter().filter(|path| path.ends_with(&name));
    let request = Request::Get { pattern: "mdt.*.health".to_owned() };
    let replies = sockets.filter_map(|socket| sheen_control::ask(&socket, &request, scaled(GREETING_TIMEOUT)).ok());
    let values = replies.flat_map(|reply| if let Reply::Values(values) = reply { values } else { Vec::new() });
    values.filter_map(|found| Some((found.name.split('.').nth(1)?.to_owned(), found.value))).collect()
}
