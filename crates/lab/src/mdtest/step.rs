//! Messages between mdtest's parent and its tasks.

use serde::{Deserialize, Serialize};

use crate::{
    mdtest::{phase::Kind, plan::Plan},
    span::Span,
};

/// The job of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The run.
    pub plan: Plan,
    /// Rank of the task.
    pub rank: u32,
}

/// A phase that all tasks execute at the same time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Kind of the phase.
    pub kind: Kind,
    /// The iteration.
    pub iteration: u32,
    /// Number of items of each task.
    pub items: u64,
}

/// Items that a task has created when the stonewall was hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Number of items.
    pub items: u64,
    /// Nanoseconds since the begin.
    pub time: u64,
}

/// Result of a phase of one task.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Begin and end.
    pub span: Span,
    /// Number of items.
    pub items: u64,
    /// Files whose data was wrong.
    pub errors: u64,
}
