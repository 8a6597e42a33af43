//! Common parts of the measuring programs: start and end, options, tables in Markdown, and results
//! as JSON.

use std::{io, path::PathBuf, process::ExitCode};

use clap::Args;
use serde_json::Value;
pub use sheen_lab::progress::Progress;
use sheen_lab::stop;

use crate::workers;

/// The `main` of a measuring program. Runs a worker's job if this process was started as a worker,
/// and `measure` otherwise. Prints errors.
pub fn program(measure: impl FnOnce() -> io::Result<()>) -> ExitCode {
    let outcome = workers::maybe_worker().and_then(|worked| {
        if worked {
            return Ok(());
        }
        stop::listen()?;
        measure()
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

// A doc comment here would become the program's description in `--help`.
#[allow(missing_docs, reason = "as above")]
#[derive(Args, Debug)]
pub struct Options {
    /// Number of rounds; the median is reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Run only measurements whose names contain this
    #[arg(long)]
    pub only: Option<String>,
    /// Also write the figures to this file, as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Path of the sheen program
    #[arg(long, default_value = "target/release/sheen")]
    pub sheen: PathBuf,
    /// Directory of the file systems; in memory, so that no disk is measured
    #[arg(long, default_value = "/dev/shm/sheen-bench")]
    pub base: PathBuf,
    /// FUSE threads of every mount
    #[arg(long, default_value_t = 4)]
    pub threads: usize,
}

impl Options {
    /// Returns whether the measurement `name` is selected.
    pub fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

/// A table for people, with the figures of each row for programs.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    json: Vec<Value>,
}

impl Table {
    /// Creates a table with these columns.
    pub fn new(columns: &[&str]) -> Table {
        Table { rows: vec![columns.iter().map(|c| (*c).to_owned()).collect()], json: Vec::new() }
    }

    /// Adds a row with its cells and its figures.
    pub fn row(&mut self, cells: Vec<String>, figures: Value) {
        self.rows.push(cells);
        self.json.push(figures);
    }

    /// Prints the table in Markdown, with aligned columns.
    pub fn print(&self) {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
        for (i, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &w)| format!("{cell:w$}")).collect();
            println!("| {} |", cells.join(" | "));
            if i == 0 {
                let rules: Vec<String> = widths.iter().map(|&w| "-".repeat(w + 2)).collect();
                println!("|{}|", rules.join("|"));
            }
        }
    }

    /// Prints the table, and writes the figures to the file of the option `--json`.
    pub fn finish(self, options: &Options) -> io::Result<()> {
        finish(vec![self], options)
    }
}

/// Prints tables, and writes their figures to the file of the option `--json`.
pub fn finish(tables: Vec<Table>, options: &Options) -> io::Result<()> {
    for (i, table) in tables.iter().enumerate() {
        if i > 0 {
            println!();
        }
        table.print();
    }
    let figures: Vec<&Value> = tables.iter().flat_map(|t| &t.json).collect();
    match &options.json {
        Some(path) => std::fs::write(path, serde_json::to_string_pretty(&figures).map_err(io::Error::other)?),
        None => Ok(()),
    }
}
