//! Figures as SVG: one curve a system over a number, a whisker at each point from the slowest to
//! the fastest round.

use crate::figure::{COLOURS, Drawn};
use crate::ledger::{Ledger, Summary};
use crate::table::figure;
use plotters::prelude::*;
use std::path::Path;

/// How an axis runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By powers of ten; what is not above zero is left out.
    Log,
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Scale::Linear => value,
            Scale::Log => value.log10(),
        }
    }

    fn label(self, place: f64) -> String {
        match self {
            Scale::Linear => figure(place),
            Scale::Log => figure(10f64.powf(place)),
        }
    }

    fn shows(self, value: f64) -> bool {
        value.is_finite() && (self == Scale::Linear || value > 0.0)
    }

    /// From where to where an axis with these values runs.
    fn range(self, values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
        let places = values.filter(|v| self.shows(*v)).map(|v| self.place(v));
        let (low, high) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), place| {
            (low.min(place), high.max(place))
        });
        if low > high {
            return 0.0..1.0;
        }
        match self {
            Scale::Linear => 0.0..(high * 1.2).max(f64::MIN_POSITIVE),
            Scale::Log => low - 0.1..high + 0.3,
        }
    }
}

/// An axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// What it shows, with its unit.
    pub name: String,
    /// How it runs.
    pub scale: Scale,
    /// What of the ledger's unit is one of its own.
    pub unit: f64,
}

impl Axis {
    /// One that runs evenly, in the ledger's unit.
    pub fn linear(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            scale: Scale::Linear,
            unit: 1.0,
        }
    }

    /// One that runs by powers of ten, in the ledger's unit.
    pub fn log(name: impl Into<String>) -> Self {
        Self {
            scale: Scale::Log,
            ..Self::linear(name)
        }
    }

    /// With another unit.
    pub fn of(self, unit: f64) -> Self {
        Self { unit, ..self }
    }
}

/// A figure's content.
#[derive(Debug)]
pub struct Curves {
    /// Above the figure.
    pub title: String,
    /// To the right.
    pub across: Axis,
    /// Upwards.
    pub up: Axis,
    /// A name and its points, in order.
    pub curves: Vec<(String, Vec<(f64, Summary)>)>,
}

impl Curves {
    /// Curves of the systems that were measured, each through the same cases.
    pub fn of<S: AsRef<str>>(
        ledger: &Ledger,
        title: impl Into<String>,
        (across, up): (Axis, Axis),
        systems: &[S],
        cases: &[(f64, String)],
    ) -> Self {
        let curves = systems.iter().map(|system| {
            let system = system.as_ref();
            (system.to_owned(), ledger.points(system, up.unit, cases))
        });
        Self {
            title: title.into(),
            curves: curves.filter(|(_, points)| !points.is_empty()).collect(),
            across,
            up,
        }
    }

    /// Where the names of the curves cover least of them.
    fn free_corner(&self) -> SeriesLabelPosition {
        let ends = self.curves.iter().filter_map(|(_, points)| {
            let (first, last) = (points.first()?, points.last()?);
            Some(last.1.median - first.1.median)
        });
        if ends.sum::<f64>() > 0.0 {
            SeriesLabelPosition::UpperLeft
        } else {
            SeriesLabelPosition::UpperRight
        }
    }
}

impl Drawn for Curves {
    fn draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let (x, y) = (self.across.scale, self.up.scale);
        let root = SVGBackend::new(path, (640, 420)).into_drawing_area();
        root.fill(&WHITE)?;
        let points = || self.curves.iter().flat_map(|(_, points)| points);
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(
                x.range(points().map(|(at, _)| *at)),
                y.range(points().flat_map(|(_, s)| [s.min, s.median, s.max])),
            )?;
        chart
            .configure_mesh()
            .max_light_lines(1)
            .x_desc(self.across.name.as_str())
            .y_desc(self.up.name.as_str())
            .x_label_formatter(&|place| x.label(*place))
            .y_label_formatter(&|place| y.label(*place))
            .draw()?;
        for (index, (name, points)) in self.curves.iter().enumerate() {
            let colour = COLOURS[(index + 1) % COLOURS.len()];
            let shown = points
                .iter()
                .filter(|(at, s)| x.shows(*at) && y.shows(s.min) && y.shows(s.max));
            let at = |at: f64, value: f64| (x.place(at), y.place(value));
            let line = shown.clone().map(|(to, s)| at(*to, s.median));
            let path = PathElement::new(line.clone().collect::<Vec<_>>(), colour.stroke_width(2));
            chart
                .draw_series([path])?
                .label(name.as_str())
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled())
                });
            chart.draw_series(line.map(|place| Circle::new(place, 3, colour.filled())))?;
            chart.draw_series(
                shown.map(|(to, s)| PathElement::new(vec![at(*to, s.min), at(*to, s.max)], colour)),
            )?;
        }
        chart
            .configure_series_labels()
            .position(self.free_corner())
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        root.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Metric;
    use crate::testing::drawn;

    #[test]
    fn both_scales_draw_what_they_can_show() {
        let mut ledger = Ledger::default();
        ledger.add("append", "0.2", Metric::Throughput, 3.0);
        ledger.add("append", "0.9", Metric::Throughput, 0.0);
        let cases = [0.2, 0.9].map(|at: f64| (at, at.to_string()));
        // A zero has no place among powers of ten.
        for (up, circles) in [(Axis::linear("Mops/s"), 2), (Axis::log("Mops/s"), 1)] {
            let axes = (Axis::linear("live share"), up);
            let svg = drawn(Curves::of(
                &ledger,
                "fill",
                axes,
                &["append", "absent"],
                &cases,
            ));
            for word in ["fill", "live share", "Mops/s", "append"] {
                assert!(svg.contains(word), "{word}");
            }
            assert!(!svg.contains("absent"));
            assert_eq!(svg.matches("<circle").count(), circles);
        }
    }
}
