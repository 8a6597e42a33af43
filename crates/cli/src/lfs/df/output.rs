//! `lfs df --output`: rows with the requested fields in the requested order. Names, aliases and
//! columns are Lustre's. The fields that GNU df also has are the same there.

use super::numbers::{TargetUsage, with_unit};

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    Source,
    Size,
    Used,
    Free,
    Avail,
    Pcent,
    Itotal,
    Iused,
    Iavail,
    Ipcent,
    Domain,
    Target,
    State,
}

/// Names of the fields. Messages list the first name of each.
const NAMES: &[(Field, &[&str])] = &[
    (Field::Source, &["source", "device"]),
    (Field::Size, &["size", "total", "btotal"]),
    (Field::Used, &["used", "bused"]),
    (Field::Free, &["free", "bfree"]),
    (Field::Avail, &["avail", "bavail"]),
    (Field::Pcent, &["pcent", "usepct", "bpct", "pct"]),
    (Field::Itotal, &["itotal", "inodes"]),
    (Field::Iused, &["iused"]),
    (Field::Iavail, &["iavail", "ifree"]),
    (Field::Ipcent, &["ipcent", "iusepct", "ipct"]),
    (Field::Domain, &["domain"]),
    (Field::Target, &["target"]),
    (Field::State, &["state"]),
];

/// Shown for the failure domain and the state, which no target reports yet.
const UNKNOWN: &str = "-";

/// The values of a row.
pub struct Row<'a> {
    pub source: &'a str,
    pub space: TargetUsage,
    pub inodes: TargetUsage,
    pub target: &'a str,
}

/// Parses a list such as `source,avail`. The error is the message for the user.
pub fn parse(list: &str) -> Result<Vec<Field>, String> {
    let field = |name: &str| NAMES.iter().find(|(_, names)| names.contains(&name)).map(|(field, _)| *field);
    list.split(',')
        .map(|name| {
            field(name).ok_or_else(|| {
                let known: Vec<&str> = NAMES.iter().filter_map(|(_, names)| names.first().copied()).collect();
                format!("unknown output field '{name}', the fields are: {}", known.join(","))
            })
        })
        .collect()
}

/// Formats the header line. `base`: as in [`row`].
pub fn header(fields: &[Field], base: Option<u64>) -> String {
    let title = |field: &Field| match field {
        Field::Source => "UUID",
        Field::Size if base.is_some() => "bytes",
        Field::Size => "1K-blocks",
        Field::Used => "Used",
        Field::Free => "Free",
        Field::Avail => "Available",
        Field::Pcent => "Use%",
        Field::Itotal => "Inodes",
        Field::Iused => "IUsed",
        Field::Iavail => "IFree",
        Field::Ipcent => "IUse%",
        Field::Domain => "Domain",
        Field::Target => "Mounted on",
        Field::State => "State",
    };
    line(fields, |field| title(field).to_owned())
}

/// Formats the row of one target, or of the summary. `base`: numbers have unit suffixes.
pub fn row(fields: &[Field], row: &Row, base: Option<u64>) -> String {
    let bytes = |value: u64| base.map_or_else(|| (value >> 10).to_string(), |base| with_unit(value, base));
    let count = |value: u64| base.map_or_else(|| value.to_string(), |base| with_unit(value, base));
    line(fields, |field| match field {
        Field::Source => row.source.to_owned(),
        Field::Size => bytes(row.space.total),
        Field::Used => bytes(row.space.used),
        Field::Free => bytes(row.space.total.saturating_sub(row.space.used)),
        Field::Avail => bytes(row.space.free),
        Field::Pcent => format!("{}%", row.space.percent()),
        Field::Itotal => count(row.inodes.total),
        Field::Iused => count(row.inodes.used),
        Field::Iavail => count(row.inodes.free),
        Field::Ipcent => format!("{}%", row.inodes.percent()),
        Field::Target => row.target.to_owned(),
        Field::Domain | Field::State => UNKNOWN.to_owned(),
    })
}

/// Aligns the cells in their columns: names to the left, numbers to the right.
fn line(fields: &[Field], cell: impl Fn(&Field) -> String) -> String {
    let column = |field: &Field| {
        let cell = cell(field);
        let cell = cell.trim_start();
        match field {
            Field::Source => format!("{cell:<20}"),
            Field::Pcent | Field::Ipcent => format!("{cell:>4}"),
            Field::Domain | Field::Target | Field::State => cell.to_owned(),
            _ => format!("{cell:>11}"),
        }
    };
    let cells: Vec<String> = fields.iter().map(column).collect();
    format!("{}\n", cells.join(" ").trim_end())
}
