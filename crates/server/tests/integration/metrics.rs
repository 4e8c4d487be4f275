//! Metrics for Prometheus: they equal `INFO`, in a form that a strict reader accepts, whatever
//! other connections do.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::common::{Client, Reply, encode, info, server, start};
use crate::exposition::Page;
use mneme_server::{Running, StartError};
use mneme_sys::ManualClock;

fn measured() -> mneme_server::Server {
    server().metrics(([127, 0, 0, 1], 0).into())
}

fn place(running: &Running) -> SocketAddr {
    running.metrics().expect("it was asked for")
}

/// The complete answer to a connection's request.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn scrape(address: SocketAddr) -> Page {
    let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| *found == name).unwrap().1
    };
    assert_eq!(
        header("Content-Type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    assert_eq!(header("Content-Length"), body.len().to_string());
    Page::read(body)
}

#[test]
fn metrics_are_off_by_default() {
    let (running, _) = start(server());
    assert_eq!(running.metrics(), None);
}

#[test]
fn an_address_that_is_taken_is_named() {
    let (running, _) = start(measured());
    let taken = place(&running);
    match server().metrics(taken).start() {
        Err(StartError::AddressInUse { address }) => assert_eq!(address, taken),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two servers at one address"),
    }
}

/// The text of `INFO`.
struct Info(String);

impl Info {
    fn number(&self, name: &str) -> f64 {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines
            .find(|(found, _)| *found == name)
            .unwrap_or_else(|| panic!("no {name}"));
        value.parse().unwrap()
    }

    /// One number of a line, such as `calls` of `cmdstat_get`.
    fn part(&self, name: &str, part: &str) -> f64 {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name));
        let list = line.unwrap_or_else(|| panic!("no {name}"));
        let mut parts = list.trim_start_matches(':').split(',');
        let value = parts.find_map(|one| one.strip_prefix(part)?.strip_prefix('='));
        value.unwrap().parse().unwrap()
    }
}

#[test]
fn metrics_equal_info() {
    let (running, address) = start(measured());
    let mut client = Client::connect(address);
    for line in [
        "SET a 1",
        "GET a",
        "GET b",
        "INCR a",
        "SELECT 3",
        "SET text x",
        "INCR text",
        "GET",
        "NOSUCH",
        "PEXPIRE text 1",
    ] {
        client.line(line);
    }
    // Until the store has removed the expired key.
    while info(&mut client, "expired_keys") == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    client.line("SET c 1");
    client.line("SET d 1 EX 1000");
    let page = scrape(place(&running));
    let info = Info(client.line("INFO everything").text());
    for (series, name) in [
        ("mneme_connected_clients", "connected_clients"),
        ("mneme_channels", "pubsub_channels"),
        ("mneme_channel_patterns", "pubsub_patterns"),
        ("mneme_shard_channels", "pubsubshard_channels"),
        ("mneme_max_clients", "maxclients"),
        ("mneme_blocked_clients", "blocked_clients"),
        (
            "mneme_connections_received_total",
            "total_connections_received",
        ),
        ("mneme_connections_rejected_total", "rejected_connections"),
        // A command is counted after its reply is made.
        ("mneme_commands_processed_total", "total_commands_processed"),
        ("mneme_keyspace_hits_total", "keyspace_hits"),
        ("mneme_keyspace_misses_total", "keyspace_misses"),
        ("mneme_expired_keys_total", "expired_keys"),
        ("mneme_evicted_keys_total", "evicted_keys"),
        ("mneme_memory_capacity_bytes", "maxmemory"),
        ("mneme_memory_bytes{use=\"live\"}", "used_memory_dataset"),
        ("mneme_memory_bytes{use=\"index\"}", "mneme_index_bytes"),
        ("mneme_memory_bytes{use=\"tables\"}", "mneme_table_bytes"),
        ("mneme_slowlog_entries", "slowlog_len"),
        ("mneme_io_threads", "io_threads"),
    ] {
        assert_eq!(page.value(series), info.number(name), "{series} and {name}");
    }
    for command in ["get", "set", "incr", "select", "pexpire"] {
        for (series, name) in [
            ("mneme_command_calls_total", "calls"),
            ("mneme_command_failures_total", "failed_calls"),
            ("mneme_command_rejections_total", "rejected_calls"),
        ] {
            let series = format!("{series}{{command=\"{command}\"}}");
            let counted = info.part(&format!("cmdstat_{command}"), name);
            assert_eq!(page.value(&series), counted, "{series}");
        }
        let count = format!("mneme_command_duration_seconds_count{{command=\"{command}\"}}");
        let calls = format!("mneme_command_calls_total{{command=\"{command}\"}}");
        assert_eq!(page.value(&count), page.value(&calls));
    }
    assert_eq!(
        page.value("mneme_error_replies_total{code=\"ERR\"}"),
        info.part("errorstat_ERR", "count")
    );
    for database in [0, 3] {
        for (series, name) in [
            ("mneme_database_keys", "keys"),
            ("mneme_database_expiring_keys", "expires"),
        ] {
            let series = format!("{series}{{database=\"{database}\"}}");
            let counted = info.part(&format!("db{database}"), name);
            assert_eq!(page.value(&series), counted, "{series}");
        }
    }
    let drawn = |kind: &str| {
        page.value(&format!(
            "mneme_database_drawn_keys{{database=\"3\",type=\"{kind}\"}}"
        ))
    };
    assert!(drawn("string") > 0.0);
    assert_eq!(info.part("types_db3", "drawn"), drawn("string"));
    let uses: f64 = page.beginning("mneme_memory_bytes{").map(|(_, v)| v).sum();
    assert_eq!(uses, page.value("mneme_memory_capacity_bytes"));
    let build = page.beginning("mneme_build_info{").next().unwrap();
    assert!(build.0.contains("redis_version=\"7.0.15\"") && build.1 == 1.0);
    assert!(page.value("mneme_process_resident_bytes") > 0.0);
}

