//! The load of a job on each part of a file system: bytes, transfers, objects, handovers.

use serde::{Deserialize, Serialize};

use crate::predict::shape::Shape;

/// Bytes of a MiB.
const MIB: f64 = MI as f64;
const MI: u64 = 1 << 20;
/// Writes from this size are not buffered, in bytes: `CACHED_WRITE_BYTES_MAX` of the client.
const DIRECT: u64 = 256 << 10;
/// Most bytes of a request of the kernel.
pub const REQUEST_BYTES_MAX: u64 = MI;
/// Records of a file in which handovers are counted. More of the file repeats them.
const RECORDS_MAX: u64 = 8192;
/// Stripe units of one record in which handovers are counted.
const UNITS_MAX: u64 = 4096;

/// Kind of accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Writes, with fsync at the end.
    Write,
    /// Reads of what other nodes have written.
    Read,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::Write, Direction::Read];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Write => "write",
            Direction::Read => "read",
        }
    }
}

/// The accesses of a job, as IOR describes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// Number of tasks, at least 1.
    pub tasks: u32,
    /// Number of nodes, at least 1. Task N is on node N modulo their number.
    pub nodes: u32,
    /// Bytes of a transfer, at least 1.
    pub transfer: u64,
    /// Contiguous bytes of a task in a shared file, at least 1.
    pub block: u64,
    /// Bytes of a task.
    pub size: u64,
    /// Whether each task has a file.
    pub files: bool,
}

impl Workload {
    /// Returns the bytes of each file.
    pub fn file_bytes(&self) -> f64 {
        self.size as f64 * if self.files { 1.0 } else { f64::from(self.tasks) }
    }

    /// Returns the bytes that a task accesses without a gap.
    pub fn contiguous(&self) -> u64 {
        if self.files || self.tasks == 1 { self.size } else { record(self) }
    }
}

/// The load of a job on the parts of a file system.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// MiB of all tasks.
    pub mib: f64,
    /// MiB of transfers that a mount does not buffer.
    pub direct_mib: f64,
    /// OSTs that such a transfer writes at the same time.
    pub width: f64,
    /// Transfers of all tasks.
    pub calls: f64,
    /// Tasks.
    pub tasks: f64,
    /// Nodes.
    pub nodes: f64,
    /// Files.
    pub files: f64,
    /// Open files of all nodes. Tasks of a node that write one file take turns in its kernel.
    pub inodes: f64,
    /// Transfers that do not follow the last one of their task.
    pub jumps: f64,
    /// Part of the bytes that are on the fullest object.
    pub object_part: f64,
    /// Part of the bytes that are on the fullest OST.
    pub ost_part: f64,
    /// Changes from one node to another between neighbouring accesses of an object.
    pub handovers: f64,
    /// MiB of the accesses between two handovers, all together.
    pub handed_mib: f64,
    /// Handovers that can happen at the same time: in different objects, and of different nodes.
    pub at_once: f64,
}

impl Load {
    /// Computes the load of a job. `osts`: number of OSTs of the file system, at least 1.
    pub fn of(workload: &Workload, shape: &Shape, osts: u32) -> Load {
        let Workload { tasks, nodes, transfer, size, .. } = *workload;
        let nodes = nodes.min(tasks).max(1);
        let (bytes, of_file) = (size as f64 * f64::from(tasks), workload.file_bytes());
        let filled = filled(of_file, shape);
        let files = if workload.files { f64::from(tasks) } else { 1.0 };
        let object_part = (shape.stripe_size as f64 / of_file).max(1.0 / filled) / files;
        let own_osts = own_osts(of_file, shape, osts);
        // Unless it is known better: files begin on one OST after the other.
        let in_turn = (own_osts * files).min(f64::from(osts));
        let used = shape.all_osts.map_or(in_turn, f64::from).clamp(1.0, filled * files);
        let per_ost = (filled * files / used).ceil();
        let contiguous = workload.contiguous();
        let handovers = if workload.files || nodes == 1 { 0.0 } else { handovers(workload, shape, nodes) };
        Load {
            mib: bytes / MIB,
            direct_mib: if transfer < DIRECT { 0.0 } else { bytes / MIB },
            width: (transfer.min(REQUEST_BYTES_MAX).div_ceil(shape.stripe_size) as f64).clamp(1.0, own_osts),
            calls: bytes / transfer as f64,
            tasks: tasks.into(),
            nodes: nodes.into(),
            files,
            inodes: files.max(nodes.into()),
            jumps: bytes / contiguous.max(1) as f64,
            object_part: object_part.min(1.0),
            ost_part: (object_part * per_ost).min(1.0),
            handovers,
            handed_mib: handovers * in_object(workload, shape) as f64 / MIB,
            at_once: filled.min(nodes.into()).max(1.0),
        }
    }

