//! Cost and gain of layouts: writing across the boundaries of components, creating a file of 2,000
//! stripes, small files on the MDT, and mapping.
//!
//! ```text
//! layouts [--rounds 5] [--only boundaries|create|small|default|mapping] [--mib 512]
//!         [--creates 50] [--delay-us 2000] [--files 20000] [--bytes 3901] [--json FILE]
//! ```
//!
//! The two sides of a ratio are measured one after the other in each round, in alternating order.
//! The table shows the median over the rounds.
//!
//! * *boundaries*: one process writes a new file of `--mib` MiB and fsyncs it. The file has three
//!   components, 64 MiB, 256 MiB and the rest, with 1, 2 and 4 stripes. It is compared with a file
//!   of 4 stripes. In the first round the file is read and checked on another mount.
//! * *create*: `--creates` files are created in a directory with a default layout of 2,000 stripes,
//!   and in one with a default layout of one stripe. Each message over tcp is delayed by
//!   `--delay-us`.
//! * *small*: `--files` files of `--bytes` bytes are written, and then read on another mount with
//!   empty caches. Files on the MDT (`-E 64K -L mdt -E -1 -c 1`) are compared with files of one
//!   stripe. With `lo`, the files are written over `lo`, but the mount that reads them is over tcp.
//!   Over tcp this is repeated with a twentieth of the files and all messages delayed by 1 ms.
//! * *default*: see [`default_layout`].
//! * *mapping*: see [`mapping`].

use std::{fs, io, path::PathBuf, process::ExitCode};

use clap::Parser;
use sheen_bench::{
    allocs::Counting,
    cluster::{Cluster, Plan, RunDir},
    report::{Table, finish, program},
    workers::{self, Files, Job, Records},
};

use common::{Args, M, ONE, Row, pair, row};

mod common;
mod default_layout;
mod mapping;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const OSTS: usize = 4;
/// The final component has as many stripes as the plain file.
const STEPS: &[&str] = &["-E", "64M", "-c", "1", "-E", "256M", "-c", "2", "-E", "-1", "-c", "4"];
const FINAL: &[&str] = &["-c", "4"];
const WIDE: &[&str] = &["-C", "2000"];
const ON_MDT: &[&str] = &["-E", "64K", "-L", "mdt", "-E", "-1", "-c", "1"];

/// Small files are also measured with each message delayed by this time.
const SMALL_DELAY_US: u64 = 1000;
const SMALL_DELAYED_PART: usize = 20;

const GOAL_BOUNDARIES: f64 = 0.95;
const GOAL_CREATE: f64 = 1.5;
const GOAL_SMALL: f64 = 1.5;

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let columns = ["work", "layout", "measured", "the other layout", "measured", "ratio (min–max)", "goal"];
    let mut table = Table::new("", columns);
    let wants = |name: &str| args.options.wants(name);
    if ["boundaries", "create", "small", "default"].into_iter().any(wants) {
        let run_dir = RunDir::claim(&args.options.base, "layouts", &args.options.sheen)?;
        for (name, lo) in [("lo", true), ("tcp", false)] {
            if !lo || ["boundaries", "small", "default"].into_iter().any(wants) {
                let plan = Plan { name, osts: OSTS, mounts: 2, lo, threads: args.options.threads };
                mounted(&args, &Cluster::up(&run_dir, plan)?, &mut table)?;
            }
        }
    }
    if wants("mapping") {
        mapping::measure(&args.options, &mut table)?;
    }
    finish(&[table], &args.options)
}

/// Runs the measurements that need a mount.
fn mounted(args: &Args, cluster: &Cluster, table: &mut Table) -> io::Result<()> {
    if args.options.wants("boundaries") {
        boundaries(args, cluster, table)?;
    }
    // Messages over `lo` are never delayed.
    if args.options.wants("create") && !cluster.plan.lo {
        create(args, cluster, table)?;
    }
    if args.options.wants("small") {
        small(args, cluster, table, 0)?;
        if !cluster.plan.lo {
            small(args, cluster, table, SMALL_DELAY_US)?;
        }
    }
    if args.options.wants("default") {
        default_layout::measure(args, cluster, table)?;
    }
    Ok(())
}

