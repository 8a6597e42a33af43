//! Extent expansion: how far a granted extent lock grows beyond the request. Lustre's policy.
//!
//! A client that writes somewhere will likely continue there. So it gets the largest extent that
//! overlaps no conflicting lock, granted or waiting:
//! * downwards, it grows only to the end of the nearest conflicting lock;
//! * it does not grow downwards if a conflicting waiting lock overlaps the request itself, or if
//!   more than [`WAITERS_MANY`] wait: the gain would be revoked at once;
//! * if more than [`CONFLICTS_MANY`] locks conflict, it gets at most [`GROWN_MAX`];
//! * the result begins and ends where the request's alignment permits, at least at pages, so that
//!   no page is under two locks;
//! * the result always contains the request.

use sheen_rt::Instant;
use sheen_wire::ldlm::{Mode, Policy};

use super::{Level, Namespace, SERVER, conflict::Want};

/// Number of conflicting waiting locks above which a lock does not grow downwards; Lustre's number.
const WAITERS_MANY: usize = 4;
/// Number of conflicting locks above which growth is limited; Lustre's number.
const CONFLICTS_MANY: usize = 32;
/// That limit of growth, in bytes from the request's start; Lustre's LDLM_MAX_GROWN_EXTENT.
const GROWN_MAX: u64 = 32 << 20;
/// The smallest alignment.
const PAGE: u64 = 4096;

/// How a request may grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grow {
    pub expand: bool,
    pub align: u64,
}

impl Namespace {
    /// Returns the extent granted to a request that conflicts with no lock.
    pub(super) fn grown(&mut self, now: Instant, r: u32, want: &Want, grow: Grow) -> Policy {
        let Policy::Extent { start, end, gid } = want.policy else { return want.policy };
        let whole = (start, end) == (0, u64::MAX);
        if whole
            || !grow.expand
            || want.client == SERVER
            || !self.tunables.expand
            || self.level_of(now, r) != Level::Normal
        {
            return want.policy;
        }
        let (low, high) = self.free_around(r, want.mode, start, end);
        let (start, end) = aligned((low, high), (start, end), grow.align);
        Policy::Extent { start, end, gid }
    }

    /// Returns the largest extent around `start..=end` that a lock in `mode` may have.
    fn free_around(&self, r: u32, mode: Mode, start: u64, end: u64) -> (u64, u64) {
        let res = &self.resources[r];
        let (mut low, mut high) = (0, u64::MAX);
        let (mut conflicts, mut waiters) = (0, 0);
        for other in Mode::ALL.into_iter().filter(|m| !Mode::compatible(*m, mode)) {
            let (granted, waiting) = (&res.granted[other as usize], &res.waiting[other as usize]);
            conflicts += granted.len() + waiting.len();
            waiters += waiting.len();
            for root in [granted, waiting] {
                if let Some(next) = self.nodes.next_start(root, end) {
                    high = high.min(next - 1);
                }
                if let Some(last) = self.nodes.last_end(root, start) {
                    // Only a waiting lock can overlap the request.
                    low = low.max(last.saturating_add(1).min(start));
                }
            }
        }
        if waiters > WAITERS_MANY {
            low = start;
        }
        if conflicts > CONFLICTS_MANY {
            low = start;
            high = high.min(start.saturating_add(GROWN_MAX - 1)).max(end);
        }
        (low, high)
    }
}

/// Shrinks `grown` to multiples of the alignment, but never below `asked`.
fn aligned(grown: (u64, u64), asked: (u64, u64), align: u64) -> (u64, u64) {
    let edges = asked.0 | asked.1.wrapping_add(1);
    let natural = if edges == 0 { PAGE } else { 1 << edges.trailing_zeros() };
    let align = if align.is_power_of_two() { align } else { natural }.max(PAGE);
    // A grown extent begins at 0 or behind a lock, so rounding up fits in u64 except at its very
    // end.
    let start = grown.0.checked_next_multiple_of(align).unwrap_or(u64::MAX).min(asked.0);
    let end = match grown.1.checked_add(1) {
        Some(after) => (after & !(align - 1)).wrapping_sub(1),
        None => u64::MAX,
    };
    // An end that wraps (only page 0 is free) is below the request.
    let end = if end == u64::MAX && grown.1 != u64::MAX { asked.1 } else { end.max(asked.1) };
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expanded_extents_keep_the_requests_alignment() {
        let all = (0, u64::MAX);
        assert_eq!(aligned(all, (0, 4095), 0), all);
        // 1 MiB blocks: the end is rounded down to a block.
        assert_eq!(aligned((0, (7 << 20) - 4097), (1 << 20, (2 << 20) - 1), 0), (0, (6 << 20) - 1));
        // The start is rounded up to a block.
        assert_eq!(aligned((4096, u64::MAX), (4 << 20, (8 << 20) - 1), 0), (4 << 20, u64::MAX));
        assert_eq!(aligned((4096, u64::MAX), (8192, 12287), 0), (4096, u64::MAX));
        // Unaligned requests: whole pages around them.
        assert_eq!(aligned((100, 99_999), (47_008, 94_015), 0), (4096, 98_303));
        assert_eq!(aligned((47_008, 94_015), (47_008, 94_015), 0), (47_008, 94_015));
        assert_eq!(aligned((0, 4094), (5, 6), 0), (0, 6));
        // The client's own hint takes precedence.
        assert_eq!(aligned((4096, 3 << 20), (0x8000, 0x8fff), 1 << 20), (0x8000, (3 << 20) - 1));
        assert_eq!(aligned((u64::MAX - 9, u64::MAX), (u64::MAX - 5, u64::MAX), 0), (u64::MAX - 5, u64::MAX));
    }
}
