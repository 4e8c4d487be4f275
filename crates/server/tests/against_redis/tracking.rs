//! Client-side caching: the same messages, errors and states as from Redis.

use crate::common::{Client, Redis, Reply, encode, server, start};

/// What a client gets up to the reply to `line`, and that: the keys of each message first.
fn notified(client: &mut Client, line: &str) -> (Vec<Reply>, Reply) {
    let words: Vec<&str> = line.split(' ').collect();
    client.send(&encode(&words));
    let mut keys = Vec::new();
    loop {
        match client.reply() {
            Reply::Push(parts) if parts[0] == Reply::bulk("invalidate") => {
                keys.push(parts[1].clone());
            }
            reply => return (keys, crate::without_id(reply)),
        }
    }
}

#[test]
fn clients_that_track_keys_get_the_messages_that_redis_sends() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut client = Client::connect(address);
        let mut writer = Client::connect(address);
        client.line("HELLO 3");
        let mut results = Vec::new();
        for (is_writer, line) in [
            (false, "CLIENT TRACKINGINFO"),
            (false, "CLIENT CACHING YES"),
            (false, "CLIENT TRACKING"),
            (false, "CLIENT TRACKING MAYBE"),
            (false, "CLIENT TRACKING ON FOO"),
            (false, "CLIENT TRACKING ON PREFIX a"),
            (false, "CLIENT TRACKING ON REDIRECT 4711"),
            (false, "CLIENT TRACKING ON REDIRECT x"),
            (false, "CLIENT TRACKING ON BCAST OPTIN"),
            (false, "CLIENT TRACKING ON OPTIN OPTOUT"),
            (false, "CLIENT TRACKING ON BCAST PREFIX ab PREFIX a"),
            (false, "CLIENT TRACKING on"),
            (false, "CLIENT TRACKINGINFO"),
            (false, "CLIENT GETREDIR"),
            (false, "CLIENT CACHING YES"),
            (false, "CLIENT CACHING NO"),
            (false, "CLIENT CACHING FOO"),
            (false, "CLIENT TRACKING ON BCAST"),
            (false, "GET a"),
            (true, "SET a 1"),
            (true, "SET a 2"),
            (false, "MGET a b c"),
            (true, "MSET a 1 b 2"),
            (true, "EXPIRE a 100"),
            (false, "TTL a"),
            (true, "PERSIST a"),
            (false, "EXISTS a b"),
            (true, "RENAME a b"),
            (false, "HGETALL h"),
            (true, "HSET h f 1"),
            (false, "LRANGE l 0 -1"),
            (true, "RPUSH l 1 2"),
            (false, "SMEMBERS s"),
            (true, "SADD s 1"),
            (false, "ZRANGE z 0 -1"),
            (true, "ZADD z 1 a"),
            (true, "LPOP l"),
            (false, "LLEN l"),
            (true, "LPOP l"),
            // Its own changes, and its reads within a transaction.
            (false, "GET a"),
            (false, "SET a own"),
            (false, "MULTI"),
            (false, "GET a"),
            (false, "GET b"),
            (false, "EXEC"),
            (true, "MULTI"),
            (true, "INCR n"),
            (true, "APPEND a x"),
            (true, "DEL b"),
            (true, "EXEC"),
            (false, "GET a"),
            (true, "DEL a"),
            (true, "DEL a"),
            (false, "GET a"),
            (true, "SET elsewhere 1"),
            (true, "FLUSHALL"),
            (false, "GET a"),
            (false, "CLIENT TRACKING ON NOLOOP"),
            (false, "GET a"),
            (false, "SET a own"),
            (false, "GET a"),
            (true, "SET a 1"),
            (false, "CLIENT TRACKINGINFO"),
            (false, "CLIENT TRACKING OFF"),
            (true, "SET a 2"),
            (false, "CLIENT TRACKING ON OPTIN"),
            (false, "CLIENT TRACKING ON OPTOUT"),
            (false, "GET a"),
            (true, "SET a 3"),
            (false, "CLIENT CACHING NO"),
            (false, "CLIENT CACHING YES"),
            (false, "CLIENT TRACKINGINFO"),
            (false, "GET a"),
            (false, "GET b"),
            (true, "MSET a 4 b 5"),
            (false, "CLIENT CACHING YES"),
            (false, "MULTI"),
            (false, "GET a"),
            (false, "GET b"),
            (false, "EXEC"),
            (true, "MSET a 4 b 5"),
            (false, "CLIENT TRACKING OFF"),
            (false, "CLIENT TRACKING ON OPTOUT"),
            (false, "CLIENT CACHING NO"),
            (false, "GET a"),
            (false, "GET b"),
            (true, "MSET a 4 b 5"),
            (false, "CLIENT TRACKING OFF"),
            (false, "CLIENT TRACKING ON BCAST PREFIX a PREFIX c:"),
            (false, "CLIENT TRACKING ON BCAST PREFIX ab"),
            (false, "CLIENT TRACKING ON BCAST PREFIX d"),
            (false, "CLIENT TRACKINGINFO"),
            (true, "MSET dd 0 a 1 b 2 c 3 c:x 4 ax 0 dd 5"),
            (true, "MSET c:x 4 c:a 5"),
            (true, "MSET a 1 b 2"),
            (false, "GET b"),
            (true, "DEL b c:x c:a"),
            (false, "RESET"),
            (false, "HELLO 3"),
            (false, "CLIENT TRACKINGINFO"),
            (true, "SET a 1"),
        ] {
            let reply = match is_writer {
                true => writer.line(line),
                false => {
                    let (notified, reply) = notified(&mut client, line);
                    results.push((line, notified));
                    reply
                }
            };
            results.push((line, vec![crate::without_id(reply)]));
            let (notified, _) = notified(&mut client, "PING");
            results.push(("notified", notified));
        }
        results
    });
    for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours, theirs, "result {index}");
    }
}

