//! `lfs getstripe --draw`: a picture of how a file's bytes map to components, stripes and OSTs.
//!
//! A component is a table:
//! * A column is a stripe, with the index of its OST as heading.
//! * A cell is one stripe unit, labelled with the file offset at which it begins.
//! * A row is one round of units over all stripes.
//!
//! Rounds count from the beginning of the file and not of the component, so a component may begin
//! in the middle of a round. Only the first rounds and stripes are drawn.

use std::fmt::Write;

use sheen_layout::Pattern;

use super::{
    super::show::{ComponentView, LayoutView},
    flag,
};

/// Stripes drawn per component: as many as fit a terminal.
const COLUMNS_MAX: usize = 8;
/// Rounds drawn per component: enough to show that they repeat.
const ROWS_MAX: u64 = 3;

/// A picture before it becomes text or SVG.
pub struct Drawing {
    /// One band per component.
    pub bands: Vec<Band>,
}

/// The picture of one component.
pub struct Band {
    /// The component's range and striping in words.
    pub title: String,
    /// The reason if there is nothing to draw.
    pub note: Option<String>,
    /// The stripes that are drawn, from the first.
    pub columns: Vec<Column>,
    /// Number of stripes that are left out.
    pub columns_more: usize,
    /// The first rounds. A cell is an offset in the file, or `None` for a unit of another
    /// component.
    pub rows: Vec<Vec<Option<u64>>>,
    /// Whether rounds are left out.
    pub rows_more: bool,
}

/// The target that holds a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// This OST.
    Ost(u32),
    /// An OST that is chosen at the first write.
    AnyOst,
    /// The MDT of this index; negative for any.
    Mdt(i32),
}

impl Column {
    /// Returns the index as text.
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
    pub fn of(picture: &LayoutView) -> Drawing {
        let band = |part| Band::of(part, picture.is_composite(), picture.mdt());
        Drawing { bands: picture.parts().iter().map(band).collect() }
    }

    /// Formats the picture for a terminal, with an empty line between components.
    pub fn text(&self) -> String {
        let bands: Vec<String> = self.bands.iter().map(Band::text).collect();
        bands.join("\n")
    }
}

impl Band {
    fn of(part: &ComponentView, composite: bool, mdt: i32) -> Band {
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
                band.note = Some(format!("extends the component before it, {} at a time", bytes(part.size)));
                return band;
            }
            _ if !part.objects.is_empty() => part.objects.iter().map(|(ost, _)| Column::Ost(*ost)).collect(),
            _ if part.count > 0 => vec![Column::AnyOst; part.count as usize],
            _ => {
                band.note = Some("stripe count depends on the number of OSTs at the first write".to_owned());
                return band;
            }
        };
        if part.start >= part.end {
            band.note = Some("empty until extended".to_owned());
            return band;
        }
        (band.rows, band.rows_more) = rows(part, columns.len());
        band.columns_more = columns.len().saturating_sub(COLUMNS_MAX);
        band.columns = columns.into_iter().take(COLUMNS_MAX).collect();
        band
    }

    /// Returns the type of the targets in the heading.
    pub fn target(&self) -> &'static str {
        if matches!(self.columns.first(), Some(Column::Mdt(_))) { "MDT" } else { "OST" }
    }

    /// Returns in words how many stripes are left out.
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

/// Returns the label of a cell.
pub fn cell(offset: Option<u64>) -> String {
    offset.map_or_else(|| "·".to_owned(), bytes)
}

/// Returns where the units of the first rounds begin, for the stripes that are drawn, and whether
/// more rounds follow.
fn rows(part: &ComponentView, stripes: usize) -> (Vec<Vec<Option<u64>>>, bool) {
    // 128 bits, because a round of 2,000 stripes of 4 GiB at the end of the file exceeds 2^64.
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

fn title(part: &ComponentView, composite: bool) -> String {
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

/// Formats bytes in the largest unit that is exact: `64K`, `1M`. The end of the file is `EOF`.
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
    fn getstripe_draw_prints_sizes_exactly() {
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
