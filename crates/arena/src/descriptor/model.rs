//! All interleavings of the lock-free readers with the lock's holder, under the C11 memory model;
//! the broken twin, whose words forget every ordering, fails.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64 as LoomU64;

/// A word as the product uses it.
struct Sound(LoomU64);
/// The broken twin: a word that forgets every ordering.
struct Forgetful(LoomU64);

trait Fresh: Word + 'static {
    fn fresh(value: u64) -> Self;
}

macro_rules! word {
    ($name:ident, |$order:ident| $effective:expr) => {
        impl Word for $name {
            fn load(&self, $order: Ordering) -> u64 {
                self.0.load($effective)
            }
            fn store(&self, value: u64, $order: Ordering) {
                self.0.store(value, $effective);
            }
            fn compare_exchange(
                &self,
                old: u64,
                new: u64,
                $order: Ordering,
                failure: Ordering,
            ) -> Result<u64, u64> {
                self.0.compare_exchange(old, new, $effective, failure)
            }
        }
        impl Fresh for $name {
            fn fresh(value: u64) -> Self {
                $name(LoomU64::new(value))
            }
        }
    };
}
word!(Sound, |order| order);
word!(Forgetful, |_order| Ordering::Relaxed);

fn fresh_table<W: Fresh>(frames: usize) -> Arc<Vec<DescriptorOf<W>>> {
    let free = Status::free(0).pack();
    Arc::new(
        (0..frames)
            .map(|_| DescriptorOf {
                status: W::fresh(free),
                run: W::fresh(0),
            })
            .collect(),
    )
}

/// A run ends, a longer one begins at the same frame, somebody asks meanwhile.
fn a_reader_sees_the_old_run_or_the_new_one_or_none<W: Fresh + Send + Sync>(
    asked: u32,
    second: Range<u32>,
) {
    loom::model(move || {
        let owned = fresh_table::<W>(3);
        Table(&owned).write_run(0..2, 1, 7, 1, || ()).unwrap();
        let (theirs, new) = (owned.clone(), second.clone());
        let writer = loom::thread::spawn(move || {
            let table = Table(&theirs);
            table.free_run(0..2, 1, false, || ());
            let generation = table.next_generation(new.clone()).unwrap();
            table.write_run(new, 2, 7, generation, || ()).unwrap();
        });
        if let Some(run) = Table(&owned).run_of(asked) {
            match run.status.generation {
                1 => assert_eq!((run.range(), run.status.tag), (0..2, 1)),
                2 => assert_eq!((run.range(), run.status.tag), (second.clone(), 2)),
                other => panic!("generation {other} never was"),
            }
        }
        writer.join().unwrap();
        assert_eq!(
            Table(&owned).run_of(asked).map(|run| run.range()),
            second.contains(&asked).then(|| second.clone())
        );
    });
}

#[test]
fn runs_are_seen_whole() {
    a_reader_sees_the_old_run_or_the_new_one_or_none::<Sound>(0, 0..3);
    a_reader_sees_the_old_run_or_the_new_one_or_none::<Sound>(1, 0..3);
    a_reader_sees_the_old_run_or_the_new_one_or_none::<Sound>(1, 1..3);
}

#[test]
#[should_panic(expected = "left == right")]
fn without_orderings_they_are_not() {
    a_reader_sees_the_old_run_or_the_new_one_or_none::<Forgetful>(0, 0..3);
}

#[test]
fn adoption_and_taking_back_exclude_each_other() {
    loom::model(|| {
        let owned = fresh_table::<Sound>(2);
        Table(&owned).write_run(0..2, 0, 7, 1, || ()).unwrap();
        let theirs = owned.clone();
        let adopter = loom::thread::spawn(move || Table(&theirs).adopt(0..2));
        let taken = Table(&owned).free_run(0..2, 1, true, || ());
        let adopted = adopter.join().unwrap();
        assert_eq!(adopted.is_ok(), !taken);
        assert_eq!(Table(&owned).run_of(0).is_some(), !taken);
        assert_eq!(Table(&owned).run_of(1).is_some(), !taken);
    });
}
