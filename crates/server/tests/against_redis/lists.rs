//! Lists, under the keys that strings and hashes have too, and clients that wait for them.

use crate::common::{Client, Redis, Reply, debugged, encode, info, server, start};
use crate::events_to_the_end;
use crate::generate::{Command, key, line, name, of_a_key, value, words};
use mneme_testkit::Random;
use proptest::collection::vec;
use proptest::prelude::*;

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        8 => (name(&["LPUSH", "RPUSH", "rpush", "RPUSHX", "LPUSHX"]), key(), vec(item(), 1..6))
            .prop_map(|(name, key, items)| [vec![name, key], items].concat()),
        4 => of_a_key(&["LPOP", "RPOP", "LLEN"]),
        2 => (name(&["LPOP", "RPOP"]), key(), count())
            .prop_map(|(name, key, count)| vec![name, key, count]),
        3 => (key(), index()).prop_map(|(key, index)| vec![b"LINDEX".to_vec(), key, index]),
        3 => (key(), index(), item())
            .prop_map(|(key, index, item)| vec![b"LSET".to_vec(), key, index, item]),
        5 => (name(&["LRANGE", "LRANGE", "LTRIM"]), key(), index(), index())
            .prop_map(|(name, key, start, stop)| vec![name, key, start, stop]),
        3 => (key(), name(&["BEFORE", "after", "x"]), item(), item())
            .prop_map(|(key, place, pivot, item)| vec![b"LINSERT".to_vec(), key, place, pivot, item]),
        3 => (key(), count(), item())
            .prop_map(|(key, count, item)| vec![b"LREM".to_vec(), key, count, item]),
        3 => (key(), item(), options()).prop_map(|(key, item, options)| {
            [vec![b"LPOS".to_vec(), key, item], options].concat()
        }),
        4 => (name(&["LMOVE", "RPOPLPUSH", "BRPOPLPUSH", "BLMOVE"]), key(), key(), end(), end())
            .prop_map(|(name, from, to, one, other)| {
                let mut command = vec![name.clone(), from, to];
                if name.ends_with(b"MOVE") {
                    command.extend([one, other]);
                }
                if name.starts_with(b"B") {
                    command.push(b"0.001".to_vec());
                }
                command
            }),
        3 => (name(&["LMPOP", "BLMPOP"]), vec(key(), 1..4), end(), name(&["", " COUNT 3", " count 1"]))
            .prop_map(|(name, keys, end, options)| {
                let mut command = vec![name.clone()];
                if name.starts_with(b"B") {
                    command.push(b"0.001".to_vec());
                }
                command.push(keys.len().to_string().into_bytes());
                command.extend(keys);
                let rest = [end, options].concat();
                command.extend(words(std::str::from_utf8(&rest).expect("text")));
                command
            }),
        2 => (name(&["BLPOP", "BRPOP"]), vec(key(), 1..4))
            .prop_map(|(name, keys)| [vec![name], keys, vec![b"0.001".to_vec()]].concat()),
        2 => line(&[
            "(LPUSH|RPUSHX|LLEN|LINDEX|LSET|LRANGE|LTRIM|LREM|LPOS|LINSERT|LMOVE|RPOPLPUSH)( a)?( b)?( c d e)?",
            "LPOP (a|k[0-2]) (x|-1|0|9223372036854775808)( 1)?", "LPOS k[0-2] a (RANK 0|RANK x|COUNT -1|MAXLEN x|FOO 1|RANK)",
            "LMPOP (0|x|-1|2|9223372036854775807) k[0-2] (LEFT|x)", "LMPOP 1 k[0-2] LEFT (COUNT|COUNT 0|COUNT x|FOO 1|COUNT 1 COUNT 1)",
            "BLPOP k[0-2] (x|-1|nan||inf|-inf|1e30|0x1p-9|-0.01)", "BLMPOP (x|-1) (0|1) k[0-2] (LEFT|x)",
            "BLMOVE k[0-2] k[0-2] (LEFT|x) (RIGHT|y) (-1|x)", "BRPOPLPUSH k[0-2] a (x|-1)",
            "LREM k[0-2] (x|-9223372036854775808) a", "LINDEX (none|k[0-2]) x", "LSET (none|k[0-2]) x a",
            "LRANGE none x 1", "LTRIM none 1 x", "SCAN 0 COUNT 9999 TYPE (list|LIST)",
            "LTRIM k[0-5] (1|-3) (-1|5)", "LPUSH k[0-5] a b c a b c a b c a b c",
        ]),
    ]
}

