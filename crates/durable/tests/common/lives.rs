//! Lives that are crashed, intact and with a step left out.

use std::sync::Arc;

use mneme_durable::DurabilityMode::{self, Journal, Tree};
use mneme_durable::{DurableOptions, GateState};
use mneme_journal::{Identity, Options, Position, Reader, repair};
use mneme_sys::ManualClock;
use mneme_sys::medium::{Directory, DirectoryStates, RecordingDirectory};
use mneme_testkit::Random;

use super::life::{Life, contents, open, open_at};

/// A few groups.
pub fn short(mode: DurabilityMode) -> Life {
    let mut life = Life::new(mode, 3);
    for _ in 0..4 {
        for _ in 0..3 {
            life.change();
        }
        life.sync();
    }
    life.change();
    life.step();
    life
}

/// Groups, some of them after a restart.
pub fn writes_survive(mode: DurabilityMode) {
    let mut life = Life::new(mode, 2);
    for round in 0..8 {
        for _ in 0..4 {
            life.change();
        }
        if round % 3 == 2 {
            life.clear_all();
        }
        match round {
            3 | 6 => life.reopen(),
            5 => life.stepped().step(),
            _ => life.sync(),
        }
    }
    life.crash(80, 2).holds(40);
}

/// Groups of changes, and what is acknowledged before they end.
pub fn groups_survive(mode: DurabilityMode) {
    let mut life = Life::new(mode, 14);
    for _ in 0..8 {
        life.change();
        life.change_together();
    }
    life.sync();
    life.crash(80, 14).holds(40);
}

/// Checkpoints and backups beside writers; changes happen during the scan.
pub fn checkpoints_survive(mode: DurabilityMode) {
    let mut life = Life::new(mode, 3);
    for round in 0..4 {
        for _ in 0..6 {
            life.change();
        }
        life.sync();
        life.change();
        // Backups are the only base files of a tree.
        let kept = (round == 2 || mode == Tree).then_some("kept");
        life.stepped().begin_base(kept).unwrap();
        life.change();
        // Until the scan has seen changes that are not durable yet.
        while life.stepped().step_base().unwrap().is_none() {
            life.change();
            if life.random.below(2) == 0 {
                life.step();
            }
        }
        life.step();
        life.change();
        if round == 1 {
            life.reopen();
        }
    }
    life.sync();
    life.crash(100, 3).holds(50);
}

/// Syncs that fail and lose pages, once and permanently.
pub fn failed_syncs_survive(mode: DurabilityMode) {
    for (nth, keep, more) in [(1, 0, 0), (2, 2, 0), (3, 0, 6)] {
        let mut life = Life::new(mode, nth);
        life.change();
        life.sync();
        life.directory.fail_sync(nth, keep, more);
        for _ in 0..4 {
            life.change_something();
            life.sync();
        }
        let failed = life.store().gate().state() == GateState::Failed;
        // A tree accepts no more changes; a journal begins another file.
        assert_eq!(failed, more > 0 || mode == Tree, "{}", life.store().why());
        life.directory.fail_sync(u64::MAX, 0, 0);
        life.reopen();
        life.change();
        life.sync();
        life.crash(24, nth).holds(10);
    }
}

/// A sync that fails although an earlier sync, of a file that was full, covered a part of it.
pub fn failed_sync_behind_a_full_file_survives() {
    let mut life = Life::new(Journal, 12);
    life.change();
    life.sync();
    for i in 0..10u8 {
        life.store().put(&[i], &[9; 40_000]).unwrap();
        life.note();
    }
    life.step();
    let appended = life.store().gate();
    assert!(appended.durable() < appended.tail());
    life.directory.fail_sync(1, 0, 0);
    for _ in 0..4 {
        life.step();
    }
    life.sync();
    let gate = life.store().gate();
    assert_eq!(gate.state(), GateState::Open, "{}", life.store().why());
    assert_eq!(gate.durable(), gate.tail());
    life.crash(24, 5).holds(10);
}

