//! A server and local programs that use its segment: the server counts the changes that these
//! programs make, or reports that it has missed some. It also counts its failed starts.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Client, Reply, encode, info, server};
use mneme_collections::{End, Hash, List, Set, SortedSet};
use mneme_log::{Decision, Expiry};
use mneme_server::{Opening, Running, Server, StoreOrigin};
use mneme_shared::{Access, Found, Registry, Segment, SharedStore, StoreOptions};
use mneme_sys::{Clock, ManualClock, SystemClock};
use mneme_testkit::{Process, TestDir};

/// The registry of a test, removed at the end.
struct Place(TestDir);

impl Place {
    fn new(test: &str) -> Place {
        Place(TestDir::new(test))
    }

    fn registry(&self) -> Registry {
        Registry::open(&self.0).unwrap()
    }

    fn serve(&self) -> Running {
        self.serve_as(server())
    }

    fn serve_as(&self, server: Server) -> Running {
        let opening = Opening {
            options: options(),
            ..Opening::default()
        };
        let server = server.segment(self.registry(), "beside", opening);
        server.start().unwrap()
    }

    /// Attaches the store like a program that keeps references to values.
    fn attach_lending(&self) -> SharedStore {
        let options = options().maintainer(false).lending(true);
        let attached = options.attach(&self.registry(), "beside", Access::ReadWrite);
        attached.unwrap()
    }

    fn attach(&self) -> SharedStore {
        let options = options().maintainer(false);
        let attached = options.attach(&self.registry(), "beside", Access::ReadWrite);
        attached.unwrap()
    }
}

fn options() -> StoreOptions {
    StoreOptions::new().capacity(64 << 20)
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.registry().remove_segment("beside");
    }
}

/// The server's counts, and how often it has missed changes.
fn counted<const N: usize>(client: &mut Client, names: [&str; N]) -> ([u64; N], u64) {
    let info = client.command(&["INFO", "segment"]).text();
    let field = |name: &str| {
        let start = format!("mneme_local_{name}:");
        let line = info.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap().parse().unwrap()
    };
    (names.map(field), field("changes_lost"))
}

#[test]
fn changes_by_local_programs_are_counted() {
    const KINDS: [&str; 2] = ["stored", "removed"];
    let place = Place::new("both");
    let running = place.serve();
    let address = running.addresses()[0];
    let mut client = Client::connect(address);
    assert_eq!(counted(&mut client, KINDS), ([0, 0], 0));
    std::thread::scope(|scope| {
        for local in 0..2 {
            let place = &place;
            scope.spawn(move || {
                let (store, mut asker) = (place.attach(), Client::connect(address));
                for i in 0..5_000u32 {
                    let key = format!("local-{local}-{i}");
                    store.put(key.as_bytes(), b"v").unwrap();
                    if i % 2 == 0 {
                        assert!(store.remove(key.as_bytes()).unwrap());
                    }
                    if i % 500 == 0 {
                        // Before it replies, it has received all changes made before.
                        counted(&mut asker, KINDS);
                    }
                }
            });
        }
        // Changes by clients are not counted.
        for i in 0..2_000 {
            client.command(&["SET", &format!("client-{i}"), "v"]);
            client.command(&["DEL", &format!("client-{}", i / 2)]);
        }
    });
    let (counts, lost) = counted(&mut client, KINDS);
    assert!(counts == [10_000, 5_000] || lost > 0, "{counts:?}");
    assert!(counts[0] <= 10_000 && counts[1] <= 5_000, "{counts:?}");
    client.command(&["CONFIG", "RESETSTAT"]);
    assert_eq!(counted(&mut client, KINDS), ([0, 0], 0));
}

