//! Stores in segments: attached, rebuilt, and refused if they do not belong to the directory.

use std::sync::Arc;

use mneme_durable::{
    Durability, DurabilityMode, DurableError, DurableOptions, Opening, Origin, Registry, Served,
    Unpaired,
};
use mneme_log::{Expiry, WriteError};
use mneme_shared::{Access, SharedStore, StoreOptions};
use mneme_space::RemoveError;
use mneme_sys::ManualClock;
use mneme_testkit::{Random, TestDir, runs_as_nobody, wait_until};

use super::{BOTH, change, contents};

pub struct Place {
    pub dir: TestDir,
    pub registry: Registry,
    pub mode: DurabilityMode,
}

impl Place {
    pub fn new(test: &str) -> Self {
        Self::of(test, DurabilityMode::Journal)
    }

    pub fn of(test: &str, mode: DurabilityMode) -> Self {
        let dir = TestDir::new(test);
        let registry = Registry::open(dir.path().join("registry")).unwrap();
        Self {
            dir,
            registry,
            mode,
        }
    }

    pub fn options(&self, data: &str) -> DurableOptions {
        let options = DurableOptions::new(self.dir.path().join(data));
        options.mode(self.mode).file_bytes(1 << 20)
    }

    pub fn open(&self, name: &str, data: &str) -> Result<(Arc<Served>, Durability), DurableError> {
        self.open_with(self.options(data), name)
    }

    pub fn open_with(
        &self,
        options: DurableOptions,
        name: &str,
    ) -> Result<(Arc<Served>, Durability), DurableError> {
        let opening = Opening {
            options: StoreOptions::new().capacity(64 << 20).maintainer(false),
            ..Opening::default()
        };
        options.serve(&self.registry, name, opening)
    }
}

/// The bytes of segments lie outside the directory.
impl Drop for Place {
    fn drop(&mut self) {
        for name in self.registry.segments().unwrap_or_default() {
            let _ = self.registry.remove_segment(name.as_str());
        }
    }
}

#[test]
fn a_segment_is_attached_or_rebuilt() {
    BOTH.into_iter().for_each(attached_or_rebuilt);
}

fn attached_or_rebuilt(mode: DurabilityMode) {
    let place = Place::of("durable-served", mode);
    let mut random = Random::new(3);
    let (served, durability) = place.open("s", "data").unwrap();
    assert_eq!(durability.origin(), Origin::Created);
    change(&served, &mut random, 300);
    let mut before = contents(&served);
    drop((durability, served));
    for round in 0..4 {
        if round % 2 == 1 {
            place.registry.remove_segment("s").unwrap();
        }
        let (served, durability) = place.open("s", "data").unwrap();
        let is_rebuilt = matches!(durability.origin(), Origin::Rebuilt(_));
        assert_eq!(is_rebuilt, round % 2 == 1);
        assert_eq!(contents(&served), before, "round {round}");
        change(&served, &mut random, 300);
        before = contents(&served);
        // The segment has what was not durable.
        drop((durability, served));
    }
}

#[test]
fn a_segment_and_a_directory_that_do_not_belong_together_are_refused() {
    BOTH.into_iter().for_each(strangers_are_refused);
}

fn strangers_are_refused(mode: DurabilityMode) {
    let place = Place::of("durable-pairs", mode);
    let put = |name: &str, data: &str| {
        let (served, durability) = place.open(name, data).unwrap();
        served.put(b"key", data.as_bytes()).unwrap();
        durability.close().unwrap();
    };
    put("one", "data-1");
    put("two", "data-2");
    let refused = |name, data| match place.open(name, data) {
        Err(DurableError::Unpaired(why)) => why,
        other => panic!("{:?}", other.map(|(_, durability)| durability.origin())),
    };
    assert_eq!(refused("one", "data-2"), Unpaired::Stores);
    // Another segment is rebuilt from the directory, and continues it.
    put("three", "data-1");
    assert_eq!(refused("one", "data-1"), Unpaired::Runs);
    put("three", "data-1");
    // A store that was served without a directory.
    StoreOptions::new()
        .capacity(64 << 20)
        .change_feed(true)
        .create(&place.registry, "four")
        .unwrap()
        .put(b"key", b"own")
        .unwrap();
    assert_eq!(refused("four", "data-1"), Unpaired::Stranger);
    // A server is refused the directory while another has it.
    let (_served, _durability) = place.open("three", "data-1").unwrap();
    let taken = place.open("five", "data-1");
    assert!(matches!(taken, Err(DurableError::InUse { .. })));
}

