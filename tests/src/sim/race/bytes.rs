//! Data and sizes of a file: checks whether reads and stats returned legal values.
//!
//! Every write fills its range with a number of its own ([`fill`]). So a byte that was read
//! identifies its write ([`number`]). Zero comes from no write: from a truncate or a hole, or from
//! before the first write. A byte is then a register whose writes are all different. For such
//! registers, "is there a legal order?" has an exact answer (Gibbons and Korach 1997). All
//! operations on one value must be consecutive. From the end of the first of them to the start of
//! the last of them, the byte has that value and no other. So these periods of two values may not
//! overlap, and no operation that gives the byte another value may lie within one.
//!
//! Zeros may come from several operations. The check asks whether one of them can explain the read.
//! A size must lie between what must have been written and what can have been written. Writes of
//! several stripes are not atomic, so the size during such a write is undefined.
//!
//! **Lost writes.** If a client died or was evicted, a write that it had not synced may be lost,
//! byte by byte. If no other client has seen the write, it counts as if it had never been, and so
//! do the client's own reads of it.

use std::collections::BTreeSet;

use super::span::Span;

/// Numbers of writes: 1 to this number.
pub const NUMBERS: u8 = 255;

/// Alignment of stripes in bytes. No stripe is shorter, and all stripes end at multiples of this.
const UNIT: u64 = 64 << 10;

/// A change of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileChange {
    /// Writes the write's number to a range.
    Write {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Number of the write.
        number: u8,
    },
    /// Truncates the file.
    Cut {
        /// New size in bytes.
        size: u64,
    },
    /// Punches a hole: zeros a range, and does not extend the file.
    Hole {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// A change with its time.
#[derive(Clone, Copy, Debug)]
pub struct Changed {
    /// Its time.
    pub span: Span,
    /// Index of its client.
    pub client: usize,
    /// The change.
    pub change: FileChange,
    /// Set if the change may have been lost: the time until which its own client may still have
    /// seen it.
    pub lost: Option<u64>,
}

/// A read or a stat of a file.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its time.
    pub span: Span,
    /// Index of its client.
    pub client: usize,
    /// First byte of a read.
    pub offset: u64,
    /// Bytes read, as runs of one number: (end offset, number).
    pub runs: Vec<(u64, u8)>,
    /// The size that it proves, and whether the file may have been larger.
    pub size: Option<(u64, bool)>,
}

/// The changes that may be executed twice, with changes of other clients in between.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MayRepeat {
    /// None.
    #[default]
    None,
    /// Changes of several objects, for a file that is migrated. If the migration has sealed some of
    /// the objects before they are changed, the client repeats the whole change.
    OfSeveral,
    /// All changes, for a file that has mirrors. During a change other mirrors may become the valid
    /// ones.
    Any,
}

impl MayRepeat {
    /// Returns whether this change may be executed twice.
    pub fn may(self, change: &FileChange) -> bool {
        match self {
            MayRepeat::None => false,
            MayRepeat::OfSeveral => change.is_of_several(),
            MayRepeat::Any => true,
        }
    }
}

/// All operations on the data of a file.
#[derive(Clone, Default, Debug)]
pub struct History {
    /// Whether the file is on several OSTs: of two concurrent truncates, each may be the last one
    /// on another OST.
    pub striped: bool,
    /// The changes that may be repeated at their end. A read before that end says nothing about the
    /// order of such a change.
    pub may_repeat: MayRepeat,
    /// The changes, in any order.
    pub changes: Vec<Changed>,
    /// The reads and stats, in any order.
    pub seen: Vec<Seen>,
}

/// Returns a number that varies with the offset, so that the bytes of one write differ from each
/// other.
fn shift(at: u64) -> u64 {
    (at ^ (at >> 9) ^ (at >> 16)).wrapping_mul(7) % 255
}

/// Returns the bytes of a write.
pub fn fill(number: u8, offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| ((u64::from(number) - 1 + shift(at)) % 255) as u8 + 1).collect()
}

