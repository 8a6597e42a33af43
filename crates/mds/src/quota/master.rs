//! The quota master: tells the OSTs which ids have limits of space, and answers what they want.
//!
//! An allowance is chosen and sent with the lock `allowing` of the OST held. Allowances are taken
//! back from other OSTs before that, because two OSTs could wait for each other otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sheen_rpc::RequestError;
use sheen_wire::ost::QuotaWant;
use sheen_wire::quota::Id;
use tracing::debug;

use super::rules::{IDS_AT_ONCE, RETRY, all, rules};
use crate::mdt::Mdt;
use crate::state::osp::{Osp, OspNeeds};
use crate::state::quota::{Allowed, Scope};

/// Maximum ids of one request.
const IDS_MAX: usize = 16 * IDS_AT_ONCE;
/// Time that an OST may take to set allowances.
const ALLOW_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that an OST may take to return allowances. A write waits at another OST meanwhile, for at
/// most 5 s.
const RETURN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after the start in which wants wait until all OSTs have reported their use.
const SETTLE: Duration = Duration::from_secs(2);
/// Time after a refusal in which the next one does not ask the other OSTs.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// Pause before the use of ids near their limits is requested, so that many are requested at once.
const REFRESH_PAUSE: Duration = Duration::from_secs(1);

/// Serves one OST: tells it the limits, and then answers what it wants.
pub(super) async fn run(mdt: &Arc<Mdt>, osp: &Arc<Osp>) {
    loop {
        osp.when_connected().await;
        tokio::select! {
            biased;
            () = osp.quota.again.notified() => continue,
            error = serve(mdt, osp) => {
                debug!("{}: {error}: limits of space are not divided on {} until it answers", mdt.name, osp.target);
            }
        }
        mdt.rt.sleep(RETRY).await;
    }
}

/// Serves an OST until a request fails.
async fn serve(mdt: &Arc<Mdt>, osp: &Arc<Osp>) -> RequestError {
    if let Err(error) = tell_all(mdt, osp).await {
        return error;
    }
    loop {
        let OspNeeds { unowned, wants, damaged } = match osp.quota_needs().await {
            Ok(needs) => needs,
            Err(error) => return error,
        };
        if unowned.is_empty() && wants.is_empty() && damaged.is_empty() {
            mdt.rt.sleep(RETRY).await; // such an answer has no reason
        }
        osp.quota.add(unowned);
        osp.repairs.add(damaged);
        if let Err(error) = answer(mdt, osp, &wants).await {
            return error;
        }
    }
}

async fn allow(mdt: &Mdt, osp: &Osp, ids: Vec<(Id, Option<u64>)>, all: bool) -> Result<Vec<u64>, RequestError> {
    let sent = mdt.rt.timeout(ALLOW_TIMEOUT, osp.quota_allow(ids, all)).await;
    sent.unwrap_or_else(|_| Err(osp.no_reply("quota_allow", ALLOW_TIMEOUT)))
}

/// Tells an OST all limits that apply there. It returns all allowances.
async fn tell_all(mdt: &Mdt, osp: &Osp) -> Result<(), RequestError> {
    let _order = osp.quota.allowing.lock().await;
    let mut limited = mdt.core.lock().ns.limited_ids();
    mdt.read_rules(&limited);
    mdt.quotas.divide(|division| limited.retain(|id| division.is_limited(*id, osp.index)));
    let (first, others) = limited.split_at(limited.len().min(IDS_MAX));
    for (at, some) in std::iter::once(first).chain(others.chunks(IDS_MAX)).enumerate() {
        let used = allow(mdt, osp, some.iter().map(|id| (*id, Some(0))).collect(), at == 0).await?;
        mdt.quotas.divide(|division| {
            some.iter().zip(used).for_each(|(id, used)| division.reported(*id, osp.index, used));
        });
    }
    let sent: BTreeSet<Id> = limited.into_iter().collect();
    mdt.quotas.divide(|division| division.retain(osp.index, &sent));
    osp.quota.has_reported.store(true, Relaxed);
    mdt.quotas.reported.notify_waiters();
    Ok(())
}

