//! Whoever writes beside an upgrade is not forgotten, and of two who begin to serve one does.
#![allow(clippy::unwrap_used, reason = "a test that panics fails")]

use std::path::PathBuf;

use mneme_shared::{Found, Opening, Registry, ServeError, StoreOptions};

const NAME: &str = "beside";

/// A registry with a store of a hundred records, gone with the test.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Self {
        let name = format!("/dev/shm/mneme-shared-{test}-{}", std::process::id());
        let place = Self(name.into());
        let store = options().create(&place.registry(), NAME).unwrap();
        for key in 0..100_u32 {
            store.put(&key.to_le_bytes(), b"kept").unwrap();
        }
        place
    }

    fn registry(&self) -> Registry {
        Registry::open(&self.0).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let registry = self.registry();
        for name in registry.segments().unwrap() {
            let _ = registry.remove_segment(name.as_str());
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options() -> StoreOptions {
    StoreOptions::new().capacity(64 << 20).maintainer(false)
}

fn opening() -> Opening {
    Opening {
        options: options(),
        ..Opening::default()
    }
}

#[test]
fn of_many_that_begin_at_once_one_serves_and_none_has_failed() {
    let place = Place::new("begin");
    let registry = place.registry();
    let noted = || registry.note(NAME, "starts").unwrap();
    // The next of these starts checks, and would be followed by those that give the store up.
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
fn a_start_that_is_told_to_end_is_none_that_failed() {
    let place = Place::new("withdrawn");
    let registry = place.registry();
    let noted = || registry.note(NAME, "starts").unwrap();
    registry.set_note(NAME, "starts", Some("1\n")).unwrap();
    // Told while it is under way, as which it counts.
    let asked = opening();
    let served = asked.open(&registry, NAME).unwrap();
    assert_eq!(noted().as_deref(), Some("2\n"));
    asked.withdrawal.withdraw().unwrap();
    assert_eq!(noted().as_deref(), Some("1\n"));
    drop(served);
    // Told before it began.
    drop(asked.open(&registry, NAME).unwrap());
    assert_eq!(noted().as_deref(), Some("1\n"));
    // Told once it has settled: there is nothing to take back.
    let asked = opening();
    let served = asked.open(&registry, NAME).unwrap();
    served.settle().unwrap();
    asked.withdrawal.withdraw().unwrap();
    assert_eq!(noted(), None);
    drop(served);
}

#[cfg(feature = "fault")]
#[test]
fn what_is_written_while_a_store_is_copied_is_not_left_behind() {
    use mneme_shared::{SharedStore, UpgradeError};
    use mneme_sys::fault::{self, Action};

    for point in ["made", "copied", "looked"] {
        let place = Place::new(&format!("visited-{point}"));
        let registry = place.registry();
        let visitor = registry.clone();
        let visit = move || {
            // Comes, writes, and has left when the names are changed.
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
