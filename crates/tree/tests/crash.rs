//! Power loss at every point of a history, in every way that the failure model allows, or in many
//! of them: acknowledged changes are there, and changes under way are there whole or not at all.
//!
//! Each test has broken twins: the same history with a sync left out, or with stores in another
//! order, must be caught.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::crashes::{self, BOTH, Choice, Recorder, crash, expect_none, one_extent, one_leaf};
use common::{MAX, Model, contents, copy_of, open_on, trees};
use mneme_sys::medium::{FailureModel, Medium, Operation, RecordingMedium};
use mneme_tree::{Durability, StoreError};

#[test]
fn one_leaf_survives_every_crash() {
    crashes::one_leaf_survives();
}

#[test]
fn commits_of_one_change_survive_a_sample_of_crashes_without_a_record_each() {
    crashes::single_changes_survive();
}

#[test]
fn an_entry_without_a_record_ends_where_its_commit_said() {
    crashes::an_entry_over_old_bytes_survives();
}

#[test]
fn generations_of_crashes_of_commits_without_records_leave_nothing_behind() {
    crashes::single_commits_leave_nothing();
}

#[test]
fn many_leaves_survive_a_sample_of_crashes() {
    crashes::many_leaves_survive();
}

/// Random histories, each crashed after every operation in some of the possible ways. The long form
/// runs for `MNEME_LADDER_SECS`, from `MNEME_LADDER_SEED`.
#[test]
fn histories_drawn_by_chance_survive_crashes() {
    let setting = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seed: u64 = setting("MNEME_LADDER_SEED").unwrap_or(1);
    let seconds: u64 = setting("MNEME_LADDER_SECS").unwrap_or(0);
    let begun = std::time::Instant::now();
    let (mut histories, mut states) = (0, 0);
    loop {
        for mode in BOTH {
            // Long enough that leaves split, are joined and are reused.
            let commits = 5 + (seed + histories) % 40;
            let (trace, history) = crashes::many_leaves_of(mode.1, commits, seed + histories);
            let choice = if seconds == 0 {
                Choice::Some(1, 7)
            } else {
                Choice::Some(4, 1)
            };
            let outcome = crash(&trace, mode, &history, &choice, true);
            assert!(
                outcome.wrong.is_empty(),
                "{mode:?}, seed {}: {:#?}",
                seed + histories,
                outcome.wrong
            );
            states += outcome.states;
        }
        histories += 1;
        if begun.elapsed().as_secs() >= seconds {
            break;
        }
    }
    println!("{states} states of {histories} histories in both failure models, from seed {seed}");
}

#[test]
fn long_values_survive_a_sample_of_crashes() {
    crashes::long_values_survive();
}

#[test]
fn long_keys_survive_a_sample_of_crashes() {
    crashes::long_keys_survive();
}

#[test]
fn a_long_key_is_not_mistaken_for_one_whose_place_it_has() {
    crashes::long_keys_are_not_mistaken();
}

#[test]
fn trees_survive_a_sample_of_crashes() {
    trees::trees_survive();
}

#[test]
fn a_drop_that_a_crash_interrupts_is_finished_later() {
    trees::drops_are_finished_later();
}

#[test]
fn snapshots_keep_long_values() {
    crashes::snapshots_keep_long_values();
}

#[test]
fn values_that_look_like_tables_are_never_taken_for_some() {
    crashes::frames_change_their_kind();
    crashes::frames_stay_of_their_kind();
}

#[test]
fn named_versions_and_rollbacks_survive_a_sample_of_crashes() {
    crashes::named_versions_survive();
}

#[test]
fn every_barrier_is_needed() {
    for mode in BOTH {
        // One barrier for each of five commits that only append, two for each of two others.
        let histories = [
            (one_leaf(mode.1), 5, Choice::All(20_000)),
            (one_extent(mode.1), 4, Choice::Some(40, 1)),
        ];
        for ((trace, history), count, choice) in histories {
            let marks = trace.positions(|op| matches!(op, Operation::Mark(_)));
            let barriers = trace.positions(|op| matches!(op, Operation::Sync | Operation::Fence));
            // The barriers of commits: opening has its own, which another test removes.
            let opening = trace.positions(|op| matches!(op, Operation::Store { .. }));
            let commits = opening[1]..marks[marks.len() - 1];
            let mut caught = 0;
            for barrier in barriers.into_iter().filter(|b| commits.contains(b)) {
                let twin = trace.without(barrier);
                let outcome = crash(&twin, mode, &history, &choice, true);
                assert!(
                    !outcome.wrong.is_empty(),
                    "{mode:?}: nothing needs operation {barrier}"
                );
                caught += 1;
            }
            assert_eq!(caught, count);
        }
    }
}

