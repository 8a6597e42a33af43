//! Renders the tables of `docs/performance.md` from the records in `docs/measurements/`, and stores
//! records of scripts.
//!
//! ```text
//! performance                                       renders the document
//! performance store FILE --rounds N -- COMMAND…     stores tables from standard input as a record
//! ```
//!
//! `scripts/performance` runs the programs that measure, and then this one.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use serde_json::json;
use sheen_lab::{
    clock::Moment,
    document::rendered,
    record::{Circumstances, text},
    table::Table,
};

/// Render docs/performance.md from docs/measurements
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    work: Option<Work>,
    /// The document
    #[arg(long, default_value = "docs/performance.md")]
    document: PathBuf,
    /// Directory of the records
    #[arg(long, default_value = "docs/measurements")]
    records: PathBuf,
}

#[derive(Subcommand)]
enum Work {
    /// Store tables of a script, a list in JSON on standard input, as a record
    Store {
        /// The record
        file: PathBuf,
        /// Number of rounds, of which the medians are
        #[arg(long)]
        rounds: u32,
        /// The command of the measurement
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.work {
        None => render(&args.document, &args.records),
        Some(Work::Store { file, rounds, command }) => store(file, *rounds, &command.join(" ")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn render(document: &Path, records: &Path) -> io::Result<()> {
    let before = fs::read_to_string(document)?;
    let after = rendered(&before, records).map_err(io::Error::other)?;
    if before == after { Ok(()) } else { fs::write(document, after) }
}

fn store(file: &Path, rounds: u32, command: &str) -> io::Result<()> {
    let tables: Vec<Table> = serde_json::from_reader(io::stdin()).map_err(io::Error::other)?;
    let name = command.split_whitespace().next().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let run = Circumstances::new(&name.to_string_lossy(), command, rounds, Moment::now());
    fs::write(file, text(&run.record(json!({}), &tables)))
}
