//! Counters of servers and clients, in Lustre's format of `stats`.

use std::collections::BTreeMap;

/// A counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counter {
    /// Number of samples.
    pub count: u64,
    /// Sum of the samples, in the counter's unit.
    pub sum: u64,
}

/// Counters by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters(BTreeMap<String, Counter>);

impl Counters {
    /// Adds the counters in `text`. Its lines are `NAME COUNT samples [UNIT] MIN MAX SUM …` as in
    /// Lustre's `stats`, or `NAME COUNT`.
    pub fn read(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |i: usize| words.get(i).and_then(|w| w.parse::<u64>().ok());
            let (Some(name), Some(count)) = (words.first(), number(1)) else { continue };
            if words.len() > 2 && words[2] != "samples" {
                continue;
            }
            let counter = self.0.entry((*name).to_owned()).or_default();
            counter.count += count;
            counter.sum += number(6).unwrap_or(0);
        }
    }

    /// Returns the increase since `before`.
    pub fn since(&self, before: &Counters) -> Counters {
        let less = |(name, now): (&String, &Counter)| {
            let then = before.get(name);
            let left = Counter { count: now.count.saturating_sub(then.count), sum: now.sum.saturating_sub(then.sum) };
            (left.count > 0).then(|| (name.clone(), left))
        };
        Counters(self.0.iter().filter_map(less).collect())
    }

    /// Returns the counter `name`.
    pub fn get(&self, name: &str) -> Counter {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Returns whether there is a counter `name`, even if it is 0.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the number of requests. Counters of bytes are left out, because they count the same
    /// requests again.
    pub fn requests(&self) -> u64 {
        self.kinds().map(|(_, c)| c.count).sum()
    }

    /// Formats the requests by kind, the most frequent first: `10000 open, 3 getattr`.
    pub fn render_requests(&self) -> String {
        let mut kinds: Vec<_> = self.kinds().map(|(name, c)| (c.count, name)).collect();
        kinds.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        let words: Vec<String> = kinds.iter().map(|(count, name)| format!("{count} {name}")).collect();
        if words.is_empty() { "0".to_owned() } else { words.join(", ") }
    }

    fn kinds(&self) -> impl Iterator<Item = (&String, &Counter)> {
        self.0.iter().filter(|(name, _)| !name.ends_with("_bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATS: &str = "\
snapshot_time                       1795290918.712480880 secs.nsecs
open                                2 samples [usecs] 365 32900 33265 1082543225
write                               3 samples [usecs] 1 2 5 9
write_bytes                         3 samples [bytes] 4096 4096 12288 0
grants                    7
open                                1 samples [usecs] 5 5 5 25
";

    #[test]
    fn counters_of_all_targets_are_added_and_bytes_are_not_requests() {
        let mut now = Counters::default();
        now.read(STATS);
        assert_eq!(now.get("open"), Counter { count: 3, sum: 33270 });
        assert_eq!((now.get("write_bytes").sum, now.get("grants").count), (12288, 7));
        assert_eq!(now.get("snapshot_time"), Counter::default());
        let mut before = Counters::default();
        before.read("open 1 samples [usecs] 1 1 1 1\ngrants 7\n");
        let new = now.since(&before);
        assert_eq!((new.requests(), new.render_requests().as_str()), (5, "3 write, 2 open"));
        assert_eq!(new.since(&new).render_requests(), "0");
    }
}
