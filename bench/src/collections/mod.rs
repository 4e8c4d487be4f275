//! `collections`: hashes, sets, sorted sets and lists by type and size.
//!
//! - *wire* (see `wire.rs`): ours beside Redis and Valkey, one CPU each, one connection, 128
//!   commands before their replies. Server CPU time a command, on values of 8, 32 and 128 elements,
//!   of which there are as many as make a million elements, and on one value of a million; on
//!   whole values and ranges. Resident bytes an element, of the growth while the values were built,
//!   after a rest, of values of ten million too. How long `DEL` of the largest takes to answer;
//!   once, not by rounds.
//! - *attached* (see `attached.rs`): one request at a time by a program that has attached the
//!   store, beside a client of Redis on a unix socket.
//!
//! Every reply is counted: a server that did not find what is there fails the run.

mod attached;
mod commands;
mod wire;

use self::commands::{Command, Shape, Type};
use crate::error::BenchError;
use crate::goals::Goal;
use crate::ledger::Ledger;
use crate::options::Common;
use crate::progress;
use crate::report::Report;
use crate::server::servers::{OURS, REDIS, stores};
use crate::systems::redis::{PEERS, introduce};
use crate::table::{Table, beside};
use serde_json::json;
use std::time::Duration;

/// The program that has attached the store, in tables.
const ATTACHED: &str = "mneme, attached";

/// How much is done.
pub struct Scale {
    /// Elements of all values of a shape.
    elements: u32,
    /// Commands of a round; fewer of those that return many elements.
    operations: u64,
    /// How long nothing is asked for before memory is read.
    rest: Duration,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            elements: options.pick(20_000, 1_000_000),
            operations: options.pick(2000, 300_000),
            rest: Duration::from_millis(options.pick(10, 5000)),
        }
    }

    /// What is measured over the wire.
    fn shapes(&self) -> Vec<Shape> {
        use Command::*;
        let shape = |of, elements: u32, keys, commands: &[Command]| Shape {
            of,
            elements,
            keys,
            commands: commands.to_vec(),
        };
        let small = [8, 32, 128].into_iter().flat_map(|elements| {
            let keys = self.elements / elements;
            [
                shape(Type::Hash, elements, keys, &[Hget, Hset]),
                shape(Type::Set, elements, keys, &[Sismember, SremSadd]),
                shape(Type::SortedSet, elements, keys, &[Zscore, Zadd]),
                shape(Type::List, elements, keys, &[LpushRpop]),
            ]
        });
        let all = self.elements;
        let large = [
            shape(Type::Hash, all, 1, &[Hget, Hset]),
            shape(Type::Set, all, 1, &[Sismember, SremSadd]),
            shape(Type::SortedSet, all, 1, &[Zscore, Zadd, Zrank, Zrange]),
            shape(Type::List, all, 1, &[LpushRpop, Lindex, Lset, Lrange]),
            shape(Type::Hash, 1000, all / 1000, &[Hgetall]),
            shape(Type::Set, all / 10, 1, &[Sinter]),
        ];
        // For bytes and removal: beside so many, what a server keeps ahead weighs little.
        let huge = [Type::Hash, Type::List].map(|of| shape(of, 10 * all, 1, &[]));
        small.chain(large).chain(huge).collect()
    }

    /// What is measured of a program that has attached the store.
    fn of_attached(&self) -> [Shape; 2] {
        attached::shapes(32, self.elements / 32)
    }
}

/// The ledger's case of the bytes an element takes.
fn footprint(shape: &Shape) -> String {
    format!("bytes an element, {}", shape.name())
}

/// The ledger's case of the removal of a value.
fn removal(shape: &Shape) -> String {
    format!("DEL, {}", shape.name())
}

/// What Redis' CPU time over ours should be.
fn goal(shape: &Shape, command: Command) -> f64 {
    let is_large = shape.keys == 1;
    match command {
        Command::LpushRpop => 1.2,
        Command::Hgetall | Command::Lrange | Command::Zrange | Command::Sinter => 1.5,
        Command::Zadd | Command::Zrank | Command::Lindex | Command::Lset if is_large => 2.0,
        _ if is_large => 1.2,
        _ if shape.elements < 128 => 2.0,
        _ => 1.5,
    }
}

/// What our bytes an element over Redis' should be.
fn footprint_goal(of: Type) -> f64 {
    match of {
        Type::Hash => 0.5,
        Type::Set => 0.45,
        Type::SortedSet => 0.65,
        Type::List => 1.15,
    }
}

