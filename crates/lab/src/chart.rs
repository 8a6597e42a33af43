//! Charts of measurements as SVG: small panels side by side, each over the same categories, with a
//! common title and legend. Texts use the sans-serif font of the viewer.

use std::{fs, io, ops::Range, path::Path};

use indicatif::HumanFloatCount;
use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, DefaultFormatting, KeyPointHint, ValueFormatter},
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

/// Colours that colour-blind people can distinguish (Okabe and Ito). They also differ in
/// brightness.
const SERIES: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x00, 0x00),
];
/// Curves that are thicker than the last one.
const THICKER_MAX: usize = 3;
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

const WIDTH: u32 = 960;
const PANEL_HEIGHT: u32 = 300;
const COLUMNS: usize = 2;
/// Part by which rounding may move the first label of a logarithmic axis.
const ROUNDING: f64 = 1e-9;
/// Height of the title and the legend above the panels.
const HEAD_HEIGHT: u32 = 78;
/// Font sizes. Plotters divides them by 1.24.
const TITLE: (&str, f64) = ("sans-serif", 21.0);
const PANEL_TITLE: (&str, f64) = ("sans-serif", 17.0);
const TEXT: (&str, f64) = ("sans-serif", 15.0);

/// How values are mapped to heights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic. Zero is one decade below the smallest value.
    Log,
}

/// The values of a panel, for each series and each category. `None` if it was not measured.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// Values that depend on the category, which is a number. They are joined by lines.
    Curves(Vec<Vec<Option<f64>>>),
    /// Minimum, median and maximum of samples. The categories are independent: the values are drawn
    /// side by side and are not joined.
    Ranges(Vec<Vec<Option<[f64; 3]>>>),
}

/// One quantity over the categories.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The quantity, with its unit.
    pub title: String,
    /// The scale of its values.
    pub scale: Scale,
    /// Its values.
    pub values: Values,
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
    /// The names of the series.
    pub series: Vec<String>,
    /// The panels, two in a row.
    pub panels: Vec<Panel>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

