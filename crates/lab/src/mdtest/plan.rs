//! A run of mdtest, checked: what each task needs to know.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    mdtest::{args::MdtestArgs, phase::Kind, tree::Tree},
    nodes::{Nodes, text},
};

/// Bytes of an item in a random order.
const ITEM_BYTES: u64 = 4;

/// A checked run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Directories of the test. Tasks use them in turn.
    pub dirs: Vec<PathBuf>,
    /// Mounts of the tasks.
    pub nodes: Nodes,
    /// Whether each task is bound to a processor, if there are enough.
    pub bind: bool,
    /// Number of tasks.
    pub tasks: u32,
    /// Number of iterations.
    pub iterations: u32,
    /// The tree of directories.
    pub tree: Tree,
    /// Number of items of each task.
    pub items: u64,
    /// Number of items of each task in a directory.
    pub items_per_dir: u64,
    /// Whether only the lowest directories have items.
    pub leaf_only: bool,
    /// Whether directories are tested.
    pub test_dirs: bool,
    /// Whether files are tested.
    pub test_files: bool,
    /// Whether items are created.
    pub create: bool,
    /// Whether stat is called on items.
    pub stat: bool,
    /// Whether files are read.
    pub read: bool,
    /// Whether directories are renamed.
    pub rename: bool,
    /// Whether items are removed.
    pub remove: bool,
    /// Whether each task has its own tree.
    pub unique_dir: bool,
    /// Whether the waits for other tasks count, too.
    pub time_unique_dir: bool,
    /// Number of ranks by which each phase shifts the items of a task.
    pub stride: u32,
    /// Bytes to write to each file.
    pub write_bytes: u64,
    /// Bytes to read from each file.
    pub read_bytes: u64,
    /// Whether the data that is read is checked.
    pub verify_read: bool,
    /// Whether tasks call fsync after each write.
    pub fsync: bool,
    /// Whether tasks call sync after each phase.
    pub sync: bool,
    /// Seconds until the creation of files stops; 0: never.
    pub stonewall: u64,
    /// File for the number of items.
    pub status_file: Option<PathBuf>,
    /// Seed of the order of stat and read.
    pub random: Option<u64>,
    /// Seed of the data.
    pub seed: u64,
    /// Seconds before each iteration.
    pub delay: u64,
    /// Level of detail.
    pub verbose: u8,
}

impl Plan {
    /// Checks the options.
    ///
    /// # Errors
    /// A message for the user.
    pub fn new(args: &MdtestArgs) -> Result<Plan, String> {
        if let Some(api) = args.api.as_ref().filter(|api| !api.eq_ignore_ascii_case("posix")) {
            return Err(format!("-a {api}: only POSIX is supported"));
        }
        let dirs: Vec<PathBuf> = match &args.dir {
            Some(dirs) => dirs.split('@').map(PathBuf::from).collect(),
            None => vec!["./out".into()],
        };
        let tree = Tree::new(args.branches.unwrap_or(1), args.depth.unwrap_or(0))
            .ok_or("-b and -z: the tree would have too many directories")?;
        let used_dirs = if args.leaf_only { tree.leaves() } else { tree.dirs() };
        let items_per_dir = match (args.items, args.items_per_dir) {
            (Some(_), Some(_)) => return Err("-n and -I exclude each other".into()),
            (None, Some(items)) => items,
            (items, None) => items.unwrap_or(0) / used_dirs,
        };
        // As mdtest, a run that names no phase has all phases, and one that names neither files nor
        // directories has both.
        let all = !(args.create || args.stat || args.read || args.remove || args.rename);
        let both = args.files_only == args.dirs_only;
        let plan = Plan {
            nodes: Nodes::new(&args.places.mounts, &dirs[0])?,
            dirs,
            bind: !args.places.no_bind,
            tasks: args.tasks.unwrap_or(1),
            iterations: args.iterations.unwrap_or(1),
            items: items_per_dir.checked_mul(used_dirs).ok_or("-I: too many items")?,
            tree,
            items_per_dir,
            leaf_only: args.leaf_only,
            test_dirs: args.dirs_only || both,
            test_files: args.files_only || both,
            create: args.create || all,
            stat: args.stat || all,
            read: args.read || all,
            rename: args.rename || all,
            remove: args.remove || all,
            unique_dir: args.unique_dir,
            time_unique_dir: args.time_unique_dir,
            stride: args.stride.unwrap_or(0),
            write_bytes: args.write_bytes.unwrap_or(0),
            read_bytes: args.read_bytes.unwrap_or(0),
            verify_read: args.verify_read,
            fsync: args.fsync,
            sync: args.sync,
            stonewall: args.stonewall.unwrap_or(0),
            status_file: args.status_file.clone(),
            random: args.random.then(|| args.random_seed.unwrap_or(1)),
            seed: args.seed.unwrap_or(1).unsigned_abs(),
            delay: args.delay.unwrap_or(0),
            verbose: args.verbosity.unwrap_or(args.verbose),
        };
        plan.check().map(|()| plan)
    }

