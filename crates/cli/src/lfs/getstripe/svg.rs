//! `lfs getstripe --draw=FILE.svg`: the picture as SVG, for documents. An OST has the same colour
//! in all components.

use std::fmt::Write;

use super::draw::{Band, Column, Drawing, cell};

/// Size of a cell in pixels.
const CELL_WIDTH: usize = 84;
const CELL_HEIGHT: usize = 26;
/// Width of the names of lines to the left of the cells, in pixels.
const LEFT: usize = 76;
/// Margin around the picture and between components, in pixels.
const MARGIN: usize = 16;
/// Height of a line of text in pixels.
const LINE: usize = 20;
/// Smallest width of the picture in pixels: enough for titles.
const WIDTH_MIN: usize = 640;

impl Drawing {
    /// Returns the picture as an SVG document. `name` is its title.
    pub fn svg(&self, name: &str) -> String {
        // If stripes are left out, a note about them takes the width of one column.
        let columns = self.bands.iter().map(|b| b.columns.len() + usize::from(b.columns_more > 0)).max().unwrap_or(0);
        let width = (LEFT + columns * CELL_WIDTH + 2 * MARGIN).max(WIDTH_MIN);
        let height = 2 * MARGIN + LINE + self.bands.iter().map(height_of).sum::<usize>();
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        text(&mut out, MARGIN, MARGIN + LINE - 6, "font-weight=\"bold\"", name);
        let mut y = MARGIN + LINE;
        for band in &self.bands {
            draw(&mut out, band, y);
            y += height_of(band);
        }
        out.push_str("</svg>\n");
        out
    }
}

fn height_of(band: &Band) -> usize {
    let rows = band.rows.len() + usize::from(band.rows_more);
    MARGIN + LINE + if band.note.is_some() { LINE } else { 2 * LINE + rows * CELL_HEIGHT }
}

fn draw(out: &mut String, band: &Band, y: usize) {
    let mut y = y + MARGIN;
    text(out, MARGIN, y + LINE - 6, "", &band.title);
    y += LINE;
    if let Some(note) = &band.note {
        text(out, MARGIN + LEFT, y + LINE - 6, "fill=\"#666\"", note);
        return;
    }
    let x = |column: usize| MARGIN + LEFT + column * CELL_WIDTH;
    let middle = |column: usize| x(column) + CELL_WIDTH / 2;
    let heading = "fill=\"#666\" text-anchor=\"middle\"";
    text(out, MARGIN, y + LINE - 6, "fill=\"#666\"", "stripe");
    text(out, MARGIN, y + 2 * LINE - 6, "fill=\"#666\"", band.target());
    for (i, column) in band.columns.iter().enumerate() {
        text(out, middle(i), y + LINE - 6, heading, &i.to_string());
        text(out, middle(i), y + 2 * LINE - 6, heading, &column.label());
    }
    text(out, x(band.columns.len()) + 4, y + LINE - 6, "fill=\"#666\"", &band.more());
    y += 2 * LINE;
    for row in &band.rows {
        for (i, (offset, column)) in row.iter().zip(&band.columns).enumerate() {
            let fill = if offset.is_some() { colour(*column) } else { "#f4f4f4".to_owned() };
            let _ = writeln!(
                out,
                "<rect x=\"{}\" y=\"{y}\" width=\"{CELL_WIDTH}\" height=\"{CELL_HEIGHT}\" fill=\"{fill}\" stroke=\"#888\"/>",
                x(i)
            );
            text(out, middle(i), y + CELL_HEIGHT - 8, "text-anchor=\"middle\"", &cell(*offset));
        }
        y += CELL_HEIGHT;
    }
    if band.rows_more {
        (0..band.columns.len()).for_each(|i| text(out, middle(i), y + CELL_HEIGHT - 8, heading, "…"));
    }
}

/// Returns the colour of a target. OSTs with neighbouring indices get very different colours:
/// multiples of 137 degrees, the golden angle, repeat only after 360 OSTs.
fn colour(column: Column) -> String {
    match column {
        Column::Ost(index) => format!("hsl({}, 65%, 82%)", u64::from(index) * 137 % 360),
        Column::AnyOst => "white".to_owned(),
        Column::Mdt(_) => "#dddddd".to_owned(),
    }
}

fn text(out: &mut String, x: usize, y: usize, attributes: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    let _ = write!(out, "<text x=\"{x}\" y=\"{y}\" {attributes}>");
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // XML does not allow most control characters, but a file name may contain them.
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out.push_str("</text>\n");
}