    /// Returns the load of reads that are spread over this number of mirrors, at least 1, on other
    /// OSTs each. `osts`: as in [`Load::of`].
    pub fn over_mirrors(self, mirrors: f64, osts: u32) -> Load {
        let even = (1.0 / f64::from(osts.max(1))).min(self.ost_part);
        let ost_part = (self.ost_part / mirrors).max(even);
        Load { object_part: self.object_part / mirrors, ost_part, ..self }
    }
}

/// Returns the number of stripes with data. A file that is smaller than a round over its stripes
/// leaves some without. `bytes`: of the file.
pub fn filled(bytes: f64, shape: &Shape) -> f64 {
    (bytes / shape.stripe_size as f64).ceil().clamp(1.0, f64::from(shape.stripes))
}

/// Returns the number of OSTs that have data of a file of so many bytes. `osts`: of the file
/// system.
pub fn own_osts(bytes: f64, shape: &Shape, osts: u32) -> f64 {
    f64::from(shape.osts.min(osts)).min(filled(bytes, shape))
}

/// Returns the contiguous bytes of a task in a shared file. Nodes change only after them.
fn record(workload: &Workload) -> u64 {
    workload.block.max(workload.transfer).max(1)
}

/// Returns the most bytes of a record that are in one object.
fn in_object(workload: &Workload, shape: &Shape) -> u64 {
    let record = record(workload);
    let units = record.div_ceil(shape.stripe_size).div_ceil(shape.stripes.into());
    record.min(units.saturating_mul(shape.stripe_size))
}

