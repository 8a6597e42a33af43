//! What reads of a file may have returned, and its size been.
//!
//! Every write fills its range with a number of its own ([`fill`]), so a byte that was read tells
//! which write it is from ([`number`]); zero is from nobody, a cut or a hole. A byte is then a
//! register whose writes are all different, for which "is there a legal order?" has an exact answer
//! (Gibbons and Korach 1997). All operations on one value belong together and must be consecutive:
//! from the moment at which the first of them is over to the moment at which the last of them
//! begins, the byte has that value and no other. So these periods of two values may not overlap,
//! and nothing that gives it another value may lie within one.
//!
//! Zeros may come from several operations; of them it is asked whether one of these can explain the
//! read. Of sizes it is asked whether they lie within what must and what can have been written:
//! writes of several stripes are not atomic, and what a size was in their midst nobody knows.
//!
//! **What may be lost.** Of a client that died or was given up, a write that it had not synced may
//! have vanished, byte by byte. If nobody else has seen it, it counts as if it had never been, and
//! so does what the client itself saw of it.

use std::collections::BTreeSet;

use super::span::Span;

/// Numbers of writes: 1 to this.
pub const NUMBERS: u8 = 255;

/// In bytes: no stripe is shorter, and none ends elsewhere than at a multiple of this.
const UNIT: u64 = 64 << 10;

/// What a change does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Gives bytes this number.
    Write {
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
        /// Which.
        number: u8,
    },
    /// Makes this the size.
    Cut {
        /// In bytes.
        size: u64,
    },
    /// Zeros, where the file has bytes.
    Hole {
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
    },
}

/// A change, and when.
#[derive(Clone, Copy, Debug)]
pub struct Changed {
    /// When.
    pub span: Span,
    /// Whose.
    pub client: usize,
    /// What.
    pub change: Change,
    /// It may have been lost, and this long its client could see it nonetheless.
    pub lost: Option<u64>,
}

/// What somebody saw of a file.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When.
    pub span: Span,
    /// Who.
    pub client: usize,
    /// First byte of a read.
    pub offset: u64,
    /// Bytes read, as ends of runs of one number.
    pub runs: Vec<(u64, u8)>,
    /// The size that it proves, and whether the file may have been larger.
    pub size: Option<(u64, bool)>,
}

/// Changes that may be done twice, with those of others in between.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Redone {
    /// None.
    #[default]
    None,
    /// Those of several objects, of a file that is migrated: some objects are closed before they
    /// are changed, and all of it is done again.
    OfSeveral,
    /// Any that takes long, of a file that has mirrors: others count by then.
    Any,
}

impl Redone {
    /// Whether this one may.
    pub fn may(self, change: &Change) -> bool {
        match self {
            Redone::None => false,
            Redone::OfSeveral => change.is_of_several(),
            Redone::Any => true,
        }
    }
}

/// What was done to a file, and seen of it.
#[derive(Clone, Default, Debug)]
pub struct History {
    /// It lies on several OSTs: of two cuts at the same time each may win on one of them.
    pub striped: bool,
    /// Which changes may be done once more at their end, so that what was seen of them before says
    /// nothing.
    pub redone: Redone,
    /// In any order.
    pub changes: Vec<Changed>,
    /// In any order.
    pub seen: Vec<Seen>,
}

/// What makes the bytes of one write differ from one place to the next.
fn shift(at: u64) -> u64 {
    (at ^ (at >> 9) ^ (at >> 16)).wrapping_mul(7) % 255
}

/// The bytes of a write.
pub fn fill(number: u8, offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| ((u64::from(number) - 1 + shift(at)) % 255) as u8 + 1).collect()
}

/// From which write a byte is; 0: from none.
pub fn number(at: u64, byte: u8) -> u8 {
    if byte == 0 { 0 } else { ((u64::from(byte) - 1 + 255 - shift(at)) % 255) as u8 + 1 }
}

