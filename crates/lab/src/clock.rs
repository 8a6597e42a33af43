//! The time of day, as the originals print it (in UTC).

use std::time::{SystemTime, UNIX_EPOCH};

/// Longest time that an option accepts.
pub const MAX_SECONDS: u64 = 365 * DAY_SECONDS;

const DAY_SECONDS: u64 = 86_400;
/// Days from 1 March of year 0 to 1 January 1970.
const EPOCH_DAYS: u64 = 719_468;
/// Days of 400 years.
const ERA_DAYS: u64 = 146_097;
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Returns the seconds since 1970.
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Returns the date of a moment in the form of [`Moment::ctime`]: `2026-11-28`. Returns any other
/// text as it is.
pub fn date(ctime: &str) -> String {
    let words: Vec<&str> = ctime.split_whitespace().collect();
    let [_, month, day, _, year] = words.as_slice() else { return ctime.to_owned() };
    match MONTHS.iter().position(|name| name == month) {
        Some(before) => format!("{year}-{:02}-{day:0>2}", before + 1),
        None => ctime.to_owned(),
    }
}

/// A moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    weekday: &'static str,
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Moment {
    /// Returns the present.
    pub fn now() -> Moment {
        Moment::at(seconds())
    }

    /// Converts seconds since 1970.
    pub fn at(seconds: u64) -> Moment {
        let (days, second) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
        // Years begin on 1 March, so that the leap day is the last one.
        let of_era = (days + EPOCH_DAYS) % ERA_DAYS;
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Moment {
            weekday: WEEKDAYS[(days % 7) as usize],
            year: (days + EPOCH_DAYS) / ERA_DAYS * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: of_year - (153 * from_march + 2) / 5 + 1,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }

    /// Formats it as IOR does: `Sat Nov 28 01:55:51 2026`.
    pub fn ctime(&self) -> String {
        let month = MONTHS[(self.month - 1) as usize];
        format!("{} {month} {:2} {} {}", self.weekday, self.day, self.clock(), self.year)
    }

    /// Formats it as mdtest does: `11/28/2026 01:55:51`.
    pub fn slashes(&self) -> String {
        format!("{:02}/{:02}/{} {}", self.month, self.day, self.year, self.clock())
    }

    /// Formats it as ISO 8601: `2026-11-28T01:55:51Z`.
    pub fn iso(&self) -> String {
        format!("{}-{:02}-{:02}T{}Z", self.year, self.month, self.day, self.clock())
    }

    fn clock(&self) -> String {
        format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_formatted_like_date_does() {
        for (seconds, iso) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_795_831_351, "2026-11-28T02:02:31Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Moment::at(seconds).iso(), iso);
        }
        let moment = Moment::at(1_795_831_351);
        assert_eq!(
            (moment.ctime().as_str(), moment.slashes().as_str()),
            ("Sat Nov 28 02:02:31 2026", "11/28/2026 02:02:31")
        );
        assert_eq!([date(&moment.ctime()), date("Thu Jan  1 00:00:00 1970")], ["2026-11-28", "1970-01-01"]);
        assert_eq!(date("2026-11-27"), "2026-11-27");
    }
}
