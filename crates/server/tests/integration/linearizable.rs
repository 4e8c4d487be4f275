//! Histories of concurrent clients are linearizable: **each command and each transaction takes
//! effect at one instant between its sending and its reply**.
//!
//! Clients record what they have sent and received, and when. A search then looks for an order of
//! all operations in which a simple model of Redis gives the same replies (Wing and Gong, "Testing
//! and Verifying Concurrent Objects", 1993, with the cache of states by Lowe, 2017).

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::Instant;

use crate::common::{Client, Reply, encode, server, start};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// One command, or the commands of one transaction.
type Operation = Vec<String>;

/// An operation as its client saw it.
#[derive(Debug, Clone)]
struct Event {
    operation: Operation,
    sent: Instant,
    answered: Instant,
    reply: Reply,
}

/// The content of a server with strings only.
type State = BTreeMap<String, String>;

/// Executes one command.
fn carry_out(state: &mut State, command: &str) -> Reply {
    let words: Vec<&str> = command.split(' ').collect();
    let get = |state: &State, key: &str| state.get(key).map_or(Reply::Null, Reply::bulk);
    match words[..] {
        ["GET", key] | ["GETEX", key, ..] => get(state, key),
        ["SET", key, value] => {
            state.insert(key.into(), value.into());
            Reply::ok()
        }
        ["SET", key, value, "GET"] => {
            let old = get(state, key);
            state.insert(key.into(), value.into());
            old
        }
        ["SETNX", key, value] => {
            let absent = !state.contains_key(key);
            if absent {
                state.insert(key.into(), value.into());
            }
            Reply::Integer(absent.into())
        }
        ["APPEND", key, value] => {
            let text = state.entry(key.into()).or_default();
            text.push_str(value);
            Reply::Integer(text.len() as i64)
        }
        ["RENAME", from, to] => match state.remove(from) {
            Some(value) => {
                state.insert(to.into(), value);
                Reply::ok()
            }
            None => Reply::Error("ERR no such key".into()),
        },
        ["DBSIZE"] => Reply::Integer(state.len() as i64),
        ["FLUSHDB"] => {
            state.clear();
            Reply::ok()
        }
        ["MGET", ref keys @ ..] => Reply::Array(keys.iter().map(|key| get(state, key)).collect()),
        ["EXISTS", ref keys @ ..] => {
            Reply::Integer(keys.iter().filter(|key| state.contains_key(**key)).count() as i64)
        }
        ["DEL", ref keys @ ..] => Reply::Integer(
            keys.iter()
                .filter(|key| state.remove(**key).is_some())
                .count() as i64,
        ),
        ["MSET", ref pairs @ ..] => {
            for pair in pairs.chunks(2) {
                state.insert(pair[0].into(), pair[1].into());
            }
            Reply::ok()
        }
        _ => panic!("the model does not know {command}"),
    }
}

fn operate(state: &mut State, operation: &Operation) -> Reply {
    match &operation[..] {
        [command] => carry_out(state, command),
        commands => Reply::Array(
            commands
                .iter()
                .map(|command| carry_out(state, command))
                .collect(),
        ),
    }
}

/// Whether the events, at most 128, have such an order.
fn is_linearizable(events: &[Event]) -> bool {
    fn search(
        events: &[Event],
        done: u128,
        state: &State,
        seen: &mut HashSet<(u128, State)>,
    ) -> bool {
        let open = || (0..events.len()).filter(move |i| done & (1 << i) == 0);
        // The next operation must have been sent before any of the remaining ones was answered.
        let Some(first_answer) = open().map(|i| events[i].answered).min() else {
            return true;
        };
        open().filter(|&i| events[i].sent <= first_answer).any(|i| {
            let mut next = state.clone();
            let done = done | 1 << i;
            operate(&mut next, &events[i].operation) == events[i].reply
                && seen.insert((done, next.clone()))
                && search(events, done, &next, seen)
        })
    }
    search(events, 0, &State::new(), &mut HashSet::new())
}