/// Returns the number of the write that wrote a byte. 0: no write.
pub fn number(at: u64, byte: u8) -> u8 {
    if byte == 0 { 0 } else { ((u64::from(byte) - 1 + 255 - shift(at)) % 255) as u8 + 1 }
}

/// Splits bytes that were read at `offset` into runs of one number: (end offset, number).
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

impl FileChange {
    /// Returns the bytes that the change touches, as (start, end).
    pub fn range(&self) -> (u64, u64) {
        match *self {
            FileChange::Write { offset, len, .. } | FileChange::Hole { offset, len } => (offset, offset + len),
            FileChange::Cut { size } => (size, u64::MAX),
        }
    }

    /// Returns whether the change may touch several objects.
    pub fn is_of_several(&self) -> bool {
        let (start, end) = self.range();
        start / UNIT != (end - 1).max(start) / UNIT
    }

    /// Returns the number of the changed bytes after the change. 0 for zeros.
    pub fn number(&self) -> u8 {
        match self {
            FileChange::Write { number, .. } => *number,
            _ => 0,
        }
    }

    /// Returns the minimum size of the file after the change.
    pub fn end(&self) -> Option<u64> {
        match *self {
            FileChange::Write { len: 0, .. } | FileChange::Hole { .. } => None,
            FileChange::Write { offset, len, .. } => Some(offset + len),
            FileChange::Cut { size } => Some(size),
        }
    }

    fn cut(&self) -> Option<u64> {
        if let FileChange::Cut { size } = self { Some(*size) } else { None }
    }
}

impl Seen {
    fn end(&self) -> u64 {
        self.runs.last().map_or(self.offset, |run| run.0)
    }

    /// Returns the number of the write that wrote a byte of this read. `None`: the byte was not
    /// read.
    pub fn at(&self, at: u64) -> Option<u8> {
        if at < self.offset {
            return None;
        }
        self.runs.get(self.runs.partition_point(|run| run.0 <= at)).map(|run| run.1)
    }
}

impl History {
    /// Checks whether some legal order explains all operations.
    ///
    /// # Errors
    /// A description of the contradiction.
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
        Byte { changes, reads, may_repeat: self.may_repeat }
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

    /// Returns the minimum size at the time of a stat. Changes that had certainly ended count.
    /// Truncates that may have come after them reduce the size.
    fn least(&self, look: &Span) -> u64 {
        let mixed = |c: &Changed, t: &Changed| !c.span.before(&t.span) && !t.span.before(&c.span) && c.span != t.span;
        let end_after_cuts = |c: &Changed| {
            let cuts = || self.changes.iter().filter(|t| t.change.cut().is_some());
            if self.striped && c.change.cut().is_some() && cuts().any(|t| mixed(c, t)) {
                return None;
            }
            let end = c.change.end()?;
            let later = |t: &&Changed| t.span.from < look.to && t.span.to > c.span.from;
            // On one OST the truncate is done. On the OST that is to hold the new end it may not
            // be.
            let halfway = |t: &Changed| self.striped && !t.span.before(look);
            let size = |t: &Changed| t.change.cut().map(|size| if halfway(t) { 0 } else { size });
            let cuts = self.changes.iter().filter(later).filter_map(size);
            Some(cuts.fold(end, u64::min))
        };
        let certain = self.changes.iter().filter(|c| c.lost.is_none() && c.span.before(look));
        certain.filter_map(end_after_cuts).max().unwrap_or(0)
    }

    /// Returns the maximum size. Changes that may have been done count. Truncates that certainly
    /// came after them reduce the size.
    fn most(&self, look: &Span) -> u64 {
        let end_after_cuts = |c: &Changed| {
            let end = c.change.end()?;
            let later = |t: &&Changed| c.span.before(&t.span) && t.span.before(look);
            let cuts = self.changes.iter().filter(later).filter_map(|t| t.change.cut());
            Some(cuts.fold(end, u64::min))
        };
        let possible = self.changes.iter().filter(|c| c.span.from < look.to);
        possible.filter_map(end_after_cuts).max().unwrap_or(0)
    }
}

