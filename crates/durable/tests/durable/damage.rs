//! A flipped bit in the file of a tree: never loaded, copied or signed, and the error names the
//! key.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use mneme_durable::{DurabilityMode, DurableError, DurableOptions, DurableStore, GateState};
use mneme_log::{Expiry, Patch};
use mneme_testkit::{Random, TestDir, wait_until};
use mneme_tree::{Store, StoreError};

use super::{builder, contents, options};

/// A store with one long value, and its file.
struct Place {
    dir: TestDir,
    value: Vec<u8>,
}

impl Place {
    fn new(test: &str, len: usize) -> Self {
        let mut random = Random::new(len as u64);
        let place = Self {
            dir: TestDir::new(test),
            value: (0..len).map(|_| random.next() as u8).collect(),
        };
        let store = place.open().unwrap();
        store.put(b"before", b"short").unwrap();
        let third = store.database(3).unwrap();
        third.put(b"long", &place.value).unwrap();
        third.put(b"longer", b"short").unwrap();
        store.close().unwrap();
        place
    }

    fn options(&self) -> DurableOptions {
        options(&self.dir).mode(DurabilityMode::Tree)
    }

    fn open(&self) -> Result<DurableStore, DurableError> {
        self.options().open_private(builder())
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("store.tree")
    }

    /// Flips a bit of the byte at `at` of the value, wherever it lies in the file.
    fn flip(&self, at: usize) {
        let bytes = std::fs::read(self.file()).unwrap();
        let file = File::options().write(true).open(self.file()).unwrap();
        // Not from its beginning, which may contain the flipped byte.
        let known = &self.value[10..1000];
        let mut met = 0;
        for (begin, found) in bytes.windows(known.len()).enumerate() {
            if found == known {
                let at = begin - 10 + at;
                file.write_all_at(&[bytes[at] ^ 4], at as u64).unwrap();
                met += 1;
            }
        }
        assert!(met > 0);
    }

    fn places(&self) -> [usize; 3] {
        [0, self.value.len() / 2, self.value.len() - 1]
    }
}

fn names(refused: &DurableError) -> bool {
    let said = mneme_sys::with_causes(refused);
    refused.is_damage() && said.contains("\"long\"")
}

/// A value that is longer than a leaf's, and one that takes several frames.
const LENGTHS: [usize; 2] = [2000, 5_000_000];

#[test]
fn a_damaged_value_is_not_loaded_and_the_others_are_once_it_is_removed() {
    for len in LENGTHS {
        let place = Place::new("durable-damaged-load", len);
        let [_, middle, _] = place.places();
        for at in place.places() {
            place.flip(at);
            let refused = place.open().map(drop).unwrap_err();
            assert!(names(&refused), "{refused:?}");
            let says = refused.to_string();
            assert!(says.contains("database 3"), "{says}");
            if at == middle {
                let DurableError::DamagedValue { tree, .. } = refused else {
                    panic!("{refused:?}");
                };
                let file = Store::builder().open(place.file()).unwrap();
                let tree = file.open_tree(&tree).unwrap();
                let check = file.check();
                assert!(matches!(check, Err(StoreError::DamagedValue { .. })));
                tree.remove(b"long").unwrap();
                file.check().unwrap();
                break;
            }
            place.flip(at);
            place.open().unwrap();
        }
        let store = place.open().unwrap();
        assert_eq!(contents(&store).len(), 2);
    }
}

/// The next change writes the value in memory again, and then it can be backed up.
#[test]
fn a_damaged_value_is_not_backed_up_and_is_found_in_the_background() {
    for len in LENGTHS {
        let place = Place::new("durable-damaged-backup", len);
        let store = place.open().unwrap();
        store.backup("whole").unwrap();
        for at in place.places() {
            let seen = store.durability().stats().scrub.damaged;
            place.flip(at);
            let refused = store.backup("kept").unwrap_err();
            assert!(names(&refused), "{refused:?}");
            assert!(!place.dir.path().join("kept.backup").exists());
            let stats = || store.durability().stats();
            assert!(stats().checkpoints.why.contains("\"long\""));
            wait_until("it is found", || stats().scrub.damaged > seen);
            assert!(stats().scrub.why.contains("\"long\""));
            assert_eq!(stats().state, GateState::Open);
            let third = store.database(3).unwrap();
            third.put(b"long", &place.value).unwrap();
            store.sync().unwrap();
            store.backup("kept").unwrap();
            std::fs::remove_file(place.dir.path().join("kept.backup")).unwrap();
        }
    }
}

/// A change of a part stores the whole value again, with a new checksum.
#[test]
fn a_damaged_value_gets_no_new_checksum_by_a_change_of_a_part() {
    for part in [true, false] {
        let place = Place::new("durable-damaged-part", 9000);
        let store = place.open().unwrap();
        let third = store.database(3).unwrap();
        let patch = |bytes: &'static [u8]| {
            let patch = move || Patch::Write {
                at: 0,
                bytes: bytes.into(),
            };
            third.update_part(b"long", |_| 0..0, |_| patch()).unwrap();
        };
        // The first change of a value may enter all of it.
        patch(b"old");
        store.sync().unwrap();
        place.flip(4000);
        match part {
            true => patch(b"new"),
            false => drop(third.set_expiry(b"long", Expiry::At(1 << 60)).unwrap()),
        }
        let refused = store.sync().unwrap_err();
        assert!(refused.to_string().contains("\"long\""), "{refused}");
        assert_eq!(store.durability().stats().state, GateState::Failed);
        drop(store);
        let refused = place.open().map(drop).unwrap_err();
        assert!(names(&refused), "{refused:?}");
        // A value that is removed need not be intact.
        place.flip(4000);
        let store = place.open().unwrap();
        place.flip(4000);
        store.database(3).unwrap().remove(b"long").unwrap();
        store.sync().unwrap();
        store.backup("kept").unwrap();
    }
}
