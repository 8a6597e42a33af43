//! The operation that the running code works for: its id in log lines and requests, and its job in
//! requests and statistics.
//!
//! An operation belongs to a future, not to a thread or a task: it holds while the future is
//! polled. Tasks spawned meanwhile have none unless they [`inherit`] it, because most of them
//! outlive the operation and serve others too.

use std::time::Duration;

use sheen_wire::{JobId, OpId};

/// Time from which on a request or an operation counts as slow, which the log reports.
pub const SLOW_AFTER: Duration = Duration::from_secs(10);

/// An operation of a client, or work for a job that no single operation caused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operation {
    /// Its id.
    pub id: OpId,
    /// The job of the program that waits for it.
    pub job: JobId,
}

impl Operation {
    /// Creates an operation that belongs to no job.
    pub const fn without_job(id: OpId) -> Operation {
        Operation { id, job: JobId::NONE }
    }
}

impl From<JobId> for Operation {
    fn from(job: JobId) -> Operation {
        Operation { id: OpId::NONE, job }
    }
}

tokio::task_local! {
    static CURRENT: Operation;
}

fn operation() -> Operation {
    CURRENT.try_with(|operation| *operation).unwrap_or_default()
}

/// Returns the id of the operation that the running code works for, or [`OpId::NONE`].
pub fn current() -> OpId {
    operation().id
}

/// Returns the job that the running code works for, or [`JobId::NONE`].
pub fn job() -> JobId {
    operation().job
}

/// Runs a future as a part of an operation, whatever the caller works for.
pub fn within<F: Future>(operation: impl Into<Operation>, future: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(operation.into(), future)
}

/// Runs a future as a part of the caller's operation. For tasks that the operation waits for.
pub fn inherit<F: Future>(future: F) -> impl Future<Output = F::Output> {
    within(operation(), future)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Sim, SimConfig};

    #[test]
    fn operation_holds_for_its_future_and_inheriting_tasks_only() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        let one = Operation { id: OpId::new(1, 1), job: JobId::new(b"a") };
        let (two, of_job) = (OpId::new(1, 2), JobId::new(b"b"));
        let here = || (current(), job());
        let seen = sim.run(async {
            let both = within(one, async {
                let plain = rt.spawn("plain", async move { here() });
                let inheriting = rt.spawn("inheriting", inherit(async move { here() }));
                let inner = (
                    within(Operation::without_job(two), async { here() }).await,
                    within(of_job, async { here() }).await,
                );
                (plain.await.unwrap(), inheriting.await.unwrap(), inner, here())
            });
            (both.await, here())
        });
        let (none, one) = ((OpId::NONE, JobId::NONE), (one.id, one.job));
        let inner = ((two, JobId::NONE), (OpId::NONE, of_job));
        assert_eq!(seen.unwrap(), ((none, one, inner, one), none));
    }
}
