//! The network link of a host: bytes that leave it wait for each other, and so do those that
//! arrive. Without a rate, which is the default, nothing waits.
//!
//! A link carries packets in the order in which they were sent. Packets that leave one host for
//! several others share its rate, as do packets that arrive from several.

use std::time::Duration;

use crate::time::Instant;

/// One direction of a host's link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    /// Bytes per second. 0: no limit.
    rate: u64,
    /// When it has carried all packets so far.
    free_at: Instant,
}

impl Link {
    /// Returns an idle link of this rate in bytes per second. 0: no limit.
    pub(crate) fn new(rate: u64) -> Link {
        Link { rate, free_at: Instant::ZERO }
    }

    /// Carries a packet whose first byte is there at `at`. Returns when its last byte has passed.
    pub(crate) fn carry(&mut self, at: Instant, bytes: usize) -> Instant {
        if self.rate == 0 {
            return at;
        }
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.rate);
        self.free_at = self.free_at.max(at) + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_on_a_link_wait_for_each_other() {
        let at = |us: u64| Instant::from_nanos(us * 1000);
        let mut link = Link::new(1_000_000);
        assert_eq!(link.carry(at(100), 50), at(150));
        assert_eq!(link.carry(at(120), 50), at(200), "behind the first one");
        assert_eq!(link.carry(at(500), 1), at(501), "the link was idle");
        assert_eq!(Link::default().carry(at(7), 1 << 30), at(7), "no rate");
    }
}
