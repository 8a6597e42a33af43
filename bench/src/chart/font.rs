//! A stroke font: glyphs are polylines on a grid. It has the characters that charts need.
//!
//! A glyph is written as digits. `03 07 18` goes from x = 0, y = 3 via (0, 7) to (1, 8). `;` lifts
//! the pen. A single point is a dot. y grows upwards. 0 is the lower end of `g`, 2 the base line, 6
//! the height of `x`, 8 the height of `H`.

/// Height of the base line.
const BASE: f64 = 2.0;
/// Grid units per font size. `H` is 6 units high.
const UNITS: f64 = 8.4;
/// Gap between two letters.
const GAP: f64 = 1.7;
/// Width of a space, without its gap.
const SPACE: f64 = 1.6;
/// Glyph of characters that the font lacks.
const BOX: &str = "02 08 38 32 02";

/// A line from one point to another.
pub type Stroke = ((f64, f64), (f64, f64));

/// Returns the width of `text` at a font size, in pixels.
pub fn width(text: &str, size: f64) -> f64 {
    let advance = |c| glyph_width(c) + GAP;
    (text.chars().map(advance).sum::<f64>() - GAP).max(0.0) * size / UNITS
}

/// Returns the strokes of `text`, which begins at a point on its base line. y grows downwards, in
/// pixels.
pub fn strokes(text: &str, start: (f64, f64), size: f64) -> Vec<Stroke> {
    let unit = size / UNITS;
    let mut pen = start.0;
    let mut out = Vec::new();
    for c in text.chars() {
        for line in glyph(c).split(';') {
            let points: Vec<(f64, f64)> =
                points(line).map(|(x, y)| (pen + x * unit, start.1 - (y - BASE) * unit)).collect();
            match points.as_slice() {
                [dot] => out.push((*dot, *dot)),
                many => out.extend(many.windows(2).map(|ends| (ends[0], ends[1]))),
            }
        }
        pen += (glyph_width(c) + GAP) * unit;
    }
    out
}

fn points(line: &str) -> impl Iterator<Item = (f64, f64)> {
    let digit = |b: u8| f64::from(b.saturating_sub(b'0'));
    line.split_whitespace().filter_map(move |p| match p.as_bytes() {
        [x, y] => Some((digit(*x), digit(*y))),
        _ => None,
    })
}

fn glyph_width(c: char) -> f64 {
    if c == ' ' {
        return SPACE;
    }
    glyph(c).split(';').flat_map(points).map(|(x, _)| x).fold(0.0, f64::max)
}

fn glyph(c: char) -> &'static str {
    match c {
        ' ' => "",
        '0' => "03 07 18 38 47 43 32 12 03",
        '1' => "06 28 22;02 42",
        '2' => "07 18 38 47 46 02 42",
        '3' => "07 18 38 47 46 35 15;35 44 43 32 12 03",
        '4' => "32 38 04 44",
        '5' => "48 08 05 35 44 43 32 12 03",
        '6' => "47 38 18 07 03 12 32 43 44 35 05",
        '7' => "08 48 12",
        '8' => "15 06 07 18 38 47 46 35 15 04 03 12 32 43 44 35",
        '9' => "03 12 32 43 47 38 18 07 06 15 45",
        'A' => "02 28 42;14 34",
        'B' => "02 08 38 47 46 35 05;35 44 43 32 02",
        'C' => "47 38 18 07 03 12 32 43",
        'D' => "02 08 28 46 44 22 02",
        'E' => "48 08 02 42;05 35",
        'F' => "48 08 02;05 35",
        'G' => "47 38 18 07 03 12 32 43 45 25",
        'H' => "02 08;42 48;05 45",
        'I' => "02 22;08 28;12 18",
        'J' => "03 12 22 33 38",
        'K' => "02 08;48 05 42",
        'L' => "08 02 42",
        'M' => "02 08 25 48 42",
        'N' => "02 08 42 48",
        'O' => "03 07 18 38 47 43 32 12 03",
        'P' => "02 08 38 47 46 35 05",
        'Q' => "03 07 18 38 47 43 32 12 03;24 42",
        'R' => "02 08 38 47 46 35 05;25 42",
        'S' => "47 38 18 07 06 15 35 44 43 32 12 03",
        'T' => "08 48;28 22",
        'U' => "08 03 12 32 43 48",
        'V' => "08 22 48",
        'W' => "08 12 26 32 48",
        'X' => "02 48;08 42",
        'Y' => "08 25 48;25 22",
        'Z' => "08 48 02 42",
        'a' => "06 26 35 32;34 14 03 12 22 33",
        'b' => "08 02;05 16 26 35 33 22 12 03",
        'c' => "35 26 16 05 03 12 22 33",
        'd' => "38 32;35 26 16 05 03 12 22 33",
        'e' => "04 34 35 26 16 05 03 12 32",
        'f' => "28 17 12;06 26",
        'g' => "36 31 20 00;35 26 16 05 03 12 22 33",
        'h' => "08 02;05 16 26 35 32",
        'i' => "06 02;08",
        'j' => "16 11 00;18",
        'k' => "08 02;36 04 32",
        'l' => "08 03 12",
        'm' => "02 06;05 16 25 22;25 36 45 42",
        'n' => "02 06;05 16 26 35 32",
        'o' => "05 16 26 35 33 22 12 03 05",
        'p' => "06 00;05 16 26 35 33 22 12 03",
        'q' => "36 30;35 26 16 05 03 12 22 33",
        'r' => "02 06;05 16 26",
        's' => "36 16 05 14 24 33 22 02",
        't' => "18 13 22;06 26",
        'u' => "06 03 12 22 33;36 32",
        'v' => "06 22 46",
        'w' => "06 12 25 32 46",
        'x' => "06 32;02 36",
        'y' => "06 22;46 10",
        'z' => "06 36 02 32",
        '.' => "02",
        ',' => "12 01",
        ':' => "02;05",
        '-' => "04 24",
        '–' => "04 34",
        '+' => "04 44;22 26",
        '×' => "02 35;05 32",
        '=' => "03 33;05 35",
        '(' => "18 06 04 12",
        ')' => "08 16 14 02",
        '/' => "02 38",
        '%' => "02 48;07;43",
        '<' => "36 04 32",
        '>' => "06 34 02",
        '_' => "01 31",
        '&' => "43 22 12 03 04 26 27 18 07 06 42",
        _ => BOX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_glyphs_exist_and_differ() {
        let all = ('0'..='9').chain('A'..='Z').chain('a'..='z').chain(".,:-–+×=()/%<>_&".chars());
        let mut shapes: Vec<&str> = all.map(glyph).collect();
        assert!(!shapes.contains(&BOX));
        let count = shapes.len();
        shapes.sort_unstable();
        shapes.dedup();
        // 0 and O have the same shape.
        assert_eq!(shapes.len(), count - 1);
        assert_eq!(glyph('☃'), BOX);
    }

    #[test]
    fn text_is_drawn_on_its_base_line_with_the_returned_width() {
        let strokes = strokes("Hx", (10.0, 50.0), UNITS);
        let ends: Vec<(f64, f64)> = strokes.iter().flat_map(|(a, b)| [*a, *b]).collect();
        let (right, low) = ends.iter().fold((0.0, 0.0), |(x, y), p| (f64::max(x, p.0), f64::max(y, p.1)));
        let high = ends.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
        assert_eq!((low, high), (50.0, 44.0));
        assert!((right - 10.0 - width("Hx", UNITS)).abs() < 1e-9);
        assert_eq!(width("", 10.0), 0.0);
    }
}
