//! A pipeline has the same replies as its commands sent one by one: consecutive commands are
//! batched and keys are prefetched, but neither changes a reply, its order, or the data.

use crate::common::{Client, Reply, encode, server, start};
use proptest::collection::vec;
use proptest::prelude::*;

/// Commands with one key and some with several; `K` stands for a key. Their replies depend on the
/// data only, not on the time.
const COMMANDS: &[&str] = &[
    "GET K",
    "GET K",
    "GET K",
    "SET K 10",
    "SET K 10",
    "SET K text",
    "SET K 5 NX",
    "SET K 6 XX GET",
    "SET K 7 EXAT 4000000000",
    "SET K 8 KEEPTTL",
    "SETNX K 1",
    "SET K soon EXAT 4000000003",
    "GETSET K 11",
    "GETDEL K",
    "GETEX K PERSIST",
    "GETEX K EXAT 4000000001",
    "GETEX K PXAT 1",
    "INCR K",
    "DECR K",
    "INCRBY K 3",
    "DECRBY K x",
    "INCRBYFLOAT K 0.5",
    "APPEND K 7",
    "STRLEN K",
    "GETRANGE K 0 3",
    "SETRANGE K 2 ab",
    "SETRANGE K 6000 long",
    "SETBIT K 9 1",
    "GETBIT K 9",
    "BITCOUNT K",
    "BITFIELD K INCRBY u8 0 1",
    "EXISTS K",
    "TYPE K",
    "OBJECT ENCODING K",
    "TOUCH K",
    "EXPIREAT K 4000000002",
    "EXPIREAT K 1",
    "EXPIRETIME K",
    "PERSIST K",
    "DEL K",
    "UNLINK K",
    "MGET K K K",
    "MSET K 1 K 2",
    "EXISTS K K",
    "RENAME K K",
    "COPY K K REPLACE",
    "MOVE K 5",
    "DBSIZE",
    "PING",
    "SELECT 5",
    "SELECT 0",
    "FLUSHDB",
    "SWAPDB 0 5",
    "MULTI",
    "EXEC",
    "WATCH K",
    "DISCARD",
    "CLIENT REPLY SKIP",
    "CLIENT REPLY OFF",
    "CLIENT REPLY ON",
    "CLIENT REPLY ON",
    "GET",
    "GET K K",
    "SET K",
    "NOSUCH K",
];

fn commands() -> impl Strategy<Value = Vec<String>> {
    let keys = proptest::array::uniform3(0usize..6);
    let one = (0..COMMANDS.len(), keys).prop_map(|(command, keys)| {
        // Most keys are short; one is longer than the cache lines next to it.
        let long = "k".repeat(300);
        let names = ["a", "b", "c", "d", "key:0000000001", &long];
        let words = COMMANDS[command].split(' ');
        let mut keys = keys.iter().map(|key| names[*key]);
        let words = words.map(|word| match word {
            "K" => keys.next().unwrap_or("a"),
            other => other,
        });
        words.collect::<Vec<_>>().join(" ")
    });
    // Runs of one kind of command, as clients send them, mixed with others.
    vec((one, 1usize..5), 1..60).prop_map(|runs| {
        let runs = runs.into_iter();
        runs.flat_map(|(command, times)| std::iter::repeat_n(command, times))
            .collect()
    })
}

fn bytes_of(command: &str) -> Vec<u8> {
    encode(&command.split(' ').collect::<Vec<_>>())
}

/// Which replies a client gets, according to `CLIENT REPLY`. In `MULTI` that command is queued.
#[derive(Default)]
struct Replies {
    off: bool,
    skips: u32,
    queues: bool,
}

impl Replies {
    /// Whether `command` is answered.
    fn answers(&mut self, command: &str) -> bool {
        self.skips = self.skips.saturating_sub(1);
        match command {
            "CLIENT REPLY OFF" => self.off = true,
            "CLIENT REPLY SKIP" if !self.off => self.skips = 2,
            "CLIENT REPLY ON" => (self.off, self.skips) = (false, 0),
            _ => {}
        }
        !self.off && self.skips == 0
    }
}

/// The commands without those that change replies inside a transaction, which another test covers.
fn plain(commands: &[String]) -> Vec<&str> {
    let mut replies = Replies::default();
    let kept = commands.iter().map(String::as_str).filter(|command| {
        match *command {
            "MULTI" => replies.queues = true,
            "EXEC" | "DISCARD" => replies.queues = false,
            _ => {}
        }
        !(replies.queues && command.starts_with("CLIENT REPLY"))
    });
    kept.collect()
}

