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

use crate::{
    stop,
    workloads::{
        args::WorkloadsArgs,
        outcome::Quantity,
        patterns::{BLAST, Experiment, Factors},
        setup::Setup,
        system::System,
    },
};

/// Divisor of stripe widths.
const WIDTHS: u64 = 16;
const DATABASE_BYTES: u64 = 79 << 30;
/// The file of a database that contains the sequences.
const SEQUENCES: &str = "db.psq";
const TIME: Quantity = Quantity { name: "time", unit: "s", variation: "" };

/// A database and queries on tmpfs.
pub struct Input {
    dir: PathBuf,
    /// The files of queries, one for each mount.
    queries: Vec<PathBuf>,
    /// Size of the sequences in bytes.
    bytes: u64,
}

impl Input {
    /// Creates the database and the queries.
    ///
    /// # Errors
    /// A program fails, or a file cannot be read or written.
    pub fn prepare(args: &WorkloadsArgs, system: &System) -> io::Result<Input> {
        let dir = system.run_dir().join("proteins");
        fs::create_dir_all(dir.join("db"))?;
        let fasta = dir.join("db.fasta");
        fs::write(&fasta, unpack(&args.proteins.join("DB.fasta.gz"))?)?;
        let mut make = Command::new("makeblastdb");
        make.args(["-dbtype", "prot", "-in"]).arg(&fasta).arg("-out").arg(dir.join("db/db"));
        succeed(make.stdout(Stdio::null()).status()?, "makeblastdb")?;
        let all = String::from_utf8(unpack(&args.proteins.join("QUERY.fasta.gz"))?).map_err(io::Error::other)?;
        let mut queries = Vec::new();
        for (i, share) in shares(&all, args.queries.into(), system.mounts.len()).into_iter().enumerate() {
            queries.push(dir.join(format!("queries.{i}")));
            fs::write(&queries[i], share)?;
        }
        let bytes = fs::metadata(dir.join("db").join(SEQUENCES))?.len();
        let factors = Factors { bytes: DATABASE_BYTES / bytes.max(1), widths: WIDTHS, osts: system.osts };
        if BLAST.iter().any(|experiment| experiment.is_too_small(factors)) {
            return Err(io::Error::other("--proteins: the set is too small: its parts would be below a stripe"));
        }
        Ok(Input { dir, queries, bytes })
    }

    fn factors(&self, setup: &Setup<'_>) -> Factors {
        setup.factors(DATABASE_BYTES / self.bytes.max(1), WIDTHS)
    }
}

/// Returns what BLAST needs and this host lacks.
pub fn missing(args: &WorkloadsArgs) -> Option<String> {
    const ADVICE: &str = "on Debian, install ncbi-blast+ and mmseqs2-examples";
    for program in ["makeblastdb", "blastp"] {
        let there = Command::new(program).arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            return Some(format!("{program} cannot be run; {ADVICE}"));
        }
    }
    let file = ["DB.fasta.gz", "QUERY.fasta.gz"].into_iter().find(|name| !args.proteins.join(name).exists())?;
    Some(format!("there is no {file} in {}; {ADVICE}", args.proteins.display()))
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

/// Measures experiments with BLAST.
///
/// # Errors
/// Of the file system or of blastp, or an interruption by the user.
pub fn measure(setup: &mut Setup<'_>, input: &Input, experiments: &[&'static Experiment]) -> io::Result<()> {
    let on_tmpfs: Vec<PathBuf> = input.queries.iter().map(|_| input.dir.join("db")).collect();
    let (took, found) = search(input, &on_tmpfs)?;
    setup.outcome.begin(
        format!(
            "blastp: {} queries on {} mounts, {:.1} MB of proteins, 1/{} of the paper's; {:.2} s on tmpfs",
            setup.args.queries,
            input.queries.len(),
            input.bytes as f64 / 1e6,
            DATABASE_BYTES / input.bytes.max(1),
            took.as_secs_f64()
        ),
        experiments,
    );
    let factors = input.factors(setup);
    for experiment in experiments {
        copy(setup, input, experiment, factors)?;
    }
    setup.rounds(experiments, |setup, experiment| {
        setup.session.begin("search");
        setup.system.empty_caches()?;
        let databases: Vec<PathBuf> = setup.system.dirs.iter().map(|dir| dir.join(experiment.name)).collect();
        let (took, here) = search(input, &databases)?;
        if here != found || here.iter().all(Vec::is_empty) {
            return Err(io::Error::other("the hits of blastp differ from those on tmpfs"));
        }
        setup.session.end(|| {});
        setup.outcome.add(experiment, TIME, took.as_secs_f64());
        Ok(())
    })?;
    experiments.iter().try_for_each(|experiment| setup.system.remove(&setup.system.dirs[0].join(experiment.name)))
}

/// Copies the database into a directory with the experiment's pattern.
fn copy(setup: &Setup<'_>, input: &Input, experiment: &Experiment, factors: Factors) -> io::Result<()> {
    let dir = setup.system.dirs[0].join(experiment.name);
    fs::create_dir(&dir)?;
    setup.stripe(&dir, experiment, factors)?;
    for entry in fs::read_dir(input.dir.join("db"))? {
        let entry = entry?;
        let mut file = File::create(dir.join(entry.file_name()))?;
        io::copy(&mut File::open(entry.path())?, &mut file)?;
        file.sync_all()?;
    }
    setup.check(&dir.join(SEQUENCES), experiment, factors)
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
        let running = Running(child);
        // A signal before the line above was not for this process.
        stop::check().map(|()| running)
    }

    fn end(mut self) -> io::Result<()> {
        // It remains a zombie until it is no worker any more, so that its id is not reused.
        rustix::process::waitid(
            rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&self.0)),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
        )?;
        stop::worker_ending(self.0.id());
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
}