/// Measures and reports.
///
/// # Errors
/// A server that does not start, refuses, or answers wrongly; no memory.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let (shapes, of_attached) = (scale.shapes(), scale.of_attached());
    for shape in &shapes {
        wire::run(shape, scale, options.seed, options.rounds, &mut ledger)?;
    }
    for shape in &of_attached {
        attached::run(shape, scale, options.seed, options.rounds, &mut ledger)?;
    }
    progress::clear();
    print_tables(&shapes, &of_attached, &ledger);
    let mut notes = introduce(&PEERS);
    if options.quick {
        notes.push("quick: what a process has before its first value weighs most".to_owned());
    }
    Ok(Report {
        params: json!({ "elements": scale.elements, "operations": scale.operations }),
        goals: goals(&shapes, &of_attached, &ledger),
        ledger,
        notes,
        ..Report::default()
    })
}

fn goals(shapes: &[Shape], of_attached: &[Shape], ledger: &Ledger) -> Vec<Goal> {
    let mut goals = Vec::new();
    for shape in shapes {
        for &command in &shape.commands {
            let case = shape.case(command);
            let ratios = ledger.ratios((REDIS, &case), (OURS, &case));
            let text = format!("{case}: CPU of redis / ours");
            goals.push(Goal::at_least(text, goal(shape, command), ratios));
        }
        let case = footprint(shape);
        let ratios = ledger.ratios((OURS, &case), (REDIS, &case));
        let text = format!("{case} / redis");
        goals.push(Goal::at_most(text, footprint_goal(shape.of), ratios));
        if shape.keys == 1 {
            let case = removal(shape);
            let took = ledger.values(OURS, &case);
            let took = took.iter().map(|took| took / 1e6).collect();
            goals.push(Goal::at_most(format!("{case}: ms"), 1.0, took));
        }
    }
    for shape in of_attached {
        for &command in &shape.commands {
            let case = attached::case(shape, command);
            let ratios = ledger.ratios((REDIS, &case), (ATTACHED, &case));
            goals.push(Goal::at_least(
                format!("{case}: redis / attached"),
                20.0,
                ratios,
            ));
        }
    }
    goals
}

fn print_tables(shapes: &[Shape], of_attached: &[Shape], ledger: &Ledger) {
    let cell = |ours: &str, system: &str, case: &str| {
        let ratios = match system {
            system if system == ours => Vec::new(),
            _ => ledger.ratios((system, case), (ours, case)),
        };
        beside(ledger.values(system, case), 1.0, &ratios)
    };
    let over_ours = |system: &str, case: &str| cell(OURS, system, case);
    let cases = shapes
        .iter()
        .flat_map(|shape| shape.commands.iter().map(|c| shape.case(*c)));
    Table::by_case("pipelined", &stores(), cases, over_ours)
        .print("server CPU, ns a command; in brackets theirs over ours");
    Table::by_case(
        "after a rest",
        &stores(),
        shapes.iter().map(footprint),
        over_ours,
    )
    .print("resident bytes an element, of the growth; in brackets theirs over ours");
    let large = shapes.iter().filter(|shape| shape.keys == 1);
    Table::by_case("once", &stores(), large.map(removal), over_ours)
        .print("ns until the reply; in brackets theirs over ours");
    let cases = of_attached.iter();
    let cases = cases.flat_map(|shape| shape.commands.iter().map(|c| attached::case(shape, *c)));
    let over_attached = |system: &str, case: &str| cell(ATTACHED, system, case);
    Table::by_case("attached", &[ATTACHED, REDIS], cases, over_attached)
        .print("ns a request; in brackets theirs over ours");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_well_formed, common};

    #[test]
    fn a_tiny_run_measures_every_command_of_every_type() {
        let scale = Scale {
            elements: 2000,
            operations: 100,
            rest: Duration::ZERO,
        };
        let report = run(&scale, &common()).unwrap();
        let mut cases = Vec::new();
        for shape in scale.shapes() {
            cases.extend(shape.commands.iter().map(|command| shape.case(*command)));
            cases.push(footprint(&shape));
        }
        for shape in scale.of_attached() {
            cases.extend(shape.commands.iter().map(|c| attached::case(&shape, *c)));
        }
        assert_well_formed(
            &report,
            &cases.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        let removed = removal(scale.shapes().iter().find(|shape| shape.keys == 1).unwrap());
        assert_eq!(report.ledger.values(OURS, &removed).len(), 1);
    }
}
