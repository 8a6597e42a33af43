//! A run on the user's terminal: progress, warnings, and the noise of the machine.

use std::{fs, io};

use serde_json::Value;

use crate::{
    noise::Noise,
    output::{Format, OutputArgs},
    progress::Progress,
};

/// A run on the terminal.
#[derive(Debug)]
pub struct Session {
    progress: Progress,
    noise: Noise,
    warnings: Vec<String>,
}

impl Session {
    /// Begins a run of this many phases.
    pub fn new(phases: usize) -> Session {
        Session { progress: Progress::new(phases), noise: Noise::default(), warnings: Vec::new() }
    }

    /// Shows that a phase begins.
    pub fn begin(&self, phase: &str) {
        self.progress.begin(phase);
    }

    /// Counts a phase as done, and prints its result.
    pub fn end(&self, print: impl FnOnce()) {
        self.progress.end();
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

    /// Ends the run. Returns the noise of the machine and all warnings.
    pub fn finish(mut self, result: &io::Result<()>) -> (Noise, Vec<String>) {
        if let Some(warning) = self.noise.warning() {
            self.warn(warning);
        }
        if let Err(e) = result {
            self.warnings.push(format!("the run did not end: {e}"));
        }
        (self.noise, self.warnings)
    }
}

/// Writes the record of a run to standard output and to a file, as the options say.
///
/// # Errors
/// A message for the user.
pub fn write_record(args: &OutputArgs, record: &Value) -> Result<(), String> {
    if args.format == Some(Format::Json) {
        println!("{record:#}");
    }
    let Some(path) = &args.json else { return Ok(()) };
    fs::write(path, format!("{record:#}\n")).map_err(|e| format!("cannot write {}: {e}", path.display()))
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
