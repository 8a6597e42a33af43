//! `llite.*.extents_stats`, `extents_stats_per_process` and `offset_stats`: sizes and offsets of
//! the programs' reads and writes, in Lustre's format.
//!
//! As in Lustre, they are off until something is written to one of them. One switch applies to all.
//! While they are off, a read or write costs one load.
//!
//! The mount sees the kernel's requests: a large write arrives in pieces, and buffered reads have
//! the size of the kernel's readahead. An append has the offset that the kernel sent.
//!
//! Bounds: [`PROCESSES_MAX`] processes and [`RUNS_MAX`] runs, as in Lustre. Beyond that, the oldest
//! are dropped.

use std::{
    collections::VecDeque,
    fmt::{self, Write},
    iter,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::Mutex;
use sheen_params::{Buckets, Snapshot, shares};
use sheen_rt::Rt;
use sheen_wire::Time;

use crate::access_patterns::Access;

/// Maximum number of processes.
const PROCESSES_MAX: usize = 10;
/// Maximum number of runs that have ended.
const RUNS_MAX: usize = 100;
/// The first row has the sizes below two to the power of this.
const FIRST_EXPONENT: usize = 12;
/// Number of rows. The last one has the larger sizes as well.
const ROWS_MAX: usize = 28;
/// Units of the rows: one for each ten powers of two, from the tenth on.
const UNITS: [char; 4] = ['K', 'M', 'G', 'T'];
/// The value while the statistics are off.
const DISABLED: &str = "disabled\n write anything to this file to activate, then '0' or 'disable' to deactivate\n";

/// One of the parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoTable {
    /// Sizes of all reads and writes.
    Extents,
    /// Sizes, by process.
    Processes,
    /// Runs of reads or writes that follow each other, by process.
    Offsets,
}

/// The statistics of a mount.
pub struct IoStats {
    rt: Rt,
    is_on: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    all: Extents,
    /// Since when `all`, the processes' sizes and the runs count.
    all_since: Time,
    processes_since: Time,
    runs_since: Time,
    /// In the order of their first read or write.
    processes: VecDeque<Process>,
    /// Runs that have ended, in the order of their ends.
    runs: VecDeque<Run>,
}

struct Process {
    /// Its thread id.
    pid: u32,
    extents: Extents,
    run: Option<Run>,
}

/// Counts by size plus 1. So a row begins with a power of two, as in Lustre.
#[derive(Default)]
struct Extents {
    read: Buckets,
    write: Buckets,
}

/// Reads or writes that follow each other in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    access: Access,
    pid: u32,
    /// Number of the open file.
    file: u64,
    start: u64,
    end: u64,
    smallest: u64,
    largest: u64,
    /// From the end of the former run of this process in this file.
    offset: i64,
}

impl IoStats {
    /// Creates statistics that are off.
    pub fn new(rt: &Rt) -> IoStats {
        IoStats { rt: rt.clone(), is_on: AtomicBool::new(false), state: Mutex::default() }
    }

    /// Counts a read or write of a program. `pid`: its thread; 0: unknown. `file`: number of the
    /// open file.
    pub fn count(&self, access: Access, pid: u32, file: u64, offset: u64, bytes: u64) {
        if self.is_on.load(Relaxed) && bytes > 0 {
            self.add(Run::new(access, pid, file, offset, bytes));
        }
    }

    #[cold]
    fn add(&self, io: Run) {
        self.state.lock().add(io);
    }

    /// Processes a write to a parameter: clears its table, and switches all of them on or off.
    pub fn set(&self, table: IoTable, value: &str) {
        let now = self.rt.wall();
        let mut state = self.state.lock();
        if !self.is_on.swap(is_on(value), Relaxed) {
            *state = State { all_since: now, processes_since: now, runs_since: now, ..State::default() };
        }
        state.clear(table, now);
    }

    /// Returns the text of a parameter.
    pub fn text(&self, table: IoTable) -> String {
        if !self.is_on.load(Relaxed) {
            return DISABLED.to_owned();
        }
        self.state.lock().text(table, self.rt.wall())
    }
}

