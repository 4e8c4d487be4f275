//! Broken twins: a durable store with one step left out must not survive the crash tests.
#![allow(clippy::unwrap_used)]

mod common;

use std::panic::catch_unwind;

use common::lives;
use mneme_durable::DurabilityMode::{Journal, Tree};
use mneme_durable::breakage::STEPS;
use mneme_sys::fault::leave_out;

/// Tests each of which fails without a step.
type Catching = &'static [fn()];

/// The lives that catch each step.
const CATCHES: [(&str, Catching); STEPS.len()] = [
    (
        "pump.sync",
        &[
            || lives::writes_survive(Journal),
            || lives::writes_survive(Tree),
        ],
    ),
    (
        "pump.groups",
        &[
            || lives::groups_survive(Journal),
            || lives::groups_survive(Tree),
        ],
    ),
    ("pump.rewind", &[|| lives::failed_syncs_survive(Journal)]),
    (
        "checkpoint.durable",
        &[|| lives::checkpoints_survive(Journal)],
    ),
    ("checkpoint.bind", &[|| lives::checkpoints_survive(Journal)]),
    ("base.cut", &[lives::repairs_survive]),
    (
        "recover.clock",
        &[|| lives::clocks_that_jump_survive(Journal)],
    ),
    (
        "recover.floor",
        &[
            || lives::clocks_that_jump_survive(Journal),
            || lives::clocks_that_jump_survive(Tree),
        ],
    ),
    ("tree.bind", &[|| lives::writes_survive(Tree)]),
    ("tree.dead", &[|| lives::writes_survive(Tree)]),
    ("tree.publish", &[|| lives::restores_survive(Tree)]),
];

#[test]
fn every_step_is_needed() {
    assert_eq!(CATCHES.map(|(step, _)| step), STEPS);
    let mut missed = Vec::new();
    for (step, lives) in CATCHES {
        for (i, crashes) in lives.iter().enumerate() {
            leave_out(step);
            let caught = catch_unwind(crashes);
            leave_out("");
            if caught.is_ok() {
                missed.push((step, i));
            }
        }
    }
    assert!(missed.is_empty(), "nothing needs {missed:?}");
}
