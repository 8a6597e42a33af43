//! Stride detection: finds out from the last writes to a file whether they are records at multiples
//! of a distance, as in a file that several programs share. The programs of one client can write
//! their records in any order: the distance divides all steps from one write to the next.
//!
//! Such writers do best with locks on exactly the records that they are going to write, requested
//! ahead. Then no writer revokes the locks of another.

/// Number of steps forward, all multiples of one distance, that make a pattern. In random writes,
/// fewer would often be chance.
const SEEN_MIN: u32 = 3;

/// The last write to a file, and the distance that divides the last steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pattern {
    offset: u64,
    len: u64,
    distance: u64,
    /// Steps forward since the distance changed.
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
    /// Notes a write at an offset of the file. Returns the stride that it continues, if there is
    /// one.
    pub fn note(&mut self, offset: u64, len: u64) -> Option<Stride> {
        let (before, step) = (*self, offset.abs_diff(self.offset));
        *self = Pattern { offset, len, ..Pattern::default() };
        if len != before.len || step == 0 {
            return None;
        }
        let common = divisor(before.distance, step);
        // Records that touch each other are no stride, and a new one may begin.
        self.distance = if common > len { common } else { step };
        if self.distance == before.distance {
            self.seen = before.seen.saturating_add(u32::from(offset > before.offset));
        }
        let apart = self.distance > len && self.distance < 1 << 62;
        (self.seen >= SEEN_MIN && apart).then_some(Stride { distance: self.distance, len })
    }
}

/// Returns the greatest common divisor.
fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(writes: impl IntoIterator<Item = (u64, u64)>) -> Option<Stride> {
        let mut pattern = Pattern::default();
        writes.into_iter().fold(None, |_, (offset, len)| pattern.note(offset, len))
    }

    #[test]
    fn writes_at_multiples_of_a_distance_are_detected_as_stride() {
        let record = |i: u64| (i * 188_032 + 47_008, 47_008);
        let stride = Stride { distance: 188_032, len: 47_008 };
        let (few, enough) = (u64::from(SEEN_MIN) + 1, u64::from(SEEN_MIN) + 2);
        assert_eq!(noted((0..few).map(record)), None, "few could be chance");
        assert_eq!(noted((0..enough).map(record)), Some(stride));
        assert_eq!(noted((0..9).map(record).chain([(5, 47_008)])), None, "until it breaks");
        assert_eq!(noted((0..9).map(record).chain([(9 * 188_032 + 47_008, 4096)])), None, "another length");
        let gap = [0, 3, 6, 7, 10, 13, 16].map(record);
        assert_eq!(noted(gap), Some(stride), "other programs write the records between");
        let two = [0, 1, 3, 2, 5, 4, 7, 6, 9].map(record);
        assert_eq!(noted(two), Some(stride), "two programs, in any order");
        assert_eq!(stride.after(0, 2).collect::<Vec<_>>(), [(188_032, 235_039), (376_064, 423_071)]);
        assert_eq!(stride.after(u64::MAX - 200_000, 9).count(), 0, "there is nothing behind the end");
    }

    #[test]
    fn writes_without_constant_gaps_are_no_stride() {
        assert_eq!(noted((0u64..9).map(|i| (i * 4096, 4096))), None, "one after the other");
        assert_eq!(noted((0..9).map(|_| (0u64, 4096u64))), None, "over and over");
        assert_eq!(noted((0..9).rev().map(|i| (i * 8192, 4096))), None, "backwards");
        assert_eq!(noted((0..9).map(|i| (i * i * 4096, 4096))), None, "ever further");
        let blocks = (0..9).map(|i| (i % 2 * 409_600 + i / 2 * 4096, 4096));
        assert_eq!(noted(blocks), None, "two programs, each one after the other");
    }
}