/// Returns whether a value switches the statistics on: all but `0` and `disable`.
fn is_on(value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    value.parse::<u64>() != Ok(0) && !value.starts_with("disable")
}

impl State {
    fn add(&mut self, io: Run) {
        self.all.add(&io);
        if io.pid == 0 {
            return;
        }
        let at = match self.processes.iter().position(|process| process.pid == io.pid) {
            Some(at) => at,
            None => {
                if self.processes.len() >= PROCESSES_MAX {
                    let oldest = self.processes.pop_front();
                    self.ended(oldest.and_then(|process| process.run));
                }
                self.processes.push_back(Process { pid: io.pid, extents: Extents::default(), run: None });
                self.processes.len() - 1
            }
        };
        let Some(process) = self.processes.get_mut(at) else { return };
        process.extents.add(&io);
        let ended = process.follow(io);
        self.ended(ended);
    }

    /// Records a run that has ended.
    fn ended(&mut self, run: Option<Run>) {
        if self.runs.len() >= RUNS_MAX && run.is_some() {
            self.runs.pop_front();
        }
        self.runs.extend(run);
    }

    fn clear(&mut self, table: IoTable, now: Time) {
        match table {
            IoTable::Extents => {
                (self.all, self.all_since) = (Extents::default(), now);
                self.clear(IoTable::Processes, now);
            }
            IoTable::Processes => {
                self.processes.iter_mut().for_each(|process| process.extents = Extents::default());
                self.processes_since = now;
            }
            IoTable::Offsets => {
                self.runs.clear();
                self.processes.iter_mut().for_each(|process| process.run = None);
                self.runs_since = now;
            }
        }
    }

    fn text(&self, table: IoTable, now: Time) -> String {
        let since = match table {
            IoTable::Extents => self.all_since,
            IoTable::Processes => self.processes_since,
            IoTable::Offsets => self.runs_since,
        };
        let mut out = Snapshot { taken: Some(now), since: Some(since), samples: Vec::new() }.times_of_histogram();
        // Writing to a string cannot fail.
        let _ = match table {
            IoTable::Extents => write_header(&mut out).and_then(|()| self.all.write_to(&mut out)),
            IoTable::Processes => write_header(&mut out).and_then(|()| self.write_processes(&mut out)),
            IoTable::Offsets => self.write_runs(&mut out),
        };
        out
    }

    fn write_processes(&self, out: &mut String) -> fmt::Result {
        for process in self.processes.iter().filter(|process| !process.extents.is_empty()) {
            writeln!(out, "\nPID: {}", process.pid)?;
            process.extents.write_to(out)?;
        }
        Ok(())
    }

    /// Writes the runs that have ended, and then the present one of each process.
    fn write_runs(&self, out: &mut String) -> fmt::Result {
        let [start, end, smallest, largest] = ["RANGE START", "RANGE END", "SMALLEST EXTENT", "LARGEST EXTENT"];
        writeln!(out, "R/W {:>10} {start:>14} {end:>14} {smallest:>17} {largest:>17} {:>14}", "PID", "OFFSET")?;
        for run in self.runs.iter().chain(self.processes.iter().filter_map(|process| process.run.as_ref())) {
            let Run { access, pid, file: _, start, end, smallest, largest, offset } = run;
            let access = match access {
                Access::Read => 'R',
                Access::Write => 'W',
            };
            writeln!(out, "{access:>3} {pid:>10} {start:>14} {end:>14} {smallest:>17} {largest:>17} {offset:>14}")?;
        }
        Ok(())
    }
}

impl Process {
    /// Adds a read or write to the present run. If it does not follow that, it begins a new run.
    /// Returns the run that has ended, if there is one.
    fn follow(&mut self, io: Run) -> Option<Run> {
        if let Some(run) = &mut self.run
            && run.is_followed_by(&io)
        {
            run.end = io.end;
            run.smallest = run.smallest.min(io.smallest);
            run.largest = run.largest.max(io.largest);
            return None;
        }
        let former = self.run.filter(|run| run.file == io.file);
        let offset = former.map_or(0, |run| io.start.wrapping_sub(run.end) as i64);
        self.run.replace(Run { offset, ..io })
    }
}

