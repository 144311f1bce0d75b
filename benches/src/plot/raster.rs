//! Shapes as pixels.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

use super::{Anchor, Colour, INK, Shape};
use crate::Failure;

const WEIGHT: FontWeight = FontWeight::Regular;
const SIZE: RasterHeight = RasterHeight::Size16;

struct Canvas {
    width: usize,
    height: usize,
    /// Red, green, blue of each.
    pixels: Vec<u8>,
}

/// Paints the shapes on white.
pub(super) fn png(width: usize, height: usize, shapes: &[Shape]) -> Result<Vec<u8>, Failure> {
    let mut canvas = Canvas {
        width,
        height,
        pixels: vec![255; width * height * 3],
    };
    for shape in shapes {
        match shape {
            Shape::Rectangle {
                x,
                y,
                width,
                height,
                colour,
            } => canvas.fill(*x, *y, x + width, y + height, *colour),
            // Lines are upright or level: rectangles of one pixel.
            Shape::Line { from, to, colour } => {
                let (left, right) = (from.0.min(to.0), from.0.max(to.0));
                let (top, bottom) = (from.1.min(to.1), from.1.max(to.1));
                canvas.fill(left, top, right.max(left + 1.0), bottom.max(top + 1.0), *colour);
            }
            Shape::Text { x, y, anchor, text } => canvas.write(*x, *y, *anchor, text),
        }
    }
    let mut bytes = Vec::new();
    let failed = |error: png::EncodingError| format!("cannot write the plot: {error}");
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(&canvas.pixels))
        .map_err(failed)?;
    Ok(bytes)
}

impl Canvas {
    fn fill(&mut self, left: f64, top: f64, right: f64, bottom: f64, colour: Colour) {
        let clamp = |value: f64, most: usize| (value.round().max(0.0) as usize).min(most);
        for y in clamp(top, self.height)..clamp(bottom, self.height) {
            for x in clamp(left, self.width)..clamp(right, self.width) {
                self.mix(x, y, colour, 255);
            }
        }
    }

    /// `y` is the middle of the line.
    fn write(&mut self, x: f64, y: f64, anchor: Anchor, text: &str) {
        let letter = get_raster_width(WEIGHT, SIZE);
        let width = (letter * text.chars().count()) as f64;
        let left = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        let top = (y - SIZE.val() as f64 / 2.0).max(0.0) as usize;
        for (at, character) in text.chars().enumerate() {
            // What the font lacks is left blank.
            let Some(raster) = get_raster(character, WEIGHT, SIZE) else {
                continue;
            };
            for (row, strengths) in raster.rows().enumerate() {
                for (column, strength) in strengths.iter().enumerate() {
                    self.mix(
                        left.max(0.0) as usize + at * letter + column,
                        top + row,
                        INK,
                        *strength,
                    );
                }
            }
        }
    }

    fn mix(&mut self, x: usize, y: usize, colour: Colour, strength: u8) {
        if x >= self.width || y >= self.height {
            return;
        }
        let at = (y * self.width + x) * 3;
        for (pixel, ink) in self.pixels[at..at + 3].iter_mut().zip(colour) {
            let (old, new, strength) = (u16::from(*pixel), u16::from(ink), u16::from(strength));
            // A mean of two bytes is a byte.
            *pixel = ((old * (255 - strength) + new * strength) / 255) as u8;
        }
    }
}
