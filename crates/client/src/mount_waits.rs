//! How long a mount waits for servers, and what it reports meanwhile.
//!
//! Invariants:
//! * A server that may be taken over by another host gets more time than a takeover takes.
//! * A target in recovery gets the time that it says it may need.
//! * A target that moves to another address gets its time anew.
//! * An OST that does not answer delays a mount by at most [`OST_ATTEMPT`]. The same holds for the
//!   MDT's data service, which is an OST here.
//! * An MGS whose only host says that it is not there is not waited for: the address is probably
//!   wrong.
//! * Each wait is reported once, after at most some seconds.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use sheen_lnet::Nid;
use sheen_mgc::Mgc;
use sheen_rpc::{Import, Miss};
use sheen_rt::Rt;
use sheen_rt::join::join_all;
use sheen_wire::{Errno, Ost, Protocol, ost};

use crate::types::{ClientOptions, MountError, MountWait, ReportWait};

/// Time for a server that does not answer. A takeover by another host takes 11 s (crate
/// `failover`). Afterwards an attempt to connect to the dead host may take 5 s more.
const SERVER_WAIT: Duration = Duration::from_secs(30);
/// Time for an MGS whose only host says that it is not there. Longer than a restart.
const RESTART_WAIT: Duration = Duration::from_secs(2);
/// Time after which a wait for a target is reported. Most recoveries take less.
const REPORT_AFTER: Duration = Duration::from_secs(1);
/// Time for an attempt to connect to an OST that is under way when the MDT has answered. Longer
/// than TCP takes to resend a lost SYN (1 s).
const OST_ATTEMPT: Duration = Duration::from_secs(2);

/// The waits of one mount.
pub struct MountWaits {
    rt: Rt,
    report: ReportWait,
    mgs_failover: bool,
}

impl MountWaits {
    /// Creates the waits of a mount with these options.
    pub fn new(rt: &Rt, options: &ClientOptions) -> MountWaits {
        MountWaits { rt: rt.clone(), report: options.report_wait.clone(), mgs_failover: options.mgs_failover }
    }

    /// Returns the output of `ask`, a request to the MGS at `nids`.
    ///
    /// # Errors
    /// ECONNREFUSED: its only host says that it is not there. ETIMEDOUT: it does not answer.
    pub async fn mgs<T>(&self, mgc: &Mgc, nids: &[Nid], ask: impl Future<Output = T>) -> Result<T, MountError> {
        tokio::select! {
            biased;
            answer = ask => Ok(answer),
            errno = self.no_mgs(mgc, nids) => Err(unreachable("the MGS", nids, mgc.miss(), errno)),
        }
    }

    /// Resolves when the wait for the MGS is over.
    async fn no_mgs(&self, mgc: &Mgc, nids: &[Nid]) -> Errno {
        let end = self.rt.now() + SERVER_WAIT;
        if self.rt.timeout(SERVER_WAIT, mgc.missed()).await.is_err() {
            return Errno::ETIMEDOUT;
        }
        if !self.mgs_failover && is_absent(mgc) {
            self.rt.sleep(RESTART_WAIT).await;
            if is_absent(mgc) {
                return Errno::ECONNREFUSED;
            }
        }
        let limit = end.since(self.rt.now());
        if let Some(miss) = mgc.miss() {
            self.report_silence("the MGS", nids, miss, limit);
        }
        self.rt.sleep(limit).await;
        Errno::ETIMEDOUT
    }

    /// Returns the output of `ask`, requests to a target. Waits for as long as the target says that
    /// it is in recovery, and for [`SERVER_WAIT`] if it does not answer. This time begins anew when
    /// the target's addresses change.
    ///
    /// # Errors
    /// ETIMEDOUT.
    pub async fn target<P: Protocol, T>(
        &self,
        import: &Import<P>,
        ask: impl Future<Output = T>,
    ) -> Result<T, MountError> {
        let mut ask = pin!(ask);
        let (mut nids, mut end) = (import.nids(), self.rt.now() + SERVER_WAIT);
        let (mut has_reported_recovery, mut has_reported_silence) = (false, false);
        loop {
            if let Ok(answer) = self.rt.timeout(REPORT_AFTER, ask.as_mut()).await {
                return Ok(answer);
            }
            let (now, miss, present) = (self.rt.now(), import.miss(), import.nids());
            let has_moved = present != nids;
            if has_moved {
                (nids, end) = (present, now + SERVER_WAIT);
            }
            if let Some(limit) = import.recovery_left() {
                end = now + limit + SERVER_WAIT;
                if !std::mem::replace(&mut has_reported_recovery, true) {
                    (self.report)(&MountWait::Recovery { target: import.target().to_owned(), limit });
                }
            } else if has_moved {
                // The last failed attempt was at the former address.
                has_reported_silence = true;
                let target = import.target().to_owned();
                (self.report)(&MountWait::Moved { target, nids: list(&nids), limit: end.since(now) });
            } else if let Some(miss) = miss.clone()
                && !std::mem::replace(&mut has_reported_silence, true)
            {
                self.report_silence(import.target(), &nids, miss, end.since(now));
            }
            if now >= end {
                return Err(unreachable(import.target(), &nids, miss, Errno::ETIMEDOUT));
            }
        }
    }

    /// Waits for the recoveries of OSTs. Otherwise programs would wait at their first access,
    /// without a message. Waits for OSTs to which an attempt to connect is under way, and for those
    /// that this mount reaches while it waits for others. `osts`: returns the present OSTs, and the
    /// data service of the MDT.
    pub async fn osts(&self, osts: impl Fn() -> Vec<Arc<Import<Ost>>>) {
        let present = osts();
        let attempts = join_all(present.iter().map(|import| import.attempt_ended()));
        // An OST that does not answer delays no mount for longer.
        let _ = self.rt.timeout(OST_ATTEMPT, attempts).await;
        let mut awaited = BTreeSet::new();
        loop {
            let mut recovering = osts();
            recovering.retain(|import| import.recovery_left().is_some() && awaited.insert(import.target().to_owned()));
            if recovering.is_empty() {
                return;
            }
            join_all(recovering.iter().map(|import| self.recovered(import))).await;
        }
    }

    /// Waits for the end of an OST's recovery.
    async fn recovered(&self, import: &Import<Ost>) {
        // Without objects it does nothing, but it waits for the end of the recovery.
        let ended = import.request(ost::Request::Attrs { objects: Vec::new() }).patient().send();
        // After an error the OST is used like one that disconnects later.
        let _ = self.target(import, ended).await;
    }

    fn report_silence(&self, server: &str, nids: &[Nid], miss: Miss, limit: Duration) {
        let reason = without_address(miss.reason, nids);
        (self.report)(&MountWait::Server { server: server.to_owned(), nids: list(nids), reason, limit });
    }
}

fn is_absent(mgc: &Mgc) -> bool {
    mgc.miss().is_some_and(|miss| miss.is_absent)
}

fn unreachable(server: &str, nids: &[Nid], miss: Option<Miss>, errno: Errno) -> MountError {
    let reason = miss.map_or_else(|| "no answer".to_owned(), |miss| without_address(miss.reason, nids));
    MountError::Unreachable { server: server.to_owned(), nids: list(nids), reason, errno }
}

fn list(nids: &[Nid]) -> String {
    nids.iter().map(Nid::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the reason of a failed attempt without the address, if there is only one.
fn without_address(reason: String, nids: &[Nid]) -> String {
    match nids {
        [nid] => reason.strip_prefix(&format!("{nid}: ")).unwrap_or(&reason).to_owned(),
        _ => reason,
    }
}