/// Bytes that were read at `offset`, as ends of runs of one number.
pub fn runs<'a>(offset: u64, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<(u64, u8)> {
    let mut runs: Vec<(u64, u8)> = Vec::new();
    let mut at = offset;
    for byte in pieces.flatten() {
        let n = number(at, *byte);
        at += 1;
        match runs.last_mut() {
            Some((end, last)) if *last == n => *end = at,
            _ => runs.push((at, n)),
        }
    }
    runs
}

impl Change {
    /// The bytes that it touches.
    pub fn range(&self) -> (u64, u64) {
        match *self {
            Change::Write { offset, len, .. } | Change::Hole { offset, len } => (offset, offset + len),
            Change::Cut { size } => (size, u64::MAX),
        }
    }

    /// Whether it may be one of several objects.
    pub fn is_of_several(&self) -> bool {
        let (start, end) = self.range();
        start / UNIT != (end - 1).max(start) / UNIT
    }

    /// What it makes of them.
    pub fn number(&self) -> u8 {
        match self {
            Change::Write { number, .. } => *number,
            _ => 0,
        }
    }

    /// The size that the file has afterwards, at least.
    pub fn end(&self) -> Option<u64> {
        match *self {
            Change::Write { len: 0, .. } | Change::Hole { .. } => None,
            Change::Write { offset, len, .. } => Some(offset + len),
            Change::Cut { size } => Some(size),
        }
    }

    fn cut(&self) -> Option<u64> {
        if let Change::Cut { size } = self { Some(*size) } else { None }
    }
}

impl Seen {
    fn end(&self) -> u64 {
        self.runs.last().map_or(self.offset, |run| run.0)
    }

    /// From which write a byte was that was read; `None`: it was not read.
    pub fn at(&self, at: u64) -> Option<u8> {
        if at < self.offset {
            return None;
        }
        self.runs.get(self.runs.partition_point(|run| run.0 <= at)).map(|run| run.1)
    }
}

impl History {
    /// Whether some legal order explains everything.
    ///
    /// # Errors
    /// What cannot be.
    pub fn check(&self) -> Result<(), String> {
        self.check_sizes()?;
        let changes = self.changes.iter().flat_map(|c| [c.change.range().0, c.change.range().1]);
        let seen = self.seen.iter().flat_map(|s| s.runs.iter().map(|r| r.0).chain([s.offset]));
        let edges: BTreeSet<u64> = changes.chain(seen).collect();
        edges.into_iter().try_for_each(|at| self.byte(at).check().map_err(|what| format!("byte {at}: {what}")))
    }

    fn byte(&self, at: u64) -> Byte<'_> {
        let covers = |c: &&Changed| (c.change.range().0..c.change.range().1).contains(&at);
        let changes: Vec<&Changed> = self.changes.iter().filter(covers).collect();
        let reads: Vec<(u8, &Seen)> = self.seen.iter().filter_map(|s| Some((s.at(at)?, s))).collect();
        Byte { changes, reads, redone: self.redone }
    }

    fn check_sizes(&self) -> Result<(), String> {
        for seen in &self.seen {
            let Some((size, or_more)) = seen.size else { continue };
            let (least, most) = (self.least(&seen.span), self.most(&seen.span));
            if size > most || !or_more && size < least {
                return Err(format!("{seen:?}: the size must be {least} to {most}"));
            }
        }
        Ok(())
    }

    /// What the size was at least, for who looked then: what was there for certain, but for cuts
    /// that may have come after.
    fn least(&self, look: &Span) -> u64 {
        let mixed = |c: &Changed, t: &Changed| !c.span.before(&t.span) && !t.span.before(&c.span) && c.span != t.span;
        let kept = |c: &Changed| {
            let cuts = || self.changes.iter().filter(|t| t.change.cut().is_some());
            if self.striped && c.change.cut().is_some() && cuts().any(|t| mixed(c, t)) {
                return None;
            }
            let end = c.change.end()?;
            let later = |t: &&Changed| t.span.from < look.to && t.span.to > c.span.from;
            // On one OST it is cut already, and on another one not made as long as it shall be.
            let halfway = |t: &Changed| self.striped && !t.span.before(look);
            let size = |t: &Changed| t.change.cut().map(|size| if halfway(t) { 0 } else { size });
            let cuts = self.changes.iter().filter(later).filter_map(size);
            Some(cuts.fold(end, u64::min))
        };
        let certain = self.changes.iter().filter(|c| c.lost.is_none() && c.span.before(look));
        certain.filter_map(kept).max().unwrap_or(0)
    }

    /// What it was at most: what may have been there, but for cuts that came after for certain.
    fn most(&self, look: &Span) -> u64 {
        let kept = |c: &Changed| {
            let end = c.change.end()?;
            let later = |t: &&Changed| c.span.before(&t.span) && t.span.before(look);
            let cuts = self.changes.iter().filter(later).filter_map(|t| t.change.cut());
            Some(cuts.fold(end, u64::min))
        };
        let possible = self.changes.iter().filter(|c| c.span.from < look.to);
        possible.filter_map(kept).max().unwrap_or(0)
    }
}

