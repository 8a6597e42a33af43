//! `llite.*.access_patterns`: how the programs on this mount read and write each file. With it,
//! `sheen lab advise` describes a job.
//!
//! Each open file counts its own accesses, so that programs do not wait for each other. A close
//! adds them to those of the file. The parameter shows both.
//!
//! The client sees the kernel's requests: a large write arrives in pieces, and buffered reads have
//! the size of the kernel's readahead. Reads from the kernel's page cache are not seen at all.
//!
//! Bounds: [`FILES_MAX`] files. Beyond that, those used longest ago are dropped.

use std::{
    fmt::Write,
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use sheen_rt::{Instant, Rt};
use sheen_wire::Fid;

/// Number of files beyond which those without open files are dropped.
const FILES_MAX: usize = 1024;
/// Files that are looked at in search of one to drop, for each new file.
const DROP_TRIES: usize = 4;
/// If the mean number of open files reaches this part of the highest, the highest counts. Tasks do
/// not begin and end at the same moment.
const FULL_PART: f64 = 0.8;
/// The columns of the parameter. `sheen lab advise` reads them by these names.
const COLUMNS: &str = "file access tasks beside requests bytes span end request runs run";

/// Kind of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

impl Access {
    const ALL: [Access; 2] = [Access::Read, Access::Write];

    fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
        }
    }
}

/// The value that most samples have, if it is more than half of them (Boyer and Moore).
#[derive(Clone, Copy, Default)]
struct Majority {
    value: u64,
    votes: u64,
}

impl Majority {
    fn vote(&mut self, value: u64) {
        self.add(Majority { value, votes: 1 });
    }

    fn add(&mut self, other: Majority) {
        *self = match other.votes.checked_sub(self.votes) {
            _ if self.value == other.value => Majority { votes: self.votes + other.votes, ..*self },
            Some(votes) if votes > 0 || self.votes == 0 => Majority { votes, ..other },
            _ => Majority { votes: self.votes - other.votes, ..*self },
        };
    }
}

/// The accesses of one kind through one open file.
#[derive(Clone, Default)]
struct Counts {
    requests: u64,
    bytes: u64,
    /// Lowest byte and end of all accesses.
    reach: Range<u64>,
    /// The present run: bytes that follow each other.
    run: Range<u64>,
    /// Runs before the present one.
    runs: u64,
    request: Majority,
    run_bytes: Majority,
}

impl Counts {
    fn note(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        match () {
            () if self.requests == 0 => (self.run, self.reach) = (offset..end, offset..end),
            () if offset == self.run.end => self.run.end = end,
            // The kernel's readahead has several requests in flight, which can overtake each other.
            () if end == self.run.start => self.run.start = offset,
            () => {
                self.end_run();
                self.run = offset..end;
            }
        }
        self.reach = self.reach.start.min(offset)..self.reach.end.max(end);
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(len);
        self.request.vote(len);
    }

    fn end_run(&mut self) {
        self.runs += 1;
        self.run_bytes.vote(self.run.end - self.run.start);
    }
}

/// How many open files have accesses of one kind, over time.
#[derive(Clone)]
struct InUse {
    now: u32,
    most: u32,
    /// Time of the last change of `now`.
    changed: Instant,
    /// Sum over the time of `now`, and the time in which it was not 0, in nanoseconds.
    area: u64,
    busy: u64,
}

impl InUse {
    fn new(now: Instant) -> InUse {
        InUse { now: 0, most: 0, changed: now, area: 0, busy: 0 }
    }

    /// Adds the time until now.
    fn update(&mut self, now: Instant) {
        if self.now > 0 {
            let time = nanoseconds(now, self.changed);
            self.busy += time;
            self.area = self.area.saturating_add(time.saturating_mul(self.now.into()));
        }
        self.changed = now;
    }

    fn begin(&mut self, now: Instant) {
        self.update(now);
        self.now += 1;
        self.most = self.most.max(self.now);
    }