/// One of a few items, seldom a long or a strange one.
fn item() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => "[a-c]".prop_map(String::into_bytes),
        1 => value(),
    ]
}

fn index() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (-8..8i64).prop_map(|n| n.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        1 => name(&["9223372036854775807", "-9223372036854775808", "-0"]),
    ]
}

fn count() -> impl Strategy<Value = Vec<u8>> {
    (-3..6i64).prop_map(|n| n.to_string().into_bytes())
}

fn end() -> impl Strategy<Value = Vec<u8>> {
    name(&["LEFT", "RIGHT", "left", "RIGHT"])
}

fn options() -> impl Strategy<Value = Command> {
    let option = (name(&["RANK", "COUNT", "MAXLEN", "rank"]), -3..5i64);
    vec(option, 0..3).prop_map(|options| {
        let options = options.into_iter();
        options
            .flat_map(|(name, number)| [name, number.to_string().into_bytes()])
            .collect()
    })
}

/// Clients of one server, and one that reads how many of them wait.
struct Side {
    clients: Vec<Client>,
    looks: Client,
}

impl Side {
    fn of(address: std::net::SocketAddr) -> Side {
        Side {
            clients: (0..4).map(|_| Client::connect(address)).collect(),
            looks: Client::connect(address),
        }
    }

    /// Waits until `count` clients wait.
    fn await_blocked(&mut self, count: u64) {
        while info(&mut self.looks, "blocked_clients") != count {
            std::thread::yield_now();
        }
    }
}

