//! The operation that the running code works for: its id in log lines and requests.
//!
//! The id belongs to a future, not to a thread or a task: it holds while the future is polled.
//! Tasks spawned meanwhile have no id unless they [`inherit`] it, because most of them outlive the
//! operation and serve others too.

use std::time::Duration;

use sheen_wire::OpId;

/// Time from which on a request or an operation counts as slow, which the log reports.
pub const SLOW_AFTER: Duration = Duration::from_secs(10);

tokio::task_local! {
    static CURRENT: OpId;
}

/// Returns the id of the operation that the running code works for, or [`OpId::NONE`].
pub fn current() -> OpId {
    CURRENT.try_with(|op| *op).unwrap_or_default()
}

/// Runs a future as a part of operation `op`, whatever the caller works for.
pub fn within<F: Future>(op: OpId, future: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(op, future)
}

/// Runs a future as a part of the caller's operation. For tasks that the operation waits for.
pub fn inherit<F: Future>(future: F) -> impl Future<Output = F::Output> {
    within(current(), future)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Sim, SimConfig};

    #[test]
    fn operation_holds_for_its_future_and_inheriting_tasks_only() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        let (one, two) = (OpId::new(1, 1), OpId::new(1, 2));
        let seen = sim.run(async {
            let both = within(one, async {
                let plain = rt.spawn("plain", async { current() });
                let inheriting = rt.spawn("inheriting", inherit(async { current() }));
                let inner = within(two, async { current() }).await;
                (plain.await.unwrap(), inheriting.await.unwrap(), inner, current())
            });
            (both.await, current())
        });
        assert_eq!(seen.unwrap(), ((OpId::NONE, one, two, one), OpId::NONE));
    }
}
