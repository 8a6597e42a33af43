//! A comparison, checked: its points, and the runs of IOR that measure them.

use std::path::{Path, PathBuf};

use serde::Serialize;
use sheen_layout::STRIPES_MAX;

use crate::{
    ior::{self, args::IorArgs},
    machines::{MACHINES, Machines, machines},
    nodes::PlaceArgs,
    overstripe::args::{Locks, OverstripeArgs},
    scratch::ScratchArgs,
    size::{human, numbers},
    user_mounts::twice,
};

/// Unit of stripe sizes in bytes.
const STRIPE_UNIT: u64 = 64 << 10;
/// Nodes of the tool's own file system, unless the user names others.
const NODES: &str = "4";
/// Most mounts of the tool's own file system.
const NODES_MAX: u64 = 64;
/// Most tasks of a run of IOR.
const TASKS_MAX: u64 = 4096;
/// Signature of the data.
const SIGNATURE: u32 = 1;
const NAME: &str = "shared";

/// The parameters of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Curve {
    /// Name of the kind of locks; `None`: as they are set.
    pub locks: Option<&'static str>,
    /// Number of nodes.
    pub nodes: u32,
    /// Bytes of a record.
    pub record: u64,
}

/// The layout of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub enum Layout {
    /// One file with this many stripes on each OST.
    Shared(u64),
    /// A file with one stripe for each process.
    Files,
}

impl Layout {
    /// Returns the name in tables.
    pub fn name(self) -> String {
        match self {
            Layout::Shared(stripes) => stripes.to_string(),
            Layout::Files => "files".into(),
        }
    }
}

/// A checked comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The user's mounts; empty: the tool sets up a file system.
    pub mounts: Vec<PathBuf>,
    /// Disks of the tool's own file system.
    pub ost_model: Option<String>,
    /// Machines of a simulation; `None`: real ones.
    pub machines: Option<Machines>,
    /// Seed of a simulation.
    pub seed: u64,
    /// OSTs of the file.
    pub osts: Vec<u32>,
    /// The curves.
    pub curves: Vec<Curve>,
    /// The kinds of locks; empty: as they are set.
    #[serde(skip)]
    pub locks: Vec<Locks>,
    /// The layouts of each curve.
    pub layouts: Vec<Layout>,
    /// Processes on each node.
    pub ppn: u32,
    /// Bytes of each node.
    pub size: u64,
    /// Whether the file is also read.
    pub read: bool,
    /// Number of rounds.
    pub repetitions: u32,
}

