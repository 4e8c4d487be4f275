//! Broken twins: the journal with one step left out must fail the crash tests.
#![allow(clippy::unwrap_used)]

mod common;

use common::crashes;
use mneme_journal::breakage::STEPS;
use mneme_sys::fault::leave_out;

/// The scenarios that detect the absence of each step.
const CATCHES: [mneme_testkit::Step; STEPS.len()] = [
    ("sync.file", &[crashes::one_file_survives]),
    ("rotate.sync", &[crashes::many_files_survive]),
    ("file.header", &[crashes::many_files_survive]),
    ("file.directory", &[crashes::one_file_survives]),
    ("failed.file", &[crashes::failed_syncs_survive]),
    ("frame.seed", &[crashes::many_files_survive]),
    ("frame.durable", &[crashes::one_file_survives]),
    ("remove.directory", &[crashes::many_files_survive]),
    ("open.directory", &[crashes::recycled_files_survive]),
    ("open.run", &[crashes::files_of_a_dead_run_survive]),
    ("open.stale", &[crashes::replaced_files_survive]),
    ("read.sync", &[crashes::deaths_survive]),
    ("read.cut", &[crashes::many_files_survive]),
    ("base.sync", &[crashes::early_bases_survive]),
    ("base.directory", &[crashes::early_bases_survive]),
    ("base.durable", &[crashes::early_bases_survive]),
];

#[test]
fn every_step_is_needed() {
    mneme_testkit::every_step_is_needed(&STEPS, &CATCHES, leave_out);
}
