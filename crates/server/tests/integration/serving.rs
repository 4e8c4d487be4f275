//! The server's behaviour for clients, over real sockets.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Client, Reply, encode, server, start};
use mneme_server::settings::Key;
use mneme_server::{Server, StartError};

#[test]
fn a_pipeline_is_answered_in_order() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let mut request = Vec::new();
    let mut expected = Vec::new();
    let mut ask = |arguments: &[&str], reply: Reply| {
        request.extend(encode(arguments));
        expected.push(reply);
    };
    for i in 0..10_000 {
        let (key, value) = (format!("key:{}", i % 100), format!("value:{i}"));
        match i % 5 {
            0 => ask(&["SET", &key, &value], Reply::ok()),
            1 => {
                ask(&["SET", &key, &value], Reply::ok());
                ask(&["GET", &key], Reply::bulk(&value));
            }
            2 => {
                ask(
                    &["MSET", &key, "a", "other", "b", &key, &value],
                    Reply::ok(),
                );
                let values = [
                    Reply::bulk(&value),
                    Reply::Null,
                    Reply::bulk("b"),
                    Reply::bulk(&value),
                ];
                ask(
                    &["MGET", &key, "nothing", "other", &key],
                    Reply::Array(values.into()),
                );
            }
            3 => {
                ask(
                    &["GET"],
                    Reply::Error("ERR wrong number of arguments for 'get' command".into()),
                );
                ask(&["ECHO", &value], Reply::bulk(&value));
            }
            _ => {
                ask(&["SET", &key, "1"], Reply::ok());
                ask(&["INCR", &key], Reply::Integer(2));
                ask(&["DEL", &key, &key], Reply::Integer(1));
            }
        }
    }
    let mut sender = client.stream.get_ref().try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&request).unwrap());
    for (index, expected) in expected.into_iter().enumerate() {
        assert_eq!(client.reply(), expected, "reply {index}");
    }
    sending.join().unwrap();
}

#[test]
fn batches_of_any_length_answer_every_command() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let keys: Vec<String> = (0..1000).map(|i| format!("k{i}")).collect();
    for count in [1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 500, 1000] {
        let keys = &keys[..count];
        let mut mset = vec!["MSET".to_owned()];
        mset.extend(
            keys.iter()
                .flat_map(|key| [key.clone(), format!("{key}/{count}")]),
        );
        let mget = [&["MGET".to_owned()], keys].concat();
        let expected: Vec<_> = keys
            .iter()
            .map(|key| Reply::bulk(format!("{key}/{count}")))
            .collect();
        // All keys in one command, in many, and in a mixture that crosses the limits of batches.
        let mut request = [encode(&mset), encode(&mget)].concat();
        keys.iter()
            .for_each(|key| request.extend(encode(&["GET", key])));
        request.extend(encode(&mget));
        request.extend(encode(&["GET", "absent"]));
        client.send(&request);
        assert_eq!(client.reply(), Reply::ok());
        assert_eq!(client.reply(), Reply::Array(expected.clone()));
        expected
            .iter()
            .for_each(|expected| assert_eq!(client.reply(), *expected));
        assert_eq!(client.reply(), Reply::Array(expected));
        assert_eq!(client.reply(), Reply::Null);
    }
}

#[test]
fn resp3_has_its_own_types_until_reset() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    assert_eq!(client.line("GET nothing"), Reply::Null);
    let Reply::Map(hello) = client.line("HELLO 3 SETNAME tester") else {
        panic!("not a map")
    };
    assert!(hello.contains(&(Reply::bulk("proto"), Reply::Integer(3))));
    client.send(b"GET nothing\r\n");
    let mut raw = [0; 3];
    std::io::Read::read_exact(&mut client.stream, &mut raw).unwrap();
    assert_eq!(&raw, b"_\r\n");
    assert_eq!(
        client.line("CONFIG GET appendonly"),
        Reply::Map(vec![(Reply::bulk("appendonly"), Reply::bulk("no"))])
    );
    assert!(matches!(client.line("INFO server"), Reply::Verbatim(_)));
    assert_eq!(client.line("CLIENT GETNAME"), Reply::bulk("tester"));
    assert_eq!(client.line("RESET"), Reply::Simple("RESET".into()));
    assert!(matches!(client.line("HELLO"), Reply::Array(_)));
    assert_eq!(client.line("CLIENT GETNAME"), Reply::Null);
}

