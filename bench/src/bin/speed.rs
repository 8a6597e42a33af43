//! Sheen against the baseline, as ratios: the table of `docs/performance.md`.
//!
//! `speed [--rounds 5] [--sheen PATH] [--base DIR] [--json FILE] [--only NAME] [--stage lo|tcp]
//! [--transport device|ring] [--flavors | --users]`.
//! Every round measures each work once on each file system, soon after each other, so that other
//! load of the machine affects them equally. Ratios are formed within a round. The table shows the
//! median over the rounds.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use clap::Parser;
use sheen_bench::{
    report::{Cell, Options, Progress, Table, finish, program},
    stage::{self, Stage, Transport},
    stats::ratios,
    tree,
    workers::{self, Files, Job, Records},
};
use sheen_wire::auth::Flavor;

/// Sheen against the baseline: reads, writes, creates, stats, unlinks, and an archive unpacked
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Measure only this file system besides the baseline: lo or tcp
    #[arg(long)]
    stage: Option<String>,
    /// Measure Sheen only with this transport of the kernel's requests: device or ring
    #[arg(long)]
    transport: Option<String>,
    /// Instead of the baseline: the protections of connections, as ratios to none
    #[arg(long)]
    flavors: bool,
    /// Instead of the baseline: a mount with a key of the cluster, and ones with issued keys
    #[arg(long, conflicts_with = "flavors")]
    users: bool,
    /// Smaller amounts, for a first impression
    #[arg(long)]
    quick: bool,
}

/// Name of the archive in tables.
const TAR: &str = "untar, 6000 files";
/// Bytes of a read or write.
const BLOCK: usize = 1 << 20;

/// Kinds of work of a process, with `count` operations each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// O_DIRECT writes of 1 MiB into one file per process.
    Write,
    /// O_DIRECT reads of 1 MiB from the files of `Write`.
    Read,
    /// Creation of empty files, in one directory per process.
    Create,
    /// `stat` of the files of `Create`.
    Stat,
    /// `unlink` of the files of `Create`.
    Unlink,
}

impl Kind {
    /// Returns its name in tables.
    fn name(self) -> &'static str {
        match self {
            Kind::Write => "write",
            Kind::Read => "read",
            Kind::Create => "create",
            Kind::Stat => "stat",
            Kind::Unlink => "unlink",
        }
    }

    /// Returns whether the work `name` uses the files of this one.
    fn leaves_for(self, name: &str) -> bool {
        match self {
            Kind::Write => name.starts_with("read"),
            Kind::Create => name.starts_with("stat") || name.starts_with("unlink"),
            _ => false,
        }
    }

    /// Returns the unit of its rate.
    fn unit(self) -> &'static str {
        match self {
            Kind::Write | Kind::Read => "MiB/s",
            Kind::Create | Kind::Stat | Kind::Unlink => "/s",
        }
    }

    fn job(self, dir: &Path, rank: usize, count: usize) -> Job {
        let files = Files::new(dir.join(format!("rank{rank}")), count);
        let path = data_file(dir, rank);
        let records = Records { path, bytes: BLOCK, first: 0, stride: BLOCK as u64, count, rank, page_offset: 0 };
        match self {
            Kind::Write => Job::WriteDirect(records),
            Kind::Read => Job::ReadDirect(records),
            Kind::Create => Job::Create(files),
            Kind::Stat => Job::Stat(files),
            Kind::Unlink => Job::Unlink(files),
        }
    }
}

fn data_file(dir: &Path, rank: usize) -> PathBuf {
    dir.join(format!("rank{rank}.data"))
}

struct Work {
    name: String,
    kind: Kind,
    processes: usize,
    count: usize,
    /// Target ratios over (lo, tcp).
    goal: (Option<f64>, Option<f64>),
}

