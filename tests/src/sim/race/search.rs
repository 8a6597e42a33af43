//! Search for a legal order of operations, for any kind of state.
//!
//! The algorithm is that of Wing and Gong with Lowe's memory of visited states. It picks an
//! operation that need not wait for the reply of another one, and whose reply is correct in the
//! present state. At a dead end it undoes the last choice. An operation that only reads is taken as
//! soon as its reply is correct. That is safe, unless an uncertain operation could no longer be
//! executed after the read.

use std::{
    collections::{BTreeSet, hash_map::DefaultHasher},
    fmt::Debug,
    hash::{Hash, Hasher},
};

use super::span::Span;

/// An operation that was executed, or may have been.
pub trait Step: Debug {
    /// The state that operations read and change. The default is the initial state.
    type State: Clone + Default + Hash + Debug;

    /// Returns the time from the request to the reply.
    fn span(&self) -> Span;

    /// Executes the operation on `state`. Returns whether its reply is correct.
    fn fits(&self, state: &mut Self::State) -> bool;

    /// Returns whether the operation may have changed the state.
    fn changes(&self) -> bool;

    /// Returns whether the operation was certainly executed.
    fn is_certain(&self) -> bool;
}

/// Result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// There is a legal order.
    Legal,
    /// There is no legal order. The text shows the longest attempt.
    Illegal(String),
    /// Undecided: the search would take too long.
    Unknown,
}

/// A point to which the search may return.
struct Choice<T: Step> {
    state: T::State,
    done: Done,
    /// Operations that may come next. `tried`: how many of them were tried.
    next: Vec<usize>,
    tried: usize,
}

/// The set of executed operations: a bit for each. All operations before `first` are executed.
#[derive(Clone)]
struct Done {
    bits: Vec<u64>,
    first: usize,
    count: usize,
    /// The latest start of an executed operation.
    latest: u64,
}

impl Done {
    fn has(&self, i: usize) -> bool {
        self.bits[i / 64] >> (i % 64) & 1 == 1
    }

    fn put(&mut self, i: usize, span: Span) {
        self.bits[i / 64] |= 1 << (i % 64);
        self.count += 1;
        self.latest = self.latest.max(span.from);
        while self.first / 64 < self.bits.len() && self.has(self.first) {
            self.first += 1;
        }
    }
}

/// Searches for a legal order with at most this many choices.
pub fn search<T: Step>(mut all: Vec<T>, choices_max: usize) -> Verdict {
    // An uncertain operation that changes nothing has no effect on the result.
    all.retain(|step| step.is_certain() || step.changes());
    all.sort_by_key(|step| step.span().from);
    Search { all, choices_max }.run()
}

struct Search<T> {
    all: Vec<T>,
    choices_max: usize,
}

impl<T: Step> Search<T> {
    fn run(&self) -> Verdict {
        let mut seen = BTreeSet::new();
        let mut best: (usize, Option<(T::State, Done)>) = (0, None);
        let done = Done { bits: vec![0; self.all.len() / 64 + 1], first: 0, count: 0, latest: 0 };
        let mut stack = vec![self.choice(T::State::default(), done)];
        while let Some(top) = stack.last_mut() {
            if self.is_over(&top.done) {
                return Verdict::Legal;
            }
            if top.done.count >= best.0 && top.tried == 0 {
                best = (top.done.count, Some((top.state.clone(), top.done.clone())));
            }
            let Some(&i) = top.next.get(top.tried) else {
                stack.pop();
                continue;
            };
            top.tried += 1;
            let (mut state, mut done) = (top.state.clone(), top.done.clone());
            if !self.all[i].fits(&mut state) {
                continue;
            }
            done.put(i, self.all[i].span());
            let choice = self.choice(state, done);
            if seen.insert(digest(&choice)) {
                stack.push(choice);
            }
            if seen.len() > self.choices_max {
                return Verdict::Unknown;
            }
        }
        Verdict::Illegal(best.1.map_or_else(String::new, |(state, done)| self.describe(&state, &done)))
    }

