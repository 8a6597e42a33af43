//! The state and the settings of an OST's scrub.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sheen_objects::WrongSum;
use sheen_rt::Rt;
use sheen_wire::{
    Result, Time,
    ost::{Damaged, QuotaUse},
};
use tokio::sync::Notify;

use crate::store::{
    DamageReport,
    scrub::{Pace, Scrubbed},
};

/// Default of `scrub_quiet_secs`.
const QUIET_SECS: u64 = 60;
/// Default of `scrub_speed_mb`: about 3 % of a processor.
const SPEED_MIB: u64 = 100;
/// Wrong sums that the status lists.
const SUMS_MAX: usize = 100;

/// The state of a scrub.
#[derive(Debug)]
pub struct Scrubber {
    /// Speed, and whether a pass should stop.
    pub pace: Pace,
    /// `scrub_quiet_secs`: an object that was changed less than this long ago gets no checksums.
    pub quiet_secs: AtomicU64,
    /// `checksums_at_rest`: whether checksums are stored.
    pub on: AtomicBool,
    /// Wakes the task.
    pub wake: Arc<Notify>,
    unsupported: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a pass is requested.
    wanted: bool,
    stage: Stage,
    started: Option<Time>,
    ended: Option<Time>,
    pass: Counts,
    /// Number of the sums by owner that were wrong, and the first [`SUMS_MAX`]. `None`: the space
    /// was not counted.
    wrong_sums: Option<(usize, Vec<WrongSum>)>,
}

/// Stage of the last pass, with Lustre's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Init,
    Scanning,
    Completed,
    Stopped,
}

/// Numbers of a pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Objects.
    pub objects: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Objects whose checksums were stored.
    pub stored: u64,
    /// Objects without all checksums: they have changed a short time ago.
    pub recent: u64,
    /// Damaged blocks.
    pub damaged: u64,
    /// Blocks that differ from checksums of before a power failure.
    pub unclear: u64,
    /// Objects that could not be read.
    pub failed: u64,
}

impl Scrubber {
    /// Returns a scrubber that begins with a pass if `wanted`.
    pub fn new(rt: &Rt, wanted: bool) -> Scrubber {
        Scrubber {
            pace: Pace::new(rt, SPEED_MIB),
            quiet_secs: QUIET_SECS.into(),
            on: AtomicBool::new(true),
            wake: Arc::default(),
            unsupported: AtomicBool::new(false),
            state: Mutex::new(State { wanted, ..State::default() }),
        }
    }

    /// Requests a pass over all objects. Does nothing if one is under way.
    pub fn start(&self) {
        let mut state = self.state.lock();
        self.pace.stop.store(false, Relaxed);
        state.wanted = state.stage != Stage::Scanning;
        drop(state);
        self.wake.notify_one();
    }

