//! Processes that use stores in named segments are killed at random (`kill -9`). The stores are
//! created and attached by name, and readers map the data read-only. The processes and the checks
//! are those of `mneme-log`'s `tests/storm`.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test fails by panicking; parts of the log's storm are not for segments"
)]

#[path = "../../../log/tests/storm/below.rs"]
mod below;
#[path = "../../../log/tests/storm/collected.rs"]
mod collected;
#[path = "../common/mod.rs"]
mod common;
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
mod place;
#[path = "../../../log/tests/storm/reader.rs"]
mod reader;
#[path = "../../../log/tests/storm/roles.rs"]
mod roles;
#[path = "../../../log/tests/storm/rounds.rs"]
mod rounds;
#[path = "../../../log/tests/storm/value.rs"]
mod value;

use mneme_log::UpdatePolicy;

/// One of the processes; does nothing unless it was started as such.
#[test]
fn role() {
    roles::role();
}

#[test]
fn nothing_is_lost_torn_or_left_behind_in_a_segment_that_appends() {
    roles::storm(UpdatePolicy::Append);
}

#[test]
fn nothing_is_lost_torn_or_left_behind_in_a_segment_that_overwrites() {
    roles::storm(UpdatePolicy::InPlace);
}