impl Plan {
    /// Checks the options.
    ///
    /// # Errors
    /// A message for the user.
    pub fn new(args: &OverstripeArgs) -> Result<Plan, String> {
        let ScratchArgs { scratch, ost_model } = &args.scratch;
        if !args.mounts.is_empty() && (scratch.is_some() || ost_model.is_some()) {
            return Err("--scratch and --ost-model are for a file system of the tool's own, without --mounts".into());
        }
        let values = |option: &str, text: &str, max: u64| {
            let values = numbers(text).map_err(|e| format!("{option} {text}: {e}"))?;
            match values.last().filter(|last| **last > max) {
                Some(last) => Err(format!("{option}: {last} is more than {max}")),
                None => Ok(values),
            }
        };
        let stripes = values("--stripes", &args.stripes, (STRIPES_MAX / args.osts.len().max(1)) as u64)?;
        let records = values("--records", &args.records, 1 << 30)?;
        let all = args.mounts.len() as u64;
        let nodes = match &args.nodes {
            None if all > 0 => vec![all],
            None => values("--nodes", NODES, NODES_MAX)?,
            Some(text) => values("--nodes", text, if all > 0 { all } else { NODES_MAX })?,
        };
        if let Some(twice) = twice(&args.osts) {
            return Err(format!("--osts: {twice} is named twice"));
        }
        if let Some(twice) = twice(&args.mounts) {
            return Err(format!("--mounts: {} is named twice", twice.display()));
        }
        if let Some(twice) = twice(&args.locks) {
            return Err(format!("--locks: {} is named twice", twice.name()));
        }
        let most = nodes.last().copied().unwrap_or(1) * u64::from(args.ppn);
        if most > TASKS_MAX {
            return Err(format!("--nodes and --ppn: {most} tasks are more than {TASKS_MAX}"));
        }
        for record in &records {
            if !record.is_multiple_of(STRIPE_UNIT) {
                return Err(format!("--records: {record} is not a multiple of 64k, the unit of stripes"));
            }
            if !args.size.is_multiple_of(record * u64::from(args.ppn)) || args.size == 0 {
                let [size, record] = [args.size, *record].map(human);
                let ppn = args.ppn;
                return Err(format!(
                    "--size: {size} are no whole number of records of {record} for each of {ppn} tasks"
                ));
            }
        }
        let kinds: Vec<Option<&'static str>> = match args.locks.as_slice() {
            [] => vec![None],
            kinds => kinds.iter().map(|locks| Some(locks.name())).collect(),
        };
        let mut curves = Vec::new();
        for locks in kinds {
            for &nodes in &nodes {
                curves.extend(records.iter().map(|&record| Curve { locks, nodes: nodes as u32, record }));
            }
        }
        Ok(Plan {
            mounts: args.mounts.clone(),
            ost_model: args.scratch.ost_model.clone(),
            machines: args.simulate.as_deref().map(named).transpose()?,
            seed: args.seed,
            osts: args.osts.clone(),
            curves,
            locks: args.locks.clone(),
            layouts: stripes.into_iter().map(Layout::Shared).chain([Layout::Files]).collect(),
            ppn: args.ppn,
            size: args.size,
            read: args.read,
            repetitions: if args.simulate.is_some() { 1 } else { args.repetitions },
        })
    }

    /// Checks that the buffers of the tasks of each run fit in memory.
    ///
    /// # Errors
    /// A message for the user.
    pub fn check_memory(&self) -> Result<(), String> {
        if self.machines.is_some() {
            // The disks are in memory.
            return crate::machine::check_memory(self.largest().saturating_mul(2));
        }
        let mounts = vec![PathBuf::from("/"); self.nodes() as usize];
        for &curve in &self.curves {
            let run = self.ior(&mounts, Path::new("/"), (curve, Layout::Shared(1)), Access::Check)?;
            crate::machine::check_memory(run.memory_bytes())?;
        }
        Ok(())
    }

    /// Returns the bytes of the largest file.
    pub fn largest(&self) -> u64 {
        self.size.saturating_mul(self.nodes().into())
    }

    /// Returns the number of mounts that are needed.
    pub fn nodes(&self) -> u32 {
        self.curves.iter().map(|curve| curve.nodes).max().unwrap_or(1)
    }

    /// Returns the kind of locks of a curve; `None`: as they are set.
    pub fn locks_of(&self, curve: Curve) -> Option<Locks> {
        self.locks.iter().copied().find(|locks| Some(locks.name()) == curve.locks)
    }

    /// Returns the run of IOR that writes (or reads) below `dir`, which is in the first mount.
    ///
    /// # Errors
    /// A message for the user.
    pub fn ior(
        &self,
        mounts: &[PathBuf],
        dir: &Path,
        point: (Curve, Layout),
        access: Access,
    ) -> Result<ior::Plan, String> {
        let (curve, layout) = point;
        let nodes = curve.nodes as usize;
        ior::plan(&IorArgs {
            tasks: Some(curve.nodes * self.ppn),
            places: PlaceArgs { mounts: mounts[..nodes.min(mounts.len())].to_vec(), no_bind: false, rendezvous: None },
            file: Some(dir.join(NAME)),
            transfer: Some(curve.record),
            block: Some(curve.record),
            segments: Some(self.size / curve.record / u64::from(self.ppn)),
            file_per_process: layout == Layout::Files,
            use_existing: true,
            keep: true,
            fsync: true,
            reorder: true,
            signature: Some(SIGNATURE),
            write: access == Access::Write,
            read: access != Access::Write,
            check_read: access == Access::Check,
            ..IorArgs::default()
        })
    }

    /// Returns the OSTs of the stripes of a file: `rank` is that of its writer, if it has one.
    pub fn stripe_osts(&self, layout: Layout, rank: u32) -> String {
        let osts: Vec<String> = match layout {
            Layout::Shared(stripes) => (0..stripes).flat_map(|_| self.osts.iter().map(u32::to_string)).collect(),
            Layout::Files => vec![self.osts[rank as usize % self.osts.len()].to_string()],
        };
        osts.join(",")
    }
}

