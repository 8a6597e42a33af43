//! Scenes as SVG, with text in the sans-serif font of the viewer.

use std::fmt::Write;

use super::{Anchor, Color, INK, Mark, Scene};

impl Scene {
    /// Returns the drawing as SVG.
    pub fn svg(&self) -> String {
        let (w, h) = (self.width, self.height);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
             font-family=\"sans-serif\" stroke-linecap=\"round\">\n<rect width=\"{w}\" height=\"{h}\" fill=\"#ffffff\"/>\n"
        );
        // Writing to a string cannot fail.
        for mark in &self.marks {
            let _ = match mark {
                Mark::Line { from, to, width, color } if from == to => {
                    let (x, y, r) = (from.0, from.1, width / 2.0);
                    writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\" fill=\"{}\"/>", hex(*color))
                }
                Mark::Line { from: (x1, y1), to: (x2, y2), width, color } => writeln!(
                    out,
                    "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{}\" stroke-width=\"{width}\"/>",
                    hex(*color)
                ),
                Mark::Word { at: (x, y), size, anchor, text } => writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{}\" fill=\"{}\">{}</text>",
                    side(*anchor),
                    hex(INK),
                    escape(text)
                ),
            };
        }
        out + "</svg>\n"
    }
}

fn side(anchor: Anchor) -> &'static str {
    match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    }
}

fn hex([r, g, b]: Color) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