/// A step: the client, its command, and how many clients wait afterwards.
type Step = (usize, &'static str, u64);

/// Sends the commands in order to both servers, each after the one before has taken effect, and
/// compares all replies.
fn compare(steps: &[Step]) {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let mut sides = [address, redis.address].map(Side::of);
    let (mut unread, mut before) = ([0; 4], 0);
    let read = |sides: &mut [Side; 2], client: usize, unread: &mut usize| {
        let [ours, theirs] = sides.each_mut().map(|side| {
            let client = &mut side.clients[client];
            let reply = |_| crate::without_id(client.reply());
            (0..*unread).map(reply).collect::<Vec<_>>()
        });
        assert_eq!(ours, theirs, "client {client} of {steps:?}");
        *unread = 0;
    };
    for (client, line, blocked) in steps {
        for side in &mut sides {
            let words: Vec<&str> = line.split(' ').collect();
            side.clients[*client].send(&encode(&words));
            side.await_blocked(*blocked);
        }
        unread[*client] += 1;
        if *blocked <= before {
            read(&mut sides, *client, &mut unread[*client]);
        }
        before = *blocked;
    }
    for (client, unread) in unread.iter_mut().enumerate() {
        read(&mut sides, client, unread);
    }
}

#[test]
fn clients_that_wait_get_what_they_get_from_redis() {
    compare(&[
        (0, "BLPOP a b 0", 1),
        (1, "BRPOP a 0", 2),
        (2, "BLMPOP 0 2 b a RIGHT COUNT 2", 3),
        // One each, in the order in which they came.
        (3, "RPUSH a 1", 2),
        (3, "RPUSH a 2 3 4", 0),
        (3, "LRANGE a 0 -1", 0),
        (3, "DEL a", 0),
        // Of another type, so not for them.
        (0, "BLPOP a 0", 1),
        (1, "BLMOVE a c LEFT RIGHT 0", 2),
        (3, "SET a text", 2),
        (3, "DEL a", 2),
        (3, "HSET a f v", 2),
        (3, "DEL a", 2),
        (3, "LPUSH a x y", 0),
        (3, "LRANGE c 0 -1", 0),
        // The destination is not a list.
        (1, "BRPOPLPUSH a s 0", 1),
        (3, "SET s text", 1),
        (3, "LPUSH a z", 0),
        (3, "LRANGE a 0 -1", 0),
        (3, "DEL a c", 0),
        // From a list with a waiting client to another.
        (0, "BRPOPLPUSH b a 0", 1),
        (1, "BRPOPLPUSH a b 0", 2),
        (2, "BLPOP b 0", 3),
        (3, "RPUSH a first", 1),
        (3, "LPUSH b second", 0),
        (3, "LRANGE a 0 -1", 0),
        (3, "DEL a b", 0),
        // To itself.
        (0, "BRPOPLPUSH a a 0", 1),
        (3, "RPUSH a itself", 0),
        (3, "LRANGE a 0 -1", 0),
        (3, "DEL a", 0),
        // Items that come and go within a transaction are given to no client.
        (0, "BLPOP a 0", 1),
        (3, "MULTI", 1),
        (3, "RPUSH a 1", 1),
        (3, "DEL a", 1),
        (3, "RPUSH a 2", 1),
        (3, "EXEC", 0),
        (0, "MULTI", 0),
        (0, "BLPOP a 0", 0),
        (0, "BLMOVE a b LEFT LEFT 0", 0),
        (0, "BLMPOP 0 1 a LEFT", 0),
        (0, "EXEC", 0),
    ]);
}

/// A client that waits for a list and one that waits for a sorted set do not affect each other.
#[test]
fn clients_that_wait_for_sorted_sets_get_what_they_get_from_redis() {
    compare(&[
        (0, "BZPOPMIN a b 0", 1),
        (1, "BLPOP a 0", 2),
        (2, "BZMPOP 0 2 b a MAX COUNT 2", 3),
        (3, "ZADD b 1.5 x", 2),
        (3, "ZADD a 1 x 2 y 3 z", 1),
        (3, "ZRANGE a 0 -1 WITHSCORES", 1),
        (3, "DEL a", 1),
        (3, "RPUSH a item", 0),
        (0, "HELLO 3", 0),
        (0, "BZPOPMAX a b 0", 1),
        (2, "BZPOPMAX a 0", 2),
        (3, "ZADD c 1 one 2.25 two", 2),
        (3, "ZUNIONSTORE a 1 c", 0),
        (0, "BZPOPMIN a 0", 1),
        (3, "ZINCRBY a inf x", 0),
        (0, "BZPOPMIN a 0", 1),
        (3, "ZRANGESTORE a c 0 0", 0),
        (0, "BZPOPMIN a 0", 1),
        (3, "RENAME c a", 0),
        (3, "DEL a", 0),
        (0, "BZPOPMIN a 0.01", 0),
        (0, "BZMPOP 0.01 1 a MIN", 0),
        (0, "MULTI", 0),
        (0, "BZPOPMIN a 0", 0),
        (0, "BZMPOP 0 1 a MIN", 0),
        (0, "EXEC", 0),
        (0, "BZPOPMIN a x", 0),
        (0, "BZMPOP -1 1 a MIN", 0),
        (0, "BZMPOP x 0 a MIN", 0),
    ]);
}

#[test]
fn a_key_that_comes_from_elsewhere_is_as_good_as_one_that_is_pushed_to() {
    compare(&[
        (3, "RPUSH list 1 2", 0),
        (3, "OBJECT ENCODING list", 0),
        (0, "BLPOP a 0", 1),
        (3, "RENAME list a", 0),
        (0, "BLPOP b 0", 1),
        (3, "COPY a b", 0),
        (0, "SELECT 3", 0),
        (0, "BLPOP a 0", 1),
        (1, "BLPOP c 0", 2),
        (3, "MOVE a 3", 1),
        (3, "RPUSH d x", 1),
        (3, "RENAMENX d c", 0),
        (0, "BLPOP e 0", 1),
        (3, "RPUSH e of-another-database", 1),
        (3, "SWAPDB 0 3", 0),
        (3, "SWAPDB 0 3", 0),
        (1, "SELECT 5", 0),
        (1, "BLPOP f 0", 1),
        (3, "RPUSH f y", 1),
        (3, "COPY f f DB 5", 0),
    ]);
}

#[test]
fn a_wait_ends_when_its_time_is_up_or_another_client_says_so() {
    compare(&[
        (0, "BLPOP a 0.05", 0),
        (0, "BRPOPLPUSH a b 0.01", 0),
        (0, "HELLO 3 SETNAME x", 0),
        (0, "BLMOVE a b LEFT LEFT 0.01", 0),
        (0, "BLMPOP 0.01 1 a LEFT", 0),
        (3, "CLIENT UNBLOCK 4711", 0),
        (3, "CLIENT UNBLOCK x", 0),
        (3, "CLIENT UNBLOCK 1 FOO", 0),
    ]);
}

#[test]
fn commands_behind_one_that_waits_wait_too() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut side = Side::of(address);
        let pipeline = [
            &["SET", "x", "1"][..],
            &["BLPOP", "a", "0"],
            &["INCR", "x"],
            &["BLPOP", "a", "b", "0"],
            &["GET", "x"],
        ];
        let pipeline: Vec<u8> = pipeline
            .iter()
            .flat_map(|command| encode(command))
            .collect();
        side.clients[0].send(&pipeline);
        side.await_blocked(1);
        let before = side.clients[1].line("GET x");
        let pushed = side.clients[1].line("RPUSH a 1 2 3");
        let replies: Vec<Reply> = (0..5).map(|_| side.clients[0].reply()).collect();
        (
            before,
            pushed,
            replies,
            side.clients[1].line("LRANGE a 0 -1"),
        )
    });
    assert_eq!(ours, theirs);
}

