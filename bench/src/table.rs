//! Tables for the terminal: columns as wide as their widest cell, the first to the left, numbers to
//! the right.

use crate::ledger::Summary;
use std::fmt;

/// Rows of cells under a head.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        let mut table = Self::default();
        table.row(head);
        table
    }

    /// A column a system and a row a case: its name, and what `cell` makes of both.
    pub fn grid<S: AsRef<str>, C>(
        head: &str,
        systems: &[S],
        rows: impl IntoIterator<Item = (String, C)>,
        cell: impl Fn(&str, &C) -> String,
    ) -> Self {
        let mut table = Self::new([head].into_iter().chain(systems.iter().map(AsRef::as_ref)));
        for (name, case) in rows {
            let cells = systems.iter().map(|system| cell(system.as_ref(), &case));
            table.row([name].into_iter().chain(cells));
        }
        table
    }

    /// As [`grid`](Self::grid), of cases that `cell` knows by their names.
    pub fn by_case<S: AsRef<str>>(
        head: &str,
        systems: &[S],
        cases: impl IntoIterator<Item = String>,
        cell: impl Fn(&str, &str) -> String,
    ) -> Self {
        let rows = cases.into_iter().map(|case| (case.clone(), case));
        Self::grid(head, systems, rows, |system, case| cell(system, case))
    }

    /// Prints it under a title.
    pub fn print(&self, title: impl fmt::Display) {
        println!("{title}\n{self}");
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                line += &if column == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("  {cell:>width$}")
                };
            }
            writeln!(f, "{}", line.trim_end())?;
            if number == 0 {
                let total = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
                writeln!(f, "{}", "-".repeat(total))?;
            }
        }
        Ok(())
    }
}

/// A number with three significant figures, as a table shows it.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A cell of what was not measured.
pub const NONE: &str = "-";

/// The median of the rounds.
pub fn median(values: &[f64], unit: f64) -> String {
    Summary::of(values).map_or(NONE.to_owned(), |s| figure(s.median / unit))
}

/// Median, minimum and maximum of the rounds, in a cell each.
pub fn three(values: &[f64]) -> [String; 3] {
    Summary::of(values).map_or([NONE; 3].map(str::to_owned), |s| {
        [s.median, s.min, s.max].map(figure)
    })
}

/// Median, minimum and maximum of the rounds, in one cell.
pub fn range(values: &[f64], unit: f64) -> String {
    Summary::of(values).map_or(NONE.to_owned(), |s| {
        let [median, min, max] = [s.median, s.min, s.max].map(|value| figure(value / unit));
        format!("{median} ({min}-{max})")
    })
}

/// The median of the rounds, and in brackets that of ratios, if there are any.
pub fn beside(values: &[f64], unit: f64, ratios: &[f64]) -> String {
    match ratios {
        [] => median(values, unit),
        _ => format!("{} ({})", median(values, unit), median(ratios, 1.0)),
    }
}

/// The median of the rounds, and in brackets that of ratios with their minimum and maximum.
pub fn beside_range(values: &[f64], ratios: &[f64]) -> String {
    match Summary::of(ratios) {
        None => NONE.to_owned(),
        Some(_) => {
            let [over, min, max] = three(ratios);
            format!("{} ({over}; {min}-{max})", median(values, 1.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["case", "ours"]);
        table.row(["get", "1.00"]);
        table.row(["a longer name", "12.0"]);
        let text = table.to_string();
        let widths: Vec<usize> = text.lines().map(str::len).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
        assert_eq!(text.lines().count(), 4);
    }

    #[test]
    fn figures_keep_three_places() {
        assert_eq!(
            [0.123, 1.234, 12.34, 1234.5].map(figure),
            ["0.12", "1.23", "12.3", "1234"]
        );
    }
}
