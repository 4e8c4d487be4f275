//! Channels: order, limits, and the end of subscribers.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;

use crate::common::{Client, Reply, debugged, encode, info, server, start};
use mneme_server::settings::Key;

/// The text of a message; `None` if it is not from the channel `name`.
fn message(reply: &Reply, name: &str) -> Option<String> {
    let (Reply::Array(items) | Reply::Push(items)) = reply else {
        return None;
    };
    (items[0].text() == "message" && items[1].text() == name).then(|| items[2].text())
}

/// Numbers of the messages of each publisher, in the order in which a subscriber got them.
type History = Vec<(usize, usize)>;

/// Describes a fault in the messages of the subscribers, if there is one: each must have got all
/// messages of each publisher in order, none twice, and all subscribers in the same order.
fn fault(histories: &[History], publishers: usize, messages: usize) -> Option<&'static str> {
    for history in histories {
        let mut next: BTreeMap<usize, usize> = (0..publishers).map(|one| (one, 0)).collect();
        for (publisher, number) in history {
            let expected = next.get_mut(publisher)?;
            if number < expected {
                return Some("a message came twice, or late");
            }
            if number > expected {
                return Some("a message was lost, or comes late");
            }
            *expected += 1;
        }
        if next.values().any(|next| *next != messages) {
            return Some("messages were lost");
        }
    }
    let differs = histories.iter().any(|history| *history != histories[0]);
    differs.then_some("subscribers got the messages in different orders")
}

#[test]
fn a_history_with_a_lost_a_double_or_a_late_message_is_refused() {
    let right = vec![(0, 0), (1, 0), (1, 1), (0, 1)];
    let judge = |history: History| fault(&[right.clone(), history], 2, 2);
    assert_eq!(judge(right.clone()), None);
    assert!(judge(vec![(0, 0), (1, 0), (1, 1)]).is_some());
    assert!(judge(vec![(0, 0), (0, 0), (1, 0), (1, 1), (0, 1)]).is_some());
    assert!(judge(vec![(0, 1), (1, 0), (1, 1), (0, 0)]).is_some());
    assert!(judge(vec![(1, 0), (0, 0), (1, 1), (0, 1)]).is_some());
}

/// Subscribes, and then reads the `messages` messages that are published to `channel`.
fn subscribe(address: SocketAddr, index: usize, protocol: u8) -> Client {
    let mut client = Client::connect(address);
    client.line(&format!("HELLO {protocol}"));
    let reply = match index % 2 {
        0 => client.line("SUBSCRIBE all"),
        _ => client.line("PSUBSCRIBE al?"),
    };
    assert_eq!(reply.items()[2], Reply::Integer(1));
    client
}

#[test]
fn each_subscriber_gets_all_messages_of_all_publishers_in_one_order() {
    const PUBLISHERS: usize = 4;
    const MESSAGES: usize = 500;
    let (_running, address) = start(server().threads(4));
    let subscribers: Vec<Client> = (0..8)
        .map(|index| subscribe(address, index, 2 + (index / 4) as u8))
        .collect();
    let histories: Vec<History> = std::thread::scope(|scope| {
        let publish = |publisher: usize| {
            let mut client = Client::connect(address);
            for first in (0..MESSAGES).step_by(50) {
                let commands = (first..first + 50).flat_map(|number| {
                    encode(&["PUBLISH", "all", &format!("{publisher} {number}")])
                });
                client.send(&commands.collect::<Vec<_>>());
                for _ in 0..50 {
                    assert_eq!(client.reply(), Reply::Integer(8));
                }
            }
        };
        let receive = |mut client: Client| {
            let read = |_| {
                let reply = client.reply();
                let text = reply.items().last().expect("a message").text();
                let (publisher, number) = text.split_once(' ').expect("two numbers");
                (publisher.parse().unwrap(), number.parse().unwrap())
            };
            (0..PUBLISHERS * MESSAGES).map(read).collect()
        };
        let receivers: Vec<_> = subscribers
            .into_iter()
            .map(|client| scope.spawn(move || receive(client)))
            .collect();
        for publisher in 0..PUBLISHERS {
            scope.spawn(move || publish(publisher));
        }
        receivers
            .into_iter()
            .map(|receiver| receiver.join().unwrap())
            .collect()
    });
    assert_eq!(fault(&histories, PUBLISHERS, MESSAGES), None);
}

