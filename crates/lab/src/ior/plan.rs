//! A run of IOR, checked: what each task needs to know.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    data::Packet,
    ior::args::IorArgs,
    nodes::{Nodes, text},
};

/// Bytes of an offset in memory ([`crate::ior::offsets::Offsets`]).
const OFFSET_BYTES: u64 = 8;

/// The task whose data a task reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Reorder {
    /// Its own.
    #[default]
    None,
    /// That of the task this many nodes further.
    Constant(u32),
    /// That of a random task, at least `distance` nodes further.
    Random {
        /// Minimum distance in nodes.
        distance: u32,
        /// Seed; if negative, each repetition has another one.
        seed: i64,
    },
    /// That of another task for each, in random order.
    Shuffled {
        /// Seed; if negative, each repetition has another one.
        seed: i64,
    },
}

/// A checked run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The file, as the user named it.
    pub file: PathBuf,
    /// Paths of the tasks to the file.
    pub nodes: Nodes,
    /// Whether each task is bound to a processor, if there are enough.
    pub bind: bool,
    /// Number of tasks.
    pub tasks: u32,
    /// Number of segments.
    pub segments: u64,
    /// Bytes of a block.
    pub block: u64,
    /// Bytes of a transfer.
    pub transfer: u64,
    /// Whether the file is written.
    pub write: bool,
    /// Whether the written file is read back and checked.
    pub check_write: bool,
    /// Whether the file is read.
    pub read: bool,
    /// Whether the data that is read is checked.
    pub check_read: bool,
    /// Whether each task has a file.
    pub file_per_process: bool,
    /// Whether that file has its own directory.
    pub unique_dir: bool,
    /// Whether each repetition has another file.
    pub multi_file: bool,
    /// Whether tasks call fsync after their writes.
    pub fsync: bool,
    /// Whether tasks call fsync after each write.
    pub fsync_per_write: bool,
    /// Whether there are barriers between open, transfer and close.
    pub barriers: bool,
    /// Whether files are left after the run.
    pub keep: bool,
    /// Whether files with errors are left after the run.
    pub keep_with_error: bool,
    /// Whether an existing file is written over.
    pub use_existing: bool,
    /// The task whose data a task reads.
    pub reorder: Reorder,
    /// Seed of random offsets.
    pub random_offset: Option<u64>,
    /// Kind of the data.
    pub packet: Packet,
    /// Signature of the data; `None`: the time of each repetition.
    pub signature: Option<u32>,
    /// Seconds until a phase stops; 0: never.
    pub deadline: u64,
    /// Whether all tasks then transfer as much as the fastest one.
    pub wear_out: bool,
    /// Number of transfers of each task; 0: all.
    pub iterations: u64,
    /// File for the number of transfers.
    pub status_file: Option<PathBuf>,
    /// Minimum duration of a phase in seconds.
    pub min_seconds: u64,
    /// Number of repetitions.
    pub repetitions: u32,
    /// Seconds before each phase.
    pub delay: u64,
    /// Minutes after which no repetition begins; 0: never.
    pub max_minutes: u64,
    /// Whether files are opened with O_DIRECT.
    pub direct: bool,
    /// Level of detail.
    pub verbose: u8,
    /// Number for the user's reference.
    pub reference: i64,
}

impl Plan {
    /// Checks the options.
    ///
    /// # Errors
    /// A message for the user.
    pub fn new(args: &IorArgs) -> Result<Plan, String> {
        if let Some(api) = args.api.as_ref().filter(|api| !api.eq_ignore_ascii_case("posix")) {
            return Err(format!("-a {api}: only POSIX is supported"));
        }
        let file = args.file.clone().unwrap_or_else(|| "testFile".into());
        let distance = args.task_offset.unwrap_or(1);
        let seed = args.reorder_seed.unwrap_or(0);
        let reorder = match (args.reorder, args.reorder_random) {
            (true, 1..) => return Err("-C and -Z exclude each other".into()),
            (true, 0) => Reorder::Constant(distance),
            (false, 0) => Reorder::None,
            (false, 1) => Reorder::Random { distance, seed },
            (false, _) => Reorder::Shuffled { seed },
        };
        // As IOR, a run that names no access writes and reads.
        let none = !(args.write || args.read || args.check_write || args.check_read);
        let plan = Plan {
            nodes: Nodes::new(&args.places.mounts, &file)?,
            file,
            bind: !args.places.no_bind,
            tasks: args.tasks.unwrap_or(1),
            segments: args.segments.unwrap_or(1),
            block: args.block.unwrap_or(1 << 20),
            transfer: args.transfer.unwrap_or(256 << 10),
            write: args.write || none,
            check_write: args.check_write,
            read: args.read || none,
            check_read: args.check_read,
            file_per_process: args.file_per_process,
            unique_dir: args.unique_dir,
            multi_file: args.multi_file,
            fsync: args.fsync,
            fsync_per_write: args.fsync_per_write,
            barriers: args.barriers,
            keep: args.keep,
            keep_with_error: args.keep_with_error,
            use_existing: args.use_existing,
            reorder,
            random_offset: args.random_offset.then(|| args.offset_seed.unwrap_or(1)),
            packet: args.packet.as_deref().map(Packet::parse).transpose()?.unwrap_or_default(),
            signature: args.signature,
            deadline: args.deadline.unwrap_or(0),
            wear_out: args.wear_out,
            iterations: args.iterations.unwrap_or(0),
            status_file: args.status_file.clone(),
            min_seconds: args.min_seconds.unwrap_or(0),
            repetitions: args.repetitions.unwrap_or(1),
            delay: args.delay.unwrap_or(0),
            max_minutes: args.max_minutes.unwrap_or(0),
            direct: args.direct,
            verbose: args.verbose,
            reference: args.reference.unwrap_or(0),
        };
        plan.check().map(|()| plan)
    }

