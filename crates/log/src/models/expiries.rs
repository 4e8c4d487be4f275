//! The note that there are expiring records. A sweep clears it before it looks at them; no record
//! that is published meanwhile is forgotten.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use loom::sync::Arc;
use loom::sync::atomic::fence;
use loom::thread;
use mneme_sync::Word;

use super::{Model, Sound, fails, holds};
use crate::records::expiry::{clear, expect};

type Words = Model<Sound>;

struct Scene {
    record: Words,
    note: Words,
    /// A word for which the checker tries all orders, which it does not do for fences.
    turns: Words,
}

impl Scene {
    fn barrier(&self) {
        self.turns.fetch_add(1, Relaxed);
        fence(SeqCst);
    }
}

/// A sweep beside a writer that publishes an expiring record in a store that has had others.
fn sweep_beside(
    note: fn(&Words, &Scene),
    begin: fn(&Words, &Scene),
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let scene = Arc::new(Scene {
            record: Model::new(0),
            note: Model::new(1),
            turns: Model::new(0),
        });
        let writer = Arc::clone(&scene);
        let writer = thread::spawn(move || {
            writer.record.store(1, Release);
            note(&writer.note, &writer);
        });
        begin(&scene.note, &scene);
        if scene.record.load(Acquire) != 0 {
            expect(&scene.note, || scene.barrier());
        }
        writer.join().unwrap();
        assert_eq!(scene.note.load(Relaxed), 1, "forgotten");
    }
}

#[test]
fn a_sweep_sees_an_expiring_record_or_leaves_the_note() {
    let note = |word: &Words, scene: &Scene| expect(word, || scene.barrier());
    let begin = |word: &Words, scene: &Scene| {
        let done = clear(word, || {
            scene.barrier();
            Ok::<_, ()>(())
        });
        done.unwrap();
    };
    holds(sweep_beside(note, begin));
    fails(
        "forgotten",
        sweep_beside(|word, _| expect(word, || ()), begin),
    );
    fails(
        "forgotten",
        sweep_beside(note, |word, _| clear(word, || Ok::<_, ()>(())).unwrap()),
    );
}