/// Tells an OST which of these ids have limits there. It returns their allowances.
pub(super) async fn tell(mdt: &Mdt, osp: &Osp, ids: &[Id]) -> Result<(), RequestError> {
    let _order = osp.quota.allowing.lock().await;
    for some in ids.chunks(IDS_MAX) {
        mdt.read_rules(some);
        let limits: Vec<(Id, Option<u64>)> = mdt
            .quotas
            .divide(|division| some.iter().map(|id| (*id, division.is_limited(*id, osp.index).then_some(0))).collect());
        let used = allow(mdt, osp, limits.clone(), false).await?;
        mdt.quotas.divide(|division| {
            for ((id, limit), used) in limits.into_iter().zip(used) {
                match limit {
                    Some(_) => division.returned(id, osp.index, used),
                    None => division.released(id, osp.index),
                }
            }
        });
    }
    Ok(())
}

/// Makes an OST return the allowances of those ids that have a limit there. If it does not answer,
/// the division does not change.
async fn take_back(mdt: &Mdt, osp: &Osp, ids: &[Id]) {
    let request = async {
        let _order = osp.quota.allowing.lock().await;
        let mut ids = ids.to_vec();
        mdt.quotas.divide(|division| ids.retain(|id| division.is_limited(*id, osp.index)));
        if ids.is_empty() {
            return Ok(());
        }
        let used = osp.quota_allow(ids.iter().map(|id| (*id, Some(0))).collect(), false).await?;
        mdt.quotas.divide(|division| {
            ids.iter().zip(used).for_each(|(id, used)| division.returned(*id, osp.index, used));
        });
        Ok::<(), RequestError>(())
    };
    let error = match mdt.rt.timeout(RETURN_TIMEOUT, request).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_) => osp.no_reply("quota_allow", RETURN_TIMEOUT),
    };
    debug!("{}: {error}: its allowances are not returned", mdt.name);
}

/// Answers what an OST wants.
async fn answer(mdt: &Mdt, osp: &Osp, wants: &[QuotaWant]) -> Result<(), RequestError> {
    if wants.is_empty() {
        return Ok(());
    }
    settled(mdt).await;
    let ids: Vec<Id> = wants.iter().map(|want| want.id).collect();
    mdt.read_rules(&ids);
    let (now, at) = (mdt.rt.wall(), mdt.rt.now());
    let mut returners: BTreeMap<u32, Vec<Id>> = BTreeMap::new();
    mdt.quotas.divide(|division| {
        for want in wants {
            for ost in division.returners(osp.index, want, now, at, REFUSED_PAUSE) {
                returners.entry(ost).or_default().push(want.id);
            }
        }
    });
    let connected = returners.into_iter().filter_map(|(ost, ids)| Some((mdt.osts.connected(ost)?, ids)));
    let requests = connected.map(|(other, ids)| async move { take_back(mdt, &other, &ids).await }).collect();
    all(requests).await;
    grant(mdt, osp, wants).await
}

/// Sends an OST the allowances that the limits leave for what it wants.
async fn grant(mdt: &Mdt, osp: &Osp, wants: &[QuotaWant]) -> Result<(), RequestError> {
    let _order = osp.quota.allowing.lock().await;
    let (now, at, osts) = (mdt.rt.wall(), mdt.rt.now(), mdt.quota_targets().len() as u64);
    let (mut allowed, mut complying, mut exceeded) = (Vec::with_capacity(wants.len()), Vec::new(), Vec::new());
    mdt.quotas.divide(|division| {
        for want in wants {
            let answer = division.allow(osp.index, want, osts, now, at);
            // 0 is no answer: the OST asks again.
            let bytes = |answer: &Allowed| if answer.again { 0 } else { answer.bytes.max(1) };
            allowed.push((want.id, answer.as_ref().map(bytes)));
            if let Some(answer) = answer {
                complying.extend(answer.complies.into_iter().map(|scope| (want.id, scope)));
                exceeded.extend(answer.exceeds_soft.into_iter().map(|scope| (want.id, scope)));
            }
        }
    });
    mdt.note_soft_limits(&complying, &exceeded);
    let used = allow(mdt, osp, allowed, false).await?;
    mdt.quotas.divide(|division| {
        wants.iter().zip(used).for_each(|(want, used)| division.set_used(want.id, osp.index, used));
    });
    Ok(())
}

