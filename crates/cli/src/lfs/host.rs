//! Users, groups and local time of this host, from the C library; names of projects.

use std::{
    ffi::{CStr, CString},
    fs,
    mem::MaybeUninit,
    sync::OnceLock,
};

/// Returns the id of a user by name or number.
pub fn user(text: &str) -> Option<u32> {
    let name = CString::new(text).ok()?;
    // SAFETY: `name` ends with a NUL. The result lies in the library's own memory until the next
    // such call. Only the thread that parses the command line calls this.
    let found = unsafe { libc::getpwnam(name.as_ptr()).as_ref() };
    found.map(|entry| entry.pw_uid).or_else(|| id(text))
}

/// Returns the id of a group by name or number.
pub fn group(text: &str) -> Option<u32> {
    let name = CString::new(text).ok()?;
    // SAFETY: as for `user`.
    let found = unsafe { libc::getgrnam(name.as_ptr()).as_ref() };
    found.map(|entry| entry.gr_gid).or_else(|| id(text))
}

/// Parses an id: decimal digits without a sign.
pub fn id(text: &str) -> Option<u32> {
    // parse would allow a plus sign.
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Returns the name of a user. `None`: this host has no such user.
pub fn user_name(uid: u32) -> Option<String> {
    // SAFETY: as for `user`.
    let entry = unsafe { libc::getpwuid(uid).as_ref() }?;
    // SAFETY: the name of an entry ends with a NUL.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    Some(name.to_string_lossy().into_owned())
}

/// Returns the name of a group. `None`: this host has no such group.
pub fn group_name(gid: u32) -> Option<String> {
    // SAFETY: as for `user`.
    let entry = unsafe { libc::getgrgid(gid).as_ref() }?;
    // SAFETY: the name of an entry ends with a NUL.
    let name = unsafe { CStr::from_ptr(entry.gr_name) };
    Some(name.to_string_lossy().into_owned())
}

/// Names of projects, as the tools of XFS and ext4 read them: `NAME:ID` in a line.
const PROJECTS: &str = "/etc/projid";

/// Returns the id of a project by name or number.
pub fn project(text: &str) -> Option<u32> {
    id(text).or_else(|| projects().iter().find(|(name, _)| name == text).map(|(_, id)| *id))
}

/// Returns the name of a project. `None`: this host has no name for it.
pub fn project_name(id: u32) -> Option<String> {
    projects().iter().find(|(_, known)| *known == id).map(|(name, _)| name.clone())
}

/// Returns the names of projects and their ids. The file is read once.
fn projects() -> &'static [(String, u32)] {
    static READ: OnceLock<Vec<(String, u32)>> = OnceLock::new();
    READ.get_or_init(|| parse_projects(&fs::read_to_string(PROJECTS).unwrap_or_default()))
}

