//! The default layout of a new file system (decision 018) against one stripe, for files of three
//! sizes. Files are written on one mount and read on another mount with empty caches.

use std::{fs, io};

use sheen_bench::{
    cluster::Cluster,
    report::Table,
    workers::{self, Files, Job},
};

use crate::common::{Args, M, ONE, Row, pair, row};

/// `sheen_layout::Template::progressive`, as arguments of `lfs setstripe`.
const DEFAULT: &[&str] =
    &["-E", "64K", "-L", "mdt", "-E", "256M", "-c", "1", "-E", "16G", "-c", "4", "-E", "-1", "-c", "-1"];
/// Number of files and size of each in bytes. The last file reaches the third component.
const WORK: [(usize, usize); 3] = [(2000, 4096), (200, M as usize), (1, 512 * M as usize)];

/// Measures writes and reads with both layouts.
pub fn measure(args: &Args, cluster: &Cluster, table: &mut Table) -> io::Result<()> {
    for (files, bytes) in WORK {
        let size = if bytes as u64 >= M { format!("{} MiB", bytes as u64 / M) } else { format!("{} KiB", bytes >> 10) };
        let of = |step: &str| format!("{step} {files} of {size}, {}", cluster.plan.name);
        let seconds = pair(args, &of("write and read"), |which, round| {
            let sub = format!("default.{bytes}.{round}.{which}");
            let dir = cluster.mounts[0].join(&sub);
            fs::create_dir(&dir)?;
            cluster.setstripe(&dir, [DEFAULT, ONE][which])?;
            let wrote = workers::run(&[Job::Fill(Files::new(dir.clone(), files), bytes)])?;
            let read = workers::run(&[Job::Open(Files::new(cluster.mounts[1].join(&sub), files))])?;
            cluster.remove(&dir)?;
            Ok([wrote, read].map(|took| took.done.as_secs_f64()))
        })?;
        for (step, n) in [("write", 0), ("read", 1)] {
            let rates = [0, 1].map(|which| {
                let rate = |took: &[f64; 2]| (files * bytes) as f64 / M as f64 / took[n];
                seconds[which].iter().map(rate).collect::<Vec<f64>>()
            });
            row(
                table,
                Row {
                    work: &of(step),
                    this: "default layout",
                    that: "1 stripe",
                    unit: "MiB/s",
                    decimals: 0,
                    measured: &rates,
                    goal: "",
                },
            );
        }
    }
    Ok(())
}
