//! A run on the user's terminal: progress, warnings, and the noise of the machine.

use std::io::{self, Write};

use serde_json::Value;

use crate::{
    noise::Noise,
    output::{Format, OutputArgs, Outputs},
    progress::Progress,
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

    /// Ends the run: writes its results, also those of a run that was interrupted. `record` and
    /// `report` make them.
    ///
    /// # Errors
    /// A message for the user: that of the run, or the first output that cannot be written.
    pub fn conclude(
        mut self,
        result: io::Result<()>,
        record: impl FnOnce(&Noise) -> Value,
        report: impl FnOnce(Value, Vec<String>) -> io::Result<Report>,
    ) -> Result<(), String> {
        if let Some(warning) = self.noise.warning() {
            self.warn(warning);
        }
        if let Err(e) = &result {
            self.warnings.push(format!("the run did not end: {e}"));
        }
        let record = record(&self.noise);
        let text = format!("{record:#}\n");
        if self.format == Format::Json {
            // A closed pipe is no error.
            let _ = io::stdout().write_all(text.as_bytes());
        }
        let json = self.outputs.json.map_or(Ok(()), |file| file.write(&text));
        let report = self.outputs.report.map_or(Ok(()), |file| {
            let report = report(record, self.warnings).map_err(|e| e.to_string())?;
            report.save(file)
        });
        result.map_err(|e| e.to_string()).and(json).and(report)
    }
}

/// Returns the circumstances of a run for its report, from its record.
pub fn facts(record: &Value, more: &[(&str, String)]) -> Vec<(String, String)> {
    let machine = &record["machine"];
    let mount = record["file system"].as_array().map(|words| words.iter().map(text).collect::<Vec<_>>().join(" "));
    let facts = [
        ("began", text(&record["Began"])),
        ("command", text(&record["Command line"])),
        ("version", text(&record["Version"])),
        ("host", text(&machine["host"])),
        ("system", format!("{} {}", text(&machine["system"]), text(&machine["release"]))),
        ("processors", format!("{} × {}", machine["processors"], text(&machine["processor"]))),
        ("file system", mount.unwrap_or_else(|| "unknown".into())),
        ("noise of the machine", format!("{:.1} %", record["noise"].as_f64().unwrap_or(0.0) * 100.0)),
    ];
    facts.iter().chain(more).map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