/// What happened to one byte.
struct Byte<'a> {
    changes: Vec<&'a Changed>,
    reads: Vec<(u8, &'a Seen)>,
    redone: Redone,
}

/// From when to when a byte has one value for certain, if `from < to`; else from `to` to `from` it
/// has it at some moment.
struct Zone {
    number: u8,
    from: u64,
    to: u64,
}

impl Zone {
    fn is_period(&self) -> bool {
        self.from < self.to
    }

    /// Whether all of that lies within the period.
    fn holds(&self, from: u64, to: u64) -> bool {
        self.from < from && to < self.to
    }
}

impl Byte<'_> {
    fn check(&self) -> Result<(), String> {
        let zones = self.zones()?;
        for (i, a) in zones.iter().enumerate() {
            for (j, b) in zones.iter().enumerate() {
                let (earlier, later) = (a.from.max(b.from), a.to.min(b.to));
                let both = i < j && a.is_period() && b.is_period() && earlier < later;
                let within = i != j && a.is_period() && !b.is_period() && a.holds(b.to, b.from);
                if both || within {
                    return Err(self.told(&format!("it cannot have been {} and {} in turn", a.number, b.number)));
                }
            }
            let zeros = self.changes.iter().filter(|c| c.change.number() == 0);
            if zeros.clone().any(|z| a.is_period() && a.holds(z.span.from, z.span.to)) {
                return Err(self.told(&format!("{} outlived a cut or a hole", a.number)));
            }
            if self.reads.iter().any(|(n, r)| *n == 0 && a.is_period() && a.holds(r.span.from, r.span.to)) {
                return Err(self.told(&format!("zero was read while it was {}", a.number)));
            }
        }
        match self.reads.iter().find(|(n, read)| *n == 0 && !self.may_be_zero(&read.span, &zones)) {
            Some((_, read)) => Err(self.told(&format!("client {} read zero at {:?}", read.client, read.span))),
            None => Ok(()),
        }
    }

    /// Of each value that counts. Without those that were lost, which nobody is any the wiser of.
    fn zones(&self) -> Result<Vec<Zone>, String> {
        let mut zones = Vec::new();
        let mut writes: Vec<&&Changed> = self.changes.iter().filter(|c| c.change.number() != 0).collect();
        writes.sort_by_key(|w| w.span.from);
        for write in &writes {
            let number = write.change.number();
            let reads: Vec<&Seen> = self.reads.iter().filter(|(n, _)| *n == number).map(|(_, r)| *r).collect();
            let own = |r: &&Seen| write.lost.is_some_and(|until| r.client == write.client && r.span.from < until);
            if write.lost.is_some() && reads.iter().all(own) {
                continue;
            }
            if let Some(read) = reads.iter().find(|r| r.span.to < write.span.from) {
                return Err(self.told(&format!("{number} was read at {:?}, before it was written", read.span)));
            }
            let counts = |span: &Span| !self.redone.may(&write.change) || write.span.before(span);
            let spans = || reads.iter().map(|r| r.span).filter(counts).chain([write.span]);
            let (from, to) = (spans().map(|s| s.to).min(), spans().map(|s| s.from).max());
            zones.push(Zone { number, from: from.unwrap_or(0), to: to.unwrap_or(0) });
        }
        let unknown = |n: &u8| *n != 0 && writes.iter().all(|w| w.change.number() != *n);
        match self.reads.iter().find(|(n, _)| unknown(n)) {
            Some((n, _)) => Err(self.told(&format!("nobody wrote {n} there"))),
            None => Ok(zones),
        }
    }

    /// Whether it was zero at some moment of a look: at first, or by a cut or hole after which no
    /// other value came for certain.
    fn may_be_zero(&self, look: &Span, zones: &[Zone]) -> bool {
        let covered = |zero_to: Option<u64>| {
            let after = |zone: &&Zone| zero_to.is_none_or(|to| to < zone.to);
            zones.iter().filter(after).any(|zone| zone.from < look.from)
        };
        let mut zeros = self.changes.iter().filter(|c| c.change.number() == 0 && c.span.from < look.to);
        !covered(None) || zeros.any(|z| !covered(Some(z.span.to)))
    }

    fn told(&self, what: &str) -> String {
        let mut lines: Vec<(u64, String)> = Vec::new();
        for c in &self.changes {
            let lost = if c.lost.is_some() { ", lost perhaps" } else { "" };
            lines.push((c.span.from, format!("{:?} client {} {:?}{lost}", c.span, c.client, c.change)));
        }
        for (n, r) in &self.reads {
            lines.push((
                r.span.from,
                format!("{:?} client {} read {n} (from {} to {})", r.span, r.client, r.offset, r.end()),
            ));
        }
        lines.sort();
        let lines: Vec<String> = lines.into_iter().map(|l| l.1).collect();
        format!("{what}\n{}", lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(from: u64, to: u64, number: u8) -> Changed {
        let change = Change::Write { offset: 10, len: 10, number };
        Changed { span: Span { from, to }, client: 0, change, lost: None }
    }

    fn cut(from: u64, to: u64, size: u64) -> Changed {
        Changed { span: Span { from, to }, client: 0, change: Change::Cut { size }, lost: None }
    }

    fn read(from: u64, to: u64, client: usize, number: u8) -> Seen {
        Seen { span: Span { from, to }, client, offset: 10, runs: vec![(20, number)], size: Some((20, true)) }
    }

    fn sized(from: u64, to: u64, size: u64) -> Seen {
        Seen { span: Span { from, to }, client: 1, offset: 0, runs: vec![], size: Some((size, false)) }
    }

    fn legal(changes: &[Changed], seen: &[Seen]) -> bool {
        let history = History { changes: changes.to_vec(), seen: seen.to_vec(), ..History::default() };
        assert!(history.check().is_err() || History { redone: Redone::Any, ..history.clone() }.check().is_ok());
        history.check().is_ok()
    }

    #[test]
    fn bytes_tell_their_write() {
        for n in [1, 2, 254, 255] {
            for offset in [0, 511, 65_535, 1 << 33] {
                let bytes = fill(n, offset, 1000);
                assert!(bytes.iter().all(|b| *b != 0));
                assert_eq!(runs(offset, [&bytes[..10], &bytes[10..]].into_iter()), [(offset + 1000, n)]);
            }
        }
        assert!(runs(4096, [&fill(7, 0, 4096)[..]].into_iter()).len() > 1, "bytes at the wrong place are noticed");
    }

    #[test]
    fn the_last_write_is_read() {
        let writes = [write(1, 2, 1), write(3, 4, 2)];
        assert!(legal(&writes, &[read(5, 6, 1, 2)]));
        assert!(!legal(&writes, &[read(5, 6, 1, 1)]));
        assert!(!legal(&writes, &[read(5, 6, 1, 0)]));
        assert!(!legal(&writes, &[read(5, 6, 1, 3)]));
        assert!(!legal(&[write(7, 8, 1)], &[read(5, 6, 1, 1)]), "from the future");
    }

    #[test]
    fn what_is_written_at_the_same_time_is_read_in_one_order() {
        let writes = [write(1, 5, 1), write(2, 6, 2)];
        assert!(legal(&writes, &[read(7, 8, 1, 1)]) && legal(&writes, &[read(7, 8, 1, 2)]));
        assert!(legal(&writes, &[read(3, 4, 1, 0), read(3, 4, 2, 1)]));
        assert!(!legal(&writes, &[read(7, 8, 1, 1), read(9, 10, 2, 2)]));
        assert!(legal(&writes, &[read(2, 8, 1, 1), read(9, 10, 2, 2)]));
        assert!(!legal(&writes, &[read(2, 3, 1, 1), read(4, 5, 2, 0)]), "it was there before");
        let never = [write(1, Span::NEVER, 1)];
        assert!(legal(&never, &[read(5, 6, 1, 0), read(7, 8, 1, 1)]), "at any time");
        assert!(!legal(&never, &[read(5, 6, 1, 1), read(7, 8, 1, 0)]));
    }

    #[test]
    fn a_cut_ends_what_was() {
        let changes = [write(1, 2, 1), cut(3, 4, 15)];
        let half = |n| Seen { runs: vec![(15, 1), (20, n)], ..read(5, 6, 1, 1) };
        assert!(!legal(&changes, &[half(1)]));
        assert!(!legal(&changes, &[half(0)]), "the file is shorter");
        assert!(legal(&[changes[0], changes[1], cut(4, 5, 20)], &[half(0)]));
        assert!(legal(&[changes[0], cut(3, 9, 15)], &[half(1)]));
        assert!(!legal(&[changes[0], cut(3, 7, 15)], &[half(1), Seen { span: Span { from: 8, to: 9 }, ..half(1) }]));
    }

    #[test]
    fn sizes_lie_between_what_is_certain_and_what_is_possible() {
        let changes = [write(1, 2, 1), cut(3, 6, 5)];
        let sizes = |look: fn(u64) -> Seen| (0..30).filter(|s| legal(&changes, &[look(*s)])).collect::<Vec<_>>();
        assert_eq!(sizes(|s| sized(3, 4, s)), (5..=20).collect::<Vec<_>>(), "stripes are cut one by one");
        assert_eq!(sizes(|s| sized(7, 8, s)), [5]);
        assert!(legal(&[], &[sized(1, 2, 0)]) && !legal(&[], &[sized(1, 2, 1)]));
    }

    #[test]
    fn what_is_lost_may_have_been_seen_by_its_client() {
        let lost = Changed { lost: Some(9), ..write(3, 4, 2) };
        let changes = [write(1, 2, 1), lost];
        assert!(legal(&changes, &[read(5, 6, 0, 2), read(10, 11, 1, 1)]));
        assert!(legal(&changes, &[read(5, 6, 0, 2), read(10, 11, 1, 2)]), "or it is not lost");
        assert!(!legal(&changes, &[read(5, 6, 1, 2), read(10, 11, 1, 1)]), "somebody else saw it");
        assert!(!legal(&changes, &[read(10, 11, 0, 2), read(12, 13, 0, 1)]), "its client saw it later");
        assert!(!legal(&[write(1, 2, 1), write(3, 4, 2)], &[read(5, 6, 0, 2), read(10, 11, 1, 1)]));
    }
}