/// All data.
fn content(client: &mut Client) -> Vec<Reply> {
    let mut all = Vec::new();
    for database in ["0", "5"] {
        client.line(&format!("SELECT {database}"));
        let keys = client.line("KEYS *");
        let mut keys: Vec<String> = keys.items().iter().map(Reply::text).collect();
        keys.sort();
        for key in keys {
            all.push(Reply::bulk(&key));
            all.push(client.command(&["GET", &key]));
            all.push(client.command(&["PEXPIRETIME", &key]));
        }
    }
    all
}

#[test]
fn a_pipeline_is_answered_as_its_commands_one_by_one() {
    let servers = [(); 2].map(|()| start(server().threads(1)));
    let config = ProptestConfig {
        cases: 200,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(commands in commands())| {
        let commands = plain(&commands);
        let [mut piped, mut single] = [0, 1].map(|i| Client::connect(servers[i].1));
        for client in [&mut piped, &mut single] {
            client.line("FLUSHALL");
        }
        let (mut replies, mut all, mut expected) = (Replies::default(), Vec::new(), Vec::new());
        for command in &commands {
            let bytes = bytes_of(command);
            single.send(&bytes);
            all.extend(bytes);
            if replies.answers(command) {
                expected.push((*command, single.reply()));
            }
        }
        piped.send(&all);
        for (command, reply) in expected {
            prop_assert_eq!(piped.reply(), reply, "{}", command);
        }
        let mut stored = Vec::new();
        for client in [&mut piped, &mut single] {
            // Replies may be off until the second of these.
            for command in ["DISCARD", "CLIENT REPLY ON", "ECHO end"] {
                client.send(&bytes_of(command));
            }
            while client.reply() != Reply::bulk("end") {}
            stored.push(content(client));
        }
        prop_assert_eq!(&stored[0], &stored[1]);
    });
}

/// Changes of elements; consecutive ones of one large value share a transaction. Other commands
/// stand between them. `N` stands for a number.
const CHANGES: &[&str] = &[
    "HSET h field:N value:N",
    "HSET h field:N 7 new:N 8",
    "HSETNX h field:N 9",
    "HMSET h field:N 10 field:N 11",
    "HDEL h field:N",
    "HINCRBY h count:N 3",
    "HINCRBY h field:N x",
    "HINCRBYFLOAT h count:N 0.5",
    "SADD s member:N new:N",
    "SADD s member:N",
    "SREM s member:N member:N",
    "ZADD z N member:N",
    "ZADD z NX N new:N",
    "ZADD z GT CH N member:N",
    "ZADD z N new:N nan member:N",
    "ZINCRBY z -N member:N",
    "ZREM z member:N",
    "ZPOPMIN z",
    "ZPOPMAX z 3",
    "LPUSH l item:N",
    "RPUSH l item:N item:N",
    "RPUSHX l item:N",
    "LPOP l",
    "RPOP l 2",
    "LSET l N set:N",
    "LSET l -N set:N",
    // With a wrong type or number of arguments, or a missing key.
    "SADD l member:N",
    "LPUSH h item:N",
    "HSET z field:N",
    "HDEL",
    "ZADD none:N 1 a",
    // These end a run.
    "HGET h field:N",
    "ZRANK z member:N",
    "LINDEX l N",
    "SCARD s",
    "LLEN l",
    "ZRANGE z 0 -1 WITHSCORES",
    "DEL h",
    "EXPIREAT s 1",
    "RENAME l z",
    "COPY h s REPLACE",
    "MULTI",
    "EXEC",
];

/// Runs of changes.
fn changes() -> impl Strategy<Value = Vec<String>> {
    let one = (0..CHANGES.len(), 1usize..6, vec(0u32..160, 8));
    vec(one, 1..30).prop_map(|runs| {
        let runs = runs.into_iter().flat_map(|(command, times, numbers)| {
            (0..times).map(move |time| {
                let mut text = CHANGES[command].to_owned();
                for number in numbers.iter().cycle().skip(time).take(4) {
                    text = text.replacen('N', &number.to_string(), 1);
                }
                text
            })
        });
        runs.collect()
    })
}

