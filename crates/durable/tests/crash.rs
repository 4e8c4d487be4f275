//! Power loss at every point of a durable store's life, in many of the ways that the failure model
//! allows. The rebuilt state is one that the store once had, no older than what was acknowledged.
#![allow(clippy::unwrap_used)]

mod common;

use common::{life, lives};
use mneme_durable::DurabilityMode::{self, Journal, Tree};
use mneme_sys::medium::{DirectoryOperation, RecordingDirectory};
use mneme_testkit::setting;

/// The file that is full while a store is closed fails to sync: what was written to it is written
/// again, to the next one.
#[test]
fn a_close_that_meets_a_failing_sync_saves_what_was_put() {
    for values in 1..20_u8 {
        let directory = RecordingDirectory::new();
        let store = life::open(Journal, &directory).unwrap();
        for value in 0..values {
            store.put(&[value], &[value; 40_000]).unwrap();
        }
        directory.fail_sync(1, 0, 0);
        store.close().unwrap();
        directory.fail_sync(u64::MAX, 0, 0);
        let store = life::open(Journal, &directory).unwrap();
        assert_eq!(store.len(), u64::from(values), "of {values}");
    }
}

/// The harness is tested first: a trace without one of its syncs must lose something.
#[test]
fn a_planted_missing_sync_is_caught() {
    needs_its_syncs(Journal);
    needs_its_syncs(Tree);
}

fn needs_its_syncs(mode: DurabilityMode) {
    let life = lives::short(mode);
    life.crash(40, 1).holds(10);
    let trace = life.directory.trace();
    let is_sync = |op: &DirectoryOperation| {
        matches!(
            op,
            DirectoryOperation::File {
                operation: mneme_sys::medium::Operation::Sync,
                ..
            }
        )
    };
    let syncs = trace.positions(is_sync);
    let needed = syncs.iter().rev().take(3).any(|sync| {
        let outcome = life.crash_trace(&trace.without(*sync), 60, 1);
        !outcome.wrong.is_empty()
    });
    assert!(needed, "nothing needs the last syncs");
}

#[test]
fn acknowledged_writes_survive_every_crash() {
    lives::writes_survive(Journal);
}

#[test]
fn groups_that_do_not_end_take_nothing_that_was_acknowledged() {
    lives::groups_survive(Journal);
}

#[test]
fn checkpoints_survive_crashes() {
    lives::checkpoints_survive(Journal);
}

#[test]
fn failed_syncs_survive_crashes() {
    lives::failed_syncs_survive(Journal);
    lives::failed_sync_behind_a_full_file_survives();
}

#[test]
fn a_full_disk_survives_crashes() {
    lives::full_disk_survives(Journal);
}

#[test]
fn a_repaired_journal_does_not_go_on_from_a_later_base() {
    lives::repairs_survive();
}

#[test]
fn clocks_that_jump_take_nothing_and_bring_nothing_back() {
    lives::clocks_that_jump_survive(Journal);
    lives::clocks_that_come_back_survive(Journal);
}

#[test]
fn a_restored_backup_is_there_as_a_whole_or_not_at_all() {
    lives::restores_survive(Journal);
}

/// These histories for a tree.
mod tree {
    use super::*;

    #[test]
    fn acknowledged_writes_survive_every_crash() {
        lives::writes_survive(Tree);
    }

    #[test]
    fn groups_that_do_not_end_take_nothing_that_was_acknowledged() {
        lives::groups_survive(Tree);
    }

    #[test]
    fn backups_survive_crashes() {
        lives::checkpoints_survive(Tree);
    }

    #[test]
    fn failed_syncs_survive_crashes() {
        lives::failed_syncs_survive(Tree);
    }

    #[test]
    fn a_full_disk_survives_crashes() {
        lives::full_disk_survives(Tree);
    }

    #[test]
    fn clocks_that_jump_take_nothing_and_bring_nothing_back() {
        lives::clocks_that_jump_survive(Tree);
        lives::clocks_that_come_back_survive(Tree);
    }

    #[test]
    fn a_restored_backup_is_there_as_a_whole_or_not_at_all() {
        lives::restores_survive(Tree);
    }

    #[test]
    fn lives_drawn_survive() {
        drawn(Tree);
    }
}

/// The number of crash states of random lives in every run, in each form. With those of the other
/// tests there are more than 10,000.
const LEAST: usize = 5_000;

/// Random lives, at least that many states, and for the time that the ladder gives.
fn drawn(mode: DurabilityMode) {
    let seconds = setting("MNEME_LADDER_SECS").unwrap_or(0);
    lives::drawn_survive(mode, seconds, LEAST);
}

#[test]
fn lives_drawn_survive() {
    drawn(Journal);
}
