//! What tests of workloads share. Each unwraps, as a test does.

use crate::figure::{Drawn, Figure};
use crate::machine::Machine;
use crate::options::Common;
use crate::processes::act_in_test;
use crate::report::Report;
use crate::scratch::Directory;
use serde_json::Value;

/// The options of a test's run: one round, one thread. Processes
/// that it starts are this test program again.
pub fn common() -> Common {
    act_in_test("processes::tests::another_process");
    Common {
        quick: true,
        json: None,
        svg: None,
        threads: vec![1],
        rounds: 1,
        seed: 1,
    }
}

/// A report's document, read again.
#[expect(clippy::unwrap_used, reason = "a test fails here")]
pub fn document(report: &Report) -> Value {
    let document = report.to_json("test", &Machine::here(), &common());
    serde_json::from_str(&document.to_string()).unwrap()
}

/// What every workload's document must be: readable again, with finite figures, one for each of
/// `cases`.
#[expect(clippy::unwrap_used, reason = "a test fails here")]
pub fn assert_well_formed(report: &Report, cases: &[&str]) {
    let document = document(report);
    let results = document["results"].as_array().unwrap();
    for result in results {
        for field in ["median", "min", "max"] {
            assert!(result[field].as_f64().is_some(), "{field} of {result}");
        }
    }
    for case in cases {
        let found = results.iter().any(|result| result["case"] == *case);
        assert!(found, "{case} is missing in {document:#}");
    }
    for goal in document["goals"].as_array().unwrap() {
        assert!(goal["met"].is_boolean() && goal["measured"].is_number());
    }
    assert!(report.closing(&Machine::here()).contains("goal"));
}

/// The text of a drawing.
#[expect(clippy::unwrap_used, reason = "a test fails here")]
pub fn drawn(content: impl Drawn + 'static) -> String {
    let directory = Directory::new("figure").unwrap();
    let figure = Figure::new("it.svg", content);
    figure.write(directory.path()).unwrap();
    std::fs::read_to_string(directory.path().join("it.svg")).unwrap()
}
