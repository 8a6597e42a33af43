//! Messages between IOR's parent and its tasks.

use serde::{Deserialize, Serialize};

use crate::{ior::plan::Plan, span::Span};

/// The job of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The run.
    pub plan: Plan,
    /// Rank of the task.
    pub rank: u32,
}

/// A phase that all tasks execute at the same time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Remove the files of these ranks, if they exist.
    Remove {
        /// The repetition.
        repetition: u32,
        /// The ranks.
        ranks: Vec<u32>,
    },
    /// Write, or read.
    Transfer(Transfer),
}

/// Kind of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Access {
    /// Create the file and write it.
    Write,
    /// Read back what was written, and check it. Not timed.
    CheckWrite,
    /// Read the file, and check the data if the plan says so.
    Read,
}

impl Access {
    /// Whether the phase is measured, so that barriers and deadlines apply.
    pub fn is_timed(self) -> bool {
        self != Access::CheckWrite
    }
}

/// A phase that writes or reads the files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// Kind of the transfer.
    pub access: Access,
    /// The repetition.
    pub repetition: u32,
    /// Signature of the data.
    pub signature: u32,
    /// The rank whose data each task accesses.
    pub ranks: Vec<u32>,
    /// Maximum number of transfers of the data of each rank; 0: all.
    pub limits: Vec<u64>,
}

/// Progress of one task when the stonewall was hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Number of transfers.
    pub transfers: u64,
    /// Bytes.
    pub bytes: u64,
    /// Nanoseconds since the begin.
    pub time: u64,
}

/// Result of a transfer of one task.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Open or create.
    pub open: Span,
    /// All transfers, and the fsync of `-e`.
    pub access: Span,
    /// Close.
    pub close: Span,
    /// Bytes transferred.
    pub bytes: u64,
    /// Number of transfers.
    pub transfers: u64,
    /// Transfers whose data was wrong.
    pub errors: u64,
    /// Size of the task's file afterwards.
    pub size: u64,
}
