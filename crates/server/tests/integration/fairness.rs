//! Pipelines of slow commands beside other clients: a client waits at most for the command that is
//! being executed, not for all that others have sent.

use std::io::Write;
use std::net::SocketAddr;

use crate::common::{Client, Reply, encode, info, server, start};

/// The number of slow commands in a pipeline: fewer than the server parses at once.
const SLOW: usize = 1_000;

/// A client that has sent a pipeline of slow commands, the first of which has been executed.
fn slow_pipeline(address: SocketAddr, watcher: &mut Client) -> Client {
    assert_eq!(watcher.line("CONFIG RESETSTAT"), Reply::ok());
    let mut slow = Client::connect(address);
    slow.command(&[&b"SET"[..], b"large", &vec![b'x'; 8 << 20]]);
    slow.send(&encode(&["BITCOUNT", "large"]).repeat(SLOW));
    while executed(watcher) == 0 {
        std::thread::yield_now();
    }
    slow
}

/// The other client's command is answered before the last one of the pipeline is executed.
fn overtakes(address: SocketAddr, other: &mut Client, command: &str) {
    // On a busy machine the client itself may not be scheduled for as long as the pipeline takes,
    // so one success in 20 is enough: a server that made it wait for the pipeline would do so each
    // time.
    let is_overtaken = (0..20).any(|_| {
        let slow = slow_pipeline(address, other);
        for _ in 0..3 {
            other.line(command);
        }
        let executed = executed(other);
        await_the_rest(slow);
        executed < SLOW
    });
    assert!(is_overtaken, "{command} waited for the whole pipeline");
}

/// The number of slow commands executed so far.
fn executed(client: &mut Client) -> usize {
    let text = client.line("INFO commandstats").text();
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_bitcount:calls="));
    count.map_or(0, |count| count.split(',').next().unwrap().parse().unwrap())
}

/// The pipeline continues and is answered in order.
fn await_the_rest(mut slow: Client) {
    for _ in 0..SLOW {
        assert_eq!(slow.reply(), Reply::Integer(32 << 20));
    }
    slow.send(&encode(&["PING"]));
    assert_eq!(slow.reply(), Reply::Simple("PONG".into()));
}

#[test]
fn an_exclusive_command_waits_for_no_pipeline_of_another_thread() {
    for command in ["CLIENT KILL ID 1000000", "CLIENT PAUSE 0"] {
        let (_running, address) = start(server().threads(2));
        // The slow client is served by the thread that the other client does not use.
        let mut other = Client::connect(address);
        assert_eq!(other.line("PING"), Reply::Simple("PONG".into()));
        overtakes(address, &mut other, command);
    }
}

/// The number of slow commands in a transaction.
const LONG: usize = 400;

/// Whether a client's command is being executed or waits: its bytes are still in the buffer.
fn is_under_way(watcher: &mut Client, id: i64) -> bool {
    let list = watcher.line("CLIENT LIST").text();
    let line = (list.lines()).find(|line| line.starts_with(&format!("id={id} ")));
    line.is_some_and(|line| !line.contains(" qbuf=0 "))
}

fn id(client: &mut Client) -> i64 {
    match client.line("CLIENT ID") {
        Reply::Integer(id) => id,
        other => panic!("{other:?} is no number"),
    }
}

