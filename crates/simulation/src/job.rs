//! The accesses of a job, as IOR describes them: segments in which each task has one record.

use sheen_layout::{Asked, Count, Spec};

/// Kind of the locks that OSTs grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locks {
    /// As large as possible, as Lustre's.
    Growing,
    /// Only what was asked for.
    Exact,
    /// As large as possible until clients contend, and then none: Sheen's default.
    Adaptive,
}

/// Files of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Striping {
    /// One file with this many stripes on each OST, at least 1.
    Shared(u16),
    /// A file with one stripe for each task, on one OST after the other.
    Files,
}

/// A job. All tasks write, then call fsync. Tasks of a node have consecutive numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Number of nodes, at least 1.
    pub nodes: u32,
    /// Tasks of each node, at least 1.
    pub ppn: u32,
    /// Bytes of a record and of a stripe; a multiple of 64 KiB.
    pub record: u32,
    /// Records of each task, at least 1.
    pub records: u32,
    /// The files.
    pub striping: Striping,
    /// Whether all records of a task follow each other. Otherwise tasks take turns in a shared
    /// file.
    pub contiguous: bool,
    /// Kind of locks.
    pub locks: Locks,
    /// Whether each task then reads what a task of the next node has written.
    pub read: bool,
}

impl Job {
    /// Returns the number of tasks.
    pub fn tasks(&self) -> u32 {
        self.nodes.saturating_mul(self.ppn)
    }

    /// Returns the bytes of all tasks.
    pub fn bytes(&self) -> u64 {
        u64::from(self.tasks()) * u64::from(self.record) * u64::from(self.records)
    }

    /// Returns the offset of a record of a task in its file.
    pub(crate) fn offset(&self, task: u32, record: u32) -> u64 {
        let number = match self.striping {
            Striping::Files => u64::from(record),
            Striping::Shared(_) if self.contiguous => u64::from(task) * u64::from(self.records) + u64::from(record),
            Striping::Shared(_) => u64::from(record) * u64::from(self.tasks()) + u64::from(task),
        };
        number * u64::from(self.record)
    }

    /// Returns the layouts of the directories of the files, one after the other. The file of a task
    /// is in the directory of its number, modulo theirs.
    pub(crate) fn layouts(&self, osts: u32) -> Vec<Asked> {
        let spec = |osts: Vec<u32>| {
            let count = Some(Count::Stripes(osts.len() as u16));
            Asked::Plain(Spec { stripe_size: Some(self.record), count, overstripe: true, osts, ..Spec::default() })
        };
        match self.striping {
            Striping::Files => (0..osts).map(|ost| spec(vec![ost])).collect(),
            Striping::Shared(each) => vec![spec((0..each).flat_map(|_| 0..osts).collect())],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_shared_file_take_turns() {
        let shared = Job {
            nodes: 2,
            ppn: 2,
            record: 1 << 20,
            records: 3,
            striping: Striping::Shared(2),
            contiguous: false,
            locks: Locks::Growing,
            read: false,
        };
        assert_eq!((shared.tasks(), shared.bytes()), (4, 12 << 20));
        assert_eq!((shared.offset(1, 0), shared.offset(1, 2)), (1 << 20, 9 << 20));
        let apart = Job { contiguous: true, ..shared };
        assert_eq!((apart.offset(1, 0), apart.offset(1, 2)), (3 << 20, 5 << 20));
        let files = Job { striping: Striping::Files, ..shared };
        assert_eq!(files.offset(1, 2), 2 << 20);
        let osts = |job: &Job| -> Vec<Vec<u32>> {
            let spec = |asked| match asked {
                Asked::Plain(spec) => spec.osts,
                Asked::Composite(_) => Vec::new(),
            };
            job.layouts(2).into_iter().map(spec).collect()
        };
        assert_eq!(osts(&shared), [vec![0, 1, 0, 1]]);
        assert_eq!(osts(&files), [vec![0], vec![1]]);
    }
}
