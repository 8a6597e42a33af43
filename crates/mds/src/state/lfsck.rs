//! The state of the check of a running MDT. The check is in [`crate::lfsck`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_namespace::{Check, Problem};
use sheen_wire::{Errno, Fid, Result, Time};
use tokio::sync::Notify;

/// Problems that the status lists.
const SHOWN_MAX: usize = 100;

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
    /// Whether a check is requested, and whether it repairs orphan objects.
    wanted: Option<bool>,
    stage: Stage,
    started: Option<Time>,
    ended: Option<Time>,
    /// Records read, of about so many.
    progress: (u64, u64),
    /// Why the last check failed.
    failure: String,
    result: Numbers,
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

/// Result of a check.
#[derive(Default)]
struct Numbers {
    files: u64,
    objects: u64,
    problems: u64,
    /// Problems that were repaired.
    repaired: usize,
    lines: Vec<String>,
    unchecked: BTreeSet<u32>,
}

/// Outcomes of the repairs of orphan objects, by OST and object.
pub(crate) type Outcomes = BTreeMap<(u32, Fid), Result<()>>;

impl Lfsck {
    /// Requests a check, with or without repairs of orphan objects.
    ///
    /// # Errors
    /// EALREADY: a check is under way.
    pub fn start(&self, repair: bool) -> Result<()> {
        let mut state = self.state.lock();
        if state.stage == Stage::Scanning {
            return Err(Errno::EALREADY);
        }
        state.wanted = Some(repair || state.wanted.unwrap_or_default());
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

    /// Begins a check, if one is requested. Returns whether it repairs orphan objects.
    pub fn begin(&self, now: Time) -> Option<bool> {
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

    /// Ends a check. `unchecked`: the OSTs whose objects could not be listed.
    pub fn completed(&self, check: &Check, outcomes: &Outcomes, unchecked: BTreeSet<u32>, now: Time) {
        let line = |problem: &Problem| format!("{}: {problem}{}", problem.name(), outcome(problem, outcomes));
        let lines = check.problems().iter().take(SHOWN_MAX).map(line);
        let result = Numbers {
            files: check.files_count(),
            objects: check.objects_count(),
            problems: check.problem_count(),
            repaired: outcomes.values().filter(|outcome| outcome.is_ok()).count(),
            lines: lines.collect(),
            unchecked,
        };
        let mut state = self.state.lock();
        (state.stage, state.ended, state.result) = (Stage::Completed, Some(now), result);
    }

    /// Ends a check that was stopped, or failed.
    pub fn failed(&self, why: String) {
        let mut state = self.state.lock();
        let stopped = self.stop.swap(false, Relaxed);
        state.stage = if stopped { Stage::Stopped } else { Stage::Failed };
        state.failure = if stopped { String::new() } else { why };
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
        let result = &state.result;
        // Writing to a string does not fail.
        let _ = match state.stage {
            Stage::Scanning => {
                let (done, all) = state.progress;
                writeln!(text, "checked_records: {done}\nestimated_records: {all}")
            }
            Stage::Failed => writeln!(text, "failure: {}", state.failure),
            Stage::Completed => {
                let unchecked: Vec<String> = result.unchecked.iter().map(|ost| format!("OST{ost:04x}")).collect();
                writeln!(
                    text,
                    "checked_files: {}\nchecked_objects: {}\nunchecked_osts: [{}]\nproblems: {}\nrepaired: {}",
                    result.files,
                    result.objects,
                    unchecked.join(", "),
                    result.problems,
                    result.repaired
                )
            }
            Stage::Init | Stage::Stopped => Ok(()),
        };
        result.lines.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
        text
    }
}

/// Returns the outcome of a problem's repair, as the end of its line.
fn outcome(problem: &Problem, outcomes: &Outcomes) -> String {
    let Problem::OrphanObject { ost, object, .. } = problem else { return String::new() };
    match (outcomes.get(&(*ost, *object)), problem.repair()) {
        (Some(Ok(())), Some(repair)) => format!("; repaired: {repair}"),
        (Some(Err(Errno::EUCLEAN)), _) => "; not repaired: the metadata has other problems; run sheen fsck".to_owned(),
        (Some(Err(errno)), _) => format!("; not repaired: {errno}"),
        _ => String::new(),
    }
}
