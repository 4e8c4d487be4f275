//! A storm of `kill -9` over processes that share a store: no acknowledged change is lost, no
//! transaction is half there, no read is torn, and nothing of the dead remains.
//!
//! Several processes write, each for lanes of names that belong only to it; others read, follow,
//! and maintain. The parent kills and stops them at random instants, and compares the store with
//! each lane's notes, in memory that survives it. Some seconds for each policy; with
//! `MNEME_LADDER_SECS` for that time, or until `MNEME_LADDER_KILLS`; from `MNEME_LADDER_SEED`.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod below;
mod collected;
mod diary;
mod expected;
mod judge;
mod lane;
mod listener;
mod look;
mod names;
mod place;
mod points;
mod reader;
mod roles;
mod rounds;
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
}

#[test]
fn nothing_is_lost_torn_or_left_behind_in_a_store_that_overwrites() {
    storm(UpdatePolicy::InPlace);
}

/// A storm with a broken twin, which fails. One that cannot fail shows nothing.
fn fails(twin: Twin) -> String {
    let found = rounds::run(Plan {
        kills: 2000,
        limit: None,
        ..plan(UpdatePolicy::Append, twin)
    });
    found.expect_err("the twin was not caught")
}

#[test]
fn a_change_acknowledged_too_early_is_found_lost() {
    let wrong = fails(Twin::Early);
    assert!(wrong.contains("acknowledged Some"), "{wrong}");
}

/// By what is left of it, or by a reader that was faster.
#[test]
fn a_transaction_key_by_key_is_found_torn() {
    let wrong = fails(Twin::Torn);
    let is_torn = ["Whole", "exit status: 78"]
        .iter()
        .any(|how| wrong.contains(how));
    assert!(is_torn, "{wrong}");
}

#[test]
fn a_listener_that_misses_changes_is_found_out() {
    let wrong = fails(Twin::Deaf);
    assert!(wrong.contains("exit status: 77"), "{wrong}");
}
