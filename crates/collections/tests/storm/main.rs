//! A storm of `kill -9` over local programs that change large hashes, sorted sets and lists of one
//! store: no acknowledged change is lost, none is half there, no records of a dead program remain,
//! and every value passes its check.
//!
//! The processes and the judge are those of `mneme-log`'s `tests/storm`; [`collected`] has their
//! work on collections.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    reason = "a test fails by panicking; parts of the log's storm are not used here"
)]

#[path = "../../../log/tests/storm/below.rs"]
mod below;
mod collected;
#[path = "../../../log/tests/storm/diary.rs"]
mod diary;
#[path = "../../../log/tests/storm/expected.rs"]
mod expected;
#[path = "../../../log/tests/storm/judge.rs"]
mod judge;
#[path = "../../../log/tests/storm/lane.rs"]
mod lane;
#[path = "../../../log/tests/storm/listener.rs"]
mod listener;
#[path = "../../../log/tests/storm/look.rs"]
mod look;
#[path = "../../../log/tests/storm/names.rs"]
mod names;
#[path = "../../../log/tests/storm/place.rs"]
mod place;
#[path = "../../../log/tests/storm/points.rs"]
mod points;
#[path = "../../../log/tests/storm/reader.rs"]
mod reader;
#[path = "../../../log/tests/storm/roles.rs"]
mod roles;
#[path = "../../../log/tests/storm/rounds.rs"]
mod rounds;
#[path = "../../../log/tests/storm/value.rs"]
mod value;

use mneme_log::UpdatePolicy;
use roles::{Twin, plan, storm};
use rounds::Plan;

/// One of the processes; a test that does nothing unless it was started as one.
#[test]
fn role() {
    roles::role();
}

#[test]
fn nothing_is_lost_torn_or_left_behind_in_a_store_that_appends() {
    storm(UpdatePolicy::Append);
    collected::assert_large();
}

#[test]
fn nothing_is_lost_torn_or_left_behind_in_a_store_that_overwrites() {
    storm(UpdatePolicy::InPlace);
    collected::assert_large();
}

/// A storm with a broken twin fails.
#[test]
fn a_change_of_a_collection_element_by_element_is_found_torn() {
    let found = rounds::run(Plan {
        kills: 2000,
        limit: None,
        ..plan(UpdatePolicy::Append, Twin::Elements)
    });
    let wrong = found.expect_err("the twin was not caught");
    assert!(wrong.contains("died in fields set"), "{wrong}");
}
