//! A progress bar on the terminal. Nothing is shown if standard error is not a terminal.

use std::{io, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

use crate::stop;

/// A progress bar on the terminal.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Shows a progress bar for `steps` steps.
    pub fn new(steps: usize) -> Progress {
        let bar = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} {elapsed}, left {eta}: {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress(bar)
    }

    /// Shows the name of the step that begins.
    pub fn begin(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Ends a step.
    pub fn end(&self) {
        self.0.inc(1);
    }

    /// Prints something above the bar.
    pub fn above(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    /// Runs a step.
    ///
    /// # Errors
    /// Errors of the step, or an interruption by the user.
    pub fn step<T>(&self, what: &str, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        stop::check()?;
        self.begin(what);
        let outcome = act()?;
        self.end();
        Ok(outcome)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
