//! Data of two files whose layouts are swapped during the race (swap_layouts).
//!
//! A byte of both files together has two values, which a swap exchanges. Every write to either file
//! has a number of its own. For each byte the check searches for a legal order of writes, reads and
//! swaps. A byte beyond a reported size counts as a zero that was read. No reported size may exceed
//! the largest end of a change.

use std::collections::BTreeSet;

use super::{
    bytes::{Changed, FileChange, History, Seen},
    search::{Step, Verdict, search},
    span::Span,
};

/// Choices after which the search for one byte stops.
const CHOICES_MAX: usize = 20_000;

/// An operation on a byte of two files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ByteOp {
    /// Gives the byte of a file this value.
    Put(usize, u8),
    /// Reads this value from the byte of a file.
    Got(usize, u8),
    /// Exchanges the two files.
    Swap,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Event {
    span: Span,
    client: usize,
    what: ByteOp,
    is_certain: bool,
}

impl Step for Event {
    type State = [u8; 2];

    fn span(&self) -> Span {
        self.span
    }

    fn fits(&self, state: &mut [u8; 2]) -> bool {
        match self.what {
            ByteOp::Put(file, value) => state[file] = value,
            ByteOp::Got(file, value) => return state[file] == value,
            ByteOp::Swap => state.swap(0, 1),
        }
        true
    }

    fn changes(&self) -> bool {
        !matches!(self.what, ByteOp::Got(..))
    }

    fn is_certain(&self) -> bool {
        self.is_certain
    }
}

/// Checks whether some legal order explains all operations. Returns `false` if the search would
/// take too long.
///
/// # Errors
/// A description of the contradiction.
pub fn check(files: &[History; 2], swaps: &[(usize, Span)]) -> Result<bool, String> {
    check_sizes(files)?;
    let changes = || files.iter().flat_map(|file| &file.changes);
    let seen = || files.iter().flat_map(|file| &file.seen);
    let ranges = changes().flat_map(|c| [c.change.range().0, c.change.range().1]);
    let ends = seen().flat_map(|s| s.runs.iter().map(|r| r.0).chain([s.offset]).chain(s.size.map(|size| size.0)));
    let edges: BTreeSet<u64> = ranges.chain(ends).filter(|at| *at != u64::MAX).collect();
    let (mut before, mut all_known) = (Vec::new(), true);
    for at in edges {
        let events = events(files, swaps, at, &[]);
        if events == before {
            continue;
        }
        match search(events.clone(), CHOICES_MAX) {
            Verdict::Legal => {}
            Verdict::Illegal(what) => match finished_elsewhere(files, swaps, at) {
                Verdict::Legal => {}
                Verdict::Illegal(_) => return Err(format!("byte {at}: {what}")),
                Verdict::Unknown => all_known = false,
            },
            Verdict::Unknown => all_known = false,
        }
        before = events;
    }
    Ok(all_known)
}

/// Searches for a legal order again, if changes that overlapped a swap reached this byte only in
/// the other file, which has the objects after the swap. Tries each one and each pair of such
/// changes.
fn finished_elsewhere(files: &[History; 2], swaps: &[(usize, Span)], at: u64) -> Verdict {
    let numbers: Vec<usize> = (0..2)
        .flat_map(|file| (0..files[file].changes.len()).map(move |n| (file, n)))
        .filter(|(file, n)| {
            let c = &files[*file].changes[*n];
            (c.change.range().0..c.change.range().1).contains(&at) && may_be_done_twice(c, swaps)
        })
        .map(|(file, n)| n * 2 + file)
        .collect();
    let mut verdict = Verdict::Illegal(String::new());
    for (i, one) in numbers.iter().enumerate() {
        for other in &numbers[i..] {
            match search(events(files, swaps, at, &[*one, *other]), CHOICES_MAX) {
                Verdict::Legal => return Verdict::Legal,
                Verdict::Unknown => verdict = Verdict::Unknown,
                Verdict::Illegal(_) => {}
            }
        }
    }
    verdict
}

fn check_sizes(files: &[History; 2]) -> Result<(), String> {
    let ends = |look: Span| {
        let before = move |c: &&Changed| c.span.from < look.to;
        files.iter().flat_map(|file| &file.changes).filter(before).filter_map(|c| c.change.end())
    };
    for seen in files.iter().flat_map(|file| &file.seen) {
        let most = ends(seen.span).max().unwrap_or(0);
        if seen.size.is_some_and(|(size, _)| size > most) {
            return Err(format!("{seen:?}: no client wrote beyond {most}"));
        }
    }
    Ok(())
}

