//! Charts of measurements: small panels side by side over a common axis of categories. SVG and PNG
//! have the same drawing.
//!
//! A [`Chart`] is laid out into a [`Scene`] of lines, dots and words, in pixels from the upper left
//! corner. [`Scene::svg`] and [`Scene::png`] encode it. A line has round ends, and a dot is a line
//! without length, so that a backend needs few primitives. The PNG backend has its own font
//! ([`font`]), so that a chart looks the same on every machine.

pub mod font;
mod png;
mod svg;

use std::{fs, io, path::Path};

/// A colour: red, green, blue.
pub type Color = [u8; 3];

const INK: Color = [0x22, 0x22, 0x22];
const FAINT: Color = [0xdd, 0xdd, 0xdd];
/// Colours that colour-blind people can distinguish (Okabe and Ito). They also differ in
/// brightness.
const SERIES: [Color; 4] = [[0x00, 0x72, 0xb2], [0xd5, 0x5e, 0x00], [0x00, 0x9e, 0x73], [0xcc, 0x79, 0xa7]];

const WIDTH: f64 = 960.0;
const PANEL_HEIGHT: f64 = 300.0;
const COLUMNS: usize = 2;
/// Height of the title and the legend above the panels.
const HEAD: f64 = 78.0;
/// Margins around the plot within a panel: left for the numbers, above for the title, below for the
/// categories.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const ABOVE: f64 = 34.0;
const BELOW: f64 = 48.0;
const TITLE_SIZE: f64 = 17.0;
const TEXT_SIZE: f64 = 12.0;

/// How values are mapped to heights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic. Zero is one decade below the smallest value.
    Log,
}

/// One quantity over the categories.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The quantity, with its unit.
    pub title: String,
    /// The scale of its values.
    pub scale: Scale,
    /// One curve for each series of the chart, with a value for each category that has one.
    pub curves: Vec<Vec<Option<f64>>>,
    /// Minimum and maximum of the samples of which each value is the median. If this is not empty,
    /// the categories are independent: values are drawn as dots side by side, with a line from the
    /// minimum to the maximum, and are not joined.
    pub spreads: Vec<Vec<Option<(f64, f64)>>>,
}

/// Panels with a common title, legend and categories.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The title of the category axis.
    pub axis: String,
    /// The categories, from left to right.
    pub categories: Vec<String>,
    /// The names of the curves.
    pub series: Vec<String>,
    /// The panels, two in a row.
    pub panels: Vec<Panel>,
}

/// Alignment of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Clone, Debug)]
enum Mark {
    Line { from: (f64, f64), to: (f64, f64), width: f64, color: Color },
    Word { at: (f64, f64), size: f64, anchor: Anchor, text: String },
}

/// A drawing.
#[derive(Clone, Debug)]
pub struct Scene {
    width: f64,
    height: f64,
    marks: Vec<Mark>,
}

impl Chart {
    /// Lays out the chart.
    pub fn scene(&self) -> Scene {
        let rows = self.panels.len().div_ceil(COLUMNS);
        let mut scene = Scene { width: WIDTH, height: HEAD + rows as f64 * PANEL_HEIGHT, marks: Vec::new() };
        scene.word((WIDTH / 2.0, 28.0), TITLE_SIZE, Anchor::Middle, &self.title);
        self.legend(&mut scene);
        let wide = WIDTH / COLUMNS as f64;
        for (i, panel) in self.panels.iter().enumerate() {
            let (x, y) = ((i % COLUMNS) as f64 * wide, HEAD + (i / COLUMNS) as f64 * PANEL_HEIGHT);
            let plot = Plot {
                left: x + LEFT,
                right: x + wide - RIGHT,
                top: y + ABOVE,
                bottom: y + PANEL_HEIGHT - BELOW,
                ticks: Ticks::of(panel),
                categories: self.categories.len(),
            };
            self.panel(&mut scene, panel, &plot);
        }
        scene
    }

