//! The Sheen processes of this machine: whether they answer, reach their servers and are healthy.

use std::path::PathBuf;

use super::finding::Finding;

/// Names that a finding lists.
const NAMES_MAX: usize = 5;

/// State of the directory of control sockets, in which mounts also write their log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketDir {
    /// It is private to this user, or can be created.
    Usable,
    /// Other users can change files in it; these are its permission bits.
    Exposed(u32),
    /// It belongs to another user, or is no directory.
    Foreign,
    /// It does not exist and cannot be created.
    Denied,
    /// Access to it may block. The processes were not asked.
    MayBlock,
}

/// The processes.
#[derive(Clone, Debug)]
pub struct Processes {
    /// The directory of control sockets.
    pub dir: PathBuf,
    /// Its state.
    pub dir_state: SocketDir,
    /// Number of processes that answer.
    pub answering: usize,
    /// The processes that do not answer.
    pub silent: Vec<u32>,
    /// Connections of mounts to servers that are disconnected, and not deactivated.
    pub disconnected: Vec<String>,
    /// MDTs that are not healthy, with the reason.
    pub unhealthy: Vec<(String, String)>,
}

impl Processes {
    /// No processes.
    pub fn new(dir: PathBuf, dir_state: SocketDir) -> Processes {
        let (silent, disconnected, unhealthy) = (Vec::new(), Vec::new(), Vec::new());
        Processes { dir, dir_state, answering: 0, silent, disconnected, unhealthy }
    }
}

/// Checks the processes.
pub fn checks(processes: &Processes) -> Vec<Finding> {
    let mut found = vec![socket_dir(processes)];
    if processes.dir_state == SocketDir::MayBlock {
        return found;
    }
    let before = found.len();
    found.extend(processes.silent.iter().map(|pid| silent(*pid)));
    found.extend(disconnected(&processes.disconnected));
    found.extend(processes.unhealthy.iter().map(|(mdt, reason)| unhealthy(mdt, reason)));
    if found.len() == before {
        let text = match processes.answering {
            0 => "lctl finds no Sheen process".to_owned(),
            1 => "one Sheen process answers, and is not disconnected".to_owned(),
            count => format!("{count} Sheen processes answer, and are not disconnected"),
        };
        found.push(Finding::ok("processes", text));
    }
    found
}

fn socket_dir(processes: &Processes) -> Finding {
    let check = "runtime_dir";
    let dir = processes.dir.display();
    let other = "unset SHEEN_RUNTIME_DIR and XDG_RUNTIME_DIR if they are another user's, or export \
                 SHEEN_RUNTIME_DIR=DIR, a directory of this user's own, for all Sheen processes and lctl";
    match processes.dir_state {
        SocketDir::Usable => Finding::ok(check, format!("control sockets are in {dir}")),
        SocketDir::Exposed(mode) => Finding::warning(
            check,
            format!("lctl does not reach new processes: others can change {dir} (mode {:04o})", mode & 0o7777),
            format!("chmod 700 {dir}"),
        ),
        SocketDir::Foreign => Finding::warning(
            check,
            format!("lctl does not reach new processes: {dir} is not a directory of this user"),
            other,
        ),
        SocketDir::Denied => {
            Finding::warning(check, format!("lctl does not reach new processes: {dir} cannot be created"), other)
        }
        SocketDir::MayBlock => Finding::warning(
            check,
            format!("the Sheen processes were not asked: their sockets are in {dir}, which may not answer"),
            "use a directory on a local file system: export SHEEN_RUNTIME_DIR=DIR",
        ),
    }
}

fn silent(pid: u32) -> Finding {
    Finding::warning(
        "silent_process",
        format!("process {pid} did not answer in time: it is stopped, it hangs, or the machine is busy"),
        format!("`ps -o stat= -p {pid}` shows T for a stopped one; kill -CONT {pid} resumes it"),
    )
}

fn disconnected(servers: &[String]) -> Option<Finding> {
    if servers.is_empty() {
        return None;
    }
    let mut names = servers.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    if servers.len() > NAMES_MAX {
        names.push_str(&format!(" and {} more", servers.len() - NAMES_MAX));
    }
    Some(Finding::warning(
        "disconnected",
        format!("mounts have no connection to their servers: {names}"),
        "start these servers; `lfs check all` shows their state",
    ))
}

fn unhealthy(mdt: &str, reason: &str) -> Finding {
    Finding::error(
        "mdt_health",
        format!("{mdt} refuses changes: {reason}"),
        "its log has the reason; docs/administration.md says what to do (\"A damaged store\")",
    )
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Severity, *};

    fn healthy() -> Processes {
        Processes { answering: 2, ..Processes::new("/run/sheen".into(), SocketDir::Usable) }
    }

    #[test]
    fn processes_without_problems_have_only_ok_findings() {
        let all = checks(&healthy());
        assert!(all.iter().all(|f| f.severity == Severity::Ok), "{all:?}");
        assert_eq!(all.len(), 2);
        let none = checks(&Processes { answering: 0, ..healthy() });
        assert_eq!(none[1].text, "lctl finds no Sheen process");
    }

    #[test]
    fn each_problem_of_a_process_names_it_and_its_command() {
        let names: Vec<String> = (0..7).map(|n| format!("ost{n}")).collect();
        let unhealthy = vec![("a-MDT0000".to_owned(), "read-only: full".to_owned())];
        let state = |dir_state| Processes { dir_state, ..healthy() };
        let warning = Severity::Warning;
        for (processes, check, severity, text, advice) in [
            (state(SocketDir::Exposed(0o777)), "runtime_dir", warning, "mode 0777", "chmod 700 /run/sheen"),
            (state(SocketDir::Foreign), "runtime_dir", warning, "not a directory of this user", "SHEEN_RUNTIME_DIR"),
            (state(SocketDir::Denied), "runtime_dir", warning, "cannot be created", "SHEEN_RUNTIME_DIR"),
            (state(SocketDir::MayBlock), "runtime_dir", warning, "were not asked", "SHEEN_RUNTIME_DIR"),
            (Processes { silent: vec![12], ..healthy() }, "silent_process", warning, "process 12", "kill -CONT 12"),
            (
                Processes { disconnected: names, ..healthy() },
                "disconnected",
                warning,
                "ost0, ost1, ost2, ost3, ost4 and 2 more",
                "lfs check all",
            ),
            (Processes { unhealthy, ..healthy() }, "mdt_health", Severity::Error, "read-only: full", "its log"),
        ] {
            let found: Vec<Finding> = checks(&processes).into_iter().filter(|f| f.severity != Severity::Ok).collect();
            let [finding] = &found[..] else { panic!("{found:?}") };
            assert_eq!((finding.check, finding.severity), (check, severity));
            assert!(finding.text.contains(text), "{finding:?}");
            let said = finding.advice.as_deref().unwrap();
            assert!(said.contains(advice) && !said.contains("rm "), "{finding:?}");
        }
    }
}
