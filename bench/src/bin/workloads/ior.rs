//! IOR. Tasks on all mounts write one block each of one file, 1 MiB at a time, and fsync. Then they
//! read and check the block of a task on another mount.
//!
//! The paper has 64 tasks on 16 nodes with 64 GiB each. Here there are two tasks per mount, which
//! share the paper's 4 TiB divided by the factor. Stripe widths are the paper's.

use std::io;

use serde_json::json;
use sheen_bench::{
    chart::Chart,
    cluster::Cluster,
    patterns::IOR,
    report::{Progress, Table},
    stats::{median, median_and_range, range, ratios},
    workers::{self, Job, Records},
};

use crate::common::{Args, check, empty_caches, numbers, panel, stripe, turns};

const TASKS_PER_MOUNT: usize = 2;
const BLOCK: u64 = 1 << 20;
const FILE_BYTES: u64 = 4 << 40;

/// Measures IOR and draws the picture.
pub fn measure(args: &Args, cluster: &Cluster) -> io::Result<Table> {
    let tasks = cluster.mounts.len() * TASKS_PER_MOUNT;
    let count = (FILE_BYTES / args.ior_factor / BLOCK / tasks as u64).max(1) as usize;
    let factors = args.factors(args.ior_factor, 1);
    let mib = (count * tasks) as f64;
    let jobs = |name: &str, shift: usize, job: fn(Records) -> Job| -> Vec<Job> {
        let records = |rank: usize| Records {
            path: cluster.mounts[(rank + shift) % cluster.mounts.len()].join(name),
            bytes: BLOCK as usize,
            first: (rank * count) as u64 * BLOCK,
            stride: BLOCK,
            count,
            rank,
            page_offset: args.page_offset,
        };
        (0..tasks).map(|rank| job(records(rank))).collect()
    };
    let mut rates = [vec![Vec::new(); IOR.len()], vec![Vec::new(); IOR.len()]];
    let progress = Progress::new(args.options.rounds as usize * IOR.len());
    for round in 0..args.options.rounds {
        for (i, experiment) in turns(IOR, round) {
            let [write, read] = progress.step(experiment.name, || {
                let path = cluster.mounts[0].join(experiment.name);
                stripe(cluster, &path, experiment, factors)?;
                let wrote = workers::run(&jobs(experiment.name, 0, Job::Write))?;
                check(cluster, &path, experiment, factors)?;
                empty_caches(cluster)?;
                let read = workers::run(&jobs(experiment.name, 1, Job::Check))?;
                cluster.remove(&path)?;
                Ok([wrote, read].map(|took| mib / took.done.as_secs_f64()))
            })?;
            rates[0][i].push(write);
            rates[1][i].push(read);
        }
    }
    drop(progress);
    let chart = Chart {
        title: format!(
            "IOR: {tasks} tasks on {} mounts, one file of {mib:.0} MiB, 1/{} of the paper's",
            cluster.mounts.len(),
            args.ior_factor
        ),
        axis: "IOR.N: 1 to 3 with static striping, 4 to 6 with dynamic striping".into(),
        categories: numbers(IOR),
        series: vec!["median and range of the rounds".into()],
        panels: vec![
            panel("write with fsync, MiB/s", std::slice::from_ref(&rates[0])),
            panel("read, MiB/s", std::slice::from_ref(&rates[1])),
        ],
    };
    chart.save(&args.pictures, "workload-ior")?;
    Ok(table(&rates))
}

fn table(rates: &[Vec<Vec<f64>>; 2]) -> Table {
    let columns = ["experiment", "striping", "write, MiB/s", "ratio to IOR.1", "read, MiB/s", "ratio to IOR.1"];
    let mut table = Table::new(&columns);
    for (i, experiment) in IOR.iter().enumerate() {
        let mut cells = vec![experiment.name.to_owned(), experiment.striping.to_owned()];
        let mut figures = json!({ "experiment": experiment.name, "striping": experiment.striping });
        for (what, rates) in ["write", "read"].into_iter().zip(rates) {
            let ratios = ratios(&rates[i], &rates[0]);
            let (low, high) = range(&rates[i]);
            cells.extend([median_and_range(&rates[i], 0), median_and_range(&ratios, 2)]);
            figures[what] = json!({
                "mib_per_s": median(&rates[i]), "mib_per_s_min": low, "mib_per_s_max": high, "ratio": median(&ratios),
            });
        }
        table.row(cells, figures);
    }
    table
}