    fn end(&mut self, now: Instant) {
        self.update(now);
        self.now = self.now.saturating_sub(1);
    }

    /// Returns the number of tasks. A program that opens a file again and again is one task, even
    /// if a close arrives after the next open.
    fn tasks(&self) -> f64 {
        let (mean, most) = (mean(self.area, self.busy), f64::from(self.most));
        if mean >= most * FULL_PART { most } else { mean }
    }
}

fn nanoseconds(now: Instant, before: Instant) -> u64 {
    now.since(before).as_nanos() as u64
}

/// The begin of the use of an open file.
#[derive(Clone, Copy)]
struct Begun {
    at: Instant,
    /// [`InUse::area`] of the mount then.
    area: u64,
    /// [`AccessPatterns::clears`] then. If it is another one, the accesses are forgotten.
    clears: u64,
}

/// The accesses of one kind through one open file.
#[derive(Default)]
struct OpenKind {
    counts: Counts,
    /// Whether the file counts as in use.
    begun: Option<Begun>,
}

impl OpenKind {
    /// Returns the begin of its use, unless it is forgotten.
    fn begun(&self, clears: u64) -> Option<Begun> {
        self.begun.filter(|begun| begun.clears == clears)
    }
}

/// The accesses through one open file.
#[derive(Default)]
pub struct OpenAccesses {
    /// Locked after [`AccessPatterns::state`].
    kinds: Mutex<[OpenKind; 2]>,
    is_excluded: AtomicBool,
}

impl OpenAccesses {
    /// Leaves out further accesses, such as those of a migration or a resync.
    pub fn exclude(&self) {
        self.is_excluded.store(true, Relaxed);
    }
}

/// The accesses of one kind to a file.
#[derive(Clone)]
struct Totals {
    in_use: InUse,
    /// Time of all open files together, and the growth of the mount's [`InUse::area`] meanwhile.
    time: u64,
    beside: u64,
    requests: u64,
    bytes: u64,
    /// Bytes from the lowest to the highest of each open file, added up. With `bytes`, it shows
    /// whether programs leave gaps for each other.
    span: u64,
    /// Largest end of an access.
    end: u64,
    runs: u64,
    request: Majority,
    run: Majority,
}

impl Totals {
    fn new(now: Instant) -> Totals {
        let (request, run) = Default::default();
        Totals {
            in_use: InUse::new(now),
            time: 0,
            beside: 0,
            requests: 0,
            bytes: 0,
            span: 0,
            end: 0,
            runs: 0,
            request,
            run,
        }
    }

    /// Adds the accesses through an open file. `area`: that of the mount.
    fn add(&mut self, open: &OpenKind, begun: Begun, now: Instant, area: u64) {
        let mut counts = open.counts.clone();
        counts.end_run();
        self.time += nanoseconds(now, begun.at);
        self.beside = self.beside.saturating_add(area.saturating_sub(begun.area));
        self.requests += counts.requests;
        self.bytes = self.bytes.saturating_add(counts.bytes);
        self.span = self.span.saturating_add(counts.reach.end - counts.reach.start);
        self.end = self.end.max(counts.reach.end);
        self.runs += counts.runs;
        self.request.add(counts.request);
        self.run.add(counts.run_bytes);
    }
}

type File = [Totals; 2];

struct State {
    /// All files of the mount together.
    in_use: [InUse; 2],
    files: LruCache<Fid, File, FxBuildHasher>,
}

impl State {
    /// Returns a file, which becomes the last used one.
    fn file(&mut self, fid: Fid, now: Instant) -> &mut File {
        for _ in 0..DROP_TRIES {
            let is_full = self.files.len() >= FILES_MAX && !self.files.contains(&fid);
            match self.files.peek_lru().filter(|_| is_full) {
                None => break,
                // The close of an open file needs its entry.
                Some((fid, file)) if file.iter().any(|totals| totals.in_use.now > 0) => {
                    let fid = *fid;
                    self.files.promote(&fid);
                }
                Some(_) => drop(self.files.pop_lru()),
            }
        }
        self.files.get_or_insert_mut(fid, || [Totals::new(now), Totals::new(now)])
    }

