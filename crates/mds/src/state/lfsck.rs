//! The state of the check of a running MDT. The check is in [`crate::lfsck`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_namespace::{Check, Problem};
use sheen_wire::{Errno, Result, Time};
use tokio::sync::Notify;

/// Problems that the status lists: so many that are left, and so many that were repaired.
const SHOWN_MAX: usize = 100;

/// The problems that a check repairs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Repairs {
    Nothing,
    /// Orphan objects.
    Orphans,
    /// All that a running MDT can repair.
    All,
}

/// The state.
#[derive(Default)]
pub(crate) struct Lfsck {
    /// Wakes the task.
    pub wake: Notify,
    /// Makes the check under way fail.
    pub stop: Arc<AtomicBool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether a check is requested, and what it repairs.
    wanted: Option<Repairs>,
    stage: Stage,
    started: Option<Time>,
    ended: Option<Time>,
    /// Records read, of about so many.
    progress: (u64, u64),
    /// Why the last check failed.
    failure: String,
    /// Result of the last check. `None`: it ended before it knew anything.
    result: Option<Report>,
}

/// Stage of the last check, with Lustre's names.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Init,
    Scanning,
    Completed,
    Stopped,
    Failed,
}

/// How a check ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Completed,
    /// Somebody has stopped it, or the MDT stops.
    Stopped,
    /// With the cause.
    Failed(String),
}

/// Outcomes of repairs, by the position of the problem in [`Check::problems`].
pub(crate) type Outcomes = BTreeMap<usize, Result<()>>;

/// Result of a check, or of several with repairs between them.
#[derive(Debug, Default)]
pub(crate) struct Report {
    files: u64,
    objects: u64,
    /// The OSTs whose objects could not be listed.
    unchecked: BTreeSet<u32>,
    /// Number of problems that are left.
    left: u64,
    left_lines: Vec<String>,
    /// Number of problems that were repaired.
    repaired: u64,
    repaired_lines: Vec<String>,
    /// Whether any check has ended.
    is_filled: bool,
}

impl Report {
    /// Adds a check and the repairs that followed it. `unchecked`: the OSTs whose objects could not
    /// be listed.
    pub fn add(&mut self, check: &Check, unchecked: BTreeSet<u32>, outcomes: &Outcomes, repairs: Repairs) {
        let repaired = outcomes.values().filter(|outcome| outcome.is_ok()).count() as u64;
        self.files = check.files_count();
        self.objects = check.objects_count();
        self.unchecked = unchecked;
        self.left = check.problem_count().saturating_sub(repaired);
        self.repaired += repaired;
        self.left_lines.clear();
        self.is_filled = true;
        for (n, problem) in check.problems().iter().enumerate() {
            let outcome = outcomes.get(&n);
            let lines = match outcome {
                Some(Ok(())) => &mut self.repaired_lines,
                _ => &mut self.left_lines,
            };
            if lines.len() < SHOWN_MAX {
                lines.push(format!("{}: {problem}{}", problem.name(), describe(problem, outcome, repairs)));
            }
        }
    }