/// If the machine has lost its time, no expired record comes back, although the segment has
/// survived its server.
#[test]
fn a_segment_that_is_attached_with_no_time_brings_nothing_back() {
    for mode in BOTH {
        let place = Place::of("durable-no-time", mode);
        let clock = Arc::new(ManualClock::new(0, 1000));
        let options = |clock: &Arc<ManualClock>| place.options("data").clock(clock.clone());
        let (served, durability) = place.open_with(options(&clock), "s").unwrap();
        served
            .put_until(b"gone", b"value", Expiry::At(5000))
            .unwrap();
        durability.sync().unwrap();
        clock.set_wall_ms(6000);
        served.put(b"later", b"value").unwrap();
        durability.close().unwrap();
        drop(served);
        // The second server finds what the first has written while the machine's clock was not set.
        for now in [0, 0] {
            let clock = Arc::new(ManualClock::new(0, now));
            let (served, durability) = place.open_with(options(&clock), "s").unwrap();
            assert_eq!(durability.origin(), Origin::Attached);
            assert!(!served.contains(b"gone").unwrap(), "{mode}");
            served.put(b"later", b"again").unwrap();
            durability.close().unwrap();
        }
    }
}

/// Entries that are only in the ring of a damaged segment become durable before the store is
/// rebuilt, and only once.
#[test]
fn the_ring_of_a_damaged_segment_is_made_durable() {
    for mode in BOTH {
        salvaged(mode, |place| place.open("s", "data").unwrap());
    }
}

/// An interrupted attempt is repeated.
#[test]
fn a_death_while_a_ring_is_made_durable_loses_nothing() {
    use mneme_sys::fault::{Action, arm, disarm};

    for mode in BOTH {
        for point in ["durable.salvage.noted", "durable.salvage.continued"] {
            salvaged(mode, |place| {
                for _ in 0..2 {
                    let dies = || panic!("dies here");
                    arm(point, Action::Call(Arc::new(dies)), 1);
                    let died = std::panic::AssertUnwindSafe(|| drop(place.open("s", "data")));
                    std::panic::catch_unwind(died).unwrap_err();
                    disarm();
                }
                place.open("s", "data").unwrap()
            });
        }
    }
}

/// The segments that a server uses internally have names that no program's segment can have.
#[test]
fn a_segment_with_a_name_like_a_load_s_is_left_alone() {
    let place = Place::new("durable-alike");
    let options = StoreOptions::new().capacity(64 << 20).maintainer(false);
    let names = ["s.loading", "s.old", "s.upgrade", "s.quarantine-1"];
    for name in names {
        let store = options.create(&place.registry, name).unwrap();
        store.put(b"mine", name.as_bytes()).unwrap();
    }
    // The first opening loads; the second gives a feed to a segment without one.
    let (served, durability) = place.open("s", "data").unwrap();
    durability.close().unwrap();
    drop(served);
    place.registry.remove_segment("s").unwrap();
    drop(options.create(&place.registry, "s").unwrap());
    drop(place.open("s", "other").unwrap());
    for name in names {
        let store = SharedStore::attach(&place.registry, name).unwrap();
        let value = store.get(b"mine").unwrap().map(|value| value.to_vec());
        assert_eq!(value.as_deref(), Some(name.as_bytes()));
    }
}

/// An earlier build let programs give segments any name.
#[test]
fn a_load_refuses_to_remove_what_no_load_has_made() {
    let place = Place::new("durable-taken");
    let options = StoreOptions::new().capacity(64 << 20).maintainer(false);
    let store = options.create(&place.registry, "mine").unwrap();
    store.put(b"mine", b"1").unwrap();
    let directory = store.segment().directory();
    drop(store);
    std::fs::rename(&directory, directory.with_file_name("s~loading")).unwrap();
    let refused = place.open("s", "data").map(drop).unwrap_err();
    let DurableError::Remove(refused) = &refused else {
        panic!("{refused}");
    };
    assert!(
        matches!(refused, RemoveError::NotALeftover { .. }),
        "{refused}"
    );
    place.registry.rename_segment("s~loading", "mine").unwrap();
    let (served, durability) = place.open("s", "data").unwrap();
    let store = SharedStore::attach(&place.registry, "mine").unwrap();
    assert!(store.contains(b"mine").unwrap());
    durability.close().unwrap();
    drop(served);
}