/// Changes of one large value that come in a pipeline are made together.
#[test]
fn changes_of_large_values_in_pipelines_have_the_replies_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(debugged());
    let mut clients = [address, redis.address].map(Client::connect);
    let mut random = Random::new(11);
    let mut below = |bound: u64| random.below(bound);
    let long = "x".repeat(200);
    for round in 0..400 {
        let mut lines = Vec::new();
        // Also for a list that becomes small and large again.
        let is_low = round % 40 < 5;
        for _ in 0..below(70) + 1 {
            let (item, place) = (below(300), below(100) as i64 - 50);
            lines.push(match (round % 4, below(12)) {
                (0..2, 0..3) => format!("LPUSH l {item} {item}-{long}"),
                (0..2, 3..5) => format!("RPUSH l {item}-{long}"),
                (0..2, 5..8) => format!("RPOP l {}", 1 + below(3) + 30 * u64::from(is_low)),
                (0..2, 8..10) => format!("LPOP l {}", 1 + below(3) + 30 * u64::from(is_low)),
                (0, 10) => format!("LINSERT l BEFORE {item} new"),
                (0, _) => format!("LREM l {} {item}", place % 2),
                (1, 10) => format!("LSET l {place} {item}"),
                (1, _) => "HSET l field value".to_owned(),
                (2, 0..4) => format!("HSET h f{item} {item}-{long} g{item} {place}"),
                (2, 4..7) => format!("HDEL h f{item} g{place}"),
                (2, 7..9) => format!("HINCRBY h n{item} {place}"),
                (2, _) => format!("HSETNX h f{item} {long}"),
                (3, 0..5) => format!("ZADD z {place} m{item}-{long} {item} n{item}"),
                (3, 5..8) => format!("ZREM z m{item}-{long} n{item}"),
                (3, 8..10) => format!("ZINCRBY z 1 n{item}"),
                _ => format!("ZADD z nan m{item}"),
            });
        }
        lines.extend(
            [
                "LRANGE l 0 -1",
                "LLEN l",
                "ZRANGE z 0 -1 WITHSCORES",
                "HLEN h",
            ]
            .map(str::to_owned),
        );
        let words = |line: &String| {
            line.split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect()
        };
        let commands: Vec<Command> = lines.iter().map(words).collect();
        let bytes: Vec<u8> = commands
            .iter()
            .flat_map(|command| encode(command))
            .collect();
        clients.iter_mut().for_each(|client| client.send(&bytes));
        for line in &lines {
            let [ours, theirs] = clients.each_mut().map(|client| client.reply());
            assert_eq!(ours, theirs, "{line}");
        }
    }
}

