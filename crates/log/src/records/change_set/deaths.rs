//! A change set over several records, whose thread dies at every step, and its repairer too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use mneme_sys::fault::{self, Action, Outcome};

use super::*;
use crate::index::intent::OPERATION_LANE;
use crate::index::lookup::Lookup;
use crate::region::policy::UpdatePolicy;
use crate::session::Wait;
use crate::store::LogStore;
use crate::test_processes::World;

const CAPACITY: usize = 64 << 20;
const KEYS: [&[u8]; 3] = [b"one", b"two", b"three"];
const OLD: [u8; 300] = [1; 300];
const NEW: [u8; 211] = [2; 211];

/// Overwrites all values by one change set, under the home of the first key.
fn overwrite_all(records: &Records) {
    let slot = records.session().participants.slot().unwrap();
    let _pin = slot.pin();
    let root = records
        .index()
        .root(records.index().entered_space(0))
        .unwrap()
        .unwrap();
    let found = KEYS.map(|key| {
        let place = records.index().place(key);
        let segment = records
            .session()
            .mem
            .index_segment(root, place)
            .unwrap()
            .unwrap();
        records
            .session()
            .mem
            .find_in(segment, place.tag, key)
            .unwrap()
            .unwrap()
    });
    let headers = found.each_ref().map(|found| {
        let header = found.record.header().with_length(NEW.len());
        header.0.to_le_bytes()
    });
    let pieces: Vec<Piece<'_>> = (found.iter().zip(&headers))
        .flat_map(|(found, header)| {
            let piece = |offset, bytes| Piece {
                loc: found.entry.loc(),
                record: found.record,
                offset,
                bytes,
            };
            let value = found.record.header().value_offset();
            [piece(value, &NEW[..]), piece(0, &header[..])]
        })
        .collect();
    assert!(write_down(&slot, &pieces));
    let place = records.index().place(KEYS[0]);
    let segment = records
        .session()
        .mem
        .index_segment(root, place)
        .unwrap()
        .unwrap();
    let held = records.lock_home(&slot, segment, place, &mut Wait::new());
    let held = held.unwrap().unwrap();
    let set = ChangeSet {
        pieces: &pieces,
        guard: None,
        counted: None,
    };
    assert!(records.change_bytes(&slot, &held, &set));
    held.unlock();
    slot.intent(OPERATION_LANE).clear();
}

fn values(store: &LogStore) -> Vec<Vec<u8>> {
    let get = |key| store.get(key).unwrap().unwrap().to_vec();
    KEYS.map(get).to_vec()
}

/// A store in which process 1 was abandoned at the `nth` passage of `name`; `None`: it passes there
/// less often.
fn abandoned(name: &'static str, nth: u64) -> Option<World> {
    let (world, store) = World::new(CAPACITY, CAPACITY, UpdatePolicy::InPlace);
    for key in KEYS {
        store.put(key, &OLD).unwrap();
    }
    let outcome = fault::run(name, Action::Abandon, nth, move || {
        overwrite_all(store.inner().records());
    });
    world.script.kill(1);
    (outcome == Outcome::Abandoned).then_some(world)
}

/// It dies at every step.
pub fn a_change_set_over_several_records_is_made_whole_or_not_at_all() {
    let names = [
        ("log.bucket.locked", 1, &OLD[..]),
        ("log.change.announced", 1, &NEW[..]),
        ("log.change.excluded", 1, &NEW[..]),
        ("log.change.half", 1, &NEW[..]),
        ("log.change.stored", 6, &NEW[..]),
    ];
    for (name, passages, becomes) in names {
        for nth in 1..=passages {
            let world = abandoned(name, nth).unwrap();
            let store = world.open(2);
            store.reap().unwrap();
            assert_eq!(values(&store), vec![becomes; 3], "{name} {nth}");
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        }
        assert!(abandoned(name, passages + 1).is_none(), "{name}");
    }
}

/// They die at every step of the redo.
pub fn its_repairer_dies_too() {
    for nth in 1..=6 {
        let world = abandoned("log.change.stored", 2).unwrap();
        let second = world.open(2);
        let outcome = fault::run("log.redo.stored", Action::Abandon, nth, move || {
            second.reap().unwrap();
        });
        assert_eq!(outcome, Outcome::Abandoned);
        world.script.kill(2);
        let store = world.open(3);
        store.reap().unwrap();
        assert_eq!(values(&store), vec![&NEW[..]; 3], "{nth}");
    }
}

/// A redo is followed only if it fits the records that it names.
pub fn a_redo_that_fits_no_record_is_damage() {
    /// Spoils the words of the first piece.
    type Spoil = fn(&mut [u64]);
    let all: [(&str, Spoil); 5] = [
        ("a record that is none", |words| words[0] += 1),
        ("a value longer than its slack", |words| words[1] += 1000),
        ("bytes of the key", |words| words[1] = 8 << 32 | 211),
        ("more than there is", |words| words[1] |= 0xffff_ffff),
        ("another header", |words| words[1] = 211),
    ];
    for (what, spoil) in all {
        let world = abandoned("log.change.announced", 1).unwrap();
        let store = world.open(2);
        for area in store.inner().session().participants.undo_areas() {
            let area = notes_area(area);
            let mut words: Vec<u64> = area.words().iter().map(|w| w.load(Relaxed)).collect();
            if words[1] != 0 {
                spoil(&mut words);
                for (word, value) in area.words().iter().zip(words) {
                    word.store(value, Relaxed);
                }
            }
        }
        let refused = store.reap().unwrap_err();
        assert!(
            matches!(refused, crate::WriteError::Corrupt(_)),
            "{what}: {refused}"
        );
    }
}