/// A program that opens every segment for a moment, including this one, does not make a load fail.
#[test]
fn a_visitor_of_what_is_being_loaded_is_waited_for() {
    use mneme_sys::fault::{Action, arm};

    let place = Place::new("durable-visited");
    let (store, durability) = place.open("s", "data").unwrap();
    store.put(b"key", b"value").unwrap();
    durability.close().unwrap();
    drop(store);
    place.registry.remove_segment("s").unwrap();
    let registry = place.registry.clone();
    let visit = move || {
        let visitor = mneme_shared::SharedStore::attach(&registry, "s~loading").unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            drop(visitor);
        });
    };
    arm("durable.serve.loaded", Action::Call(Arc::new(visit)), 1);
    let (store, _durability) = place.open("s", "data").unwrap();
    assert!(store.contains(b"key").unwrap());
}

/// A segment that cannot be attached now is tried again by the next start.
#[test]
fn a_ring_that_cannot_be_had_for_now_is_not_given_up() {
    use mneme_sys::fault::{Action, arm, disarm};

    salvaged(DurabilityMode::Journal, |place| {
        let registry = place.dir.path().join("registry");
        let control = move || {
            let registry = Registry::open(&registry).unwrap();
            let aside = mneme_space::Segment::open(&registry, "s~quarantine-1").unwrap();
            aside.directory().join("control")
        };
        let found = Arc::new(std::sync::Mutex::new(std::path::PathBuf::new()));
        let hidden = Arc::clone(&found);
        // No other segment can be opened under its name.
        let hide = move || {
            let control = control();
            std::fs::rename(&control, control.with_extension("kept")).unwrap();
            std::fs::create_dir(&control).unwrap();
            *hidden.lock().unwrap() = control;
        };
        arm("durable.salvage.noted", Action::Call(Arc::new(hide)), 1);
        let refused = place.open("s", "data").map(drop);
        disarm();
        assert!(
            matches!(refused, Err(DurableError::Serve(_))),
            "{refused:?}"
        );
        let control = found.lock().unwrap().clone();
        std::fs::remove_dir(&control).unwrap();
        std::fs::rename(control.with_extension("kept"), &control).unwrap();
        place.open("s", "data").unwrap()
    });
}

/// Damage within an entry, which the headers of a ring do not show, does not become durable: no
/// load would accept it.
#[test]
fn a_damaged_entry_of_a_ring_does_not_keep_the_store_from_being_loaded() {
    for mode in BOTH {
        let place = Place::of("durable-ring-damaged", mode);
        let (served, durability) = place.open("s", "data").unwrap();
        served.put(b"kept", b"value").unwrap();
        durability.close().unwrap();
        drop(served);
        let writes = StoreOptions::new().maintainer(false);
        let local = writes.attach(&place.registry, "s", Access::ReadWrite);
        let local = local.unwrap();
        local.put(b"whole", b"value").unwrap();
        local.put(b"damaged-entry", b"value").unwrap();
        let data = local.segment().directory().join("data");
        drop(local);
        // The flags of the item: an unknown kind of value.
        overwrite_before(&data, b"damaged-entry", 11, &[31]);
        damage(&place.registry, &data);
        let (served, durability) = place.open("s", "data").unwrap();
        for (key, is_there) in [
            (&b"kept"[..], true),
            (b"whole", true),
            (b"damaged-entry", false),
        ] {
            assert_eq!(served.contains(key).unwrap(), is_there, "{mode}");
        }
        durability.close().unwrap();
    }
}

const OTHER_USER: &str = "MNEME_DURABLE_OTHER_USER";

