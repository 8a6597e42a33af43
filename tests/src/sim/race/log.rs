//! A file to which many programs append. In the end each record is in it once, whole, and in order.
//! A read during the race saw a prefix of that.

use super::span::Span;
use crate::noise;

/// Size in bytes of a record's header: its number and its length.
const HEADER: usize = 8;

/// An append of one record.
#[derive(Clone, Copy, Debug)]
pub struct Append {
    /// Its time.
    pub span: Span,
    /// Index of its client.
    pub client: usize,
    /// Number of the record, not 0.
    pub number: u32,
    /// Length in bytes, [`HEADER`] included.
    pub len: usize,
    /// It may have been lost with its client, partly or completely.
    pub lost: bool,
}

/// A read of the whole file.
#[derive(Clone, Debug)]
pub struct Read {
    /// Its time.
    pub span: Span,
    /// Index of its client.
    pub client: usize,
    /// The bytes read.
    pub bytes: Vec<u8>,
}

/// All operations on such a file.
#[derive(Clone, Default, Debug)]
pub struct Log {
    /// The appends, in any order.
    pub appends: Vec<Append>,
    /// The reads, in any order. The last one follows the end of the race.
    pub reads: Vec<Read>,
}

/// Returns the bytes of a record.
pub fn record(number: u32, noise_len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(((HEADER + noise_len) as u32).to_le_bytes());
    bytes.extend(noise(u64::from(number), noise_len));
    bytes
}

/// A record and its offset.
struct Placed<'a> {
    append: &'a Append,
    at: usize,
}

impl Append {
    /// Returns whether the record must be in the file.
    fn is_certain(&self) -> bool {
        !self.lost && self.span.to != Span::NEVER
    }
}

impl Log {
    /// Checks the records and the reads.
    ///
    /// # Errors
    /// A description of the violation.
    pub fn check(&self) -> Result<(), String> {
        let Some(last) = self.reads.last() else { return Ok(()) };
        let placed = self.place(&last.bytes)?;
        for append in &self.appends {
            match placed.iter().filter(|p| p.append.number == append.number).count() {
                1 => {}
                0 if !append.is_certain() => {}
                0 => return Err(format!("{append:?} is lost")),
                n => return Err(format!("{append:?} is in the file {n} times")),
            }
        }
        for (i, earlier) in placed.iter().enumerate() {
            if let Some(later) = placed[i + 1..].iter().find(|later| later.append.span.before(&earlier.append.span)) {
                return Err(format!("{:?} is in the file after {:?}", later.append, earlier.append));
            }
        }
        self.reads.iter().try_for_each(|read| check_read(read, &placed, &last.bytes))
    }

    fn place(&self, bytes: &[u8]) -> Result<Vec<Placed<'_>>, String> {
        let uncertain: usize = self.appends.iter().filter(|a| !a.is_certain()).map(|a| a.len).sum();
        let (mut placed, mut at, mut gaps) = (Vec::new(), 0, 0);
        while at < bytes.len() {
            if let Some(append) = self.stands(&bytes[at..]) {
                placed.push(Placed { append, at });
                at += append.len;
            } else if gaps < uncertain {
                (gaps, at) = (gaps + 1, at + 1);
            } else {
                let header = &bytes[at..bytes.len().min(at + HEADER)];
                return Err(format!("no whole record at {at} of {}: {header:?}", bytes.len()));
            }
        }
        Ok(placed)
    }

    /// Returns the record with which `bytes` begin.
    fn stands(&self, bytes: &[u8]) -> Option<&Append> {
        let number = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        let append = self.appends.iter().find(|a| a.number == number)?;
        (bytes.get(..append.len)? == record(number, append.len - HEADER)).then_some(append)
    }
}

fn check_read(read: &Read, placed: &[Placed<'_>], all: &[u8]) -> Result<(), String> {
    let wrong = |p: &Placed<'_>, what: &str| {
        Err(format!("a read of {} bytes at {:?} saw {what} of {:?} at {}", read.bytes.len(), read.span, p.append, p.at))
    };
    for p in placed {
        let end = p.at + p.append.len;
        let there = &read.bytes[p.at.min(read.bytes.len())..end.min(read.bytes.len())];
        let whole = &all[p.at..end];
        if p.append.span.before(&read.span) && there != whole {
            return wrong(p, "nothing or only a part");
        }
        if read.span.before(&p.append.span) && !there.is_empty() {
            return wrong(p, "something, too early,");
        }
        if there.iter().zip(whole).any(|(a, b)| *a != 0 && a != b) {
            return wrong(p, "other bytes");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(from: u64, to: u64, number: u32) -> Append {
        Append { span: Span { from, to }, client: 0, number, len: HEADER + 20, lost: false }
    }

    fn read(from: u64, to: u64, numbers: &[u32]) -> Read {
        Read { span: Span { from, to }, client: 0, bytes: numbers.iter().flat_map(|n| record(*n, 20)).collect() }
    }

    fn legal(appends: &[Append], reads: &[Read]) -> bool {
        Log { appends: appends.to_vec(), reads: reads.to_vec() }.check().is_ok()
    }

    #[test]
    fn each_record_must_be_in_the_log_once_and_in_order() {
        let appends = [append(1, 2, 1), append(3, 6, 2), append(4, 5, 3)];
        assert!(legal(&appends, &[read(10, 11, &[1, 2, 3])]) && legal(&appends, &[read(10, 11, &[1, 3, 2])]));
        assert!(!legal(&appends, &[read(10, 11, &[2, 1, 3])]), "order");
        assert!(!legal(&appends, &[read(10, 11, &[1, 2])]), "lost");
        assert!(!legal(&appends, &[read(10, 11, &[1, 2, 3, 2])]), "twice");
        let mut torn = read(10, 11, &[1, 2, 3]);
        torn.bytes[40] ^= 1;
        assert!(!legal(&appends, &[torn]));
    }

    #[test]
    fn concurrent_read_must_see_a_prefix_of_the_log() {
        let appends = [append(1, 2, 1), append(3, 6, 2), append(8, 9, 3)];
        let legal = |r| legal(&appends, &[r, read(10, 11, &[1, 2, 3])]);
        assert!(legal(read(4, 5, &[1])) && legal(read(4, 5, &[1, 2])) && legal(read(7, 8, &[1, 2])));
        assert!(!legal(read(4, 5, &[])) && !legal(read(7, 8, &[1])) && !legal(read(4, 5, &[1, 2, 3])));
    }

    #[test]
    fn lost_append_may_leave_a_gap() {
        let appends = [append(1, 2, 1), Append { lost: true, ..append(3, 6, 2) }, append(8, 9, 3)];
        let mut torn = read(10, 11, &[1, 2, 3]);
        torn.bytes[28..36].fill(0);
        assert!(legal(&appends, &[torn]) && legal(&appends, &[read(10, 11, &[1, 3])]));
        assert!(!legal(&appends, &[read(10, 11, &[1, 2, 2, 3])]), "more than was ever appended");
    }
}
