//! A change set whose thread dies after any of its steps, beside a reader: after the repair it is
//! made wholly or not at all, no reader sees half of it, and a value that a reader has sealed never
//! changes.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use loom::sync::Arc;
use loom::thread;
use mneme_sync::Word;

use super::{Model, Orders, Sound, fails, holds};
use crate::index::intent::PatchGuard;
use crate::records::change_set::make_again;
use crate::region::mem::Loc;
use crate::region::patch_word::{PatchWord, Seal, begin, finish, seal};

const OLD: u64 = 1;
const NEW: u64 = 2;

/// Two words that are changed together, the word that guards them, and the notes that their writer
/// leaves.
struct Value<O> {
    guard: Model<O>,
    words: [Model<O>; 2],
    redo: [Model<O>; 2],
    announced: Model<O>,
}

/// The steps of a writer. It holds the home throughout, so that no other thread writes.
#[derive(Clone, Copy)]
enum Step {
    WriteDown,
    Announce,
    Begin,
    Store(usize),
    End,
}

use Step::{Announce, Begin, End, Store, WriteDown};

const STEPS: [Step; 6] = [WriteDown, Announce, Begin, Store(0), Store(1), End];
/// The twin that announces the change set before it has written it down.
const ANNOUNCED_FIRST: [Step; 6] = [Announce, WriteDown, Begin, Store(0), Store(1), End];
/// The twin that announces the change set after it has begun it.
const BEGUN_FIRST: [Step; 6] = [WriteDown, Begin, Store(0), Announce, Store(1), End];

/// How a repairer makes a change set again.
type Again<O> = fn(&Value<O>);

impl<O: Orders> Value<O> {
    fn new() -> Arc<Value<O>> {
        Arc::new(Value {
            guard: Model::new(PatchWord::new(2).0),
            words: std::array::from_fn(|_| Model::new(OLD)),
            redo: std::array::from_fn(|_| Model::new(0)),
            announced: Model::new(0),
        })
    }

    fn set() -> PatchGuard {
        PatchGuard {
            record: Loc::of_byte(8),
            before: PatchWord::new(2),
            len: 2,
        }
    }

    /// Runs these steps, and then dies. It also ends if the guard is sealed.
    fn write(&self, steps: &[Step]) {
        for step in steps {
            match step {
                WriteDown => self.redo.iter().for_each(|word| word.store(NEW, Relaxed)),
                Announce => self.announced.store(1, Release),
                Begin if !begin(&self.guard, PatchWord::new(2)) => return,
                Begin => {}
                Store(i) => self.words[*i].store(NEW, Relaxed),
                End => finish(&self.guard, PatchWord::new(2).odd(), 2),
            }
        }
    }

    fn store_again(&self) {
        for (word, redo) in self.words.iter().zip(&self.redo) {
            word.store(redo.load(Relaxed), Relaxed);
        }
    }

    fn repair(&self, again: Again<O>) {
        if self.announced.load(Acquire) == 1 {
            again(self);
        }
    }

    fn words(&self) -> [u64; 2] {
        [0, 1].map(|i| self.words[i].load(Relaxed))
    }

    /// The copy that a copying reader accepts.
    fn read(&self) -> Option<[u64; 2]> {
        let seen = PatchWord::load(&self.guard);
        if seen.is_odd() {
            return None;
        }
        let words = self.words();
        Model::<O>::fence(Acquire);
        PatchWord::load(&self.guard)
            .same_bytes(seen)
            .then_some(words)
    }

    /// The value that is lent to a reader.
    fn lend(&self) -> Option<[u64; 2]> {
        (seal(&self.guard) == Seal::Sealed).then(|| self.words())
    }
}

fn again<O: Orders>(value: &Value<O>) {
    make_again(Some((&value.guard, Value::<O>::set())), || {
        value.store_again()
    });
}

/// The twin that does not check whether the change was begun.
fn blindly<O: Orders>(value: &Value<O>) {
    value.store_again();
    finish(&value.guard, PatchWord::new(2).odd(), 2);
}

fn is_whole(words: [u64; 2]) {
    assert!(
        words == [OLD; 2] || words == [NEW; 2],
        "half a change: {words:?}"
    );
}

/// A writer that dies after `steps`, and its repairer, beside a reader.
fn dies<O: Orders>(
    steps: &'static [Step],
    again: Again<O>,
    read: fn(&Value<O>) -> Option<[u64; 2]>,
    lent: bool,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let value = Value::<O>::new();
        let reader = Arc::clone(&value);
        let reader = thread::spawn(move || {
            let words = read(&reader);
            words.into_iter().for_each(is_whole);
            words
        });
        value.write(steps);
        value.repair(again);
        let seen = reader.join().unwrap();
        is_whole(value.words());
        assert!(!PatchWord::load(&value.guard).is_odd(), "left odd");
        if lent && let Some(words) = seen {
            assert_eq!(value.words(), words, "changed while lent");
        }
    }
}

#[test]
fn a_change_set_of_the_dead_is_made_whole_or_not_at_all() {
    for steps in 0..=STEPS.len() {
        holds(dies::<Sound>(&STEPS[..steps], again, Value::read, false));
        holds(dies::<Sound>(&STEPS[..steps], again, Value::lend, true));
    }
}

#[test]
fn a_change_that_is_not_recorded_first_is_made_from_nothing() {
    fails(
        "half",
        dies::<Sound>(&ANNOUNCED_FIRST[..1], again, Value::read, false),
    );
}

#[test]
fn a_change_that_is_not_announced_first_stays_half_done() {
    fails(
        "half",
        dies::<Sound>(&BEGUN_FIRST[..3], again, Value::read, false),
    );
}

#[test]
fn a_repairer_that_ignores_the_guard_changes_a_lent_value() {
    fails(
        "lent",
        dies::<Sound>(&STEPS[..2], blindly, Value::lend, true),
    );
    fails(
        "half",
        dies::<Sound>(&STEPS[..2], blindly, Value::read, false),
    );
}
