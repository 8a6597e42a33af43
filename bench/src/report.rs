//! What the measuring programs have in common with each other as programs: how they begin and end,
//! options, a bar that shows how far they are, tables for people and JSON for programs.

use std::{io, path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::{crew, stop};

/// The `main` of a program that measures: does a worker's job if it was started as one, else
/// `measure`; tells what went wrong.
pub fn program(measure: impl FnOnce() -> io::Result<()>) -> ExitCode {
    let outcome = crew::maybe_worker().and_then(|worked| {
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

// A doc comment here would become what `--help` says of the program.
#[allow(missing_docs, reason = "as above")]
#[derive(Args, Debug)]
pub struct Options {
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Only what has this in its name
    #[arg(long)]
    pub only: Option<String>,
    /// Also write the figures here, as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// The sheen program
    #[arg(long, default_value = "target/release/sheen")]
    pub sheen: PathBuf,
    /// Where the file systems keep their bytes: memory, so that no disk is measured
    #[arg(long, default_value = "/dev/shm/sheen-bench")]
    pub base: PathBuf,
    /// FUSE threads of every mount
    #[arg(long, default_value_t = 4)]
    pub threads: usize,
}

impl Options {
    /// Whether what is called `name` is to be measured.
    pub fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

/// Shows which step of how many is being done, on a terminal.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// `steps` steps are to come.
    pub fn new(steps: usize) -> Progress {
        let bar = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} {elapsed}, left {eta}: {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress(bar)
    }

    /// Does a step.
    ///
    /// # Errors
    /// Those of the step; or the user wants to break off.
    pub fn step<T>(&self, what: &str, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        stop::check()?;
        self.0.set_message(what.to_owned());
        let outcome = act()?;
        self.0.inc(1);
        Ok(outcome)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A table, with the figures behind each row.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    json: Vec<Value>,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[&str]) -> Table {
        Table { rows: vec![columns.iter().map(|c| (*c).to_owned()).collect()], json: Vec::new() }
    }

    /// Adds a row: its cells, and its figures.
    pub fn row(&mut self, cells: Vec<String>, figures: Value) {
        self.rows.push(cells);
        self.json.push(figures);
    }

    /// Prints it, in Markdown with its columns aligned.
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

    /// Prints it, and writes the figures where the options say.
    pub fn finish(self, options: &Options) -> io::Result<()> {
        finish(vec![self], options)
    }
}

/// Prints tables, and writes the figures of all of them where the options say.
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