/// A disk that fills up, and has space again later.
pub fn full_disk_survives(mode: DurabilityMode) {
    let mut life = Life::new(mode, 6);
    life.change();
    life.sync();
    let used: usize = life.directory.files().values().map(Vec::len).sum();
    life.directory.limit(Some(used as u64));
    // More than fits the present file.
    let is_full = |life: &Life| matches!(life.store().gate().state(), GateState::RefusesWrites(_));
    for i in 0..100u8 {
        if i >= 16 && is_full(&life) {
            break;
        }
        life.store().put(&[b'l', i], &[9; 40_000]).unwrap();
        for _ in 0..3 {
            life.step();
        }
    }
    assert!(is_full(&life));
    life.directory.limit(None);
    life.change();
    let mut steps = 0;
    while life.store().gate().state() != GateState::Open {
        life.step();
        steps += 1;
        assert!(steps < 1000, "{}", life.store().why());
    }
    life.sync();
    let before = contents(life.store());
    life.store = None;
    assert_eq!(contents(&open(mode, &life.directory).unwrap()), before);
}

/// A repair cuts the journal before the position up to which a base file has read: that file no
/// longer counts.
pub fn repairs_survive() {
    let mut life = Life::new(Journal, 8);
    for _ in 0..20 {
        life.change();
    }
    life.sync();
    life.stepped().begin_base(None).unwrap();
    let begin = life.store().gate().durable();
    for _ in 0..3 {
        life.store().put(b"seen", b"by the scan").unwrap();
        life.note();
        life.change();
        life.stepped().sync();
    }
    while life.stepped().step_base().unwrap().is_none() {}
    life.sync();
    life.store = None;
    let directory = damaged(&life.directory, begin);
    let options = Options {
        file_bytes: 256 << 10,
        ..Options::new(identity(&directory))
    };
    repair(
        &(Arc::new(directory.clone()) as Arc<dyn Directory>),
        options,
        None,
    )
    .unwrap();
    // The journal is intact from its beginning.
    life.verify(&directory, 0).unwrap();
}

/// A restore of a backup whose journal no longer exists.
pub fn restores_survive(mode: DurabilityMode) {
    let mut life = Life::new(mode, 10);
    for _ in 0..10 {
        life.change();
    }
    life.sync();
    let begun = contents(life.store());
    life.stepped().begin_base(Some("kept")).unwrap();
    life.change();
    life.stepped().sync();
    while life.stepped().step_base().unwrap().is_none() {}
    let kept = match mode {
        Journal => contents(life.store()),
        // One commit, whatever is written meanwhile.
        Tree => begun,
    };
    // Two files later, no part of the journal that belongs to the backup is left.
    for _ in 0..if mode == Tree { 0 } else { 2 } {
        for _ in 0..12 {
            life.store().put(b"large", &[9; 40_000]).unwrap();
            life.stepped().sync();
        }
        life.stepped().begin_base(None).unwrap();
        while life.stepped().step_base().unwrap().is_none() {}
        life.step();
    }
    // A random change may change nothing.
    life.store().put(b"last", b"change").unwrap();
    life.note();
    life.stepped().sync();
    let last = contents(life.store());
    assert!(last != kept);
    life.store = None;
    let directory = RecordingDirectory::with_files(life.directory.files());
    let options = DurableOptions::on(directory.clone()).mode(mode);
    options
        .file_bytes(256 << 10)
        .reserve(0)
        .restore("kept")
        .unwrap();
    let trace = directory.trace();
    let (mut states, mut random) = (DirectoryStates::new(&trace), Random::new(4));
    let (mut before, mut after) = (0, 0);
    loop {
        let state = states.sample(|| random.next());
        let crashed = RecordingDirectory::crashed(&states, &state);
        let found = contents(&open(mode, &crashed).unwrap());
        assert!(found == last || found == kept, "after {}", states.at());
        before += usize::from(found == last);
        after += usize::from(found == kept);
        if !states.advance() {
            break;
        }
    }
    assert!(before > 0 && after > 0, "{before} before, {after} after");
    let mut store = open(mode, &directory).unwrap();
    assert_eq!(contents(&store), kept);
    store.put(b"new", b"value").unwrap();
    store.sync();
    let found = contents(&store);
    drop(store);
    assert_eq!(contents(&open(mode, &directory).unwrap()), found);
}

fn identity(directory: &RecordingDirectory) -> Identity {
    let nowhere = Position::new(0);
    let reader = Reader::between(directory, nowhere, nowhere).unwrap();
    reader.identity().unwrap()
}

