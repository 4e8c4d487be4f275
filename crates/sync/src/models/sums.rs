//! A sum that is read while counts move to the base is right, or is reported as disturbed.

use super::{Model, fails, holds, spawn};
use crate::counter_fold::{self, CounterWords, JournalWords};
use loom::sync::Arc;

const ROOT: u64 = 7;
const SLOT: u16 = 1;

struct Shared {
    journal: [Model; 3],
    base: [Model; 2],
    mine: [Model; 2],
}

impl Shared {
    fn journal(&self) -> JournalWords<'_, Model> {
        let [entry, root, target] = &self.journal;
        JournalWords {
            entry,
            root,
            target,
        }
    }
}

fn counter([root, value]: &[Model; 2]) -> CounterWords<'_, Model> {
    CounterWords { root, value }
}

fn sums(sum: fn(&Shared) -> Option<u64>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Arc::new(Shared {
            journal: std::array::from_fn(|_| Model::new(0)),
            base: [Model::new(ROOT), Model::new(30)],
            mine: [Model::new(ROOT), Model::new(4)],
        });
        let mover = spawn(&shared, move |shared| {
            let (base, mine) = (counter(&shared.base), counter(&shared.mine));
            counter_fold::fold(&shared.journal(), &base, &mine, SLOT, 0);
        });
        if let Some(sum) = sum(&shared) {
            assert_eq!(sum, 34);
        }
        mover.join().unwrap();
        assert_eq!(sum(&shared), Some(34));
    }
}

#[test]
fn a_sum_is_right_while_counts_move() {
    holds(sums(|shared| {
        let slots = [(SLOT, counter(&shared.mine))].into_iter();
        counter_fold::sum(&shared.journal(), &counter(&shared.base), slots, 0, ROOT).ok()
    }));
}

#[test]
fn a_sum_that_ignores_the_journal_counts_twice_or_not_at_all() {
    fails(sums(|shared| {
        let read = |words| counter_fold::read(&counter(words), ROOT).unwrap_or(0);
        Some(read(&shared.base) + read(&shared.mine))
    }));
}

/// One thread switches to a newer root while another adds up both.
fn roots(set: fn(&CounterWords<'_, Model>)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let mine = Arc::new([Model::new(ROOT), Model::new(4)]);
        let writer = spawn(&mine, move |mine| set(&counter(mine)));
        for (root, value) in [(ROOT, 4), (ROOT + 1, 50)] {
            if let Some(read) = counter_fold::read(&counter(&mine), root) {
                assert_eq!(read, value, "one root's count under another's name");
            }
        }
        writer.join().unwrap();
    }
}

#[test]
fn a_count_is_never_paired_with_another_root() {
    holds(roots(|mine| counter_fold::set(mine, ROOT + 1, 50)));
}

#[test]
fn a_value_set_under_the_old_root_is_mistaken_for_its_count() {
    use crate::atomics::Word;
    use std::sync::atomic::Ordering::Release;
    fails(roots(|mine| {
        mine.value.store(50, Release);
        mine.root.store(ROOT + 1, Release);
    }));
}
