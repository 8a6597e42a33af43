//! A run on the user's terminal: progress, warnings, and the noise of the machine.

use std::io::{self, Write};

use serde_json::Value;

use crate::{
    noise::Noise,
    output::{Format, OutputArgs, Outputs},
    progress::Progress,
    record::{self, Circumstances},
    report::Report,
};

/// A run on the terminal.
#[derive(Debug)]
pub struct Session {
    progress: Progress,
    /// The part of the run, in front of the names of its phases.
    part: String,
    noise: Noise,
    warnings: Vec<String>,
    format: Format,
    outputs: Outputs,
}

impl Session {
    /// Begins a run of this many phases. Opens the files for its results.
    ///
    /// # Errors
    /// A message for the user.
    pub fn new(phases: usize, args: &OutputArgs) -> Result<Session, String> {
        Ok(Session::with_outputs(phases, args, Outputs::open(args)?))
    }

    /// Begins a run of this many phases, for whose results the files are already open.
    pub fn with_outputs(phases: usize, args: &OutputArgs, outputs: Outputs) -> Session {
        Session {
            progress: Progress::new(phases),
            part: String::new(),
            noise: Noise::default(),
            warnings: Vec::new(),
            format: args.format.unwrap_or_default(),
            outputs,
        }
    }

    /// Shows that a part of the run begins: the phases until the next one belong to it.
    pub fn part(&mut self, name: &str) {
        self.part = format!("{name}: ");
        self.progress.begin(name);
    }

    /// Shows that a phase begins.
    pub fn begin(&self, phase: &str) {
        self.progress.begin(&format!("{}{phase}", self.part));
    }

    /// Counts a phase as done, and prints its result.
    pub fn end(&self, print: impl FnOnce()) {
        self.progress.end();
        self.above(print);
    }

    /// Prints something above the progress bar.
    pub fn above(&self, print: impl FnOnce()) {
        self.progress.above(print);
    }

    /// Prints a warning, which also becomes part of the report.
    pub fn warn(&mut self, text: String) {
        self.progress.above(|| eprintln!("WARNING: {text}"));
        self.warnings.push(text);
    }

    /// Measures how quiet the machine is. To be called before and after each repetition.
    pub fn measure_noise(&mut self) {
        self.noise.spin();
    }

    /// Ends the run: writes its results, also those of a run that was interrupted. `results`: an
    /// object with the fields of the tool's record. `report` makes the report; this function adds
    /// warnings, circumstances and record.
    ///
    /// # Errors
    /// A message for the user: that of the run, or the first output that cannot be written.
    pub fn conclude(
        mut self,
        mut run: Circumstances,
        result: io::Result<()>,
        results: Value,
        report: impl FnOnce() -> io::Result<Report>,
    ) -> Result<(), String> {
        if let Some(warning) = self.noise.warning() {
            self.warn(warning);
        }
        if let Err(e) = &result {
            self.warnings.push(format!("the run did not end: {e}"));
        }
        let is_json = self.format == Format::Json;
        if !is_json && self.outputs.json.is_none() && self.outputs.report.is_none() {
            return result.map_err(|e| e.to_string());
        }
        (run.noise, run.warnings) = (Some(self.noise.spread()), self.warnings);
        let report = report();
        let record = run.record(results, report.as_ref().map_or(&[][..], |report| &report.tables[..]));
        let text = record::text(&record);
        if is_json {
            // A closed pipe is no error.
            let _ = io::stdout().write_all(text.as_bytes());
        }
        let json = self.outputs.json.map_or(Ok(()), |file| file.write(&text));
        let html = self.outputs.report.map_or(Ok(()), |file| {
            let report = report.map_err(|e| e.to_string())?;
            let facts = run.facts().into_iter().chain(report.facts).collect();
            Report { warnings: run.warnings, facts, record, ..report }.save(file)
        });
        result.map_err(|e| e.to_string()).and(json).and(html)
    }
}
