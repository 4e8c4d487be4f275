//! A write during an upgrade is not lost, and only one of two processes that begin to serve a store
//! does.
#![allow(clippy::unwrap_used, reason = "a test that panics fails")]

mod common;

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};

use common::{opening, options, registry};
use mneme_log::Evict;
use mneme_shared::{
    Access, CreateError, Found, Opening, Registry, ServeError, SharedStore, UpgradeError,
};
use mneme_testkit::TestDir;

const NAME: &str = "beside";

/// A registry with a store of a hundred records, removed at the end.
struct Place(TestDir);

impl Place {
    fn new(test: &str) -> Self {
        let place = Self(TestDir::new(test));
        let store = options().create(&place.registry(), NAME).unwrap();
        for key in 0..100_u32 {
            store.put(&key.to_le_bytes(), b"kept").unwrap();
        }
        place
    }

    fn registry(&self) -> Registry {
        registry(&self.0)
    }

    /// The store's data file, and the offset of its header in it.
    fn data(&self) -> (File, u64) {
        let store = SharedStore::attach(&self.registry(), NAME).unwrap();
        let data = store.segment().directory().join("data");
        drop(store);
        let mut bytes = vec![0; 1 << 20];
        let file = File::options().read(true).write(true).open(data).unwrap();
        file.read_exact_at(&mut bytes, 0).unwrap();
        let header = bytes.windows(8).position(|word| word == b"MNEMELOG");
        (file, header.unwrap() as u64)
    }
}

