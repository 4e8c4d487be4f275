//! Large values, commands and times: **a command's cost depends on the bytes that it reads and
//! changes, not on the length of the value**.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

mod common;

use common::{Client, Reply, encode, server, start};

/// The peak memory of the process in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = peak.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

#[test]
fn fields_far_apart_need_no_memory_for_the_bytes_between() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let refused = Reply::Error("OOM command not allowed when used memory > 'maxmemory'.".into());
    // 24 MiB, which are changed in place.
    assert_eq!(client.line("SETBIT a 201326591 1"), Reply::Integer(0));
    assert_eq!(client.line("SETBIT a 0 1"), Reply::Integer(0));
    assert_eq!(client.line("SETBIT a 0 0"), Reply::Integer(1));
    let before = peak_kib();
    for _ in 0..3 {
        for key in ["none", "a"] {
            let get_and_set = format!("BITFIELD {key} GET u8 0 SET u8 4294967200 1");
            assert_eq!(client.line(&get_and_set), refused);
            let twice = format!("BITFIELD {key} SET u8 8 1 SET u8 4294967200 1");
            assert_eq!(client.line(&twice), refused);
        }
        assert_eq!(
            client.line("BITFIELD_RO a GET u8 0 GET u8 201326584"),
            Reply::Array(vec![Reply::Integer(0), Reply::Integer(1)])
        );
    }
    assert_eq!(client.line("EXISTS none"), Reply::Integer(0));
    // Making a value longer copies its present bytes; other tests use some memory meanwhile.
    let taken = peak_kib().saturating_sub(before);
    assert!(taken < 256 << 10, "{taken} KiB");
}

#[test]
fn fields_far_apart_are_read_and_written_as_near_ones() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let integers =
        |numbers: &[i64]| Reply::Array(numbers.iter().copied().map(Reply::Integer).collect());
    for within in ["alone", "within MULTI"] {
        let mut ask = |line: &str| {
            if within == "alone" {
                return client.line(line);
            }
            client.line("MULTI");
            client.line(line);
            client.line("EXEC").items()[0].clone()
        };
        ask("FLUSHALL");
        let far = "u8 40000000";
        assert_eq!(
            ask(&format!("BITFIELD k GET u8 0 GET {far}")),
            integers(&[0, 0])
        );
        assert_eq!(ask("EXISTS k"), Reply::Integer(0));
        ask("SET k x EX 1000");
        // The value gets longer as far as the command could write, even if it writes nothing.
        let fails = format!("BITFIELD k GET u8 0 OVERFLOW FAIL INCRBY {far} 256");
        assert_eq!(
            ask(&fails),
            Reply::Array(vec![Reply::Integer(120), Reply::Null])
        );
        assert_eq!(ask("STRLEN k"), Reply::Integer(5_000_001));
        let both = format!("BITFIELD k SET u8 0 7 SET {far} 9 GET {far}");
        assert_eq!(ask(&both), integers(&[120, 0, 9]));
        assert_eq!(ask(&both), integers(&[7, 9, 9]));
        assert_eq!(
            ask(&format!(
                "BITFIELD_RO k GET u8 0 GET {far} GET u8 4294967200"
            )),
            integers(&[7, 9, 0])
        );
        assert_eq!(ask("STRLEN k"), Reply::Integer(5_000_001));
        assert!(ask("TTL k") > Reply::Integer(900), "{within}");
    }
}

