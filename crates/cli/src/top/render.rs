//! The table of `sheen top`, and its document for programs.
//!
//! Processes of other users, and their clients, choose names, jobs and uuids. No text of theirs
//! reaches a terminal with characters that it could execute.

use std::fmt::Write;

use serde::Serialize;
use sheen_params::{Holder, Wait, WaitKind};

use super::{rates::Rates, sample::Sample};

/// Characters of a client's uuid in the table.
const UUID_CHARS: usize = 8;
/// Maximum number of jobs in the table: those with the most requests.
const JOBS_MAX: usize = 10;
/// Width of the columns of waits: since, who, what for.
const SINCE_WIDTH: usize = 9;
const WHO_WIDTH: usize = 36;
const WHAT_WIDTH: usize = 64;

/// All that one screen shows.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Seconds to which the rates apply; 0: there are no rates.
    interval_secs: f64,
    /// Number of processes that have answered.
    processes: usize,
    /// Messages about processes that have not answered.
    left_out: Vec<String>,
    /// The waits, the oldest first.
    waits: Vec<Wait>,
    /// Rates per second by target.
    targets: Vec<Rates>,
    /// Rates per second by job.
    jobs: Vec<Rates>,
}

impl Report {
    /// Creates the report of the present sample, with the rates since the one before.
    pub fn new(before: &Sample, now: &Sample) -> Report {
        let interval_secs = now.at.duration_since(before.at).as_secs_f64();
        Report {
            interval_secs,
            targets: Rates::between(&before.targets, &now.targets, interval_secs),
            jobs: Rates::between(&before.jobs, &now.jobs, interval_secs),
            ..Report::without_rates(now)
        }
    }

    /// Creates the report of the first sample.
    pub fn without_rates(now: &Sample) -> Report {
        Report {
            interval_secs: 0.0,
            processes: now.processes,
            left_out: now.silent.iter().map(|silent| format!("{silent} and is left out")).collect(),
            waits: now.waits.clone(),
            targets: Vec::new(),
            jobs: Vec::new(),
        }
    }

    /// Returns the document for programs.
    ///
    /// # Errors
    /// A value cannot be written as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        let mut text = escaped(&serde_json::to_string_pretty(self)?);
        text.push('\n');
        Ok(text)
    }

    /// Returns the table.
    pub fn table(&self) -> String {
        let (processes, waits) = (self.processes, self.waits.len());
        let mut out = format!("processes: {processes}  waits: {waits}");
        let has_rates = self.interval_secs > 0.0;
        if has_rates {
            // Writing to a string cannot fail.
            let _ = write!(out, "  interval: {:.1} s", self.interval_secs);
        }
        out.push('\n');
        for message in &self.left_out {
            let _ = writeln!(out, "{}", plain(message));
        }
        if has_rates {
            out.push('\n');
            push_rates(&mut out, "TARGET", self.targets.iter());
        }
        let mut jobs: Vec<&Rates> = self.jobs.iter().filter(|job| !job.is_idle()).collect();
        let requests = |job: &Rates| job.reads + job.writes + job.operations;
        jobs.sort_by(|a, b| requests(b).total_cmp(&requests(a)));
        if !jobs.is_empty() {
            out.push('\n');
            push_rates(&mut out, "JOB", jobs.into_iter().take(JOBS_MAX));
        }
        out.push('\n');
        push_wait(&mut out, ["SINCE", "WHO", "WAITS FOR", "HELD BY"]);
        for wait in &self.waits {
            let holders: Vec<String> = wait.held_by.iter().map(holder).collect();
            push_wait(&mut out, [&age(wait.secs), &who(wait), &what_for(wait), &holders.join("; ")]);
        }
        out
    }
}

/// Returns the first lines of a text, each shortened, so that it fits a screen.
pub fn fitted(text: &str, (columns, rows): (usize, usize)) -> Vec<String> {
    text.lines().take(rows).map(|line| line.chars().take(columns).collect()).collect()
}

fn push_rates<'a>(out: &mut String, title: &str, rates: impl Iterator<Item = &'a Rates>) {
    let _ = writeln!(
        out,
        "{title:<32} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "READS/s", "MiB/s", "WRITES/s", "MiB/s", "OPS/s"
    );
    for Rates { name, reads, read_mib, writes, write_mib, operations } in rates {
        let name = plain(name);
        let _ = writeln!(
            out,
            "{name:<32} {reads:>10.1} {read_mib:>10.1} {writes:>10.1} {write_mib:>10.1} {operations:>10.1}"
        );
    }
}

fn push_wait(out: &mut String, texts: [&str; 4]) {
    let [since, who, what, holders] = texts.map(plain);
    let line = format!("{since:<SINCE_WIDTH$} {who:<WHO_WIDTH$} {what:<WHAT_WIDTH$} {holders}");
    let _ = writeln!(out, "{}", line.trim_end());
}

/// Replaces all but printable ASCII by `_`, as lists of waits do. Job ids and uuids have no other
/// characters.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '_' }).collect()
}

/// Escapes all but printable ASCII in a document, so that programs get the same values. Such
/// characters are within strings only, except for newlines.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii_graphic() || matches!(c, ' ' | '\n') {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

fn age(secs: f64) -> String {
    format!("{secs:.1} s")
}