/// Measures writes across the boundaries of components.
fn boundaries(args: &Args, cluster: &Cluster, table: &mut Table) -> io::Result<()> {
    let what = format!("{}, write across boundaries", cluster.plan.name);
    let rates = pair(args, &what, |which, round| {
        let name = format!("boundaries.{round}.{which}");
        let path = cluster.mounts[0].join(&name);
        cluster.setstripe(&path, [STEPS, FINAL][which])?;
        let records = |path: PathBuf| Records {
            path,
            bytes: M as usize,
            first: 0,
            stride: M,
            count: args.mib,
            rank: 0,
            page_offset: 0,
        };
        let took = workers::run(&[Job::Write(records(path.clone()))])?;
        if round == 0 {
            workers::run(&[Job::Check(records(cluster.mounts[1].join(&name)))])?;
        }
        cluster.remove(&path)?;
        Ok(args.mib as f64 / took.done.as_secs_f64())
    })?;
    row(
        table,
        Row {
            work: &format!("write across boundaries of components, {}", cluster.plan.name),
            this: "64M/256M/rest with 1/2/4 stripes",
            that: "4 stripes",
            unit: "MiB/s",
            decimals: 0,
            measured: &rates,
            goal: &format!("≥ {GOAL_BOUNDARIES}"),
        },
    );
    Ok(())
}

/// Measures the creation of files with many stripes, with delayed messages.
fn create(args: &Args, cluster: &Cluster, table: &mut Table) -> io::Result<()> {
    let what = format!("{}, create with a delay of {} us", cluster.plan.name, args.delay_us);
    let millis = pair(args, &what, |which, round| {
        let dir = cluster.mounts[0].join(format!("create.{round}.{which}"));
        fs::create_dir(&dir)?;
        cluster.setstripe(&dir, [WIDE, ONE][which])?;
        // The first file makes the mount cache the directory's default layout.
        fs::File::create(dir.join("first"))?;
        cluster.sheen.set_param("lnet.delay_us", args.delay_us)?;
        let took = workers::run(&[Job::Fill(Files::new(dir.clone(), args.creates), 0)]);
        cluster.sheen.set_param("lnet.delay_us", 0)?;
        let took = took?;
        let made = cluster.sheen.run(["lfs", "getstripe", "-c", &dir.join("first").to_string_lossy()])?;
        let wanted = ["2000", "1"][which];
        if made.trim() != wanted {
            return Err(io::Error::other(format!("a file has {} stripes, not {wanted}", made.trim())));
        }
        fs::remove_dir_all(&dir)?;
        Ok(took.done.as_secs_f64() * 1e3 / args.creates as f64)
    })?;
    row(
        table,
        Row {
            work: &format!("create over tcp, {} ms delay", args.delay_us as f64 / 1e3),
            this: "2,000 stripes",
            that: "1 stripe",
            unit: "ms per file",
            decimals: 1,
            measured: &millis,
            goal: &format!("≤ {GOAL_CREATE}"),
        },
    );
    Ok(())
}

/// Measures small files on the MDT and on one OST, with each message delayed by `delay_us`. With a
/// delay, a part of the files is enough.
fn small(args: &Args, cluster: &Cluster, table: &mut Table, delay_us: u64) -> io::Result<()> {
    let (mut name, bytes) = (cluster.plan.name.to_owned(), args.bytes);
    let files = if delay_us == 0 { args.files } else { args.files.div_ceil(SMALL_DELAYED_PART) };
    if delay_us > 0 {
        name += &format!(", {} ms delay", delay_us as f64 / 1e3);
    }
    let of = |step: &str| format!("{step} {files} files of {bytes} bytes, {name}");
    let times = pair(args, &of("write and read"), |which, round| {
        let sub = format!("small.{round}.{which}");
        let dir = cluster.mounts[0].join(&sub);
        fs::create_dir(&dir)?;
        cluster.setstripe(&dir, [ON_MDT, ONE][which])?;
        cluster.sheen.set_param("lnet.delay_us", delay_us)?;
        let wrote = workers::run(&[Job::Fill(Files::new(dir.clone(), files), bytes)]);
        let read = workers::run(&[Job::Open(Files::new(cluster.mounts[1].join(&sub), files))]);
        cluster.sheen.set_param("lnet.delay_us", 0)?;
        cluster.remove(&dir)?;
        Ok([wrote?.done.as_secs_f64(), read?.done.as_secs_f64()])
    })?;
    for (step, time) in
        [("write", (|t| t[0]) as fn(&[f64; 2]) -> f64), ("read", |t| t[1]), ("write and read", |t| t[0] + t[1])]
    {
        let rates = [0, 1].map(|i| times[i].iter().map(|t| files as f64 / time(t)).collect::<Vec<f64>>());
        let goal = if step == "write and read" { format!("≥ {GOAL_SMALL}") } else { String::new() };
        row(
            table,
            Row {
                work: &of(step),
                this: "data on MDT",
                that: "1 stripe",
                unit: "files/s",
                decimals: 0,
                measured: &rates,
                goal: &goal,
            },
        );
    }
    Ok(())
}