/// Commands on large lists, beside expiry, transactions and other keys.
#[test]
fn commands_on_large_lists_have_the_replies_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(debugged());
    let mut clients = [address, redis.address].map(Client::connect);
    let mut random = Random::new(7);
    let mut below = |bound: u64| random.below(bound);
    let mut both = |line: &str| {
        let [ours, theirs] = clients.each_mut().map(|client| client.line(line));
        assert_eq!(ours, theirs, "{line}");
    };
    let long = "x".repeat(300);
    for number in 0..200 {
        both(&format!("RPUSH l{} {number}-{long} {number}", number % 3));
    }
    for _ in 0..1_500 {
        let (list, other) = (below(3), below(3));
        let (index, item) = (below(260) as i64 - 130, below(400));
        both(&match below(20) {
            0 => format!("LINDEX l{list} {index}"),
            1 => format!("LSET l{list} {index} {item}-{long}"),
            2 => format!("LRANGE l{list} {index} {}", index + 9),
            3 => format!("LINSERT l{list} BEFORE {item} {item}"),
            4 => format!("LINSERT l{list} AFTER {item} {item}-{long}"),
            5 => format!("LREM l{list} {} {item}", below(3) as i64 - 1),
            6 => format!(
                "LPOS l{list} {item} RANK {} COUNT 0",
                1 - 2 * below(2) as i64
            ),
            7 => format!("LMOVE l{list} l{other} LEFT RIGHT"),
            8 => format!("RPOPLPUSH l{list} l{other}"),
            9 => format!("LMPOP 2 none l{list} RIGHT COUNT 2"),
            10 => format!("LPOP l{list} 2"),
            11..14 => format!("LPUSH l{list} {item} {item}-{long}"),
            14..17 => format!("RPUSH l{list} {item} {item}-{long}"),
            17 => format!("LTRIM l{list} {} -1", below(2)),
            18 => format!("LLEN l{list}"),
            _ => format!("LRANGE l{list} 0 -1"),
        });
    }
    for line in [
        "TYPE l0",
        "OBJECT ENCODING l0",
        "COPY l0 copy",
        "LRANGE copy 0 -1",
        "RPUSH copy more",
        "LLEN l0",
        "RENAME copy renamed",
        "MOVE renamed 3",
        "EXPIRE l1 1000",
        "LMOVE l1 l1 LEFT RIGHT",
        "PERSIST l1",
        "MULTI",
        "LPUSH l0 a",
        "LPOP l0 3",
        "DEL l2",
        "LLEN l2",
        "EXEC",
        "GET l0",
        "LTRIM l0 0 0",
        "LRANGE l0 0 -1",
        "LPOP l0",
        "EXISTS l0",
        "LTRIM l1 1 0",
        "EXISTS l1",
        "SELECT 3",
        "LRANGE renamed 0 -1",
        "LPOP renamed 100000",
        "EXISTS renamed",
    ] {
        both(line);
    }
}

/// Events of lists, in the order in which Redis reports them.
#[test]
fn events_of_lists_are_those_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(debugged());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut client = Client::connect(address);
        let mut listener = Client::connect(address);
        client.line("CONFIG SET notify-keyspace-events KEAn");
        listener.line("PSUBSCRIBE __key*");
        for line in [
            "RPUSH a 1 2 3 4 5 6 7",
            "LPUSH a 0",
            "LPUSHX none 1",
            "RPUSHX a 8",
            "LPOP a",
            "RPOP a 2",
            "LPOP a 0",
            "LPOP none",
            "LINSERT a BEFORE 3 x",
            "LINSERT a AFTER nosuch x",
            "LSET a 0 y",
            "LREM a 0 nosuch",
            "LREM a 0 x",
            "LTRIM a 0 -1",
            "LTRIM a 1 -1",
            "LMOVE a b LEFT RIGHT",
            "LMOVE a a LEFT RIGHT",
            "RPOPLPUSH b a",
            "LMPOP 2 none a LEFT COUNT 2",
            "BLPOP a 0",
            "BRPOPLPUSH a b 0",
            "LTRIM b 5 6",
            "RPUSH c 1",
            "LREM c 1 1",
            "RPUSH d 1",
            "BLMPOP 0 1 d LEFT",
            "RPUSH e 1",
            "RPOPLPUSH e e",
            "MULTI",
            "RPUSH f 1",
            "LPOP f",
            "EXEC",
            "PUBLISH __key_end 1",
        ] {
            client.line(line);
        }
        events_to_the_end(&mut listener)
    });
    assert_eq!(ours, theirs);
}