/// Waits after the start until all OSTs have reported their use: without it, the MDT takes them for
/// empty. Not for long, because one may be disconnected for days.
async fn settled(mdt: &Mdt) {
    if mdt.quotas.is_settled.load(Relaxed) {
        return;
    }
    let reported = async {
        loop {
            let mut reported = std::pin::pin!(mdt.quotas.reported.notified());
            reported.as_mut().enable();
            if have_reported(mdt) {
                return;
            }
            reported.await;
        }
    };
    let _ = mdt.rt.timeout(SETTLE, reported).await;
    mdt.quotas.is_settled.store(true, Relaxed);
}

/// Whether all OSTs have reported their use.
fn have_reported(mdt: &Mdt) -> bool {
    mdt.osts.known() && mdt.quota_targets().iter().all(|osp| osp.quota.has_reported.load(Relaxed))
}

impl Mdt {
    /// Records that ids comply with soft limits of space again, or exceed them from now on. A limit
    /// that was removed meanwhile is not exceeded.
    fn note_soft_limits(&self, complying: &[(Id, Scope)], exceeded: &[(Id, Scope)]) {
        if complying.is_empty() && exceeded.is_empty() {
            return;
        }
        let now = self.rt.wall();
        let mut core = self.core.lock();
        for (id, scope) in complying {
            core.ns.set_space_since(*id, *scope, None);
        }
        for (id, scope) in exceeded {
            let has_limit = core.ns.quota_setting(*id, *scope).0.space.soft > 0;
            if has_limit && core.ns.space_since(*id, *scope).is_none() {
                core.ns.set_space_since(*id, *scope, Some(now));
            }
        }
        let ids = complying.iter().chain(exceeded).map(|(id, _)| (*id, rules(&core, *id)));
        self.quotas.set_rules(ids.collect());
        self.wake_committer(&core);
    }
}

/// The task that tells all OSTs of changed limits.
pub(super) async fn follow_limits(mdt: Arc<Mdt>) {
    loop {
        mdt.quotas.limits_changed.notified().await;
        let limited = mdt.core.lock().ns.limited_ids();
        let known = mdt.quotas.divide(|division| division.ids());
        let ids: BTreeSet<Id> = limited.into_iter().chain(known).collect();
        mdt.read_rules(&ids.into_iter().collect::<Vec<Id>>());
        let news = mdt.quotas.divide(|division| division.take_news());
        if !news.is_empty() {
            let targets = mdt.quota_targets();
            all(targets.iter().map(|osp| tell_news(&mdt, osp, &news)).collect()).await;
        }
    }
}

/// Tells an OST of changed limits, now or when it is connected again.
async fn tell_news(mdt: &Mdt, osp: &Osp, ids: &[Id]) {
    if !osp.connected() || tell(mdt, osp, ids).await.is_err() {
        osp.quota.again.notify_one();
    }
}

/// The task that requests the use of ids near their limits.
pub(super) async fn refresh(mdt: Arc<Mdt>) {
    loop {
        mdt.quotas.has_stale.notified().await;
        mdt.rt.sleep(REFRESH_PAUSE).await;
        let ids = mdt.quotas.take_stale();
        let targets = mdt.quota_targets();
        let connected = targets.iter().filter(|osp| osp.connected());
        all(connected.map(|osp| take_back(&mdt, osp, &ids)).collect()).await;
    }
}
