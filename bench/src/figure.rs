//! Figures as SVG: groups of bars, one bar a system, a whisker from the slowest to the fastest
//! round.

use crate::error::BenchError;
use crate::ledger::{Ledger, Metric, Summary};
use plotters::prelude::*;
use std::path::Path;

/// What a figure shows.
pub trait Drawn: std::fmt::Debug {
    /// Draws it.
    ///
    /// # Errors
    /// It cannot be drawn or written.
    fn draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>>;
}

/// A figure of a report.
#[derive(Debug)]
pub struct Figure {
    file: String,
    content: Box<dyn Drawn>,
}

impl Figure {
    /// A figure that is written to `file`.
    pub fn new(file: impl Into<String>, content: impl Drawn + 'static) -> Self {
        Self {
            file: file.into(),
            content: Box::new(content),
        }
    }

    /// Writes it to a file of this directory.
    ///
    /// # Errors
    /// [`BenchError::Figure`] when it cannot be drawn or written.
    pub fn write(&self, directory: &Path) -> Result<(), BenchError> {
        let path = directory.join(&self.file);
        self.content
            .draw(&path)
            .map_err(|error| BenchError::Figure {
                what: error.to_string(),
                path,
            })
    }
}

/// A figure's content.
#[derive(Debug)]
pub struct Bars {
    /// Above the figure.
    pub title: String,
    /// Beside the vertical axis.
    pub unit: String,
    /// The systems, in the order of their bars.
    pub systems: Vec<String>,
    /// The groups: a name, and a summary for each system that was measured.
    pub groups: Vec<(String, Vec<Option<Summary>>)>,
}

/// Colours that print apart, also in grey.
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(150, 150, 150),
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(23, 190, 207),
];

/// The part of a group's width that its bars fill.
const FILLED: f64 = 0.8;

impl Bars {
    /// Bars of a metric: groups by name and case.
    pub fn of<S: AsRef<str>>(
        ledger: &Ledger,
        title: impl Into<String>,
        metric: Metric,
        systems: &[S],
        cases: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let systems = || systems.iter().map(AsRef::as_ref);
        let groups = cases.into_iter().map(|(name, case)| {
            let bars = systems().map(|system| Summary::of(ledger.values(system, &case)));
            (name, bars.collect())
        });
        Self {
            title: title.into(),
            unit: metric.unit().to_owned(),
            systems: systems().map(str::to_owned).collect(),
            groups: groups.collect(),
        }
    }
}

impl Drawn for Bars {
    fn draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let width = (220 + 150 * self.groups.len() as u32).max(520);
        let root = SVGBackend::new(path, (width, 420)).into_drawing_area();
        root.fill(&WHITE)?;
        let all = self
            .groups
            .iter()
            .flat_map(|(_, bars)| bars.iter().flatten());
        let top = all.map(|bar| bar.max).fold(f64::MIN_POSITIVE, f64::max) * 1.3;
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..self.groups.len() as f64, 0.0..top)?;
        let name = |x: &f64| match self.groups.get(x.floor() as usize) {
            Some((name, _)) if (x - x.floor() - 0.5).abs() < 0.01 => name.clone(),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(1)
            .x_labels(2 * self.groups.len() + 1)
            .x_label_formatter(&name)
            .y_desc(self.unit.as_str())
            .draw()?;
        for (index, system) in self.systems.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let bars = self.bars_of(index).map(|(left, right, bar)| {
                Rectangle::new([(left, 0.0), (right, bar.median)], colour.filled())
            });
            chart
                .draw_series(bars)?
                .label(system.as_str())
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled())
                });
            chart.draw_series(self.bars_of(index).map(whisker))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        root.present()?;
        Ok(())
    }
}

impl Bars {
    /// Left edge, right edge and height of a system's bars.
    fn bars_of(&self, system: usize) -> impl Iterator<Item = (f64, f64, Summary)> {
        let width = FILLED / self.systems.len() as f64;
        self.groups
            .iter()
            .enumerate()
            .filter_map(move |(group, (_, bars))| {
                let left = group as f64 + (1.0 - FILLED) / 2.0 + system as f64 * width;
                Some((left, left + width, (*bars.get(system)?)?))
            })
    }
}

fn whisker((left, right, bar): (f64, f64, Summary)) -> PathElement<(f64, f64)> {
    let middle = (left + right) / 2.0;
    PathElement::new(vec![(middle, bar.min), (middle, bar.max)], BLACK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::drawn;

    #[test]
    fn a_figure_names_its_systems_and_groups_and_leaves_gaps() {
        let mut ledger = Ledger::default();
        for (system, case, value) in [
            ("mneme", "get100", 1.0),
            ("mneme", "get100", 2.0),
            ("peer", "get100", 0.5),
            ("mneme", "get0", 1.0),
        ] {
            ledger.add(system, case, Metric::Throughput, value);
        }
        let cases = ["get100", "get0"].map(|case| (case.to_owned(), case.to_owned()));
        let systems = ["mneme", "peer"];
        let svg = drawn(Bars::of(
            &ledger,
            "GET",
            Metric::Throughput,
            &systems,
            cases,
        ));
        for word in ["<svg", "GET", "Mops/s", "mneme", "peer", "get100", "get0"] {
            assert!(svg.contains(word), "{word}");
        }
    }

    #[test]
    fn an_unwritable_place_is_an_error() {
        let nothing = Bars {
            title: String::new(),
            unit: String::new(),
            systems: vec![],
            groups: vec![],
        };
        let error = Figure::new("bars.svg", nothing).write(Path::new("/nonexistent"));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("/nonexistent"), "{error}");
    }
}
