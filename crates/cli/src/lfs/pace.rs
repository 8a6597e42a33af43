//! Bandwidth limit and progress reports of a copy: `-W`, `--stats` and `--stats-interval` of
//! `lfs migrate` and `lfs mirror`.
//!
//! The reports are Lustre's lines of YAML: the file's name, then a line every few seconds and one
//! at the end.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use super::{
    getopt::{Long, Value},
    numbers::{parse_size, parse_unsigned},
};

/// A bandwidth below this number of bytes is taken as MB/s, whatever its suffix.
const MIB_BELOW: u64 = 1 << 20;
/// Interval of `--stats` without `--stats-interval`, as in Lustre.
const STATS_INTERVAL: Duration = Duration::from_secs(5);
const MB: u64 = 1 << 20;

/// Options of a copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyOptions {
    /// Bandwidth limit in bytes per second.
    pub bandwidth: Option<u64>,
    /// Interval of the progress reports.
    pub stats: Option<Duration>,
}

/// The long options, for a command's [`super::getopt::Spec`].
pub const LONG: [Long; 4] = [
    ("bandwidth", Value::Required, "W"),
    ("bandwidth-limit", Value::Required, "W"),
    ("stats", Value::No, "stats"),
    ("stats-interval", Value::Required, "stats-interval"),
];

impl CopyOptions {
    /// Takes an option. Returns false if it is not one of these. The error is the message for the
    /// user.
    pub fn option(&mut self, id: &str, value: Option<&str>) -> Result<bool, String> {
        let given = value.unwrap_or_default();
        match id {
            "W" => self.bandwidth = Some(bandwidth(given).ok_or_else(|| format!("invalid bandwidth '{given}'"))?),
            "stats" => drop(self.stats.get_or_insert(STATS_INTERVAL)),
            "stats-interval" => {
                self.stats = Some(interval(given).ok_or_else(|| format!("invalid stats interval '{given}'"))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parses a bandwidth into bytes per second.
fn bandwidth(text: &str) -> Option<u64> {
    let bytes = parse_size(text).filter(|bytes| *bytes > 0)?;
    if bytes < MIB_BELOW { bytes.checked_mul(MB) } else { Some(bytes) }
}

/// Parses an interval in seconds, at least one.
fn interval(text: &str) -> Option<Duration> {
    parse_unsigned(text).filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

/// Progress reports of one file.
#[derive(Debug)]
pub struct Stats {
    /// The line with the file's name, until it has been printed.
    name: Option<String>,
    every: Duration,
    began: Instant,
    said: Instant,
    copied: u64,
    total: u64,
}

impl Stats {
    /// Starts the reports of a file.
    pub fn new(path: &Path, every: Duration) -> Stats {
        let now = Instant::now();
        Stats { name: Some(format!("{}:\n", path.display())), every, began: now, said: now, copied: 0, total: 0 }
    }

    /// Records how many bytes are copied. Returns a line if one is due.
    pub fn note(&mut self, copied: u64, total: u64) -> Option<String> {
        (self.copied, self.total) = (copied, total);
        (self.said.elapsed() >= self.every).then(|| self.line())
    }

    /// Returns a line with the present progress.
    pub fn line(&mut self) -> String {
        self.said = Instant::now();
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = (self.copied as f64 / MB as f64 / seconds.max(1e-6)) as u64;
        let (seconds, copied, total) = (seconds as u64, self.copied / MB, self.total / MB);
        let percent = percent(self.copied, self.total);
        let name = self.name.take().unwrap_or_default();
        format!(
            "{name}- {{ seconds: {seconds}, rmbps: {rate:>5}, wmbps: {rate:>5}, copied: {copied}, total: {total}, pct: {percent}% }}\n"
        )
    }
}

/// Returns the percentage that is copied. An empty file counts as fully copied.
pub fn percent(copied: u64, total: u64) -> u64 {
    (copied.min(total) * 100).checked_div(total).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn pace_options_parse_bandwidth_and_interval() {
        for (text, want) in [("1", Some(MB)), ("64k", Some(64 << 30)), ("2M", Some(2 * MB)), ("0", None), ("x", None)] {
            assert_eq!(bandwidth(text), want, "{text}");
        }
        let stats = |options: &[(&str, &str)]| {
            let mut manner = CopyOptions::default();
            let done =
                options.iter().try_for_each(|(id, value)| manner.option(id, Some(value)).map(|known| assert!(known)));
            done.map(|()| manner.stats.map(|every| every.as_secs()))
        };
        assert_eq!(stats(&[("stats", "")]), Ok(Some(5)));
        assert_eq!(stats(&[("stats-interval", "3"), ("stats", "")]), Ok(Some(3)));
        for wrong in ["0", "1s", ""] {
            assert_eq!(stats(&[("stats-interval", wrong)]), Err(format!("invalid stats interval '{wrong}'")));
        }
        assert_eq!(CopyOptions::default().option("b", None), Ok(false));
    }

    #[test]
    fn stats_lines_match_lustre_and_keep_their_interval() {
        let mut stats = Stats::new(Path::new("mg"), Duration::from_secs(3600));
        // A start in the future makes the elapsed time zero, however long this thread is delayed.
        (stats.began, stats.said) = (stats.began + HOUR, stats.said + HOUR);
        assert_eq!(stats.note(3 * MB, 4 * MB), None);
        let line = stats.line();
        assert!(line.starts_with("mg:\n- { seconds: 0, rmbps: "), "{line}");
        assert!(line.ends_with(", copied: 3, total: 4, pct: 75% }\n"), "{line}");
        assert!(stats.line().starts_with("- { "), "the name stands there once");
        let mut often = Stats::new(Path::new("mg"), Duration::ZERO);
        assert!(often.note(0, 0).is_some_and(|line| line.ends_with(", copied: 0, total: 0, pct: 100% }\n")));
    }
}
