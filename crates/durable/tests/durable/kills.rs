//! `kill -9` of a server's process at any time, with `Always`: what it acknowledged is there, both
//! if the segment has survived and if the store is rebuilt from the files. The process is this
//! test, started again.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mneme_durable::{
    Durability, DurabilityMode, DurableOptions, GateState, LogStore, Opening, Origin, Registry,
    Served, SyncPolicy,
};
use mneme_log::{Expiry, ValueKind, WriteError};
use mneme_shared::StoreOptions;
use mneme_testkit::{Process, Random, retry_within, seconds, wait_until};

use super::served::{Place, damage, overwrite_before};
use super::{BOTH, Records, change_collection, contents};

const TEST: &str = "kills::writes_that_a_killed_server_acknowledged_are_there";
const CHILD: &str = "MNEME_DURABLE_KILLS";
const MODE: &str = "MNEME_DURABLE_MODE";
const FROM: &str = "MNEME_DURABLE_FROM";

/// The form in which a child keeps the store.
fn mode_of_child() -> DurabilityMode {
    let named = std::env::var(MODE).unwrap();
    let is_named = |mode: &DurabilityMode| mode.to_string() == named;
    BOTH.into_iter().find(is_named).unwrap()
}

fn serve(path: &Path, mode: DurabilityMode) -> (Arc<Served>, Durability) {
    serve_with(path, mode, StoreOptions::new())
}

fn serve_with(
    path: &Path,
    mode: DurabilityMode,
    options: StoreOptions,
) -> (Arc<Served>, Durability) {
    let registry = Registry::open(path.join("registry")).unwrap();
    let opening = Opening {
        options: options.capacity(64 << 20),
        ..Opening::default()
    };
    let options = DurableOptions::new(path.join("data"))
        .mode(mode)
        .file_bytes(1 << 20)
        .reserve(2 << 20)
        .recycled(4 << 20)
        .sync(SyncPolicy::Always);
    // A child that another test has just started may hold the lock until it runs.
    let opened = retry_within(Duration::from_secs(60), || {
        options.serve(&registry, "s", opening.clone())
    });
    opened.0.settle().unwrap();
    opened
}

/// Change number `i`.
fn change(store: &LogStore, i: u64) -> Result<(), WriteError> {
    let mut random = Random::new(i);
    let number = random.below(3) as usize;
    let database = store.database(number).unwrap();
    let key = format!("key-{}", random.below(60)).into_bytes();
    let value = vec![i as u8; random.below(3000) as usize];
    let kind = ValueKind::new(random.below(2) as u8).unwrap();
    match random.below(28) {
        24.. => {
            change_collection(database, &mut random);
            Ok(())
        }
        0 => database.clear(),
        1 => store.swap_databases(number, (number + 1) % 3),
        2..6 => database.remove(&key).map(drop),
        6 => database.set_expiry(&key, Expiry::At(1 << 50)).map(drop),
        7 => store.transaction(|t| {
            t.put(&key, &value)?;
            t.put(b"other", &value)
        }),
        _ => database.put_kind(&key, &value, kind, Expiry::Never),
    }
}

/// The expected content of the store after a number of changes.
struct Model(LogStore, u64);

impl Model {
    fn new() -> Self {
        let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
        Self(builder.open_private().unwrap(), 0)
    }

    fn after(&mut self, many: u64) -> Records {
        while self.1 < many {
            change(&self.0, self.1).unwrap();
            self.1 += 1;
        }
        contents(&self.0)
    }
}

/// Makes the changes from a number on, and prints how many are durable, until it is killed.
fn live(path: &Path) -> ! {
    let mut next = std::env::var(FROM).unwrap().parse().unwrap();
    let (store, durability) = serve(path, mode_of_child());
    let gate = durability.gate();
    loop {
        change(&store, next).unwrap();
        next += 1;
        let tail = gate.tail();
        gate.ask();
        while gate.durable() < tail {
            assert_eq!(gate.state(), GateState::Open);
            std::thread::yield_now();
        }
        println!("{next}");
        if next.is_multiple_of(64) {
            // One may be under way.
            let _ = durability.checkpoint();
        }
    }
}

#[test]
fn writes_that_a_killed_server_acknowledged_are_there() {
    if let Ok(path) = std::env::var(CHILD) {
        live(path.as_ref());
    }
    BOTH.into_iter().for_each(storm);
}