#[test]
fn databases_are_apart_and_can_be_emptied() {
    let (_running, address) = start(server().databases(4));
    let mut client = Client::connect(address);
    for database in 0..4 {
        assert_eq!(client.line(&format!("SELECT {database}")), Reply::ok());
        assert_eq!(client.line(&format!("SET key {database}")), Reply::ok());
    }
    assert_eq!(
        client.line("SELECT 4"),
        Reply::Error("ERR DB index is out of range".into())
    );
    assert_eq!(client.line("GET key"), Reply::bulk("3"));
    assert_eq!(client.line("FLUSHDB"), Reply::ok());
    assert_eq!(client.line("DBSIZE"), Reply::Integer(0));
    assert_eq!(client.line("SELECT 0"), Reply::ok());
    assert_eq!(client.line("DBSIZE"), Reply::Integer(1));
    let keyspace = "# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\ndb1:keys=1,expires=0,avg_ttl=0\r\n\
                    db2:keys=1,expires=0,avg_ttl=0\r\n";
    assert_eq!(client.line("INFO keyspace"), Reply::bulk(keyspace));
    assert_eq!(client.line("FLUSHALL ASYNC"), Reply::ok());
    assert_eq!(client.line("INFO keyspace"), Reply::bulk("# Keyspace\r\n"));
}

#[test]
fn scans_and_patterns_find_every_key() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let expected: BTreeSet<String> = (0..1000).map(|i| format!("key:{i}")).collect();
    for key in &expected {
        client.command(&["SET", key, "x"]);
    }
    let mut found = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let reply = client.line(&format!("SCAN {cursor} COUNT 50"));
        let [next, keys] = reply.items() else {
            panic!("{reply:?}")
        };
        found.extend(keys.items().iter().map(Reply::text));
        cursor = next.text();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, expected);
    let keys = client.line("KEYS key:?5");
    assert_eq!(keys.items().len(), 9);
    assert_eq!(client.line("KEYS nothing*"), Reply::Array(vec![]));
}

#[test]
fn concurrent_increments_are_all_counted() {
    let (_running, address) = start(server().threads(4));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                client.send(&encode(&["INCR", "counter"]).repeat(1000));
                (0..1000).for_each(|_| assert!(matches!(client.reply(), Reply::Integer(_))));
            })
        })
        .collect();
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    assert_eq!(
        Client::connect(address).line("GET counter"),
        Reply::bulk("8000")
    );
}

#[test]
fn large_values_arrive_whole() {
    let (_running, address) = start(server().memory(512 << 20));
    let mut client = Client::connect(address);
    let value: Vec<u8> = (0..48 << 20)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    assert_eq!(
        client.command(&[&b"SET"[..], b"large", &value]),
        Reply::ok()
    );
    assert_eq!(
        client.line("STRLEN large"),
        Reply::Integer(value.len() as i64)
    );
    assert_eq!(
        client.line("APPEND large more"),
        Reply::Integer(value.len() as i64 + 4)
    );
    client.send(&[encode(&["GET", "large"]), encode(&["PING"])].concat());
    assert!(client.reply() == Reply::Bulk([&value[..], b"more"].concat()));
    assert_eq!(client.reply(), Reply::Simple("PONG".into()));
}

#[test]
fn a_full_store_refuses_writes_and_nothing_else() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let value = "x".repeat(100_000);
    let oom = Reply::Error("OOM command not allowed when used memory > 'maxmemory'.".into());
    let mut stored = 0;
    loop {
        match client.command(&["SET", &format!("k{stored}"), &value]) {
            reply if reply == oom => break,
            reply => assert_eq!(reply, Reply::ok()),
        }
        stored += 1;
        assert!(stored < 1000, "64 MiB cannot hold 100 MB");
    }
    assert_eq!(client.command(&["SET", "more", &value]), oom);
    assert_eq!(client.command(&["MSET", "a", "1", "more", &value]), oom);
    // In a pipeline, each command fails or succeeds on its own.
    let mut request = encode(&["SET", "more", &value]);
    request.extend(encode(&["STRLEN", "k0"]));
    request.extend(encode(&["SET", "more", &value]));
    client.send(&request);
    assert_eq!(
        [client.reply(), client.reply(), client.reply()],
        [oom.clone(), Reply::Integer(100_000), oom]
    );
    assert_eq!(client.command(&["EXISTS", "more"]), Reply::Integer(0));
    for key in 0..stored {
        assert_eq!(client.line(&format!("DEL k{key}")), Reply::Integer(1));
    }
    assert_eq!(client.command(&["SET", "more", &value]), Reply::ok());
}