#[test]
fn another_client_is_notified_instead() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut client = Client::connect(address);
        let mut target = Client::connect(address);
        let mut writer = Client::connect(address);
        let id = match target.line("CLIENT ID") {
            Reply::Integer(id) => id,
            other => panic!("no number: {other:?}"),
        };
        let mut results = vec![target.line("SUBSCRIBE __redis__:invalidate")];
        results.push(client.line(&format!("CLIENT TRACKING ON REDIRECT {id}")));
        let redirect = client.line("CLIENT GETREDIR");
        results.push(Reply::Integer(i64::from(redirect == Reply::Integer(id))));
        client.line("GET a");
        writer.line("SET a 1");
        results.push(target.reply());
        client.line("GET a");
        writer.line("FLUSHALL");
        results.push(target.reply());
        // A client of the newer protocol without subscriptions.
        let mut other = Client::connect(address);
        other.line("HELLO 3");
        let id = match other.line("CLIENT ID") {
            Reply::Integer(id) => id,
            other => panic!("no number: {other:?}"),
        };
        results.push(client.line(&format!("CLIENT TRACKING ON REDIRECT {id}")));
        client.line("GET a");
        writer.line("SET a 2");
        results.push(other.reply());
        client.line("HELLO 3");
        client.line("GET a");
        writer.line(&format!("CLIENT KILL ID {id}"));
        writer.line("SET a 3");
        match client.reply() {
            Reply::Push(parts) => results.push(parts[0].clone()),
            other => results.push(other),
        }
        let list = writer.line("CLIENT LIST").text();
        let flags = |line: &str| line.contains("flags=tR ");
        results.push(Reply::Integer(
            list.lines().filter(|line| flags(line)).count() as i64,
        ));
        results
    });
    assert_eq!(ours, theirs);
}

/// What a client that has sent these lines at once gets, up to `PONG`.
fn at_once(client: &mut Client, lines: &[&str]) -> Vec<Reply> {
    let lines = lines.iter().chain(&["PING"]);
    let commands = lines.map(|line| encode(&line.split(' ').collect::<Vec<_>>()));
    client.send(&commands.collect::<Vec<_>>().concat());
    let mut replies = Vec::new();
    loop {
        match client.reply() {
            Reply::Simple(pong) if pong == "PONG" => return replies,
            reply => replies.push(crate::without_id(reply)),
        }
    }
}

#[test]
fn keys_that_a_transaction_reads_are_tracked_as_its_commands_before_say() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut results = Vec::new();
        let mut client = Client::connect(address);
        let mut writer = Client::connect(address);
        client.line("HELLO 3");
        for (mode, lines) in [
            ("OFF", ["GET a", "CLIENT TRACKING ON", "GET b"]),
            ("ON OPTIN", ["GET a", "CLIENT CACHING YES", "GET b"]),
            ("ON OPTOUT", ["GET a", "CLIENT CACHING NO", "GET b"]),
            ("ON", ["GET a", "CLIENT TRACKING OFF", "GET b"]),
        ] {
            client.line("CLIENT TRACKING OFF");
            client.line(&format!("CLIENT TRACKING {mode}"));
            let [one, other, third] = lines;
            results.push(at_once(&mut client, &["MULTI", one, other, third, "EXEC"]));
            writer.line("SET a 1");
            writer.line("SET b 1");
            results.push(notified(&mut client, "PING").0);
            // Not the commands after it.
            client.line("GET c");
            writer.line("SET c 1");
            results.push(notified(&mut client, "PING").0);
        }
        results
    });
    assert_eq!(ours, theirs);
}