/// Counts, in the order of offsets, how often the next record of an object is another node's.
fn handovers(workload: &Workload, shape: &Shape, nodes: u32) -> f64 {
    let Workload { tasks, size, .. } = *workload;
    let record = record(workload);
    let all = (size.saturating_mul(tasks.into()) / record).max(1);
    let counted = all.min(RECORDS_MAX);
    let mut last: Vec<Option<u32>> = vec![None; shape.stripes as usize];
    let mut changes = 0_u64;
    for number in 0..counted {
        let node = (number % u64::from(tasks)) as u32 % nodes;
        let first = number * record / shape.stripe_size;
        let units = ((number + 1) * record - 1) / shape.stripe_size - first + 1;
        for unit in first..first + units.min(UNITS_MAX.min(shape.stripes.into())) {
            let object = &mut last[(unit % u64::from(shape.stripes)) as usize];
            changes += u64::from(object.is_some_and(|before| before != node));
            *object = Some(node);
        }
    }
    changes as f64 * all as f64 / counted as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(stripes: u32, osts: u32) -> Shape {
        Shape { stripes, osts, stripe_size: MI, all_osts: None }
    }

    fn in_turn(tasks: u32, nodes: u32, transfer: u64) -> Workload {
        Workload { tasks, nodes, transfer, block: transfer, size: 64 * MI, files: false }
    }

    #[test]
    fn nodes_hand_objects_over_unless_there_are_as_many_stripes() {
        let handovers = |stripes| Load::of(&in_turn(4, 4, MI), &shape(stripes, 4), 4).handovers;
        assert_eq!(Load::of(&in_turn(4, 4, MI), &shape(1, 4), 4).handed_mib, 255.0);
        let large = Load::of(&in_turn(4, 4, 16 * MI), &shape(2, 2), 2);
        assert_eq!(large.handed_mib, large.handovers * 8.0, "half of each record");
        assert_eq!(handovers(1), 255.0, "at each record but the first");
        assert_eq!(handovers(2), 254.0, "two nodes have each object");
        assert_eq!((handovers(4), handovers(8)), (0.0, 0.0), "each object has one node");
        assert_eq!(handovers(3), 253.0, "not a multiple");
        assert_eq!(Load::of(&in_turn(4, 1, MI), &shape(1, 1), 4).handovers, 0.0, "one node");
        let small = Load::of(&in_turn(4, 4, MI / 4), &shape(4, 4), 4);
        assert_eq!(small.handovers, 1020.0, "records of several nodes in a stripe unit");
        let buffered = Load::of(&in_turn(4, 4, MI / 16), &shape(4, 4), 4);
        assert_eq!((small.direct_mib, buffered.direct_mib), (256.0, 0.0));
        let width = |stripe_size| Load::of(&in_turn(4, 4, 8 * MI), &Shape { stripe_size, ..shape(4, 2) }, 2).width;
        assert_eq!((width(MI), width(MI / 2), width(MI / 16)), (1.0, 2.0, 2.0), "a request of 1 MiB");
    }

    #[test]
    fn one_task_reads_on() {
        assert_eq!(Load::of(&in_turn(1, 1, MI), &shape(1, 1), 1).jumps, 1.0);
        assert_eq!(Load::of(&in_turn(2, 1, MI), &shape(1, 1), 1).jumps, 128.0);
    }

    #[test]
    fn large_blocks_and_files_hand_over_seldom() {
        let blocks = Workload { block: 64 * MI, ..in_turn(4, 4, MI) };
        assert_eq!(Load::of(&blocks, &shape(4, 4), 4).handovers, 3.0 * 4.0);
        let files = Workload { files: true, ..blocks };
        let load = Load::of(&files, &shape(1, 1), 4);
        assert_eq!((load.handovers, load.files, load.mib, load.direct_mib), (0.0, 4.0, 256.0, 256.0));
        assert_eq!((load.inodes, load.jumps), (4.0, 4.0));
        assert_eq!((load.object_part, load.ost_part), (0.25, 0.25), "on four OSTs");
        let named = Shape { all_osts: Some(1), ..shape(1, 1) };
        assert_eq!(Load::of(&files, &named, 4).ost_part, 1.0, "all on the named one");
    }

    #[test]
    fn mirrors_share_the_reads_as_far_as_there_are_osts() {
        let load = Load::of(&in_turn(4, 4, MI), &shape(1, 1), 3);
        let parts = |mirrors| {
            let load = load.over_mirrors(mirrors, 3);
            (load.object_part, load.ost_part)
        };
        assert_eq!(parts(1.0), (1.0, 1.0));
        assert_eq!(parts(2.0), (0.5, 0.5));
        assert_eq!(parts(4.0), (0.25, 1.0 / 3.0), "three OSTs");
    }

    #[test]
    fn objects_without_data_do_not_count() {
        let small = Workload { size: MI / 2, ..in_turn(4, 1, MI / 2) };
        let load = Load::of(&small, &shape(16, 4), 4);
        assert_eq!((load.object_part, load.ost_part), (0.5, 0.5));
        assert_eq!((load.mib, load.calls, load.jumps, load.inodes), (2.0, 4.0, 4.0, 1.0));
        let wide = Load::of(&in_turn(1, 1, MI), &shape(6, 4), 4);
        assert!((wide.ost_part - 2.0 / 6.0).abs() < 0.02, "the fullest OST has two of six: {}", wide.ost_part);
    }
}
