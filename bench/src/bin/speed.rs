//! Sheen against the baseline, as ratios: the table of `docs/performance.md`.
//!
//! `speed [--rounds 5] [--sheen PATH] [--base DIR] [--json FILE] [--only NAME] [--stage lo|tcp]`.
//! Every round measures each work once on each file system, one after the other, so that other load
//! of the machine affects them equally. Ratios are formed within a round. The table shows the
//! median over the rounds.

use std::{collections::BTreeMap, io, path::PathBuf, process::Command};

use clap::Parser;
use sheen_bench::{
    stage::Stage,
    stats::{median, range},
    work::{self, Kind},
};

#[derive(Parser)]
struct Args {
    /// Number of rounds; the median is reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Path of the sheen program.
    #[arg(long, default_value = "target/release/sheen")]
    sheen: PathBuf,
    /// Directory of the file systems; in memory, so that no disk is measured.
    #[arg(long, default_value = "/dev/shm/sheen-bench")]
    base: PathBuf,
    /// FUSE threads of every file system.
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Run only works whose names contain this, and the works whose files they need.
    #[arg(long)]
    only: Option<String>,
    /// Measure only this file system besides the baseline: lo or tcp.
    #[arg(long)]
    stage: Option<String>,
    /// Smaller amounts, for a first impression.
    #[arg(long)]
    quick: bool,
    /// Also write the figures to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
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

fn main() -> io::Result<()> {
    if work::maybe_worker()? {
        return Ok(());
    }
    let args = Args::parse();
    let stages = bring_up(&args)?;
    let works: Vec<Work> = works(args.quick)
        .into_iter()
        .filter(|w| args.only.as_ref().is_none_or(|o| w.name.contains(o.as_str()) || w.kind.leaves_for(o)))
        .collect();
    // Rates by (work, stage), one for each round.
    let mut rates: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    let bar = indicatif::ProgressBar::new((args.rounds * works.len() * stages.len()) as u64);
    for round in 0..args.rounds {
        for (w, work) in works.iter().enumerate() {
            for (s, stage) in stages.iter().enumerate() {
                let dir = stage.mount.join(format!("round{round}-{}", work.processes));
                std::fs::create_dir_all(&dir)?;
                let rate = work::run(work.kind, &dir, work.processes, work.count)?;
                rates.entry((w, s)).or_default().push(rate);
                if work.kind == Kind::Read {
                    for rank in 0..work.processes {
                        std::fs::remove_file(dir.join(format!("rank{rank}.data")))?;
                    }
                }
                bar.inc(1);
            }
        }
    }
    let tar = if args.only.as_ref().is_none_or(|o| "untar".contains(o.as_str())) {
        Some(untar(&args, &stages)?)
    } else {
        None
    };
    bar.finish_and_clear();
    show(&args, &stages, &works, &rates, tar)
}

fn bring_up(args: &Args) -> io::Result<Vec<Stage>> {
    let wanted = |name: &str| args.stage.as_ref().is_none_or(|s| s == name);
    let mut stages = vec![Stage::baseline(&args.base, args.threads)?];
    if wanted("lo") {
        stages.push(Stage::sheen_lo(&args.base, &args.sheen, args.threads)?);
    }
    if wanted("tcp") {
        stages.push(Stage::sheen_tcp(&args.base, &args.sheen, args.threads)?);
    }
    Ok(stages)
}

/// Unpacks a source tree of at least 5,000 files. Returns the seconds by stage and round.
fn untar(args: &Args, stages: &[Stage]) -> io::Result<Vec<Vec<f64>>> {
    let archive = args.base.join("tree.tar");
    let list = args.base.join("tree.list");
    let cargo =
        std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap_or_default()));
    let script = format!(
        "cd '{cargo}/registry/src' && find . -type f | LC_ALL=C sort | head -6000 > '{l}' && tar cf '{a}' -T '{l}'",
        l = list.display(),
        a = archive.display()
    );
    work::time(Command::new("sh").args(["-c", &script]))?;
    let files = std::fs::read_to_string(&list)?.lines().count();
    if files < 5000 {
        return Err(io::Error::other(format!("only {files} files to unpack; at least 5,000 are needed")));
    }
    let mut seconds = vec![Vec::new(); stages.len()];
    for round in 0..args.rounds {
        for (s, stage) in stages.iter().enumerate() {
            let dir = stage.mount.join(format!("tree{round}"));
            std::fs::create_dir_all(&dir)?;
            let took = work::time(Command::new("tar").arg("xf").arg(&archive).arg("-C").arg(&dir))?;
            seconds[s].push(took.as_secs_f64());
        }
    }
    std::fs::remove_file(archive)?;
    Ok(seconds)
}

fn show(
    args: &Args,
    stages: &[Stage],
    works: &[Work],
    rates: &BTreeMap<(usize, usize), Vec<f64>>,
    tar: Option<Vec<Vec<f64>>>,
) -> io::Result<()> {
    let mut json = Vec::new();
    println!("| work | file system | rate | ratio to the baseline (min–max) | asked |");
    println!("|---|---|---|---|---|");
    for (w, work) in works.iter().enumerate() {
        for (s, stage) in stages.iter().enumerate() {
            let mine = &rates[&(w, s)];
            let ratios: Vec<f64> = mine.iter().zip(&rates[&(w, 0)]).map(|(a, b)| a / b).collect();
            let goal = match stage.name {
                "sheen lo" => work.goal.0,
                "sheen tcp" => work.goal.1,
                _ => None,
            };
            let unit = if work.kind.is_data() { "MiB/s" } else { "/s" };
            row(
                &work.name,
                stage.name,
                &format!("{:.0} {unit}", median(mine)),
                &ratios,
                goal.map(|g| format!("≥ {g}")),
            );
            json.push(serde_json::json!({"work": work.name, "stage": stage.name, "rate": median(mine), "ratio": median(&ratios)}));
        }
    }
    if let Some(seconds) = tar {
        for (s, stage) in stages.iter().enumerate() {
            let ratios: Vec<f64> = seconds[s].iter().zip(&seconds[0]).map(|(a, b)| a / b).collect();
            let goal = (stage.name == "sheen lo").then(|| "≤ 2.5".to_owned());
            row("untar, 6000 files", stage.name, &format!("{:.2} s", median(&seconds[s])), &ratios, goal);
            json.push(serde_json::json!({"work": "untar", "stage": stage.name, "seconds": median(&seconds[s]), "ratio": median(&ratios)}));
        }
    }
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_string_pretty(&json).map_err(io::Error::other)?)?;
    }
    Ok(())
}

fn row(work: &str, stage: &str, rate: &str, ratios: &[f64], goal: Option<String>) {
    let (low, high) = range(ratios);
    println!(
        "| {work} | {stage} | {rate} | {:.2} ({low:.2}–{high:.2}) | {} |",
        median(ratios),
        goal.unwrap_or_default()
    );
}