const GROUP_TEST: &str = "kills::a_group_that_a_killed_server_left_open_cuts_nothing_off";
const GROUP: &str = "MNEME_DURABLE_GROUP";

/// Leaves a group open that the files already contain.
fn leave_group(path: &Path) -> ! {
    let (store, durability) = serve(path, mode_of_child());
    let endless: Result<Infallible, _> = store.feed_together(|| {
        store.put(b"within", b"1").unwrap();
        let gate = durability.gate();
        wait_until("the files have it", || {
            gate.ask();
            store.feed_durable() == store.feed_tail()
        });
        println!("\nready");
        loop {
            std::thread::park();
        }
    });
    match endless.unwrap() {}
}

/// What its successor acknowledges comes after the end of the group, not within it.
#[test]
fn a_group_that_a_killed_server_left_open_cuts_nothing_off() {
    if let Ok(path) = std::env::var(GROUP) {
        leave_group(path.as_ref());
    }
    for mode in BOTH {
        let place = Place::of("durable-group-left", mode);
        let dir = &place.dir;
        let variables = [
            (GROUP, dir.path().to_str().unwrap()),
            (MODE, &mode.to_string()),
        ];
        Process::start_ready(GROUP_TEST, variables).kill();
        // No other thread reaps.
        let options = StoreOptions::new().maintainer(false);
        let (store, durability) = serve_with(dir.path(), mode, options);
        store.put(b"behind", b"2").unwrap();
        durability.sync().unwrap();
        // As after a power cut.
        let copy = dir.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        for file in std::fs::read_dir(dir.path().join("data")).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
        drop((durability, store));
        let options = DurableOptions::new(&copy).mode(mode);
        let recovered = options.open_private(super::builder()).unwrap();
        for (key, value) in [(b"within", b"1"), (b"behind", b"2")] {
            let found = recovered.get(key).unwrap();
            assert_eq!(found.as_deref(), Some(&value[..]), "{mode}");
        }
    }
}

const AHEAD_TEST: &str = "kills::entries_of_a_journal_are_not_cut_by_a_damaged_ring";
const AHEAD: &str = "MNEME_DURABLE_AHEAD";

/// Makes changes that are in the journal's file but not synced.
fn append(path: &Path) -> ! {
    let (store, durability) = serve(path, DurabilityMode::Journal);
    durability.set_policy(SyncPolicy::No);
    store.put(b"kept", b"1").unwrap();
    durability.sync().unwrap();
    let tail = store.feed_tail();
    store.put(b"first", &[7; 500]).unwrap();
    store.put(b"second", &[7; 500]).unwrap();
    // From the journal's beginning: the counts are those of a step, and may lag behind a sync that
    // the step ends.
    wait_until("the file has them", || {
        let seen = durability.stats();
        Some(seen.journal_first + seen.journal.appended) == store.feed_tail()
    });
    assert_eq!(store.feed_durable(), tail);
    println!("\nready");
    loop {
        std::thread::park();
    }
}

/// The files have checksums, and the ring of a damaged segment has none: the ring adds to the
/// files, and removes nothing from them.
#[test]
fn entries_of_a_journal_are_not_cut_by_a_damaged_ring() {
    if let Ok(path) = std::env::var(AHEAD) {
        append(path.as_ref());
    }
    let place = Place::new("durable-ring-behind");
    let dir = &place.dir;
    Process::start_ready(AHEAD_TEST, [(AHEAD, dir.path())]).kill();
    let segment = mneme_space::Segment::open(&place.registry, "s").unwrap();
    let data = segment.directory().join("data");
    // The header of the entry, among others.
    overwrite_before(&data, b"second", 64, &[0; 64]);
    damage(&place.registry, &data);
    let (store, durability) = serve(dir.path(), DurabilityMode::Journal);
    assert!(matches!(durability.origin(), Origin::Rebuilt(_)));
    for key in [&b"kept"[..], b"first", b"second"] {
        assert!(store.contains(key).unwrap(), "{}", key.escape_ascii());
    }
}