    /// Writes the chart into a directory, as NAME.svg and NAME.png.
    pub fn save(&self, dir: &Path, name: &str) -> io::Result<()> {
        let scene = self.scene();
        fs::create_dir_all(dir)?;
        // Two pixels per unit, for high-resolution screens.
        for (ending, content) in [("svg", scene.svg().into_bytes()), ("png", scene.png(2)?)] {
            let path = dir.join(format!("{name}.{ending}"));
            fs::write(&path, content)?;
            eprintln!("drawn: {}", path.display());
        }
        Ok(())
    }

    fn legend(&self, scene: &mut Scene) {
        const SAMPLE: f64 = 30.0;
        const GAP: f64 = 26.0;
        let width = |s: &String| SAMPLE + 8.0 + font::width(s, TEXT_SIZE) + GAP;
        let mut x = (WIDTH - self.series.iter().map(width).sum::<f64>() + GAP) / 2.0;
        for (name, color) in self.series.iter().zip(SERIES.iter().cycle()) {
            scene.line((x, 54.0), (x + SAMPLE, 54.0), 2.0, *color);
            scene.line((x + SAMPLE / 2.0, 54.0), (x + SAMPLE / 2.0, 54.0), 8.0, *color);
            scene.word((x + SAMPLE + 8.0, 58.0), TEXT_SIZE, Anchor::Start, name);
            x += width(name);
        }
    }

    fn panel(&self, scene: &mut Scene, panel: &Panel, plot: &Plot) {
        let middle = (plot.left + plot.right) / 2.0;
        scene.word((middle, plot.top - 14.0), TEXT_SIZE + 1.0, Anchor::Middle, &panel.title);
        for (height, label) in &plot.ticks.marks {
            let y = plot.y(*height);
            scene.line((plot.left, y), (plot.right, y), 1.0, FAINT);
            scene.word((plot.left - 8.0, y + 4.0), TEXT_SIZE, Anchor::End, label);
        }
        for (i, name) in self.categories.iter().enumerate() {
            scene.word((plot.x(i), plot.bottom + 18.0), TEXT_SIZE, Anchor::Middle, name);
        }
        scene.word((middle, plot.bottom + 38.0), TEXT_SIZE, Anchor::Middle, &self.axis);
        scene.line((plot.left, plot.bottom), (plot.right, plot.bottom), 1.5, INK);
        scene.line((plot.left, plot.top), (plot.left, plot.bottom), 1.5, INK);
        if !panel.spreads.is_empty() {
            return dots(scene, panel, plot);
        }
        for (n, (curve, color)) in panel.curves.iter().zip(SERIES.iter().cycle()).enumerate() {
            // A curve is thinner than those below it, so that coinciding curves are all visible.
            let extra = (panel.curves.len() - 1 - n) as f64;
            let (pen, dot) = (2.0 + 1.5 * extra, 7.0 + 3.5 * extra);
            let mut before = None;
            for (i, value) in curve.iter().enumerate() {
                let at = value.map(|v| (plot.x(i), plot.y(plot.ticks.height(v))));
                if let (Some(from), Some(to)) = (before, at) {
                    scene.line(from, to, pen, *color);
                }
                if let Some(at) = at {
                    scene.line(at, at, dot, *color);
                }
                before = at;
            }
        }
    }
}

/// Draws values that are not joined by lines.
fn dots(scene: &mut Scene, panel: &Panel, plot: &Plot) {
    let apart = (plot.x(1) - plot.x(0)) * 0.6 / panel.curves.len().max(1) as f64;
    for (n, (curve, color)) in panel.curves.iter().zip(SERIES.iter().cycle()).enumerate() {
        let aside = (n as f64 - (panel.curves.len() as f64 - 1.0) / 2.0) * apart;
        for (i, value) in curve.iter().enumerate() {
            let at = |v: f64| (plot.x(i) + aside, plot.y(plot.ticks.height(v)));
            if let Some(Some((low, high))) = panel.spreads.get(n).and_then(|s| s.get(i)) {
                scene.line(at(*low), at(*high), 2.0, *color);
            }
            if let Some(value) = value {
                scene.line(at(*value), at(*value), 9.0, *color);
            }
        }
    }
}

