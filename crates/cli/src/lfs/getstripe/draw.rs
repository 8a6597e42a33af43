//! `lfs getstripe --draw`: how a file's bytes map to components, stripes and OSTs, as a picture.
//!
//! A component is a table: a column is a stripe, headed by the OST that holds it; a cell is a
//! stripe's unit, with the offset in the file where it begins; rows are the rounds in which units
//! go over the stripes. Rounds count from the beginning of the file and not of the component, so a
//! component may begin in the middle of one. Only the first rounds and stripes are drawn.

use std::fmt::Write;

use sheen_layout::Pattern;

use super::{
    super::show::{Part, Picture},
    flag,
};

/// Stripes drawn of a component: what fits a terminal.
const COLUMNS_MAX: usize = 8;
/// Rounds drawn of a component: enough to see it go round.
const ROWS_MAX: u64 = 3;

/// A picture, not yet text or SVG.
pub struct Drawing {
    /// One a component.
    pub bands: Vec<Band>,
}

/// A component's.
pub struct Band {
    /// Its range and its striping in words.
    pub title: String,
    /// Where there is nothing to draw: why.
    pub note: Option<String>,
    /// The stripes from the first.
    pub columns: Vec<Column>,
    /// Stripes that are left out.
    pub columns_more: usize,
    /// The first rounds; a cell is an offset in the file, none for a unit that is another
    /// component's.
    pub rows: Vec<Vec<Option<u64>>>,
    /// Whether rounds are left out.
    pub rows_more: bool,
}

/// Where a stripe lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// On this OST.
    Ost(u32),
    /// On an OST that is chosen when something is written.
    AnyOst,
    /// With the metadata, on the MDT of this index; negative for any.
    Mdt(i32),
}

impl Column {
    /// The index.
    pub fn label(self) -> String {
        match self {
            Column::Ost(index) => index.to_string(),
            Column::Mdt(index) if index >= 0 => index.to_string(),
            Column::AnyOst | Column::Mdt(_) => "?".to_owned(),
        }
    }
}

impl Drawing {
    /// Draws a layout or a directory's default.
    pub fn of(picture: &Picture) -> Drawing {
        let band = |part| Band::of(part, picture.is_composite(), picture.mdt());
        Drawing { bands: picture.parts().iter().map(band).collect() }
    }

    /// For a terminal; every component is followed by an empty line but the last.
    pub fn text(&self) -> String {
        let bands: Vec<String> = self.bands.iter().map(Band::text).collect();
        bands.join("\n")
    }
}

impl Band {
    fn of(part: &Part, composite: bool, mdt: i32) -> Band {
        let mut band = Band {
            title: title(part, composite),
            note: None,
            columns: Vec::new(),
            columns_more: 0,
            rows: Vec::new(),
            rows_more: false,
        };
        let columns: Vec<Column> = match part.pattern {
            Pattern::MDT => vec![Column::Mdt(mdt)],
            _ if part.is_extension() => {
                band.note = Some(format!("lent to the component before it, {} at a time", bytes(part.size)));
                return band;
            }
            _ if !part.objects.is_empty() => part.objects.iter().map(|(ost, _)| Column::Ost(*ost)).collect(),
            _ if part.count > 0 => vec![Column::AnyOst; part.count as usize],
            _ => {
                band.note = Some("as many stripes as there are OSTs when it is first written".to_owned());
                return band;
            }
        };
        if part.start >= part.end {
            band.note = Some("empty until it is extended".to_owned());
            return band;
        }
        (band.rows, band.rows_more) = rows(part, columns.len());
        band.columns_more = columns.len().saturating_sub(COLUMNS_MAX);
        band.columns = columns.into_iter().take(COLUMNS_MAX).collect();
        band
    }

