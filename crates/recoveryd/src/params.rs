//! Parameters of a recovery, with Lustre's names.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sheen_params::{Param, Params, Unit};
use sheen_wire::{Errno, Result};

use crate::{Limits, Recovery};

/// Longest limit that can be set, in seconds.
const LIMIT_SECS_MAX: u64 = 3600;

/// Registers `recovery_status`, `recovery_time_soft`, `recovery_time_hard` and `abort_recovery` in
/// the directory `dir`, such as `mdt.sheen-MDT0000`. `last_transno`: of a server that has transnos.
pub fn register<C, E>(
    recovery: &Arc<Recovery<C, E>>,
    dir: &str,
    params: &Params,
    last_transno: impl Fn() -> Option<u64> + Send + Sync + 'static,
) where
    C: Send + 'static,
    E: Clone + Send + 'static,
{
    let put = |name: &str, param| params.register(&format!("{dir}.{name}"), param);
    let weak = Arc::downgrade(recovery);
    let status = move || weak.upgrade().map(|recovery| recovery.status(last_transno())).unwrap_or_default();
    put("recovery_status", Param::text(status));
    let limit = |read: fn(Limits) -> Duration, set: fn(&Recovery<C, E>, u64)| {
        let (from, to) = (Arc::downgrade(recovery), Arc::downgrade(recovery));
        let get = move || from.upgrade().map_or(0, |recovery| read(recovery.limits()).as_secs());
        Param::u64(1..=LIMIT_SECS_MAX, get, move |secs| with(&to, |recovery| set(recovery, secs))).unit(Unit::Secs)
    };
    put("recovery_time_soft", limit(|limits| limits.soft, |recovery, secs| recovery.set_limits(Some(secs), None)));
    put("recovery_time_hard", limit(|limits| limits.hard, |recovery, secs| recovery.set_limits(None, Some(secs))));
    let (from, to) = (Arc::downgrade(recovery), Arc::downgrade(recovery));
    let is_aborted = move || from.upgrade().is_some_and(|recovery| recovery.is_aborted());
    let abort = move |on| if on { with(&to, Recovery::abort) } else { Err(Errno::EINVAL) };
    put("abort_recovery", Param::bool(is_aborted, abort));
}

fn with<C, E>(weak: &Weak<Recovery<C, E>>, f: impl FnOnce(&Recovery<C, E>)) -> Result<()> {
    weak.upgrade().map(|recovery| f(&recovery)).ok_or(Errno::ENODEV)
}

impl<C, E: Clone> Recovery<C, E> {
    /// Returns Lustre's `recovery_status`. `IR` (imperative recovery) is always enabled: the MGS
    /// reports each restart of a target to all mounts.
    fn status(&self, last_transno: Option<u64>) -> String {
        let (counts, times) = (self.window.lock().counts(), *self.times.lock());
        if counts.clients == 0 {
            return "status: INACTIVE\n".to_owned();
        }
        let (completed, clients, replayed) = (counts.completed, counts.clients, counts.replayed);
        let start = times.start.sec;
        match times.took {
            Some(took) => {
                let last = last_transno.map(|last| format!("last_transno: {last}\n")).unwrap_or_default();
                format!(
                    "status: COMPLETE\nrecovery_start: {start}\nrecovery_duration: {}\n\
                     completed_clients: {completed}/{clients}\nreplayed_requests: {replayed}\n{last}VBR: DISABLED\n\
                     IR: ENABLED\n",
                    took.as_secs()
                )
            }
            None => {
                let next = last_transno.map(|last| format!("next_transno: {}\n", last + 1)).unwrap_or_default();
                format!(
                    "status: RECOVERING\nrecovery_start: {start}\ntime_remaining: {}\n\
                     connected_clients: {}/{clients}\nreq_replay_clients: {}\nlock_repay_clients: 0\n\
                     completed_clients: {completed}\nevicted_clients: {}\nreplayed_requests: {replayed}\n\
                     queued_requests: {}\n{next}",
                    times.deadline(self.limits(), self.is_aborted()).since(self.rt.now()).as_secs(),
                    counts.connected,
                    counts.replaying,
                    counts.dropped,
                    counts.queued,
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;
    use crate::Over;

    const RECOVERING: &str = "\
status: RECOVERING
recovery_start: 1000000000
time_remaining: 90
connected_clients: 1/2
req_replay_clients: 1
lock_repay_clients: 0
completed_clients: 0
evicted_clients: 0
replayed_requests: 0
queued_requests: 1
next_transno: 8
";
    const COMPLETE: &str = "\
status: COMPLETE
recovery_start: 1000000000
recovery_duration: 12
completed_clients: 1/2
replayed_requests: 1
last_transno: 8
VBR: DISABLED
IR: ENABLED
";

    fn recovery(rt: &sheen_rt::Rt, clients: &[&str]) -> Recovery<(), Errno> {
        Recovery::new(rt, clients.iter().map(|client| (*client).to_owned()).collect(), Limits::default())
    }

    #[test]
    fn recovery_status_renders_as_in_lustre() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        sim.run(async {
            assert_eq!(recovery(&rt, &[]).status(Some(7)), "status: INACTIVE\n");
            let recovery = recovery(&rt, &["back", "missing"]);
            recovery.window.lock().replay("back", true, [(8, ())], false).unwrap();
            assert_eq!(recovery.status(Some(7)), RECOVERING);
            assert_eq!(recovery.status(None), RECOVERING.replace("next_transno: 8\n", ""));

            rt.sleep(Duration::from_secs(12)).await;
            assert_eq!(recovery.drop_clients(Over::Missing), ["missing"]);
            {
                let mut window = recovery.window.lock();
                window.replay("back", false, [], true).unwrap();
                assert_eq!(window.next_change(), Some(("back".to_owned(), 8, ())));
                window.executed("back", 8, Ok(()));
                window.finished("back").unwrap();
            }
            recovery.end();
            assert_eq!(recovery.status(Some(8)), COMPLETE);
            assert_eq!(recovery.status(None), COMPLETE.replace("last_transno: 8\n", ""));
        })
        .unwrap();
    }
}
