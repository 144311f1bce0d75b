//! Bars in groups, as SVG and as PNG.
//!
//! A chart becomes rectangles, lines and letters ([`Shape`]); [`svg`](self::svg()) writes those down,
//! [`raster`] paints them. Values that differ by more than a factor of fifty get a logarithmic axis, and the
//! axis says so. Thin lines on the bars go from the least to the most of the runs.

mod raster;

use crate::Failure;
use crate::table::short;

/// What is shown.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) groups: Vec<String>,
    /// Each series with a bar per group, where it has one.
    pub(crate) bars: Vec<(String, Vec<Option<Bar>>)>,
}

/// Value, least, most.
pub(crate) type Bar = (f64, f64, f64);

type Colour = [u8; 3];

/// Something to draw; positions in pixels from the upper left.
enum Shape {
    Rectangle {
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        colour: Colour,
    },
    /// Upright or level.
    Line {
        from: (f64, f64),
        to: (f64, f64),
        colour: Colour,
    },
    Text {
        x: f64,
        y: f64,
        anchor: Anchor,
        text: String,
    },
}

#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

const INK: Colour = [40, 40, 40];
const GRID: Colour = [220, 220, 220];
/// Tell apart for people who see few colours, too (Okabe and Ito, then Tol).
const COLOURS: [Colour; 11] = [
    [0, 114, 178],
    [230, 159, 0],
    [0, 158, 115],
    [204, 121, 167],
    [86, 180, 233],
    [213, 94, 0],
    [120, 120, 120],
    [136, 34, 85],
    [221, 204, 119],
    [17, 85, 51],
    [51, 34, 136],
];

const HEIGHT: f64 = 480.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 90.0;
const BOTTOM: f64 = 50.0;
/// Width of a letter of the raster font.
const LETTER: f64 = 7.0;
const LOGARITHMIC_FROM: f64 = 50.0;

/// As SVG.
pub(crate) fn svg(chart: &Chart) -> String {
    let (width, shapes) = draw(chart);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" width=\"{width}\" height=\"{HEIGHT}\" \
         font-family=\"monospace\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let hex = |[red, green, blue]: Colour| format!("#{red:02x}{green:02x}{blue:02x}");
    for shape in &shapes {
        let line = match shape {
            Shape::Rectangle {
                x,
                y,
                width,
                height,
                colour,
            } => format!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\"/>",
                hex(*colour)
            ),
            Shape::Line { from, to, colour } => format!(
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{}\"/>",
                from.0,
                from.1,
                to.0,
                to.1,
                hex(*colour)
            ),
            Shape::Text { x, y, anchor, text } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                let text = text.replace('&', "&amp;").replace('<', "&lt;");
                format!(
                    "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{}\">{text}</text>",
                    y + 4.0,
                    hex(INK)
                )
            }
        };
        out.push_str(&line);
        out.push('\n');
    }
    out.push_str("</svg>\n");
    out
}

/// As PNG.
pub(crate) fn png(chart: &Chart) -> Result<Vec<u8>, Failure> {
    let (width, shapes) = draw(chart);
    raster::png(width as usize, HEIGHT as usize, &shapes)
}

/// The value axis.
struct Scale {
    logarithmic: bool,
    low: f64,
    high: f64,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        let values = || {
            chart
                .bars
                .iter()
                .flat_map(|(_, bars)| bars)
                .flatten()
                .flat_map(|(value, least, most)| [*value, *least, *most])
        };
        let high = values().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let low = values().filter(|value| *value > 0.0).fold(high, f64::min);
        if high / low > LOGARITHMIC_FROM {
            Self {
                logarithmic: true,
                // No bar is so near the axis that it looks like nothing.
                low: 10f64.powf((low / 1.5).log10().floor()),
                high: 10f64.powf(high.log10().ceil()),
            }
        } else {
            let step = step_for(high);
            Self {
                logarithmic: false,
                low: 0.0,
                high: (high / step).ceil() * step,
            }
        }
    }

    fn y(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            value / self.high
        };
        HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades)
                .map(|decade| self.low * 10f64.powi(decade))
                .collect();
        }
        let step = step_for(self.high);
        (0..)
            .map(|at| f64::from(at) * step)
            .take_while(|tick| *tick <= self.high * 1.001)
            .collect()
    }
}

/// A round step that gives four to ten ticks.
fn step_for(high: f64) -> f64 {
    let decade = 10f64.powf(high.log10().floor());
    let ratio = high / decade;
    decade
        * if ratio < 2.0 {
            0.2
        } else if ratio < 5.0 {
            0.5
        } else {
            1.0
        }
}

