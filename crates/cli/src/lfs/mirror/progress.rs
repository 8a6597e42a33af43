//! Progress of a copy to mirrors: on a terminal, or as reports.

use std::{
    io::{self, IsTerminal},
    path::Path,
    time::{Duration, Instant},
};

use sheen_admin::{FileSystem, Progress};
use sheen_wire::Result;

use super::super::{pace::Stats, tool::Tool};

/// A copy that ends sooner shows no progress.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);
/// Interval at which progress is shown after that.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Calls `work`, which copies to mirrors of `path`, and shows the progress of the copy. `every`:
/// interval of reports; `None`: progress is shown on a terminal.
///
/// # Errors
/// The error of `work`.
pub fn with_progress(
    tool: &mut Tool,
    path: &Path,
    every: Option<Duration>,
    work: impl FnOnce(&dyn FileSystem, &mut dyn FnMut(Progress)) -> Result<()>,
) -> Result<()> {
    let mut stats = every.map(|every| Stats::new(path, every));
    let mut attempt = None;
    let fs = tool.fs;
    work(fs, &mut |progress| {
        if let Progress::Begin { .. } = progress {
            attempt = Some(Attempt::new(path, stats.is_none()));
        } else if let Some(attempt) = &mut attempt {
            attempt.show(tool, progress, stats.as_mut());
        }
    })?;
    // Mirrors that are known to hold the same data are not copied to.
    if let (Some(stats), true) = (&mut stats, attempt.is_some()) {
        tool.print_now(&stats.line());
    }
    Ok(())
}

/// An attempt at a copy.
struct Attempt<'a> {
    path: &'a Path,
    began: Instant,
    /// Time at which the line on the terminal was drawn last.
    drawn: Option<Instant>,
    on_terminal: bool,
}

impl<'a> Attempt<'a> {
    fn new(path: &'a Path, may_draw: bool) -> Attempt<'a> {
        let on_terminal = may_draw && io::stderr().is_terminal();
        Attempt { path, began: Instant::now(), drawn: None, on_terminal }
    }

    fn show(&mut self, tool: &mut Tool, progress: Progress, stats: Option<&mut Stats>) {
        let (copied, total) = progress.bytes();
        if let Some(line) = stats.and_then(|stats| stats.note(copied, total)) {
            tool.print_now(&line);
        }
        self.draw(tool, copied, total);
        if matches!(progress, Progress::End { .. }) && self.drawn.is_some() {
            let _ = writeln!(tool.err);
        }
    }

    /// Draws the line on the terminal, if that is due.
    fn draw(&mut self, tool: &mut Tool, copied: u64, total: u64) {
        let now = Instant::now();
        let due = self.drawn.is_none_or(|drawn| now - drawn >= PROGRESS_INTERVAL);
        if !self.on_terminal || now - self.began < PROGRESS_AFTER || !due {
            return;
        }
        self.drawn = Some(now);
        let percent = copied * 100 / total.max(1);
        let _ = write!(tool.err, "\r{}: {percent:3}% of {} MiB", self.path.display(), total >> 20);
    }
}