impl Scene {
    fn line(&mut self, from: (f64, f64), to: (f64, f64), width: f64, color: Color) {
        self.marks.push(Mark::Line { from, to, width, color });
    }

    fn word(&mut self, at: (f64, f64), size: f64, anchor: Anchor, text: &str) {
        self.marks.push(Mark::Word { at, size, anchor, text: text.to_owned() });
    }
}

struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    ticks: Ticks,
    categories: usize,
}

impl Plot {
    fn x(&self, category: usize) -> f64 {
        self.left + (self.right - self.left) * (category as f64 + 0.5) / self.categories.max(1) as f64
    }

    fn y(&self, height: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * height
    }
}

/// The axis of a panel. Heights run from 0 to 1.
struct Ticks {
    scale: Scale,
    low: f64,
    high: f64,
    marks: Vec<(f64, String)>,
}

impl Ticks {
    fn of(panel: &Panel) -> Ticks {
        let ends = || panel.spreads.iter().flatten().flatten().flat_map(|(low, high)| [*low, *high]);
        let values = || panel.curves.iter().flatten().flatten().copied().chain(ends()).filter(|v| v.is_finite());
        let (low, high, at): (f64, f64, Vec<f64>) = match panel.scale {
            Scale::Linear => {
                let step = round_step(values().fold(0.0, f64::max) / 5.0);
                let steps = (values().fold(0.0, f64::max) / step).ceil().max(1.0) as usize;
                (0.0, steps as f64 * step, (0..=steps).map(|i| i as f64 * step).collect())
            }
            Scale::Log => {
                let positive = || values().filter(|v| *v > 0.0);
                let first = positive().fold(f64::INFINITY, f64::min).log10().floor();
                let first = if first.is_finite() { first as i32 } else { 0 };
                let last = positive().fold(f64::NEG_INFINITY, f64::max).log10().ceil();
                let last = if last.is_finite() { (last as i32).max(first + 1) } else { 1 };
                // One more decade, whose lower end stands for zero.
                let below = i32::from(values().any(|v| v <= 0.0));
                let decades = (first..=last).map(|d| 10f64.powi(d));
                let zero = (below == 1).then_some(0.0);
                (f64::from(first - below), f64::from(last), zero.into_iter().chain(decades).collect())
            }
        };
        let mut ticks = Ticks { scale: panel.scale, low, high, marks: Vec::new() };
        ticks.marks = at.into_iter().map(|v| (ticks.height(v), label(v))).collect();
        ticks
    }

    fn height(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Log if value > 0.0 => value.log10(),
            Scale::Log => self.low,
        };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// Returns the smallest of 1, 2, 5, 10, 20, … that is not below `least`.
fn round_step(least: f64) -> f64 {
    if least <= 0.0 || !least.is_finite() {
        return 1.0;
    }
    let decade = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|m| m * decade).find(|step| *step >= least).unwrap_or(10.0 * decade)
}

