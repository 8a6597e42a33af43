//! The time of day, as the originals print it (in UTC).

use std::time::{SystemTime, UNIX_EPOCH};

use sheen_wire::Utc;

/// Longest time that an option accepts.
pub const MAX_SECONDS: u64 = 365 * 86_400;

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
pub struct Moment(Utc);

impl Moment {
    /// Returns the present.
    pub fn now() -> Moment {
        Moment::at(seconds())
    }

    /// Converts seconds since 1970.
    pub fn at(seconds: u64) -> Moment {
        Moment(Utc::at(seconds as i64))
    }

    /// Formats it as IOR does: `Sat Nov 28 01:55:51 2026`.
    pub fn ctime(&self) -> String {
        let Utc { days, year, month, day, .. } = self.0;
        let (weekday, month) = (WEEKDAYS[days.rem_euclid(7) as usize], MONTHS[(month - 1) as usize]);
        format!("{weekday} {month} {day:2} {} {year}", self.clock())
    }

    /// Formats it as mdtest does: `11/28/2026 01:55:51`.
    pub fn slashes(&self) -> String {
        let Utc { year, month, day, .. } = self.0;
        format!("{month:02}/{day:02}/{year} {}", self.clock())
    }

    /// Formats it as ISO 8601: `2026-11-28T01:55:51Z`.
    pub fn iso(&self) -> String {
        let Utc { year, month, day, .. } = self.0;
        format!("{year}-{month:02}-{day:02}T{}Z", self.clock())
    }

    fn clock(&self) -> String {
        let Utc { hour, minute, second, .. } = self.0;
        format!("{hour:02}:{minute:02}:{second:02}")
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
