//! Stride detection: finds out from the last writes to an object whether they are records at equal
//! distances, as in a file that several programs share. Offsets are those of the file, because in
//! an object distances change where another object has a part of the file.
//!
//! Such writers do best with locks on exactly the records that they are going to write, requested
//! ahead. Then no writer revokes the locks of another.

/// Number of equal distances in a row that make a pattern.
const SEEN_MIN: u32 = 2;

/// The last write to an object, and how often its distance was repeated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pattern {
    /// In the file.
    offset: u64,
    len: u64,
    distance: u64,
    seen: u32,
}

/// Records at equal distances, with gaps between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stride {
    /// From the start of one record to the start of the next, in bytes.
    pub distance: u64,
    /// Length of a record in bytes.
    pub len: u64,
}

impl Stride {
    /// Returns the first and last byte of up to `count` records after the one at `offset`.
    pub fn after(self, offset: u64, count: usize) -> impl Iterator<Item = (u64, u64)> {
        let start = move |i: u64| offset.checked_add(self.distance.checked_mul(i)?);
        (1..=count as u64).map_while(start).map_while(move |start| Some((start, start.checked_add(self.len - 1)?)))
    }
}

impl Pattern {
    /// Notes a write. Returns the stride that it continues, if there is one. A stride goes on if it
    /// leaves out records: those are in other objects.
    pub fn note(&mut self, offset: u64, len: u64) -> Option<Stride> {
        let step = offset.wrapping_sub(self.offset);
        let left_out = self.seen >= SEEN_MIN && step > 0 && step.checked_rem(self.distance) == Some(0);
        let same = (step == self.distance || left_out) && len == self.len && len > 0;
        self.seen = if same { self.seen.saturating_add(1) } else { 0 };
        let distance = if same { self.distance } else { step };
        (self.offset, self.len, self.distance) = (offset, len, distance);
        let apart = distance > len && distance < 1 << 62;
        (self.seen >= SEEN_MIN && apart).then_some(Stride { distance, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(writes: impl IntoIterator<Item = (u64, u64)>) -> Option<Stride> {
        let mut pattern = Pattern::default();
        writes.into_iter().fold(None, |_, (offset, len)| pattern.note(offset, len))
    }

    #[test]
    fn writes_at_equal_distances_are_detected_as_stride() {
        let record = |i: u64| (i * 188_032 + 47_008, 47_008);
        assert_eq!(noted((0..3).map(record)), None, "two could be chance");
        let stride = Stride { distance: 188_032, len: 47_008 };
        assert_eq!(noted((0..4).map(record)), Some(stride));
        assert_eq!(noted((0..9).map(record).chain([(5, 47_008)])), None, "until it breaks");
        let with_gap = (0..4).chain(9..10).map(record);
        assert_eq!(noted(with_gap), Some(stride), "records 4 to 8 are in another object");
        assert_eq!(noted((0..4).map(record).chain([(5 * 188_032, 47_008)])), None, "not a whole distance");
        assert_eq!(stride.after(0, 2).collect::<Vec<_>>(), [(188_032, 235_039), (376_064, 423_071)]);
        assert_eq!(stride.after(u64::MAX - 200_000, 9).count(), 0, "there is nothing behind the end");
    }

    #[test]
    fn writes_without_constant_gaps_are_no_stride() {
        assert_eq!(noted((0u64..9).map(|i| (i * 4096, 4096))), None, "one after the other");
        assert_eq!(noted((0..9).map(|_| (0u64, 4096u64))), None, "over and over");
        assert_eq!(noted((0..9).rev().map(|i| (i * 8192, 4096))), None, "backwards");
        assert_eq!(noted((0..9).map(|i| (i * i * 8192, 4096))), None, "ever further");
    }
}