    /// Writes the numbers and the problems in Lustre's form.
    fn write(&self, text: &mut String) -> fmt::Result {
        let unchecked: Vec<String> = self.unchecked.iter().map(|ost| format!("OST{ost:04x}")).collect();
        writeln!(text, "checked_files: {}\nchecked_objects: {}", self.files, self.objects)?;
        writeln!(text, "unchecked_osts: [{}]", unchecked.join(", "))?;
        writeln!(text, "problems: {}\nrepaired: {}", self.left + self.repaired, self.repaired)?;
        self.left_lines.iter().chain(&self.repaired_lines).try_for_each(|line| writeln!(text, "- {line}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { files, left, repaired, .. } = self;
        write!(f, "{files} files, {} problems, {repaired} repaired", left + repaired)
    }
}

impl Lfsck {
    /// Requests a check.
    ///
    /// # Errors
    /// EALREADY: a check is under way.
    pub fn start(&self, repairs: Repairs) -> Result<()> {
        let mut state = self.state.lock();
        if state.stage == Stage::Scanning {
            return Err(Errno::EALREADY);
        }
        state.wanted = state.wanted.max(Some(repairs));
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// Ends a check.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.wanted = None;
        self.stop.store(state.stage == Stage::Scanning, Relaxed);
    }

    /// Whether a check is requested or under way.
    pub fn is_running(&self) -> bool {
        let state = self.state.lock();
        state.wanted.is_some() || state.stage == Stage::Scanning
    }

    /// Begins a check, if one is requested. Returns what it repairs.
    pub fn begin(&self, now: Time) -> Option<Repairs> {
        let mut state = self.state.lock();
        let wanted = state.wanted;
        if wanted.is_some() {
            self.stop.store(false, Relaxed);
            let ended = state.ended;
            *state = State { stage: Stage::Scanning, started: Some(now), ended, ..State::default() };
        }
        wanted
    }

    /// Records how far the check is.
    pub fn progress(&self, done: u64, all: u64) {
        self.state.lock().progress = (done, all);
    }

    /// Records the end of a check. A failure because of [`Lfsck::stop`] is a stop.
    pub fn ended(&self, report: Report, ended: Ended, now: Time) {
        let mut state = self.state.lock();
        let is_asked_to_stop = self.stop.swap(false, Relaxed);
        state.result = Some(report).filter(|report| report.is_filled);
        match ended {
            Ended::Completed => (state.stage, state.ended) = (Stage::Completed, Some(now)),
            Ended::Stopped => state.stage = Stage::Stopped,
            Ended::Failed(_) if is_asked_to_stop => state.stage = Stage::Stopped,
            Ended::Failed(why) => (state.stage, state.failure) = (Stage::Failed, why),
        }
    }

    /// Returns the status as text in Lustre's form.
    pub fn status(&self, now: Time) -> String {
        let state = self.state.lock();
        let stage = match state.stage {
            _ if state.wanted.is_some() => "scanning",
            Stage::Init => "init",
            Stage::Scanning => "scanning",
            Stage::Completed => "completed",
            Stage::Stopped => "stopped",
            Stage::Failed => "failed",
        };
        let since =
            |at: Option<Time>| at.map_or_else(|| "N/A".to_owned(), |at| format!("{} seconds", now.sec - at.sec));
        let mut text = format!(
            "name: lfsck_namespace\nstatus: {stage}\ntime_since_latest_start: {}\ntime_since_last_completed: {}\n",
            since(state.started),
            since(state.ended)
        );
        // Writing to a string does not fail.
        let _ = match state.stage {
            Stage::Scanning => {
                let (done, all) = state.progress;
                writeln!(text, "checked_records: {done}\nestimated_records: {all}")
            }
            Stage::Failed => writeln!(text, "failure: {}", state.failure),
            Stage::Init | Stage::Completed | Stage::Stopped => Ok(()),
        };
        let _ = state.result.as_ref().map_or(Ok(()), |result| result.write(&mut text));
        text
    }
}

/// Returns the outcome of a problem's repair, as the end of its line. Without a request for repairs
/// there is none.
fn describe(problem: &Problem, outcome: Option<&Result<()>>, repairs: Repairs) -> String {
    let why = match (outcome, problem.repair()) {
        (Some(Ok(())), repair) => return format!("; repaired: {}", repair.unwrap_or_default()),
        (Some(Err(Errno::EUCLEAN)), _) => "the metadata has other problems; run sheen fsck".to_owned(),
        (Some(Err(Errno::EBADMSG)), _) => {
            "bad entries must be removed first; stop the MDT and run sheen fsck --repair".to_owned()
        }
        (Some(Err(Errno::EBUSY)), _) => "programs change it all the time; start another check later".to_owned(),
        (Some(Err(Errno::ESTALE)), _) => "it changed during the check; start another one".to_owned(),
        (Some(Err(Errno::E2BIG | Errno::ENOTEMPTY)), _) => {
            "the directory has too many entries; stop the MDT and run sheen fsck --repair".to_owned()
        }
        (Some(Err(errno)), _) => errno.to_string(),
        (None, _) if repairs != Repairs::All => return String::new(),
        (None, None) => "there is no repair".to_owned(),
        (None, Some(_)) if problem.is_repaired_online() => "other repairs came first; start another check".to_owned(),
        (None, Some(_)) => "stop the MDT and run sheen fsck --repair".to_owned(),
    };
    format!("; not repaired: {why}")
}