impl Chart {
    /// Writes the chart into a directory, as NAME.svg.
    pub fn save(&self, dir: &Path, name: &str) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        let path = dir.join(format!("{name}.svg"));
        fs::write(&path, self.svg()?)?;
        eprintln!("drawn: {}", path.display());
        Ok(())
    }

    /// Returns the chart as SVG.
    pub fn svg(&self) -> io::Result<String> {
        let rows = self.panels.len().div_ceil(COLUMNS);
        let mut svg = String::new();
        let size = (WIDTH, HEAD_HEIGHT + rows as u32 * PANEL_HEIGHT);
        self.draw(SVGBackend::with_string(&mut svg, size).into_drawing_area(), rows).map_err(io::Error::other)?;
        Ok(svg)
    }

    fn draw(&self, area: Area<'_>, rows: usize) -> Drawn {
        area.fill(&WHITE)?;
        let (head, body) = area.split_vertically(HEAD_HEIGHT);
        let centered = Pos::new(HPos::Center, VPos::Center);
        head.draw_text(&self.title, &TITLE.into_font().color(&INK).pos(centered), (WIDTH as i32 / 2, 24))?;
        self.legend(&head)?;
        let columns = self.panels.len().clamp(1, COLUMNS);
        for (panel, area) in self.panels.iter().zip(body.split_evenly((rows, columns))) {
            let all = panel.values.all();
            match panel.scale {
                Scale::Linear => self.panel(panel, &area, linear(all), linear(panel.values.all()))?,
                Scale::Log => {
                    // plotters rounds a first decade below 1 up, so it would have no label.
                    let range = log(all);
                    let range = range.start * (1.0 - ROUNDING)..range.end;
                    self.panel(panel, &area, range.clone(), range.log_scale())?;
                }
            }
        }
        area.present()
    }

    fn legend(&self, head: &Area<'_>) -> Drawn {
        const SAMPLE: i32 = 30;
        const GAP: i32 = 26;
        let style = TEXT.into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        let widths = self.series.iter().map(|name| Ok(SAMPLE + 8 + head.estimate_text_size(name, &style)?.0 as i32));
        let widths = widths.collect::<Result<Vec<i32>, DrawingAreaErrorKind<io::Error>>>()?;
        let (mut x, y) = ((WIDTH as i32 - widths.iter().sum::<i32>() - GAP * (widths.len() as i32 - 1)) / 2, 54);
        for ((name, width), color) in self.series.iter().zip(widths).zip(SERIES.iter().cycle()) {
            head.draw(&PathElement::new([(x, y), (x + SAMPLE, y)], color.stroke_width(2)))?;
            head.draw(&Circle::new((x + SAMPLE / 2, y), 4, color.filled()))?;
            head.draw_text(name, &style, (x + SAMPLE + 8, y))?;
            x += width + GAP;
        }
        Ok(())
    }

    /// Draws a panel. Values outside `range` are drawn at its ends.
    fn panel<Y>(&self, panel: &Panel, area: &Area<'_>, range: Range<f64>, y: Y) -> Drawn
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let x = CategoryAxis { categories: self.categories.len() };
        let mut chart = ChartBuilder::on(area)
            .caption(&panel.title, PANEL_TITLE.into_font().color(&INK))
            .margin_right(20)
            .margin_bottom(14)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        let zero = match panel.values.all().any(|v| v <= 0.0) {
            true => range.start * (1.0 + 2.0 * ROUNDING),
            false => f64::NEG_INFINITY,
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_max_light_lines(1)
            .y_labels(6)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(INK.stroke_width(2))
            .label_style(TEXT.into_font().color(&INK))
            .x_desc(&self.axis)
            .x_label_formatter(&|x| self.categories.get(x.round() as usize).cloned().unwrap_or_default())
            .y_label_formatter(&|y| if *y <= zero { "0".to_owned() } else { HumanFloatCount(*y).to_string() })
            .draw()?;
        let at = |v: f64| v.clamp(range.start, range.end);
        let color = |n: usize| SERIES[n % SERIES.len()];
        match &panel.values {
            Values::Curves(curves) => {
                for (n, curve) in curves.iter().enumerate() {
                    // The last curves are thinner than those below them, so that coinciding ones
                    // are visible.
                    let below = (curves.len() - 1 - n).min(THICKER_MAX) as u32;
                    let points: Vec<Option<(f64, f64)>> =
                        curve.iter().enumerate().map(|(i, v)| v.map(|v| (i as f64, at(v)))).collect();
                    for joined in points.split(Option::is_none) {
                        let style = color(n).filled().stroke_width(2 + 2 * below);
                        chart.draw_series(
                            LineSeries::new(joined.iter().flatten().copied(), style).point_size(4 + 2 * below),
                        )?;
                    }
                }
            }
            Values::Ranges(series) => {
                let apart = 0.6 / series.len().max(1) as f64;
                for (n, ranges) in series.iter().enumerate() {
                    let aside = (n as f64 - (series.len() as f64 - 1.0) / 2.0) * apart;
                    let style = color(n).filled().stroke_width(2);
                    let bar = |(i, values): (usize, &Option<[f64; 3]>)| {
                        values.map(|[low, middle, high]| {
                            ErrorBar::new_vertical(i as f64 + aside, at(low), at(middle), at(high), style, 9)
                        })
                    };
                    chart.draw_series(ranges.iter().enumerate().filter_map(bar))?;
                }
            }
        }
        Ok(())
    }
}

/// The horizontal axis: category `i` is at `i`, with a label each.
struct CategoryAxis {
    categories: usize,
}

impl Ranged for CategoryAxis {
    type ValueType = f64;
    type FormatOption = DefaultFormatting;

    fn range(&self) -> Range<f64> {
        -0.5..self.categories as f64 - 0.5
    }

    fn map(&self, at: &f64, (left, right): (i32, i32)) -> i32 {
        left + (f64::from(right - left) * (at + 0.5) / self.categories.max(1) as f64) as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let labels = if hint.weight().allow_light_points() { 0 } else { self.categories };
        (0..labels).map(|i| i as f64).collect()
    }
}

impl Values {
    /// Returns all finite values.
    fn all(&self) -> impl Iterator<Item = f64> {
        let (curves, ranges) = match self {
            Values::Curves(curves) => (Some(curves), None),
            Values::Ranges(ranges) => (None, Some(ranges)),
        };
        let curves = curves.into_iter().flatten().flatten().flatten().copied();
        let ranges = ranges.into_iter().flatten().flatten().flatten().flatten().copied();
        curves.chain(ranges).filter(|v| v.is_finite())
    }
}

