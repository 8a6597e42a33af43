//! How far a copy is, for who watches: a bar on a terminal, where it takes a while.

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
    time::{Duration, Instant},
};

/// A copy that is done sooner shows no bar.
const BAR_AFTER: Duration = Duration::from_secs(2);
/// How often the bar is drawn.
const BAR_INTERVAL: Duration = Duration::from_millis(200);
/// Its length in characters.
const BAR_CHARS: usize = 30;
const MB: u64 = 1 << 20;

/// See the module.
pub struct Progress {
    name: String,
    began: Instant,
    drawn: Option<Instant>,
    draws: bool,
    copied: u64,
    total: u64,
}

impl Progress {
    /// Of one file; `stats`: it is told otherwise.
    pub fn begin(path: &Path, stats: bool) -> Progress {
        let draws = !stats && io::stderr().is_terminal();
        Progress { name: path.display().to_string(), began: Instant::now(), drawn: None, draws, copied: 0, total: 0 }
    }

    /// So many bytes are copied.
    pub fn note(&mut self, copied: u64, total: u64) {
        (self.copied, self.total) = (copied, total);
        let due = self.began.elapsed() >= BAR_AFTER && self.drawn.is_none_or(|at| at.elapsed() >= BAR_INTERVAL);
        if self.draws && due {
            self.drawn = Some(Instant::now());
            let _ = write!(io::stderr(), "\r{}", self.bar());
        }
    }

    /// It is over: the bar goes.
    pub fn end(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    fn percent(&self) -> u64 {
        (self.copied.min(self.total) * 100).checked_div(self.total).unwrap_or(100)
    }

    fn bar(&self) -> String {
        let full = BAR_CHARS * self.percent() as usize / 100;
        let (copied, total) = (self.copied / MB, self.total / MB);
        format!("{} [{:<BAR_CHARS$}] {:>3}% {copied}/{total} MB", self.name, "=".repeat(full), self.percent())
    }

    /// Lustre's line of `--stats`.
    pub fn line(&self) -> String {
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = (self.copied as f64 / MB as f64 / seconds.max(1e-6)) as u64;
        let (seconds, copied, total, percent) = (seconds as u64, self.copied / MB, self.total / MB, self.percent());
        format!(
            "- {{ seconds: {seconds}, rmbps: {rate:>5}, wmbps: {rate:>5}, copied: {copied}, total: {total}, pct: {percent}% }}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_how_far_it_is() {
        let mut progress = Progress::begin(Path::new("f"), true);
        assert_eq!(progress.percent(), 100, "of nothing");
        progress.note(3 * MB, 4 * MB);
        assert_eq!(progress.bar(), "f [======================        ]  75% 3/4 MB");
        let line = progress.line();
        assert!(
            line.starts_with("- { seconds: 0, rmbps: ") && line.ends_with(", copied: 3, total: 4, pct: 75% }"),
            "{line}"
        );
    }
}
