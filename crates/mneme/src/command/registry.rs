//! What the commands for segments and for spaces share: opening the registry, and printing tables
//! and findings.

use std::error::Error;
use std::path::{Path, PathBuf};

use mneme_space::{Finding, Registry};
use serde_json::{Value, json};

use super::output;

#[derive(Debug, clap::Args)]
pub struct RegistryPath {
    /// The registry's directory. By default $MNEME_DIR, else /dev/shm/mneme-UID-registry.
    #[arg(long, global = true, value_name = "DIRECTORY")]
    registry: Option<PathBuf>,
}

impl RegistryPath {
    /// The registry in this directory, or the default one.
    pub fn at(registry: Option<PathBuf>) -> Self {
        Self { registry }
    }

    /// Opens the registry, and makes it if it does not exist.
    pub fn open(self) -> Result<Registry, Box<dyn Error>> {
        Ok(match self.registry {
            Some(root) => Registry::open(root)?,
            None => Registry::open_default()?,
        })
    }
}

/// Parses permissions in the notation of chmod.
pub fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("permissions are three octal digits, such as 660".to_owned()),
    }
}

/// A table whose columns are as wide as their longest text, with a line of headings.
pub fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let head = head.map(str::to_owned);
    let mut widths = [0; N];
    for row in std::iter::once(&head).chain(rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let cells = row.iter().zip(widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A table with a line for each name. If an entry cannot be opened, the reason stands in its last
/// column, and the others are still listed. `nouns` is the plural word for the entries.
pub struct Listing<'a, const N: usize> {
    registry: &'a Registry,
    nouns: &'a str,
    head: [&'a str; N],
    as_json: bool,
    values: Vec<Value>,
    rows: Vec<[String; N]>,
}

impl<'a, const N: usize> Listing<'a, N> {
    pub fn new(registry: &'a Registry, nouns: &'a str, head: [&'a str; N], as_json: bool) -> Self {
        Self {
            registry,
            nouns,
            head,
            as_json,
            values: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Adds the result of opening the entry `name`, as `json` or as a `row`.
    pub fn add<T, E: Error>(
        &mut self,
        name: &str,
        opened: Result<T, E>,
        json: impl FnOnce(&T) -> Value,
        row: impl FnOnce(&T) -> [String; N],
    ) {
        match opened {
            Ok(opened) if self.as_json => self.values.push(json(&opened)),
            Ok(opened) => self.rows.push(row(&opened)),
            Err(error) if self.as_json => {
                let error = output::with_causes(&error);
                self.values.push(json!({ "name": name, "error": error }));
            }
            Err(error) => {
                let mut row = [const { String::new() }; N];
                row[0] = name.to_owned();
                row[N - 1] = output::with_causes(&error);
                self.rows.push(row);
            }
        }
    }

    pub fn print(self) -> Result<(), Box<dyn Error>> {
        if self.as_json {
            output::line(format_args!("{:#}", Value::from(self.values)))
        } else if self.rows.is_empty() {
            let (nouns, root) = (self.nouns, self.registry.root().display());
            output::line(format_args!("no {nouns} in {root}"))
        } else {
            output::print(table(self.head, &self.rows))
        }
    }
}

/// A list of properties, one on each line.
pub fn properties(lines: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let lines = lines.into_iter();
    lines
        .map(|(name, value)| format!("{name:12} {value}\n"))
        .collect()
}

/// Checks the whole registry, or only these entries, and prints the problems.
pub fn check(
    registry: &Registry,
    places: Option<&[&Path]>,
    clean: bool,
    json: bool,
) -> Result<(), Box<dyn Error>> {
    let mut findings = if clean {
        registry.clean()?
    } else {
        registry.check()?
    };
    if let Some(places) = places {
        findings.retain(|found| places.iter().any(|place| found.path.starts_with(place)));
    }
    if json {
        let value = |found: &Finding| {
            json!({
                "path": found.path,
                "what": found.what,
                "cleaning": found.cleaning,
            })
        };
        let all = Value::from_iter(findings.iter().map(value));
        return output::line(format_args!("{all:#}"));
    }
    for found in &findings {
        output::line(found)?;
    }
    let done = if clean { "cleaned" } else { "found" };
    output::line(format_args!("{} thing(s) {done}", findings.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_read_as_chmod_reads_them() {
        assert_eq!(mode("660"), Ok(0o660));
        assert!(mode("1777").is_err() && mode("rw").is_err() && mode("8").is_err());
    }

    #[test]
    fn columns_are_aligned_and_lines_end_where_their_text_ends() {
        let rows = [
            ["a".to_owned(), String::new()],
            ["long".to_owned(), "x".to_owned()],
        ];
        assert_eq!(table(["N", "STATE"], &rows), "N     STATE\na\nlong  x\n");
    }
}
