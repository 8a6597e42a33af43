//! BLAST. Debian's `blastp` searches for proteins in a protein database on the file system, with a
//! process on each mount for its share of the queries. It maps the database into memory, scans it
//! sequentially, and then reads at the places of its hits.
//!
//! The database is that of mmseqs2's examples, with about 9 MB. The paper's database (of
//! nucleotides) has 79 files of 1 GB. Watermarks are scaled by this ratio, and stripe widths by
//! [`WIDTHS`], so that wide patterns still have several units on each stripe. All files of the
//! database inherit the pattern from their directory. The hits are compared with those of a
//! database on tmpfs. The time on tmpfs shows the computing time.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::json;
use sheen_bench::{
    chart::Chart,
    cluster::{Cluster, RunDir},
    patterns::{BLAST, Experiment, Factors},
    report::{Progress, Table},
    stats::{median, median_and_range, range, ratios},
    stop,
};

use crate::common::{Args, check, empty_caches, numbers, panel, stripe, turns};

/// Divisor of stripe widths.
const WIDTHS: u64 = 16;
const DATABASE_BYTES: u64 = 79 << 30;
/// The file of a database that contains the sequences.
const SEQUENCES: &str = "db.psq";

/// A database and queries on tmpfs.
pub struct Input {
    dir: PathBuf,
    /// The files of queries, one for each mount.
    queries: Vec<PathBuf>,
    /// Size of the sequences in bytes.
    bytes: u64,
}

impl Input {
    /// Creates the database and the queries. The inner error says what is missing.
    pub fn prepare(args: &Args, run_dir: &RunDir) -> io::Result<Result<Input, String>> {
        for program in ["makeblastdb", "blastp"] {
            let there = Command::new(program).arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if !there.is_ok_and(|status| status.success()) {
                return Ok(Err(format!("{program} cannot be run")));
            }
        }
        for name in ["DB.fasta.gz", "QUERY.fasta.gz"] {
            if !args.proteins.join(name).exists() {
                return Ok(Err(format!("there is no {name} in {}", args.proteins.display())));
            }
        }
        let dir = run_dir.dir().join("proteins");
        fs::create_dir_all(dir.join("db"))?;
        let fasta = dir.join("db.fasta");
        fs::write(&fasta, unpack(&args.proteins.join("DB.fasta.gz"))?)?;
        let mut make = Command::new("makeblastdb");
        make.args(["-dbtype", "prot", "-in"]).arg(&fasta).arg("-out").arg(dir.join("db/db"));
        succeed(make.stdout(Stdio::null()).status()?, "makeblastdb")?;
        let all = String::from_utf8(unpack(&args.proteins.join("QUERY.fasta.gz"))?).map_err(io::Error::other)?;
        let mut queries = Vec::new();
        for (i, share) in shares(&all, args.queries.into(), args.mounts.into()).into_iter().enumerate() {
            queries.push(dir.join(format!("queries.{i}")));
            fs::write(&queries[i], share)?;
        }
        let bytes = fs::metadata(dir.join("db").join(SEQUENCES))?.len();
        Ok(Ok(Input { dir, queries, bytes }))
    }

    fn factors(&self, args: &Args) -> Factors {
        args.factors(DATABASE_BYTES / self.bytes.max(1), WIDTHS)
    }
}

fn unpack(path: &Path) -> io::Result<Vec<u8>> {
    let out = Command::new("gzip").arg("-dc").arg(path).stderr(Stdio::inherit()).output()?;
    succeed(out.status, "gzip")?;
    Ok(out.stdout)
}

fn succeed(status: std::process::ExitStatus, what: &str) -> io::Result<()> {
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{what}: {status}"))) }
}

/// Takes `queries` evenly spaced sequences of a FASTA file and deals them out to `files` files, at
/// most one file per sequence.
fn shares(fasta: &str, queries: usize, files: usize) -> Vec<String> {
    let sequences: Vec<String> =
        fasta.split("\n>").map(|one| format!(">{}\n", one.trim_start_matches('>').trim_end())).collect();
    let queries = queries.min(sequences.len());
    let mut shares = vec![String::new(); files.min(queries)];
    for n in 0..queries {
        let to = n % shares.len();
        shares[to] += &sequences[n * sequences.len() / queries];
    }
    shares
}

/// Measures BLAST and draws the picture.
pub fn measure(args: &Args, cluster: &Cluster, input: &Input) -> io::Result<Table> {
    let factors = input.factors(args);
    let progress = Progress::new(BLAST.len() + args.options.rounds as usize * (1 + BLAST.len()));
    for experiment in BLAST {
        progress.step(&format!("{}: database", experiment.name), || copy(cluster, input, experiment, factors))?;
    }
    let on_tmpfs: Vec<PathBuf> = input.queries.iter().map(|_| input.dir.join("db")).collect();
    let (mut tmpfs, mut times) = (Vec::new(), vec![Vec::new(); BLAST.len()]);
    let mut found = None;
    for round in 0..args.options.rounds {
        let (took, here) = progress.step("tmpfs", || search(input, &on_tmpfs))?;
        tmpfs.push(took.as_secs_f64());
        let found = found.get_or_insert(here);
        for (i, experiment) in turns(BLAST, round) {
            progress.step(experiment.name, || {
                empty_caches(cluster)?;
                let databases: Vec<PathBuf> = cluster.mounts.iter().map(|m| m.join(experiment.name)).collect();
                let (took, here) = search(input, &databases)?;
                if here != *found || here.iter().all(Vec::is_empty) {
                    return Err(io::Error::other(format!(
                        "{}: the hits of blastp differ from those on tmpfs",
                        experiment.name
                    )));
                }
                times[i].push(took.as_secs_f64());
                Ok(())
            })?;
        }
    }
    drop(progress);
    for experiment in BLAST {
        cluster.remove(&cluster.mounts[0].join(experiment.name))?;
    }
    draw(args, &times, input)?;
    Ok(table(&times, &tmpfs))
}