#[test]
fn one_of_many_concurrent_starts_serves_and_none_counts_as_failed() {
    let place = Place::new("begin");
    let registry = place.registry();
    let noted = || registry.note(NAME, "starts").unwrap();
    // The next start makes a check, and would be followed by those that give the store up.
    registry.set_note(NAME, "starts", Some("5\n")).unwrap();
    let all = std::thread::scope(|scope| {
        let begin = || opening().open(&registry, NAME);
        let all: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
        all.into_iter()
            .map(|one| one.join().unwrap())
            .collect::<Vec<_>>()
    });
    let (mut serve, mut refused) = (Vec::new(), 0);
    for one in all {
        match one {
            Ok(served) => serve.push(served),
            Err(ServeError::Role { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((serve.len(), refused), (1, 3));
    assert_eq!(
        (serve[0].found(), serve[0].stats().records),
        (&Found::Checked, 100)
    );
    assert_eq!(noted(), None);
}

#[test]
fn a_start_beside_another_names_its_process() {
    let place = Place::new("begins");
    let registry = place.registry();
    // Held by a start before it has opened the store.
    let hold = registry.hold_note(NAME, "starts").unwrap();
    let refused = opening().open(&registry, NAME).map(drop).unwrap_err();
    let words = format!("by process {};", std::process::id());
    let words_found = std::error::Error::source(&refused).unwrap().to_string();
    assert!(words_found.contains(&words), "{words_found}");
    drop(hold);
    opening().open(&registry, NAME).map(drop).unwrap();
    // Nobody else could hold it.
    let lock = format!("segments/{NAME}/starts.lock");
    let mode = registry.root().join(lock).metadata().unwrap();
    let mode = mode.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// The old store already has its other name, and the new one does not have the store's name yet.
#[test]
fn nobody_takes_the_name_of_a_store_whose_upgrade_was_interrupted() {
    let place = Place::new("halfway");
    let registry = place.registry();
    options().upgrade(&registry, NAME).unwrap();
    registry.keep_beside(NAME, "upgrade").unwrap();
    let refused = opening().open(&registry, NAME).map(drop);
    assert!(
        matches!(
            refused,
            Err(ServeError::Create(CreateError::Halfway { .. }))
        ),
        "{refused:?}"
    );
    let refused = options().open_or_create(&registry, NAME).map(drop);
    assert!(
        matches!(refused, Err(CreateError::Halfway { .. })),
        "{refused:?}"
    );
    options().upgrade(&registry, NAME).unwrap();
    let served = opening().open(&registry, NAME).unwrap();
    assert_eq!(served.found(), &Found::Attached);
}

/// An upgrade is completed only with the store that was copied, and not with another one of that
/// name.
#[test]
fn segments_with_an_upgrades_names_are_not_mistaken_for_its() {
    let place = Place::new("alike");
    let registry = place.registry();
    let (old, new) = (format!("{NAME}.old"), format!("{NAME}.upgrade"));
    for name in [&old, &new] {
        drop(options().create(&registry, name).unwrap());
    }
    // An upgrade of the store beside them removes neither.
    assert_eq!(options().upgrade(&registry, NAME).unwrap().records, 100);
    registry.remove_segment(&format!("{NAME}~old")).unwrap();
    registry.keep_beside(NAME, "upgrade").unwrap();
    // A copy, and a store that is not the one it was copied from.
    registry.rename_segment(&old, NAME).unwrap();
    registry.keep_beside(NAME, "old").unwrap();
    drop(options().create(&registry, NAME).unwrap());
    let records = |name| SharedStore::attach(&registry, name).unwrap().records();
    assert_eq!(records(NAME), 0);
    assert_eq!(records(&new), 0);
}

/// Every opening refuses a store of another version, naming both versions, and never sets it aside,
/// however often a server is started. The version that created it can use it unchanged.
#[test]
fn a_store_of_another_format_is_refused_and_left_as_it_is() {
    let place = Place::new("format");
    let registry = place.registry();
    let (file, header) = place.data();
    // The format is the word after it.
    let at = header + 8;
    let of = |format: u64| file.write_all_at(&format.to_le_bytes(), at).unwrap();
    for other in [mneme_log::FORMAT - 1, mneme_log::FORMAT + 1] {
        of(other);
        let named = [other, mneme_log::FORMAT].map(|format| format.to_string());
        let tells = |text: &str| named.iter().all(|format| text.contains(format));
        // More often than the limit for failed starts.
        for _ in 0..8 {
            let refused = opening().open(&registry, NAME).map(drop).unwrap_err();
            assert!(tells(&refused.to_string()), "{refused}");
        }
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let refused = options().attach(&registry, NAME, access).unwrap_err();
            assert!(
                !refused.is_damage() && tells(&refused.to_string()),
                "{refused}"
            );
        }
        let refused = options().upgrade(&registry, NAME).map(drop).unwrap_err();
        assert!(tells(&refused.to_string()), "{refused}");
    }
    assert_eq!(registry.segments().unwrap().len(), 1);
    of(mneme_log::FORMAT);
    let served = opening().open(&registry, NAME).unwrap();
    assert_eq!(served.found(), &Found::Attached);
    assert_eq!(served.len(), 100);
    assert!(served.check().unwrap().is_sound());
}

/// A store that holds more than a ring gets a change feed by a copy. Servers can distinguish it
/// from one without, and create new stores either way.
#[test]
fn a_full_store_gets_a_change_feed_by_a_copy() {
    let place = Place::new("fed");
    let registry = place.registry();
    let open = |change_feed| {
        let opening = Opening {
            change_feed,
            ..opening()
        };
        opening.open(&registry, NAME)
    };
    let store = options().attach(&registry, NAME, Access::ReadWrite);
    let store = store.unwrap();
    (0..200u32).for_each(|i| store.put(&i.to_le_bytes(), &[i as u8; 40_000]).unwrap());
    let records = store.records();
    drop(store);
    let refused = open(Some(true)).map(drop);
    assert!(
        matches!(refused, Err(ServeError::NotFed { .. })),
        "{refused:?}"
    );
    let fed = options().change_feed(true);
    assert_eq!(fed.upgrade(&registry, NAME).unwrap().records, records);
    let refused = open(Some(false)).map(drop);
    assert!(
        matches!(refused, Err(ServeError::Fed { .. })),
        "{refused:?}"
    );
    let noted = registry.note(NAME, "starts").unwrap();
    assert_eq!(noted, None, "a refused start has not failed");
    let served = open(Some(true)).unwrap();
    assert_eq!(
        (served.found(), served.records()),
        (&Found::Attached, records)
    );
    let mut feed = served.change_feed().unwrap();
    let mut bytes = Vec::new();
    assert!(feed.drain(1, &mut bytes).unwrap().is_empty());
    served.put(b"new", b"v").unwrap();
    assert!(!feed.drain(1, &mut bytes).unwrap().is_empty());
    drop((feed, served));
    assert!(open(None).unwrap().has_change_feed());
    registry.remove_segment(NAME).unwrap();
    assert!(open(Some(true)).unwrap().has_change_feed());
}

/// A store whose records cannot be reached is not served as an empty one.
#[test]
fn a_store_that_has_lost_its_index_is_refused_and_then_set_aside() {
    let place = Place::new("lost");
    let registry = place.registry();
    let (file, header) = place.data();
    // The word that leads to the index of database 0.
    file.write_all_at(&[0; 8], header + 512).unwrap();
    for _ in 0..3 {
        let refused = opening().open(&registry, NAME).map(drop);
        assert!(
            matches!(refused, Err(ServeError::Damaged { .. })),
            "{refused:?}"
        );
    }
    let served = opening().open(&registry, NAME).unwrap();
    let aside = format!("{NAME}~quarantine-1");
    assert_eq!(served.found(), &Found::Replaced(aside));
    served.put(b"k", b"v").unwrap();
    drop(served);
    // A store that was really emptied is served.
    let served = opening().open(&registry, NAME).unwrap();
    served.clear().unwrap();
    drop(served);
    let served = opening().open(&registry, NAME).unwrap();
    assert_eq!(served.found(), &Found::Attached);
}

#[test]
fn a_withdrawn_start_does_not_count_as_failed() {
    let place = Place::new("withdrawn");
    let registry = place.registry();
    let noted = || registry.note(NAME, "starts").unwrap();
    registry.set_note(NAME, "starts", Some("1\n")).unwrap();
    // Withdrawn while it is in progress, when it counts.
    let asked = opening();
    let served = asked.open(&registry, NAME).unwrap();
    assert_eq!(noted().as_deref(), Some("2\n"));
    asked.withdrawal.withdraw().unwrap();
    assert_eq!(noted().as_deref(), Some("1\n"));
    drop(served);
    // Withdrawn before it began.
    drop(asked.open(&registry, NAME).unwrap());
    assert_eq!(noted().as_deref(), Some("1\n"));
    // The start has settled, so there is nothing to withdraw.
    let asked = opening();
    let served = asked.open(&registry, NAME).unwrap();
    served.settle().unwrap();
    asked.withdrawal.withdraw().unwrap();
    assert_eq!(noted(), None);
    drop(served);
}

#[test]
fn writes_during_the_copy_are_not_lost() {
    use mneme_sys::fault::{self, Action};

    for point in ["made", "copied", "looked"] {
        let place = Place::new(&format!("visited-{point}"));
        let registry = place.registry();
        let visitor = registry.clone();
        let visit = move || {
            // A process that opens the store, writes, and closes it again before the names are
            // changed.
            let store = options().open_or_create(&visitor, NAME).unwrap();
            store.put(b"acknowledged", b"1").unwrap();
        };
        let upgraded = std::thread::scope(|scope| {
            let upgrade = scope.spawn(|| {
                let point = format!("shared.upgrade.{point}");
                fault::arm(&point, Action::Call(std::sync::Arc::new(visit)), 1);
                options().upgrade(&registry, NAME)
            });
            upgrade.join().unwrap()
        });
        assert!(
            matches!(upgraded, Err(UpgradeError::Visited)),
            "{point}: {upgraded:?}"
        );
        let store = SharedStore::attach(&registry, NAME).unwrap();
        let written = store
            .get(b"acknowledged")
            .unwrap()
            .map(|value| value.to_vec());
        assert_eq!(written.as_deref(), Some(&b"1"[..]), "{point}");
        drop(store);
        assert_eq!(options().upgrade(&registry, NAME).unwrap().records, 101);
    }
}

/// An upgrade that dies before it could see that a process came is not completed by the next one.
#[test]
fn writes_before_an_upgrade_dies_are_not_lost() {
    use mneme_sys::fault::{self, Action, Outcome};

    for visited in [false, true] {
        let place = Place::new(&format!("dies-{visited}"));
        let registry = place.registry();
        let (visitor, upgrader) = (registry.clone(), registry.clone());
        let visit = move || {
            let store = options().open_or_create(&visitor, NAME).unwrap();
            store.put(b"acknowledged", b"1").unwrap();
        };
        let died = fault::run("shared.upgrade.renamed", Action::Abandon, 1, move || {
            if visited {
                let visit = Action::Call(std::sync::Arc::new(visit));
                fault::arm("shared.upgrade.looked", visit, 1);
            }
            options().upgrade(&upgrader, NAME).map(drop)
        });
        assert!(matches!(died, Outcome::Abandoned));
        let records = 100 + u64::from(visited);
        assert_eq!(options().upgrade(&registry, NAME).unwrap().records, records);
        let store = SharedStore::attach(&registry, NAME).unwrap();
        let written = store.get(b"acknowledged").unwrap();
        assert_eq!(written.is_some(), visited);
    }
}

/// Records that do not fit into the new store are not evicted by its policy.
#[test]
fn an_upgrade_evicts_nothing() {
    let place = Place::new("evicting");
    let registry = place.registry();
    let options = || options().evict(Evict::Lru);
    let large = options().capacity(128 << 20);
    registry.remove_segment(NAME).unwrap();
    let store = large.create(&registry, NAME).unwrap();
    for key in 0..800_u32 {
        store.put(&key.to_le_bytes(), &vec![7; 100_000]).unwrap();
    }
    assert_eq!(store.records(), 800);
    drop(store);
    let refused = options().upgrade(&registry, NAME).map(drop).unwrap_err();
    assert!(matches!(refused, UpgradeError::Write(_)), "{refused}");
    assert_eq!(large.upgrade(&registry, NAME).unwrap().records, 800);
    let store = SharedStore::attach(&registry, NAME).unwrap();
    assert_eq!((store.records(), store.eviction()), (800, Evict::Lru));
}

#[test]
fn a_server_that_waited_serves_the_store_that_has_the_name_by_then() {
    use std::sync::Arc;

    use mneme_sys::fault::{self, Action};

    let place = Place::new("turn");
    let registry = place.registry();
    let other = registry.clone();
    let replace = move || {
        // Sets the store aside, and creates another.
        other.set_note(NAME, "starts", Some("6\n")).unwrap();
        let served = opening().open(&other, NAME).unwrap();
        assert!(matches!(served.found(), Found::Replaced(_)));
        served.put(b"here", b"now").unwrap();
        served.settle().unwrap();
    };
    fault::arm("shared.serve.found", Action::Call(Arc::new(replace)), 1);
    let served = opening().open(&registry, NAME).unwrap();
    assert_eq!(served.get(b"here").unwrap().unwrap(), b"now");
    drop(served);
    // Nor does anything have the name.
    let other = registry.clone();
    let remove = move || other.remove_segment(NAME).unwrap();
    fault::arm("shared.serve.found", Action::Call(Arc::new(remove)), 1);
    let served = opening().open(&registry, NAME).unwrap();
    assert_eq!(served.found(), &Found::Created);
    assert!(served.is_empty());
}
