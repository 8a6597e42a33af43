//! The progress bar of `lfs migrate` on a terminal.
//!
//! The bar is one line that is redrawn in place. It shows the finished files, if there are several,
//! and the file that is being copied.

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
    time::{Duration, Instant},
};

use super::super::pace::percent;

/// A command that ends sooner shows no bar.
const BAR_AFTER: Duration = Duration::from_secs(2);
/// Interval at which the bar is redrawn.
const BAR_INTERVAL: Duration = Duration::from_millis(200);
/// Length of the bar in characters.
const BAR_CHARS: usize = 20;
/// Characters of a name that are shown, from its end, so that the line fits a terminal.
const NAME_CHARS: usize = 24;
const MB: u64 = 1 << 20;

/// The progress bar of a command.
pub struct Progress {
    /// The terminal; `None`: no bar is drawn.
    to: Option<Box<dyn Write>>,
    /// Start of the command.
    began: Instant,
    bar_after: Duration,
    drawn: Option<Instant>,
    /// Whether the bar is on the screen.
    shown: bool,
    /// Number of files; `None` for a list, which is read while it is worked off.
    files_max: Option<usize>,
    /// Files that are finished or have failed, and the bytes that were copied of them.
    files: usize,
    bytes: u64,
    name: String,
    copied: u64,
    total: u64,
}

impl Progress {
    /// Starts the bar of a command for `files_max` files (`None`: a list). `stats`: the command
    /// prints reports instead of a bar.
    pub fn new(files_max: Option<usize>, stats: bool) -> Progress {
        let draws = !stats && io::stderr().is_terminal();
        Progress::on(draws.then(|| Box::new(io::stderr()) as Box<dyn Write>), BAR_AFTER, files_max)
    }

    fn on(to: Option<Box<dyn Write>>, bar_after: Duration, files_max: Option<usize>) -> Progress {
        Progress {
            to,
            began: Instant::now(),
            bar_after,
            drawn: None,
            shown: false,
            files_max,
            files: 0,
            bytes: 0,
            name: String::new(),
            copied: 0,
            total: 0,
        }
    }

    /// Begins a file.
    pub fn begin(&mut self, path: &Path) {
        let name = path.display().to_string();
        let cut = name.chars().count().saturating_sub(NAME_CHARS);
        self.name = if cut == 0 { name } else { format!("…{}", name.chars().skip(cut + 1).collect::<String>()) };
        (self.copied, self.total) = (0, 0);
    }

    /// Records the bytes copied of the current file. Redraws the bar if that is due.
    pub fn note(&mut self, copied: u64, total: u64) {
        (self.copied, self.total) = (copied, total);
        let due = self.began.elapsed() >= self.bar_after && self.drawn.is_none_or(|at| at.elapsed() >= BAR_INTERVAL);
        if due && self.to.is_some() {
            (self.drawn, self.shown) = (Some(Instant::now()), true);
            self.write(format!("\r{}\x1b[K", self.line()));
        }
    }

    /// Ends the current file.
    pub fn end(&mut self) {
        self.files += 1;
        self.bytes += self.copied;
        (self.copied, self.total) = (0, 0);
    }

    /// Removes the bar before other output on the terminal and at the end of the command.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            self.write("\r\x1b[K".to_owned());
        }
    }

    fn write(&mut self, text: String) {
        if let Some(to) = &mut self.to {
            let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
        }
    }

    fn percent(&self) -> u64 {
        percent(self.copied, self.total)
    }

    /// Returns the whole line.
    fn line(&self) -> String {
        let mb = (self.bytes + self.copied) / MB;
        let done = match self.files_max {
            Some(1) => String::new(),
            Some(max) => format!("{} of {max} files, {mb} MB; ", self.files),
            None => format!("{} files, {mb} MB; ", self.files),
        };
        done + &self.bar()
    }

    /// Returns the part of the line for the current file.
    fn bar(&self) -> String {
        let full = BAR_CHARS * self.percent() as usize / 100;
        let (copied, total) = (self.copied / MB, self.total / MB);
        format!("{} [{:<BAR_CHARS$}] {:>3}% {copied}/{total} MB", self.name, "=".repeat(full), self.percent())
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::*;

    /// Records the output to a terminal.
    #[derive(Clone, Default)]
    struct Screen(Rc<RefCell<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Screen {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.borrow_mut())).unwrap()
        }
    }

    fn progress(files_max: Option<usize>, bar_after: Duration) -> (Screen, Progress) {
        let screen = Screen::default();
        (screen.clone(), Progress::on(Some(Box::new(screen)), bar_after, files_max))
    }

    #[test]
    fn migrate_progress_of_one_file_draws_bar() {
        let (screen, mut progress) = progress(Some(1), Duration::ZERO);
        progress.begin(Path::new("f"));
        assert_eq!(progress.percent(), 100, "of nothing");
        progress.note(3 * MB, 4 * MB);
        assert_eq!(screen.take(), "\rf [===============     ]  75% 3/4 MB\x1b[K");
        progress.clear();
        progress.clear();
        assert_eq!(screen.take(), "\r\x1b[K", "taken away once");
    }

    #[test]
    fn migrate_progress_of_many_files_counts_them() {
        let (screen, mut progress) = progress(None, Duration::ZERO);
        for n in 0..3 {
            progress.begin(Path::new(&format!("some/directory/with/a/long/name/{n}")));
            progress.note(2 * MB, 2 * MB);
            progress.end();
        }
        // Only the first call draws. The others come too soon after it.
        assert_eq!(screen.take(), "\r0 files, 2 MB; …tory/with/a/long/name/0 [====================] 100% 2/2 MB\x1b[K");
        assert_eq!(progress.line(), "3 files, 6 MB; …tory/with/a/long/name/2 [====================] 100% 0/0 MB");
        progress.files_max = Some(12);
        progress.begin(Path::new("ä"));
        assert_eq!(progress.line(), "3 of 12 files, 6 MB; ä [====================] 100% 0/0 MB");
    }

    #[test]
    fn migrate_progress_of_short_command_draws_nothing() {
        let (screen, mut progress) = progress(None, BAR_AFTER);
        progress.begin(Path::new("f"));
        progress.note(1, 2);
        progress.end();
        progress.clear();
        assert_eq!(screen.take(), "");
    }
}
