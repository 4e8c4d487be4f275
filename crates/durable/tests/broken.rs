//! Broken twins: a durable store with one step left out must not survive the crash tests.
#![allow(clippy::unwrap_used)]

mod common;

use std::panic::catch_unwind;

use common::lives;
use mneme_durable::breakage::STEPS;
use mneme_sys::fault::leave_out;

/// The lives that catch each step.
const CATCHES: [(&str, fn()); STEPS.len()] = [
    ("pump.sync", lives::writes_survive),
    ("pump.rewind", lives::failed_syncs_survive),
    ("checkpoint.durable", lives::checkpoints_survive),
    ("checkpoint.bind", lives::checkpoints_survive),
    ("base.cut", lives::repairs_survive),
    ("recover.clock", lives::clocks_that_jump_survive),
    ("recover.floor", lives::clocks_that_jump_survive),
];

#[test]
fn every_step_is_needed() {
    assert_eq!(CATCHES.map(|(step, _)| step), STEPS);
    let caught = |(step, crashes): &(&'static str, fn())| {
        leave_out(step);
        let caught = catch_unwind(crashes);
        leave_out("");
        caught.is_err()
    };
    let missed: Vec<_> = CATCHES.iter().filter(|twin| !caught(twin)).collect();
    assert!(missed.is_empty(), "nothing needs {missed:?}");
}
