//! Rates of targets and jobs: the difference between two samples.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sample::Counts;

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// Rates per second of a target, or of a job on all targets.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rates {
    /// The target or job.
    pub name: String,
    /// Requests to read.
    pub reads: f64,
    /// MiB read.
    pub read_mib: f64,
    /// Requests to write.
    pub writes: f64,
    /// MiB written.
    pub write_mib: f64,
    /// Other operations: those on metadata at an MDT.
    pub operations: f64,
}

impl Rates {
    /// Returns the rates of all that was counted twice, in `secs` seconds. Statistics that were
    /// cleared in between have rates of 0.
    pub fn between(before: &BTreeMap<String, Counts>, after: &BTreeMap<String, Counts>, secs: f64) -> Vec<Rates> {
        let rates = |(name, now): (&String, &Counts)| {
            let then = before.get(name)?;
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / secs.max(f64::MIN_POSITIVE);
            Some(Rates {
                name: name.clone(),
                reads: rate(now.reads, then.reads),
                read_mib: rate(now.read_bytes, then.read_bytes) / MIB,
                writes: rate(now.writes, then.writes),
                write_mib: rate(now.write_bytes, then.write_bytes) / MIB,
                operations: rate(now.others, then.others),
            })
        };
        after.iter().filter_map(rates).collect()
    }

    /// Whether nothing happened.
    pub fn is_idle(&self) -> bool {
        self.reads + self.writes + self.operations == 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_per_second() {
        let counts = |reads, others| Counts { reads, read_bytes: reads << 20, others, ..Counts::default() };
        let before = BTreeMap::from([("a".to_owned(), counts(10, 5)), ("cleared".to_owned(), counts(9, 9))]);
        let after = BTreeMap::from([
            ("a".to_owned(), counts(14, 6)),
            ("cleared".to_owned(), counts(0, 0)),
            ("new".to_owned(), counts(1, 1)),
        ]);
        let rates = Rates::between(&before, &after, 2.0);
        assert_eq!(rates.iter().map(|rate| rate.name.as_str()).collect::<Vec<_>>(), ["a", "cleared"]);
        assert_eq!((rates[0].reads, rates[0].read_mib, rates[0].operations), (2.0, 2.0, 0.5));
        assert!(!rates[0].is_idle() && rates[1].is_idle());
    }
}
