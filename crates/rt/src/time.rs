//! Monotonic time.

use std::{
    fmt,
    ops::{Add, AddAssign},
    time::Duration,
};

/// A point in monotonic time, in nanoseconds since an arbitrary start. Comparable only within one
/// machine or simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The earliest instant.
    pub const ZERO: Instant = Instant(0);
    /// An instant later than every event.
    pub const FAR: Instant = Instant(u64::MAX);

    /// Creates an instant from nanoseconds, for tests of engines and for state that was stored as a
    /// number.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Returns the nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates at [`Instant::FAR`].
impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instant_arithmetic_saturates() {
        let t = Instant::from_nanos(5);
        assert_eq!(t.since(Instant::from_nanos(9)), Duration::ZERO);
        assert_eq!(t + Duration::MAX, Instant::FAR);
        assert_eq!((t + Duration::from_nanos(3)).since(t), Duration::from_nanos(3));
    }
}
