//! Options for the output of a tool, its three formats, and its files.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};

/// Format of a tool's standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Format {
    /// For people, as the original prints it.
    #[default]
    Default,
    /// JSON, at the end of the run.
    Json,
    /// Comma-separated values.
    Csv,
}

// A doc comment here would become the description of the tool in `--help`.
#[allow(missing_docs, reason = "as above")]
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
    /// Format of the output: default, json or csv
    #[arg(long, value_name = "FORMAT", ignore_case = true, hide_possible_values = true)]
    pub format: Option<Format>,
    /// Also write the results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write a report to this file: HTML with a chart, or the chart alone (.svg)
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Lines on the standard output for people; none if the format is for programs.
pub struct Lines(Option<Box<dyn Write>>);

impl Lines {
    /// Prints to the standard output if the format is for people.
    pub fn new(args: &OutputArgs) -> Lines {
        match args.format.unwrap_or_default() {
            Format::Default => Lines::to(io::stdout()),
            Format::Json | Format::Csv => Lines(None),
        }
    }

    /// Prints to `out`.
    pub fn to(out: impl Write + 'static) -> Lines {
        Lines(Some(Box::new(out)))
    }

    /// Prints a line. A closed pipe does not end the run.
    pub fn line(&mut self, text: &str) {
        if let Some(out) = &mut self.0 {
            let _ = writeln!(out, "{text}");
            let _ = out.flush();
        }
    }
}

/// The files of a run's results. They are opened before the run, so that a mistyped name costs no
/// measurement, and written after it.
#[derive(Debug)]
pub struct Outputs {
    /// The record.
    pub json: Option<OutputFile>,
    /// The report.
    pub report: Option<OutputFile>,
}

impl Outputs {
    /// Opens the files.
    ///
    /// # Errors
    /// A message for the user.
    pub fn open(args: &OutputArgs) -> Result<Outputs, String> {
        if args.json.is_some() && args.json == args.report {
            return Err("--json and --report: the same file".into());
        }
        let open = |path: &Option<PathBuf>| path.as_deref().map(OutputFile::open).transpose();
        Ok(Outputs { json: open(&args.json)?, report: open(&args.report)? })
    }
}

/// A file that is written after the run.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    file: File,
}

impl OutputFile {
    /// Opens a file, and leaves its contents until [`OutputFile::write`].
    fn open(path: &Path) -> Result<OutputFile, String> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|e| named("write", path, &e).to_string())?;
        Ok(OutputFile { path: path.to_owned(), file })
    }

    /// Returns whether the name of the file ends in `.svg`.
    pub fn is_svg(&self) -> bool {
        self.path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg"))
    }

    /// Replaces the contents.
    ///
    /// # Errors
    /// A message for the user.
    pub fn write(mut self, text: &str) -> Result<(), String> {
        // A pipe or a terminal has no length.
        let _ = self.file.set_len(0);
        self.file.write_all(text.as_bytes()).map_err(|e| named("write", &self.path, &e).to_string())
    }
}

/// Returns the error of an operation with the path of its file.
pub fn named(what: &str, path: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("cannot {what} {}: {e}", path.display()))
}
