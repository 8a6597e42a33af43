//! The tables of `lfs quota`: columns, and the texts of their cells.

use sheen_wire::quota::Usage;

/// A grace time in seconds from which on the soft limit never acts as a hard one: Lustre's
/// `notify`.
pub const NOTIFY_SECS: u64 = (1 << 48) - 1;
/// Digits of a size with a unit.
const DIGITS: i32 = 4;

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// The mount point, or the target.
    Place,
    /// Name or id.
    Id,
    /// Space in use.
    Space,
    /// Soft limit of space.
    SpaceSoft,
    /// Hard limit of space.
    SpaceHard,
    /// Time until the soft limit of space acts as a hard one.
    SpaceGrace,
    /// Files in use.
    Files,
    /// Soft limit of files.
    FilesSoft,
    /// Hard limit of files.
    FilesHard,
    /// Time until the soft limit of files acts as a hard one.
    FilesGrace,
}

use Column::*;

impl Column {
    /// All columns, in their order.
    pub const ALL: [Column; 10] =
        [Place, Id, Space, SpaceSoft, SpaceHard, SpaceGrace, Files, FilesSoft, FilesHard, FilesGrace];
    /// Columns for one id.
    pub const OF_IDS: [Column; 9] =
        [Place, Space, SpaceSoft, SpaceHard, SpaceGrace, Files, FilesSoft, FilesHard, FilesGrace];
    /// Columns for default limits.
    pub const OF_DEFAULTS: [Column; 7] = [Place, SpaceSoft, SpaceHard, SpaceGrace, FilesSoft, FilesHard, FilesGrace];

    fn width(self) -> usize {
        match self {
            Place => 15,
            Id => 9,
            _ => 7,
        }
    }
}

/// A row: where, whose, and the numbers.
pub struct Row<'a> {
    /// The mount point, or the target.
    pub place: &'a str,
    /// Name or id.
    pub id: &'a str,
    /// Space.
    pub space: Cells,
    /// Files.
    pub files: Cells,
}

/// The cells of one resource.
pub struct Cells {
    /// Use.
    pub used: String,
    /// Soft limit.
    pub soft: String,
    /// Hard limit.
    pub hard: String,
    /// Time until the soft limit acts as a hard one.
    pub grace: String,
}

impl Cells {
    /// Returns the cells of a resource. A use at a limit has a star. As in Lustre, the time is not
    /// shown if the hard limit is reached.
    pub fn of(usage: &Usage, used: String, text: impl Fn(u64) -> String) -> Cells {
        let is_full = usage.limits.hard > 0 && usage.used >= usage.limits.hard;
        let grace = usage.grace.filter(|_| !is_full);
        let star = if is_full || grace.is_some() { "*" } else { "" };
        Cells {
            used: format!("{used}{star}"),
            soft: text(usage.limits.soft),
            hard: text(usage.limits.hard),
            grace: grace.map_or("-".into(), left),
        }
    }

    /// Returns the cells of a target, which has only a part of the hard limit.
    pub fn without_soft_limit(self) -> Cells {
        Cells { soft: "-".into(), ..self }
    }
}

/// The form of a table.
pub struct Table {
    /// Columns, in their order.
    columns: Vec<Column>,
    /// Text between columns instead of a space.
    delimiter: Option<String>,
    /// Sizes and times have units.
    human: bool,
}

impl Table {
    /// Creates a table of the selected columns among `all`; of all, if none is selected. A list of
    /// ids has them in any case.
    pub fn new(all: &[Column], selected: &[Column], delimiter: Option<String>, human: bool) -> Table {
        let is_shown = |column: &&Column| selected.is_empty() || selected.contains(column) || **column == Id;
        Table { columns: all.iter().filter(is_shown).copied().collect(), delimiter, human }
    }

    /// Returns the line with the names of the columns.
    pub fn header(&self) -> String {
        self.line(|column| match column {
            Place => "Filesystem",
            Id => "quota_id",
            Space if self.human => "used",
            Space => "kbytes",
            SpaceSoft => "bquota",
            SpaceHard => "blimit",
            SpaceGrace => "bgrace",
            Files => "files",
            FilesSoft => "iquota",
            FilesHard => "ilimit",
            FilesGrace => "igrace",
        })
    }

    /// Returns the line of a row.
    pub fn row(&self, row: &Row<'_>) -> String {
        self.line(|column| match column {
            Place => row.place,
            Id => row.id,
            Space => &row.space.used,
            SpaceSoft => &row.space.soft,
            SpaceHard => &row.space.hard,
            SpaceGrace => &row.space.grace,
            Files => &row.files.used,
            FilesSoft => &row.files.soft,
            FilesHard => &row.files.hard,
            FilesGrace => &row.files.grace,
        })
    }

