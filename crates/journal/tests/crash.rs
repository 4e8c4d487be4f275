//! Power loss at every point of a journal's life, in many of the ways that the failure model
//! allows: any subset of the sectors that were not synced, torn sectors, file lengths and names
//! each by itself, syncs that fail and lose pages, crashes while the next run begins.
//!
//! Everything acknowledged is there, what follows it is what was appended, and base files are
//! complete.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Instant;

use common::crashes::{self, Choice, crash};
use common::recorder::Recorder;
use mneme_testkit::{Random, seconds, setting};

/// Tests the harness first: a file that is written without a sync, and one whose name is not
/// synced, must lose something.
#[test]
fn planted_missing_syncs_are_caught() {
    use mneme_sys::medium::{DirectoryOperation, Operation};
    let mut life = Recorder::new();
    life.open(0);
    life.append(100);
    life.sync();
    let whole = crash(&life, Choice::All(600), 1);
    whole.holds(100);
    let trace = life.directory.trace();
    let files = trace.positions(|op| {
        matches!(
            op,
            DirectoryOperation::File {
                operation: Operation::Sync,
                ..
            }
        )
    });
    let names = trace.positions(|op| matches!(op, DirectoryOperation::Sync));
    let needed = [
        files[files.len() - 1],
        files[files.len() - 2],
        names[names.len() - 1],
    ];
    for sync in needed {
        let twin = crashes::crash_trace(&trace.without(sync), &life.history);
        assert!(!twin.wrong.is_empty(), "nothing needs operation {sync}");
    }
}

/// So must a program that removes files before it publishes the base file that replaces them.
#[test]
fn a_removal_before_the_publication_is_caught() {
    for too_late in [false, true] {
        let mut life = Recorder::new();
        life.open(0);
        life.append(9000);
        life.rotate();
        match too_late {
            false => life.base(true),
            true => life.base_too_late(),
        }
        let outcome = crash(&life, Choice::Some(8, 1), 9);
        assert_eq!(
            !outcome.wrong.is_empty(),
            too_late,
            "{:?}",
            outcome.wrong.first()
        );
    }
}

#[test]
fn one_file_survives_every_crash() {
    crashes::one_file_survives();
}

#[test]
fn many_files_survive_crashes() {
    crashes::many_files_survive();
}

#[test]
fn failed_syncs_survive_crashes() {
    crashes::failed_syncs_survive();
}

#[test]
fn deaths_of_processes_survive_crashes() {
    crashes::deaths_survive();
}

#[test]
fn kills_at_every_instant_survive_a_later_power_loss() {
    crashes::kills_everywhere_survive();
}

#[test]
fn repairs_survive_crashes() {
    crashes::repairs_survive();
}

#[test]
fn replaced_files_survive_crashes() {
    crashes::replaced_files_survive();
}

#[test]
fn files_of_a_dead_run_survive_crashes() {
    crashes::files_of_a_dead_run_survive();
}

#[test]
fn recycled_files_survive_crashes() {
    crashes::recycled_files_survive();
}

#[test]
fn base_files_survive_crashes() {
    crashes::early_bases_survive();
}

/// Random scenarios. The long form runs for `MNEME_LADDER_SECS`, with the seed `MNEME_LADDER_SEED`.
#[test]
fn random_scenarios_survive_crashes() {
    let seed = setting("MNEME_LADDER_SEED").unwrap_or(1);
    let (begun, limit) = (Instant::now(), seconds(0));
    let (mut lives, mut states) = (0, 0);
    while lives < 12 || begun.elapsed() < limit {
        let seed = seed.wrapping_add(lives);
        let mut random = Random::new(seed);
        let mut life = Recorder::new();
        life.open(0);
        life.wander(&mut random, 40);
        let outcome = crash(&life, Choice::Some(2, 1), seed);
        let killed = crashes::kills_survive(&life, 41, seed);
        let some: Vec<_> = outcome.wrong.iter().chain(&killed.wrong).take(3).collect();
        assert!(some.is_empty(), "seed {seed}: {some:#?}");
        states += outcome.states + killed.states;
        lives += 1;
    }
    println!("{states} states of {lives} lives, from seed {seed}");
}