/// A segment that another user's server has set aside under the name, and that this one may not
/// even read, does not prevent the load any more than another file does.
#[test]
fn a_segment_that_another_user_has_set_aside_is_left_alone() {
    if let Ok(root) = std::env::var(OTHER_USER) {
        let registry = Registry::open(std::path::Path::new(&root).join("registry")).unwrap();
        let opening = Opening {
            options: StoreOptions::new().capacity(64 << 20).maintainer(false),
            ..Opening::default()
        };
        let options = DurableOptions::new(std::path::Path::new(&root).join("data"));
        let (served, durability) = options.serve(&registry, "s", opening).unwrap();
        served.put(b"key", b"value").unwrap();
        durability.close().unwrap();
        drop(served);
        registry.remove_segment("s").unwrap();
        return;
    }
    if mneme_sys::files::user() != 0 {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let place = Place::new("durable-other-user");
    let aside = StoreOptions::new().capacity(64 << 20).maintainer(false);
    drop(aside.create(&place.registry, "s").unwrap());
    let aside = place.registry.set_segment_aside("s", "quarantine").unwrap();
    let own = place.registry.root().join("segments").join(aside);
    let owner = |path: &std::path::Path, user: &str| {
        let mut command = std::process::Command::new("chown");
        assert!(
            command
                .arg("-R")
                .arg(user)
                .arg(path)
                .status()
                .unwrap()
                .success()
        );
    };
    owner(place.dir.path(), "65534:65534");
    owner(&own, "0:0");
    // Everybody may write to this one.
    let planted = own.with_file_name("s~quarantine-2");
    std::fs::create_dir(&planted).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&planted, open).unwrap();
    let test = "served::a_segment_that_another_user_has_set_aside_is_left_alone";
    if runs_as_nobody(test, [(OTHER_USER, place.dir.path())]) {
        assert_eq!(std::fs::read_dir(&planted).unwrap().count(), 0);
    }
}

fn salvaged(mode: DurabilityMode, open: impl Fn(&Place) -> (Arc<Served>, Durability)) {
    let place = Place::of("durable-salvaged", mode);
    let (served, durability) = place.open("s", "data").unwrap();
    change(&served, &mut Random::new(7), 300);
    durability.close().unwrap();
    drop(served);
    // By a local program, which no server serves any more.
    let writes = StoreOptions::new().maintainer(false);
    let local = writes.attach(&place.registry, "s", Access::ReadWrite);
    let local = local.unwrap();
    change(&local, &mut Random::new(8), 300);
    local.put(b"long", &vec![5; 300_000]).unwrap();
    let before = contents(&local);
    assert!(local.feed_durable() < local.feed_tail());
    let data = local.segment().directory().join("data");
    drop(local);
    damage(&place.registry, &data);
    let (served, durability) = open(&place);
    assert!(matches!(durability.origin(), Origin::Rebuilt(_)));
    assert_eq!(contents(&served), before, "{mode}");
    served.put(b"later", b"value").unwrap();
    let before = contents(&served);
    durability.close().unwrap();
    drop(served);
    // The ring is not read again.
    place.registry.remove_segment("s").unwrap();
    let (served, durability) = place.open("s", "data").unwrap();
    assert_eq!(contents(&served), before, "{mode}");
    durability.close().unwrap();
}

/// Makes the next start set the segment aside.
pub fn damage(registry: &Registry, data: &std::path::Path) {
    lose_indexes(data);
    registry.set_note("s", "starts", Some("3\n")).unwrap();
}

/// Overwrites bytes before each place at which a segment's data has a key.
pub fn overwrite_before(data: &std::path::Path, key: &[u8], back: usize, with: &[u8]) {
    use std::os::unix::fs::FileExt;

    let file = std::fs::File::options().write(true).open(data).unwrap();
    let bytes = std::fs::read(data).unwrap();
    let mut places = 0;
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == key[0]) {
        at += found;
        if bytes[at..].starts_with(key) {
            file.write_all_at(with, (at - back) as u64).unwrap();
            places += 1;
        }
        at += 1;
    }
    assert!(places >= 2, "the record and its entry");
}

