//! Scenes as PNG. Every line is a stroke with round ends. It covers a pixel by the degree to which
//! the pixel's centre lies within the stroke.

use std::io;

use super::{Anchor, Color, INK, Mark, Scene, font};

/// Pen width of letters, relative to the font size.
const PEN: f64 = 0.095;

impl Scene {
    /// Returns the drawing as PNG, with `scale` pixels per unit.
    pub fn png(&self, scale: u32) -> io::Result<Vec<u8>> {
        let factor = f64::from(scale);
        let size = |length: f64| (length * factor).ceil() as usize;
        let mut canvas = Canvas::new(size(self.width), size(self.height));
        let at = |(x, y): (f64, f64)| (x * factor, y * factor);
        for mark in &self.marks {
            match mark {
                Mark::Line { from, to, width, color } => canvas.stroke(at(*from), at(*to), width * factor, *color),
                Mark::Word { at: (x, y), size, anchor, text } => {
                    let back = match anchor {
                        Anchor::Start => 0.0,
                        Anchor::Middle => font::width(text, *size) / 2.0,
                        Anchor::End => font::width(text, *size),
                    };
                    for (from, to) in font::strokes(text, (x - back, *y), *size) {
                        canvas.stroke(at(from), at(to), size * PEN * factor, INK);
                    }
                }
            }
        }
        canvas.encode()
    }
}

struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    fn new(width: usize, height: usize) -> Canvas {
        Canvas { width, height, pixels: vec![255; width * height * 3] }
    }

    fn stroke(&mut self, from: (f64, f64), to: (f64, f64), width: f64, color: Color) {
        let reach = width / 2.0 + 1.0;
        let span = |a: f64, b: f64, max: usize| {
            let first = (a.min(b) - reach).max(0.0) as usize;
            first..((a.max(b) + reach).max(0.0) as usize + 1).min(max)
        };
        for y in span(from.1, to.1, self.height) {
            for x in span(from.0, to.0, self.width) {
                let centre = (x as f64 + 0.5, y as f64 + 0.5);
                let cover = (width / 2.0 + 0.5 - distance(centre, from, to)).clamp(0.0, 1.0);
                let pixel = (y * self.width + x) * 3;
                for (old, new) in self.pixels[pixel..pixel + 3].iter_mut().zip(color) {
                    *old = (f64::from(*old) + (f64::from(new) - f64::from(*old)) * cover).round() as u8;
                }
            }
        }
    }

    fn encode(&self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut encoder = ::png::Encoder::new(&mut out, self.width as u32, self.height as u32);
        encoder.set_color(::png::ColorType::Rgb);
        encoder.set_depth(::png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(io::Error::other)?;
        writer.write_image_data(&self.pixels).map_err(io::Error::other)?;
        writer.finish().map_err(io::Error::other)?;
        Ok(out)
    }
}

/// Returns the distance between a point and the nearest point of a line.
fn distance(p: (f64, f64), a: (f64, f64), b: (f64, f64)) -> f64 {
    let (along, off) = ((b.0 - a.0, b.1 - a.1), (p.0 - a.0, p.1 - a.1));
    let length = along.0 * along.0 + along.1 * along.1;
    let part = if length > 0.0 { ((off.0 * along.0 + off.1 * along.1) / length).clamp(0.0, 1.0) } else { 0.0 };
    (off.0 - part * along.0).hypot(off.1 - part * along.1)
}