/// Runs a server of three threads with a client each: one executes a long transaction, one sends
/// `command` meanwhile, and one must be answered before the transaction ends. `waits` says whether
/// the command itself is answered only after the transaction.
fn passes_by(command: &str, waits: bool) {
    let (_running, address) = start(server().threads(3));
    let [mut long, mut other, mut third] = [(); 3].map(|()| Client::connect(address));
    let mut ids = [&mut long, &mut other, &mut third].map(id);
    // As above, a busy machine is not the server's fault.
    let is_passed_by = (0..20).any(|_| {
        long.command(&[&b"SET"[..], b"large", &vec![b'x'; 8 << 20]]);
        assert_eq!(long.line("MULTI"), Reply::ok());
        long.send(&encode(&["BITCOUNT", "large"]).repeat(LONG));
        (0..LONG).for_each(|_| assert_eq!(long.reply(), Reply::Simple("QUEUED".into())));
        long.send(&encode(&["EXEC"]));
        // The transaction may already be over, if this thread was not scheduled.
        while !is_under_way(&mut third, ids[0]) && executed(&mut third) == 0 {}
        let is_killed = command.contains("LONG");
        let command = command.replace("LONG", &ids[0].to_string());
        other.send(&encode(&command.split(' ').collect::<Vec<_>>()));
        // The command has been received, and waits or is done.
        match waits {
            true => {
                // Ends at the latest when the transaction is over.
                while !is_under_way(&mut third, ids[1]) && is_under_way(&mut third, ids[0]) {}
            }
            false => drop(other.reply()),
        }
        for _ in 0..10 {
            third.line("GET key");
        }
        let goes_on = executed(&mut third) == 0 && (is_killed || is_under_way(&mut third, ids[0]));
        if waits {
            other.reply();
        }
        match long.try_reply() {
            Some(replies) => assert_eq!(replies.items().len(), LONG),
            None => assert!(is_killed),
        }
        if is_killed {
            long = Client::connect(address);
            ids[0] = id(&mut long);
        }
        assert_eq!(third.line("CONFIG RESETSTAT"), Reply::ok());
        goes_on
    });
    assert!(
        is_passed_by,
        "all waited for the transaction with {command}"
    );
}

#[test]
fn an_exclusive_command_keeps_nobody_waiting_for_a_transaction() {
    passes_by("FLUSHALL", true);
}

#[test]
fn a_pause_keeps_nobody_waiting_for_a_transaction() {
    passes_by("CLIENT PAUSE 0", true);
}

#[test]
fn a_kill_waits_for_the_transaction_of_its_victim_and_keeps_nobody_waiting() {
    passes_by("CLIENT KILL ID LONG", true);
}

#[test]
fn a_kill_of_another_client_waits_for_no_transaction() {
    passes_by("CLIENT KILL ID 1000000", false);
}

#[test]
fn a_reset_of_statistics_waits_for_no_transaction() {
    passes_by("CONFIG RESETSTAT", false);
}

#[test]
fn a_client_waits_for_no_pipeline_of_its_own_thread() {
    let (_running, address) = start(server().threads(1));
    let mut other = Client::connect(address);
    assert_eq!(other.line("PING"), Reply::Simple("PONG".into()));
    overtakes(address, &mut other, "PING");
}

#[test]
fn a_pipeline_that_yields_is_answered_in_order() {
    let (_running, address) = start(server().threads(1));
    let mut client = Client::connect(address);
    client.command(&[&b"SET"[..], b"large", &vec![b'x'; 8 << 20]]);
    // Each slow command ends a time slice. Its reply is short, and the next one is sent at once.
    let text = |index: usize| format!("{index:030000}");
    let mut sender = client.stream.get_ref().try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        for index in 0..200 {
            let pair = [
                encode(&["BITCOUNT", "large"]),
                encode(&["ECHO", &text(index)]),
            ];
            sender.write_all(&pair.concat()).unwrap();
        }
    });
    for index in 0..200 {
        assert!(client.reply() == Reply::Integer(32 << 20), "{index}");
        assert!(client.reply() == Reply::bulk(text(index)), "{index}");
    }
    sending.join().unwrap();
}

/// The number of clients whose connections are closed while they wait for their next turn.
const CLOSED: usize = 3;

/// The pipeline of a client that yields after many short replies, and its replies.
fn mixed_pipeline() -> (Vec<u8>, Vec<Reply>) {
    let (short, long) = (vec![b'y'; 60_000], "z".repeat(20_000));
    let mut commands = Vec::new();
    let mut replies = Vec::new();
    for index in 0..400 {
        commands.extend(encode(&[&b"STRLEN"[..], &short]));
        replies.push(Reply::Integer(0));
        let text = match index % 2 {
            0 => format!("{index}"),
            _ => format!("{index}{long}"),
        };
        commands.extend(encode(&["ECHO", &text]));
        replies.push(Reply::bulk(text));
    }
    (commands, replies)
}