fn storm(mode: DurabilityMode) {
    let place = Place::of("durable-kills", mode);
    let dir = &place.dir;
    let mut random = Random::of_run(5);
    let mut model = Model::new();
    let (begun, limit) = (std::time::Instant::now(), seconds(1));
    let (mut kills, mut changes) = (0, 0);
    while kills < 4 || begun.elapsed() < limit {
        let target = changes + random.below(150);
        let variables = [
            (CHILD, dir.path().to_str().unwrap()),
            (MODE, &mode.to_string()),
            (FROM, &changes.to_string()),
        ];
        let mut child = Process::start_talking(TEST, variables);
        while child.number() < target {}
        changes = child.last_number().unwrap();
        kills += 1;
        // Every other time only the files are left.
        if kills % 2 == 0 {
            let registry = Registry::open(dir.path().join("registry")).unwrap();
            wait_until("the segment is nobody's", || {
                registry.remove_segment("s").is_ok()
            });
        }
        let (store, durability) = serve(dir.path(), mode);
        let found = contents(&store);
        if model.after(changes) != found {
            changes += 1;
            assert!(model.after(changes) == found, "kill {kills} at {changes}");
        }
        durability.close().unwrap();
    }
}

/// A local program is killed within a change while another one is stopped during its attach.
mod repairs {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use mneme_shared::Access;
    use mneme_sys::fault::{Action, arm};

    use super::*;

    const TEST: &str = "kills::repairs::a_repair_that_must_wait_does_not_fail_the_store";
    const LOCAL: &str = "MNEME_DURABLE_LOCAL";

    fn attach(path: &Path, access: Access) -> Option<mneme_shared::SharedStore> {
        let registry = Registry::open(path.join("registry")).unwrap();
        let options = StoreOptions::new().maintainer(false);
        options.attach(&registry, "s", access).ok()
    }

    /// Dies within a put, as soon as it is allowed to.
    fn put_and_die(path: &Path) -> ! {
        let local = attach(path, Access::ReadWrite).unwrap();
        local.put(b"counted", b"value").unwrap();
        println!("\nready");
        wait_until("it may die", || path.join("dies").exists());
        arm("log.feed.filled", Action::Kill, 1);
        let put = local.put(b"dying", b"value");
        panic!("it lives: {put:?}");
    }

    #[test]
    fn a_repair_that_must_wait_does_not_fail_the_store() {
        if let Ok(path) = std::env::var(LOCAL) {
            put_and_die(path.as_ref());
        }
        let place = Place::new("durable-repair-waits");
        let path = place.dir.path();
        let options = StoreOptions::new().maintainer(false);
        let (served, durability) = serve_with(path, DurabilityMode::Journal, options);
        served.put(b"before", b"value").unwrap();
        durability.sync().unwrap();
        let mut child = Process::start_ready(TEST, [(LOCAL, path.to_str().unwrap())]);
        let (stands, goes_on) = (AtomicBool::new(false), AtomicBool::new(false));
        let (stands, goes_on) = (Arc::new(stands), Arc::new(goes_on));
        std::thread::scope(|scope| {
            let (tells, waits) = (Arc::clone(&stands), Arc::clone(&goes_on));
            scope.spawn(move || {
                let hold = move || {
                    tells.store(true, SeqCst);
                    wait_until("it goes on", || waits.load(SeqCst));
                };
                arm("sync.attach.claimed", Action::Call(Arc::new(hold)), 1);
                drop(attach(path, Access::ReadOnly));
            });
            wait_until("a program stands still", || stands.load(SeqCst));
            std::fs::write(path.join("dies"), "").unwrap();
            wait_until("the other one is dead", || !child.is_running());
            // They wait as long as the repair: by the second time it has failed once.
            for _ in 0..2 {
                assert!(attach(path, Access::ReadOnly).is_none());
            }
            let stats = durability.stats();
            goes_on.store(true, SeqCst);
            assert_eq!(stats.state, GateState::Open, "{}", stats.why);
        });
        served.put(b"behind", b"value").unwrap();
        durability.sync().unwrap();
        assert!(served.contains(b"before").unwrap() && !served.contains(b"dying").unwrap());
    }
}