/// The files, with a damaged frame that begins at `from` or soon after it.
fn damaged(directory: &RecordingDirectory, from: u64) -> RecordingDirectory {
    let mut files = directory.files();
    let journals = files
        .iter_mut()
        .filter(|(name, _)| name.ends_with(".journal"));
    for (_, bytes) in journals {
        for block in bytes.chunks_mut(4096) {
            let position = u64::from_le_bytes(block[16..24].try_into().unwrap());
            if block.starts_with(b"MnFr") && position >= from && block[8] != 0 {
                block[41] ^= 1;
                return RecordingDirectory::with_files(files);
            }
        }
    }
    panic!("no frame behind {from}");
}

/// Clocks that jump: nothing expires while a store is rebuilt, and expired records stay absent.
pub fn clocks_that_jump_survive(mode: DurabilityMode) {
    let mut life = Life::new(mode, 9);
    let put = |life: &Life, key: &[u8]| {
        let expiry = mneme_log::Expiry::At(5000);
        life.store().put_until(key, b"value", expiry).unwrap();
    };
    put(&life, b"kept");
    life.store()
        .set_expiry(b"kept", mneme_log::Expiry::Never)
        .unwrap();
    put(&life, b"gone");
    life.stepped().sync();
    life.clock.set_wall_ms(6000);
    life.store().put(b"later", b"value").unwrap();
    life.stepped().sync();
    life.store = None;
    for now in [10_000, 0] {
        let clock = Arc::new(ManualClock::new(0, now));
        let store = open_at(mode, &life.directory, clock).unwrap();
        assert!(store.contains(b"kept").unwrap(), "at {now}");
        assert!(!store.contains(b"gone").unwrap(), "at {now}");
    }
}

/// A clock that was ahead for a while, and was set back before the power was lost.
pub fn clocks_that_come_back_survive(mode: DurabilityMode) {
    let mut life = Life::new(mode, 13);
    let expiry = mneme_log::Expiry::At(5000);
    life.store().put_until(b"kept", b"value", expiry).unwrap();
    life.stepped().sync();
    life.clock.set_wall_ms(6000);
    life.store().put(b"ahead", b"value").unwrap();
    life.stepped().sync();
    life.clock.set_wall_ms(2000);
    life.store().put(b"back", b"value").unwrap();
    life.stepped().sync();
    assert!(life.store().contains(b"kept").unwrap());
    life.store = None;
    // The second opening finds what the first has written while the machine's clock was not set.
    for now in [0, 0, 3000] {
        let store = open_at(mode, &life.directory, Arc::new(ManualClock::new(0, now))).unwrap();
        assert!(store.contains(b"kept").unwrap(), "at {now}");
        let early = mneme_log::Expiry::At(1500);
        store.put_until(b"early", b"value", early).unwrap();
        assert!(!store.contains(b"early").unwrap(), "at {now}");
    }
}

/// Random lives, until at least `least` states were opened and `seconds` have passed.
pub fn drawn_survive(mode: DurabilityMode, seconds: u64, least: usize) {
    let begun = std::time::Instant::now();
    let mut random = Random::of_run(19);
    let (mut lives, mut states, mut opened) = (0, 0, 0);
    loop {
        let mut life = Life::new(mode, random.next());
        let is_filled = random.below(2) == 0;
        if is_filled {
            life.fill();
        }
        for _ in 0..12 + random.below(30) {
            match life.random.below(12) {
                8 | 9 if is_filled => life.change_collection(),
                0 => life.reopen(),
                1 | 2 => life.sync(),
                3 => life.stepped().step(),
                4 => {
                    let kept = (mode == Tree).then_some("kept");
                    let _ = life.stepped().begin_base(kept);
                }
                5 | 6 => drop(life.stepped().step_base().unwrap()),
                7 if life.random.below(2) == 0 => life.change_in_pieces(),
                7 => life.change_together(),
                _ => life.change(),
            }
        }
        life.sync();
        // A life costs as much as many states.
        let outcome = life.crash(200, random.next());
        outcome.holds(50);
        (lives, states) = (lives + 1, states + outcome.states);
        opened += outcome.opened;
        if states >= least && begun.elapsed().as_secs() >= seconds {
            println!("{states} states of {lives} lives, {opened} of them opened, {mode}");
            return;
        }
    }
}
