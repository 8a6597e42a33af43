//! Numbers to compare with, with the precision of a unit.

/// The comparison with the number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Less than the number.
    Less,
    /// Equal to the number.
    Equal,
    /// More than the number.
    More,
}

/// A range of numbers.
///
/// Sizes count in whole units, rounded up. With a unit of 1 MiB, a size equal to 5 MiB is more than
/// 4 MiB up to 5 MiB. Less than 5 MiB is at most 4 MiB. Ages count the units that have passed: with
/// a unit of a day, 3 days are 72 hours up to 96.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The comparison.
    pub side: Side,
    /// The number to compare with.
    pub value: u64,
    /// The unit, at least 1.
    pub unit: u64,
}

impl Range {
    /// Whether a count or a size is in the range.
    pub fn holds(self, value: u64) -> bool {
        // In 128 bits nothing overflows.
        let (value, limit, unit) = (u128::from(value), u128::from(self.value), u128::from(self.unit));
        match self.side {
            Side::Less => value + unit <= limit,
            Side::Equal => value <= limit && value + unit > limit,
            Side::More => value > limit,
        }
    }

    /// Whether an age in seconds is in the range. A time in the future has a negative age.
    pub fn holds_age(self, seconds: i64) -> bool {
        let (age, limit, unit) = (i128::from(seconds), i128::from(self.value), i128::from(self.unit));
        match self.side {
            Side::Less => age < limit,
            Side::Equal => age >= limit && age < limit + unit,
            Side::More => age >= limit + unit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_rounds_sizes_up_and_ages_down_to_units() {
        let range = |side| Range { side, value: 50, unit: 10 };
        let sizes = |side| [40, 41, 50, 51].map(|size| range(side).holds(size));
        assert_eq!(sizes(Side::Less), [true, false, false, false]);
        assert_eq!(sizes(Side::Equal), [false, true, true, false]);
        assert_eq!(sizes(Side::More), [false, false, false, true]);
        let ages = |side| [-1, 49, 50, 59, 60].map(|age| range(side).holds_age(age));
        assert_eq!(ages(Side::Less), [true, true, false, false, false]);
        assert_eq!(ages(Side::Equal), [false, false, true, true, false]);
        assert_eq!(ages(Side::More), [false, false, false, false, true]);
    }

    #[test]
    fn range_holds_largest_numbers() {
        let range = |side| Range { side, value: u64::MAX, unit: u64::MAX };
        assert!(range(Side::Equal).holds(u64::MAX) && !range(Side::More).holds(u64::MAX));
        assert!(range(Side::Less).holds(0) && !range(Side::Less).holds(1));
        assert!(range(Side::Less).holds_age(i64::MAX));
    }
}