    fn begin(&mut self, fid: Fid, open: &mut OpenKind, access: Access, (now, clears): (Instant, u64)) {
        let all = &mut self.in_use[access as usize];
        all.begin(now);
        open.begun = Some(Begun { at: now, area: all.area, clears });
        self.file(fid, now)[access as usize].in_use.begin(now);
    }

    fn end(&mut self, fid: Fid, (open, begun): (&OpenKind, Begun), access: Access, now: Instant) {
        let all = &mut self.in_use[access as usize];
        all.end(now);
        let area = all.area;
        let totals = &mut self.file(fid, now)[access as usize];
        totals.in_use.end(now);
        totals.add(open, begun, now, area);
    }
}

/// The accesses to the files of a mount.
pub struct AccessPatterns {
    rt: Rt,
    state: Mutex<State>,
    /// Number of calls of [`AccessPatterns::clear`]. Changed while `state` is locked.
    clears: AtomicU64,
}

impl AccessPatterns {
    /// Creates the table, empty.
    pub fn new(rt: &Rt) -> AccessPatterns {
        let in_use = InUse::new(rt.now());
        let state = State { in_use: [in_use.clone(), in_use], files: LruCache::unbounded_with_hasher(FxBuildHasher) };
        AccessPatterns { rt: rt.clone(), state: Mutex::new(state), clears: AtomicU64::new(0) }
    }

    /// Notes an access of `len` bytes through an open file.
    pub fn note(&self, fid: Fid, accesses: &OpenAccesses, access: Access, offset: u64, len: usize) {
        if len == 0 || accesses.is_excluded.load(Relaxed) {
            return;
        }
        let has_begun = {
            let open = &mut accesses.kinds.lock()[access as usize];
            open.counts.note(offset, len as u64);
            open.begun(self.clears.load(Relaxed)).is_some()
        };
        if !has_begun {
            let (mut state, now) = (self.state.lock(), self.rt.now());
            let clears = self.clears.load(Relaxed);
            let open = &mut accesses.kinds.lock()[access as usize];
            if open.begun(clears).is_none() {
                open.counts = Counts::default();
                open.counts.note(offset, len as u64);
                state.begin(fid, open, access, (now, clears));
            }
        }
    }

    /// Adds the accesses of an open file that is closed. Later ones are left out.
    pub fn close(&self, fid: Fid, accesses: &OpenAccesses) {
        accesses.exclude();
        if accesses.kinds.lock().iter().all(|open| open.begun.is_none()) {
            return;
        }
        let (mut state, now) = (self.state.lock(), self.rt.now());
        let kinds = std::mem::take(&mut *accesses.kinds.lock());
        for access in Access::ALL {
            let open = &kinds[access as usize];
            if let Some(begun) = open.begun(self.clears.load(Relaxed)) {
                state.end(fid, (open, begun), access, now);
            }
        }
    }

    /// Forgets all accesses, also those through open files.
    pub fn clear(&self) {
        let (mut state, now) = (self.state.lock(), self.rt.now());
        state.files.clear();
        state.in_use = [InUse::new(now), InUse::new(now)];
        self.clears.fetch_add(1, Relaxed);
    }

