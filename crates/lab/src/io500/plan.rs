//! A run of the IO500, checked: the runs of IOR and mdtest that it consists of.
//!
//! All options are those of the IO500. Each run has its own data, so that a read of leftovers
//! is found.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{
    clock,
    io500::{args::Io500Args, phase::Phase},
    ior,
    ior::args::IorArgs,
    launch, mdtest,
    mdtest::args::MdtestArgs,
    nodes::{Nodes, PlaceArgs, text},
};

/// Default of `--tasks`.
const TASKS: u32 = 2;
/// Bytes of a record of ior-hard.
const HARD_RECORD: u64 = 47_008;
/// Bytes of a file of mdtest-hard.
pub const HARD_FILE: u64 = 3901;

/// A checked run.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The directory that the run creates and removes.
    pub dir: PathBuf,
    /// The user's mounts; empty: one node.
    pub mounts: Vec<PathBuf>,
    /// Whether each task is bound to a processor, if there are enough.
    pub bind: bool,
    /// Number of tasks.
    pub tasks: u32,
    /// Seconds of each write phase.
    pub stonewall: u64,
    /// Bytes of a transfer of ior-easy.
    pub easy_transfer: u64,
    /// Maximum bytes of a task in ior-easy.
    pub easy_block: u64,
    /// Whether ior-easy has one shared file.
    pub easy_shared: bool,
    /// Maximum number of records of a task in ior-hard.
    pub segments: u64,
    /// Maximum number of files of a task.
    pub items: u64,
    /// Whether the caches of this host are dropped before each phase.
    pub drop_caches: bool,
    /// Number of runs.
    pub repetitions: u32,
    /// Signature of the data.
    pub signature: u32,
}

impl Plan {
    /// Checks the options, and those of all runs of IOR and mdtest.
    ///
    /// # Errors
    /// A message for the user.
    pub fn new(args: &Io500Args) -> Result<Plan, String> {
        let dir = match (args.dir.as_ref(), args.places.mounts.first()) {
            // A relative directory is in the first mount. `Nodes` refuses others outside of it.
            (Some(dir), Some(first)) if !dir.starts_with(first) => first.join(dir),
            (Some(dir), _) | (None, Some(dir)) => dir.clone(),
            (None, None) => return Err("-d: name a directory of the file system to measure".into()),
        };
        if text(&dir)?.contains('@') {
            return Err("-d: mdtest separates directories by @, so their names cannot contain it".into());
        }
        let plan = Plan {
            dir: dir.join(format!("io500.{}.{}", clock::seconds(), std::process::id())),
            mounts: args.places.mounts.clone(),
            bind: !args.places.no_bind,
            tasks: args.tasks.unwrap_or(TASKS),
            stonewall: args.stonewall,
            easy_transfer: args.easy_transfer,
            easy_block: args.easy_block,
            easy_shared: args.easy_shared,
            segments: args.segments,
            items: args.items,
            drop_caches: args.drop_caches,
            repetitions: args.repetitions,
            signature: clock::seconds() as u32,
        };
        for phase in Phase::ALL {
            match plan.part(phase)? {
                Part::Ior(part) => crate::machine::check_memory(part.memory_bytes() / u64::from(launch::hosts()))?,
                Part::Mdtest(part) => crate::machine::check_memory(part.memory_bytes() / u64::from(launch::hosts()))?,
                Part::Find => {}
            }
        }
        Ok(plan)
    }

    /// Returns the directory that contains all measured files.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Returns the path of the measured files for each task of `find`.
    ///
    /// # Errors
    /// A message for the user.
    pub fn find_roots(&self) -> Result<Vec<PathBuf>, String> {
        let data = self.data();
        let nodes = Nodes::new(&self.mounts, &data)?;
        Ok((0..self.tasks).map(|rank| nodes.path(rank, &data)).collect())
    }

    /// Returns the path of the file that separates the files of the easy phases from later ones.
    pub fn timestamp(&self) -> PathBuf {
        self.dir.join("timestampfile")
    }

    /// Returns the run of a tool for a phase.
    ///
    /// # Errors
    /// A message for the user.
    pub fn part(&self, phase: Phase) -> Result<Part, String> {
        let easy = matches!(
            phase,
            Phase::IorEasyWrite
                | Phase::IorEasyRead
                | Phase::MdtestEasyWrite
                | Phase::MdtestEasyStat
                | Phase::MdtestEasyDelete
        );
        Ok(match phase {
            Phase::Find => Part::Find,
            _ if phase.is_bandwidth() => {
                let args = if easy { self.ior_easy() } else { self.ior_hard() };
                Part::Ior(Box::new(ior::plan(&self.ior(args, phase.writes()))?))
            }
            _ => {
                let args = if easy { self.mdtest_easy() } else { self.mdtest_hard() };
                Part::Mdtest(Box::new(mdtest::plan(&self.mdtest(args, phase))?))
            }
        })
    }

    fn ior_easy(&self) -> IorArgs {
        IorArgs {
            file: Some(self.data().join("ior-easy/ior_file_easy")),
            transfer: Some(self.easy_transfer),
            block: Some(self.easy_block),
            file_per_process: !self.easy_shared,
            status_file: Some(self.dir.join("ior-easy.stonewall")),
            ..IorArgs::default()
        }
    }

    fn ior_hard(&self) -> IorArgs {
        IorArgs {
            file: Some(self.data().join("ior-hard/file")),
            transfer: Some(HARD_RECORD),
            block: Some(HARD_RECORD),
            segments: Some(self.segments),
            status_file: Some(self.dir.join("ior-hard.stonewall")),
            ..IorArgs::default()
        }
    }