fn works(quick: bool) -> Vec<Work> {
    let mut works = Vec::new();
    for processes in [1, 4] {
        let scale = if quick { 8 } else { 1 };
        for (kind, total, goal) in [
            (Kind::Write, 1024, (Some(0.6), Some(0.35))),
            (Kind::Read, 1024, (Some(0.6), Some(0.35))),
            (Kind::Create, 16000, (Some(0.5), None)),
            (Kind::Stat, 16000, (Some(0.5), None)),
            (Kind::Unlink, 16000, (Some(0.5), None)),
        ] {
            let name = format!("{} ×{processes}", kind.name());
            works.push(Work { name, kind, processes, count: total / processes / scale, goal });
        }
    }
    works
}

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let stages = bring_up(&args)?;
    let wanted = |work: &Work| {
        args.options.wants(&work.name) || args.options.only.as_ref().is_some_and(|only| work.kind.leaves_for(only))
    };
    let works: Vec<Work> = works(args.quick).into_iter().filter(wanted).collect();
    let rates = measure(&args, &stages, &works)?;
    let tar = if args.options.wants("untar") && !args.users { Some(untar(&args, &stages)?) } else { None };
    show(&args, &stages, &works, &rates, tar)
}

/// Rates by (work, stage), one for each round.
type Rates = BTreeMap<(usize, usize), Vec<f64>>;

fn measure(args: &Args, stages: &[Stage], works: &[Work]) -> io::Result<Rates> {
    let mut rates = Rates::new();
    let progress = Progress::new(args.options.rounds as usize * works.len() * stages.len());
    // A file system's files are removed before the next one is measured. In a virtual machine,
    // memory that was just freed is much faster than memory that the host must provide anew.
    let numbered: Vec<(usize, &Work)> = works.iter().enumerate().collect();
    let groups = || numbered.chunk_by(|(_, a), (_, b)| a.processes == b.processes && a.kind.unit() == b.kind.unit());
    for round in 0..args.options.rounds {
        for (group, s) in groups().flat_map(|group| stage::order(round as usize, stages.len()).map(move |s| (group, s)))
        {
            let stage = &stages[s];
            let dir = stage.mount.join(format!("round{round}"));
            fs::create_dir_all(&dir)?;
            if args.users {
                stage::for_all(&dir)?;
            }
            for (w, work) in group {
                let name = format!("{}, {}", stage.name, work.name);
                let rate = progress.step(&name, || work.run(&dir, args.users.then_some(stage::NOBODY)))?;
                rates.entry((*w, s)).or_default().push(rate);
            }
            fs::remove_dir_all(dir)?;
            stage::settle(&args.options.base)?;
        }
    }
    Ok(rates)
}

impl Work {
    /// Returns the rate of all processes together, in operations (or MiB) per second.
    fn run(&self, dir: &Path, uid: Option<u32>) -> io::Result<f64> {
        let jobs: Vec<Job> = (0..self.processes).map(|rank| self.kind.job(dir, rank, self.count)).collect();
        let took = workers::run_as(uid, &jobs)?;
        Ok((self.processes * self.count) as f64 / took.done.as_secs_f64())
    }
}

fn bring_up(args: &Args) -> io::Result<Vec<Stage>> {
    let Options { base, sheen, threads, .. } = &args.options;
    if args.flavors {
        return Flavor::ALL.into_iter().map(|flavor| Stage::sheen_protected(base, sheen, *threads, flavor)).collect();
    }
    if args.users {
        let of_cluster = Stage::sheen_tcp(base, sheen, *threads, Transport::Device)?;
        let make = [Stage::sheen_of_user, Stage::sheen_of_host, Stage::sheen_in_nodemap];
        let issued = make.iter().map(|make| make(base, sheen, *threads));
        return std::iter::once(Ok(of_cluster)).chain(issued).collect();
    }
    let wanted = |choice: &Option<String>, name: &str| choice.as_ref().is_none_or(|chosen| chosen == name);
    let mut stages = vec![Stage::baseline(base, *threads)?];
    for (name, transport) in [("device", Transport::Device), ("ring", Transport::Ring)] {
        if !wanted(&args.transport, name) {
            continue;
        }
        if wanted(&args.stage, "lo") {
            stages.push(Stage::sheen_lo(base, sheen, *threads, transport)?);
        }
        if wanted(&args.stage, "tcp") {
            stages.push(Stage::sheen_tcp(base, sheen, *threads, transport)?);
        }
    }
    Ok(stages)
}