    /// What the columns are the indices of.
    pub fn target(&self) -> &'static str {
        if matches!(self.columns.first(), Some(Column::Mdt(_))) { "MDT" } else { "OST" }
    }

    /// The stripes that are left out, in words.
    pub fn more(&self) -> String {
        if self.columns_more == 0 { String::new() } else { format!("and {} more", self.columns_more) }
    }

    fn text(&self) -> String {
        let mut out = format!("{}\n", self.title);
        if let Some(note) = &self.note {
            let _ = writeln!(out, "  {note}");
            return out;
        }
        let cells: Vec<Vec<String>> = self.rows.iter().map(|row| row.iter().map(|c| cell(*c)).collect()).collect();
        let labels: Vec<String> = self.columns.iter().map(|c| c.label()).collect();
        let width = cells.iter().flatten().chain(&labels).map(|c| c.chars().count()).max().unwrap_or(1);
        let line = |name: &str, cells: &[String], bar: &str| {
            let cells: Vec<String> = cells.iter().map(|c| format!(" {c:<width$} ")).collect();
            format!("  {name:<7}{bar}{}{bar}", cells.join(bar))
        };
        let rule = |left: &str, middle: &str, right: &str| {
            let dashes = vec!["─".repeat(width + 2); self.columns.len()];
            format!("  {:<7}{left}{}{right}\n", "", dashes.join(middle))
        };
        let stripes: Vec<String> = (0..self.columns.len()).map(|i| i.to_string()).collect();
        let _ = writeln!(out, "{}", format!("{} {}", line("stripe", &stripes, " ").trim_end(), self.more()).trim_end());
        let _ = writeln!(out, "{}", line(self.target(), &labels, " ").trim_end());
        out.push_str(&rule("┌", "┬", "┐"));
        for (i, row) in cells.iter().enumerate() {
            let _ = writeln!(out, "{}", line(if i == 0 { "from" } else { "" }, row, "│"));
        }
        if self.rows_more {
            let _ = writeln!(out, "{}", line("", &vec!["…".to_owned(); self.columns.len()], "│"));
        }
        out.push_str(&rule("└", "┴", "┘"));
        out
    }
}

/// What is written into a cell.
pub fn cell(offset: Option<u64>) -> String {
    offset.map_or_else(|| "·".to_owned(), bytes)
}

/// Where the units of the first rounds begin, of the stripes that are drawn, and whether there are
/// more rounds.
fn rows(part: &Part, stripes: usize) -> (Vec<Vec<Option<u64>>>, bool) {
    // In 128 bits: a round of 2,000 stripes of 4 GiB at the end of the file is past 2^64.
    let unit = u128::from(part.size.max(1));
    let (start, end) = (u128::from(part.start), u128::from(part.end));
    let round = unit * stripes as u128;
    let (first, last) = (start / round, (end - 1) / round);
    let begins = |row: u128, column: usize| {
        let unit_start = row * round + column as u128 * unit;
        let begin = unit_start.max(start);
        (begin < end.min(unit_start + unit)).then_some(begin as u64)
    };
    let shown = first..=last.min(first + u128::from(ROWS_MAX) - 1);
    let rows = shown.map(|row| (0..stripes.min(COLUMNS_MAX)).map(|column| begins(row, column)).collect()).collect();
    (rows, last - first >= u128::from(ROWS_MAX))
}

fn title(part: &Part, composite: bool) -> String {
    let mut title = String::new();
    if part.id != 0 {
        let _ = write!(title, "component {}", part.id);
        if part.mirror() != 0 {
            let _ = write!(title, " of mirror {}", part.mirror());
        }
        title.push_str(": ");
    }
    if composite {
        let _ = write!(title, "from {} to {}, ", bytes(part.start), bytes(part.end));
    }
    let _ = match part.pattern {
        Pattern::MDT => write!(title, "with the metadata"),
        _ if part.is_extension() => write!(title, "extension"),
        pattern => match part.objects.len().max(usize::try_from(part.count).unwrap_or(0)) {
            0 => write!(title, "stripes of {}, {pattern}", bytes(part.size)),
            1 => write!(title, "1 stripe of {}, {pattern}", bytes(part.size)),
            n => write!(title, "{n} stripes of {}, {pattern}", bytes(part.size)),
        },
    };
    if part.flags & flag::STALE != 0 {
        title.push_str(", stale");
    }
    if part.id != 0 && part.flags & (flag::INIT | flag::EXTENSION) == 0 && part.start < part.end {
        title.push_str(", no objects yet");
    }
    title
}

/// `64K`, `1M`, `EOF`: in the largest unit that says it exactly.
fn bytes(n: u64) -> String {
    if n == u64::MAX {
        return "EOF".to_owned();
    }
    let shift = (n.trailing_zeros() / 10 * 10).min(60);
    match (n, ["", "K", "M", "G", "T", "P", "E"].get(shift as usize / 10)) {
        (0, _) | (_, None) => n.to_string(),
        (n, Some(unit)) => format!("{}{unit}", n >> shift),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        for (n, want) in [
            (0, "0"),
            (47008, "47008"),
            (65536, "64K"),
            (1 << 20, "1M"),
            ((1 << 20) + 65536, "1088K"),
            (5 << 40, "5T"),
            (u64::MAX, "EOF"),
        ] {
            assert_eq!(bytes(n), want);
        }
    }
}