#[test]
fn a_client_is_notified_of_a_key_that_it_tracks_and_a_local_program_changes() {
    let place = Place::new("tracked");
    let running = place.serve();
    let mut client = crate::tracking::tracking(running.addresses()[0], "ON");
    let store = place.attach();
    for key in ["a", "l"] {
        client.line(&format!("EXISTS {key}"));
    }
    store.put(b"a", b"v").unwrap();
    assert_eq!(client.reply(), crate::tracking::invalidated("a"));
    List::of(&store, b"l")
        .unwrap()
        .push(End::Back, &[b"item"])
        .unwrap();
    assert_eq!(client.reply(), crate::tracking::invalidated("l"));
    client.line("GET a");
    store.remove(b"a").unwrap();
    assert_eq!(client.reply(), crate::tracking::invalidated("a"));
}

/// Sets a flag when it is dropped, also by a test that fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each change takes the server longer to report than a local program to make.
#[test]
fn a_command_that_finds_a_key_expired_does_not_wait_for_local_programs() {
    let place = Place::new("flood");
    let running = place.serve();
    let address = running.addresses()[0];
    let mut client = Client::connect(address);
    client.line("CONFIG SET notify-keyspace-events KEA");
    let mut listener = Client::connect(address);
    for pattern in 0..2_000 {
        listener.line(&format!("PSUBSCRIBE pattern-{pattern}*"));
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        scope.spawn(|| {
            let store = place.attach();
            let mut number = 0u64;
            while !is_over.load(Ordering::Relaxed) {
                store.put(&number.to_le_bytes()[..1], b"v").unwrap();
                number += 1;
            }
        });
        for _ in 0..20 {
            client.line("SET expiring v PX 1");
            while client.line("GET expiring") != Reply::Null {}
        }
        drop(over);
    });
}

/// Strings, and the expiry and the end of any key.
#[test]
fn events_report_what_local_programs_do() {
    let place = Place::new("events");
    let running = place.serve();
    let address = running.addresses()[0];
    let mut client = Client::connect(address);
    let mut listener = crate::key_events::listener(address, "EA");
    let store = place.attach();
    let at = |ms| Expiry::At(store.wall_ms() + ms);
    let mut expect = |event: &str| assert_eq!(crate::key_events::event(&mut listener), event);
    store.put_until(b"a", b"v", at(1_000_000)).unwrap();
    expect("set a");
    assert!(store.set_expiry(b"a", at(2_000_000)).unwrap());
    expect("expire a");
    List::of(&store, b"l")
        .unwrap()
        .push(End::Back, &[b"item"])
        .unwrap();
    store.remove(b"a").unwrap();
    store.remove(b"l").unwrap();
    expect("rpush l");
    expect("del a");
    expect("del l");
    store.put_until(b"b", b"v", at(5)).unwrap();
    expect("set b");
    expect("expired b");
    // It is the server that has removed it, or the program: that is counted no other way.
    client.line("CONFIG SET notify-keyspace-events KA");
    assert_eq!(counted(&mut client, ["stored", "removed"]), ([4, 2], 0));
}