    /// Returns the text of the parameter: a line for each kind of access to a file, those used last
    /// first. `open`: the open files.
    pub fn text<'a>(&self, open: impl Iterator<Item = (Fid, &'a OpenAccesses)>) -> String {
        let (mut state, now) = (self.state.lock(), self.rt.now());
        state.in_use.iter_mut().for_each(|all| all.update(now));
        let mut files: Vec<(Fid, File)> = state.files.iter().map(|(fid, file)| (*fid, file.clone())).collect();
        let places: rustc_hash::FxHashMap<Fid, usize> =
            files.iter().enumerate().map(|(i, (fid, _))| (*fid, i)).collect();
        for (fid, accesses) in open {
            let Some(&place) = places.get(&fid) else { continue };
            for (kind, open) in accesses.kinds.lock().iter().enumerate() {
                if let Some(begun) = open.begun(self.clears.load(Relaxed)) {
                    files[place].1[kind].add(open, begun, now, state.in_use[kind].area);
                }
            }
        }
        drop(state);
        let mut out = format!("{COLUMNS}\n");
        for (fid, file) in &mut files {
            for access in Access::ALL {
                line(&mut out, *fid, &mut file[access as usize], access, now);
            }
        }
        out
    }
}

fn line(out: &mut String, fid: Fid, totals: &mut Totals, access: Access, now: Instant) {
    totals.in_use.update(now);
    let Totals { in_use, time, beside, requests, bytes, span, end, runs, request, run } = totals;
    if *requests > 0 {
        let _ = writeln!(
            out,
            "{fid} {} {:.2} {:.2} {requests} {bytes} {span} {end} {} {runs} {}",
            access.name(),
            in_use.tasks().max(1.0),
            mean(*beside, *time),
            request.value,
            run.value,
        );
    }
}

