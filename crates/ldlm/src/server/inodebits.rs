//! Optional bits of inodebits requests (`try_bits`).
//!
//! A request names required bits and optional bits. Of the optional ones it gets those without a
//! conflicting lock, granted or waiting. It never waits for them.

use sheen_wire::ldlm::{Kind, Mode, Policy};

use super::{Namespace, conflict::Want};

impl Namespace {
    /// Returns those of `try_bits` that a lock in `mode` can have at once.
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

    /// Returns a conflicting lock if a request has only optional bits and none of them is free.
    pub(super) fn nothing_free(&self, r: u32, want: &Want) -> Option<u32> {
        let Policy::Bits { bits: 0, try_bits } = want.policy else { return None };
        if self.resources[r].name.kind != Kind::Bits || self.free_bits(r, want.mode, try_bits) != 0 {
            return None;
        }
        let must = Want { policy: Policy::bits(try_bits), ..*want };
        self.granted_conflict(r, &must).or_else(|| self.waiting_conflict(r, &must, u64::MAX))
    }
}