/// Each change of a collection is reported once, small or large, whether the feed is kept or not; a
/// client's by its command alone.
#[test]
fn events_report_what_local_programs_do_to_collections() {
    for is_kept in [false, true] {
        let place = Place::new("typed");
        let opening = Opening {
            options: options(),
            change_feed: Some(is_kept),
            ..Opening::default()
        };
        let server = server().segment(place.registry(), "beside", opening);
        let running = server.start().unwrap();
        let address = running.addresses()[0];
        let mut client = Client::connect(address);
        let mut listener = crate::key_events::listener(address, "EA");
        let store = place.attach();
        let mut expect = |event: &str| {
            let found = crate::key_events::event(&mut listener);
            assert_eq!(found, event, "kept: {is_kept}");
        };
        let hash = Hash::of(&store, b"hash").unwrap();
        let set = Set::of(&store, b"set").unwrap();
        let scores = SortedSet::of(&store, b"scores").unwrap();
        let list = List::of(&store, b"list").unwrap();
        for size in [3, 600] {
            let names: Vec<String> = (0..size).map(|number| format!("name {number}")).collect();
            let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
            let pairs: Vec<_> = names.iter().map(|name| (*name, *name)).collect();
            let scored: Vec<_> = names.iter().map(|name| (*name, 1.0)).collect();
            hash.set_many(&pairs).unwrap();
            expect("hset hash");
            set.add_many(&names).unwrap();
            expect("sadd set");
            scores.set_many(&scored).unwrap();
            expect("zadd scores");
            list.push(End::Back, &names).unwrap();
            expect("rpush list");

            hash.set(b"name 1", b"other").unwrap();
            expect("hset hash");
            client.line("HSET hash more 1");
            expect("hset hash");
            hash.remove(b"name 1").unwrap();
            expect("hdel hash");
            set.add(b"other").unwrap();
            expect("sadd set");
            set.remove(b"name 1").unwrap();
            expect("srem set");
            scores.set(b"name 1", 2.0).unwrap();
            expect("zadd scores");
            scores.remove(b"name 1").unwrap();
            expect("zrem scores");
            list.set(1, b"other").unwrap();
            expect("rpush list");
            list.push(End::Front, &[b"first"]).unwrap();
            expect("rpush list");
            list.pop(End::Back).unwrap();
            expect("lrem list");

            hash.change(|hash| {
                hash.set(b"one", b"1")?;
                hash.remove(b"name 2")?;
                Ok(())
            })
            .unwrap();
            // Of changes whose value is shorter the feed says the last.
            if (is_kept, size) != (true, 3) {
                expect("hset hash");
            }
            expect("hdel hash");
            client.line("DEL hash set scores list");
            for key in ["hash", "set", "scores", "list"] {
                expect(&format!("del {key}"));
            }
        }
        set.add(b"only").unwrap();
        expect("sadd set");
        set.remove(b"only").unwrap();
        expect("del set");
    }
}

/// A local program pushes items, and clients of the server that wait get them in their order.
#[test]
fn clients_that_wait_get_what_local_programs_push() {
    let place = Place::new("waiting");
    let running = place.serve_as(server().threads(2));
    let address = running.addresses()[0];
    let store = place.attach();
    let mut admin = Client::connect(address);
    let mut clients: Vec<Client> = (0..4u64)
        .map(|number| {
            let mut client = Client::connect(address);
            client.send(&encode(&["BLPOP", "none", "list", "0"]));
            while info(&mut admin, "blocked_clients") != number + 1 {}
            client
        })
        .collect();
    let list = List::of(&store, b"list").unwrap();
    for (number, client) in clients.iter_mut().enumerate() {
        list.push(End::Back, &[number.to_string().as_bytes()])
            .unwrap();
        let item = Reply::bulk(number.to_string());
        assert_eq!(
            client.reply(),
            Reply::Array(vec![Reply::bulk("list"), item])
        );
    }
    assert_eq!(info(&mut admin, "blocked_clients"), 0);
    // Of another type, so not for them.
    let mut client = Client::connect(address);
    client.send(&encode(&["BLPOP", "other", "0"]));
    while info(&mut admin, "blocked_clients") != 1 {}
    store.put(b"other", b"text").unwrap();
    store.remove(b"other").unwrap();
    List::of(&store, b"other")
        .unwrap()
        .push(End::Front, &[b"item"])
        .unwrap();
    let item = vec![Reply::bulk("other"), Reply::bulk("item")];
    assert_eq!(client.reply(), Reply::Array(item));
}

