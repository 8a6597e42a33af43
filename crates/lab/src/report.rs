//! Reports: one HTML file with everything in it.

use std::fmt::Write;

use serde_json::Value;

use crate::{output::OutputFile, table::Table};

/// Charts shrink with the window down to 40 rem, and scroll sideways in a narrower one. On a phone
/// with 390 pixels, a chart in full has texts of 4.5 pixels, which nobody can read.
const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:62rem;margin:0 auto;padding:1rem}\
h1{font-size:1.5rem;line-height:1.25}h2{font-size:1.15rem;margin-top:2rem}\
.sub{color:#555}.warn{border-left:4px solid #d55e00;background:#fdf1e8;padding:.5rem .75rem}\
.scroll{overflow-x:auto}@media(min-width:62rem){.scroll{width:max-content;max-width:calc(50vw + 29rem)}}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .75rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid #222}\
.facts td{text-align:left;white-space:normal;overflow-wrap:anywhere}.facts td:first-child{color:#555;white-space:nowrap}\
.chart{overflow-x:auto}svg{min-width:40rem;max-width:100%;height:auto}details{margin-top:1rem}code,pre{font:.9em/1.4 ui-monospace,monospace}\
pre{overflow-x:auto;background:#f5f5f5;padding:.75rem}code{overflow-wrap:anywhere}";

/// A report.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// The title: tool and shape.
    pub title: String,
    /// The result in a sentence.
    pub result: String,
    /// Reasons to doubt the results. The session sets them.
    pub warnings: Vec<String>,
    /// Charts, as SVG.
    pub charts: Vec<String>,
    /// The results. The HTML lacks tables without rows.
    pub tables: Vec<Table>,
    /// Parameters of the run. The session puts its circumstances before them.
    pub facts: Vec<(String, String)>,
    /// Everything, for programs. The session sets it.
    pub record: Value,
}

impl Report {
    /// Writes the report as HTML, or its first chart if the name ends in `.svg`.
    ///
    /// # Errors
    /// A message for the user.
    pub fn save(&self, file: OutputFile) -> Result<(), String> {
        match self.charts.first() {
            Some(chart) if file.is_svg() => file.write(chart),
            _ => file.write(&self.html().map_err(|e| e.to_string())?),
        }
    }

    /// Returns the report as HTML.
    ///
    /// # Errors
    /// Never, in practice.
    pub fn html(&self) -> Result<String, std::fmt::Error> {
        let mut html = String::new();
        let title = escape(&self.title);
        write!(
            html,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n\
             <p class=\"sub\">{}</p>\n",
            escape(&self.result)
        )?;
        for warning in &self.warnings {
            writeln!(html, "<p class=\"warn\">{}</p>", escape(warning))?;
        }
        for chart in &self.charts {
            writeln!(html, "<div class=\"chart\">{chart}</div>")?;
        }
        for table in self.tables.iter().filter(|table| !table.rows.is_empty()) {
            write_table(&mut html, table)?;
        }
        html.push_str("<h2>Circumstances</h2>\n<div class=\"scroll\"><table class=\"facts\">\n");
        for (key, value) in &self.facts {
            writeln!(html, "<tr><td>{}</td><td>{}</td></tr>", escape(key), escape(value))?;
        }
        let record = serde_json::to_string_pretty(&self.record).map_err(|_| std::fmt::Error)?;
        write!(
            html,
            "</table></div>\n<details><summary>All data as JSON</summary>\n<pre>{}</pre></details>\n</body></html>\n",
            escape(&record)
        )?;
        Ok(html)
    }
}

fn write_table(html: &mut String, table: &Table) -> std::fmt::Result {
    let row = |cells: Vec<String>, tag: &str| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String =
        table.rows.iter().map(|cells| row(cells.iter().map(ToString::to_string).collect(), "td")).collect();
    write!(
        html,
        "<h2>{}</h2>\n<div class=\"scroll\"><table><thead>{}</thead><tbody>\n{rows}</tbody></table></div>\n",
        escape(&table.title),
        row(table.columns.clone(), "th")
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Chart, Panel, Scale, Values};

    /// Returns the numbers of all attributes of this name.
    fn attributes(svg: &str, name: &str) -> Vec<f64> {
        let start = format!(" {name}=\"");
        svg.split(start.as_str()).skip(1).filter_map(|rest| rest.split('"').next()?.parse().ok()).collect()
    }

    #[test]
    fn charts_shrink_with_the_window_until_their_texts_have_8_pixels() {
        let panel =
            Panel { title: "MiB/s".into(), scale: Scale::Linear, values: Values::Curves(vec![vec![Some(1.0)]]) };
        let chart = Chart {
            title: "Writes".into(),
            axis: "tasks".into(),
            categories: vec!["1".into()],
            series: vec!["median".into()],
            panels: vec![panel],
        };
        let svg = chart.svg().unwrap();
        assert!(svg.contains(" viewBox=\"0 0 "), "it can be scaled: {svg}");
        let (width, fonts) = (attributes(&svg, "width")[0], attributes(&svg, "font-size"));
        let smallest = fonts.into_iter().reduce(f64::min).unwrap();
        // A rem has 16 pixels. On a phone, 358 pixels remain between the margins.
        assert!(STYLE.contains(".chart{overflow-x:auto}svg{min-width:40rem;max-width:100%;height:auto}"), "{STYLE}");
        let shown = |pixels: f64| smallest * pixels / width;
        assert!(shown(640.0) >= 8.0 && shown(358.0) < 5.0, "{smallest} of {width}");
    }

    #[test]
    fn report_contains_everything_and_escapes_names() {
        let report = Report {
            title: "write of <file> & more".into(),
            result: "done".into(),
            warnings: vec!["noisy".into()],
            charts: vec!["<svg></svg>".into()],
            tables: vec![Table::new("Results", ["access", "MiB/s"]).with([vec!["write", "100"]])],
            facts: vec![("command".into(), "ior -o \"x\"".into())],
            record: serde_json::json!({ "a": 1 }),
        };
        let html = report.html().unwrap();
        for part in [
            "<title>write of &lt;file&gt; &amp; more</title>",
            "<p class=\"warn\">noisy</p>",
            "<svg></svg>",
            "<td>write</td><td>100</td>",
            "ior -o &quot;x&quot;",
            "&quot;a&quot;: 1",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("http"), "needs nothing from elsewhere");
    }

    #[test]
    fn report_leaves_out_tables_without_rows() {
        let costs = Table::new("Costs", ["part", "write"]).with([vec!["locks", "1"]]);
        let report = Report { tables: vec![Table::new("Runs", ["job"]), costs], ..Report::default() };
        let html = report.html().unwrap();
        assert!(!html.contains("Runs") && html.contains("<h2>Costs</h2>"), "{html}");
    }
}