/// Returns all events of a byte. `elsewhere`: the changes that reached the other file. Each is
/// given as its index in its file, times two, plus the number of its file.
fn events(files: &[History; 2], swaps: &[(usize, Span)], at: u64, elsewhere: &[usize]) -> Vec<Event> {
    let swap = |(client, span): &(usize, Span)| Event {
        span: *span,
        client: *client,
        what: ByteOp::Swap,
        is_certain: span.to != Span::NEVER,
    };
    let mut events: Vec<Event> = swaps.iter().map(swap).collect();
    let got = |seen: &Seen| seen.at(at).or_else(|| is_behind(files, seen, at).then_some(0));
    let gots = || files.iter().flat_map(|file| &file.seen).filter_map(|seen| Some((got(seen)?, seen)));
    // Values of lost writes that no other client has seen.
    let mut forgotten = BTreeSet::new();
    for (number, file) in files.iter().enumerate() {
        for (n, c) in file.changes.iter().enumerate() {
            if !(c.change.range().0..c.change.range().1).contains(&at) {
                continue;
            }
            let value = c.change.number();
            let own = |seen: &Seen| c.lost.is_some_and(|until| seen.client == c.client && seen.span.from < until);
            if value != 0 && c.lost.is_some() && gots().filter(|(n, _)| *n == value).all(|(_, seen)| own(seen)) {
                forgotten.insert(value);
                continue;
            }
            let span = if c.lost.is_some() { c.span.unanswered() } else { c.span };
            let is_certain = span.to != Span::NEVER;
            let came_to = if elsewhere.contains(&(n * 2 + number)) { 1 - number } else { number };
            events.push(Event { span, client: c.client, what: ByteOp::Put(came_to, value), is_certain });
            if may_be_done_twice(c, swaps) {
                let twice = |file| Event { span, client: c.client, what: ByteOp::Put(file, value), is_certain: false };
                events.extend([twice(number), twice(1 - number)]);
            }
        }
    }
    for (number, file) in files.iter().enumerate() {
        let gots = file.seen.iter().filter_map(|seen| Some((got(seen)?, seen)));
        events.extend(gots.filter(|(value, _)| !forgotten.contains(value)).map(|(value, seen)| Event {
            span: seen.span,
            client: seen.client,
            what: ByteOp::Got(number, value),
            is_certain: true,
        }));
    }
    events
}

/// Returns whether a swap may have met the change half done. The change is then repeated as a
/// whole, on the objects on which it began, wherever they are.
fn may_be_done_twice(c: &Changed, swaps: &[(usize, Span)]) -> bool {
    let meets = |(_, span): &(usize, Span)| !c.span.before(span) && !span.before(&c.span);
    c.change.is_of_several() && swaps.iter().any(meets)
}

/// Returns whether `seen` proves that the byte is beyond the end of the file. It proves nothing
/// while a truncate runs, which changes one object after another.
fn is_behind(files: &[History; 2], seen: &Seen, at: u64) -> bool {
    let ends = seen.size.is_some_and(|(size, or_more)| !or_more && at >= size);
    let cuts = |c: &Changed| matches!(c.change, FileChange::Cut { .. });
    let meets = |c: &Changed| !c.span.before(&seen.span) && !seen.span.before(&c.span);
    ends && !files.iter().flat_map(|file| &file.changes).any(|c| cuts(c) && (meets(c) || c.lost.is_some()))
}

#[cfg(test)]
mod tests {
    use super::{super::bytes::tests::write, *};

    fn read(from: u64, to: u64, number: u8) -> Seen {
        Seen { span: Span { from, to }, client: 1, offset: 10, runs: vec![(20, number)], size: Some((20, true)) }
    }

    fn empty(from: u64, to: u64) -> Seen {
        Seen { span: Span { from, to }, client: 1, offset: 0, runs: vec![], size: Some((0, false)) }
    }

    fn file(changes: &[Changed], seen: &[Seen]) -> History {
        History { changes: changes.to_vec(), seen: seen.to_vec(), ..History::default() }
    }

    fn legal(one: History, other: History, swaps: &[(u64, u64)]) -> bool {
        let swaps: Vec<(usize, Span)> = swaps.iter().map(|&(from, to)| (2, Span { from, to })).collect();
        check(&[one, other], &swaps).is_ok()
    }

    #[test]
    fn swap_moves_bytes_to_the_other_file_once() {
        let one = |seen: &[Seen]| file(&[write(1, 2, 1)], seen);
        let swap = [(5, 6)];
        assert!(legal(one(&[read(3, 4, 1), empty(7, 8)]), file(&[], &[empty(3, 4), read(7, 8, 1)]), &swap));
        assert!(!legal(one(&[read(7, 8, 1)]), file(&[], &[]), &swap), "the bytes stayed");
        assert!(!legal(one(&[]), file(&[], &[empty(7, 8)]), &swap), "the bytes are lost");
        assert!(!legal(one(&[empty(3, 4)]), file(&[], &[]), &swap), "the bytes moved too early");
        assert!(legal(one(&[read(7, 8, 1)]), file(&[], &[]), &[(5, Span::NEVER)]), "the swap may have failed");
        let twice = [(5, 6), (9, 10)];
        assert!(legal(one(&[empty(7, 8), read(11, 12, 1)]), file(&[], &[]), &twice));
    }

    #[test]
    fn write_during_a_swap_must_reach_exactly_one_file() {
        let swap = [(3, 9)];
        let one = |seen: &[Seen]| file(&[write(4, 8, 1)], seen);
        assert!(legal(one(&[read(10, 11, 1)]), file(&[], &[empty(10, 11)]), &swap));
        assert!(legal(one(&[empty(10, 11)]), file(&[], &[read(10, 11, 1)]), &swap));
        assert!(!legal(one(&[read(10, 11, 1)]), file(&[], &[read(10, 11, 1)]), &swap), "in both");
        assert!(!legal(one(&[empty(10, 11)]), file(&[], &[empty(10, 11)]), &swap), "in neither");
        let before = file(&[write(1, 2, 2)], &[read(10, 11, 2)]);
        assert!(!legal(one(&[read(10, 11, 1)]), before, &swap), "half a swap");
    }

    #[test]
    fn truncate_during_a_swap_may_finish_in_the_other_file() {
        let cut = |from, to| Changed { change: FileChange::Cut { size: 0 }, ..write(from, to, 0) };
        let legal =
            |cut, after: Seen| legal(file(&[], &[read(5, 6, 1), after]), file(&[write(1, 2, 1), cut], &[]), &[(3, 9)]);
        assert!(legal(cut(4, 12), empty(13, 14)), "the rest came after the swap");
        assert!(legal(cut(4, 12), read(13, 14, 1)), "the rest came to the file of that name");
        assert!(!legal(cut(10, 12), empty(13, 14)), "the truncate began after the swap");
    }
}