/// Clients whose changes find no space in the change feed wait; the other clients of their thread
/// are still served.
#[test]
fn a_full_change_feed_holds_up_changes_alone() {
    let place = Place::new("fed");
    let opening = Opening {
        options: options().maintainer(false),
        change_feed: Some(true),
        ..Opening::default()
    };
    let clock = Arc::new(ManualClock::new(1_000, 1_700_000_000_000));
    let server = server().threads(1).clock(clock.clone());
    let running = server.segment(place.registry(), "beside", opening);
    let running = running.start().unwrap();
    let address = running.addresses()[0];
    let (mut writer, mut reader) = (Client::connect(address), Client::connect(address));
    let store = place.attach();
    let mut feed = store.change_feed().unwrap();
    let value = "v".repeat(60_000);
    while store.has_feed_space() {
        assert_eq!(writer.command(&["SET", "k", &value]).text(), "OK");
    }
    // Nothing becomes durable, so these writes are refused in the end, but only after some time.
    writer.send(&encode(&["SET", "k", "refused"]));
    writer.send(&encode(&["MULTI"]));
    writer.send(&encode(&["DEL", "k"]));
    writer.send(&encode(&["EXEC"]));
    for _ in 0..100 {
        assert_eq!(reader.command(&["STRLEN", "k"]), Reply::Integer(60_000));
    }
    let full = "MISCONF Errors writing to the AOF file: the change feed is full, and what it holds does \
                not become durable";
    let answers = std::thread::scope(|scope| {
        let answers = scope.spawn(|| [(); 4].map(|()| writer.reply().text()));
        while !answers.is_finished() {
            clock.advance_ms(100);
            reader.command(&["STRLEN", "k"]);
        }
        answers.join().unwrap()
    });
    let discarded = format!("EXECABORT Transaction discarded because of: {full}");
    assert_eq!(answers, [full, "OK", "QUEUED", &discarded]);
    // Here changes become durable step by step, beginning before they are sent, so these are not
    // refused.
    let values: Vec<String> = (0..100).map(|i| format!("{i}{value}")).collect();
    let (mut bytes, mut answered) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| {
            for value in &values {
                writer.send(&encode(&["SET", "k", value]));
            }
            for _ in 0..100 {
                assert_eq!(writer.reply().text(), "OK");
                answered += 1;
            }
        });
        while !answers.is_finished() {
            bytes.clear();
            let drained = feed.drain(200_000, &mut bytes).unwrap();
            feed.set_durable(drained.end).unwrap();
            reader.command(&["GET", "k"]);
        }
        answers.join().unwrap();
    });
    assert_eq!(answered, 100);
    assert_eq!(reader.command(&["GET", "k"]).text(), values[99]);
}

/// One command of the transaction waits for space, without success. The following ones do not wait,
/// since all other clients wait with them.
#[test]
fn an_exec_that_runs_alone_waits_once_for_a_full_change_feed() {
    let place = Place::new("fed-exec");
    let opening = Opening {
        options: options().maintainer(false),
        change_feed: Some(true),
        ..Opening::default()
    };
    let running = server().segment(place.registry(), "beside", opening);
    let running = running.start().unwrap();
    let mut client = Client::connect(running.addresses()[0]);
    let store = place.attach();
    let value = "v".repeat(60_000);
    while store.has_feed_space() {
        assert_eq!(client.command(&["SET", "k", &value]).text(), "OK");
    }
    let mut feed = store.change_feed().unwrap();
    let mut bytes = Vec::new();
    while !store.has_feed_space() {
        let drained = feed.drain(60_000, &mut bytes).unwrap();
        feed.set_durable(drained.end).unwrap();
    }
    let fitting = feed.capacity() as usize / 4 / value.len();
    // From here on nothing becomes durable.
    drop(feed);
    client.command(&["MULTI"]);
    client.command(&["DBSIZE"]);
    for _ in 0..fitting + 300 {
        assert_eq!(client.command(&["SET", "k", &value]).text(), "QUEUED");
    }
    client.command(&["STRLEN", "k"]);
    let Reply::Array(replies) = client.command(&["EXEC"]) else {
        panic!("no array");
    };
    let first = [Reply::Integer(1), Reply::Simple("OK".into())];
    assert_eq!(replies[..2], first);
    let refused = replies
        .iter()
        .filter(|reply| matches!(reply, Reply::Error(_)));
    assert!(refused.count() > 200);
    assert_eq!(replies.last(), Some(&Reply::Integer(60_000)));
}

