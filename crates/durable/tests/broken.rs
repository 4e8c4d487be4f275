//! Broken twins: a durable store with one step left out must not survive the crash tests.
#![allow(clippy::unwrap_used)]

mod common;

use common::lives;
use mneme_durable::DurabilityMode::{Journal, Tree};
use mneme_durable::breakage::STEPS;
use mneme_sys::fault::leave_out;

/// The lives that catch each step.
const CATCHES: [mneme_testkit::Step; STEPS.len()] = [
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
    mneme_testkit::every_step_is_needed(&STEPS, &CATCHES, leave_out);
}
