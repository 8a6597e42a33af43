//! The state of the check of a running MDT. The check is in [`crate::lfsck`].

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_namespace::Check;
use sheen_wire::Time;
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
    /// Whether a check is requested.
    wanted: bool,
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
    lines: Vec<String>,
    unchecked: BTreeSet<u32>,
}

impl Lfsck {
    /// Requests a check. Does nothing if one is under way.
    pub fn start(&self) {
        let mut state = self.state.lock();
        self.stop.store(false, Relaxed);
        state.wanted = state.stage != Stage::Scanning;
        drop(state);
        self.wake.notify_one();
    }

    /// Ends a check.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.wanted = false;
        self.stop.store(state.stage == Stage::Scanning, Relaxed);
    }

    /// Whether a check is requested or under way.
    pub fn is_running(&self) -> bool {
        let state = self.state.lock();
        state.wanted || state.stage == Stage::Scanning
    }

    /// Begins a check, if one is requested.
    pub fn begin(&self, now: Time) -> bool {
        let mut state = self.state.lock();
        let wanted = state.wanted;
        if wanted {
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
    pub fn completed(&self, check: &Check, unchecked: BTreeSet<u32>, now: Time) {
        let lines = check.problems().iter().take(SHOWN_MAX).map(|problem| format!("{}: {problem}", problem.name()));
        let result = Numbers {
            files: check.files_count(),
            objects: check.objects_count(),
            problems: check.problem_count(),
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
            _ if state.wanted => "scanning",
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
                    "checked_files: {}\nchecked_objects: {}\nunchecked_osts: [{}]\nproblems: {}",
                    result.files,
                    result.objects,
                    unchecked.join(", "),
                    result.problems
                )
            }
            Stage::Init | Stage::Stopped => Ok(()),
        };
        result.lines.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
        text
    }
}