    fn check(&self) -> Result<(), String> {
        let (block, transfer) = (self.block, self.transfer);
        let shared_random = self.random_offset.is_some() && !self.file_per_process;
        let checks = if self.check_read { "-R" } else { "-W" };
        let wrong = [
            (transfer == 0, format!("-t {transfer}: a transfer has at least 1 byte")),
            (
                transfer > 0 && !block.is_multiple_of(transfer),
                format!("-b {block}: not a multiple of the transfer size {transfer}"),
            ),
            (block == 0, format!("-b {block}: a block has at least one transfer")),
            (self.segments == 0, "-s 0: a file has at least one segment".into()),
            (
                self.total().is_none_or(|total| total > i64::MAX as u64),
                "the file would be larger than 8 EiB: choose smaller -b or -s".into(),
            ),
            (
                shared_random && self.reorder != Reorder::None,
                "-z excludes -C and -Z for a shared file: add -F, or leave one out".into(),
            ),
            (self.random_offset.is_some() && block == transfer, "-z needs blocks of several transfers".into()),
            (self.unique_dir && !self.file_per_process, "-u needs -F: a shared file has one directory".into()),
            (
                (self.check_read || self.check_write) && !self.write && self.signature.is_none(),
                format!("{checks} without -w needs the signature of the data: set -G when writing and reading"),
            ),
            (self.wear_out && self.deadline == 0, "stoneWallingWearOut needs a deadline (-D)".into()),
            (
                self.status_file.is_some() && self.write && !self.keep,
                "stoneWallingStatusFile needs -k: another run reads what this one writes".into(),
            ),
            (
                self.status_file.is_some() && self.write && !self.wear_out,
                "stoneWallingStatusFile needs stoneWallingWearOut=1 for writes".into(),
            ),
            (
                self.direct && !(transfer.is_multiple_of(512)),
                format!("-t {transfer}: with O_DIRECT, transfers are multiples of 512 bytes"),
            ),
        ];
        if let Some((_, message)) = wrong.into_iter().find(|(wrong, _)| *wrong) {
            return Err(message);
        }
        text(&self.file)?;
        self.status_file.as_deref().map_or(Ok(()), |path| text(path).map(drop))
    }

    /// Returns the bytes of memory that all tasks need for their data and offsets.
    pub fn memory_bytes(&self) -> u64 {
        let offsets = if self.random_offset.is_some() { self.block / self.transfer * OFFSET_BYTES } else { 0 };
        self.transfer.saturating_add(offsets).saturating_mul(self.tasks.into())
    }

    /// Returns the bytes of all tasks; `None` if the number is too large.
    fn total(&self) -> Option<u64> {
        self.block.checked_mul(self.segments)?.checked_mul(u64::from(self.tasks))
    }

    /// Returns the bytes that a phase transfers if no deadline stops it.
    pub fn bytes(&self) -> u64 {
        self.total().unwrap_or(u64::MAX)
    }

    /// Returns the ranks that have files: the shared one belongs to task 0.
    pub fn writers(&self) -> Vec<u32> {
        (0..if self.file_per_process { self.tasks } else { 1 }).collect()
    }