/// Returns the machines of this name.
fn named(name: &str) -> Result<Machines, String> {
    let names = MACHINES.map(|machines| machines.name).join(", ");
    machines(name).ok_or_else(|| format!("--simulate: {name}: no such system; there are {names}"))
}

/// The access of a run of IOR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Write the file.
    Write,
    /// Read what the next task has written.
    Read,
    /// As a read, and compare it.
    Check,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        Plan::new(&OverstripeArgs::try_parse_from(["overstripe"].into_iter().chain(line.split_whitespace())).unwrap())
    }

    #[test]
    fn curves_have_all_combinations_and_layouts_end_with_files() {
        let plan = plan("--nodes 2-4 --records 1m,16m --locks growing,adaptive --stripes 1-4 --osts 1,3").unwrap();
        assert_eq!((plan.curves.len(), plan.nodes()), (8, 4));
        assert_eq!(plan.layouts.iter().map(|l| l.name()).collect::<Vec<_>>(), ["1", "2", "4", "files"]);
        assert_eq!(plan.stripe_osts(Layout::Shared(2), 0), "1,3,1,3");
        assert_eq!(plan.stripe_osts(Layout::Files, 3), "3");
        assert_eq!(plan.locks_of(plan.curves[7]), Some(Locks::Adaptive));
    }

    #[test]
    fn runs_of_ior_write_records_in_turn() {
        let plan = plan("--nodes 2 --ppn 2 --size 64m").unwrap();
        let mounts = ["/a".into(), "/b".into(), "/c".into()];
        let run = |layout, access| plan.ior(&mounts, Path::new("/a/work"), (plan.curves[0], layout), access).unwrap();
        let write = run(Layout::Shared(4), Access::Write);
        assert_eq!((write.tasks, write.segments, write.block), (4, 32, 1 << 20));
        assert_eq!(write.path(1, 0, 0), Path::new("/b/work/shared"));
        assert!(write.write && write.use_existing && write.fsync && write.keep && !write.read);
        let check = run(Layout::Files, Access::Check);
        assert!(check.check_read && !check.write && check.file_per_process);
        assert_eq!(check.read_ranks(0)[0], 1, "of the next node");
    }

    #[test]
    fn contradictions_are_refused_before_the_run() {
        for (line, message) in [
            ("--stripes 4096", "--stripes: 4096 is more than 2000"),
            ("--stripes 2000 --osts 0,1", "--stripes: 2000 is more than 1000"),
            ("--records 100k", "not a multiple of 64k"),
            ("--size 100k", "--size:"),
            ("--size 64m --ppn 3", "for each of 3 tasks"),
            ("--nodes 65", "--nodes: 65 is more than 64"),
            ("--nodes 64 --ppn 256 -t 64k", "16384 tasks are more than 4096"),
            ("--osts 1,0,1", "--osts: 1 is named twice"),
            ("--mounts /a,/a", "--mounts: /a is named twice"),
            ("--locks exact,exact", "--locks: exact is named twice"),
            ("--mounts /a --ost-model hdd", "without --mounts"),
            ("--mounts /a,/b --nodes 3", "--nodes: 3 is more than 2"),
            ("--simulate titan", "there are flash, l300n"),
        ] {
            let refused = plan(line).unwrap_err();
            assert!(refused.contains(message), "{line}: {refused}");
        }
    }
}
