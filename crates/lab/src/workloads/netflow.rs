//! The netflow analysis of generated flow records. Phase 1 indexes them in one pass over the file,
//! with large sequential reads. Phase 2 reads each record by itself, host by host, and computes a
//! model of each host, with tiny random reads.
//!
//! *Synchronous*: each mount has one task with a fixed share of the file and of the records.
//! *Asynchronous*: each mount has [`READERS`] tasks. Whenever a task is ready, it takes the next
//! segment of [`SEGMENT`] bytes or the next host. (The paper has 128 tasks on 16 nodes either way.)
//! The time of a phase includes the computing between the reads. The models are compared with those
//! of the generated records.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use crate::{
    stop,
    workloads::{
        args::NETFLOW_BYTES,
        outcome::Quantity,
        patterns::Experiment,
        records::{Extent, Index, Model, RECORD_MAX, first_record, generate},
        setup::Setup,
    },
};

const READERS: usize = 4;
/// Size in bytes of a sequential read.
const SEGMENT: u64 = 1 << 20;
const VARIATIONS: [&str; 2] = ["synchronous", "asynchronous"];
const PHASES: [&str; 2] = ["sequential reads", "small random reads"];
const MIB: f64 = 1_048_576.0;

type Models = BTreeMap<u32, Model>;

/// Hosts with their records, which are read one by one.
type Hosts = Vec<(u32, Vec<Extent>)>;

/// Measures experiments with the netflow analysis.
///
/// # Errors
/// Of the file system, or an interruption by the user.
pub fn measure(setup: &mut Setup<'_>, experiments: &[&'static Experiment]) -> io::Result<()> {
    let factor = setup.args.netflow_factor;
    let text = generate((NETFLOW_BYTES / factor) as usize);
    let mut index = Index::default();
    index.add(&text, 0, 0, text.len());
    let expected = model(&text, &index.hosts());
    setup.outcome.begin(
        format!(
            "Netflow analysis: {} records in {:.0} MiB, 1/{factor} of the paper's, on {} mounts",
            index.records(),
            text.len() as f64 / MIB,
            setup.system.mounts.len()
        ),
        experiments,
    );
    setup.rounds(experiments, |setup, experiment| {
        let run = Run { setup, text: &text, expected: &expected };
        let path = run.write(experiment)?;
        let mut rates = Vec::new();
        for variation in VARIATIONS {
            run.setup.session.begin(variation);
            rates.push(run.analyse(experiment, variation == VARIATIONS[1])?);
            run.setup.session.end(|| {});
        }
        run.setup.system.remove(&path)?;
        for (variation, rates) in VARIATIONS.into_iter().zip(rates) {
            for (name, rate) in PHASES.into_iter().zip(rates) {
                setup.outcome.add(experiment, Quantity { name, unit: "MiB/s", variation }, rate);
            }
        }
        Ok(())
    })
}

/// Computes the models of hosts whose records are in memory.
fn model(text: &[u8], hosts: &Hosts) -> Models {
    let mut models = Models::new();
    for (host, extents) in hosts {
        let model = models.entry(*host).or_default();
        for extent in extents {
            model.learn(*host, &text[extent.offset as usize..][..extent.len as usize]);
        }
    }
    models
}

struct Run<'a, 's> {
    setup: &'a Setup<'s>,
    text: &'a [u8],
    expected: &'a Models,
}

impl Run<'_, '_> {
    /// Creates the file.
    fn write(&self, experiment: &Experiment) -> io::Result<std::path::PathBuf> {
        let factors = self.setup.factors(self.setup.args.netflow_factor, 1);
        let path = self.setup.system.dirs[0].join(experiment.name);
        self.setup.stripe(&path, experiment, factors)?;
        fs::write(&path, self.text)?;
        File::open(&path)?.sync_all()?;
        self.setup.check(&path, experiment, factors)?;
        Ok(path)
    }

    /// Runs both phases, each with empty caches. Returns their rates.
    fn analyse(&self, experiment: &Experiment, queued: bool) -> io::Result<[f64; 2]> {
        let size = self.text.len() as u64;
        self.setup.system.empty_caches()?;
        let (took, index) = self.first(experiment.name, size, queued)?;
        let first = size as f64 / MIB / took.as_secs_f64();
        self.setup.system.empty_caches()?;
        let (took, parts) = self.second(experiment.name, &index.hosts(), queued)?;
        stop::check()?;
        let mut models = Models::new();
        for (host, part) in parts.iter().flatten() {
            models.entry(*host).or_default().merge(part);
        }
        if models != *self.expected {
            return Err(io::Error::other(format!("{}: the models differ from those of the records", experiment.name)));
        }
        Ok([first, index.bytes() as f64 / MIB / took.as_secs_f64()])
    }

    /// Phase 1: computes the index.
    fn first(&self, name: &str, size: u64, queued: bool) -> io::Result<(Duration, Index)> {
        let segments: Vec<(u64, u64)> =
            (0..size).step_by(SEGMENT as usize).map(|start| (start, (start + SEGMENT).min(size))).collect();
        let (took, parts) = self.tasks(name, segments.len(), queued, |file, pieces| {
            let mut index = Index::default();
            while let Some(next) = pieces.next() {
                segment(file, segments[next], size, &mut index)?;
            }
            Ok(index)
        })?;
        let mut index = Index::default();
        parts.into_iter().for_each(|part| index.merge(part));
        Ok((took, index))
    }