/// Unpacks a source tree of at least 5,000 files. Returns the seconds by stage and round.
fn untar(args: &Args, stages: &[Stage]) -> io::Result<Vec<Vec<f64>>> {
    let archive = tree::archive(&args.options.base, 6000)?;
    let mut seconds = vec![Vec::new(); stages.len()];
    let progress = Progress::new(args.options.rounds as usize * stages.len());
    for round in 0..args.options.rounds {
        for (s, stage) in stages.iter().enumerate() {
            let dir = stage.mount.join(format!("tree{round}"));
            fs::create_dir_all(&dir)?;
            let took = progress.step(&format!("{}, untar", stage.name), || {
                tree::time(Command::new("tar").arg("xf").arg(&archive).arg("-C").arg(&dir))
            })?;
            seconds[s].push(took);
        }
    }
    fs::remove_file(archive)?;
    Ok(seconds)
}

/// Seconds of the archive by stage and round, if it was measured.
type Tar = Option<Vec<Vec<f64>>>;

fn show(args: &Args, stages: &[Stage], works: &[Work], rates: &Rates, tar: Tar) -> io::Result<()> {
    let table = match args.flavors || args.users {
        true => against_first(args, stages, works, rates, tar),
        false => against_baseline(stages, works, rates, tar),
    };
    finish(&[table], &args.options)
}

/// A row for each work on each file system.
fn against_baseline(stages: &[Stage], works: &[Work], rates: &Rates, tar: Tar) -> Table {
    let columns = ["work", "file system", "rate (min–max)", "ratio to the baseline (min–max)", "goal"];
    let mut table = Table::new("", columns);
    let mut row = |work: &str, stage: &str, rate: Cell, ratios: &[f64], goal: String| {
        table.row(vec![work.into(), stage.into(), rate, Cell::range(ratios, 2, ""), goal.into()]);
    };
    for (w, work) in works.iter().enumerate() {
        for (s, stage) in stages.iter().enumerate() {
            let goal = match stage.name {
                name if name.starts_with("sheen lo") => work.goal.0,
                name if name.starts_with("sheen tcp") => work.goal.1,
                _ => None,
            };
            let goal = goal.map(|g| format!("≥ {g}")).unwrap_or_default();
            let rate = Cell::range(&rates[&(w, s)], 0, work.kind.unit());
            row(&work.name, stage.name, rate, &ratios(&rates[&(w, s)], &rates[&(w, 0)]), goal);
        }
    }
    for (s, stage) in stages.iter().enumerate() {
        let Some(seconds) = &tar else { break };
        let goal = if stage.name.starts_with("sheen lo") { "≤ 2.5".to_owned() } else { String::new() };
        row(TAR, stage.name, Cell::range(&seconds[s], 2, "s"), &ratios(&seconds[s], &seconds[0]), goal);
    }
    table
}

/// A row for each work: the rate on the first file system, and the ratios of the others to it. The
/// flavors have goals.
fn against_first(args: &Args, stages: &[Stage], works: &[Work], rates: &Rates, tar: Tar) -> Table {
    let [first, others @ ..] = stages else { return Table::default() };
    let of_stage = |stage: &Stage| {
        let goal = args.flavors.then(|| "goal".to_owned());
        [format!("{}: ratio (min–max)", stage.name)].into_iter().chain(goal)
    };
    let rate = format!("{}: rate (min–max)", first.name);
    let columns = ["work".to_owned(), rate].into_iter().chain(others.iter().flat_map(of_stage));
    let mut table = Table::new("", columns);
    for (w, work) in works.iter().enumerate() {
        let base = &rates[&(w, 0)];
        let mut cells = vec![work.name.as_str().into(), Cell::range(base, 0, work.kind.unit())];
        for (s, stage) in (1..).zip(others) {
            cells.push(Cell::range(&ratios(&rates[&(w, s)], base), 2, ""));
            cells.extend(args.flavors.then(|| Cell::from(format!("≥ {}", goal_of(stage, work)))));
        }
        table.row(cells);
    }
    if let Some([base, seconds @ ..]) = tar.as_deref() {
        let mut cells = vec![format!("{TAR} (smaller is better)").into(), Cell::range(base, 2, "s")];
        for took in seconds {
            cells.push(Cell::range(&ratios(took, base), 2, ""));
            cells.extend(args.flavors.then(Cell::empty));
        }
        table.row(cells);
    }
    table
}

/// Returns the goal of a protection, as a ratio to none.
fn goal_of(stage: &Stage, work: &Work) -> f64 {
    match work.kind {
        _ if stage.name.ends_with("privacy") => 0.6,
        Kind::Write | Kind::Read => 0.85,
        Kind::Create | Kind::Stat | Kind::Unlink => 0.97,
    }
}