    /// Returns whether all certain operations are executed.
    fn is_over(&self, done: &Done) -> bool {
        (done.first..self.all.len()).all(|i| done.has(i) || !self.all[i].is_certain())
    }

    /// Executes reads whose replies are correct, and finds the operations that may come next.
    fn choice(&self, state: T::State, mut done: Done) -> Choice<T> {
        loop {
            let mut next = self.next(&done);
            let perhaps = next.iter().filter(|i| !self.all[**i].is_certain()).map(|i| self.all[*i].span().to);
            let until = perhaps.min().unwrap_or(Span::NEVER);
            next.retain(|i| self.all[*i].changes() || self.all[*i].fits(&mut state.clone()));
            let free = |i: &&usize| !self.all[**i].changes() && self.all[**i].span().from <= until;
            let looks: Vec<usize> = next.iter().filter(free).copied().collect();
            if looks.is_empty() {
                return Choice { state, done, next, tried: 0 };
            }
            looks.into_iter().for_each(|i| done.put(i, self.all[i].span()));
        }
    }

    /// Returns the operations that may come next, ordered by their replies: those that no
    /// unexecuted operation precedes. An uncertain operation precedes no other one, and it is not
    /// executed after its end.
    fn next(&self, done: &Done) -> Vec<usize> {
        let (mut next, mut end) = (Vec::new(), Span::NEVER);
        for i in (done.first..self.all.len()).filter(|i| !done.has(*i)) {
            let Span { from, to } = self.all[i].span();
            if from > end {
                break;
            }
            if self.all[i].is_certain() {
                end = end.min(to);
            }
            if to >= done.latest {
                next.push(i);
            }
        }
        next.retain(|i| self.all[*i].span().from <= end);
        next.sort_by_key(|i| self.all[*i].span().to);
        next
    }

    fn describe(&self, state: &T::State, done: &Done) -> String {
        let mut lines = vec!["no legal order; the longest attempt:".to_owned()];
        let next = self.next(done);
        let until = next.iter().copied().max().unwrap_or(0);
        for i in done.first.saturating_sub(20)..self.all.len().min(until + 10) {
            let mark = match (done.has(i), next.contains(&i)) {
                (true, _) => "done",
                (false, true) => "next",
                _ => "",
            };
            lines.push(format!("{mark:5} {:?}", self.all[i]));
        }
        lines.push(format!("with {state:?}"));
        lines.join("\n")
    }
}

fn digest<T: Step>(choice: &Choice<T>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&choice.done.bits, &choice.state).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write or a read of one of two values.
    #[derive(Clone, Copy, Debug)]
    struct Op {
        span: Span,
        at: usize,
        value: u8,
        puts: bool,
        is_certain: bool,
    }

    impl Step for Op {
        type State = [u8; 2];

        fn span(&self) -> Span {
            self.span
        }

        fn fits(&self, state: &mut [u8; 2]) -> bool {
            if self.puts {
                state[self.at] = self.value;
            }
            state[self.at] == self.value
        }

        fn changes(&self) -> bool {
            self.puts
        }

        fn is_certain(&self) -> bool {
            self.is_certain
        }
    }

    fn op((from, to): (u64, u64), at: usize, value: u8, puts: bool) -> Op {
        Op { span: Span { from, to }, at, value, puts, is_certain: true }
    }

    /// Seed 1792 of the races with swaps found the bug: a read after the uncertain operation was
    /// taken first.
    #[test]
    fn uncertain_operation_is_tried_before_later_reads() {
        let perhaps = |to| Op { is_certain: false, ..op((1, to), 1, 3, true) };
        let rest =
            [op((0, 5), 0, 1, true), op((6, 7), 1, 2, true), op((25, 26), 0, 1, false), op((30, 31), 1, 3, false)];
        let all = |to| rest.iter().copied().chain([perhaps(to)]).collect::<Vec<Op>>();
        assert_eq!(search(all(20), 1000), Verdict::Legal);
        assert!(matches!(search(all(4), 1000), Verdict::Illegal(_)), "it ended before the other operation began");
    }
}