/// Overwrites the words of a store's header that lead to the databases' indexes.
fn lose_indexes(data: &std::path::Path) {
    use std::os::unix::fs::FileExt;

    let file = std::fs::File::options().read(true).write(true).open(data);
    let file = file.unwrap();
    let mut bytes = vec![0; 1 << 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let header = bytes.windows(8).position(|word| word == b"MNEMELOG");
    for database in 0..4 {
        let word = header.unwrap() as u64 + 512 + 8 * database;
        file.write_all_at(&[0; 8], word).unwrap();
    }
}

/// A segment that was in use before, with a change feed or without one.
#[test]
fn a_full_segment_is_adopted_by_an_empty_directory() {
    let all = BOTH
        .into_iter()
        .flat_map(|mode| [(mode, true), (mode, false)]);
    for (mode, fed) in all {
        let place = Place::of("durable-adopted", mode);
        let options = StoreOptions::new().capacity(64 << 20).change_feed(fed);
        let store = options.create(&place.registry, "s").unwrap();
        change(&store, &mut Random::new(5), 500);
        let long = vec![3; if fed { 100 } else { 500_000 }];
        store.put(b"long", &long).unwrap();
        let before = contents(&store);
        drop(store);
        let (served, durability) = place.open("s", "data").unwrap();
        assert_eq!(durability.origin(), Origin::Adopted);
        assert_eq!(contents(&served), before);
        let old = place.registry.remove_segment("s~old");
        assert!(matches!(old, Err(RemoveError::NotFound { .. })), "{old:?}");
        served.put(b"new", b"value").unwrap();
        let before = contents(&served);
        durability.close().unwrap();
        drop(served);
        place.registry.remove_segment("s").unwrap();
        let (served, durability) = place.open("s", "data").unwrap();
        assert!(matches!(durability.origin(), Origin::Rebuilt(_)));
        assert_eq!(contents(&served), before);
    }
}

/// A restored backup is not combined with a segment that has changed since.
#[test]
fn a_restored_backup_is_served_alone() {
    BOTH.into_iter().for_each(restored_alone);
}

fn restored_alone(mode: DurabilityMode) {
    let place = Place::of("durable-restored", mode);
    let (served, durability) = place.open("s", "data").unwrap();
    served.put(b"key", b"kept").unwrap();
    durability.backup("kept").unwrap();
    served.put(b"key", b"given up").unwrap();
    let options = place.options("data");
    let refused = options.restore_segment(&place.registry, "s", "kept");
    assert!(matches!(refused, Err(DurableError::InUse { .. })));
    durability.close().unwrap();
    let attached = place
        .options("data")
        .restore_segment(&place.registry, "s", "kept");
    assert!(matches!(attached, Err(DurableError::Remove(_))));
    drop(served);
    let missing = options.restore("none");
    assert!(matches!(missing, Err(DurableError::NoBackup { .. })));
    // Without the removal of its segment.
    options.restore("kept").unwrap();
    let refused = place.open("s", "data").map(|_| ());
    assert!(matches!(
        refused,
        Err(DurableError::Unpaired(Unpaired::Runs))
    ));
    options
        .restore_segment(&place.registry, "s", "kept")
        .unwrap();
    let (served, durability) = place.open("s", "data").unwrap();
    assert_eq!(served.get(b"key").unwrap().as_deref(), Some(&b"kept"[..]));
    durability.close().unwrap();
}

/// A segment that is being given a change feed has no name for a moment.
#[test]
fn an_adoption_that_died_without_a_name_is_completed() {
    BOTH.into_iter().for_each(halfway_adopted);
}

fn halfway_adopted(mode: DurabilityMode) {
    let place = Place::of("durable-halfway", mode);
    let options = StoreOptions::new().capacity(64 << 20).maintainer(false);
    let store = options.create(&place.registry, "s").unwrap();
    store.put(b"key", b"value").unwrap();
    drop(store);
    let options = options.change_feed(true);
    options.upgrade(&place.registry, "s").unwrap();
    place.registry.keep_beside("s", "upgrade").unwrap();
    let (served, durability) = place.open("s", "data").unwrap();
    assert_eq!(durability.origin(), Origin::Adopted);
    assert_eq!(served.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// A segment that was larger than its capacity while it was loaded may be full later.
#[test]
fn a_full_segment_that_was_extended_is_attached() {
    let place = Place::new("durable-extended");
    let (served, durability) = place.open("s", "data").unwrap();
    served.extend(8 << 20).unwrap();
    served.return_to_capacity().unwrap();
    let put = |number: u64| served.put(&number.to_le_bytes(), &[7; 200_000]);
    let full = (0..1000).find_map(|number| put(number).err());
    assert!(
        matches!(full, Some(WriteError::OutOfMemory { .. })),
        "{full:?}"
    );
    let (records, capacity) = (served.records(), served.capacity());
    durability.close().unwrap();
    drop(served);
    let (served, _durability) = place.open("s", "data").unwrap();
    assert_eq!((served.records(), served.capacity()), (records, capacity));
}

/// A local program is in the middle of a long value while a server begins another directory for its
/// segment, as after a disk failure.
#[test]
fn a_directory_is_begun_beside_a_change_in_pieces() {
    BOTH.into_iter().for_each(begun_beside_pieces);
}

fn begun_beside_pieces(mode: DurabilityMode) {
    use mneme_sys::fault::{Action, arm};
    use mneme_testkit::wait_until;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    let place = Place::of("durable-beside", mode);
    let (served, durability) = place.open("s", "failed").unwrap();
    served.put(b"key", b"value").unwrap();
    durability.close().unwrap();
    drop(served);
    let options = StoreOptions::new().maintainer(false);
    let attached = options.attach(&place.registry, "s", mneme_shared::Access::ReadWrite);
    let local = attached.unwrap();
    let (sends, goes_on) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let long = vec![3; 200_000];
    std::thread::scope(|scope| {
        let (waits, sends) = (Arc::clone(&goes_on), Arc::new(sends));
        let tells = Arc::clone(&sends);
        scope.spawn(|| {
            let hold = move || {
                tells.store(true, SeqCst);
                wait_until("the server waits, or has begun", || waits.load(SeqCst));
            };
            arm("log.feed.piece", Action::Call(Arc::new(hold)), 1);
            local.put(b"long", &long).unwrap();
        });
        wait_until("a piece is sent", || sends.load(SeqCst));
        let release = {
            let goes_on = Arc::clone(&goes_on);
            move || goes_on.store(true, SeqCst)
        };
        match mode {
            // Another thread waits for its base file.
            DurabilityMode::Journal => release(),
            DurabilityMode::Tree => {
                arm("durable.build.waits", Action::Call(Arc::new(release)), 1);
            }
        }
        let (served, durability) = place.open("s", "data").unwrap();
        goes_on.store(true, SeqCst);
        wait_until("the value is there", || served.contains(b"long").unwrap());
        durability.close().unwrap();
    });
    drop(local);
    place.registry.remove_segment("s").unwrap();
    let (served, _durability) = place.open("s", "data").unwrap();
    assert_eq!(served.get(b"long").unwrap().as_deref(), Some(&long[..]));
    assert_eq!(served.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Entries that were cut together with a lost segment stay away, even if the process dies when the
/// next segment has its name and the directory does not know about it yet.
#[test]
fn entries_that_were_cut_do_not_come_back() {
    BOTH.into_iter().for_each(cut_stays_away);
}

fn cut_stays_away(mode: DurabilityMode) {
    use mneme_sys::fault::{Action, arm, disarm};

    let place = Place::of("durable-cut", mode);
    let (served, durability) = place.open("s", "data").unwrap();
    served.put(b"before", b"value").unwrap();
    // The machine stops in the middle of a group: its end is not in the files.
    let made = served.feed_together(|| {
        served.put(b"within", b"value").unwrap();
        let closing = std::thread::spawn(|| durability.close());
        closing.join().unwrap().unwrap_err();
    });
    made.unwrap();
    drop(served);
    place.registry.remove_segment("s").unwrap();
    arm(
        "durable.serve.named",
        Action::Call(Arc::new(|| panic!("dies here"))),
        1,
    );
    let died = std::panic::AssertUnwindSafe(|| drop(place.open("s", "data")));
    std::panic::catch_unwind(died).unwrap_err();
    disarm();
    let (served, durability) = place.open("s", "data").unwrap();
    assert_eq!(durability.origin(), Origin::Attached);
    served.put(b"behind", b"value").unwrap();
    let before = contents(&served);
    durability.close().unwrap();
    drop(served);
    place.registry.remove_segment("s").unwrap();
    let (served, _durability) = place.open("s", "data").unwrap();
    assert_eq!(contents(&served), before, "{mode}");
    assert!(!served.contains(b"within").unwrap(), "{mode}");
}

/// A local program's group that a server's successor finds open does not become durable before it
/// ends.
#[test]
fn a_group_that_outlives_a_server_is_waited_for() {
    let place = Place::new("durable-group-outlives");
    let (served, durability) = place.open("s", "data").unwrap();
    let writes = StoreOptions::new().maintainer(false);
    let local = writes.attach(&place.registry, "s", Access::ReadWrite);
    let local = local.unwrap();
    let made = local.feed_together(|| {
        local.put(b"within", b"1").unwrap();
        durability.close().unwrap_err();
        drop(served);
        let (served, durability) = place.open("s", "data").unwrap();
        served.put(b"beside", b"2").unwrap();
        let gate = durability.gate();
        wait_until("the files have it", || {
            gate.ask();
            served.feed_durable() == served.feed_tail()
        });
        assert!(gate.durable() < gate.tail());
        (served, durability, gate)
    });
    let (_served, durability, gate) = made.unwrap();
    durability.sync().unwrap();
    assert_eq!(gate.durable(), gate.tail());
}