    /// Phase 2: computes the models.
    fn second(&self, name: &str, hosts: &Hosts, queued: bool) -> io::Result<(Duration, Vec<Models>)> {
        // The pieces of work: all records of a host, or single records if shares are fixed and must
        // have equal size.
        let works: Vec<(u32, &[Extent])> = match queued {
            true => hosts.iter().map(|(host, extents)| (*host, &extents[..])).collect(),
            false => hosts.iter().flat_map(|(host, extents)| extents.chunks(1).map(|one| (*host, one))).collect(),
        };
        self.tasks(name, works.len(), queued, |file, pieces| {
            let (mut models, mut line) = (Models::new(), vec![0; RECORD_MAX]);
            while let Some(next) = pieces.next() {
                let (host, extents) = works[next];
                let model = models.entry(host).or_default();
                for extent in extents {
                    let line = &mut line[..extent.len as usize];
                    file.read_exact_at(line, extent.offset)?;
                    if !model.learn(host, line) {
                        return Err(io::Error::other(format!("no record of host {host} at {}", extent.offset)));
                    }
                }
            }
            Ok(models)
        })
    }

    /// Runs all tasks on `works` pieces of work. Each task uses the file on its mount.
    fn tasks<T: Send>(
        &self,
        name: &str,
        works: usize,
        queued: bool,
        act: impl Fn(&File, &mut Pieces<'_>) -> io::Result<T> + Sync,
    ) -> io::Result<(Duration, Vec<T>)> {
        let dirs = &self.setup.system.dirs;
        let tasks = dirs.len() * if queued { READERS } else { 1 };
        let files = dirs.iter().map(|dir| File::open(dir.join(name))).collect::<io::Result<Vec<File>>>()?;
        let queue = AtomicUsize::new(0);
        let start = Instant::now();
        let parts = thread::scope(|scope| {
            let begin = |task: usize| {
                let (file, act, queue) = (&files[task % files.len()], &act, &queue);
                let mut pieces = match queued {
                    true => Pieces::Queue(queue, works),
                    false => Pieces::Share(task * works / tasks, (task + 1) * works / tasks),
                };
                scope.spawn(move || act(file, &mut pieces))
            };
            let threads: Vec<_> = (0..tasks).map(begin).collect();
            let joined = |thread: thread::ScopedJoinHandle<'_, io::Result<T>>| {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a task has panicked")))
            };
            threads.into_iter().map(joined).collect::<io::Result<Vec<T>>>()
        })?;
        Ok((start.elapsed(), parts))
    }
}

/// The pieces of work of a task, by number.
enum Pieces<'a> {
    /// A fixed share: from the first number, up to but not including the second.
    Share(usize, usize),
    /// The next number that no task has taken yet, below a limit.
    Queue(&'a AtomicUsize, usize),
}

impl Pieces<'_> {
    fn next(&mut self) -> Option<usize> {
        if stop::check().is_err() {
            return None;
        }
        match self {
            Pieces::Share(next, end) => {
                *next += 1;
                (*next <= *end).then_some(*next - 1)
            }
            Pieces::Queue(next, end) => Some(next.fetch_add(1, Relaxed)).filter(|n| n < end),
        }
    }
}

/// Reads a segment with some bytes on both sides, and indexes the records that begin in it.
fn segment(file: &File, (start, end): (u64, u64), size: u64, index: &mut Index) -> io::Result<()> {
    let from = start.saturating_sub(1);
    let upto = (end + RECORD_MAX as u64).min(size);
    let mut text = vec![0; (upto - from) as usize];
    file.read_exact_at(&mut text, from)?;
    let skip = if start == 0 { 0 } else { first_record(&text) };
    index.add(&text, from, skip, (end - from) as usize);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn segments_of_a_file_index_each_record_for_its_host() {
        let text = generate(300_000);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&text).unwrap();
        let (size, mut index, mut whole) = (text.len() as u64, Index::default(), Index::default());
        for start in (0..size).step_by(70_000) {
            segment(&file, (start, (start + 70_000).min(size)), size, &mut index).unwrap();
        }
        whole.add(&text, 0, 0, text.len());
        assert_eq!(index.hosts(), whole.hosts());
        let models = model(&text, &index.hosts());
        let flows: u64 = models.values().flat_map(|m| m.flows).sum();
        assert_eq!(flows, index.records() as u64);
    }

    #[test]
    fn each_piece_of_work_is_taken_once() {
        let queue = AtomicUsize::new(0);
        let all = |mut pieces: Vec<Pieces<'_>>| {
            let mut done: Vec<usize> = Vec::new();
            pieces.iter_mut().for_each(|m| done.extend(std::iter::from_fn(|| m.next())));
            done
        };
        assert_eq!(all(vec![Pieces::Queue(&queue, 3), Pieces::Queue(&queue, 3)]), [0, 1, 2]);
        assert_eq!(all(vec![Pieces::Share(0, 2), Pieces::Share(2, 2), Pieces::Share(2, 3)]), [0, 1, 2]);
    }
}