#[test]
fn every_flush_is_needed() {
    let mode = (FailureModel::Dax, Durability::Flush);
    for ((trace, history), least) in [(one_leaf(mode.1), 8), (one_extent(mode.1), 8)] {
        let marks = trace.positions(|op| matches!(op, Operation::Mark(_)));
        let stores = trace.positions(|op| matches!(op, Operation::Store { .. }));
        let commits = stores[1]..marks[marks.len() - 1];
        let flushes = trace.positions(|op| matches!(op, Operation::Flush(_)));
        let mut caught = 0;
        for flush in flushes.into_iter().filter(|flush| commits.contains(flush)) {
            let twin = trace.without(flush);
            let outcome = crash(&twin, mode, &history, &Choice::All(20_000), true);
            let what = &trace.operations[flush];
            assert!(
                !outcome.wrong.is_empty(),
                "nothing needs {what:?} at {flush}"
            );
            caught += 1;
        }
        assert!(caught >= least, "only {caught}");
    }
}

/// A writer is killed after any of its stores. What the next one finds and relies on must be
/// durable then, though the killed one has flushed or synced none of it: power is lost later.
#[test]
fn a_killed_writers_commit_is_made_durable_before_it_is_used() {
    for mode in BOTH {
        let (trace, history) = one_leaf(mode.1);
        let stores = trace.positions(|op| matches!(op, Operation::Store { .. }));
        for killed in &stores[stores.len() - 6..] {
            let medium = RecordingMedium::with_image(MAX, trace.image.clone()).unwrap();
            for operation in &trace.operations[..=*killed] {
                match operation {
                    Operation::Store { at, bytes } => medium.store(*at, bytes),
                    Operation::Flush(range) => medium.flush(range.clone()),
                    Operation::Fence => medium.fence(),
                    Operation::Sync => medium.sync().unwrap(),
                    Operation::Grow(to) => medium.grow(*to).unwrap(),
                    _ => {}
                }
            }
            let medium = Arc::new(medium);
            let db = open_on(&medium, mode.1).unwrap();
            let mut found = vec![contents(&db.snapshot().unwrap())];
            assert!(history.contains(&found[0]));
            medium.mark(1);
            db.put(b"z", b"later").unwrap();
            found.push(found[0].clone());
            found[1].insert(b"z".to_vec(), b"later".to_vec());
            medium.mark(2);
            let trace = medium.trace();
            let verify = |medium: &Arc<RecordingMedium>, mark: u64| match mark.checked_sub(1) {
                Some(mark) => crashes::verify(medium, mode.1, &found, mark),
                None => Ok(()),
            };
            let outcome = crashes::crash_with(&trace, mode.0, &Choice::Some(30, 1), true, verify);
            expect_none(&outcome, 100);
            drop(db);
        }
    }
}

#[test]
fn a_record_before_what_it_does_not_list_is_caught() {
    for mode in BOTH {
        let (mut trace, history) = one_extent(mode.1);
        let record = trace.positions(crashes::is_record)[1];
        let barrier = trace.operations[..record]
            .iter()
            .rposition(|op| matches!(op, Operation::Sync | Operation::Fence))
            .unwrap();
        let moved = trace.operations.remove(record);
        trace.operations.insert(barrier, moved);
        let outcome = crash(&trace, mode, &history, &Choice::All(20_000), true);
        assert!(!outcome.wrong.is_empty(), "{mode:?}");
    }
}

#[test]
fn generations_of_crashes_leave_nothing_behind() {
    crashes::generations_leave_nothing();
}

#[test]
fn a_crash_while_the_store_is_made_leaves_a_store_or_an_error() {
    for mode in BOTH {
        let medium = Arc::new(RecordingMedium::new(MAX).unwrap());
        std::mem::forget(open_on(&medium, mode.1).unwrap());
        let trace = medium.trace();
        let outcome = crash(
            &trace,
            mode,
            &vec![Model::new()],
            &Choice::All(20_000),
            false,
        );
        // Nothing was acknowledged: an incomplete store is refused with a message.
        let refused = outcome
            .wrong
            .iter()
            .all(|what| what.contains("cannot open"));
        assert!(refused, "{:#?}", outcome.wrong);
        assert!(outcome.states > outcome.wrong.len());
    }
}

