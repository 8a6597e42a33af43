//! Races in tests. A race lasts until every party has done its part, so that a slow machine fails
//! no test.
//!
//! Invariants:
//! * A race is over when each part has reached its minimum of steps, or when a party panics.
//! * No party does more steps than the maximum of its part.
//! * A party with a maximum spreads its steps over the race: it waits while it is ahead of others.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

/// Pause between two checks of a waiting party.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Returns the range of a part with a minimum and no maximum.
pub const fn at_least(steps: u64) -> RangeInclusive<u64> {
    steps..=u64::MAX
}

/// Counts the steps of several parties.
#[derive(Debug)]
pub struct Race {
    parts: Vec<Part>,
    /// A party has panicked.
    failed: AtomicBool,
}

#[derive(Debug)]
struct Part {
    minimum: u64,
    maximum: u64,
    done: AtomicU64,
}

impl Part {
    /// Returns the steps done, if they are fewer than the minimum.
    fn lacking(&self) -> Option<u64> {
        Some(self.done.load(SeqCst)).filter(|done| *done < self.minimum)
    }
}

impl Race {
    /// Starts a race. `parts`: the minimum and maximum number of steps of each part.
    ///
    /// # Panics
    /// If a minimum is above its maximum.
    #[track_caller]
    pub fn new(parts: impl IntoIterator<Item = RangeInclusive<u64>>) -> Race {
        let part = |steps: RangeInclusive<u64>| {
            assert!(!steps.is_empty(), "{steps:?}: a minimum above its maximum");
            Part { minimum: *steps.start(), maximum: *steps.end(), done: AtomicU64::new(0) }
        };
        Race { parts: parts.into_iter().map(part).collect(), failed: AtomicBool::new(false) }
    }

    /// Returns a party that does part number `part`. Several parties may share a part that has no
    /// maximum.
    pub fn party(&self, part: usize) -> Party<'_> {
        Party { race: self, part }
    }

    /// Returns whether a part is below its minimum and no party has panicked.
    pub fn goes_on(&self) -> bool {
        !self.failed.load(SeqCst) && self.parts.iter().any(|part| part.lacking().is_some())
    }

    /// Returns the number of steps done of a part.
    pub fn count(&self, part: usize) -> u64 {
        self.parts[part].done.load(SeqCst)
    }

    /// Waits until a part has done `more` further steps, or the race is over.
    pub fn wait_for(&self, part: usize, more: u64) {
        let wanted = self.count(part) + more;
        while self.goes_on() && self.count(part) < wanted {
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Returns whether the next step of `part` is too early. Its steps up to the maximum are spread
    /// evenly over the steps of each other part up to that part's minimum. No maximum is below its
    /// minimum, so parties cannot be ahead of each other in a circle, and none waits for ever.
    fn is_ahead(&self, part: usize) -> bool {
        let (next, maximum) = (u128::from(self.count(part)) + 1, u128::from(self.parts[part].maximum));
        let too_early = |other: &Part, done: u64| next > maximum * u128::from(done + 1) / u128::from(other.minimum);
        let mut others = self.parts.iter().enumerate().filter(|(n, _)| *n != part);
        next > maximum || others.any(|(_, other)| other.lacking().is_some_and(|done| too_early(other, done)))
    }
}

/// A thread's share in a race. A panic of this thread ends the race for all parties.
#[derive(Debug)]
pub struct Party<'a> {
    race: &'a Race,
    part: usize,
}

impl Party<'_> {
    /// Returns whether to do one more step. Waits while this part is ahead of the others.
    pub fn goes_on(&self) -> bool {
        while self.race.goes_on() {
            if !self.race.is_ahead(self.part) {
                return true;
            }
            thread::sleep(LOOK_INTERVAL);
        }
        false
    }

    /// Counts one step.
    pub fn did_one(&self) {
        self.race.parts[self.part].done.fetch_add(1, SeqCst);
    }

    /// Returns the number of steps done of this part.
    pub fn count(&self) -> u64 {
        self.race.count(self.part)
    }
}

impl Drop for Party<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.race.failed.store(true, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(party: &Party, pause: Duration) {
        while party.goes_on() {
            party.did_one();
            thread::sleep(pause);
        }
    }

    #[test]
    fn race_lasts_until_all_parts_reach_their_minimum() {
        let race = Race::new([5..=5, at_least(100), 10..=30]);
        thread::scope(|scope| {
            for (part, pause) in [(0, 20), (1, 0), (2, 0)] {
                let party = race.party(part);
                scope.spawn(move || run(&party, Duration::from_millis(pause)));
            }
        });
        assert!(!race.goes_on());
        assert!(race.count(0) == 5 && race.count(1) >= 100 && (10..=30).contains(&race.count(2)), "{race:?}");
    }

    #[test]
    fn party_with_a_maximum_spreads_its_steps_over_the_race() {
        let race = Race::new([at_least(4), 8..=40]);
        let [slow, fast] = [0, 1].map(|part| race.party(part));
        for steps in [10, 20, 30, 40] {
            let mut done = fast.count();
            while !race.is_ahead(1) {
                fast.did_one();
                done += 1;
            }
            assert_eq!(done, steps);
            assert!(slow.goes_on());
            slow.did_one();
        }
        assert!(!slow.goes_on() && !fast.goes_on());
    }

    #[test]
    fn panic_of_a_party_ends_the_race() {
        let race = Race::new([at_least(1), at_least(1)]);
        thread::scope(|scope| {
            let party = race.party(0);
            let panics = scope.spawn(move || assert!(!party.goes_on(), "panics as expected"));
            run(&race.party(1), LOOK_INTERVAL);
            assert!(panics.join().is_err());
        });
    }
}