/// Formats a number on an axis, with thousands separators and without trailing zeros.
fn label(value: f64) -> String {
    let text = format!("{value:.9}");
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    match decimals.trim_end_matches('0') {
        "" => out,
        decimals => format!("{out}.{decimals}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        Chart {
            title: "Writes & <stripes>".into(),
            axis: "overstripes".into(),
            categories: vec!["1".into(), "2".into()],
            series: vec!["first".into(), "second".into()],
            panels: vec![
                Panel {
                    title: "MiB/s".into(),
                    scale: Scale::Linear,
                    curves: vec![vec![Some(0.0), Some(430.0)], vec![Some(100.0), None]],
                    spreads: Vec::new(),
                },
                Panel {
                    title: "callbacks".into(),
                    scale: Scale::Log,
                    curves: vec![vec![Some(0.0), Some(5000.0)]],
                    spreads: Vec::new(),
                },
            ],
        }
    }

    #[test]
    fn axis_covers_all_values() {
        let ticks = Ticks::of(&chart().panels[0]);
        let labels: Vec<&str> = ticks.marks.iter().map(|(_, l)| l.as_str()).collect();
        assert_eq!(labels, ["0", "100", "200", "300", "400", "500"]);
        assert_eq!((ticks.height(0.0), ticks.height(250.0), ticks.height(500.0)), (0.0, 0.5, 1.0));
        let ticks = Ticks::of(&chart().panels[1]);
        let labels: Vec<&str> = ticks.marks.iter().map(|(_, l)| l.as_str()).collect();
        assert_eq!(labels, ["0", "1,000", "10,000"]);
        assert_eq!((ticks.height(0.0), ticks.height(1000.0), ticks.height(10_000.0)), (0.0, 0.5, 1.0));
        let nothing = Panel { title: String::new(), scale: Scale::Log, curves: vec![vec![None]], spreads: Vec::new() };
        assert!(Ticks::of(&nothing).height(3.0).is_finite());
        assert_eq!((label(0.05).as_str(), label(1_234_567.0).as_str()), ("0.05", "1,234,567"));
        assert_eq!((label(3.0 * 0.5).as_str(), label(3.0 * 0.1).as_str()), ("1.5", "0.3"));
    }

    #[test]
    fn the_svg_shows_words_and_curves() {
        let svg = chart().scene().svg();
        assert!(svg.starts_with("<svg xmlns"), "{svg}");
        assert!(svg.contains("Writes &amp; &lt;stripes&gt;") && svg.contains(">overstripes<"));
        // A curve is interrupted at a missing value: one segment, and three dots.
        let of = |color: &str, what: &str| svg.lines().filter(|l| l.starts_with(what) && l.contains(color)).count();
        assert_eq!((of("#0072b2", "<circle"), of("#d55e00", "<circle")), (1 + 2 + 2, 1 + 1));
    }

    #[test]
    fn values_with_spreads_are_drawn_side_by_side_and_not_joined() {
        let mut chart = chart();
        chart.panels.truncate(1);
        chart.panels[0].spreads = vec![vec![None, Some((300.0, 900.0))], vec![Some((100.0, 101.0)), None]];
        assert_eq!(Ticks::of(&chart.panels[0]).high, 1000.0, "the axis covers the spreads");
        let svg = chart.scene().svg();
        let of = |color: &str, what: &str| svg.lines().filter(|l| l.starts_with(what) && l.contains(color)).count();
        // Besides the dot and the line of the legend: two values (dots) and one spread (a line),
        // and one of each.
        assert_eq!((of("#0072b2", "<circle"), of("#0072b2", "<line")), (1 + 2, 1 + 1));
        assert_eq!((of("#d55e00", "<circle"), of("#d55e00", "<line")), (1 + 1, 1 + 1));
        let x = |color: &str| {
            let dot = svg.lines().rfind(|l| l.starts_with("<circle cx") && l.contains(color) && l.contains("4.5"));
            dot.map(|l| l.split('"').nth(1).unwrap().to_owned())
        };
        assert_ne!(x("#0072b2"), x("#d55e00"));
    }

    #[test]
    fn png_decodes_and_shows_all_colours() {
        let file = chart().scene().png(1).unwrap();
        let decoder = ::png::Decoder::new(std::io::Cursor::new(file));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (960, 378));
        for color in [SERIES[0], SERIES[1], INK, [255; 3]] {
            assert!(pixels.chunks(3).any(|p| p == color), "{color:?} is not there");
        }
    }
}