    fn line<'a>(&self, text: impl Fn(Column) -> &'a str) -> String {
        let cell = |column: &Column| {
            let (text, width) = (text(*column), column.width());
            match column {
                // As in Lustre: the other columns of a long mount point are on the next line.
                Place if self.delimiter.is_none() && text.chars().count() > width => format!("{text}\n{:width$}", ""),
                _ => format!("{text:>width$}"),
            }
        };
        let cells: Vec<String> = self.columns.iter().map(cell).collect();
        match &self.delimiter {
            Some(delimiter) => format!("{}\n", cells.join(delimiter)),
            None => format!("{} \n", cells.join(" ")),
        }
    }

    /// Returns a size in KiB, or with a unit.
    pub fn size(&self, bytes: u64) -> String {
        let kib = bytes.div_ceil(1024);
        if self.human { with_unit(kib) } else { kib.to_string() }
    }

    /// Returns a grace time in seconds, or with units.
    pub fn seconds(&self, secs: u64) -> String {
        if self.human { duration(secs) } else { secs.to_string() }
    }
}

/// Formats a number of KiB with the largest unit of which there is at least one, and 4 digits.
fn with_unit(kib: u64) -> String {
    let units = [(50, 'E'), (40, 'P'), (30, 'T'), (20, 'G'), (10, 'M')];
    let Some((shift, unit)) = units.into_iter().find(|(shift, _)| kib >> shift > 0) else {
        return format!("{kib}k");
    };
    let value = kib as f64 / (1u64 << shift) as f64;
    let whole = value.log10().floor() as i32 + 1;
    let decimals = usize::try_from(DIGITS - whole).unwrap_or(0);
    let number = format!("{value:.decimals$}");
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number.as_str(),
    };
    format!("{number:>5}{unit}")
}

/// Formats a number of seconds as `1w2d3h4m5s`, without parts that are 0.
pub fn duration(secs: u64) -> String {
    if secs >= NOTIFY_SECS {
        return "notify".into();
    }
    let (mut left, mut text) = (secs, String::new());
    for (unit, letter) in UNITS {
        if left >= unit {
            text.push_str(&format!("{}{letter}", left / unit));
            left %= unit;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// Units of time in seconds, and their letters.
pub const UNITS: [(u64, char); 5] = [(7 * 24 * 3600, 'w'), (24 * 3600, 'd'), (3600, 'h'), (60, 'm'), (1, 's')];

/// Formats the time that is left until a soft limit acts as a hard one.
fn left(secs: i64) -> String {
    match u64::try_from(secs) {
        Err(_) | Ok(0) => "none".into(),
        // Some of it has passed.
        Ok(secs) if secs > NOTIFY_SECS / 2 => "notify".into(),
        Ok(secs) => duration(secs),
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::quota::Limits;

    use super::*;

    #[test]
    fn sizes_have_units_and_four_digits() {
        for (kib, want) in [
            (0, "0k"),
            (1023, "1023k"),
            (1024, "    1M"),
            (1536, "  1.5M"),
            (102_400, "  100M"),
            (1025 * 1024, "1.001G"),
            ((1 << 20) - 1, " 1024M"),
            (10 << 20, "   10G"),
            (5 << 30, "    5T"),
            (1 << 40, "    1P"),
            (1 << 50, "    1E"),
        ] {
            assert_eq!(with_unit(kib), want, "{kib}");
        }
    }

    #[test]
    fn times_are_weeks_to_seconds() {
        for (secs, want) in [
            (0, "0s"),
            (59, "59s"),
            (604_800, "1w"),
            (172_800, "2d"),
            (604_799, "6d23h59m59s"),
            (NOTIFY_SECS, "notify"),
        ] {
            assert_eq!(duration(secs), want);
        }
        assert_eq!((left(0), left(-7), left(90)), ("none".into(), "none".into(), "1m30s".into()));
        assert_eq!(left(NOTIFY_SECS as i64 - 1000), "notify");
    }

    #[test]
    fn star_and_time_depend_on_the_limit_that_is_exceeded() {
        let cells = |used, soft, hard, grace| {
            let usage = Usage { used, limits: Limits { soft, hard }, grace };
            let cells = Cells::of(&usage, used.to_string(), |n| n.to_string());
            (cells.used, cells.grace)
        };
        let pair = |used: &str, grace: &str| (used.to_owned(), grace.to_owned());
        assert_eq!(cells(5, 0, 0, None), pair("5", "-"));
        assert_eq!(cells(5, 0, 6, None), pair("5", "-"));
        assert_eq!(cells(6, 0, 6, None), pair("6*", "-"));
        assert_eq!(cells(5, 4, 6, Some(60)), pair("5*", "1m"));
        assert_eq!(cells(5, 4, 6, Some(-1)), pair("5*", "none"));
        assert_eq!(cells(7, 4, 6, Some(60)), pair("7*", "-"));
    }

    #[test]
    fn delimiter_is_between_columns_and_long_places_take_a_line() {
        let cells = || Cells { used: "1".into(), soft: "2".into(), hard: "3".into(), grace: "-".into() };
        let row = Row { place: "/mnt/a/long/place", id: "", space: cells(), files: cells() };
        let table = |delimiter: Option<&str>| {
            let selected = [Files, Place];
            Table::new(&Column::OF_IDS, &selected, delimiter.map(str::to_owned), false).row(&row)
        };
        assert_eq!(table(None), "/mnt/a/long/place\n                      1 \n");
        assert_eq!(table(Some(",")), "/mnt/a/long/place,      1\n");
    }
}