#[test]
fn a_connection_in_the_place_of_a_closed_one_is_answered_in_order() {
    let (commands, replies) = mixed_pipeline();
    let (_running, address) = start(server().threads(1));
    let mut watcher = Client::connect(address);
    watcher.command(&[&b"SET"[..], b"large", &vec![b'x'; 8 << 20]]);
    let begin = |commands: usize| {
        let mut client = Client::connect(address);
        let id = client.line("CLIENT ID");
        client.send(&encode(&["BITCOUNT", "large"]).repeat(commands));
        (client, id)
    };
    // They keep the queue of waiting clients from becoming empty.
    let slow: Vec<_> = (0..40).map(|_| begin(20)).collect();
    let mut closed: Vec<_> = (0..CLOSED).map(|_| begin(200)).collect();
    for (client, id) in &mut closed {
        // The client has been answered once, and waits for its next turn.
        assert_eq!(client.reply(), Reply::Integer(32 << 20));
        let Reply::Integer(id) = id else {
            panic!("{id:?} is no number");
        };
        watcher.line(&format!("CLIENT KILL ID {id}"));
    }
    // When this is answered, they have been closed and their places are free.
    assert_eq!(watcher.line("PING"), Reply::Simple("PONG".into()));
    std::thread::scope(|scope| {
        for _ in 0..CLOSED {
            let mut client = Client::connect(address);
            let mut sender = client.stream.get_ref().try_clone().unwrap();
            let (commands, replies) = (&commands, &replies);
            scope.spawn(move || sender.write_all(commands).unwrap());
            scope.spawn(move || {
                for (index, reply) in replies.iter().enumerate() {
                    assert!(client.reply() == *reply, "reply {index} is another's");
                }
            });
        }
    });
    drop(slow);
}

/// The number of keys, for which a walk needs many time slices.
const WALKED: usize = 300_000;

/// A server of one thread with that many keys, and a client of it.
fn filled() -> (mneme_server::Running, SocketAddr, Client) {
    let (running, address) = start(server().threads(1).memory(256 << 20));
    let mut client = Client::connect(address);
    for from in (0..WALKED).step_by(10_000) {
        let mut pairs = vec!["MSET".to_owned()];
        (from..from + 10_000).for_each(|key| pairs.extend([format!("key:{key}"), "x".into()]));
        assert_eq!(client.command(&pairs), Reply::ok());
    }
    (running, address, client)
}

/// The number of calls of KEYS that have been counted as finished.
fn finished(watcher: &mut Client) -> usize {
    let text = watcher.line("INFO commandstats").text();
    let count = (text.lines()).find_map(|line| line.strip_prefix("cmdstat_keys:calls="));
    count.map_or(0, |count| count.split(',').next().unwrap().parse().unwrap())
}

/// Begins a KEYS, and runs `meanwhile` between two slices of it. Returns the keys; `None` if the
/// walk ended before.
fn keys_beside(
    address: SocketAddr,
    watcher: &mut Client,
    meanwhile: &dyn Fn(&mut Client),
) -> Option<Vec<String>> {
    assert_eq!(watcher.line("CONFIG RESETSTAT"), Reply::ok());
    let mut walker = Client::connect(address);
    walker.send(&[encode(&["KEYS", "key:*"]), encode(&["PING"])].concat());
    while !watcher.line("CLIENT LIST").text().contains(" cmd=keys ") {
        if finished(watcher) > 0 {
            break;
        }
    }
    meanwhile(watcher);
    let is_between = finished(watcher) == 0;
    let keys = walker.reply();
    assert_eq!(walker.reply(), Reply::Simple("PONG".into()));
    assert_eq!(finished(watcher), 1, "counted once, not once a slice");
    let keys = keys.items().iter().map(Reply::text).collect();
    is_between.then_some(keys)
}

