//! Sections under a model checker: [loom](https://docs.rs/loom) runs every schedule of a few
//! threads, and every value that C11 allows a load to return, up to a bound on preemptions. The
//! code is the product's own, on loom's locks and words. The broken twins lack orderings, or move
//! or leave out a step, and must fail.

mod forgetful;
mod rules;
#[expect(dead_code, reason = "each model uses a part of it")]
#[expect(clippy::duplicate_mod, reason = "over primitives of its own")]
#[path = "sections.rs"]
mod sections;
mod words;

use std::sync::atomic::Ordering::Relaxed;

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use sections::Sections;
use words::Words;

mod primitives {
    pub use loom::sync::{Condvar, Mutex, MutexGuard};

    pub type AtomicU64 = super::words::Words<true>;
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(match std::env::var_os("MNEME_LADDER_SECS") {
        Some(_) => 3,
        None => 2,
    });
    builder.check(model);
}

/// Runs a broken twin, in which some schedule must fail.
fn fails(twin: impl Fn() + Send + Sync + 'static) {
    let run = std::panic::AssertUnwindSafe(|| explore(twin));
    let failed = std::panic::catch_unwind(run).is_err();
    assert!(failed, "the broken twin passed: the model shows nothing");
}

/// Data that commands change: two numbers without orderings, which are equal between commands.
struct Data([Words<true>; 2]);

impl Data {
    fn new() -> Self {
        Self([Words::new(0), Words::new(0)])
    }

    /// Returns the number of changes, including this one.
    fn change(&self) -> u64 {
        let [first, second] = self.0.each_ref().map(|number| number.load(Relaxed));
        assert_eq!(first, second, "another command is half done");
        let changes = first + 1;
        self.0
            .iter()
            .for_each(|number| number.store(changes, Relaxed));
        changes
    }
}

/// The maximum number of waits for a section.
fn bounded() -> impl FnMut() -> bool {
    let mut tries = 0;
    move || {
        tries += 1;
        thread::yield_now();
        tries < 3
    }
}

/// Two threads each enter two shared sections, and change their own data. In between, one of them
/// requests exclusive access, and changes everything if it gets that or, in the broken twin, even
/// if it has given up.
fn alone(gives_up: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Arc::new((Sections::new(2), [Data::new(), Data::new()]));
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (sections, data) = &*shared;
                for _ in 0..2 {
                    let _section = sections.shared(1);
                    data[1].change();
                }
            })
        };
        let (sections, data) = &*shared;
        let section = sections.shared(0);
        data[0].change();
        drop(section);
        let exclusive = sections.exclusive(|| false);
        let was_alone = exclusive.is_ok() || !gives_up;
        if was_alone {
            for data in data {
                data.change();
            }
        }
        drop(exclusive);
        let section = sections.shared(0);
        data[0].change();
        drop(section);
        other.join().unwrap();
        assert!(!sections.is_wanted());
        let changes = 3 + u64::from(was_alone);
        let section = sections.exclusive(bounded()).unwrap();
        assert_eq!(data.each_ref().map(Data::change), [changes, changes]);
        drop(section);
    }
}

#[test]
fn an_exclusive_section_is_alone_and_an_abandoned_attempt_lets_others_in() {
    explore(alone(true));
}

#[test]
fn a_thread_that_acts_after_giving_up_breaks_exclusion() {
    fails(alone(false));
}

/// Whether a change in an exclusive section has happened.
fn is_alone(sections: &Sections, data: &Data) -> bool {
    let exclusive = sections.exclusive(bounded());
    exclusive.is_ok_and(|_exclusive| data.change() > 0)
}

/// Two threads request exclusive access beside a third one's shared section. None waits for ever:
/// loom would report that.
fn in_turn() {
    let shared = Arc::new((Sections::new(1), Data::new()));
    let start = |work: fn(&Sections, &Data) -> bool| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || work(&shared.0, &shared.1))
    };
    let others = [
        start(|sections, data| {
            let _section = sections.shared(0);
            data.change();
            true
        }),
        start(is_alone),
    ];
    let mut changes = u64::from(is_alone(&shared.0, &shared.1));
    for other in others {
        changes += u64::from(other.join().unwrap());
    }
    assert!(!shared.0.is_wanted());
    assert_eq!(shared.1.change(), changes + 1);
}

#[test]
fn exclusive_sections_follow_each_other_and_keep_nobody_waiting() {
    explore(in_turn);
}

/// How the flag is set that sections check.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Sound,
    /// The announcement comes before the change that it announces.
    Early,
    /// Earlier sections are not awaited.
    Unawaited,
}

/// A model of a client that is killed, for one kind of words: its thread executes a command in each
/// of its sections unless the flag is set. After the kill is acknowledged, no command of that
/// client is executed.
macro_rules! killed {
    ($sections:ident, $way:expr) => {{
        let way = $way;
        move || {
            let shared = Arc::new((
                $sections::Sections::new(1),
                AtomicBool::new(false),
                Data::new(),
            ));
            let victim = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (sections, is_killed, data) = &*shared;
                    let mut changes = 0;
                    for _ in 0..2 {
                        let _section = sections.shared(0);
                        if !is_killed.load(Relaxed) {
                            data.change();
                            changes += 1;
                        }
                    }
                    changes
                })
            };
            let (sections, is_killed, data) = &*shared;
            let announced = (way == Way::Early).then(|| sections.earlier([0]));
            is_killed.store(true, Relaxed);
            let mut earlier = announced.unwrap_or_else(|| sections.earlier([0]));
            let mut goes_on = bounded();
            let is_over = loop {
                if way == Way::Unawaited || sections.are_over(&mut earlier) {
                    break true;
                }
                if !goes_on() {
                    break false;
                }
            };
            if is_over {
                data.change();
            }
            let changes = victim.join().unwrap() + u64::from(is_over);
            assert_eq!(data.change(), changes + 1);
        }
    }};
}
use killed;

#[test]
fn no_section_ignores_a_flag_once_the_earlier_ones_are_over() {
    explore(killed!(sections, Way::Sound));
}

#[test]
fn a_flag_announced_before_it_is_set_is_ignored() {
    fails(killed!(sections, Way::Early));
}

#[test]
fn without_waiting_for_earlier_sections_a_flag_is_ignored() {
    fails(killed!(sections, Way::Unawaited));
}