/// A hash, a set, a sorted set and a list that are large: of more than 4 KiB.
fn fill(client: &mut Client) {
    client.line("FLUSHALL");
    let all = |each: &dyn Fn(u32) -> String| (0..400).map(each).collect::<Vec<_>>().join(" ");
    client.line(&format!(
        "HSET h {}",
        all(&|i| format!("field:{i} value:{i}"))
    ));
    client.line(&format!("SADD s {}", all(&|i| format!("member:{i:020}"))));
    client.line(&format!("ZADD z {}", all(&|i| format!("{i} member:{i}"))));
    client.line(&format!("RPUSH l {}", all(&|i| format!("item:{i:020}"))));
}

/// All their elements after changes.
fn elements(client: &mut Client) -> Vec<Reply> {
    let mut all = Vec::new();
    for key in ["h", "s", "z", "l"] {
        let kind = client.line(&format!("TYPE {key}"));
        let command = match kind.text().as_str() {
            "hash" => format!("HGETALL {key}"),
            "set" => format!("SMEMBERS {key}"),
            "zset" => format!("ZRANGE {key} 0 -1 WITHSCORES"),
            "list" => format!("LRANGE {key} 0 -1"),
            _ => continue,
        };
        let mut items: Vec<String> = client
            .line(&command)
            .items()
            .iter()
            .map(Reply::text)
            .collect();
        if matches!(kind.text().as_str(), "hash" | "set") {
            items.sort();
        }
        all.push(kind);
        all.extend(items.iter().map(Reply::bulk));
    }
    all
}

#[test]
fn changes_of_large_values_in_a_pipeline_are_answered_as_one_by_one() {
    let servers = [(); 2].map(|()| start(server().threads(1)));
    let config = ProptestConfig {
        cases: 100,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(commands in changes())| {
        let [mut piped, mut single] = [0, 1].map(|i| Client::connect(servers[i].1));
        fill(&mut piped);
        fill(&mut single);
        let all: Vec<u8> = commands.iter().flat_map(|command| bytes_of(command)).collect();
        piped.send(&all);
        for command in &commands {
            prop_assert_eq!(piped.reply(), single.line(command), "{}", command);
        }
        let stored = [&mut piped, &mut single].map(|client| {
            client.line("DISCARD");
            elements(client)
        });
        prop_assert_eq!(&stored[0], &stored[1]);
    });
}

/// If runs of changes meet, they are undone and repeated: no change is lost or counted twice.
#[test]
fn pipelines_that_change_one_large_value_lose_nothing() {
    let (_running, address) = start(server().threads(2));
    let mut client = Client::connect(address);
    fill(&mut client);
    let runs = 40;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                for run in 0..runs {
                    let own = format!("HINCRBY h field:new{} 1", run % 7);
                    let run = [
                        &own[..],
                        "ZINCRBY z 1 member:3",
                        "RPUSH l x",
                        "HINCRBY h sum 1",
                    ];
                    let all = run.iter().flat_map(|of| (0..10).flat_map(|_| bytes_of(of)));
                    client.send(&all.collect::<Vec<_>>());
                    for _ in 0..40 {
                        let reply = client.reply();
                        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
                    }
                }
            });
        }
    });
    let changes = 3 * runs * 10;
    assert_eq!(client.line("HGET h sum"), Reply::bulk(changes.to_string()));
    let score = client.line("ZSCORE z member:3");
    assert_eq!(score, Reply::bulk((changes + 3).to_string()));
    assert_eq!(
        client.line("LLEN l"),
        Reply::Integer(400 + i64::from(changes))
    );
}

/// If the store lacks space for a part of a run, it has exactly the changes that were answered with
/// success.
#[test]
fn a_run_of_changes_that_finds_no_space_is_done_as_far_as_there_is() {
    let (_running, address) = start(server().threads(1).memory(64 << 20));
    let mut client = Client::connect(address);
    fill(&mut client);
    let item = "x".repeat(100_000);
    let push = encode(&["RPUSH", "l", &item]);
    client.send(&push.repeat(900));
    let replies: Vec<Reply> = (0..900).map(|_| client.reply()).collect();
    let pushed = replies
        .iter()
        .filter(|reply| matches!(reply, Reply::Integer(_)));
    let pushed = pushed.count() as i64;
    assert!((1..900).contains(&pushed), "{pushed}");
    assert_eq!(client.line("LLEN l"), Reply::Integer(400 + pushed));
    let refused = replies
        .iter()
        .find(|reply| matches!(reply, Reply::Error(_)));
    assert!(refused.unwrap().text().starts_with("OOM "));
}