/// Returns the mean number over a time, at least 1.
fn mean(area: u64, time: u64) -> f64 {
    if time == 0 { 1.0 } else { (area as f64 / time as f64).max(1.0) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    const MI: u64 = 1 << 20;

    fn patterns() -> (Sim, AccessPatterns) {
        let sim = Sim::new(1, SimConfig::default());
        let patterns = AccessPatterns::new(&sim.rt(1));
        (sim, patterns)
    }

    fn pause(sim: &Sim, seconds: u64) {
        let rt = sim.rt(1);
        sim.run(async move { rt.sleep(Duration::from_secs(seconds)).await }).unwrap();
    }

    fn fid(number: u32) -> Fid {
        Fid::new(7, number)
    }

    /// Returns the fields of each line, without the FID.
    fn fields(text: &str) -> Vec<String> {
        text.lines().skip(1).map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    fn closed(patterns: &AccessPatterns) -> Vec<String> {
        fields(&patterns.text(std::iter::empty()))
    }

    #[test]
    fn access_patterns_show_records_in_turn() {
        let (sim, patterns) = patterns();
        let tasks = [OpenAccesses::default(), OpenAccesses::default()];
        for record in 0..8 {
            let task = &tasks[record as usize % 2];
            // The kernel cuts records of 2 MiB.
            for half in 0..2 {
                patterns.note(fid(1), task, Access::Write, (record * 2 + half) * MI, MI as usize);
            }
        }
        pause(&sim, 1);
        let open = || patterns.text(tasks.iter().map(|task| (fid(1), task)));
        let expected = "write 2.00 2.00 16 16777216 29360128 16777216 1048576 8 2097152";
        assert_eq!(fields(&open()), [expected], "while they are open");
        tasks.iter().for_each(|task| patterns.close(fid(1), task));
        assert_eq!(closed(&patterns), [expected], "after the close");
    }

    #[test]
    fn clear_forgets_accesses_of_open_files() {
        let (sim, patterns) = patterns();
        let files = [OpenAccesses::default(), OpenAccesses::default()];
        let write = |file: &OpenAccesses, offset| patterns.note(fid(1), file, Access::Write, offset, 10);
        let text = || patterns.text(files.iter().map(|file| (fid(1), file)));
        files.iter().for_each(|file| write(file, 0));
        pause(&sim, 1);
        patterns.clear();
        assert_eq!(text(), format!("{COLUMNS}\n"));
        // One goes on, one is closed.
        write(&files[0], 10);
        patterns.close(fid(1), &files[1]);
        pause(&sim, 1);
        let expected = ["write 1.00 1.00 1 10 10 20 10 1 10"];
        assert_eq!(fields(&text()), expected);
        patterns.close(fid(1), &files[0]);
        assert_eq!(closed(&patterns), expected);
        patterns.clear();
        assert_eq!(text(), format!("{COLUMNS}\n"));
    }

    #[test]
    fn access_patterns_show_sequential_reads_that_overtake_each_other() {
        let (_sim, patterns) = patterns();
        let file = OpenAccesses::default();
        for window in [1, 0, 2, 3, 5, 4, 6] {
            patterns.note(fid(1), &file, Access::Read, window * 131_072, 131_072);
        }
        patterns.note(fid(1), &file, Access::Read, 7 * 131_072, 0);
        patterns.close(fid(1), &file);
        assert_eq!(closed(&patterns), ["read 1.00 1.00 7 917504 917504 917504 131072 2 524288"]);
        let copied = OpenAccesses::default();
        copied.exclude();
        patterns.note(fid(2), &copied, Access::Read, 0, 10);
        patterns.close(fid(2), &copied);
        assert_eq!(closed(&patterns).len(), 1, "a migration does not count");
    }

    #[test]
    fn tasks_are_open_files_at_the_same_time() {
        let (sim, patterns) = patterns();
        let write = |fid, file: &OpenAccesses| patterns.note(fid, file, Access::Write, 0, 10);
        // A close can arrive shortly after the next open.
        let files: Vec<OpenAccesses> = (0..4).map(|_| OpenAccesses::default()).collect();
        write(fid(1), &files[0]);
        for pair in files.windows(2) {
            pause(&sim, 99);
            write(fid(1), &pair[1]);
            pause(&sim, 1);
            patterns.close(fid(1), &pair[0]);
        }
        pause(&sim, 99);
        patterns.close(fid(1), &files[3]);
        assert!(closed(&patterns)[0].starts_with("write 1.01 1.01 4 40 "), "{:?}", closed(&patterns));

        // Tasks that begin and end a little apart.
        patterns.clear();
        let files: Vec<OpenAccesses> = (0..4).map(|_| OpenAccesses::default()).collect();
        for file in &files {
            write(fid(1), file);
            pause(&sim, 1);
        }
        pause(&sim, 20);
        for file in &files {
            patterns.close(fid(1), file);
            pause(&sim, 1);
        }
        assert!(closed(&patterns)[0].starts_with("write 4.00 "), "{:?}", closed(&patterns));

        patterns.clear();
        let files: Vec<OpenAccesses> = (0..4).map(|_| OpenAccesses::default()).collect();
        for (number, file) in files.iter().enumerate() {
            write(fid(number as u32), file);
        }
        pause(&sim, 1);
        for (number, file) in files.iter().enumerate() {
            patterns.close(fid(number as u32), file);
        }
        let all = closed(&patterns);
        assert!(all.len() == 4 && all.iter().all(|line| line.starts_with("write 1.00 4.00 ")), "{all:?}");
    }

    #[test]
    fn closed_files_used_longest_ago_are_dropped() {
        let (_sim, patterns) = patterns();
        let write = |number: u32, file: &OpenAccesses| patterns.note(fid(number), file, Access::Write, 0, 10);
        let (open, files) = (OpenAccesses::default(), FILES_MAX as u32);
        write(0, &open);
        for number in 1..=files {
            let file = OpenAccesses::default();
            write(number, &file);
            patterns.close(fid(number), &file);
        }
        let text = patterns.text(std::iter::once((fid(0), &open)));
        assert_eq!(text.lines().count() - 1, FILES_MAX);
        let has = |number| text.contains(&format!("{} ", fid(number)));
        assert!(has(0) && !has(1) && has(2) && has(files));
    }

    #[test]
    fn most_frequent_value_wins() {
        let mut majority = Majority::default();
        [5, 7, 7, 9, 7, 7].into_iter().for_each(|value| majority.vote(value));
        assert_eq!((majority.value, majority.votes), (7, 2));
        majority.add(Majority { value: 3, votes: 5 });
        assert_eq!((majority.value, majority.votes), (3, 3));
    }
}