#[test]
fn missed_changes_are_reported_and_databases_are_counted() {
    const KINDS: [&str; 3] = ["stored", "database_changes", "expired"];
    let place = Place::new("missed");
    let running = place.serve();
    let mut client = Client::connect(running.addresses()[0]);
    let local = place.attach();
    local.database(1).unwrap().put(b"k", b"v").unwrap();
    local.database(1).unwrap().clear().unwrap();
    local.swap_databases(1, 2).unwrap();
    assert_eq!(counted(&mut client, KINDS), ([1, 2, 0], 0));
    // Whether or not the server's listener runs in between: changes that are not counted are
    // reported as missed.
    let pairs: Vec<_> = (0..100_000u32).map(|i| (i.to_le_bytes(), b"v")).collect();
    pairs
        .chunks(1_000)
        .for_each(|some| local.put_many(some).unwrap());
    let ([stored, ..], lost) = counted(&mut client, KINDS);
    assert!(stored == 100_001 || lost > 0, "{stored}");
    assert!((4_097..=100_001).contains(&stored), "{stored}");
    drop(running);
    // Stopping the server does not disturb local programs.
    local.put(b"unheard", b"v").unwrap();
    let again = place.serve();
    let mut client = Client::connect(again.addresses()[0]);
    assert_eq!(counted(&mut client, KINDS), ([0, 0, 0], 0));
    assert_eq!(client.command(&["GET", "unheard"]), Reply::bulk("v"));
}

#[test]
fn a_swap_that_waits_for_a_local_program_delays_no_other_client() {
    let place = Place::new("swap");
    // With one thread, a client that was kept waiting would be noticed.
    let running = place.serve_as(server().threads(1));
    let address = running.addresses()[0];
    let (mut swapper, mut other) = (Client::connect(address), Client::connect(address));
    other.command(&["SET", "key", "value"]);
    let local = place.attach_lending();
    let kept = local.get(b"key").unwrap().unwrap();
    swapper.send(&encode(&["SWAPDB", "0", "1"]));
    let mut served = 0;
    swapper.stream.get_ref().set_nonblocking(true).unwrap();
    let mut byte = [0];
    while swapper.stream.get_ref().peek(&mut byte).is_err() {
        assert_eq!(other.command(&["GET", "key"]), Reply::bulk("value"));
        served += 1;
    }
    // If it had been kept waiting, it would have been served once, at the end.
    assert!(served > 1, "{served} commands");
    swapper.stream.get_ref().set_nonblocking(false).unwrap();
    let Reply::Error(error) = swapper.reply() else {
        panic!("a value was kept");
    };
    let pid = std::process::id().to_string();
    assert!(error.starts_with("ERR ") && error.contains(&pid), "{error}");
    // In a pipeline after another command, which must not be executed twice; the swap succeeds in
    // the end.
    swapper.send(&[encode(&["INCR", "n"]), encode(&["SWAPDB", "0", "1"])].concat());
    assert_eq!(other.command(&["EXISTS", "key"]), Reply::Integer(1));
    drop(kept);
    assert_eq!(swapper.reply(), Reply::Integer(1));
    assert_eq!(swapper.reply(), Reply::ok());
    assert_eq!(swapper.command(&["EXISTS", "key", "n"]), Reply::Integer(0));
    // In a transaction the swap is tried once.
    let kept = local.database(1).unwrap().get(b"key").unwrap().unwrap();
    for line in [&["MULTI"][..], &["SWAPDB", "0", "1"], &["INCR", "n"]] {
        swapper.command(line);
    }
    let replies = swapper.command(&["EXEC"]);
    assert!(
        matches!(replies.items(), [Reply::Error(_), Reply::Integer(1)]),
        "{replies:?}"
    );
    drop(kept);
}