/// Entries after a change that another program does not finish are in no file, and the end of the
/// server does not claim that they are.
#[test]
fn an_end_beside_a_program_that_stands_still_says_what_is_not_durable() {
    use mneme_sys::fault::{Action, arm};
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    for mode in BOTH {
        let place = Place::new("durable-end-still");
        let path = place.dir.path();
        let (served, durability) = serve(path, mode);
        served.put(b"before", b"0").unwrap();
        let (stands, goes_on) = (AtomicBool::new(false), AtomicBool::new(false));
        let (stands, goes_on) = (Arc::new(stands), Arc::new(goes_on));
        std::thread::scope(|scope| {
            let (tells, waits) = (Arc::clone(&stands), Arc::clone(&goes_on));
            let within = &served;
            scope.spawn(move || {
                let hold = move || {
                    tells.store(true, SeqCst);
                    wait_until("it goes on", || waits.load(SeqCst));
                };
                arm("log.feed.filled", Action::Call(Arc::new(hold)), 1);
                within.put(b"within", b"1").unwrap();
            });
            wait_until("it stands still", || stands.load(SeqCst));
            served.put(b"behind", b"2").unwrap();
            let closed = durability.close();
            goes_on.store(true, SeqCst);
            let refused = closed.unwrap_err().to_string();
            assert!(refused.contains("stands still"), "{mode}: {refused}");
        });
    }
}

/// Deaths at the fault points of opening, recovering and checkpoints.
mod points {
    use mneme_sys::fault::{Action, arm};
    use mneme_testkit::is_killed;

    use super::*;

    const TEST: &str = "kills::points::a_death_at_any_point_takes_nothing";
    const POINTS: [&str; 11] = [
        "durable.serve.loading",
        "durable.recover.chunk",
        "durable.serve.loaded",
        "durable.serve.named",
        "durable.serve.noted",
        "durable.serve.begun",
        "durable.serve.confirmed",
        "durable.base.begun",
        "durable.base.written",
        "durable.base.published",
        "durable.base.removed",
    ];

    /// Of a store that is kept as a tree.
    const TREE: [&str; 8] = [
        "durable.serve.loading",
        "durable.recover.tree",
        "durable.serve.loaded",
        "durable.serve.named",
        "durable.serve.noted",
        "durable.serve.begun",
        "durable.serve.confirmed",
        "durable.tree.committed",
    ];

    fn die(path: &Path, point: &str) {
        arm(point, Action::Kill, 1);
        let (store, durability) = serve(path, mode_of_child());
        for i in 0..5 {
            store.put(b"dying", &[i]).unwrap();
        }
        store.remove(b"dying").unwrap();
        durability.checkpoint_and_wait().unwrap();
    }

    #[test]
    fn a_death_at_any_point_takes_nothing() {
        if let Ok(point) = std::env::var("MNEME_DURABLE_POINT") {
            return die(std::env::var(CHILD).unwrap().as_ref(), &point);
        }
        let marked = mneme_sys::fault::named_in("src").unwrap();
        let known = |name: &String| {
            POINTS.contains(&name.as_str())
                || TREE.contains(&name.as_str())
                || name.starts_with("durable.pump.")
                || name.starts_with("durable.restore.")
                || name.starts_with("durable.build.")
                || name.starts_with("durable.salvage.")
        };
        // The pump dies at random; a restore, and the building of a tree, are crashed at every
        // operation; `served` has the deaths for rings.
        let missing: Vec<_> = marked.iter().filter(|name| !known(name)).collect();
        assert!(missing.is_empty(), "{missing:?} kill nobody");
        deaths(DurabilityMode::Journal, &POINTS);
        deaths(DurabilityMode::Tree, &TREE);
    }

    fn deaths(mode: DurabilityMode, points: &[&str]) {
        let place = Place::of("durable-points", mode);
        let dir = &place.dir;
        let (store, durability) = serve(dir.path(), mode);
        for i in 0..200 {
            change(&store, i).unwrap();
        }
        store.remove(b"dying").unwrap();
        let before = contents(&store);
        durability.close().unwrap();
        drop(store);
        for (i, point) in points.iter().enumerate() {
            let registry = Registry::open(dir.path().join("registry")).unwrap();
            if i < 4 || i % 2 == 1 {
                // The process that dies rebuilds the store.
                registry.remove_segment("s").unwrap();
            }
            let path = dir.path().to_str().unwrap();
            let form = mode.to_string();
            let variables = [(CHILD, path), (MODE, &form), ("MNEME_DURABLE_POINT", point)];
            assert!(is_killed(TEST, variables), "{point} is not reached");
            for rebuilt in [false, true] {
                if rebuilt {
                    wait_until("the segment is nobody's", || {
                        registry.remove_segment("s").is_ok()
                    });
                }
                let (store, durability) = serve(dir.path(), mode);
                store.remove(b"dying").unwrap();
                let mut found = contents(&store);
                found.retain(|(_, key), _| key != b"dying");
                assert_eq!(found, before, "{point}");
                durability.close().unwrap();
            }
        }
    }
}