#[test]
fn a_value_that_others_change_is_returned_as_it_was_when_it_got_its_expiry() {
    const ROUNDS: usize = 2_000;
    let (_running, address) = start(server().threads(2));
    let mut client = Client::connect(address);
    client.command(&["SET", "key", &"0".repeat(8 << 10)]);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut other = Client::connect(address);
            for round in 0..ROUNDS {
                other.send(&encode(&["MULTI"]));
                other.send(&encode(&[
                    "SETRANGE",
                    "key",
                    "5000",
                    &format!("{round:08}"),
                ]));
                other.send(&encode(&["PERSIST", "key"]));
                other.send(&encode(&["EXEC"]));
                (0..4).for_each(|_| drop(other.reply()));
                other.command(&["SETRANGE", "key", "0", &format!("{round:08}")]);
                let seen = other.command(&["GETEX", "key", "EX", "1000"]);
                let Reply::Bulk(seen) = seen else {
                    panic!("{seen:?}")
                };
                assert_eq!(seen[..8], seen[5000..5008]);
                assert!(other.line("TTL key") > Reply::Integer(900));
            }
        });
        let mut last = 0;
        for round in 0..ROUNDS {
            let seen = client.command(&["GETEX", "key", "EX", &(1000 + round % 2).to_string()]);
            let Reply::Bulk(seen) = seen else {
                panic!("{seen:?}")
            };
            let number = |at: usize| -> usize {
                String::from_utf8_lossy(&seen[at..at + 8]).parse().unwrap()
            };
            // The first number is written after the second.
            assert!(number(0) <= number(5000) && last <= number(0));
            last = number(0);
        }
    });
}

#[test]
fn a_full_store_sets_when_a_value_expires_and_returns_it() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let value = "v".repeat(8 << 20);
    client.command(&["SET", "large", &value]);
    client.command(&["SET", "small", "x", "EX", "100"]);
    let mut stored = 0;
    while client.command(&["SET", &format!("k{stored}"), &value[..1 << 20]]) == Reply::ok() {
        stored += 1;
    }
    assert!(stored > 4, "{stored}");
    for key in ["large", "small"] {
        let there = client.line(&format!("GET {key}"));
        assert!(client.line(&format!("GETEX {key} PX 1000000")) == there);
        assert!(client.line(&format!("TTL {key}")) > Reply::Integer(900));
        assert!(client.line(&format!("GETEX {key} PX 2000000")) == there);
        assert!(client.line(&format!("TTL {key}")) > Reply::Integer(1900));
        assert!(client.line(&format!("GETEX {key} PERSIST")) == there);
        assert_eq!(client.line(&format!("TTL {key}")), Reply::Integer(-1));
        assert!(client.line(&format!("GETEX {key} PERSIST")) == there);
        assert!(client.line(&format!("GETEX {key} PXAT 1")) == there);
        assert_eq!(client.line(&format!("GETEX {key} EX 1")), Reply::Null);
    }
}

#[test]
fn a_command_may_have_millions_of_arguments_and_one_that_is_announced_takes_nothing() {
    const MANY: usize = 1_200_000;
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    client.line("SET k v");
    // The default of a server of this size is 262,144 keys at one instant.
    client.line("CONFIG SET maxmemory-clients 0");
    let mut request = format!("*{}\r\n$3\r\nDEL\r\n", MANY + 1).into_bytes();
    request.extend(b"$1\r\nk\r\n".repeat(MANY));
    client.send(&request);
    assert_eq!(client.reply(), Reply::Integer(1));
    let before = peak_kib();
    let mut liars: Vec<_> = (0..10).map(|_| Client::connect(address)).collect();
    for liar in &mut liars {
        liar.send(b"*2147483647\r\n$3\r\nDEL\r\n$1\r\nk\r\n");
    }
    assert_eq!(client.line("PING"), Reply::Simple("PONG".into()));
    // Each would have needed 16 GiB. The kernel's peak is exact to a few pages only, and may be
    // less than the true one.
    assert!(peak_kib().saturating_sub(before) < 1 << 20);
}

#[test]
fn a_pause_longer_than_clocks_count_is_refused() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let refused = Reply::Error("ERR timeout is out of range".into());
    for timeout_ms in [i64::MAX, i64::MAX - 1_000_000_000_000] {
        assert_eq!(client.line(&format!("CLIENT PAUSE {timeout_ms}")), refused);
    }
    assert_eq!(client.line("CLIENT PAUSE 3000000000000 WRITE"), Reply::ok());
    assert_eq!(client.line("CLIENT UNPAUSE"), Reply::ok());
}
