//! The date and the time of day of a moment, in UTC and the Gregorian calendar.
//!
//! As `civil_from_days` of Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms": a year
//! begins on 1 March, so that the leap day is the last one, and an era has 400 years.

const DAY_SECONDS: i64 = 24 * 3600;
/// Days from 1 March of year 0 to 1 January 1970.
const EPOCH_DAYS: i64 = 719_468;
/// Days of an era.
const ERA_DAYS: i64 = 146_097;

/// A moment, as a calendar and a clock show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Utc {
    /// Days since 1 January 1970, a Thursday.
    pub days: i64,
    /// Year; 0 is the year before year 1.
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// Day of the month, from 1.
    pub day: i64,
    /// 0 to 23.
    pub hour: i64,
    /// 0 to 59.
    pub minute: i64,
    /// 0 to 59.
    pub second: i64,
}

impl Utc {
    /// Converts seconds since 1970.
    pub fn at(seconds: i64) -> Utc {
        let (days, second) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
        let from_era = days + EPOCH_DAYS;
        let (era, of_era) = (from_era.div_euclid(ERA_DAYS), from_era.rem_euclid(ERA_DAYS));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Utc {
            days,
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month,
            day: of_year - (153 * from_march + 2) / 5 + 1,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Utc;

    #[test]
    fn seconds_are_converted_to_dates_and_times() {
        for (seconds, date, time) in [
            (0, (1970, 1, 1), (0, 0, 0)),
            (-1, (1969, 12, 31), (23, 59, 59)),
            (951_782_399, (2000, 2, 28), (23, 59, 59)),
            (951_782_400, (2000, 2, 29), (0, 0, 0)),
            (1_709_251_199, (2024, 2, 29), (23, 59, 59)),
            (4_107_542_400, (2100, 3, 1), (0, 0, 0)),
            (253_402_300_799, (9999, 12, 31), (23, 59, 59)),
        ] {
            let utc = Utc::at(seconds);
            assert_eq!((utc.year, utc.month, utc.day), date, "{seconds}");
            assert_eq!((utc.hour, utc.minute, utc.second), time, "{seconds}");
        }
        assert_eq!([Utc::at(-1).days, Utc::at(86_400).days], [-1, 1]);
        // The largest and the smallest time do not overflow.
        assert!(Utc::at(i64::MIN).year < 0 && Utc::at(i64::MAX).year > 0);
    }
}