    /// Returns a file that exists already although the run would create it.
    pub fn existing_file(&self) -> Option<PathBuf> {
        let mut paths = self.writers().into_iter().map(|rank| self.path(rank, rank, 0));
        paths.find(|path| self.write && path.exists())
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> u32 {
        self.nodes.count().min(self.tasks)
    }

    /// Returns the path of the file of `owner`, as the task `rank` sees it, in a repetition.
    pub fn path(&self, rank: u32, owner: u32, repetition: u32) -> PathBuf {
        let mut path = self.nodes.path(rank, &self.file);
        if self.file_per_process {
            if self.unique_dir {
                path = dir_of(&path).join(owner.to_string()).join(path.file_name().unwrap_or_default());
            }
            path.as_mut_os_string().push(format!(".{owner:08}"));
        }
        if self.multi_file {
            path.as_mut_os_string().push(format!(".{repetition}"));
        }
        path
    }

    /// Returns, for each rank, the rank whose data it checks after the write. As IOR: not that of
    /// the node whose data it reads later, which would then come from its cache.
    pub fn check_ranks(&self) -> Vec<u32> {
        let distance = match self.reorder {
            Reorder::Constant(distance) => (distance % self.tasks + 1) % self.tasks,
            _ => 0,
        };
        (0..self.tasks).map(|rank| (rank + distance) % self.tasks).collect()
    }

    /// Returns, for each rank, the rank whose data it reads in a repetition.
    pub fn read_ranks(&self, repetition: u32) -> Vec<u32> {
        let tasks = self.tasks;
        let seeded = |seed: i64| {
            let seed = if seed < 0 { seed.unsigned_abs() + u64::from(repetition) } else { seed.unsigned_abs() };
            fastrand::Rng::with_seed(seed)
        };
        match self.reorder {
            Reorder::None => (0..tasks).collect(),
            // Tasks are assigned to nodes in turn, so the next rank is on the next node.
            Reorder::Constant(distance) => (0..tasks).map(|rank| (rank + distance % tasks) % tasks).collect(),
            Reorder::Random { distance, seed } => {
                let mut draw = seeded(seed);
                let least = distance.min(tasks - 1);
                (0..tasks).map(|rank| (rank + draw.u32(least..tasks)) % tasks).collect()
            }
            Reorder::Shuffled { seed } => {
                let mut ranks: Vec<u32> = (0..tasks).collect();
                seeded(seed).shuffle(&mut ranks);
                ranks
            }
        }
    }

    /// A small run, for tests.
    #[cfg(test)]
    pub fn example() -> Plan {
        Plan::new(&IorArgs { file: Some("/fs/file".into()), ..IorArgs::default() }).unwrap()
    }
}

/// Returns the directory of a file.
pub fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        Plan::new(&IorArgs::try_parse_from(["ior"].into_iter().chain(line.split_whitespace())).unwrap())
    }

    #[test]
    fn defaults_are_those_of_ior() {
        let plan = plan("").unwrap();
        assert_eq!((plan.block, plan.transfer, plan.segments, plan.tasks), (1 << 20, 256 << 10, 1, 1));
        assert!(plan.write && plan.read && !plan.check_read && !plan.fsync);
        assert_eq!(plan.path(0, 0, 0), Path::new("testFile"));
    }

    #[test]
    fn contradictions_are_refused_before_the_run() {
        for (line, message) in [
            ("-a MPIIO", "only POSIX"),
            ("-t 3 -b 8", "not a multiple"),
            ("-t 0", "at least 1 byte"),
            ("-b 0", "at least one transfer"),
            ("-s 0", "at least one segment"),
            ("-b 8191t -s 8191t", "larger than 8 EiB"),
            ("-C -Z", "exclude each other"),
            ("-z -C -w -r", "excludes"),
            ("-z -t 1m -b 1m", "several transfers"),
            ("-u", "needs -F"),
            ("-r -R", "-R without -w"),
            ("-W", "-W without -w"),
            ("--wear-out", "deadline"),
            ("-w --status-file s", "needs -k"),
            ("-l x", "expected timestamp"),
            ("--posix.odirect -t 1000 -b 1000", "multiples of 512"),
        ] {
            let refused = plan(line).unwrap_err();
            assert!(refused.contains(message), "{line}: {refused}");
        }
    }

    #[test]
    fn tasks_have_paths_on_their_mounts() {
        let shared = plan("-N 4 --mounts /a,/b -o /a/x/file").unwrap();
        assert_eq!((shared.path(2, 3, 0), shared.path(3, 2, 0)), ("/a/x/file".into(), "/b/x/file".into()));
        let own = plan("-N 4 --mounts /a,/b -o file -F -u -m").unwrap();
        assert_eq!(own.path(1, 2, 5), Path::new("/b/2/file.00000002.5"));
        assert!(plan("--mounts /a,/b -o /c/file").unwrap_err().contains("not in the first mount"));
    }

    #[test]
    fn reordering_reads_data_of_other_tasks() {
        let ranks = |line: &str| plan(&format!("-N 4 -F {line}")).unwrap().read_ranks(0);
        assert_eq!(ranks(""), [0, 1, 2, 3]);
        assert_eq!(ranks("-C"), [1, 2, 3, 0]);
        assert_eq!(ranks("-C -Q 2"), [2, 3, 0, 1]);
        assert!(ranks("-Z -X 9").iter().enumerate().all(|(rank, of)| rank as u32 != *of));
        let mut shuffled = ranks("-Z -Z -X 9");
        shuffled.sort_unstable();
        assert_eq!(shuffled, [0, 1, 2, 3]);
        let checked = |line: &str| plan(&format!("-N 4 -F {line}")).unwrap().check_ranks();
        assert_eq!([checked("-C"), checked("-C -Q 3")], [[2, 3, 0, 1], [0, 1, 2, 3]]);
        assert_eq!([checked(""), checked("-Z -X 9")], [[0, 1, 2, 3]; 2]);
        let plan = plan("-N 64 -Z -Z -X=-9").unwrap();
        assert_ne!(plan.read_ranks(0), plan.read_ranks(1), "a negative seed");
    }
}
