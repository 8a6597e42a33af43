//! Medians, ranges and ratios. The machines are noisy, so means are only for the output of tools
//! whose originals show them ([`Spread`]).

/// Returns the median. For an even number of values, it is the mean of the two middle ones. `NaN`
/// for no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Formats a number with its noun: `1 task`, `2 tasks`.
pub fn counted(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns the ratios of the values of one side to those of the other side in the same round.
pub fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(a, b)| a / b).collect()
}

/// Returns the minimum and the maximum.
pub fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}

/// Maximum, minimum, mean and standard deviation, as IOR's summary shows them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spread {
    /// Maximum.
    pub max: f64,
    /// Minimum.
    pub min: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the values, all of which are known.
    pub deviation: f64,
}

impl Spread {
    /// Computes the spread of some values; zeros for no values.
    pub fn of(values: &[f64]) -> Spread {
        let (Some(max), Some(min)) = (values.iter().copied().reduce(f64::max), values.iter().copied().reduce(f64::min))
        else {
            return Spread::default();
        };
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count).sqrt();
        Spread { max, min, mean, deviation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_that_of_ior() {
        assert_eq!(Spread::of(&[1.0, 3.0]), Spread { max: 3.0, min: 1.0, mean: 2.0, deviation: 1.0 });
        assert_eq!(Spread::of(&[]), Spread::default());
    }

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_are_formed_within_a_round() {
        assert_eq!(ratios(&[2.0, 9.0], &[1.0, 3.0]), [2.0, 3.0]);
    }
}