/// Parses the file of names. Skips comments, and lines that name no project.
fn parse_projects(text: &str) -> Vec<(String, u32)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let named = lines.filter_map(|line| {
        let (name, number) = line.split_once(':')?;
        Some((name.trim(), id(number.trim())?))
    });
    named.filter(|(name, _)| !name.is_empty()).map(|(name, id)| (name.to_owned(), id)).collect()
}

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Formats a time like ctime(3), such as `Sat Nov 21 19:50:05 2026`, in local time. Returns the
/// seconds if the year is out of range.
pub fn ctime(seconds: i64) -> String {
    let Some(tm) = local(seconds) else { return seconds.to_string() };
    let name =
        |names: &[&'static str], i: i32| usize::try_from(i).ok().and_then(|i| names.get(i).copied()).unwrap_or("?");
    let (day, month) = (name(&DAYS, tm.tm_wday), name(&MONTHS, tm.tm_mon));
    let year = i64::from(tm.tm_year) + 1900;
    format!("{day} {month} {:2} {:02}:{:02}:{:02} {year}", tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec)
}

fn local(seconds: i64) -> Option<libc::tm> {
    let mut tm = MaybeUninit::uninit();
    // SAFETY: both pointers are valid for the call. If the call returns a pointer, it has filled in
    // `tm`.
    unsafe { libc::localtime_r(&seconds, tm.as_mut_ptr()).as_ref().map(|_| tm.assume_init()) }
}

/// The formats that [`time`] parses, as `lfs` prints them.
pub const TIME_FORMATS: &str = "'%Y-%m-%d %H:%M:%S', '%Y-%m-%d %H:%M', '%Y-%m-%d', '%H:%M:%S', '%H:%M', '@%s', '%s', ";

/// Parses a local time in one of [`TIME_FORMATS`] into seconds since the epoch. A time without a
/// date is on the day of `now`.
pub fn time(text: &str, now: i64) -> Option<i64> {
    let seconds = text.strip_prefix('@').unwrap_or(text);
    if let Ok(seconds) = seconds.parse() {
        return Some(seconds);
    }
    let (day, clock) = match text.split_once(' ') {
        Some((day, clock)) => (Some(day), Some(clock)),
        None if text.contains(':') => (None, Some(text)),
        None => (Some(text), None),
    };
    let mut tm = local(now)?;
    if let Some(day) = day {
        let [year, month, mday] = numbers(day, '-')?[..] else { return None };
        (tm.tm_year, tm.tm_mon, tm.tm_mday) = (year - 1900, month - 1, mday);
    }
    let clock = numbers(clock.unwrap_or("0:0"), ':')?;
    (tm.tm_hour, tm.tm_min, tm.tm_sec) = match clock[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let fits = (0..12).contains(&tm.tm_mon)
        && (1..=31).contains(&tm.tm_mday)
        && tm.tm_hour < 24
        && tm.tm_min < 60
        && tm.tm_sec <= 60;
    // The library finds out whether daylight saving time applies.
    tm.tm_isdst = -1;
    // SAFETY: `tm` is a filled-in `tm`.
    fits.then(|| unsafe { libc::mktime(&mut tm) })
}

/// Parses numbers of at most 4 digits, separated by `between`.
fn numbers(text: &str, between: char) -> Option<Vec<i32>> {
    let number = |part: &str| {
        let digits = !part.is_empty() && part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse().ok()).flatten()
    };
    text.split(between).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_resolves_users_and_groups_by_name_and_number() {
        assert_eq!((user("root"), user("0"), user("4711"), user("no such user")), (Some(0), Some(0), Some(4711), None));
        assert_eq!((user("+5"), user(""), group("+5")), (None, None, None));
        assert_eq!((group("root"), group("12"), group("-1"), group("a\0b")), (Some(0), Some(12), None, None));
    }

    #[test]
    fn users_and_groups_have_names() {
        assert_eq!((user_name(0).as_deref(), group_name(0).as_deref()), (Some("root"), Some("root")));
        assert_eq!((user_name(4_000_001_000), group_name(4_000_001_000)), (None, None));
    }

    #[test]
    fn names_of_projects_are_parsed() {
        let text = "# projects\nclimate:1000\n weather : 7 \nbad\n:5\nworse:x\n#c:3\nempty:\nlast:4294967294";
        let want = [("climate", 1000), ("weather", 7), ("last", 4_294_967_294)];
        assert_eq!(parse_projects(text), want.map(|(name, id)| (name.to_owned(), id)));
        assert_eq!((project("42"), project("no such project")), (Some(42), None));
    }

    #[test]
    fn find_parses_times_that_ctime_prints() {
        // This holds in every time zone: the parsed time is formatted back.
        let now = 1_795_290_605;
        let at = time("2026-11-21 19:50:05", now).unwrap();
        assert_eq!(ctime(at), "Sat Nov 21 19:50:05 2026");
        assert_eq!(time("2026-11-21 19:50", now), Some(at - 5));
        assert_eq!(ctime(time("2026-03-01", now).unwrap()), "Sun Mar  1 00:00:00 2026");
        assert_eq!((time("@17", now), time("17", now)), (Some(17), Some(17)));
        let noon = time("12:00", now).unwrap();
        assert_eq!(time("12:00:07", now), Some(noon + 7));
        assert!((noon - now).abs() < 24 * 3600, "of today");
    }

    #[test]
    fn find_refuses_bad_times() {
        for text in
            ["", "1 day ago", "2026-11", "2026-13-01", "2026-00-01", "2026-1-32", "25:00", "12:60", "a", "-", ":"]
        {
            assert_eq!(time(text, 0), None, "{text:?}");
        }
        assert_eq!(ctime(i64::MAX), i64::MAX.to_string());
    }
}