#[test]
fn a_password_is_asked_for_first() {
    let (_running, address) = start(server().password("secret"));
    let mut client = Client::connect(address);
    let no_auth = Reply::Error("NOAUTH Authentication required.".into());
    let wrong =
        Reply::Error("WRONGPASS invalid username-password pair or user is disabled.".into());
    for command in ["GET a", "SET a b", "PING", "MGET a b"] {
        assert_eq!(client.line(command), no_auth, "{command}");
    }
    // As in Redis, whether a command exists is no secret.
    let unknown = client.line("nonsense").text();
    assert!(unknown.starts_with("ERR unknown command"), "{unknown}");
    assert_eq!(client.line("AUTH guess"), wrong);
    assert_eq!(client.line("AUTH somebody secret"), wrong);
    assert!(
        client
            .line("HELLO 3")
            .text()
            .starts_with("NOAUTH HELLO must be called")
    );
    // Commands after an AUTH in the same pipeline are executed, including large ones.
    let large = "x".repeat(100_000);
    client.send(&[encode(&["AUTH", "secret"]), encode(&["SET", "a", &large])].concat());
    assert_eq!([client.reply(), client.reply()], [Reply::ok(), Reply::ok()]);
    assert_eq!(client.line("RESET"), Reply::Simple("RESET".into()));
    assert_eq!(client.line("GET a"), no_auth);
    assert!(matches!(
        client.line("HELLO 3 AUTH default secret"),
        Reply::Map(_)
    ));
    assert_eq!(client.line("STRLEN a"), Reply::Integer(100_000));
}

#[test]
fn the_embedding_program_and_the_clients_share_the_store() {
    let store = mneme_log::LogStore::builder()
        .capacity(64 << 20)
        .open_private()
        .unwrap();
    let store = Arc::new(store);
    let (running, address) = start(server().store(Arc::clone(&store)));
    let mut client = Client::connect(address);
    store.put(b"from", b"inside").unwrap();
    assert_eq!(client.line("GET from"), Reply::bulk("inside"));
    assert_eq!(client.line("SET from outside"), Reply::ok());
    drop(running);
    assert_eq!(
        store.get(b"from").unwrap().as_deref(),
        Some(&b"outside"[..])
    );
}

#[test]
fn a_stopped_server_has_sent_its_replies_and_freed_its_port() {
    let (running, address) = start(server());
    let mut idle = Client::connect(address);
    assert_eq!(idle.line("PING"), Reply::Simple("PONG".into()));
    let mut client = Client::connect(address);
    client.send(
        &[
            encode(&["SET", "a", "b"]),
            encode(&["SHUTDOWN"]),
            encode(&["GET", "a"]),
        ]
        .concat(),
    );
    assert_eq!(client.reply(), Reply::ok());
    assert_eq!(client.try_reply(), None);
    assert_eq!(idle.try_reply(), None);
    running.join().unwrap();
    let (running, _) = start(server().port(address.port()));
    running.shutdown();
    running.join().unwrap();
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let (_running, address) = start(server());
    let error = |server: Server| server.start().err().expect("it must not start");
    let in_use = error(server().port(address.port()));
    assert!(matches!(in_use, StartError::AddressInUse { address: taken } if taken == address));
    assert!(matches!(
        error(server().threads(1000)),
        StartError::Threads(1000)
    ));
    assert!(matches!(
        error(server().databases(65)),
        StartError::Databases(65)
    ));
    assert!(matches!(
        error(server().bind([])),
        StartError::NothingToListenOn
    ));
    assert!(matches!(
        error(server().memory(1)),
        StartError::Store { bytes: 1, .. }
    ));
    assert!(matches!(
        error(server().bind(["192.0.2.1".parse().unwrap()])),
        StartError::Bind { .. }
    ));
}

