//! Figures as SVG: heat maps, in which what is darker is more. Cells with nothing stay white.

use mneme_bench::figure::Drawn;
use plotters::prelude::*;
use std::path::Path;

/// A figure's content.
#[derive(Debug)]
pub struct HeatMap {
    /// Above the figure.
    pub title: String,
    /// To the right, with its unit.
    pub across: String,
    /// Upwards, with its unit.
    pub up: String,
    /// Where the axes end; they begin at zero.
    pub ends: (f64, f64),
    /// Columns from the left, each from below. The darkest cell is the one with the most.
    pub columns: Vec<Vec<u64>>,
}

impl Drawn for HeatMap {
    fn draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::new(path, (640, 420)).into_drawing_area();
        root.fill(&WHITE)?;
        let most = self.columns.iter().flatten().copied().max().unwrap_or(0);
        let title = format!("{} (darkest: {most})", self.title);
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..self.ends.0, 0.0..self.ends.1)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc(self.across.as_str())
            .y_desc(self.up.as_str())
            .draw()?;
        let width = self.ends.0 / self.columns.len().max(1) as f64;
        for (x, column) in self.columns.iter().enumerate() {
            let height = self.ends.1 / column.len().max(1) as f64;
            let cells = column.iter().enumerate().filter(|(_, cell)| **cell > 0);
            chart.draw_series(cells.map(|(y, cell)| {
                let (left, low) = (x as f64 * width, y as f64 * height);
                // By logarithms: a ring of records is written a thousand times as often as a leaf.
                let heat = ((1 + cell) as f64).ln() / ((1 + most) as f64).ln();
                let shade = (230.0 - 230.0 * heat) as u8;
                let corners = [(left, low), (left + width, low + height)];
                Rectangle::new(corners, RGBColor(shade, shade, shade).filled())
            }))?;
        }
        root.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mneme_bench::testing::drawn;

    #[test]
    fn each_cell_with_something_is_drawn_and_the_most_is_darkest() {
        let map = HeatMap {
            title: "wear".to_owned(),
            across: "puts".to_owned(),
            up: "pages".to_owned(),
            ends: (100.0, 10.0),
            columns: vec![vec![0, 3], vec![9, 0], vec![0, 1000]],
        };
        let svg = drawn(map);
        for word in ["wear", "darkest: 1000", "puts", "pages"] {
            assert!(svg.contains(word), "{word}");
        }
        assert_eq!(svg.matches("#000000\" stroke=\"none\"").count(), 1, "{svg}");
    }
}