/// Longer than a swap is retried, in milliseconds.
const PAUSE_MS: u64 = 700;

#[test]
fn a_swap_that_is_paused_is_tried_as_long_after_the_pause() {
    let place = Place::new("paused");
    let running = place.serve_as(server().threads(1));
    let address = running.addresses()[0];
    let (mut swapper, mut other) = (Client::connect(address), Client::connect(address));
    let local = place.attach_lending();
    loop {
        other.command(&["SET", "key", "value"]);
        let kept = local.get(b"key").unwrap().unwrap();
        swapper.send(&encode(&["SWAPDB", "0", "1"]));
        while !other.line("CLIENT LIST").text().contains("cmd=swapdb") {}
        let began = Instant::now();
        other.line(&format!("CLIENT PAUSE {PAUSE_MS} WRITE"));
        std::thread::sleep(Duration::from_millis(PAUSE_MS));
        while info(&mut other, "blocked_clients") != 0 {}
        // There is one thread, so the swap has been tried by then.
        for _ in 0..3 {
            assert_eq!(other.command(&["GET", "key"]), Reply::bulk("value"));
        }
        drop(kept);
        let in_time = began.elapsed() < Duration::from_millis(PAUSE_MS + 400);
        let reply = swapper.reply();
        // If this test was not scheduled in time, the reply proves nothing.
        if in_time {
            assert_eq!(reply, Reply::ok());
            return;
        }
        swapper.line("PING");
    }
}

/// Tells the process that the next test starts its registry.
const REGISTRY: &str = "MNEME_TEST_LOCAL_WRITER";

/// The local program that the next test starts: it increments `n` until it is killed.
#[test]
fn counting_beside_the_server() {
    let Some(root) = std::env::var_os(REGISTRY) else {
        return;
    };
    let options = options().maintainer(false);
    let registry = Registry::open(root).unwrap();
    let store = options
        .attach(&registry, "beside", Access::ReadWrite)
        .unwrap();
    loop {
        let up = |old: Option<&[u8]>| {
            let old = old.map_or(0, |old| std::str::from_utf8(old).unwrap().parse().unwrap());
            Decision::Replace((old + 1_u64).to_string().into_bytes())
        };
        store.update(b"n", up).unwrap();
        store.update(b"of the program", up).unwrap();
    }
}

#[test]
fn no_write_of_a_local_program_slips_between_watch_and_exec() {
    const WANTED: u64 = 300;
    let place = Place::new("watch");
    let running = place.serve();
    let mut client = Client::connect(running.addresses()[0]);
    let number = |client: &mut Client, key: &str| match client.command(&["GET", key]) {
        Reply::Null => 0,
        reply => reply.text().parse::<u64>().unwrap(),
    };
    let counting = "locals::counting_beside_the_server";
    let process = Process::start(counting, [(REGISTRY, place.0.path())]);
    while number(&mut client, "of the program") == 0 {
        std::thread::yield_now();
    }
    let (mut counted, mut failed) = (0, 0);
    while counted < WANTED || failed == 0 {
        client.command(&["WATCH", "n"]);
        let next = (number(&mut client, "n") + 1).to_string();
        client.command(&["MULTI"]);
        client.command(&["SET", "n", &next]);
        client.command(&["INCR", "of the client"]);
        match client.command(&["EXEC"]) {
            Reply::Null => failed += 1,
            done => {
                assert_eq!(done.items()[0], Reply::ok());
                counted += 1;
            }
        }
    }
    drop(process);
    let by_client = number(&mut client, "of the client");
    assert_eq!(by_client, counted);
    // The program may have been killed between its two steps.
    let missing = number(&mut client, "n") - by_client - number(&mut client, "of the program");
    assert!(missing <= 1, "{missing} more than both have counted");
}