#[test]
fn pages_lost_by_a_failed_sync_are_not_believed_in() {
    for keep in [0, 2, 3] {
        let mut recorder = Recorder::new(Durability::File);
        recorder.apply(&[(b"a", Some(b"1"))]);
        // With a long value a commit has two syncs.
        for (failing, len) in [(1, 900), (1, 2500), (2, 2500)] {
            let mut recorder = Recorder::on(copy_of(&recorder.medium), Durability::File);
            recorder.apply(&[(b"b", Some(b"2"))]);
            recorder.medium.fail_sync(failing, keep);
            let unknown = recorder.db.put(b"c", &vec![3; len]);
            assert!(
                matches!(unknown, Err(StoreError::OutcomeUnknown(_))),
                "{unknown:?}"
            );
            let refused = recorder.db.put(b"d", b"4");
            assert!(matches!(refused, Err(StoreError::Poisoned)), "{refused:?}");
            assert_eq!(
                recorder.db.get(b"b").unwrap().as_deref(),
                Some(&b"2"[..]),
                "reads go on"
            );
            let mut after = recorder.history.last().unwrap().clone();
            after.insert(b"c".to_vec(), vec![3; len]);
            recorder.history.push(after);
            let (trace, history) = recorder.end();
            let mode = (FailureModel::File, Durability::File);
            let choice = match len {
                900 => Choice::All(20_000),
                _ => Choice::Some(20, 1),
            };
            let outcome = crash(&trace, mode, &history, &choice, false);
            expect_none(&outcome, 10);
        }
        std::mem::forget(recorder.db);
    }
}

/// Whether the newest commit record says that the store was closed.
fn looks_closed(medium: &RecordingMedium) -> bool {
    let bytes = medium.bytes();
    let records = bytes[4096..4096 + 256 * 512].chunks(512);
    let newest = records.max_by_key(|record| u64::from_le_bytes(record[8..16].try_into().unwrap()));
    newest.is_some_and(|record| record[4] & 1 != 0)
}

/// A store that does not survive power loss loses power while it is used, and while it is closed:
/// it looks closed only if it was, and then everything is there.
#[test]
fn a_store_that_survives_no_power_loss_is_closed_or_known_not_to_be() {
    let mut recorder = Recorder::new(Durability::File);
    recorder.apply(&[(b"a", Some(b"1"))]);
    drop(recorder.db);
    assert!(looks_closed(&recorder.medium));
    let mut recorder = Recorder::on(copy_of(&recorder.medium), Durability::Process);
    // The store is open.
    recorder.medium.mark(1);
    recorder.apply(&[(b"b", Some(&[7; 700]))]);
    recorder.apply(&[(b"a", None), (b"c", Some(b"3"))]);
    let last = recorder.history.len() as u64 - 1;
    drop(recorder.db);
    let (trace, history) = (recorder.medium.trace(), recorder.history);
    let closed = std::cell::Cell::new(0);
    let verify = |medium: &Arc<RecordingMedium>, mark: u64| {
        if mark == 0 || !looks_closed(medium) {
            return Ok(());
        }
        closed.set(closed.get() + 1);
        crashes::verify(medium, Durability::File, &history, last)
    };
    let choice = Choice::Some(20, 1);
    let outcome = crashes::crash_with(&trace, FailureModel::File, &choice, false, verify);
    expect_none(&outcome, 100);
    assert!(closed.get() > 0);
}

#[test]
fn removing_the_traces_of_dead_versions_survives_crashes() {
    crashes::sweeps_survive();
}

/// A process that is killed in the middle of a long store leaves any first part of it: the CPU's
/// string copy may be interrupted at every byte.
#[test]
fn a_kill_in_the_middle_of_a_store_damages_nothing() {
    let mut recorder = Recorder::new(Durability::Process);
    recorder.apply(&[(b"a", Some(b"1"))]);
    recorder.apply(&[(b"b", Some(&[7; 2500])), (b"c", Some(&[8; 5000]))]);
    for n in 0..6u8 {
        recorder.apply(&[(&[n], Some(&[n; 1900])), (b"a", Some(&[n]))]);
    }
    recorder.apply(&[(b"b", None), (b"c", Some(b"3"))]);
    let (trace, history) = recorder.end();
    let (mut image, mut mark, mut states) = (trace.image.to_vec(), 0, 0);
    for operation in &trace.operations {
        match operation {
            Operation::Store { at, bytes } => {
                let at = *at as usize;
                let parts = [1, 3, 7, 9, 13, bytes.len() / 2, bytes.len() - 3];
                // A word arrives whole or not at all.
                for part in parts.into_iter().filter(|_| bytes.len() > 8) {
                    let mut killed = image.clone();
                    killed[at..at + part].copy_from_slice(&bytes[..part]);
                    let medium = RecordingMedium::with_image(MAX, Arc::new(killed)).unwrap();
                    let result =
                        crashes::verify(&Arc::new(medium), Durability::Process, &history, mark);
                    assert_eq!(result, Ok(()), "{part} bytes of {} at {at}", bytes.len());
                    states += 1;
                }
                image[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Operation::Grow(to) => image.resize(*to as usize, 0),
            Operation::Mark(commit) => mark = *commit,
            _ => {}
        }
    }
    assert!(states > 100, "only {states}");
}
