//! A server is killed repeatedly while clients and local programs write. Each time the next server
//! has everything that was acknowledged, and each transaction completely or not at all.
//!
//! Ten kills; with `MNEME_LADDER_SECS`, as many as that time allows, or until `MNEME_LADDER_KILLS`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::Registry;
use common::serving::{self, Serving};
use mneme_collections::{CollectionError, LARGE_SORTED_SET, SortedSet, check_while};
use mneme_log::WriteError;
use mneme_shared::SharedStore;
use mneme_testkit::{retry_within, setting, wait_until};

/// The number of keys of each writer.
const KEYS: u64 = 50;
const CLIENTS: usize = 2;
/// The number of clients that store under two keys at once.
const PAIRING: usize = 2;
const LOCALS: usize = 2;
/// The number of writers whose values are scores in one sorted set; the first is a client, and the
/// other a local program.
const SCORING: usize = 2;
const WRITERS: usize = CLIENTS + PAIRING + LOCALS + SCORING;
/// The sorted set's key.
const BOARD: &[u8] = b"board";
const MINUTE: Duration = Duration::from_secs(60);

/// For each key, what a writer has stored last and what it is storing: no other value may be found.
#[derive(Default)]
struct Ledger {
    acknowledged: Vec<AtomicU64>,
    begun: Vec<AtomicU64>,
}