/// All operations on one byte.
struct Byte<'a> {
    changes: Vec<&'a Changed>,
    reads: Vec<(u8, &'a Seen)>,
    may_repeat: MayRepeat,
}

/// The period of one value. If `from < to`, the byte certainly has the value from `from` to `to`.
/// Otherwise it has the value at some moment between `to` and `from`.
struct ValuePeriod {
    number: u8,
    from: u64,
    to: u64,
}

impl ValuePeriod {
    fn is_period(&self) -> bool {
        self.from < self.to
    }

    /// Returns whether the interval lies within the period.
    fn holds(&self, from: u64, to: u64) -> bool {
        self.from < from && to < self.to
    }
}

impl Byte<'_> {
    fn check(&self) -> Result<(), String> {
        let periods = self.periods()?;
        for (i, a) in periods.iter().enumerate() {
            for (j, b) in periods.iter().enumerate() {
                let (earlier, later) = (a.from.max(b.from), a.to.min(b.to));
                let both = i < j && a.is_period() && b.is_period() && earlier < later;
                let within = i != j && a.is_period() && !b.is_period() && a.holds(b.to, b.from);
                if both || within {
                    return Err(self.describe(&format!("it cannot alternate between {} and {}", a.number, b.number)));
                }
            }
            let zeros = self.changes.iter().filter(|c| c.change.number() == 0);
            if zeros.clone().any(|z| a.is_period() && a.holds(z.span.from, z.span.to)) {
                return Err(self.describe(&format!("{} survived a truncate or a hole", a.number)));
            }
            if self.reads.iter().any(|(n, r)| *n == 0 && a.is_period() && a.holds(r.span.from, r.span.to)) {
                return Err(self.describe(&format!("zero was read while the value was {}", a.number)));
            }
        }
        match self.reads.iter().find(|(n, read)| *n == 0 && !self.may_be_zero(&read.span, &periods)) {
            Some((_, read)) => Err(self.describe(&format!("client {} read zero at {:?}", read.client, read.span))),
            None => Ok(()),
        }
    }

    /// Returns the zones of all values, except for those of lost writes that no other client has
    /// seen.
    fn periods(&self) -> Result<Vec<ValuePeriod>, String> {
        let mut periods = Vec::new();
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
                return Err(self.describe(&format!("{number} was read at {:?}, before it was written", read.span)));
            }
            let counts = |span: &Span| !self.may_repeat.may(&write.change) || write.span.before(span);
            let spans = || reads.iter().map(|r| r.span).filter(counts).chain([write.span]);
            let (from, to) = (spans().map(|s| s.to).min(), spans().map(|s| s.from).max());
            periods.push(ValuePeriod { number, from: from.unwrap_or(0), to: to.unwrap_or(0) });
        }
        let unknown = |n: &u8| *n != 0 && writes.iter().all(|w| w.change.number() != *n);
        match self.reads.iter().find(|(n, _)| unknown(n)) {
            Some((n, _)) => Err(self.describe(&format!("no client wrote {n} there"))),
            None => Ok(periods),
        }
    }

    /// Returns whether the byte may have been zero at some moment of a read: before the first
    /// write, or by a truncate or hole that no other value certainly followed.
    fn may_be_zero(&self, look: &Span, periods: &[ValuePeriod]) -> bool {
        let covered = |zero_to: Option<u64>| {
            let after = |period: &&ValuePeriod| zero_to.is_none_or(|to| to < period.to);
            periods.iter().filter(after).any(|period| period.from < look.from)
        };
        let mut zeros = self.changes.iter().filter(|c| c.change.number() == 0 && c.span.from < look.to);
        !covered(None) || zeros.any(|z| !covered(Some(z.span.to)))
    }

    fn describe(&self, what: &str) -> String {
        let mut lines: Vec<(u64, String)> = Vec::new();
        for c in &self.changes {
            let lost = if c.lost.is_some() { ", possibly lost" } else { "" };
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
pub(super) mod tests {
    use super::*;

    /// A write of 10 bytes at offset 10.
    pub fn write(from: u64, to: u64, number: u8) -> Changed {
        let change = FileChange::Write { offset: 10, len: 10, number };
        Changed { span: Span { from, to }, client: 0, change, lost: None }
    }

    fn cut(from: u64, to: u64, size: u64) -> Changed {
        Changed { span: Span { from, to }, client: 0, change: FileChange::Cut { size }, lost: None }
    }

    fn read(from: u64, to: u64, client: usize, number: u8) -> Seen {
        Seen { span: Span { from, to }, client, offset: 10, runs: vec![(20, number)], size: Some((20, true)) }
    }

    fn sized(from: u64, to: u64, size: u64) -> Seen {
        Seen { span: Span { from, to }, client: 1, offset: 0, runs: vec![], size: Some((size, false)) }
    }

    fn legal(changes: &[Changed], seen: &[Seen]) -> bool {
        let history = History { changes: changes.to_vec(), seen: seen.to_vec(), ..History::default() };
        assert!(history.check().is_err() || History { may_repeat: MayRepeat::Any, ..history.clone() }.check().is_ok());
        history.check().is_ok()
    }

    #[test]
    fn bytes_identify_their_write() {
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
    fn read_must_return_the_last_write() {
        let writes = [write(1, 2, 1), write(3, 4, 2)];
        assert!(legal(&writes, &[read(5, 6, 1, 2)]));
        assert!(!legal(&writes, &[read(5, 6, 1, 1)]));
        assert!(!legal(&writes, &[read(5, 6, 1, 0)]));
        assert!(!legal(&writes, &[read(5, 6, 1, 3)]));
        assert!(!legal(&[write(7, 8, 1)], &[read(5, 6, 1, 1)]), "from the future");
    }

    #[test]
    fn concurrent_writes_must_be_read_in_one_order() {
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
    fn truncated_bytes_must_not_be_read() {
        let changes = [write(1, 2, 1), cut(3, 4, 15)];
        let half = |n| Seen { runs: vec![(15, 1), (20, n)], ..read(5, 6, 1, 1) };
        assert!(!legal(&changes, &[half(1)]));
        assert!(!legal(&changes, &[half(0)]), "the file is shorter");
        assert!(legal(&[changes[0], changes[1], cut(4, 5, 20)], &[half(0)]));
        assert!(legal(&[changes[0], cut(3, 9, 15)], &[half(1)]));
        assert!(!legal(&[changes[0], cut(3, 7, 15)], &[half(1), Seen { span: Span { from: 8, to: 9 }, ..half(1) }]));
    }

    #[test]
    fn sizes_must_lie_between_certain_and_possible_writes() {
        let changes = [write(1, 2, 1), cut(3, 6, 5)];
        let sizes = |look: fn(u64) -> Seen| (0..30).filter(|s| legal(&changes, &[look(*s)])).collect::<Vec<_>>();
        assert_eq!(sizes(|s| sized(3, 4, s)), (5..=20).collect::<Vec<_>>(), "stripes are cut one by one");
        assert_eq!(sizes(|s| sized(7, 8, s)), [5]);
        assert!(legal(&[], &[sized(1, 2, 0)]) && !legal(&[], &[sized(1, 2, 1)]));
    }

    #[test]
    fn lost_write_may_be_seen_only_by_its_own_client() {
        let lost = Changed { lost: Some(9), ..write(3, 4, 2) };
        let changes = [write(1, 2, 1), lost];
        assert!(legal(&changes, &[read(5, 6, 0, 2), read(10, 11, 1, 1)]));
        assert!(legal(&changes, &[read(5, 6, 0, 2), read(10, 11, 1, 2)]), "or it is not lost");
        assert!(!legal(&changes, &[read(5, 6, 1, 2), read(10, 11, 1, 1)]), "another client saw it");
        assert!(!legal(&changes, &[read(10, 11, 0, 2), read(12, 13, 0, 1)]), "its client saw it later");
        assert!(!legal(&[write(1, 2, 1), write(3, 4, 2)], &[read(5, 6, 0, 2), read(10, 11, 1, 1)]));
    }
}
