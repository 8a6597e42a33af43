//! Errors of tasks and time limits.

/// Why a task has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// The task was aborted, or its runtime or simulated host stopped.
    #[error("task was aborted")]
    Aborted,
    /// The task panicked. (In a simulation a panic ends the run instead.)
    #[error("task panicked")]
    Panicked,
}

/// The error of [`crate::Rt::timeout`] after its time limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("timed out")]
pub struct Elapsed;

impl From<Elapsed> for std::io::Error {
    fn from(_: Elapsed) -> Self {
        sheen_wire::Errno::ETIMEDOUT.into()
    }
}
