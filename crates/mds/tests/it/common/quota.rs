//! The part of a fake OST that counts: it says what a test puts in.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_rpc::Response;
use sheen_wire::ost::{Damaged, QuotaUse, QuotaWant, Reply, Request};
use sheen_wire::quota::{Id, Owner};
use sheen_wire::{Fid, Result};
use tokio::sync::Notify;

/// Objects without an owner, with their files; ids that need space; and damage.
type Needs = (Vec<(Fid, Fid)>, Vec<QuotaWant>, Vec<Damaged>);

/// The quotas of a fake OST.
#[derive(Default)]
pub struct FakeQuota {
    /// The owners that the MDT has sent.
    pub owners: Mutex<BTreeMap<Fid, Owner>>,
    /// The allowances that the MDT has set, in order.
    pub allowed: Mutex<Vec<(Id, Option<u64>)>>,
    /// Bytes that ids use.
    pub used: Mutex<BTreeMap<Id, u64>>,
    /// Answers neither allowances nor queries.
    pub silent: AtomicBool,
    needs: Mutex<Needs>,
    needed: Notify,
}

/// Whether a request is about quotas.
pub fn is_of_quotas(request: &Request) -> bool {
    matches!(
        request,
        Request::SetOwners { .. } | Request::QuotaWait | Request::QuotaAllow { .. } | Request::QuotaUse { .. }
    )
}

impl FakeQuota {
    /// Asks the MDT for the owner of an object.
    pub fn ask_owner(&self, object: Fid, file: Fid) {
        self.needs.lock().0.push((object, file));
        self.needed.notify_one();
    }

    /// Reports damage to the MDT.
    pub fn report(&self, damaged: Damaged) {
        self.needs.lock().2.push(damaged);
        self.needed.notify_one();
    }

    /// Asks the MDT for space.
    pub fn want(&self, id: Id, wanted: u64) {
        let used = self.used_by(id);
        self.needs.lock().1.push(QuotaWant { id, used, wanted });
        self.needed.notify_one();
    }

    pub fn owner(&self, object: Fid) -> Option<Owner> {
        self.owners.lock().get(&object).copied()
    }

    /// Returns the last allowance of an id. `None`: the MDT has set none.
    pub fn allowance(&self, id: Id) -> Option<Option<u64>> {
        self.allowed.lock().iter().rev().find(|(other, _)| *other == id).map(|(_, allowed)| *allowed)
    }

    fn used_by(&self, id: Id) -> u64 {
        self.used.lock().get(&id).copied().unwrap_or_default()
    }

    async fn needs(&self) -> Reply {
        loop {
            let (unowned, wants, damaged) = std::mem::take(&mut *self.needs.lock());
            if !unowned.is_empty() || !wants.is_empty() || !damaged.is_empty() {
                return Reply::QuotaNeeds { unowned, wants, damaged };
            }
            self.needed.notified().await;
        }
    }

    pub async fn serve(&self, request: Request) -> Result<Response<Reply>> {
        if self.silent.load(Relaxed) {
            std::future::pending::<()>().await;
        }
        let reply = match request {
            Request::QuotaWait => self.needs().await,
            Request::SetOwners { owners, .. } => {
                self.owners.lock().extend(owners.iter().map(|owned| (owned.object, owned.owner)));
                Reply::Ok
            }
            Request::QuotaAllow { ids, .. } => {
                let used = ids.iter().map(|(id, _)| self.used_by(*id)).collect();
                self.allowed.lock().extend(ids);
                Reply::Used(used)
            }
            Request::QuotaUse { first } => {
                let uses = self.used.lock();
                let ids = uses.range(first..).map(|(id, bytes)| (*id, QuotaUse { bytes: *bytes, objects: 1 }));
                Reply::QuotaUse { ids: ids.collect(), more: false, complete: true }
            }
            other => panic!("{other:?}"),
        };
        Ok(Response::from(reply))
    }
}
