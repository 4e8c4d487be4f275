//! An intent is seen complete or not at all, while its writer goes from one to the next.

use super::{Model, fails, holds, spawn};
use crate::atomics::Word;
use crate::intent;
use crate::layout::INTENT_WORDS;
use loom::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

struct Line {
    head: Model,
    words: [Model; INTENT_WORDS],
}

fn writes(begin: fn(&Line, u16), clear: fn(&Line)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let line = Arc::new(Line {
            head: Model::new(0),
            words: std::array::from_fn(|_| Model::new(0)),
        });
        begin(&line, 1);
        let writer = spawn(&line, move |line| {
            clear(line);
            begin(line, 2);
        });
        if let Some(seen) = intent::read(&line.head, &line.words) {
            assert_eq!(
                seen.words,
                [u64::from(seen.kind); INTENT_WORDS],
                "half an intent"
            );
        }
        writer.join().unwrap();
    }
}

fn begin(line: &Line, kind: u16) {
    intent::begin(
        &line.head,
        &line.words,
        kind,
        &[u64::from(kind); INTENT_WORDS],
    );
}

#[test]
fn an_intent_is_seen_complete_or_not_at_all() {
    holds(writes(begin, |line| intent::clear(&line.head)));
}

#[test]
fn an_intent_replaced_in_one_step_is_seen_complete_too() {
    holds(writes(begin, |_| {}));
}

#[test]
fn words_written_under_the_old_head_are_seen_torn() {
    let begin = |line: &Line, kind: u16| {
        for word in &line.words {
            word.store(u64::from(kind), Relaxed);
        }
        let sequence = line.head.load(Relaxed) & 0xffff_ffff_ffff;
        line.head
            .store((sequence + 1) | (u64::from(kind) << 48), Release);
    };
    fails(writes(begin, |_| {}));
}

#[test]
fn a_head_written_first_is_seen_without_its_words() {
    let begin = |line: &Line, kind: u16| {
        let sequence = line.head.load(Relaxed) & 0xffff_ffff_ffff;
        line.head
            .store((sequence + 1) | (u64::from(kind) << 48), Release);
        for word in &line.words {
            word.store(u64::from(kind), Relaxed);
        }
    };
    fails(writes(begin, |line| intent::clear(&line.head)));
}