    fn ior(&self, args: IorArgs, write: bool) -> IorArgs {
        IorArgs {
            tasks: Some(self.tasks),
            places: self.places(),
            reorder: true,
            task_offset: Some(1),
            barriers: true,
            keep: true,
            fsync: true,
            signature: Some(self.signature),
            write,
            deadline: write.then_some(self.stonewall),
            wear_out: write,
            read: !write,
            check_read: !write,
            ..args
        }
    }

    fn mdtest_easy(&self) -> MdtestArgs {
        MdtestArgs { unique_dir: true, leaf_only: true, ..self.mdtest_in("mdtest-easy") }
    }

    fn mdtest_hard(&self) -> MdtestArgs {
        let bytes = Some(HARD_FILE);
        MdtestArgs { time_unique_dir: true, write_bytes: bytes, read_bytes: bytes, ..self.mdtest_in("mdtest-hard") }
    }

    fn mdtest_in(&self, name: &str) -> MdtestArgs {
        MdtestArgs {
            dir: Some(self.data().join(name).to_string_lossy().into_owned()),
            status_file: Some(self.dir.join(format!("{name}.stonewall"))),
            ..MdtestArgs::default()
        }
    }

    fn mdtest(&self, args: MdtestArgs, phase: Phase) -> MdtestArgs {
        let write = phase.writes();
        MdtestArgs {
            tasks: Some(self.tasks),
            places: self.places(),
            items: Some(self.items),
            files_only: true,
            stride: Some(1),
            seed: Some(self.signature.into()),
            create: write,
            sync: write,
            stonewall: write.then_some(self.stonewall),
            stat: matches!(phase, Phase::MdtestEasyStat | Phase::MdtestHardStat),
            read: phase == Phase::MdtestHardRead,
            verify_read: phase == Phase::MdtestHardRead,
            remove: matches!(phase, Phase::MdtestEasyDelete | Phase::MdtestHardDelete),
            ..args
        }
    }

    fn places(&self) -> PlaceArgs {
        PlaceArgs { mounts: self.mounts.clone(), no_bind: !self.bind, rendezvous: None }
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> u32 {
        let mounts = u32::try_from(self.mounts.len()).unwrap_or(u32::MAX).max(1);
        mounts.saturating_mul(launch::hosts()).clamp(1, self.tasks)
    }
}

/// The tool of a phase, with its run.
#[derive(Clone, Debug)]
pub enum Part {
    /// IOR.
    Ior(Box<ior::Plan>),
    /// mdtest.
    Mdtest(Box<mdtest::Plan>),
    /// The parallel find.
    Find,
}

/// Returns whether a name is one that `find -name "*01*"` finds.
pub fn is_wanted(name: &Path) -> bool {
    name.as_os_str().as_encoded_bytes().windows(2).any(|pair| pair == b"01")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        use clap::Parser;
        Plan::new(&Io500Args::try_parse_from(["io500"].into_iter().chain(line.split_whitespace())).unwrap())
    }

    #[test]
    fn parameters_are_those_of_the_io500() {
        let plan = plan("-d /fs --tasks 4").unwrap();
        let ior = |phase| match plan.part(phase) {
            Ok(Part::Ior(part)) => part,
            other => panic!("{other:?}"),
        };
        let easy = ior(Phase::IorEasyWrite);
        assert_eq!(
            (easy.transfer, easy.block, easy.file_per_process, easy.wear_out),
            (2 << 20, 9_920_000 << 20, true, true)
        );
        let hard = ior(Phase::IorHardRead);
        assert_eq!((hard.transfer, hard.block, hard.segments, hard.check_read), (47_008, 47_008, 10_000_000, true));
        assert_eq!((hard.read_ranks(0), hard.deadline), (vec![1, 2, 3, 0], 0));
        let Ok(Part::Mdtest(md)) = plan.part(Phase::MdtestHardRead) else { panic!("mdtest") };
        assert_eq!(
            (md.items, md.read_bytes, md.unique_dir, md.stride, md.verify_read),
            (1_000_000, 3901, false, 1, true)
        );
        assert!(md.read && !md.create && !md.stat && !md.remove);
    }

    #[test]
    fn contradictions_are_refused_before_the_run() {
        for (line, message) in [
            ("", "-d: name a directory"),
            ("-d /a@b", "separates directories by @"),
            ("-d /fs --mounts /a,/b", "not in the first mount"),
            ("-d /fs --easy-transfer 3m --easy-block 8m", "not a multiple"),
            ("-d /fs -n 0", "no items"),
            ("-d /fs --segments 0", "at least one segment"),
        ] {
            let refused = plan(line).unwrap_err();
            assert!(refused.contains(message), "{line}: {refused}");
        }
    }

    #[test]
    fn relative_directory_is_in_the_first_mount() {
        let dir = |line: &str| plan(line).unwrap().dir.parent().unwrap().to_owned();
        assert_eq!(dir("--mounts /a,/b -d x/y"), Path::new("/a/x/y"));
        assert_eq!(dir("--mounts /a,/b -d /a/x"), Path::new("/a/x"));
        assert_eq!(dir("--mounts a,b -d a/x"), Path::new("a/x"));
        assert_eq!(dir("--mounts a,b"), Path::new("a"));
    }

    #[test]
    fn names_are_those_that_find_wants() {
        assert!(is_wanted(Path::new("file.mdtest.0.101")));
        assert!(!is_wanted(Path::new("file.mdtest.0.110")));
    }
}