#[test]
fn a_unix_socket_is_taken_over_from_a_dead_server_only() {
    let path = std::env::temp_dir().join(format!("mneme-test-{}.sock", std::process::id()));
    let (running, _) = start(server().unix_socket(&path));
    let ping = || {
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        std::io::Read::read_exact(&mut stream, &mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    };
    ping();
    let second = server().unix_socket(&path).start();
    assert!(matches!(second.err(), Some(StartError::UnixSocket { .. })));
    ping();
    drop(running);
    assert!(!path.exists());

    // If another server's socket has replaced it, it is left alone.
    let (running, _) = start(server().unix_socket(&path));
    std::fs::remove_file(&path).unwrap();
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(running);
    assert!(path.exists());
    drop(other);
    std::fs::remove_file(&path).unwrap();

    // The socket of a killed server still exists, but nothing answers there.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (running, _) = start(server().unix_socket(&path));
    ping();
    drop(running);

    let closed = server().unix_socket(&path);
    let closed = closed.set(Key::UnixSocketPermissions, "600").unwrap();
    let (running, _) = start(closed);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(running);

    std::fs::write(&path, "not a socket").unwrap();
    let occupied = server().unix_socket(&path).start();
    assert!(matches!(
        occupied.err(),
        Some(StartError::UnixSocket { .. })
    ));
    assert_eq!(std::fs::read(&path).unwrap(), b"not a socket");
    std::fs::remove_file(&path).unwrap();
}

/// A process that listens and accepts nothing: connections beyond its queue would wait.
#[test]
fn a_unix_socket_whose_queue_is_full_is_refused() {
    use socket2::{Domain, SockAddr, Socket, Type};
    let path = std::env::temp_dir().join(format!("mneme-test-queue-{}.sock", std::process::id()));
    let socket = || Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    let (other, address) = (socket(), SockAddr::unix(&path).unwrap());
    other.bind(&address).unwrap();
    other.listen(0).unwrap();
    let waiting = socket();
    waiting.connect(&address).unwrap();
    let (send, started) = std::sync::mpsc::channel();
    let second = server().unix_socket(&path);
    std::thread::spawn(move || send.send(second.start().err()));
    let refused = started.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(matches!(refused, Some(StartError::UnixSocket { .. })));
    assert!(path.exists());
    std::fs::remove_file(&path).unwrap();
}

/// If a start fails after the server has listened on its unix socket, the socket's file is removed.
#[test]
fn a_start_that_fails_removes_its_unix_socket() {
    let name = format!("mneme-test-failed-{}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let (running, address) = start(server());
    let failed = [
        server().unix_socket(&path).databases(65).start(),
        server().unix_socket(&path).metrics(address).start(),
    ];
    for failed in failed {
        assert!(failed.is_err());
        assert!(!path.exists());
    }
    drop(running);
    let (running, _) = start(server().unix_socket(&path));
    assert!(path.exists());
    drop(running);
    assert!(!path.exists());
}

/// Its reply is written while the set is read.
#[test]
fn a_range_of_a_sorted_set_that_goes_meanwhile_is_all_of_it_or_nothing() {
    const MEMBERS: usize = 2_000;
    let (_running, address) = start(server().threads(2));
    let mut client = Client::connect(address);
    let members = (0..MEMBERS).flat_map(|i| [i.to_string(), format!("member {i}")]);
    let arguments = ["ZADD".to_string(), "base".to_string()].into_iter();
    let arguments: Vec<String> = arguments.chain(members).collect();
    assert_eq!(client.command(&arguments), Reply::Integer(MEMBERS as i64));
    std::thread::scope(|scope| {
        let comes_and_goes = scope.spawn(|| {
            let mut client = Client::connect(address);
            for _ in 0..200 {
                assert_eq!(client.line("COPY base set"), Reply::Integer(1));
                assert_eq!(client.line("DEL set"), Reply::Integer(1));
            }
        });
        while !comes_and_goes.is_finished() {
            for command in ["ZRANGE set 0 -1", "ZRANDMEMBER set 2000"] {
                let len = client.line(command).items().len();
                assert!([0, MEMBERS].contains(&len), "{len}");
                assert_eq!(client.line("PING"), Reply::Simple("PONG".into()));
            }
        }
    });
}
