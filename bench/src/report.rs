//! A run as a document: what was measured where, with which parameters, and the goals. For people
//! and as JSON.

use crate::figure::Figure;
use crate::goals::{Goal, Side};
use crate::ledger::{Ledger, Summary};
use crate::machine::Machine;
use crate::options::Common;
use crate::table::{Table, figure, three};
use serde_json::{Value, json};

/// A finished run of one workload.
#[derive(Debug, Default)]
pub struct Report {
    /// With which parameters, beside those of every workload.
    pub params: Value,
    /// Everything measured.
    pub ledger: Ledger,
    /// What should have been reached.
    pub goals: Vec<Goal>,
    /// What a reader must know about the figures.
    pub notes: Vec<String>,
    /// What shows it.
    pub figures: Vec<Figure>,
}

impl Report {
    /// The document: `bench`, `machine`, `params`, `results`, `goals`. A goal that was not measured
    /// is left out.
    pub fn to_json(&self, bench: &str, machine: &Machine, common: &Common) -> Value {
        let mut params = json!({ "quick": common.quick, "seed": common.seed });
        if let (Some(all), Some(own)) = (params.as_object_mut(), self.params.as_object()) {
            all.extend(own.clone());
        }
        let results = self.ledger.series().iter().filter_map(|series| {
            let summary = Summary::of(&series.values)?;
            Some(json!({
                "system": series.system,
                "case": series.case,
                "metric": series.metric.name(),
                "unit": series.metric.unit(),
                "median": summary.median,
                "min": summary.min,
                "max": summary.max,
                "rounds": summary.rounds,
            }))
        });
        let goals = self.goals.iter().filter_map(|goal| {
            Some(json!({
                "goal": goal.text,
                "target": goal.target,
                "measured": goal.measured()?,
                "met": goal.met()?,
            }))
        });
        json!({
            "bench": bench,
            "machine": machine.to_json(),
            "params": params,
            "results": results.collect::<Vec<_>>(),
            "goals": goals.collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }

    /// The table of goals, and the notes.
    pub fn closing(&self, machine: &Machine) -> String {
        let mut text = String::new();
        if !self.goals.is_empty() {
            text += &self.goal_table().to_string();
        }
        let busy = machine.busy();
        for note in self.notes.iter().chain(&busy) {
            text += &format!("\nnote: {note}");
        }
        text
    }

    fn goal_table(&self) -> Table {
        let mut table = Table::new(["goal", "target", "measured", "min", "max", "met"]);
        for goal in &self.goals {
            let sign = match goal.side {
                Side::AtLeast => ">=",
                Side::AtMost => "<=",
            };
            let target = format!("{sign} {}", figure(goal.target));
            let met = match goal.met() {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "not measured",
            };
            let head = [goal.text.clone(), target].into_iter();
            table.row(head.chain(three(&goal.rounds)).chain([met.to_owned()]));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Metric;
    use crate::testing::document;

    fn report() -> Report {
        let mut ledger = Ledger::default();
        for value in [3.0, 1.0, 2.0] {
            ledger.add("mneme", "get", Metric::Throughput, value);
        }
        Report {
            params: json!({ "records": 5 }),
            ledger,
            goals: vec![
                Goal::at_least("faster", 1.5, vec![2.0]),
                Goal::at_most("not measured", 1.0, Vec::new()),
            ],
            notes: vec!["quick".to_owned()],
            figures: Vec::new(),
        }
    }

    /// The schema that scripts read: names and types of every field.
    #[test]
    fn the_document_has_its_fields_with_their_types() {
        let document = document(&report());
        assert_eq!(document["bench"], "test");
        assert!(document["machine"].is_object());
        assert_eq!(document["params"]["records"], 5);
        assert_eq!(document["params"]["quick"], true);
        let result = &document["results"][0];
        for field in ["system", "case", "metric", "unit"] {
            assert!(result[field].is_string(), "{field}");
        }
        for (field, value) in [("median", 2.0), ("min", 1.0), ("max", 3.0)] {
            assert_eq!(result[field].as_f64(), Some(value), "{field}");
        }
        assert_eq!(result["rounds"].as_u64(), Some(3));
        let goal = &document["goals"][0];
        assert_eq!(goal["goal"], "faster");
        assert_eq!(goal["target"].as_f64(), Some(1.5));
        assert_eq!(goal["measured"].as_f64(), Some(2.0));
        assert_eq!(goal["met"].as_bool(), Some(true));
    }

    #[test]
    fn an_unmeasured_goal_is_shown_and_not_counted() {
        let report = report();
        assert_eq!(document(&report)["goals"].as_array().unwrap().len(), 1);
        let closing = report.closing(&Machine::here());
        assert!(closing.contains("not measured") && closing.contains("note: quick"));
    }
}
