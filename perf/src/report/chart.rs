//! Lines in a rectangle, as SVG. The home of the plotting crate.

use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::drawing::IntoDrawingArea as _;
use plotters::element::PathElement;
use plotters::prelude::SVGBackend;
use plotters::series::LineSeries;
use plotters::style::{BLACK, Color as _, RGBColor, WHITE};

use crate::Failure;

const SIZE: (u32, u32) = (860, 340);
/// Told apart by people who see few colours, too.
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
    RGBColor(150, 110, 60),
];

/// An axis and how its numbers are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) title: &'static str,
    /// Each tenfold is one step; what is not above 0 is left out.
    pub(crate) is_log: bool,
    pub(crate) label: fn(f64) -> String,
}

#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Axis {
    fn place(&self, value: f64) -> Option<f64> {
        if self.is_log {
            (value > 0.0).then(|| value.log10())
        } else {
            Some(value)
        }
    }

    fn text(&self, place: f64) -> String {
        (self.label)(if self.is_log {
            10_f64.powf(place)
        } else {
            place
        })
    }
}

/// The chart; nothing if there is nothing to draw.
pub(crate) fn draw(title: &str, x: Axis, y: Axis, lines: &[Line]) -> Result<String, Failure> {
    let placed: Vec<Vec<(f64, f64)>> = lines
        .iter()
        .map(|line| {
            let points = line.points.iter();
            points
                .filter_map(|(at, value)| Some((x.place(*at)?, y.place(*value)?)))
                .collect()
        })
        .collect();
    let all = || placed.iter().flatten();
    if all().next().is_none() {
        return Ok(String::new());
    }
    let x_range = range(all().map(|point| point.0), x.is_log);
    let y_range = range(all().map(|point| point.1), y.is_log);
    let mut svg = String::new();
    let drawn = || -> Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(x_range, y_range)?;
        chart
            .configure_mesh()
            .x_desc(x.title)
            .y_desc(y.title)
            .x_labels(8)
            .y_labels(8)
            .x_label_formatter(&|place| x.text(*place))
            .y_label_formatter(&|place| y.text(*place))
            .light_line_style(BLACK.mix(0.05))
            .draw()?;
        for (number, (line, points)) in lines.iter().zip(placed.iter()).enumerate() {
            let color = COLORS[number % COLORS.len()];
            chart
                .draw_series(LineSeries::new(
                    points.iter().copied(),
                    color.stroke_width(2),
                ))?
                .label(&line.name)
                .legend(move |(left, middle)| {
                    PathElement::new([(left, middle), (left + 16, middle)], color.stroke_width(3))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
        Ok(())
    };
    drawn().map_err(|error| Failure::told(format!("the chart {title}: {error}")))?;
    Ok(svg)
}

/// From the lowest to the highest, never empty; linear axes begin at 0, as their lengths are compared.
fn range(places: impl Iterator<Item = f64>, is_log: bool) -> std::ops::Range<f64> {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for place in places {
        (low, high) = (low.min(place), high.max(place));
    }
    if !is_log {
        low = low.min(0.0);
    }
    let room = ((high - low) * 0.05).max(1e-3);
    low..high + room
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(is_log: bool) -> Axis {
        Axis {
            title: "time",
            is_log,
            label: |value| format!("{value:.0}"),
        }
    }

    #[test]
    fn a_chart_has_its_lines_and_their_names() {
        let line = |name: &str, top: f64| Line {
            name: name.to_owned(),
            points: vec![(1.0, 1.0), (10.0, 10.0), (100.0, top)],
        };
        let lines = [line("percore", 50.0), line("<kafka>", 1000.0)];
        let svg = draw("p99", axis(true), axis(true), &lines).unwrap();
        assert!(svg.starts_with("<svg"), "{svg}");
        assert!(svg.matches("<polyline").count() >= 2, "{svg}");
        assert!(svg.contains("percore") && svg.contains("&lt;kafka&gt;"));
    }

    #[test]
    fn nothing_to_draw_is_no_chart() {
        let line = Line {
            name: "a".to_owned(),
            points: vec![(0.0, 5.0)],
        };
        assert_eq!(draw("t", axis(true), axis(true), &[line]).unwrap(), "");
        assert_eq!(draw("t", axis(false), axis(false), &[]).unwrap(), "");
    }

    #[test]
    fn one_point_has_a_range_too() {
        let only = range([5.0].into_iter(), true);
        assert!(only.start < only.end);
        let linear = range([5.0, 9.0].into_iter(), false);
        assert!(linear.contains(&0.0) && linear.contains(&9.0));
    }
}
