//! Typed contents shared between real processes: nothing is lost, nobody sees what another is
//! changing, and a death or a panic during a change leaves a poisoned segment that can be
//! recovered.

use std::time::Duration;

use crate::common::Scene;
use crate::common::visitor::{self, here, stand};
use mneme_space::{Attachment, EnterError, HeapError, Registry, Schema, SegVec, Segment};
use mneme_sys::Access;
use mneme_testkit::{Process, wait_until};

/// What the visitors share: a counter and everything that was ever added to it.
struct Ledger;

impl Schema for Ledger {
    type Root<'s> = (u64, SegVec<'s, u64>);
}

fn attach(registry: &Registry, access: Access) -> Attachment {
    let segment = Segment::open(registry, "s").unwrap();
    let at = Attachment::new([(&segment, access)]).unwrap();
    at.timeout(LONG)
}

fn found(at: &Attachment) {
    at.enter(|here| {
        here.create_root::<Ledger>("s", |heap| (0, SegVec::new_in(heap)))
            .unwrap();
    })
    .unwrap();
}

fn add(at: &Attachment, entry: u64) -> Result<(), EnterError> {
    at.enter(|here| {
        let (sum, entries) = here.root_mut::<Ledger>("s").unwrap();
        entries.push(entry);
        *sum += entry;
    })
}

/// The numbers of participating processes and threads of a segment, including dead ones that have
/// not been reaped.
fn attended(segment: &Segment) -> (u32, u32) {
    let mapping = segment.map(Access::ReadOnly).unwrap();
    let stats = mapping.stats();
    (stats.processes, stats.slots)
}

/// The entries and their sum, which agree.
fn read(at: &Attachment) -> (usize, u64) {
    let read = at.read(|here| {
        let (sum, entries) = here.root::<Ledger>("s").unwrap();
        assert_eq!(entries.iter().sum::<u64>(), *sum);
        (entries.len(), *sum)
    });
    read.unwrap()
}

/// Longer than a process is off its CPU on a busy machine.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn role() {
    let Some((role, registry)) = visitor::role() else {
        return;
    };
    let at = attach(&registry, Access::ReadWrite);
    match role.as_str() {
        "add" => {
            here();
            for entry in 0..500 {
                add(&at, entry).unwrap();
            }
        }
        "add for ever" => {
            here();
            while add(&at, 1).is_ok() {}
        }
        "add once" => {
            here();
            add(&at, 1).unwrap();
        }
        "stand" => {
            at.read(|_| ()).unwrap();
            stand();
        }
        "write" => at.enter(|_| stand()).unwrap(),
        "read" => at.read(|_| stand()).unwrap(),
        other => panic!("{other}"),
    }
}

#[test]
fn several_processes_change_one_structure_and_lose_nothing() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let at = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
    let at = at.timeout(LONG);
    found(&at);
    let children: Vec<Process> = (0..3).map(|_| visitor::start(&scene, "add")).collect();
    for entry in 0..500 {
        add(&at, entry).unwrap();
        let _ = read(&at);
    }
    children.into_iter().for_each(Process::end);
    assert_eq!(read(&at), (2000, 4 * (0..500).sum::<u64>()));
    // When one process has grown the segment, others follow, whatever their access.
    let reader = attach(&scene.registry, Access::ReadOnly);
    assert_eq!(read(&reader).0, 2000);
}

#[test]
fn a_death_while_changing_poisons_and_one_while_reading_does_not() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let at = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
    let reader = Attachment::new([(&segment, Access::ReadOnly)]).unwrap();
    found(&at);
    add(&at, 7).unwrap();

    let mut child = visitor::start(&scene, "read");
    child.kill();
    add(&at, 8).unwrap();
    assert_eq!(attended(&segment), (1, 1));

    for reading_first in [true, false] {
        let mut child = visitor::start(&scene, "write");
        child.kill();
        if reading_first {
            let refused = reader.read(|_| ()).unwrap_err();
            assert!(matches!(refused, EnterError::Poisoned { .. }), "{refused}");
        }
        let refused = add(&at, 9).unwrap_err();
        assert!(matches!(refused, EnterError::Poisoned { .. }), "{refused}");
        assert!(segment.info().unwrap().poisoned);
        // It stays poisoned, for others too, and a clone is refused.
        let refused = attach(&scene.registry, Access::ReadOnly)
            .read(|_| ())
            .unwrap_err();
        assert!(matches!(refused, EnterError::Poisoned { .. }), "{refused}");
        assert!(segment.clone_as("t").is_err());
        // SAFETY: the child changed nothing.
        unsafe { at.accept("s") }.unwrap();
        assert_eq!(read(&at), (2, 15));
    }
    let mut child = visitor::start(&scene, "write");
    child.kill();
    assert!(add(&at, 9).is_err());
    at.rebuild("s").unwrap();
    found(&at);
    assert_eq!(read(&at), (0, 0));
    assert_eq!(read(&reader), (0, 0));
}