    fn check(&self) -> Result<(), String> {
        let dirs = self.dirs.len();
        let wrong = [
            (self.items == 0, "no items: set -n or -I, at least one for each directory of the tree".to_owned()),
            (self.items > u64::from(u32::MAX), "too many items for each task: choose smaller -n or -I".into()),
            (self.dirs.iter().any(|dir| dir.as_os_str().is_empty()), "-d: the name of a directory is empty".into()),
            (dirs > 1 && !self.unique_dir, "-d with several directories needs -u".into()),
            (dirs > self.tasks as usize, format!("-d: {dirs} directories need as many tasks (--tasks)")),
            (dirs > 1 && self.stride > 0, "-d with several directories excludes -N".into()),
            (dirs > 1 && self.nodes.are_named(), "-d with several directories excludes --mounts".into()),
            (self.stonewall > 0 && self.tree.dirs() > 1, "-W needs a tree of one directory (-z 0)".into()),
            (self.verify_read && !self.read, "-X needs the read phase (-E)".into()),
            (self.verify_read && self.read_bytes == 0, "-X needs bytes to read (-e)".into()),
            (
                self.create && self.read && self.test_files && self.read_bytes > self.write_bytes,
                format!("-e {}: more than is written (-w {})", self.read_bytes, self.write_bytes),
            ),
        ];
        if let Some((_, message)) = wrong.into_iter().find(|(wrong, _)| *wrong) {
            return Err(message);
        }
        // The directories are UTF-8, because -d is.
        self.status_file.as_deref().map_or(Ok(()), |path| text(path).map(drop))
    }

    /// Returns the bytes of memory that all tasks need for data and the order of their items.
    pub fn memory_bytes(&self) -> u64 {
        let order = if self.random.is_some() { self.items * ITEM_BYTES } else { 0 };
        self.write_bytes.max(self.read_bytes).saturating_add(order).saturating_mul(self.tasks.into())
    }

