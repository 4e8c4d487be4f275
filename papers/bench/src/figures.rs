//! The table of the papers' figures in `docs/benchmarks.md` is complete, and its commands exist.

use crate::options::Options;
use clap::Parser;
use std::path::{Path, PathBuf};

/// Figures of each work's evaluation. Diagrams are left out, and what the dissertation repeats of
/// the papers.
const FIGURES: [(&str, &[&str]); 6] = [
    ("Nibble", &["1", "8", "9", "10", "11", "12", "13", "14"]),
    (
        "diss.",
        &[
            "21", "22", "23", "24", "25", "26", "29", "30", "31", "32", "33",
        ],
    ),
    (
        "SpaceJMP",
        &["1", "6", "7", "8", "9", "10", "11", "12", "table 2"],
    ),
    (
        "CDDS",
        &[
            "3.2", "3.3", "3.4", "5.1", "5.2", "5.3", "5.4", "5.5", "5.6", "5.7", "6.1", "6.2",
            "6.3", "6.4", "6.5",
        ],
    ),
    ("GCMA", &["2.5", "2.6", "2.7", "2.8", "2.9", "2.10"]),
    (
        "RCX",
        &[
            "3.2", "3.3", "3.4", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11",
        ],
    ),
];

/// What a verdict may be, and a word that the row must then have: what is not measured is said, and
/// what cannot be measured here says where it can.
const VERDICTS: [(&str, &str); 5] = [
    ("confirmed", ""),
    ("surpassed", ""),
    ("contrary", ""),
    ("in part", "Missing: "),
    ("not here", "Elsewhere: "),
];

/// A verdict's addition: the record is older than what it records. The row says what has changed.
const STALE: (&str, &str) = (", stale", "Stale: ");

struct Row {
    figure: String,
    command: String,
    verdict: String,
    here: String,
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The rows of the tables below the heading, which have five cells.
fn rows() -> Vec<Row> {
    let page = std::fs::read_to_string(docs().join("benchmarks.md")).unwrap();
    let (_, section) = page
        .split_once("\n## What the papers' figures become here\n")
        .unwrap();
    let section = section.split("\n## ").next().unwrap();
    let cells = |line: &str| -> Option<Row> {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [figure, _, command, verdict, here] = cells[..] else {
            return None;
        };
        let [figure, command, verdict, here] = [figure, command, verdict, here].map(str::to_owned);
        Some(Row {
            figure,
            command,
            verdict,
            here,
        })
    };
    let lines = section.lines().filter(|line| line.starts_with("| "));
    let rows = lines.filter_map(cells);
    rows.filter(|row| row.figure != "figure").collect()
}

#[test]
fn each_figure_has_one_row_in_the_order_of_the_works() {
    let expected = FIGURES
        .iter()
        .flat_map(|(work, figures)| figures.iter().map(move |figure| format!("{work} {figure}")));
    let expected: Vec<_> = expected.collect();
    assert_eq!(expected.len(), 58);
    let found: Vec<_> = rows().into_iter().map(|row| row.figure).collect();
    assert_eq!(found, expected);
}

#[test]
fn each_rows_command_is_one_that_the_bench_understands() {
    for Row {
        figure, command, ..
    } in rows()
    {
        let words: Vec<_> = command.split('`').skip(1).step_by(2).collect();
        assert!(!words.is_empty(), "{figure} has no command");
        for words in words {
            let line = ["mneme-bench"].into_iter().chain(words.split_whitespace());
            let known = match mneme_bench::options::Options::try_parse_from(line.clone()) {
                Ok(options) => match options.workload {
                    mneme_bench::options::Workload::Paper(_) => {
                        Options::try_parse_from(line).map(drop)
                    }
                    _ => Ok(()),
                },
                // Peers that this build was not given.
                Err(error) if error.to_string().contains("for '--peers") => Ok(()),
                Err(error) => Err(error),
            };
            assert!(known.is_ok(), "{figure}: `{words}`: {known:?}");
        }
    }
}

#[test]
fn each_verdict_is_a_known_one_and_says_what_it_owes() {
    for row in rows() {
        let (figure, here) = (&row.figure, &row.here);
        let (verdict, is_stale) = match row.verdict.strip_suffix(STALE.0) {
            Some(verdict) => (verdict, true),
            None => (&*row.verdict, false),
        };
        let known = VERDICTS.iter().find(|(known, _)| *known == verdict);
        assert!(known.is_some(), "{figure}: {verdict}");
        for (known, owed) in VERDICTS.iter().filter(|(_, owed)| !owed.is_empty()) {
            assert_eq!(verdict == *known, here.contains(owed), "{figure}: {owed}");
        }
        assert_eq!(is_stale, here.contains(STALE.1), "{figure}: stale");
    }
}

/// Figures of a run are in a file, but for those of figures that cannot be had.
#[test]
fn each_verdict_that_was_measured_names_a_record_that_is_there() {
    for row in rows().iter().filter(|row| row.verdict != "not here") {
        let records = row.here.split("](benchmarks/").skip(1);
        let records: Vec<_> = records.filter_map(|rest| rest.split(')').next()).collect();
        assert!(!records.is_empty(), "{} has no record", row.figure);
        for record in records {
            let record = docs().join("benchmarks").join(record);
            assert!(record.is_file(), "{}: {record:?}", row.figure);
        }
    }
}
