//! Whether there is a legal order of what was done, for anything that has a state.
//!
//! The search of Wing and Gong with Lowe's memory: of the operations that nobody else's answer
//! precedes, one is taken whose answer fits the present state, and so on; at a dead end the last
//! choice is taken back. What only looks is taken as soon as it fits, which is never wrong, unless
//! something that was done perhaps could not have been done any more after it.

use std::{
    collections::{BTreeSet, hash_map::DefaultHasher},
    fmt::Debug,
    hash::{Hash, Hasher},
};

use super::span::Span;

/// An operation that was done, or perhaps.
pub trait Step: Debug {
    /// What operations look at and change; the first one is the default.
    type State: Clone + Default + Hash + Debug;

    /// From the question to the answer.
    fn span(&self) -> Span;

    /// Whether the answer is right in this state; which it changes to what the operation makes of
    /// it.
    fn fits(&self, state: &mut Self::State) -> bool;

    /// Whether it may have changed something.
    fn changes(&self) -> bool;

    /// Whether it was done for certain.
    fn is_certain(&self) -> bool;
}

/// What a search found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// There is a legal order.
    Legal,
    /// There is none; this is as far as the longest attempt got.
    Illegal(String),
    /// Nobody knows: it would take too long.
    Unknown,
}

/// A point to come back to.
struct Choice<T: Step> {
    state: T::State,
    done: Done,
    /// Operations that may come next, and how many of them were tried.
    next: Vec<usize>,
    tried: usize,
}

/// Which operations are done: a bit each, and before which all are.
#[derive(Clone)]
struct Done {
    bits: Vec<u64>,
    first: usize,
    count: usize,
    /// When the last of them that was asked for was.
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

/// Searches for a legal order, within so many choices.
pub fn search<T: Step>(mut all: Vec<T>, choices_max: usize) -> Verdict {
    // What nobody knows and what would change nothing says nothing.
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
        Verdict::Illegal(best.1.map_or_else(String::new, |(state, done)| self.told(&state, &done)))
    }

    /// All that was answered is done.
    fn is_over(&self, done: &Done) -> bool {
        (done.first..self.all.len()).all(|i| done.has(i) || !self.all[i].is_certain())
    }

    /// Takes what fits and changes nothing, and finds what may come next.
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

    /// What nobody's answer precedes, in the order of the answers. What need not have been done
    /// precedes nothing, and is not done after its end.
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

    fn told(&self, state: &T::State, done: &Done) -> String {
        let mut lines = vec!["no legal order; as far as one can get:".to_owned()];
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

    /// One of two values is given, or found.
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

    /// Found by seed 1792 of the races beside swaps: a look that came after it was taken first.
    #[test]
    fn what_was_done_perhaps_is_tried_before_what_comes_after_it() {
        let perhaps = |to| Op { is_certain: false, ..op((1, to), 1, 3, true) };
        let rest =
            [op((0, 5), 0, 1, true), op((6, 7), 1, 2, true), op((25, 26), 0, 1, false), op((30, 31), 1, 3, false)];
        let all = |to| rest.iter().copied().chain([perhaps(to)]).collect::<Vec<Op>>();
        assert_eq!(search(all(20), 1000), Verdict::Legal);
        assert!(matches!(search(all(4), 1000), Verdict::Illegal(_)), "it was over before the other was begun");
    }
}