/// Otherwise a segment would let nobody in after a thousand deaths, and writers would read the
/// slots of all the dead.
#[test]
fn the_holds_of_dead_processes_are_released() {
    let scene = Scene::new();
    let segment = scene.create("s");
    // By the process that maps the segment next,
    visitor::start(&scene, "stand").kill();
    visitor::start(&scene, "stand").kill();
    let at = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
    assert_eq!(attended(&segment).0, 1);
    found(&at);
    // by one that finds the dead process,
    visitor::start(&scene, "read").kill();
    add(&at, 1).unwrap();
    assert_eq!(attended(&segment), (1, 1));
    // and by one that gets `OwnerDied`.
    visitor::start(&scene, "write").kill();
    assert!(at.read(|_| ()).is_err());
    assert_eq!(attended(&segment), (1, 1));
}

#[test]
fn a_writer_killed_at_any_moment_blocks_nobody_and_hides_nothing() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let at = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
    found(&at);
    let (mut poisoned, mut whole) = (0, 0);
    for round in 0..60 {
        let mut child = visitor::start(&scene, "add for ever");
        std::thread::sleep(Duration::from_micros(137 * round % 3000));
        child.kill();
        match add(&at, 1) {
            Ok(()) => {
                whole += 1;
                let (entries, sum) = read(&at);
                assert_eq!(entries as u64, sum);
            }
            Err(EnterError::Poisoned { .. }) => {
                poisoned += 1;
                at.rebuild("s").unwrap();
                found(&at);
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(poisoned + whole, 60);
}

#[test]
fn a_stopped_holder_is_waited_for_and_named() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let at = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
    let at = at.timeout(Duration::from_millis(30));
    found(&at);
    for (role, reads) in [("write", false), ("read", true)] {
        let child = visitor::start(&scene, role);
        child.signal("-STOP");
        let Err(EnterError::Stalled(stalled)) = add(&at, 1) else {
            panic!("it entered");
        };
        assert_eq!(stalled.pid, child.id());
        // Readers do not exclude one another.
        assert_eq!(at.read(|_| ()).is_ok(), reads);
        child.signal("-CONT");
        child.end();
        add(&at, 1).unwrap();
    }
    assert_eq!(read(&at), (2, 2));
}

#[test]
fn a_stopped_waiter_blocks_others_only_if_it_is_next() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let at = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
    let short = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
    let (at, short) = (at.timeout(LONG), short.timeout(Duration::from_millis(30)));
    found(&at);
    // Behind a writer it holds nothing, however far it has come.
    let visitor = at.enter(|_| {
        let visitor = visitor::start(&scene, "add once");
        visitor.signal("-STOP");
        visitor
    });
    let visitor = visitor.unwrap();
    add(&short, 1).unwrap();
    assert_eq!(read(&short).0, 1);
    visitor.signal("-CONT");
    visitor.end();
    // Behind a reader it is the next to be let in, and is therefore named.
    let named = |refused: Result<(), EnterError>| match refused {
        Ok(()) => None,
        Err(EnterError::Stalled(stalled)) => Some(stalled.pid),
        Err(other) => panic!("{other}"),
    };
    let visitor = at.read(|_| {
        let visitor = visitor::start(&scene, "add once");
        // Waits until it is stopped while it waits, and not on its way there.
        wait_until("both the writer and the reader wait for it", || {
            visitor.signal("-STOP");
            let names = std::thread::scope(|scope| {
                let both = [
                    scope.spawn(|| named(short.enter(|_| ()))),
                    scope.spawn(|| named(short.read(|_| ()))),
                ];
                both.map(|asks| asks.join().unwrap())
            });
            let is_named = names == [Some(visitor.id()); 2];
            if !is_named {
                visitor.signal("-CONT");
            }
            is_named
        });
        visitor
    });
    let visitor = visitor.unwrap();
    visitor.signal("-CONT");
    visitor.end();
    add(&at, 1).unwrap();
    assert_eq!(read(&at), (4, 4));
}