#[test]
fn counters_only_grow_while_clients_work_and_end_at_what_was_done() {
    let (running, address) = start(measured());
    let place = place(&running);
    let work = |number: usize| {
        move || {
            let mut client = Client::connect(address);
            let key = format!("k{number}");
            for _ in 0..200 {
                client.send(
                    &[
                        encode(&["SET", &key, "1"]).repeat(5),
                        encode(&["GET", &key]),
                    ]
                    .concat(),
                );
                (0..6).for_each(|_| drop(client.reply()));
            }
        }
    };
    let workers: Vec<_> = (0..4).map(|n| std::thread::spawn(work(n))).collect();
    let mut before = scrape(place);
    while workers.iter().any(|worker| !worker.is_finished()) {
        let page = scrape(place);
        page.must_follow(&before);
        before = page;
    }
    workers.into_iter().for_each(|w| w.join().unwrap());
    let page = scrape(place);
    page.must_follow(&before);
    for (command, calls) in [("set", 4000.0), ("get", 800.0)] {
        for series in [
            "mneme_command_calls_total",
            "mneme_command_duration_seconds_count",
        ] {
            let series = format!("{series}{{command=\"{command}\"}}");
            assert_eq!(page.value(&series), calls, "{series}");
        }
    }
    assert_eq!(page.value("mneme_keyspace_hits_total"), 800.0);
}

#[test]
fn times_that_were_not_tracked_are_in_no_distribution() {
    let (running, address) = start(measured());
    let mut client = Client::connect(address);
    client.line("CONFIG SET latency-tracking no");
    client.line("SET a 1");
    client.line("CONFIG SET latency-tracking yes");
    client.line("SET a 1");
    let page = scrape(place(&running));
    let of = |name: &str| page.value(&format!("{name}{{command=\"set\"}}"));
    assert_eq!(of("mneme_command_calls_total"), 2.0);
    assert_eq!(of("mneme_command_duration_seconds_count"), 1.0);
    assert!(of("mneme_command_duration_seconds_sum") < of("mneme_command_seconds_total"));
}

