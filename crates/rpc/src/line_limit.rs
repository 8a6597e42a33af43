//! A limit on repeated log lines.

use std::time::Duration;

use sheen_rt::Instant;

/// Shortest time between two lines of the same kind.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Limits log lines to one of each kind per [`LINE_EVERY`], and counts the others. Its size is
/// bounded by the number of kinds.
pub(crate) struct LineLimits<K>(Vec<Limit<K>>);

struct Limit<K> {
    kind: K,
    /// Time of the last line.
    last: Instant,
    /// Number of lines suppressed since.
    suppressed: u64,
}

impl<K> Default for LineLimits<K> {
    fn default() -> LineLimits<K> {
        LineLimits(Vec::new())
    }
}

impl<K: PartialEq> LineLimits<K> {
    /// Returns whether a line of this kind may be written now. If so, returns how many lines of the
    /// kind were suppressed before it.
    pub(crate) fn admit(&mut self, kind: K, now: Instant) -> Option<u64> {
        match self.0.iter_mut().find(|limit| limit.kind == kind) {
            None => {
                self.0.push(Limit { kind, last: now, suppressed: 0 });
                Some(0)
            }
            Some(limit) if now.since(limit.last) < LINE_EVERY => {
                limit.suppressed += 1;
                None
            }
            Some(limit) => {
                limit.last = now;
                Some(std::mem::take(&mut limit.suppressed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_lines_of_a_kind_are_suppressed_for_ten_seconds_and_counted() {
        let mut limits = LineLimits::default();
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!(limits.admit('a', at(0)), Some(0));
        assert_eq!(limits.admit('a', at(1)), None);
        assert_eq!(limits.admit('b', at(2)), Some(0), "another kind");
        assert_eq!(limits.admit('a', at(9_999)), None);
        assert_eq!(limits.admit('a', at(10_000)), Some(2));
        assert_eq!(limits.admit('a', at(19_999)), None, "counts from the last line");
        assert_eq!(limits.admit('b', at(60_000)), Some(0));
        assert_eq!(limits.admit('a', at(60_000)), Some(1));
    }
}