/// Panics in a thread that serves clients, as a damaged store may cause.
struct Trap(AtomicBool);

impl Clock for Trap {
    fn now_ns(&self) -> u64 {
        let thread = std::thread::current();
        let serves = (thread.name()).is_some_and(|name| name.starts_with("mneme-io"));
        assert!(!(serves && self.0.load(Ordering::SeqCst)), "trapped");
        SystemClock.now_ns()
    }

    fn wall_ms(&self) -> u64 {
        SystemClock.wall_ms()
    }
}

#[test]
fn a_start_that_ends_by_a_panic_has_failed_and_one_that_is_stopped_has_not() {
    let place = Place::new("panic");
    let trap = Arc::new(Trap(AtomicBool::new(false)));
    let start = || place.serve_as(server().clock(trap.clone()));
    let noted = || place.registry().note("beside", "starts").unwrap();
    // Stopped right at the beginning.
    drop(start());
    assert_eq!(noted(), None);
    for failed in ["1\n", "2\n", "3\n"] {
        trap.0.store(false, Ordering::SeqCst);
        let running = start();
        trap.0.store(true, Ordering::SeqCst);
        Client::connect(running.addresses()[0]).send(b"PING\r\n");
        assert!(running.join().is_err(), "a thread has panicked");
        assert_eq!(noted().as_deref(), Some(failed));
    }
    trap.0.store(false, Ordering::SeqCst);
    let running = start();
    let StoreOrigin::Segment { found, .. } = running.origin() else {
        panic!("it serves a segment");
    };
    assert_eq!(*found, Found::Checked);
    running.shutdown();
    running.join().unwrap();
    assert_eq!(noted(), None);
}

#[test]
fn attached_memory_in_use_counts_as_resident() {
    let place = Place::new("fragmentation");
    let running = place.serve();
    let mut client = Client::connect(running.addresses()[0]);
    for key in 0..3_500 {
        let stored = client.command(&["SET", &key.to_string(), &"x".repeat(10_000)]);
        assert_eq!(stored, Reply::ok());
    }
    drop(client);
    drop(running);
    let running = place.serve();
    let mut client = Client::connect(running.addresses()[0]);
    let text = client.line("INFO memory").text();
    let ratio = text
        .lines()
        .find_map(|line| line.strip_prefix("mem_fragmentation_ratio:"));
    let ratio: f64 = ratio.unwrap().parse().unwrap();
    assert!(ratio >= 1.0, "{text}");
}

/// The error for a record that cannot be read is the reply to its own command only, not to those
/// after it.
#[test]
fn a_read_that_fails_fails_alone_in_its_pipeline() {
    let place = Place::new("damaged");
    let running = place.serve();
    let mut client = Client::connect(running.addresses()[0]);
    for key in ["one", "a damaged record", "two"] {
        assert_eq!(client.command(&["SET", key, key]), Reply::ok());
    }
    let segment = Segment::open(&place.registry(), "beside").unwrap();
    damage(
        &segment.info().unwrap().data,
        b"a damaged recorda damaged record",
    );
    let keys = ["one", "a damaged record", "two", "one"];
    client.send(&keys.map(|key| encode(&["GET", key])).concat());
    let replies = keys.map(|_| client.reply());
    assert!(matches!(replies[1], Reply::Error(_)), "{replies:?}");
    for at in [0, 2, 3] {
        assert_eq!(replies[at], Reply::bulk(keys[at]), "{replies:?}");
    }
}

/// Overwrites the header of the record with these bytes.
fn damage(file: &Path, bytes: &[u8]) {
    let content = std::fs::read(file).unwrap();
    let found = content.windows(bytes.len()).position(|some| some == bytes);
    let file = File::options().write(true).open(file).unwrap();
    file.write_all_at(&[0xff; 8], found.unwrap() as u64 - 8)
        .unwrap();
}