#[test]
fn a_message_comes_before_the_reply_to_whatever_was_asked_after_it() {
    let (_running, address) = start(server().threads(4));
    let mut publishers: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    let mut subscriber = Client::connect(address);
    subscriber.line("HELLO 3");
    for round in 0..200 {
        let publisher = &mut publishers[round % 4];
        let name = format!("channel-{round}");
        subscriber.line(&format!("SUBSCRIBE {name}"));
        for number in 0..3 {
            let reply = publisher.line(&format!("PUBLISH {name} {number}"));
            assert_eq!(reply, Reply::Integer(1));
        }
        match round % 2 {
            0 => subscriber.send(b"GET absent\r\n"),
            _ => subscriber.send(format!("UNSUBSCRIBE {name}\r\n").as_bytes()),
        }
        for number in 0..3 {
            let text = message(&subscriber.reply(), &name);
            assert_eq!(text, Some(number.to_string()));
        }
        match round % 2 {
            0 => assert_eq!(subscriber.reply(), Reply::Null),
            _ => assert_eq!(subscriber.reply().items()[0].text(), "unsubscribe"),
        }
    }
}

#[test]
fn no_message_comes_after_the_reply_that_the_subscription_has_ended() {
    let (_running, address) = start(server().threads(4));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    client.line("PUBLISH busy x");
                }
            });
        }
        let mut client = Client::connect(address);
        client.line("HELLO 3");
        for _ in 0..200 {
            client.send(b"SUBSCRIBE busy\r\nUNSUBSCRIBE busy\r\nPING\r\n");
            let mut next = || client.reply();
            assert_eq!(next().items()[0].text(), "subscribe");
            let mut reply = next();
            while reply.items()[0].text() == "message" {
                reply = next();
            }
            assert_eq!(reply.items()[0].text(), "unsubscribe");
            assert_eq!(next(), Reply::Simple("PONG".into()));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Publishes messages until the client that does not read is disconnected; returns the number of
/// bytes.
fn publish_until_cut_off(address: SocketAddr, name: &str) -> usize {
    let mut publisher = Client::connect(address);
    let text = "x".repeat(64 << 10);
    let mut bytes = 0;
    while publisher.command(&["PUBLISH", name, &text]) != Reply::Integer(0) {
        bytes += text.len();
        assert!(bytes < 1 << 30, "it is never cut off");
    }
    bytes
}

#[test]
fn a_subscriber_that_does_not_read_is_cut_off_at_the_limit_of_its_class() {
    let limits = "pubsub 1mb 0 0";
    let (_running, address) = start(server().set(Key::OutputLimit, limits).unwrap());
    for protocol in [2, 3] {
        let mut slow = Client::connect(address);
        slow.line(&format!("HELLO {protocol}"));
        slow.line("SUBSCRIBE slow");
        let bytes = publish_until_cut_off(address, "slow");
        assert!(bytes >= 1 << 20, "{bytes}");
        // The content of its socket's buffers comes, and then the end.
        let mut rest = Vec::new();
        let _ = slow.stream.read_to_end(&mut rest);
        assert!(!rest.is_empty());
    }
}

#[test]
fn a_subscriber_over_the_soft_limit_is_cut_off_after_its_time() {
    let limits = "pubsub 0 256kb 1";
    let (_running, address) = start(server().set(Key::OutputLimit, limits).unwrap());
    let mut slow = Client::connect(address);
    slow.line("SUBSCRIBE slow");
    let mut publisher = Client::connect(address);
    // More than the socket's buffers can hold.
    let text = "x".repeat(1 << 20);
    for _ in 0..16 {
        publisher.command(&["PUBLISH", "slow", &text]);
    }
    // It is disconnected although nothing else happens to it.
    while publisher.line("PUBSUB NUMSUB slow").items()[1] != Reply::Integer(0) {
        std::thread::yield_now();
    }
}

#[test]
fn subscriptions_and_unread_messages_count_for_the_memory_of_clients() {
    let (_running, address) = start(server().set(Key::MaxMemoryClients, "4mb").unwrap());
    let mut greedy = Client::connect(address);
    let names: Vec<String> = (0..100_000).map(|n| format!("channel-{n}")).collect();
    let mut command = vec!["SUBSCRIBE"];
    command.extend(names.iter().map(String::as_str));
    greedy.send(&encode(&command));
    let _ = greedy.rest();
    let mut other = Client::connect(address);
    assert_eq!(info(&mut other, "evicted_clients"), 1);
    while info(&mut other, "pubsub_channels") > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn clients_are_listed_with_their_subscriptions() {
    let (_running, address) = start(server());
    let mut subscriber = Client::connect(address);
    subscriber.line("SUBSCRIBE a b");
    subscriber.reply();
    subscriber.line("PSUBSCRIBE c*");
    subscriber.line("SSUBSCRIBE d");
    let mut other = Client::connect(address);
    let list = other.line("CLIENT LIST TYPE pubsub").text();
    assert_eq!(list.lines().count(), 1);
    assert!(list.contains(" flags=P ") && list.contains(" sub=2 psub=1 ssub=1 "));
    assert_eq!(
        other.line("CLIENT LIST TYPE normal").text().lines().count(),
        1
    );
    for (field, count) in [
        ("pubsub_channels", 2),
        ("pubsub_patterns", 1),
        ("pubsubshard_channels", 1),
    ] {
        assert_eq!(info(&mut other, field), count, "{field}");
    }
    let killed = other.line("CLIENT KILL TYPE pubsub");
    assert_eq!(killed, Reply::Integer(1));
    assert_eq!(subscriber.try_reply(), None);
    while info(&mut other, "pubsub_channels") > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn messages_published_before_the_server_stops_reach_their_subscribers() {
    let (running, address) = start(server());
    let mut subscriber = Client::connect(address);
    subscriber.line("SUBSCRIBE a");
    let mut publisher = Client::connect(address);
    for number in 0..100 {
        publisher.line(&format!("PUBLISH a {number}"));
    }
    running.shutdown();
    for number in 0..100 {
        let text = message(&subscriber.reply(), "a");
        assert_eq!(text, Some(number.to_string()));
    }
    assert_eq!(subscriber.try_reply(), None);
    running.join().unwrap();
}

#[test]
fn all_of_many_subscribers_get_what_was_published_before_the_server_stops() {
    let (running, address) = start(server());
    let mut subscribers: Vec<Client> = (0..200).map(|_| Client::connect(address)).collect();
    for subscriber in &mut subscribers {
        subscriber.line("SUBSCRIBE a");
    }
    let text = "x".repeat(100_000);
    let mut publisher = Client::connect(address);
    publisher.send(&encode(&["PUBLISH", "a", &text]).repeat(3));
    for _ in 0..3 {
        assert_eq!(publisher.reply(), Reply::Integer(200));
    }
    running.shutdown();
    for subscriber in &mut subscribers {
        for _ in 0..3 {
            assert_eq!(message(&subscriber.reply(), "a").as_ref(), Some(&text));
        }
        assert_eq!(subscriber.try_reply(), None);
    }
    running.join().unwrap();
}

#[test]
fn a_message_beyond_the_limit_is_not_sent_in_part() {
    let limits = "pubsub 1mb 0 0";
    let (_running, address) = start(server().set(Key::OutputLimit, limits).unwrap());
    let mut subscriber = Client::connect(address);
    subscriber.line("SUBSCRIBE a");
    let mut publisher = Client::connect(address);
    let text = "x".repeat(1 << 20);
    let reply = publisher.command(&["PUBLISH", "a", &text]);
    assert_eq!(reply, Reply::Integer(1));
    assert!(subscriber.rest().is_empty());
}

#[test]
fn a_publisher_that_is_busy_then_does_not_delay_messages_of_others() {
    let (_running, address) = start(debugged().threads(3));
    let [mut subscriber, mut busy, mut other] = [0; 3].map(|_| Client::connect(address));
    subscriber.line("SUBSCRIBE a");
    busy.send(b"PUBLISH a 1\r\nDEBUG SLEEP 3\r\n");
    let done = |client: &mut Client, command: &str| {
        let text = client.line("INFO commandstats").text();
        text.contains(&format!("cmdstat_{command}:"))
    };
    while !done(&mut other, "publish") {
        std::thread::yield_now();
    }
    other.line("PUBLISH a 2");
    for number in ["1", "2"] {
        let text = message(&subscriber.reply(), "a");
        assert_eq!(text.as_deref(), Some(number));
    }
    assert!(
        !done(&mut other, "debug"),
        "it waited for another publisher"
    );
}

#[test]
fn a_pattern_that_takes_long_to_match_does_not_keep_others_from_matching() {
    let (_running, address) = start(server());
    let [mut hostile, mut subscriber, mut publisher] = [0; 3].map(|_| Client::connect(address));
    // It precedes the other in the order of patterns.
    let pattern = format!("*[{}]b", "a".repeat(1 << 16));
    hostile.command(&["PSUBSCRIBE", &pattern]);
    subscriber.line("PSUBSCRIBE note*");
    let channel = format!("note{}", "a".repeat(8 << 10));
    let reply = publisher.command(&["PUBLISH", &channel, "x"]);
    assert_eq!(reply, Reply::Integer(1));
    assert_eq!(subscriber.reply().items()[3], Reply::bulk("x"));
}

#[test]
fn events_of_a_transaction_that_ends_notifications_do_not_come_later() {
    let (_running, address) = start(server());
    let [mut subscriber, mut client] = [0; 2].map(|_| Client::connect(address));
    subscriber.line("HELLO 3");
    subscriber.line("SUBSCRIBE __keyspace@0__:a");
    client.line("CONFIG SET notify-keyspace-events KA");
    client.line("MULTI");
    client.line("SET a 1");
    client.command(&["CONFIG", "SET", "notify-keyspace-events", ""]);
    client.line("SET a 2");
    assert_eq!(client.line("EXEC").items().len(), 3);
    client.line("CONFIG SET notify-keyspace-events KA");
    client.line("DEL a");
    for event in ["set", "del"] {
        let text = message(&subscriber.reply(), "__keyspace@0__:a");
        assert_eq!(text.as_deref(), Some(event));
    }
    assert_eq!(subscriber.line("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn clients_that_monitor_are_not_idle() {
    let server = server().threads(1).set(Key::Timeout, "1").unwrap();
    let (_running, address) = start(server);
    let [mut monitor, mut idle] = [0; 2].map(|_| Client::connect(address));
    assert_eq!(monitor.line("MONITOR"), Reply::ok());
    assert_eq!(idle.try_reply(), None);
    Client::connect(address).line("PING");
    assert!(monitor.reply().text().ends_with("\"PING\""));
}

#[test]
fn messages_of_others_are_not_amid_the_replies_of_a_transaction() {
    let (_running, address) = start(server().threads(4));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    client.line("PUBLISH busy x");
                }
            });
        }
        let mut client = Client::connect(address);
        client.line("HELLO 3");
        client.line("SUBSCRIBE busy");
        for _ in 0..1_000 {
            client.send(b"MULTI\r\nPUBLISH other x\r\nPUNSUBSCRIBE y\r\nEXEC\r\n");
            let mut next = || {
                let mut reply = client.reply();
                while matches!(reply, Reply::Push(_)) {
                    reply = client.reply();
                }
                reply
            };
            let begun = [next(), next(), next()];
            assert_eq!(begun[2], Reply::Simple("QUEUED".into()));
            let carried_out = next();
            let replies = carried_out.items();
            assert_eq!(replies[0], Reply::Integer(0), "{carried_out:?}");
            assert_eq!(replies[1].items()[0].text(), "punsubscribe");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
