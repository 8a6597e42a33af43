//! `lfs find` against find(1): searches of a tree by size, and by size and stripe count. The mount
//! is cold, or warm after two searches by find(1).
//!
//! `find [--rounds 5] [--entries 200000] [--only lo|tcp] [--json FILE]`. The tree has 500 files in
//! each directory, of four sizes, striped over one, two and four OSTs. Every file was written. A
//! cold search follows a remount of the file system (over `lo` this restarts the servers as well).
//! Ratios are formed within a round: the time of find(1) over that of `lfs find`. The number of
//! files found must be correct.
//!
//! find(1) has no test of stripes: with `-exec lfs getstripe -c` it would start a process for each
//! file. So it searches by size only, which is less work.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
    process::{Command, ExitCode, Stdio},
    thread,
    time::Instant,
};

use clap::Parser;
use sheen_bench::{
    cluster::{Cluster, Plan, RunDir},
    report::{Cell, Options, Progress, Table, finish, program},
    stats::ratios,
};

/// Files in a directory.
const FILES: usize = 500;
/// Size difference in bytes between one size of files and the next larger one. A directory's files
/// have [`SIZES`] sizes in turn. The smallest is 0.
const STEP_BYTES: usize = 1500;
const SIZES: usize = 4;
/// Stripe counts of the directories' files, in turn.
const STRIPES: [&str; 4] = ["1", "1", "2", "4"];
/// Searches find files larger than this many bytes: those of the two larger sizes.
const LARGE_BYTES: usize = 2000;
/// Searches by stripe count find files with this count: those in one of four directories.
const WANTED_STRIPES: &str = "2";
/// Number of threads that create the tree.
const MAKERS: usize = 4;

/// lfs find against find(1), by size and stripe count, on a cold and on a warm mount
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Number of files in the tree
    #[arg(long, default_value_t = 200_000)]
    entries: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Search {
    Find,
    Size,
    Both,
    Stripes,
}

impl Search {
    const ALL: [Search; 4] = [Search::Find, Search::Size, Search::Both, Search::Stripes];

    fn name(self) -> &'static str {
        match self {
            Search::Find => "find -type f -size +2000c",
            Search::Size => "lfs find -type f -size +2000c",
            Search::Both => "lfs find -type f -size +2000c --stripe-count 2",
            Search::Stripes => "lfs find -type f --stripe-count 2",
        }
    }

    /// Returns the number of files that the search must find in this many directories.
    fn found(self, dirs: usize) -> usize {
        let large = FILES / SIZES * 2;
        let wanted = (0..dirs).filter(|dir| STRIPES[dir % STRIPES.len()] == WANTED_STRIPES).count();
        match self {
            Search::Find | Search::Size => dirs * large,
            Search::Both => wanted * large,
            Search::Stripes => wanted * FILES,
        }
    }

    fn command(self, cluster: &Cluster, at: &Path) -> Command {
        let mut command = match self {
            Search::Find => Command::new("find"),
            _ => cluster.sheen.command(["lfs", "find"]),
        };
        command.arg(at).args(["-type", "f"]);
        if self != Search::Stripes {
            command.args(["-size", &format!("+{LARGE_BYTES}c")]);
        }
        if matches!(self, Search::Both | Search::Stripes) {
            command.args(["--stripe-count", WANTED_STRIPES]);
        }
        command
    }
}

/// Durations of a search over the rounds, in seconds, and the requests of the last round.
#[derive(Default)]
struct Times {
    took: Vec<f64>,
    requests: String,
}

impl Times {
    fn add(&mut self, search: Search, cluster: &Cluster, dirs: usize) -> io::Result<()> {
        let before = cluster.requests()?;
        self.took.push(seconds(search, cluster, dirs)?);
        self.requests = cluster.requests()?.since(&before).render_requests();
        Ok(())
    }
}

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let run_dir = RunDir::claim(&args.options.base, "find", &args.options.sheen)?;
    let columns = ["search", "mount", "seconds (min–max)", "speedup over find(1) (min–max)", "requests to servers"];
    let mut table = Table::new("", columns);
    for (name, lo) in [("lo", true), ("tcp", false)] {
        if args.options.wants(name) {
            let cluster = Cluster::up(&run_dir, Plan { name, osts: 4, mounts: 1, lo, threads: args.options.threads })?;
            let dirs = args.entries.div_ceil(FILES).max(STRIPES.len());
            make(&cluster, dirs)?;
            measure(&args, &cluster, dirs, &mut table)?;
        }
    }
    finish(&[table], &args.options)
}