fn command() -> impl Strategy<Value = String> {
    let key = || (0..3u8).prop_map(|i| format!("k{i}"));
    (0..15u8, key(), key(), key(), 0..1_000_000u32).prop_map(|(kind, a, b, c, value)| match kind {
        0..3 => format!("GET {a}"),
        3 => format!("SET {a} {value}"),
        4 => format!("SET {a} {value} GET"),
        5 => format!("SETNX {a} {value}"),
        6 => format!("APPEND {a} {}", value % 10),
        7 => format!("RENAME {a} {b}"),
        8 | 9 => format!("MGET {a} {b} {c}"),
        10 => format!("EXISTS {a} {b}"),
        11 => format!("DEL {a} {b}"),
        12 => format!("GETEX {a} PERSIST"),
        13 => format!("GETEX {a} EX {}", 1_000 + value),
        _ => format!("MSET {a} {value} {b} {}", value / 2),
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    // Transactions with these commands run in an exclusive section.
    let whole = proptest::sample::select(&["DBSIZE", "FLUSHDB"][..]).prop_map(str::to_owned);
    prop_oneof![
        15 => vec(command(), 1),
        5 => vec(command(), 2..4),
        1 => (vec(command(), 1..3), whole).prop_map(|(commands, last)| [commands, vec![last]].concat()),
    ]
}

fn send(client: &mut Client, operation: Operation) -> Event {
    let lines = match &operation[..] {
        [command] => vec![command.as_str()],
        commands => [
            &["MULTI"],
            &commands.iter().map(String::as_str).collect::<Vec<_>>()[..],
            &["EXEC"],
        ]
        .concat(),
    };
    let bytes: Vec<u8> = lines
        .iter()
        .flat_map(|line| encode(&line.split(' ').collect::<Vec<_>>()))
        .collect();
    let sent = Instant::now();
    client.send(&bytes);
    let replies: Vec<Reply> = lines.iter().map(|_| client.reply()).collect();
    Event {
        operation,
        sent,
        answered: Instant::now(),
        reply: replies.last().unwrap().clone(),
    }
}

/// The history of clients that run all of `scripts` concurrently, one each.
fn history(address: SocketAddr, scripts: Vec<Vec<Operation>>) -> Vec<Event> {
    Client::connect(address).line("FLUSHDB");
    let barrier = Barrier::new(scripts.len());
    let one = |script: Vec<Operation>| {
        let mut client = Client::connect(address);
        client.line("PING");
        barrier.wait();
        script
            .into_iter()
            .map(|operation| send(&mut client, operation))
            .collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = scripts
            .into_iter()
            .map(|script| scope.spawn(move || one(script)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    })
}

#[test]
fn histories_of_concurrent_clients_have_an_order() {
    let (_running, address) = start(server().threads(3));
    let mut runner = TestRunner::default();
    for _ in 0..150 {
        let scripts = vec(vec(operation(), 25), 4).new_tree(&mut runner).unwrap();
        let events = history(address, scripts.current());
        assert!(is_linearizable(&events), "{events:#?}");
    }
}

#[test]
fn a_history_without_an_order_is_detected() {
    let start = Instant::now();
    let event = |operation: &str, sent: u64, answered: u64, reply: Reply| Event {
        operation: vec![operation.to_owned()],
        sent: start + std::time::Duration::from_secs(sent),
        answered: start + std::time::Duration::from_secs(answered),
        reply,
    };
    let stored = [
        event("MSET k0 1 k1 1", 0, 9, Reply::ok()),
        event("GET k0", 1, 2, Reply::bulk("1")),
    ];
    assert!(is_linearizable(&stored));
    // Half of a transaction's writes, seen after all of them; and a value that comes back.
    for late in [
        event(
            "MGET k0 k1",
            3,
            4,
            Reply::Array(vec![Reply::bulk("1"), Reply::Null]),
        ),
        event("GET k0", 3, 4, Reply::Null),
    ] {
        assert!(!is_linearizable(&[&stored[..], &[late]].concat()));
    }
    let concurrent = event("GET k0", 1, 2, Reply::Null);
    assert!(is_linearizable(&[&stored[..], &[concurrent]].concat()));
}