/// Clients cannot be so many that no descriptor is left for a scraper.
#[test]
fn descriptors_of_scrapers_are_not_clients() {
    const SCRAPERS: u64 = 64;
    let possible = |server| -> u64 {
        let (_running, address) = start(server);
        let refused = Client::connect(address).line("CONFIG SET maxclients 4000000000");
        let Reply::Error(refused) = refused else {
            panic!("nobody has so many descriptors");
        };
        refused.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let (without, with) = (possible(server()), possible(measured()));
    assert!(with + SCRAPERS <= without, "{with} and {without}");
}

#[test]
fn other_connections_do_not_delay_a_scraper() {
    let (running, address) = start(measured());
    let place = place(&running);
    let mut client = Client::connect(address);
    let status = |request: &[u8]| ask(place, request)[..12].to_owned();
    assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405");
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
    assert_eq!(status(b"*1\r\n$4\r\nPING\r\n"), "HTTP/1.1 400");
    assert_eq!(status(&[0xff; 100]), "HTTP/1.1 400");
    let long = [b"GET /".as_slice(), &[b'a'; 9000]].concat();
    assert_eq!(status(&long), "HTTP/1.1 431");
    // An unexpected body does not change the answer.
    let with_body = [b"POST / HTTP/1.1\r\n\r\n".as_slice(), &[b'a'; 20_000]].concat();
    assert_eq!(status(&with_body), "HTTP/1.1 405");

    // More connections than the limit: some send nothing, some a part, some have closed, some do
    // not read.
    let mut crowd = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(place).unwrap();
        let said: &[u8] = match number % 4 {
            0 => b"",
            1 => b"GET /metr",
            2 => b"GET /metrics HTTP/1.1\r\n\r\n",
            _ => b"\r\n",
        };
        // The server may have closed it already.
        let _ = stream.write_all(said);
        if number % 5 != 0 {
            crowd.push(stream);
        }
    }
    scrape(place);
    assert_eq!(client.line("PING"), Reply::Simple("PONG".into()));

    // One byte at a time is slow, but valid.
    let mut slow = TcpStream::connect(place).unwrap();
    slow.set_nodelay(true).unwrap();
    for byte in b"GET /metrics HTTP/1.1\r\n\r\n" {
        slow.write_all(&[*byte]).unwrap();
        assert_eq!(client.line("PING"), Reply::Simple("PONG".into()));
    }
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    Page::read(answer.split_once("\r\n\r\n").unwrap().1);

    // Open connections do not keep the server from ending.
    running.shutdown();
    running.join().unwrap();
    drop(crowd);
}

#[test]
fn a_silent_connection_is_closed() {
    let clock = Arc::new(ManualClock::new(0, 1_700_000_000_000));
    let (running, _) = start(measured().clock(Arc::clone(&clock) as Arc<_>));
    let place = place(&running);
    let mut silent = TcpStream::connect(place).unwrap();
    silent
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    silent.write_all(b"GET ").unwrap();
    // When a later connection has been answered, this one has been accepted.
    scrape(place);
    clock.advance_ms(11_000);
    scrape(place);
    // With or without unread bytes: an end or a reset.
    let ended = silent.read(&mut [0; 16]);
    assert!(
        matches!(ended, Ok(0))
            || ended.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset)
    );
}

/// Scrapers that connect faster than they are answered.
#[test]
fn a_flood_of_scrapers_keeps_no_server_from_ending() {
    let (running, _) = start(measured());
    let (address, floods) = (place(&running), AtomicBool::new(true));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while floods.load(Ordering::Relaxed) {
                    let stream = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                    stream.set_nonblocking(true).unwrap();
                    // If the queue is full, the next connection is tried at once.
                    let _ = stream.connect(&address.into());
                    let _ = stream.send(b"GET /metrics HTTP/1.1\r\n\r\n");
                }
            });
        }
        // By then the connections are waiting.
        std::thread::sleep(Duration::from_millis(500));
        let (send, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(running);
            send.send(())
        });
        let ended = ended.recv_timeout(Duration::from_secs(60));
        floods.store(false, Ordering::Relaxed);
        assert!(ended.is_ok());
    });
}