impl Ledger {
    fn new() -> Self {
        let zeros = || (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        Self {
            acknowledged: zeros(),
            begun: zeros(),
        }
    }

    fn key(writer: usize, key: u64) -> String {
        format!("{writer}:{key}")
    }

    /// The value identifies its writer, and its length depends on its number.
    fn value(writer: usize, key: u64, number: u64) -> String {
        let padding = "x".repeat((number * 37 % 900) as usize);
        format!("{writer}:{key}={number};{padding}")
    }

    fn begin(&self, number: u64) -> u64 {
        let key = number % KEYS;
        self.begun[key as usize].store(number, Ordering::SeqCst);
        key
    }

    fn acknowledge(&self, number: u64) {
        self.acknowledged[(number % KEYS) as usize].store(number, Ordering::SeqCst);
    }

    /// The number of acknowledged values.
    fn most(&self) -> u64 {
        let numbers = self.acknowledged.iter();
        let most = numbers.map(|one| one.load(Ordering::SeqCst)).max();
        most.unwrap_or(0)
    }

    /// The number of a value.
    fn number(value: &str) -> u64 {
        let number = value.split_once('=').unwrap().1.split_once(';').unwrap().0;
        number.parse().unwrap()
    }

    /// Whether this may be the value of a key. The writer is paused or continues meanwhile.
    fn check(&self, writer: usize, key: u64, acknowledged: u64, found: Option<&[u8]>) {
        let number = found.map(|found| {
            let text = std::str::from_utf8(found).unwrap();
            let number = Self::number(text);
            assert_eq!(text, Self::value(writer, key, number), "torn or another's");
            number
        });
        self.check_number(writer, key, acknowledged, number);
    }

    /// Whether this may be the number of the value of a key.
    fn check_number(&self, writer: usize, key: u64, acknowledged: u64, number: Option<u64>) {
        let begun = self.begun[key as usize].load(Ordering::SeqCst);
        let Some(number) = number else {
            assert_eq!(acknowledged, 0, "{writer}:{key} is gone");
            return;
        };
        let range = acknowledged..=begun;
        assert!(
            range.contains(&number),
            "{writer}:{key}: {number} is not in {range:?}"
        );
    }
}

/// How a client stores a value: the command, and the expected reply.
type Stores = fn(name: &str, value: &str) -> (String, &'static str);

fn set(name: &str, value: &str) -> (String, &'static str) {
    (format!("SET {name} {value}\r\n"), "+OK\r\n")
}

/// Also stores it under the twin of the key, in a transaction or by one command.
fn set_pair(name: &str, value: &str) -> (String, &'static str) {
    let twin = twin(name);
    if value.len().is_multiple_of(2) {
        return (format!("MSET {name} {value} {twin} {value}\r\n"), "+OK\r\n");
    }
    (
        format!("MULTI\r\nSET {name} {value}\r\nSET {twin} {value}\r\nEXEC\r\n"),
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n",
    )
}

/// Stores the value's number as the score of a member. It is a new one, has another score, or is
/// stored once more.
fn set_score(name: &str, value: &str) -> (String, &'static str) {
    let (member, score) = (member(name), Ledger::number(value));
    (format!("ZADD board CH {score} {member}\r\n"), ":?\r\n")
}

/// So long that the set is a large one.
fn member(name: &str) -> String {
    format!("{name:m<100}")
}

fn twin(name: &str) -> String {
    format!("{name}:twin")
}

/// A client that stores one value after another, with whichever server is running.
fn client(port: u16, writer: usize, stores: Stores, ledger: &Ledger, stop: &AtomicBool) {
    let mut connection: Option<TcpStream> = None;
    let mut number = 1;
    while !stop.load(Ordering::SeqCst) {
        let Some(stream) = connection.as_mut() else {
            // Refused until the next server listens.
            connection = TcpStream::connect(("127.0.0.1", port)).ok();
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let key = ledger.begin(number);
        let (name, value) = (Ledger::key(writer, key), Ledger::value(writer, key, number));
        let (request, expected) = stores(&name, &value);
        let mut reply = vec![0; expected.len()];
        let stored = stream
            .write_all(request.as_bytes())
            .and_then(|()| stream.read_exact(&mut reply));
        match stored {
            Ok(()) => {
                let same = |(one, other): (&u8, u8)| *one == other || other == b'?';
                let is_expected = reply.iter().zip(expected.bytes()).all(same);
                assert!(is_expected, "{}", String::from_utf8_lossy(&reply));
                ledger.acknowledge(number);
                number += 1;
            }
            // It is unknown whether the value was stored, so it is stored again.
            Err(_) => connection = None,
        }
    }
}

/// A local program that does the same on the store itself.
fn local(store: &SharedStore, writer: usize, ledger: &Ledger, stop: &AtomicBool) {
    let mut number = 1;
    while !stop.load(Ordering::SeqCst) {
        let key = ledger.begin(number);
        let (name, value) = (Ledger::key(writer, key), Ledger::value(writer, key, number));
        let stored = if is_scoring(writer) {
            let board = SortedSet::of(store, BOARD).unwrap();
            board.set(member(&name).as_bytes(), number as f64).map(drop)
        } else {
            let stored = store.put(name.as_bytes(), value.as_bytes());
            stored.map_err(CollectionError::from)
        };
        match stored {
            Ok(()) => {
                ledger.acknowledge(number);
                number += 1;
            }
            // A thread that holds the key's bucket was not scheduled for a second.
            Err(CollectionError::Store(WriteError::Stalled(_))) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_server_that_is_killed_loses_nothing_that_it_acknowledged() {
    let seconds = setting("MNEME_LADDER_SECS").map(Duration::from_secs);
    let most = if seconds.is_some() { u64::MAX } else { 10 };
    let kills = setting("MNEME_LADDER_KILLS").unwrap_or(most);
    let begun = Instant::now();
    let mut killed = 0;
    let registry = Registry::new("segment", "storm");
    let port = port();
    let serve = || {
        let port = port.to_string();
        let mut command = serving::command(&["--port", &port, "--memory", "64mb"]);
        command.env("MNEME_DIR", &registry.root);
        Serving::start(command)
    };
    let mut serving = Some(serve());
    let place = mneme_space::Registry::open(&registry.root).unwrap();
    let store = SharedStore::attach_writable(&place, "default").unwrap();
    let reader = SharedStore::attach(&place, "default").unwrap();
    let ledgers: Vec<Ledger> = (0..WRITERS).map(|_| Ledger::new()).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (writer, ledger) in ledgers.iter().enumerate() {
            let (stop, store) = (&stop, &store);
            scope.spawn(move || match writer {
                0..CLIENTS => client(port, writer, set, ledger, stop),
                _ if is_pairing(writer) => client(port, writer, set_pair, ledger, stop),
                _ if writer == WRITERS - SCORING => client(port, writer, set_score, ledger, stop),
                _ => local(store, writer, ledger, stop),
            });
        }
        // If anything fails, the writers end too.
        let _stop = StopAtTheEnd(&stop);
        while killed < kills && seconds.is_none_or(|seconds| begun.elapsed() < seconds) {
            std::thread::sleep(Duration::from_millis(20 + killed * 7919 % 80));
            // The next server can use the port only when this one is gone.
            let last = serving.take().unwrap();
            last.signal("-KILL");
            last.end();
            serving = Some(serve());
            killed += 1;
            for (writer, ledger) in ledgers.iter().enumerate() {
                for key in 0..KEYS {
                    let acknowledged = ledger.acknowledged[key as usize].load(Ordering::SeqCst);
                    let name = Ledger::key(writer, key);
                    // A thread that holds the key's bucket may not be scheduled for long.
                    if is_scoring(writer) {
                        let board = SortedSet::of(&reader, BOARD).unwrap();
                        let score = || board.score(member(&name).as_bytes());
                        let score = retry_within(MINUTE, score).map(|score| score as u64);
                        ledger.check_number(writer, key, acknowledged, score);
                        continue;
                    }
                    let found = retry_within(MINUTE, || reader.get(name.as_bytes()));
                    ledger.check(writer, key, acknowledged, found.as_deref());
                    if is_pairing(writer) {
                        let pair = || {
                            store.transaction(|t| {
                                Ok::<_, WriteError>([
                                    t.get(name.as_bytes())?,
                                    t.get(twin(&name).as_bytes())?,
                                ])
                            })
                        };
                        let [one, other] = retry_within(MINUTE, pair);
                        assert!(one == other, "half of a transaction: {name}");
                    }
                }
            }
        }
        let all_came_far = || ledgers.iter().all(|ledger| ledger.most() > KEYS);
        wait_until("each writer has stored under all its keys", all_came_far);
    });
    let stored: u64 = ledgers.iter().map(Ledger::most).sum();
    println!("{killed} kills, {stored} values stored");
    let report = store.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
    let strings = KEYS * (WRITERS - SCORING + PAIRING) as u64;
    assert_eq!(report.records, strings + 1);
    assert_eq!(store.kind(BOARD).unwrap(), Some(LARGE_SORTED_SET));
    let board = SortedSet::of(&store, BOARD).unwrap();
    assert_eq!(board.len().unwrap(), KEYS * SCORING as u64);
    assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
    // The server, and the two openings of this process.
    store.reap().unwrap();
    assert_eq!(store.processes().len(), 3);
    drop((store, reader));
}

/// Whether this writer stores under two keys at once.
fn is_pairing(writer: usize) -> bool {
    (CLIENTS..CLIENTS + PAIRING).contains(&writer)
}

/// Whether this writer's values are scores.
fn is_scoring(writer: usize) -> bool {
    writer >= WRITERS - SCORING
}

/// A free port, which every server of the test uses. It is outside the range that the kernel gives
/// to clients: while no server listens, a client with that port would connect to itself.
fn port() -> u16 {
    let mine = 20_000 + std::process::id() as u16 % 10_000;
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (mine..).find(free).unwrap()
}

struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