/// Returns the job, and the client with its address.
fn who(wait: &Wait) -> String {
    let client = client(&wait.client, &wait.nid);
    if wait.job.is_empty() { client } else { format!("{} {client}", wait.job) }
}

fn client(uuid: &str, nid: &str) -> String {
    let uuid: String = if uuid.is_empty() { "server".to_owned() } else { uuid.chars().take(UUID_CHARS).collect() };
    if nid.is_empty() { uuid } else { format!("{uuid} {nid}") }
}

fn what_for(wait: &Wait) -> String {
    let Wait { kind, target, request, object, mode, part, state, .. } = wait;
    match kind {
        WaitKind::Lock => format!("lock {mode} {part} of {object} at {target}"),
        WaitKind::Cancel => format!("cancel for {mode} {part} of {object} at {target}"),
        WaitKind::Slot => format!("slot for {request} at {target}"),
        WaitKind::Dirty => format!("room for dirty data of {target}"),
        WaitKind::Connection => format!("connection to {target} ({state})"),
        WaitKind::Recovery => format!("recovery of {target}"),
        WaitKind::Reply => format!("reply to {request} from {target} ({state})"),
        WaitKind::Other => format!("event of an unknown kind at {target}"),
    }
}

fn holder(holder: &Holder) -> String {
    let Holder { client: uuid, nid, mode, part, granted, secs, callback_secs } = holder;
    let state = if *granted { "" } else { " (waits)" };
    let mut out = format!("{} {mode} {part}{state} since {}", client(uuid, nid), age(*secs));
    if let Some(secs) = callback_secs {
        let _ = write!(out, ", callback {} ago", age(*secs));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let holder = Holder {
            client: "0123456789".into(),
            nid: "10.0.0.7@tcp".into(),
            mode: "PW".into(),
            part: "extent 0-EOF".into(),
            granted: true,
            secs: 9.0,
            callback_secs: Some(4.0),
        };
        let lock = Wait {
            secs: 4.0,
            kind: WaitKind::Lock,
            target: "sheen-OST0001".into(),
            client: "abcdefghij".into(),
            nid: "0@lo".into(),
            job: "dd.1000".into(),
            object: "[0x1:0x2:0x0]".into(),
            mode: "PR".into(),
            part: "extent 0-4095".into(),
            held_by: vec![holder],
            ..Wait::default()
        };
        let rate = |name: &str, reads| Rates {
            name: name.into(),
            reads,
            read_mib: reads,
            writes: 0.0,
            write_mib: 0.0,
            operations: 0.0,
        };
        Report {
            interval_secs: 2.0,
            processes: 2,
            left_out: vec!["process 17 does not answer within 300 ms and is left out".into()],
            waits: vec![lock],
            targets: vec![rate("sheen-OST0001", 3.5)],
            jobs: vec![rate("idle.0", 0.0), rate("dd.1000", 3.5)],
        }
    }

    #[test]
    fn table_shows_who_waits_for_what_and_the_holder() {
        let table = report().table();
        let line = table.lines().last().unwrap();
        assert!(line.starts_with("4.0 s     dd.1000 abcdefgh 0@lo"), "{table}");
        assert!(line.contains(" lock PR extent 0-4095 of [0x1:0x2:0x0] at sheen-OST0001 "), "{table}");
        assert!(line.ends_with("01234567 10.0.0.7@tcp PW extent 0-EOF since 9.0 s, callback 4.0 s ago"), "{table}");
        assert!(table.contains("dd.1000 ") && !table.contains("idle.0"), "{table}");
        assert!(table.lines().nth(1).is_some_and(|line| line.contains("is left out")), "{table}");
    }

    #[test]
    fn table_of_the_first_sample_has_no_rates() {
        let table = Report { interval_secs: 0.0, targets: Vec::new(), jobs: Vec::new(), ..report() }.table();
        assert!(!table.contains("interval") && !table.contains("TARGET"), "{table}");
        assert!(table.starts_with("processes: 2  waits: 1\n") && table.contains("\n\nSINCE "), "{table}");
    }

    #[test]
    fn terminal_gets_no_control_characters_of_other_processes() {
        let hostile = "\x1b]0;x\x07\r\n\u{9b}\u{202e}\u{1f980}\x7f";
        let mut report = report();
        report.left_out[0] = hostile.to_owned();
        (report.targets[0].name, report.jobs[1].name) = (hostile.to_owned(), hostile.to_owned());
        let wait = &mut report.waits[0];
        for text in [&mut wait.target, &mut wait.client, &mut wait.job, &mut wait.part, &mut wait.object] {
            *text = hostile.to_owned();
        }
        wait.held_by[0].nid = hostile.to_owned();
        let (table, json) = (report.table(), report.json().unwrap());
        let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_graphic() || matches!(c, ' ' | '\n'));
        assert!(is_plain(&table) && is_plain(&json), "{table}{json}");
        assert!(table.contains("\n_]0;x_______ "), "{table}");
        let document: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(document["waits"][0]["job"], hostile);
    }

    #[test]
    fn screen_gets_no_line_that_is_too_long() {
        let table = report().table();
        let lines = fitted(&table, (10, 3));
        assert_eq!((lines.len(), lines[0].as_str()), (3, "processes:"));
    }
}