/// The protocol of a client, and its subscriptions, change with that command, and not only after
/// the pipeline.
#[test]
fn a_client_gets_only_messages_that_it_can_read_at_that_place_of_its_pipeline() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut results = Vec::new();
        let mut client = Client::connect(address);
        let begins = ["HELLO 3", "CLIENT TRACKING ON", "GET a", "SET a 1"];
        results.push(at_once(&mut client, &begins));
        results.push(at_once(&mut client, &["GET a", "HELLO 2", "SET a 2"]));
        results.push(at_once(&mut client, &["HELLO 3", "GET a", "SET a 3"]));
        results.push(at_once(&mut client, &["GET a", "RESET", "SET a 4"]));
        // Messages of another client, which this one receives until it unsubscribes.
        let mut target = Client::connect(address);
        let Reply::Integer(id) = target.line("CLIENT ID") else {
            panic!("no number");
        };
        target.line("SUBSCRIBE __redis__:invalidate");
        client.line(&format!("CLIENT TRACKING ON REDIRECT {id}"));
        client.line("GET a");
        results.push(at_once(&mut target, &["UNSUBSCRIBE", "SET a 5"]));
        results.push(at_once(&mut target, &[]));
        target.line("HELLO 3");
        client.line("GET a");
        results.push(at_once(&mut target, &["HELLO 2", "SET a 6"]));
        results.push(at_once(&mut target, &[]));
        target.line("HELLO 3");
        client.line("GET a");
        results.push(at_once(&mut target, &["RESET", "SET a 7"]));
        results.push(at_once(&mut target, &[]));
        results
    });
    assert_eq!(ours, theirs);
}

/// The keys that the next messages to a client name, `number` of them or more, and how many
/// messages those were.
fn named(client: &mut Client, number: usize) -> (Vec<Reply>, usize) {
    let (mut keys, mut messages) = (Vec::new(), 0);
    while keys.len() < number {
        match client.reply() {
            Reply::Push(parts) => keys.extend(parts[1].items().to_vec()),
            other => panic!("no message: {other:?}"),
        }
        messages += 1;
    }
    (keys, messages)
}

#[test]
fn a_client_that_broadcasts_gets_one_message_for_what_a_pipeline_changes() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut client = Client::connect(address);
        let mut writer = Client::connect(address);
        client.line("HELLO 3");
        client.line("CLIENT TRACKING ON BCAST PREFIX k");
        let lines = [
            "SET kb 1",
            "SET ka 1",
            "MSET ka 2 other 1 kc 1",
            "DEL none",
            "MULTI",
            "SET kd 1",
            "EXEC",
        ];
        let mut results = Vec::new();
        // A pipeline that takes longer than a client may keep others waiting, or that arrives in
        // parts, counts as several.
        let is_one = |client: &mut Client, number: usize| {
            let (mut keys, messages) = named(client, number);
            keys.sort_by(|one, other| one.partial_cmp(other).unwrap());
            (keys, messages == 1)
        };
        let of_others = (0..1_000).find_map(|_| {
            at_once(&mut writer, &lines);
            let (keys, is_one) = is_one(&mut client, 4);
            is_one.then_some(keys)
        });
        results.push(of_others.expect("one message of all keys"));
        // Its own messages after all replies.
        let own = (0..1_000).find_map(|_| {
            let replies = at_once(&mut client, &["SET kf 1", "SET ke 1"]);
            let pushes = replies.iter().filter(|it| matches!(it, Reply::Push(_)));
            match pushes.count() {
                0 => is_one(&mut client, 2).1.then_some(replies),
                _ => {
                    at_once(&mut client, &[]);
                    None
                }
            }
        });
        results.push(own.expect("one message behind all replies"));
        results
    });
    assert_eq!(ours, theirs);
}

/// A message about a key that it has changed itself, before another command that causes messages.
#[test]
fn messages_to_a_client_that_tracks_come_behind_all_replies_of_its_transaction() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut client = Client::connect(address);
        client.line("HELLO 3");
        client.line("CLIENT TRACKING ON");
        client.line("GET a");
        let lines = ["MULTI", "SET a 1", "PUBLISH c x", "STRLEN b", "EXEC"];
        at_once(&mut client, &lines)
    });
    assert_eq!(ours, theirs);
}