#[test]
fn a_command_that_waits_is_counted_and_shown_to_those_that_monitor_when_it_is_called() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut side = Side::of(address);
        let id = match side.clients[0].line("CLIENT ID") {
            Reply::Integer(id) => id,
            other => panic!("no number: {other:?}"),
        };
        let mut monitor = Client::connect(address);
        monitor.line("MONITOR");
        let unblock = format!("CLIENT UNBLOCK {id} ERROR");
        let steps = [
            (0, "BLPOP a 0", 1),
            (3, "RPUSH a 1 2", 0),
            (0, "BLPOP a 0", 0),
            (0, "BRPOPLPUSH a b 0", 1),
            (3, unblock.as_str(), 0),
            (0, "BLPOP a 0.01", 0),
            (0, "BLPOP a 0", 1),
            (1, "BLPOP a 0", 2),
            (3, "RPUSH a 1", 1),
            (3, "SET a text", 1),
            (3, "PUBLISH end 1", 1),
        ];
        let (mut counts, mut unread, mut before) = (Vec::new(), [0; 4], 0);
        for (client, line, blocked) in steps {
            let words: Vec<&str> = line.split(' ').collect();
            side.clients[client].send(&encode(&words));
            unread[client] += 1;
            if blocked <= before {
                (0..std::mem::take(&mut unread[client])).for_each(|_| {
                    side.clients[client].reply();
                });
            }
            side.await_blocked(blocked);
            before = blocked;
            let info = side.looks.line("INFO commandstats").text();
            let is_one = |line: &&str| line.contains("_bl") || line.contains("_br");
            let mut lines: Vec<&str> = info.lines().filter(is_one).collect();
            lines.sort_unstable();
            // Apart from the time.
            let parts = lines
                .iter()
                .flat_map(|line| line.split([':', ',']).map(String::from));
            let parts = parts.filter(|part| !part.starts_with("usec"));
            counts.push(parts.collect::<Vec<_>>());
        }
        let mut shown = Vec::new();
        loop {
            let line = monitor.reply().text();
            let command = line.split(']').nth(1).unwrap().trim().to_owned();
            if command.contains("\"end\"") {
                return (counts, shown);
            }
            if !command.contains("INFO") {
                shown.push(command);
            }
        }
    });
    assert_eq!(ours, theirs);
}

/// After `SWAPDB`, each key that a client waits for in the exchanged databases is given to the
/// first client that waits for it, if it has the right type.
#[test]
fn databases_that_are_exchanged_wake_those_whose_keys_are_there() {
    compare(&[
        (3, "RPUSH a 1 2", 0),
        (3, "SET text x", 0),
        (3, "RPUSH b 3", 0),
        (3, "SELECT 1", 0),
        (0, "SELECT 1", 0),
        (1, "SELECT 1", 0),
        (2, "SELECT 1", 0),
        (0, "BLPOP none text a 0", 1),
        (1, "BLPOP a 0", 2),
        (2, "BLPOP none b 0", 3),
        (3, "SWAPDB 2 3", 3),
        (3, "SWAPDB 0 1", 0),
        (3, "KEYS *", 0),
    ]);
}

/// Keys that a command has missed are reported, and counted, although the command then fails.
#[test]
fn misses_of_a_command_that_fails_are_those_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut client = Client::connect(address);
        let mut listener = Client::connect(address);
        let mut looks = Client::connect(address);
        client.line("CONFIG SET notify-keyspace-events KEAm");
        listener.line("PSUBSCRIBE __key*");
        let mut results = Vec::new();
        for line in [
            "SET text x",
            "SUNION none text",
            "SINTER text none",
            "SDIFF none1 none2 text none3",
            "SUNIONSTORE to none text",
            "ZUNION 2 none text",
            "LRANGE none 0 -1",
            "LRANGE text 0 -1",
            "MULTI",
            "SUNION none text",
            "SET other x",
            "EXEC",
            "LMPOP 2 none text LEFT",
            "BLPOP none text 0",
            "PUBLISH __key_end 1",
        ] {
            let reply = client.line(line);
            let stats = looks.line("INFO stats").text();
            let misses = stats.lines().find(|line| line.contains("keyspace_misses"));
            results.push((line, reply, misses.map(String::from)));
        }
        (results, events_to_the_end(&mut listener))
    });
    assert_eq!(ours, theirs);
}
