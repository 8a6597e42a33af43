//! Tables of results. A cell is a text, or a figure with its spread, so that programs can read a
//! table as well as people.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stats::{median, range};

/// Figures from this size have their digits in groups of three.
const GROUPED_MIN: f64 = 10_000.0;

/// A figure: a median, or a single value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// The minimum and the maximum, if they are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// Number of digits after the point.
    #[serde(default)]
    pub decimals: u8,
    /// The unit; empty if the column names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
}

/// A cell of a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A figure.
    Figure(Figure),
    /// A text.
    Text(String),
}

impl Cell {
    /// Returns a cell with one value.
    pub fn number(value: f64, decimals: u8, unit: &str) -> Cell {
        figure(value, None, decimals, unit)
    }

    /// Returns a cell with the median of some values and their range. For no values, it is a dash.
    pub fn range(values: &[f64], decimals: u8, unit: &str) -> Cell {
        let (low, high) = range(values);
        figure(median(values), Some([low, high]), decimals, unit)
    }

    /// Returns an empty cell.
    pub fn empty() -> Cell {
        Cell::Text(String::new())
    }
}

fn figure(median: f64, range: Option<[f64; 2]>, decimals: u8, unit: &str) -> Cell {
    if !median.is_finite() {
        return Cell::Text("–".into());
    }
    Cell::Figure(Figure { median, range, decimals, unit: unit.to_owned() })
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figure { median, range, decimals, unit } = match self {
            Cell::Text(text) => return f.write_str(text),
            Cell::Figure(figure) => figure,
        };
        f.write_str(&digits(*median, *decimals))?;
        if let Some([low, high]) = range {
            write!(f, " ({}–{})", digits(*low, *decimals), digits(*high, *decimals))?;
        }
        if unit.is_empty() { Ok(()) } else { write!(f, " {unit}") }
    }
}

/// Formats a value. Digits of large ones are grouped: `479,046`.
fn digits(value: f64, decimals: u8) -> String {
    let decimals = usize::from(decimals);
    let text = format!("{value:.decimals$}");
    if value.abs() < GROUPED_MIN {
        return text;
    }
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.char_indices() {
        if (whole.len() - at).is_multiple_of(3) && grouped.ends_with(|last: char| last.is_ascii_digit()) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// A table. The first column names the row.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Table {
    /// Its title.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The titles of its columns.
    pub columns: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Creates a table without rows.
    pub fn new(title: impl Into<String>, columns: impl IntoIterator<Item = impl Into<String>>) -> Table {
        let columns = columns.into_iter().map(Into::into).collect();
        Table { title: title.into(), columns, rows: Vec::new() }
    }

    /// Adds rows.
    pub fn with<C: Into<Cell>>(mut self, rows: impl IntoIterator<Item = Vec<C>>) -> Table {
        self.rows.extend(rows.into_iter().map(|row| row.into_iter().map(Into::into).collect::<Vec<Cell>>()));
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Returns the table in Markdown, with aligned columns.
    pub fn markdown(&self) -> String {
        let text = |cell: &Cell| cell.to_string().replace('|', "\\|");
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| row.iter().map(text).collect()).collect();
        let all = || std::iter::once(&self.columns).chain(&rows);
        let len = |column: usize| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| len(column).unwrap_or(0)).collect();
        let line = |row: &Vec<String>| {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rules: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
        let body: String = rows.iter().map(line).collect();
        format!("{}|{}|\n{body}", line(&self.columns), rules.join("|"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_show_their_range_and_unit_and_group_large_numbers() {
        assert_eq!(Cell::range(&[3.0, 1.0, 2.5], 1, "").to_string(), "2.5 (1.0–3.0)");
        assert_eq!(Cell::number(479_046.4, 0, "/s").to_string(), "479,046 /s");
        assert_eq!(Cell::number(1244.0, 0, "MiB/s").to_string(), "1244 MiB/s");
        assert_eq!(Cell::number(-1_234_567.891, 2, "").to_string(), "-1,234,567.89");
        assert_eq!(Cell::range(&[], 1, "").to_string(), "–");
    }

    #[test]
    fn table_is_aligned_markdown_and_survives_json() {
        let mut table = Table::new("rates", ["work", "MiB/s"]).with([vec!["a|b", "–"]]);
        table.row(vec!["write".into(), Cell::range(&[900.0, 12_000.0], 0, "")]);
        let shown = "\
| work  | MiB/s             |
|-------|-------------------|
| a\\|b  | –                 |
| write | 6450 (900–12,000) |
";
        assert_eq!(table.markdown(), shown);
        let stored = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<Table>(&stored).unwrap(), table);
    }
}