    /// Ends a pass.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.wanted = false;
        self.pace.stop.store(state.stage == Stage::Scanning, Relaxed);
    }

    /// Whether a pass is requested or under way.
    pub fn is_running(&self) -> bool {
        let state = self.state.lock();
        state.wanted || state.stage == Stage::Scanning
    }

    /// Begins a pass, if one is requested.
    pub fn begin_pass(&self, now: Time) -> bool {
        let mut state = self.state.lock();
        let wanted = state.wanted;
        if wanted {
            let ended = state.ended;
            *state = State { stage: Stage::Scanning, started: Some(now), ended, ..State::default() };
        }
        wanted
    }

    /// Counts the scrub of an object in a pass.
    pub fn count(&self, done: Result<Scrubbed>) {
        let pass = &mut self.state.lock().pass;
        pass.objects += 1;
        match done {
            Ok(done) => {
                pass.bytes += done.bytes;
                pass.stored += u64::from(done.stored);
                pass.recent += u64::from(!done.complete);
                pass.damaged += done.damaged;
                pass.unclear += done.unclear;
            }
            Err(_) => pass.failed += 1,
        }
    }

    /// Records the sums by owner that were wrong in a pass. `None`: the space was not counted.
    pub fn counted_space(&self, wrong: Option<Vec<WrongSum>>) {
        let listed = wrong.map(|mut sums| {
            let count = sums.len();
            sums.truncate(SUMS_MAX);
            sums.shrink_to_fit();
            (count, sums)
        });
        self.state.lock().wrong_sums = listed;
    }

    /// Ends a pass. `complete`: it has reached the last object. Returns its numbers.
    pub fn end_pass(&self, complete: bool, now: Time) -> Counts {
        let mut state = self.state.lock();
        state.stage = if complete { Stage::Completed } else { Stage::Stopped };
        state.ended = if complete { Some(now) } else { state.ended };
        self.pace.stop.store(false, Relaxed);
        state.pass
    }

    /// Returns how long an object must be at rest before it gets checksums; `None`: none are
    /// stored.
    pub fn quiet(&self) -> Option<Duration> {
        let stores = self.on.load(Relaxed) && !self.unsupported.load(Relaxed);
        stores.then(|| Duration::from_secs(self.quiet_secs.load(Relaxed)))
    }

    /// Records that the local file system supports no attributes. Returns whether that is new.
    pub fn is_newly_unsupported(&self) -> bool {
        !self.unsupported.swap(true, Relaxed)
    }

    /// Returns the status as text in Lustre's form.
    pub fn status(&self, now: Time, report: &DamageReport) -> String {
        let state = self.state.lock();
        let stage = match state.stage {
            _ if state.wanted => "scanning",
            Stage::Init => "init",
            Stage::Scanning => "scanning",
            Stage::Completed => "completed",
            Stage::Stopped => "stopped",
        };
        let checksums = match (self.unsupported.load(Relaxed), self.on.load(Relaxed)) {
            (true, _) => "unsupported by the local file system",
            (false, true) => "on",
            (false, false) => "off",
        };
        let since =
            |at: Option<Time>| at.map_or_else(|| "N/A".to_owned(), |at| format!("{} seconds", now.sec - at.sec));
        let Counts { objects, bytes, stored, recent, damaged, unclear, failed } = state.pass;
        let mut text = format!(
            "name: lfsck_scrub\nstatus: {stage}\nchecksums: {checksums}\ntime_since_latest_start: {}\n\
             time_since_last_completed: {}\nchecked: {objects}\nchecked_bytes: {bytes}\nupdated: {stored}\n\
             too_recent: {recent}\nfailed: {failed}\ndamaged_blocks: {damaged}\nunclear_blocks: {unclear}\n",
            since(state.started),
            since(state.ended),
        );
        text.push_str(&sums_text(state.wrong_sums.as_ref()));
        text.push_str(&format!("repaired: {}\n", report.repaired));
        report.last_repaired.iter().for_each(|repaired| text.push_str(&line(repaired)));
        text.push_str(&format!("damaged_now: {}\n", report.damaged_now));
        report.damaged.iter().for_each(|damaged| text.push_str(&line(damaged)));
        text
    }
}

/// Returns the lines of sums by owner that were wrong.
fn sums_text(wrong: Option<&(usize, Vec<WrongSum>)>) -> String {
    let Some((count, wrong)) = wrong else { return "corrected_sums: N/A\n".to_owned() };
    let mut text = format!("corrected_sums: {count}\n");
    for WrongSum { id, counted, found } in wrong {
        let (kind, id) = (id.kind.name(), id.id);
        let [counted, found] =
            [counted, found].map(|QuotaUse { bytes, objects }| format!("{{ used: {bytes}, objects: {objects} }}"));
        text.push_str(&format!("- {{ {kind}: {id}, counted: {counted}, found: {found} }}\n"));
    }
    text
}

/// Returns the line of a block, or a lost object, that is damaged or was repaired.
fn line(damaged: &Damaged) -> String {
    let Damaged { object, file, block } = damaged;
    let file = if file.is_zero() { "unknown".to_owned() } else { file.to_string() };
    let place = if block.is_whole() {
        "lost: true".to_owned()
    } else {
        format!("offset: {}, bytes: {}", block.offset, block.len)
    };
    format!("- {{ object: \"{object}\", file: \"{file}\", {place} }}\n")
}