/// Returns the axis of a linear panel: from zero, with some room above the largest value.
fn linear(values: impl Iterator<Item = f64>) -> Range<f64> {
    let high = values.fold(0.0, f64::max);
    0.0..if high > 0.0 { high * 1.05 } else { 1.0 }
}

/// Returns the axis of a logarithmic panel: whole decades, and one more if there is a zero.
fn log(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (positive, others): (Vec<f64>, Vec<f64>) = values.partition(|v| *v > 0.0);
    let logs = || positive.iter().map(|v| v.log10());
    let (low, high) = match positive.is_empty() {
        true => (0.0, 1.0),
        false => (logs().fold(f64::INFINITY, f64::min).floor(), logs().fold(f64::NEG_INFINITY, f64::max).ceil()),
    };
    let below = if others.is_empty() { 0.0 } else { 1.0 };
    10_f64.powf(low - below)..10_f64.powf(high.max(low + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: Values) -> Chart {
        let panel = Panel { title: "MiB/s".into(), scale: Scale::Linear, values };
        Chart {
            title: "Writes & <stripes>".into(),
            axis: "overstripes".into(),
            categories: vec!["1".into(), "2".into()],
            series: vec!["first".into(), "second".into()],
            panels: vec![panel.clone(), Panel { scale: Scale::Log, ..panel }],
        }
    }

    /// Returns the number of elements `what` of the colour of a series.
    fn count(svg: &str, what: &str, series: usize) -> usize {
        let RGBColor(r, g, b) = SERIES[series];
        let color = format!("#{r:02X}{g:02X}{b:02X}");
        svg.lines().filter(|l| l.starts_with(&format!("<{what} ")) && l.contains(&color)).count()
    }

    #[test]
    fn axis_covers_all_values() {
        assert_eq!(linear([100.0, 0.0, 400.0].into_iter()), 0.0..420.0);
        assert_eq!(log([5000.0, 20.0].into_iter()), 10.0..10_000.0);
        assert_eq!(log([5000.0, 0.0].into_iter()), 100.0..10_000.0);
        assert_eq!((linear([].into_iter()), log([].into_iter())), (0.0..1.0, 1.0..10.0));
        let ranges = Values::Ranges(vec![vec![None, Some([1.0, 2.0, 9.0])]]);
        assert_eq!(ranges.all().collect::<Vec<f64>>(), [1.0, 2.0, 9.0]);
    }

    #[test]
    fn logarithmic_axis_labels_zero_below_one() {
        let values = Values::Curves(vec![vec![Some(0.0), Some(5.0)]]);
        let panel = Panel { title: "callbacks".into(), scale: Scale::Log, values };
        let svg = Chart { panels: vec![panel.clone()], ..chart(panel.values) }.svg().unwrap();
        assert!(svg.contains("\n0\n") && svg.contains("\n10\n"), "{svg}");
    }

    #[test]
    fn the_svg_shows_words_and_curves() {
        let svg = chart(Values::Curves(vec![vec![Some(0.0), Some(430.0)], vec![None, Some(100.0)]])).svg().unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(svg.contains("Writes &amp; &lt;stripes&gt;") && svg.contains("\noverstripes\n"), "{svg}");
        // Each value is a dot in both panels, and the legend has one more.
        assert_eq!((count(&svg, "circle", 0), count(&svg, "circle", 1)), (1 + 2 * 2, 1 + 2));
    }

    #[test]
    fn ranges_are_drawn_side_by_side_and_not_joined() {
        let ranges = vec![vec![None, Some([300.0, 400.0, 900.0])], vec![Some([100.0, 100.0, 101.0]), None]];
        let svg = chart(Values::Ranges(ranges)).svg().unwrap();
        for series in [0, 1] {
            assert_eq!(count(&svg, "circle", series), 1 + 2);
            // The lines from minimum to maximum, with two ends each; the line of the legend is a
            // polyline.
            assert_eq!((count(&svg, "line", series), count(&svg, "polyline", series)), (2 * 3, 1));
        }
    }
}