fn make(cluster: &Cluster, dirs: usize) -> io::Result<()> {
    let root = cluster.mounts[0].join("tree");
    fs::create_dir(&root)?;
    let progress = Progress::new(dirs);
    let from = |maker: usize| (maker..dirs).step_by(MAKERS);
    let content = vec![b'x'; STEP_BYTES * SIZES];
    let fill = |dir: usize| -> io::Result<()> {
        let at = root.join(format!("d{dir}"));
        fs::create_dir(&at)?;
        cluster.setstripe(&at, &["-c", STRIPES[dir % STRIPES.len()]])?;
        for file in 0..FILES {
            File::create(at.join(format!("file{file}")))?.write_all(&content[..file % SIZES * STEP_BYTES])?;
        }
        progress.step("making files", || Ok(()))
    };
    thread::scope(|scope| {
        let makers: Vec<_> = (0..MAKERS).map(|maker| scope.spawn(move || from(maker).try_for_each(fill))).collect();
        makers
            .into_iter()
            .try_for_each(|maker| maker.join().unwrap_or_else(|_| Err(io::Error::other("a thread ended"))))
    })
}

fn measure(args: &Args, cluster: &Cluster, dirs: usize, table: &mut Table) -> io::Result<()> {
    let (mut cold, mut warm): ([Times; 4], [Times; 4]) = Default::default();
    let progress = Progress::new(args.options.rounds as usize * (cold.len() + 1));
    for _ in 0..args.options.rounds {
        for (search, times) in Search::ALL.into_iter().zip(&mut cold) {
            progress.step(&format!("{}, {}, cold", cluster.plan.name, search.name()), || {
                cluster.remount(0)?;
                times.add(search, cluster, dirs)
            })?;
        }
        progress.step(&format!("{}, warm", cluster.plan.name), || {
            for _ in 0..2 {
                seconds(Search::Find, cluster, dirs)?;
            }
            Search::ALL.into_iter().zip(&mut warm).try_for_each(|(search, times)| times.add(search, cluster, dirs))
        })?;
    }
    drop(progress);
    for (pass, all) in [("cold", &cold), ("warm", &warm)] {
        for (search, times) in Search::ALL.into_iter().zip(all) {
            let speedups = ratios(&all[0].took, &times.took);
            row(table, (search, pass), cluster, times, &speedups);
        }
    }
    Ok(())
}

fn row(table: &mut Table, (search, pass): (Search, &str), cluster: &Cluster, times: &Times, speedups: &[f64]) {
    table.row(vec![
        format!("`{}`, {pass}", search.name()).into(),
        cluster.plan.name.into(),
        Cell::range(&times.took, 2, ""),
        if search == Search::Find { Cell::empty() } else { Cell::range(speedups, 1, "") },
        times.requests.clone().into(),
    ]);
}

/// Runs a search. Returns its duration, or an error if the number of files found is wrong.
fn seconds(search: Search, cluster: &Cluster, dirs: usize) -> io::Result<f64> {
    let mut command = search.command(cluster, &cluster.mounts[0].join("tree"));
    let began = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut out = Vec::new();
    child.stdout.take().map_or(Ok(0), |mut stdout| stdout.read_to_end(&mut out))?;
    let status = child.wait()?;
    let took = began.elapsed().as_secs_f64();
    let (found, wanted) = (out.iter().filter(|b| **b == b'\n').count(), search.found(dirs));
    if !status.success() || found != wanted {
        return Err(io::Error::other(format!("{command:?}: {status}, {found} found instead of {wanted}")));
    }
    Ok(took)
}
