//! Broken twins: the store with one step left out must not survive the crash tests.
#![allow(clippy::unwrap_used)]

mod common;

use common::{beside, cached, crashes, trees};
use mneme_sys::fault::leave_out;
use mneme_tree::breakage::STEPS;

/// The history that catches each step.
const CATCHES: [mneme_testkit::Step; STEPS.len()] = [
    ("open.remember_dead", &[crashes::generations_leave_nothing]),
    ("open.record", &[crashes::generations_leave_nothing]),
    ("open.listed", &[crashes::one_leaf_survives]),
    ("open.alone", &[crashes::one_leaf_survives]),
    ("open.numbers", &[crashes::single_commits_leave_nothing]),
    (
        "alone.followed",
        &[crashes::an_entry_over_old_bytes_survives],
    ),
    ("alone.whole", &[crashes::one_leaf_survives]),
    ("sweep.barrier", &[crashes::sweeps_survive]),
    ("leaf.end", &[crashes::generations_leave_nothing]),
    ("rewrite.death", &[crashes::many_leaves_survive]),
    ("reuse.late", &[crashes::many_leaves_survive]),
    ("reuse.keep_death", &[crashes::many_leaves_survive]),
    ("extent.death", &[crashes::long_values_survive]),
    ("extent.keep_death", &[crashes::long_values_survive]),
    ("key.replaced", &[crashes::long_keys_are_not_mistaken]),
    ("tree.dropped", &[trees::trees_survive]),
    ("held.look", &[crashes::snapshots_keep_long_values]),
    ("run.barrier", &[crashes::frames_change_their_kind]),
    ("recycle.runs", &[crashes::frames_change_their_kind]),
    ("recycle.headers", &[crashes::frames_change_their_kind]),
    ("recycle.tables", &[crashes::frames_stay_of_their_kind]),
    ("open.clean", &[crashes::sweeps_survive]),
    ("open.others", &[beside::snapshots_outlive_writers]),
    ("name.death", &[crashes::named_versions_survive]),
    ("name.keep_death", &[crashes::named_versions_survive]),
    ("names.extents", &[crashes::named_versions_survive]),
    ("cache.opening", &[cached::a_restored_file_is_another]),
    ("cache.leaf", &[cached::commits_are_seen]),
    ("cache.version", &[cached::readers_stay_in_their_version]),
    ("cache.examined", &[cached::commits_are_seen]),
    ("cache.later", &[cached::readers_stay_in_their_version]),
];

#[test]
fn every_step_is_needed() {
    mneme_testkit::every_step_is_needed(&STEPS, &CATCHES, leave_out);
}