/// Copies the database into a directory with the experiment's pattern.
fn copy(cluster: &Cluster, input: &Input, experiment: &Experiment, factors: Factors) -> io::Result<()> {
    let dir = cluster.mounts[0].join(experiment.name);
    fs::create_dir(&dir)?;
    stripe(cluster, &dir, experiment, factors)?;
    for entry in fs::read_dir(input.dir.join("db"))? {
        let entry = entry?;
        let mut file = File::create(dir.join(entry.file_name()))?;
        io::copy(&mut File::open(entry.path())?, &mut file)?;
        file.sync_all()?;
    }
    check(cluster, &dir.join(SEQUENCES), experiment, factors)
}

/// Runs all queries at once, each file of queries with a database of its own. Returns the time and
/// the hits.
fn search(input: &Input, databases: &[PathBuf]) -> io::Result<(Duration, Vec<Vec<u8>>)> {
    let start = Instant::now();
    let mut running = Vec::new();
    for (query, database) in input.queries.iter().zip(databases) {
        let mut command = Command::new("blastp");
        command.args(["-num_threads", "1", "-outfmt", "6", "-query"]).arg(query).arg("-out").arg(hits(query));
        // Otherwise blastp reports its use to its makers over the network.
        command.arg("-db").arg(database.join("db")).env("BLAST_USAGE_REPORT", "false").stdin(Stdio::null());
        running.push(Running::start(&mut command)?);
    }
    running.into_iter().try_for_each(Running::end)?;
    let took = start.elapsed();
    let found = input.queries.iter().map(|query| fs::read(hits(query))).collect::<io::Result<_>>()?;
    Ok((took, found))
}

fn hits(query: &Path) -> PathBuf {
    query.with_extension(format!("{}.hits", query.extension().unwrap_or_default().to_string_lossy()))
}

/// A process that ends with this program.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> io::Result<Running> {
        let child = command.spawn()?;
        stop::worker_started(child.id());
        Ok(Running(child))
    }

    fn end(mut self) -> io::Result<()> {
        let status = self.0.wait()?;
        stop::check()?;
        succeed(status, "blastp")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        stop::worker_ending(self.0.id());
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Returns the speedup of each round over blast.1 in the same round.
fn speedups(times: &[Vec<f64>]) -> Vec<Vec<f64>> {
    times.iter().map(|of| ratios(&times[0], of)).collect()
}

fn draw(args: &Args, times: &[Vec<f64>], input: &Input) -> io::Result<()> {
    // The times of one kind of experiments, and nothing for the other kind.
    let only = |dynamic: bool, all: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let one = |(experiment, of): (&Experiment, &Vec<f64>)| {
            if experiment.is_dynamic() == dynamic { of.clone() } else { Vec::new() }
        };
        BLAST.iter().zip(all).map(one).collect()
    };
    let kinds = |all: &[Vec<f64>]| [only(false, all), only(true, all)];
    let chart = Chart {
        title: format!(
            "blastp: {} queries on {} mounts, {:.1} MB of proteins, 1/{} of the paper's",
            args.queries,
            input.queries.len(),
            input.bytes as f64 / 1e6,
            DATABASE_BYTES / input.bytes.max(1)
        ),
        axis: "blast.N".into(),
        categories: numbers(BLAST),
        series: vec!["static striping".into(), "dynamic striping".into()],
        panels: vec![panel("time, s", &kinds(times)), panel("speedup over blast.1", &kinds(&speedups(times)))],
    };
    chart.save(&args.pictures, "workload-blast")
}

fn table(times: &[Vec<f64>], tmpfs: &[f64]) -> Table {
    let mut table =
        Table::new(&["experiment", "striping", "time, s", "speedup over blast.1", "ratio to the time on tmpfs"]);
    table.row(
        vec!["tmpfs".into(), String::new(), median_and_range(tmpfs, 2), String::new(), "1".into()],
        json!({ "experiment": "blast on tmpfs", "seconds": median(tmpfs) }),
    );
    for ((experiment, times), speedups) in BLAST.iter().zip(times).zip(speedups(times)) {
        let over = ratios(times, tmpfs);
        let (low, high) = range(times);
        table.row(
            vec![
                experiment.name.into(),
                experiment.striping.into(),
                median_and_range(times, 2),
                median_and_range(&speedups, 2),
                format!("{:.2}", median(&over)),
            ],
            json!({
                "experiment": experiment.name, "striping": experiment.striping, "seconds": median(times),
                "seconds_min": low, "seconds_max": high, "speedup": median(&speedups), "over_tmpfs": median(&over),
            }),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_split_queries_evenly_into_whole_sequences() {
        let fasta: String = (0..10).map(|n| format!(">q{n} protein\nMKV{n}\nAAA\n")).collect();
        let shares = shares(&fasta, 5, 2);
        assert_eq!(shares[0], ">q0 protein\nMKV0\nAAA\n>q4 protein\nMKV4\nAAA\n>q8 protein\nMKV8\nAAA\n");
        assert_eq!(shares[1].matches('>').count(), 2);
        assert_eq!(super::shares(&fasta, 1, 4).len(), 1, "no file is empty");
    }

    #[test]
    fn speedup_of_a_faster_run_is_above_one() {
        assert_eq!(speedups(&[vec![2.0, 3.0], vec![1.0, 6.0]]), [vec![1.0, 1.0], vec![2.0, 0.5]]);
    }
}