impl Run {
    fn new(access: Access, pid: u32, file: u64, offset: u64, bytes: u64) -> Run {
        let end = offset.saturating_add(bytes);
        Run { access, pid, file, start: offset, end, smallest: bytes, largest: bytes, offset: 0 }
    }

    fn is_followed_by(&self, io: &Run) -> bool {
        (self.access, self.file, self.end) == (io.access, io.file, io.start)
    }
}

impl Extents {
    /// Counts a run of one read or write.
    fn add(&mut self, io: &Run) {
        let column = match io.access {
            Access::Read => &mut self.read,
            Access::Write => &mut self.write,
        };
        column.add(io.largest.saturating_add(1));
    }

    fn is_empty(&self) -> bool {
        self.read.is_empty() && self.write.is_empty()
    }

    fn write_to(&self, out: &mut String) -> fmt::Result {
        let (reads, writes) = (rows(&self.read), rows(&self.write));
        for (i, (r, w)) in shares(&reads, &writes).enumerate() {
            let [start, end] = bounds(i);
            let more = if i == ROWS_MAX - 1 { '+' } else { ' ' };
            writeln!(
                out,
                "{start:>5} - {end:>5}{more}: {:14} {:4} {:4}  | {:14} {:4} {:4}",
                r.count, r.percent, r.cumulative, w.count, w.percent, w.cumulative,
            )?;
        }
        Ok(())
    }
}

fn write_header(out: &mut String) -> fmt::Result {
    writeln!(out, "{:15} {:>19}       | {:>20}", "", "read", "write")?;
    let columns = format!("{:>14} {:>4} {:>4}", "calls", "%", "cum%");
    writeln!(out, "{:>13}   {columns}  | {columns}", "extents")
}

/// Returns the counts of the rows of a table, up to the last one that is not empty.
fn rows(sizes: &Buckets) -> Vec<u64> {
    let counts = sizes.counts();
    let (first, more) = counts.split_at(counts.len().min(FIRST_EXPONENT + 1));
    let below: u64 = first.iter().sum();
    if counts.is_empty() { Vec::new() } else { iter::once(below).chain(more.iter().copied()).collect() }
}

