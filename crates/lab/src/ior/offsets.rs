//! The offsets at which a task of IOR reads or writes.
//!
//! A file has segments. In a shared file, a segment has one block for each task, in the order of
//! ranks; with a file for each task, it has one block. A block is transferred in pieces.

use crate::ior::plan::Plan;

/// Offsets of the transfers of a task, in the order of access.
#[derive(Debug)]
pub struct Offsets {
    /// Offsets within the first segment.
    first: First,
    /// Bytes of a segment.
    segment: u64,
    segments: u64,
}

#[derive(Debug)]
enum First {
    Sequential { start: u64, transfer: u64, count: u64 },
    Shuffled(Vec<u64>),
}

impl Offsets {
    /// Returns the offsets of the data of the task `rank`. With random offsets in a shared file,
    /// `seed` also assigns the transfers of a segment to the tasks.
    pub fn new(plan: &Plan, rank: u64) -> Offsets {
        let (block, transfer) = (plan.block, plan.transfer);
        let shared = !plan.file_per_process;
        let start = if shared { rank * block } else { 0 };
        let segment = if shared { u64::from(plan.tasks) * block } else { block };
        let first = match plan.random_offset {
            None => First::Sequential { start, transfer, count: block / transfer },
            Some(seed) => {
                let all = (0..segment / transfer).map(|i| i * transfer);
                let mut mine: Vec<u64> = if shared {
                    let mut draw = fastrand::Rng::with_seed(seed);
                    all.filter(|_| draw.u64(0..u64::from(plan.tasks)) == rank).collect()
                } else {
                    all.collect()
                };
                fastrand::Rng::with_seed(seed ^ (rank + 1) << 32).shuffle(&mut mine);
                First::Shuffled(mine)
            }
        };
        Offsets { first, segment, segments: plan.segments }
    }

    /// Returns the number of transfers.
    pub fn count(&self) -> u64 {
        self.per_segment() * self.segments
    }

    fn per_segment(&self) -> u64 {
        match &self.first {
            First::Sequential { count, .. } => *count,
            First::Shuffled(offsets) => offsets.len() as u64,
        }
    }

    /// Returns the offset of a transfer. After the last one, the first one follows again.
    pub fn get(&self, index: u64) -> u64 {
        let count = self.per_segment();
        let (segment, index) = (index / count % self.segments, index % count);
        segment * self.segment
            + match &self.first {
                First::Sequential { start, transfer, .. } => start + index * transfer,
                First::Shuffled(offsets) => offsets[index as usize],
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(plan: &Plan, rank: u64) -> Vec<u64> {
        let offsets = Offsets::new(plan, rank);
        (0..offsets.count()).map(|i| offsets.get(i)).collect()
    }

    fn plan(tasks: u32, segments: u64, file_per_process: bool) -> Plan {
        Plan { tasks, segments, file_per_process, block: 200, transfer: 100, ..Plan::example() }
    }

    #[test]
    fn blocks_of_tasks_alternate_in_a_shared_file() {
        assert_eq!(all(&plan(3, 2, false), 1), [200, 300, 800, 900]);
        assert_eq!(all(&plan(3, 2, true), 1), [0, 100, 200, 300]);
        assert_eq!(Offsets::new(&plan(3, 2, false), 1).get(4), 200, "after the last one, the first one follows");
    }

    #[test]
    fn random_offsets_cover_the_file_once() {
        for file_per_process in [false, true] {
            let plan = Plan { random_offset: Some(7), block: 3000, ..plan(4, 3, file_per_process) };
            let ranks = if file_per_process { 1 } else { 4 };
            let lists: Vec<Vec<u64>> = (0..ranks).map(|rank| all(&plan, rank)).collect();
            assert!(lists.iter().any(|list| !list.is_sorted()));
            let mut covered: Vec<u64> = lists.concat();
            covered.sort_unstable();
            let expected: Vec<u64> = (0..30 * 3 * ranks).map(|i| i * 100).collect();
            assert_eq!(covered, expected);
        }
    }
}
