//! Error replies, compared byte by byte.

use crate::common::{Client, Redis, debugged, encode, info, start};

/// Lines of words; `\x` escapes stand for bytes that are not text.
const REFUSED: &[&str] = &[
    "SELECT 2147483648",
    "SELECT -2147483649",
    "SELECT -2147483648",
    "SELECT 9223372036854775808",
    "SET a 1",
    "MOVE a 2147483648",
    "COPY a b DB 99999999999",
    "SHUTDOWN NOSAVE SAVE",
    "SHUTDOWN SAVE NOSAVE",
    "SHUTDOWN ABORT NOW",
    "SHUTDOWN FORCE ABORT",
    "SHUTDOWN NOSAVE ABORT",
    "SHUTDOWN ABORT abort",
    "SHUTDOWN ABORT x",
    "FUNCTION FLUSH SYNC x",
    "FUNCTION flush x y z",
    "FUNCTION FLUSH x",
    "DEBUG SET-ACTIVE-EXPIRE x",
    "DEBUG SET-ACTIVE-EXPIRE",
    "DEBUG POPULATE a",
    "DEBUG POPULATE -1",
    "DEBUG POPULATE 1 k x",
    "DEBUG POPULATE 99999999999999999999",
    "COMMAND GETKEYSANDFLAGS BITFIELD a",
    "COMMAND GETKEYSANDFLAGS BITFIELD a GET u8 0",
    "COMMAND GETKEYSANDFLAGS BITFIELD a OVERFLOW WRAP GET u8 0 get u8 1",
    "COMMAND GETKEYSANDFLAGS BITFIELD a GET u8 0 SET u8 0 1",
    "COMMAND GETKEYSANDFLAGS BITFIELD a INCRBY u8 0 1",
    "COMMAND GETKEYSANDFLAGS BITFIELD a GET u8",
    "COMMAND GETKEYSANDFLAGS BITFIELD a OVERFLOW",
    "COMMAND GETKEYSANDFLAGS BITFIELD_RO a GET x y",
    "\\xffo\\xfe a\\xff b\\x00c",
    "fo\\x00o x",
    "CLIENT f\\xffo",
    "CLIENT f\\x00o",
    "CONFIG SET x\\xff 1",
    "CONFIG SET x\\x00y 1",
    "CONFIG SET activedefrag maybe",
    "CONFIG SET active-defrag-cycle-min 0",
    "CONFIG SET active-defrag-cycle-min 100",
    "CONFIG SET active-defrag-cycle-min 99",
    "CONFIG SET active-defrag-cycle-max x",
    "CONFIG SET active-defrag-cycle-max 1",
    "CONFIG SET active-defrag-threshold-lower -1",
    "CONFIG SET active-defrag-threshold-lower 1001",
    "CONFIG SET active-defrag-threshold-lower 1000",
    "CONFIG SET active-defrag-threshold-upper 1001",
    "CONFIG SET active-defrag-threshold-upper 0",
    "CONFIG SET active-defrag-ignore-bytes 0",
    "CONFIG SET active-defrag-ignore-bytes x",
    "CONFIG SET active-defrag-ignore-bytes 3mb",
    "CONFIG GET active-defrag-ignore-bytes",
    "CLIENT KILL USER n\\xff",
    "CLIENT KILL TYPE \\xff",
    "CLIENT LIST TYPE \\xfe",
    "EXPIRE a 1 \\xff\\xfe",
    "EXPIRE a 1 q\\x00z",
    "DEBUG \\xffx",
    "HELLO 2 \\xff",
    "LATENCY GRAPH \\xff",
    "SLOWLOG \\xff",
    "SLOWLOG GET 1 2 3",
    // Nothing has changed for a watching client.
    "SET k v",
    "WATCH k",
    "RENAME k k",
    "RENAMENX k k",
    "MULTI",
    "GET k",
    "EXEC",
    "RENAME none none",
    "RENAMENX none none",
    "MULTI",
    "RENAME k k",
    "RENAMENX none none",
    "EXEC",
];

/// The words of a line, with escapes replaced by their bytes.
fn words(line: &str) -> Vec<Vec<u8>> {
    let unescaped = |word: &str| {
        let mut parts = word.split("\\x");
        let mut bytes = parts.next().unwrap().as_bytes().to_vec();
        for part in parts {
            bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
            bytes.extend_from_slice(&part.as_bytes()[2..]);
        }
        bytes
    };
    line.split(' ').map(unescaped).collect()
}

#[test]
fn errors_have_the_same_bytes_as_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(debugged());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut client = Client::connect(address);
        for line in REFUSED.iter().chain(&["QUIT"]) {
            // Sends the line as text too, so that a failure shows which line it was.
            client.send(&[encode(&["ECHO", line]), encode(&words(line))].concat());
        }
        let answers = client.rest();
        let lines = answers.split(|byte| *byte == b'\n');
        lines
            .map(|line| line.escape_ascii().to_string())
            .collect::<Vec<_>>()
    });
    let mut last = "";
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "after {last}");
        last = ours;
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn a_client_that_kills_itself_in_a_transaction_gets_no_more_replies() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(debugged());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut client = Client::connect(address);
        let id = match client.line("CLIENT ID") {
            crate::common::Reply::Integer(id) => id,
            other => panic!("{other:?}"),
        };
        let kill = format!("CLIENT KILL ID {id} SKIPME no");
        for line in ["MULTI", "SET a 1", &kill, "SET b 2", "EXEC", "SET c 3"] {
            client.send(&encode(&words(line)));
        }
        let answer = client.rest().escape_ascii().to_string();
        (answer, Client::connect(address).line("MGET a b c"))
    });
    assert_eq!(ours, theirs);
}

#[test]
fn commands_are_counted_as_redis_counts_them() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(debugged());
    for lines in [
        &["SET a x", "GET a", "MGET a b", "PING"][..],
        // Refused before their execution.
        &["NOSUCH", "GET", "CLIENT NOSUCH", "GET a b c"],
        // Executed, with an error.
        &["SET a x", "INCR a", "SETRANGE a -1 x"],
        &["MULTI", "SET a 1", "INCR a", "GET a", "EXEC"],
        &["MULTI", "SET a 1", "DISCARD", "EXEC"],
        &["MULTI", "NOSUCH", "SET a 1", "EXEC"],
        &["SET a x", "MULTI", "INCR a", "SET a 1", "EXEC"],
    ] {
        let [ours, theirs] = [address, redis.address].map(|address| {
            let mut client = Client::connect(address);
            let before = info(&mut client, "total_commands_processed");
            for line in lines {
                client.line(line);
            }
            // Also in one write, which the server may pass to the store as one batch.
            let lines = lines.iter().copied();
            let pipeline: Vec<u8> = lines
                .clone()
                .flat_map(|line| encode(&words(line)))
                .collect();
            client.send(&pipeline);
            lines.for_each(|_| drop(client.reply()));
            info(&mut client, "total_commands_processed") - before
        });
        assert_eq!(ours, theirs, "{lines:?}");
    }
}