#[test]
fn a_panic_while_changing_poisons_and_one_while_reading_does_not() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let at = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
    found(&at);
    let panics = |write: bool| {
        let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let thrown = |_: &mut mneme_space::Section<'_>| std::panic::resume_unwind(Box::new(()));
            if write {
                at.enter(thrown)
            } else {
                at.read(thrown)
            }
        }));
        assert!(thrown.is_err());
    };
    panics(false);
    add(&at, 1).unwrap();
    panics(true);
    assert!(matches!(add(&at, 1), Err(EnterError::Poisoned { .. })));
    // SAFETY: nothing was changed.
    unsafe { at.accept("s") }.unwrap();
    assert_eq!(read(&at), (1, 1));
}

/// A destructor may enter a section while its thread unwinds. If the section is refused, nothing is
/// poisoned.
#[test]
fn a_section_that_is_refused_while_a_thread_unwinds_poisons_nothing() {
    struct Enters<'a>(&'a Attachment);
    impl Drop for Enters<'_> {
        fn drop(&mut self) {
            let refused = self.0.enter(|_| ()).unwrap_err();
            assert!(matches!(refused, EnterError::Poisoned { .. }));
        }
    }
    let scene = Scene::new();
    let mut segments = ["a", "b"].map(|name| scene.create(name));
    segments.sort_by_key(Segment::uuid);
    let both = segments.each_ref().map(|s| (s, Access::ReadWrite));
    let (both, last) = (Attachment::new(both).unwrap(), both[1]);
    let panics = |f: &dyn Fn()| {
        let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        assert!(thrown.is_err());
    };
    let last = Attachment::new([last]).unwrap();
    panics(&|| {
        last.enter(|_| std::panic::resume_unwind(Box::new(())))
            .unwrap()
    });
    panics(&|| {
        let _enters = Enters(&both);
        std::panic::resume_unwind(Box::new(()))
    });
    let poisoned = segments.map(|segment| segment.info().unwrap().poisoned);
    assert_eq!(poisoned, [false, true]);
}

#[test]
fn impossible_attachments_are_refused() {
    let scene = Scene::new();
    let (a, b) = (scene.create("s"), scene.create("b"));
    let floating = scene.registry.segment("f").floating().create().unwrap();
    let both = [(&a, Access::ReadWrite), (&a, Access::ReadOnly)];
    assert!(matches!(
        Attachment::new(both),
        Err(EnterError::Twice { .. })
    ));
    let refused = Attachment::new([(&floating, Access::ReadOnly)]);
    assert!(matches!(refused, Err(EnterError::Floating { .. })));
    let clone = a.clone_as("copy").unwrap();
    let refused = Attachment::new([(&a, Access::ReadOnly), (&clone, Access::ReadOnly)]);
    assert!(matches!(refused, Err(EnterError::Overlap { .. })));

    let at = Attachment::new([(&b, Access::ReadWrite), (&a, Access::ReadOnly)]).unwrap();
    let other = Attachment::new([(&b, Access::ReadOnly)]).unwrap();
    at.enter(|here| {
        assert!(matches!(other.enter(|_| ()), Err(EnterError::Nested)));
        assert!(matches!(at.rebuild("b"), Err(EnterError::Nested)));
        let mut entered: Vec<(&str, bool)> = here.segments().collect();
        entered.sort_unstable();
        assert_eq!(entered, [("b", true), ("s", false)]);
    })
    .unwrap();
    let refused = at.rebuild("s").unwrap_err();
    assert!(
        matches!(refused, EnterError::NotWritable { .. }),
        "{refused}"
    );
    // A process that may only read is not allowed to write.
    let reader = Attachment::new([(&a, Access::ReadOnly)]).unwrap();
    reader
        .enter(|here| {
            assert!(here.root_mut::<Ledger>("s").is_err());
            let mut vector = SegVec::<u64>::new_in(here.heap("s").unwrap());
            assert!(vector.try_reserve(1).is_err());
            let elsewhere = here.heap("b");
            assert!(matches!(elsewhere, Err(HeapError::NoSegment { .. })));
        })
        .unwrap();
}