fn draw(chart: &Chart) -> (f64, Vec<Shape>) {
    let scale = Scale::of(chart);
    // Bars of a group stand side by side, also where series between them have none there.
    let bars_in = |group: usize| {
        chart
            .bars
            .iter()
            .filter(|(_, bars)| bars[group].is_some())
            .count()
    };
    let widest = (0..chart.groups.len()).map(bars_in).max().unwrap_or(0).max(1) as f64;
    let label = chart.groups.iter().map(String::len).max().unwrap_or(0) as f64 * LETTER + 12.0;
    let group_width = (widest * 24.0 + 24.0).max(label);
    let legend: f64 = chart.bars.iter().map(|(name, _)| legend_width(name)).sum();
    let title = chart.title.len().max(chart.unit.len() + 20) as f64 * LETTER;
    let plot_width = (group_width * chart.groups.len() as f64)
        .max(legend)
        .max(title - LEFT + 20.0)
        .max(300.0);
    let group_width = plot_width / chart.groups.len().max(1) as f64;
    let width = (LEFT + plot_width + RIGHT).ceil();

    let mut shapes = vec![Shape::Text {
        x: 12.0,
        y: 18.0,
        anchor: Anchor::Start,
        text: chart.title.clone(),
    }];
    let unit = if scale.logarithmic {
        format!("{} (logarithmic)", chart.unit)
    } else {
        chart.unit.clone()
    };
    shapes.push(Shape::Text {
        x: 12.0,
        y: TOP - 22.0,
        anchor: Anchor::Start,
        text: unit,
    });
    for tick in scale.ticks() {
        let y = scale.y(tick);
        shapes.push(Shape::Line {
            from: (LEFT, y),
            to: (LEFT + plot_width, y),
            colour: GRID,
        });
        shapes.push(Shape::Text {
            x: LEFT - 6.0,
            y,
            anchor: Anchor::End,
            text: short(tick),
        });
    }
    let bar_width = ((group_width - 24.0) / widest).min(48.0);
    let mut drawn = vec![0.0; chart.groups.len()];
    let mut legend_x = LEFT;
    for (index, (name, bars)) in chart.bars.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        shapes.push(Shape::Rectangle {
            x: legend_x,
            y: 38.0,
            width: 12.0,
            height: 12.0,
            colour,
        });
        shapes.push(Shape::Text {
            x: legend_x + 18.0,
            y: 44.0,
            anchor: Anchor::Start,
            text: name.clone(),
        });
        legend_x += legend_width(name);
        for (group, bar) in bars.iter().enumerate() {
            let Some((value, least, most)) = bar else { continue };
            let middle = LEFT + group_width * (group as f64 + 0.5);
            let x = middle + bar_width * (drawn[group] - bars_in(group) as f64 / 2.0);
            drawn[group] += 1.0;
            let (top, bottom) = (scale.y(*value), HEIGHT - BOTTOM);
            shapes.push(Shape::Rectangle {
                x,
                y: top,
                width: bar_width - 2.0,
                height: bottom - top,
                colour,
            });
            let centre = x + bar_width / 2.0 - 1.0;
            shapes.push(Shape::Line {
                from: (centre, scale.y(*least)),
                to: (centre, scale.y(*most)),
                colour: INK,
            });
        }
    }
    let base = HEIGHT - BOTTOM;
    shapes.push(Shape::Line {
        from: (LEFT, base),
        to: (LEFT + plot_width, base),
        colour: INK,
    });
    for (group, name) in chart.groups.iter().enumerate() {
        let x = LEFT + group_width * (group as f64 + 0.5);
        shapes.push(Shape::Text {
            x,
            y: base + 18.0,
            anchor: Anchor::Middle,
            text: name.clone(),
        });
    }
    (width, shapes)
}

fn legend_width(name: &str) -> f64 {
    name.len() as f64 * LETTER + 40.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: [f64; 2]) -> Chart {
        Chart {
            title: "a < b".to_owned(),
            unit: "msg/s".to_owned(),
            groups: vec!["4 members".to_owned()],
            bars: values
                .iter()
                .map(|value| (format!("s{value}"), vec![Some((*value, *value, *value))]))
                .collect(),
        }
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        let scale = Scale::of(&chart([100.0, 50.0]));
        assert!(!scale.logarithmic);
        let height = |value| HEIGHT - BOTTOM - scale.y(value);
        assert!((height(100.0) - 2.0 * height(50.0)).abs() < 1e-9);
        assert!(scale.y(100.0) >= TOP);
    }

    #[test]
    fn bars_of_a_group_stand_side_by_side_in_its_middle_whatever_has_none_there() {
        let bar = |value| Some((value, value, value));
        let bars = [
            vec![bar(1.0), bar(1.0)],
            vec![bar(2.0), None],
            vec![bar(3.0), bar(3.0)],
        ];
        let named = bars
            .into_iter()
            .enumerate()
            .map(|(at, bars)| (at.to_string(), bars));
        let (_, shapes) = draw(&Chart {
            groups: vec!["10".to_owned(), "100".to_owned()],
            bars: named.collect(),
            ..chart([1.0, 1.0])
        });
        let left_of = |shape: &Shape| match shape {
            Shape::Rectangle { x, width, height, .. } if *height != 12.0 => Some((*x, x + width)),
            _ => None,
        };
        // One series after the other.
        let bars: Vec<(f64, f64)> = shapes.iter().filter_map(left_of).collect();
        let [first, second, _, third, fourth] = bars.as_slice() else {
            panic!("{bars:?}")
        };
        assert!(first.1 < third.0, "two bars and another between them");
        assert!(
            (fourth.0 - second.1 - 2.0).abs() < 1e-9,
            "nothing between them: {bars:?}"
        );
        let middle = |shape: &Shape| match shape {
            Shape::Text { x, text, .. } if text == "100" => Some(*x),
            _ => None,
        };
        let middle = shapes.iter().find_map(middle).unwrap();
        assert!((second.1 + 2.0 - middle).abs() < 1e-9);
    }

    #[test]
    fn a_wide_range_gets_a_logarithmic_axis_that_says_so() {
        assert!(svg(&chart([100_000.0, 20.0])).contains("(logarithmic)"));
        assert!(!svg(&chart([100.0, 20.0])).contains("(logarithmic)"));
        assert!(svg(&chart([1.0, 1.0])).contains("a &lt; b"));
    }

    #[test]
    fn the_png_can_be_read_and_is_not_blank() {
        let bytes = png(&chart([3.0, 2.0])).unwrap();
        let mut reader = ::png::Decoder::new(std::io::Cursor::new(bytes))
            .read_info()
            .unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let blue = pixels.chunks(3).filter(|pixel| *pixel == COLOURS[0]).count();
        assert!(blue > 1000, "{blue}");
    }
}