/// Returns the smallest size of a row, and the smallest beyond it, with units.
fn bounds(row: usize) -> [String; 2] {
    let exponent = FIRST_EXPONENT + row;
    let tens = (exponent - 1) / 10;
    let unit = UNITS.get(tens - 1).copied().unwrap_or('?');
    let number = |exponent: usize| format!("{}{unit}", 1u64 << (exponent - 10 * tens));
    let start = if row == 0 { format!("0{unit}") } else { number(exponent - 1) };
    [start, number(exponent)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(access: Access, pid: u32, offset: u64, bytes: u64) -> Run {
        Run::new(access, pid, 1, offset, bytes)
    }

    fn text(ios: &[Run], table: IoTable) -> String {
        let at = |sec| Time { sec, nsec: 5 };
        let (mut state, start) = (State::default(), at(10));
        [IoTable::Extents, IoTable::Processes, IoTable::Offsets].into_iter().for_each(|of| state.clear(of, start));
        ios.iter().for_each(|io| state.add(*io));
        let text = state.text(table, at(12));
        let want = "\
snapshot_time:            12.000000005 secs.nsecs
start_time:               10.000000005 secs.nsecs
elapsed_time:             2.000000000 secs.nsecs
";
        text.strip_prefix(want).unwrap().to_owned()
    }

    const HEADER: &str = "                               read       |                write
      extents            calls    % cum%  |          calls    % cum%
";

    #[test]
    fn extents_stats_render_as_in_lustre() {
        let idle = "   0K -    4K :              0    0    0  |              0    0    0\n";
        assert_eq!(text(&[], IoTable::Extents), format!("{HEADER}{idle}"));
        let ios = [
            io(Access::Read, 7, 0, 4095),
            io(Access::Read, 0, 0, 4096),
            io(Access::Write, 7, 0, 8191),
            io(Access::Write, 8, 0, 1),
            io(Access::Write, 8, 0, 8192),
        ];
        let rows = "   0K -    4K :              1   50   50  |              1   33   33
   4K -    8K :              1   50  100  |              1   33   66
   8K -   16K :              0    0  100  |              1   33  100
";
        assert_eq!(text(&ios, IoTable::Extents), format!("{HEADER}{rows}"));
    }

    #[test]
    fn extents_stats_have_rows_up_to_any_size() {
        let text = text(&[io(Access::Read, 1, 0, 600 << 10), io(Access::Read, 1, 0, u64::MAX)], IoTable::Extents);
        let rows: Vec<&str> = text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0)).collect();
        assert_eq!(rows.len(), ROWS_MAX);
        assert_eq!((rows[8], rows[9], rows[27]), (" 512K - 1024K ", "   1M -    2M ", " 256G -  512G+"));
    }

    #[test]
    fn extents_stats_per_process_omit_other_processes() {
        let ios = [io(Access::Read, 7, 0, 1), io(Access::Write, 8, 0, 1), io(Access::Read, 0, 0, 1)];
        let rows = "
PID: 7
   0K -    4K :              1  100  100  |              0    0    0

PID: 8
   0K -    4K :              0    0    0  |              1  100  100
";
        assert_eq!(text(&ios, IoTable::Processes), format!("{HEADER}{rows}"));
        let many: Vec<Run> = (1..=PROCESSES_MAX as u32 + 1).map(|pid| io(Access::Read, pid, 0, 1)).collect();
        let shown = text(&many, IoTable::Processes);
        assert_eq!(shown.matches("PID: ").count(), PROCESSES_MAX);
        assert!(!shown.contains("PID: 1\n"), "the oldest is dropped: {shown}");
    }

    #[test]
    fn offset_stats_list_runs_and_the_offsets_between_them() {
        let ios = [
            io(Access::Read, 7, 0, 100),
            io(Access::Read, 7, 100, 50),
            io(Access::Read, 7, 4096, 10),
            io(Access::Write, 7, 0, 10),
            io(Access::Read, 8, 0, 1),
        ];
        let want = "\
R/W        PID    RANGE START      RANGE END   SMALLEST EXTENT    LARGEST EXTENT         OFFSET
  R          7              0            150                50               100              0
  R          7           4096           4106                10                10           3946
  W          7              0             10                10                10          -4106
  R          8              0              1                 1                 1              0
";
        assert_eq!(text(&ios, IoTable::Offsets), want);
        let jumps: Vec<Run> = (0..2 * RUNS_MAX as u64).map(|i| io(Access::Read, 7, i * 10, 1)).collect();
        assert_eq!(text(&jumps, IoTable::Offsets).lines().count(), 1 + RUNS_MAX + 1);
    }

    #[test]
    fn io_stats_are_on_for_all_values_but_zero_and_disable() {
        for on in ["1", "x", "", "10", "enable"] {
            assert!(is_on(on), "{on}");
        }
        for off in ["0", "0\n", "disable", "Disabled\n", " 00 "] {
            assert!(!is_on(off), "{off}");
        }
    }

    #[test]
    fn io_stats_are_off_at_first_and_start_empty() {
        use sheen_rt::sim::{Sim, SimConfig};
        let sim = Sim::new(1, SimConfig::default());
        let stats = IoStats::new(&sim.rt(1));
        assert_eq!(stats.text(IoTable::Offsets), DISABLED);
        stats.set(IoTable::Extents, "1");
        stats.add(io(Access::Read, 7, 0, 1));
        assert!(stats.text(IoTable::Extents).contains(" 100  100  |"));
        stats.set(IoTable::Offsets, "1");
        assert_eq!(stats.text(IoTable::Offsets).lines().count(), 4, "cleared");
        assert!(stats.text(IoTable::Extents).contains(" 100  100  |"), "the others are not");
        stats.set(IoTable::Processes, "0");
        assert_eq!(stats.text(IoTable::Extents), DISABLED, "one switch applies to all");
        stats.set(IoTable::Processes, "1");
        assert!(!stats.text(IoTable::Extents).contains(" 100  100  |"), "they start empty");
    }
}
