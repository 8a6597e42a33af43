//! Bits that a request would like to have.
//!
//! A request names bits that it needs and bits that it tries for: it gets those of the latter that
//! nobody is in the way of, whether granted or waiting, and is never kept waiting for them.

use sheen_wire::ldlm::{Kind, Mode, Policy};

use super::{Namespace, conflict::Want};

impl Namespace {
    /// Those of `try_bits` that a lock in `mode` can have at once.
    pub(super) fn free_bits(&self, r: u32, mode: Mode, try_bits: u64) -> u64 {
        let res = &self.resources[r];
        let mut free = try_bits;
        for other in Mode::ALL.into_iter().filter(|m| !Mode::compatible(*m, mode)) {
            for root in [&res.granted[other as usize], &res.waiting[other as usize]] {
                for n in self.nodes.ring(root) {
                    if free == 0 {
                        return 0;
                    }
                    if let Policy::Bits { bits, .. } = self.locks[n].policy {
                        free &= !bits;
                    }
                }
            }
        }
        free
    }

    /// Where a request only tries and none of its bits is free: a lock that is in the way.
    pub(super) fn nothing_free(&self, r: u32, want: &Want) -> Option<u32> {
        let Policy::Bits { bits: 0, try_bits } = want.policy else { return None };
        if self.resources[r].name.kind != Kind::Bits || self.free_bits(r, want.mode, try_bits) != 0 {
            return None;
        }
        let must = Want { policy: Policy::bits(try_bits), ..*want };
        self.granted_conflict(r, &must).or_else(|| self.waiting_conflict(r, &must, u64::MAX))
    }
}