#[test]
fn other_clients_are_served_while_keys_walks_and_it_misses_no_key_that_stays() {
    let (_running, address, mut watcher) = filled();
    let between = (0..20).find_map(|_| {
        keys_beside(address, &mut watcher, &|other| {
            assert_eq!(other.line("PING"), Reply::Simple("PONG".into()));
            // Half of the first keys are removed, and new keys make the index grow.
            for key in (0..WALKED).step_by(2).take(500) {
                other.send(&encode(&["DEL", &format!("key:{key}")]));
                other.send(&encode(&["SET", &format!("new:{key}"), "x"]));
            }
            (0..1_000).for_each(|_| drop(other.reply()));
        })
    });
    let mut keys = between.expect("every walk kept the other client waiting");
    let len = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), len, "a key was returned twice");
    for key in (1..WALKED).step_by(2) {
        let key = format!("key:{key}");
        assert!(keys.binary_search(&key).is_ok(), "{key} was missed");
    }
}

#[test]
fn keys_within_a_transaction_are_those_of_one_instant() {
    let (_running, address, mut watcher) = filled();
    let mut client = Client::connect(address);
    client.send(
        &["MULTI", "KEYS *", "DBSIZE", "EXEC"]
            .map(|line| format!("{line}\r\n"))
            .concat()
            .into_bytes(),
    );
    assert_eq!(watcher.line("SET another x"), Reply::ok());
    (0..3).for_each(|_| drop(client.reply()));
    let replies = client.reply();
    let [keys, size] = replies.items() else {
        panic!("not two replies");
    };
    assert_eq!(*size, Reply::Integer(keys.items().len() as i64));
}

#[test]
fn a_client_that_is_killed_while_it_walks_leaves_nothing() {
    let (_running, address, mut watcher) = filled();
    let mut walker = Client::connect(address);
    let Reply::Integer(id) = walker.line("CLIENT ID") else {
        panic!("no number");
    };
    walker.send(&encode(&["KEYS", "*"]));
    watcher.line(&format!("CLIENT KILL ID {id}"));
    let count = watcher.line("DBSIZE");
    assert_eq!(count, Reply::Integer(WALKED as i64));
    let list = watcher.line("CLIENT LIST").text();
    assert!(!list.contains(&format!("id={id} ")), "{list}");
}

#[test]
fn a_walk_ends_with_its_clients_connection() {
    let (_running, address, mut watcher) = filled();
    let has_ended = (0..20).any(|_| {
        assert_eq!(watcher.line("CONFIG RESETSTAT"), Reply::ok());
        let mut walker = Client::connect(address);
        walker.send(&encode(&["KEYS", "*"]));
        while !watcher.line("CLIENT LIST").text().contains(" cmd=keys ") {
            if finished(&mut watcher) > 0 {
                break;
            }
        }
        let stream = socket2::SockRef::from(walker.stream.get_ref());
        stream.set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(walker);
        while info(&mut watcher, "connected_clients") > 1 {}
        finished(&mut watcher) == 0
    });
    assert!(has_ended, "every walk went on without its client");
}

/// Patterns for which each byte of each key is compared very often: all comparisons would take
/// hours.
#[test]
fn a_pattern_that_takes_too_long_is_refused() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    for key in 0..100 {
        client.command(&["SET", &format!("{key:050}"), "x"]);
    }
    let pattern = [b"*[", &b"a".repeat(20 << 20)[..], b"]x"].concat();
    let commands: [&[&[u8]]; 4] = [
        &[b"KEYS"],
        &[b"SCAN", b"0", b"COUNT", b"1000", b"MATCH"],
        &[b"CONFIG", b"GET"],
        &[b"COMMAND", b"LIST", b"FILTERBY", b"PATTERN"],
    ];
    for command in commands {
        let refused = client.command(&[command, &[&pattern]].concat());
        let expected = "ERR the pattern takes too long to match";
        assert_eq!(refused, Reply::Error(expected.into()));
    }
}