    /// Returns the phases of an iteration, in their order.
    pub fn phases(&self) -> Vec<Kind> {
        let dirs = |on: bool, kind| (on && self.test_dirs).then_some(kind);
        let files = |on: bool, kind| (on && self.test_files).then_some(kind);
        [
            self.create.then_some(Kind::TreeCreate),
            dirs(self.create, Kind::DirCreate),
            dirs(self.stat, Kind::DirStat),
            dirs(self.rename && self.items > 1, Kind::DirRename),
            dirs(self.remove, Kind::DirRemove),
            files(self.create, Kind::FileCreate),
            files(self.stat, Kind::FileStat),
            files(self.read, Kind::FileRead),
            files(self.remove, Kind::FileRemove),
            self.remove.then_some(Kind::TreeRemove),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns the directory of the test for a task.
    pub fn dir(&self, rank: u32) -> PathBuf {
        self.nodes.path(rank, &self.dirs[rank as usize % self.dirs.len()])
    }

    /// Returns the directory of an iteration for a task.
    pub fn test_dir(&self, rank: u32, iteration: u32) -> PathBuf {
        self.dir(rank).join(format!("test-dir.{iteration}-0"))
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> u32 {
        self.nodes.count().min(self.tasks)
    }

    /// Returns the rank whose items the task `rank` uses in a phase.
    pub fn owner(&self, rank: u32, kind: Kind) -> u32 {
        let shift = u64::from(self.stride) * kind.shifts();
        ((u64::from(rank) + shift) % u64::from(self.tasks)) as u32
    }

    /// Returns the base name of the tree that contains the items of `owner`. With a tree for each
    /// task, these are in the tree of another task, as mdtest's are: another mount has made it.
    pub fn tree_name(&self, owner: u32) -> String {
        if self.unique_dir {
            let tree = (u64::from(owner) + u64::from(self.stride)) % u64::from(self.tasks);
            format!("mdtest_tree.{tree}")
        } else {
            "mdtest_tree".into()
        }
    }

    /// A small run, for tests.
    #[cfg(test)]
    pub fn example(line: &str) -> Result<Plan, String> {
        use clap::Parser;
        let words = ["mdtest", "-d", "/fs/md"].into_iter().chain(line.split_whitespace());
        Plan::new(&MdtestArgs::try_parse_from(words).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_spread_over_the_tree() {
        let plan = Plan::example("-n 100 -b 2 -z 2").unwrap();
        assert_eq!((plan.items_per_dir, plan.items), (14, 98));
        let plan = Plan::example("-n 100 -b 2 -z 2 -L").unwrap();
        assert_eq!((plan.items_per_dir, plan.items), (25, 100));
        let plan = Plan::example("-I 3 -b 2 -z 1").unwrap();
        assert_eq!((plan.items_per_dir, plan.items), (3, 9));
    }

    #[test]
    fn phases_are_those_of_mdtest() {
        let phases = |line: &str| Plan::example(line).unwrap().phases();
        assert_eq!(phases("-n 2").len(), 10);
        assert_eq!(phases("-n 2 -F -C"), [Kind::TreeCreate, Kind::FileCreate]);
        assert_eq!(phases("-n 2 -D -T"), [Kind::DirStat]);
        assert_eq!(phases("-n 2 -F -r"), [Kind::FileRemove, Kind::TreeRemove]);
    }

    #[test]
    fn stride_shifts_each_phase() {
        let plan = Plan::example("-n 2 --tasks 4 -N 1 -u").unwrap();
        let owners = [Kind::FileCreate, Kind::FileStat, Kind::FileRead, Kind::FileRemove].map(|k| plan.owner(3, k));
        assert_eq!(owners, [3, 0, 1, 2]);
        assert_eq!(plan.tree_name(3), "mdtest_tree.0");
        assert_eq!(Plan::example("-n 2 --tasks 4 -N 1").unwrap().tree_name(3), "mdtest_tree");
    }

    #[test]
    fn contradictions_are_refused_before_the_run() {
        for (line, message) in [
            ("", "no items"),
            ("-n 2 -z 3", "no items"),
            ("-n 2 -I 2", "exclude"),
            ("-n 2 -a DFS", "only POSIX"),
            ("-n 9 -b 1000000 -z 64", "too many directories"),
            ("-n 2 -d a@b", "needs -u"),
            ("-n 2 -u -d a@b", "as many tasks"),
            ("-n 2 -u -d a@b --tasks 2 --mounts /fs", "excludes --mounts"),
            ("-n 9 -W 1 -z 1", "-z 0"),
            ("-n 9 -X", "bytes to read"),
            ("-n 9 -F -X -C -e 1", "read phase"),
            ("-n 9 -e 2 -w 1", "more than is written"),
        ] {
            let refused = Plan::example(line).unwrap_err();
            assert!(refused.contains(message), "{line}: {refused}");
        }
    }
}
