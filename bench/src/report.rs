//! Common parts of the measuring programs: start and end, options, tables in Markdown, and the
//! record of a run, which has the form of those of the lab.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::OnceLock,
};

use clap::Args;
use serde_json::json;
use sheen_lab::{
    clock::Moment,
    noise::Noise,
    record::{Circumstances, text},
    stop,
};
pub use sheen_lab::{
    progress::Progress,
    table::{Cell, Table},
};

use crate::workers;

/// Time of the program's start, and the noise of the machine then.
static START: OnceLock<(Moment, Noise)> = OnceLock::new();

/// The `main` of a measuring program. Runs a worker's job if this process was started as a worker,
/// and `measure` otherwise. Prints errors.
pub fn program(measure: impl FnOnce() -> io::Result<()>) -> ExitCode {
    let outcome = workers::maybe_worker().and_then(|worked| {
        if worked {
            return Ok(());
        }
        stop::listen()?;
        let mut noise = Noise::default();
        noise.spin();
        START.get_or_init(|| (Moment::now(), noise));
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
    /// Also write the record to this file, as JSON: circumstances and tables
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

/// Prints tables in Markdown. Writes their record to the file of the option `--json`.
pub fn finish(tables: &[Table], options: &Options) -> io::Result<()> {
    show(tables);
    options.json.as_ref().map_or(Ok(()), |path| store(path, options.rounds, tables))
}

/// Prints tables in Markdown, each after its title, if it has one.
pub fn show(tables: &[Table]) {
    for (number, table) in tables.iter().enumerate() {
        if number > 0 {
            println!();
        }
        if !table.title.is_empty() {
            println!("{}\n", table.title);
        }
        print!("{}", table.markdown());
    }
}

/// Writes the record of this program's run to a file: its circumstances, and these tables.
pub fn store(path: &Path, rounds: u32, tables: &[Table]) -> io::Result<()> {
    let words: Vec<String> = env::args().collect();
    let name = words.first().map(Path::new).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let (began, mut noise) = START.get().cloned().unwrap_or_else(|| (Moment::now(), Noise::default()));
    noise.spin();
    let mut run = Circumstances::new(&name, &words.join(" "), rounds, began);
    run.noise = Some(noise.spread());
    run.warnings = noise.warning().into_iter().collect();
    fs::write(path, text(&run.record(json!({}), tables)))
}
