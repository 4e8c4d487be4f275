//! Readers of a value, of a part and of the whole, beside a thread that patches it: no reader sees
//! half a patch, and a sealed value never changes.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use loom::sync::Arc;
use loom::thread;
use mneme_sync::Word;

use super::{LooseLoads, LooseStores, Model, Orders, Sound, fails, holds};
use crate::region::patch_word::{PatchWord, Seal, begin, finish, seal};

/// A value of two words, which are always equal, and space for a third.
struct Value<O> {
    word: Model<O>,
    bytes: [Model<O>; 3],
}

/// How a patch begins.
type Begin<O> = fn(&Model<O>, PatchWord) -> bool;

impl<O: Orders> Value<O> {
    fn new() -> Arc<Value<O>> {
        Arc::new(Value {
            word: Model::new(PatchWord::new(2).0),
            bytes: std::array::from_fn(|_| Model::new(1)),
        })
    }

    /// Makes both words `to` and adds a third, as the holder of the bucket does. Returns whether
    /// the word allowed it.
    fn patch(&self, begin: Begin<O>, to: u64) -> bool {
        let seen = PatchWord::load(&self.word);
        if seen.is_sealed() {
            return false;
        }
        self.bytes[2].store(to, Relaxed);
        if !begin(&self.word, seen) {
            return false;
        }
        self.bytes[0].store(to, Relaxed);
        self.bytes[1].store(to, Relaxed);
        finish(&self.word, seen.odd(), 3);
        true
    }

    /// The first `len` words.
    fn bytes(&self, len: usize) -> Vec<u64> {
        self.bytes[..len].iter().map(|b| b.load(Relaxed)).collect()
    }

    /// The copy that a reader of a part accepts.
    fn read(&self, again: bool) -> Option<Vec<u64>> {
        let seen = PatchWord::load(&self.word);
        if seen.is_odd() {
            return None;
        }
        let bytes = self.bytes(seen.len());
        Model::<O>::fence(Acquire);
        (!again || PatchWord::load(&self.word).same_bytes(seen)).then_some(bytes)
    }
}

fn is_whole(bytes: &[u64]) {
    assert!(bytes.iter().all(|b| *b == bytes[0]), "torn: {bytes:?}");
}

/// The twin that does not check whether a reader has sealed the word.
fn begin_blindly<O: Orders>(word: &Model<O>, seen: PatchWord) -> bool {
    word.store(seen.odd().0, Relaxed);
    Model::<O>::fence(Release);
    true
}

/// The twin whose bytes may be seen before the odd word.
fn begin_unfenced<O: Orders>(word: &Model<O>, seen: PatchWord) -> bool {
    (word.compare_exchange(seen.0, seen.odd().0, Relaxed, Relaxed)).is_ok()
}

/// A reader of a part beside two patches.
fn read_beside<O: Orders>(begin: Begin<O>, again: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let value = Value::<O>::new();
        let reader = Arc::clone(&value);
        let reader = thread::spawn(move || {
            if let Some(bytes) = reader.read(again) {
                is_whole(&bytes);
            }
        });
        assert!(value.patch(begin, 2));
        reader.join().unwrap();
    }
}

/// A reader of the whole, which seals it, beside a patch.
fn seal_beside<O: Orders>(
    begin: Begin<O>,
    seal: fn(&Model<O>) -> Seal,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let value = Value::<O>::new();
        let reader = Arc::clone(&value);
        let reader = thread::spawn(move || {
            if seal(&reader.word) == Seal::Odd {
                return None;
            }
            let bytes = reader.bytes(PatchWord::load(&reader.word).len());
            is_whole(&bytes);
            Some(bytes)
        });
        let patched = value.patch(begin, 2);
        // A lent value is unchanged, however long it is kept.
        if let Some(lent) = reader.join().unwrap() {
            assert_eq!(value.bytes(lent.len()), lent, "changed while lent");
            assert!(!value.patch(begin, 3), "patched while lent");
        } else {
            assert!(patched);
        }
    }
}

/// The twin that seals what is being patched.
fn seal_blindly<O: Orders>(word: &Model<O>) -> Seal {
    let now = PatchWord::load(word);
    let _ = word.compare_exchange(now.0, now.0 | 1 << 31, Relaxed, Relaxed);
    Seal::Sealed
}

#[test]
fn no_reader_of_a_part_sees_half_a_patch() {
    holds(read_beside::<Sound>(begin, true));
    fails("torn", read_beside::<Sound>(begin, false));
    fails("torn", read_beside::<Sound>(begin_unfenced, true));
    fails("torn", read_beside::<LooseLoads>(begin, true));
    fails("torn", read_beside::<LooseStores>(begin, true));
}

#[test]
fn a_sealed_value_is_whole_and_stays_so() {
    holds(seal_beside::<Sound>(begin, seal));
    fails("", seal_beside::<Sound>(begin_blindly, seal));
    fails("", seal_beside::<Sound>(begin, seal_blindly));
    fails("torn", seal_beside::<LooseStores>(begin, seal));
}
