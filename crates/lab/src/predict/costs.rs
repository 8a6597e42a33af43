//! The costs of the parts of a file system, and the rate of a job that follows from them.
//!
//! Each part needs some seconds for the job. If the parts worked one after the other, the job would
//! take the sum of them; if they worked at the same time, as long as the slowest. [`BLEND`] is in
//! between: the sum of powers. The slowest part is named as the limit.
//!
//! Some times are added in full, because nothing goes on meanwhile: opens and closes, and transfers
//! for which no data was read ahead.

use serde::{Deserialize, Serialize};

use crate::predict::load::Load;

/// Exponent of the sum: 1 adds the times, infinity takes the longest. Chosen by measurement.
const BLEND: f64 = 2.0;

/// Number of costs.
pub const COSTS: usize = 14;

/// Seconds of each part. A part that never limits a job costs next to nothing.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Costs {
    /// A task: for a transfer.
    pub task_call: f64,
    /// A task: for a MiB.
    pub task_mib: f64,
    /// A mount: for a MiB.
    pub node_mib: f64,
    /// A file that is open on a mount: for a transfer.
    pub inode_call: f64,
    /// A file that is open on a mount: for a MiB of small transfers.
    pub inode_mib: f64,
    /// A file that is open on a mount: for a MiB of transfers that are not buffered. Such a write
    /// waits for its OSTs, and the next one of the file for it.
    pub inode_direct_mib: f64,
    /// Processors and network, which all share: for a transfer that does not follow the last one.
    pub jump: f64,
    /// Processors and network, which all share: for a transfer.
    pub shared_call: f64,
    /// Processors and network, which all share: for a MiB.
    pub shared_mib: f64,
    /// An object: for a MiB.
    pub object_mib: f64,
    /// An OST: for a MiB.
    pub ost_mib: f64,
    /// The locks of an object: for each change from one node to another.
    pub handover: f64,
    /// The locks of an object: for each MiB that was written under a lock before it changes.
    pub handover_mib: f64,
    /// A file: open, fsync and close.
    pub file: f64,
}

/// A part of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The tasks.
    Tasks,
    /// The mounts.
    Nodes,
    /// Files that are open on mounts.
    Inodes,
    /// Transfers that do not follow the last one.
    Jumps,
    /// Processors and network, which all share.
    Shared,
    /// The fullest object.
    Objects,
    /// The fullest OST.
    Osts,
    /// The locks of objects that several nodes write in turn.
    Locks,
    /// Opens and closes of files.
    Files,
}

impl Part {
    /// Returns the name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Part::Tasks => "the tasks",
            Part::Nodes => "the mounts",
            Part::Inodes => "turns of a node's tasks in one file",
            Part::Jumps => "transfers that do not follow each other",
            Part::Shared => "the processors or the network",
            Part::Objects => "the object",
            Part::Osts => "the OST",
            Part::Locks => "locks that change between nodes",
            Part::Files => "opens and closes of files",
        }
    }
}

/// A predicted rate.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Prediction {
    /// MiB/s.
    pub rate: f64,
    /// The part that limits it.
    pub limit: Part,
}

impl Costs {
    /// Costs to begin a fit with: those of a machine of 2026 with files in memory.
    pub const TYPICAL: Costs = Costs {
        task_call: 1e-5,
        task_mib: 7e-4,
        node_mib: 7e-4,
        inode_call: 1e-6,
        inode_mib: 7e-4,
        inode_direct_mib: 7e-4,
        jump: 1e-6,
        shared_call: 1e-6,
        shared_mib: 7e-4,
        object_mib: 5e-4,
        ost_mib: 3e-4,
        handover: 1e-4,
        handover_mib: 1e-5,
        file: 1e-3,
    };

    /// Returns the costs as a list.
    pub fn to_array(self) -> [f64; COSTS] {
        [
            self.task_call,
            self.task_mib,
            self.node_mib,
            self.inode_call,
            self.inode_mib,
            self.inode_direct_mib,
            self.jump,
            self.shared_call,
            self.shared_mib,
            self.object_mib,
            self.ost_mib,
            self.handover,
            self.handover_mib,
            self.file,
        ]
    }

    /// Returns the costs of a list.
    pub fn from_array(values: [f64; COSTS]) -> Costs {
        let [task_call, task_mib, node_mib, inode_call, inode_mib, inode_direct_mib, jump, ..] = values;
        let [.., shared_call, shared_mib, object_mib, ost_mib, handover, handover_mib, file] = values;
        Costs {
            task_call,
            task_mib,
            node_mib,
            inode_call,
            inode_mib,
            inode_direct_mib,
            jump,
            shared_call,
            shared_mib,
            object_mib,
            ost_mib,
            handover,
            handover_mib,
            file,
        }
    }

    /// Returns the seconds of the parts that work at the same time.
    fn parts(&self, load: &Load) -> [(Part, f64); 6] {
        let Load { mib, calls, direct_mib, width, .. } = *load;
        let inodes = (mib - direct_mib) * self.inode_mib + direct_mib * self.inode_direct_mib / width;
        let object = (Part::Objects, mib * load.object_part * self.object_mib);
        let ost = (Part::Osts, mib * load.ost_part * self.ost_mib);
        [
            (Part::Tasks, (calls * self.task_call + mib * self.task_mib) / load.tasks),
            (Part::Nodes, mib * self.node_mib / load.nodes),
            (Part::Inodes, (calls * self.inode_call + inodes) / load.inodes),
            (Part::Shared, calls * self.shared_call + mib * self.shared_mib),
            // Enough objects reach the full rate of their OST.
            if object.1 > ost.1 { object } else { ost },
            (Part::Locks, (load.handovers * self.handover + load.handed_mib * self.handover_mib) / load.at_once),
        ]
    }

    /// Returns the rate of a job.
    pub fn predict(&self, load: &Load) -> Prediction {
        let parts = self.parts(load);
        let alone = [(Part::Jumps, load.jumps * self.jump), (Part::Files, load.files * self.file)];
        let all = parts.iter().chain(&alone);
        let limit = all.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(Part::Shared, |(part, _)| *part);
        let seconds = parts.iter().map(|(_, seconds)| seconds.powf(BLEND)).sum::<f64>().powf(1.0 / BLEND);
        Prediction { rate: load.mib / (seconds + alone[0].1 + alone[1].1), limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowest_part_limits_the_rate() {
        let load = Load {
            mib: 100.0,
            direct_mib: 0.0,
            width: 1.0,
            calls: 100.0,
            tasks: 2.0,
            nodes: 1.0,
            files: 1.0,
            inodes: 1.0,
            jumps: 2.0,
            object_part: 1.0,
            ost_part: 1.0,
            handovers: 0.0,
            handed_mib: 0.0,
            at_once: 1.0,
        };
        let fast = Costs { ost_mib: 1e-2, ..Costs::TYPICAL };
        let Prediction { rate, limit } = fast.predict(&load);
        assert_eq!(limit, Part::Osts);
        assert!((90.0..100.0).contains(&rate), "{rate}");
        let shared = Costs { handover: 0.1, ..fast };
        assert_eq!(shared.predict(&Load { handovers: 99.0, ..load }).limit, Part::Locks);
        assert_eq!(Costs::from_array(fast.to_array()), fast);
    }
}
