//! Options for the output of a tool, and its three formats.

use std::path::PathBuf;

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
