//! A client is served beside many hostile connections: some send nothing, some send half a command
//! or garbage, some do not read their replies.
//!
//! There are a few hundred of them; with `MNEME_LADDER_SECS`, 100,000 (or
//! `MNEME_LADDER_CONNECTIONS`), or as many as the limit on open files allows this machine's server,
//! and further ones that are refused. Prints the latency of the client's commands, alone and beside
//! the others, and the memory of an idle connection; also those of Redis 7.0 if it is installed.
//! Latencies are only printed, not checked.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::serving::{self, Serving};
use std::process::{Command, Stdio};

use mneme_testkit::{Process, setting};

/// The role of the test's other processes: the server's port, the kind of connection, the first
/// alias of the loopback address, and the number of connections.
const CROWD: &str = "MNEME_TEST_CROWD";

/// The number of connections of one other process: below the usual limits on open files and on the
/// ports of one address.
const EACH: usize = 15_000;

/// The number of descriptors that a process needs besides its connections.
const OTHERS: usize = 200;

const LARGE: usize = 64 << 10;

/// Starts another process with connections. Returns when all of them are open.
fn start(port: u16, kind: &str, alias: usize, count: usize) -> Process {
    let order = format!("{port} {kind} {alias} {count}");
    let mut crowd = Process::start_talking("one_process_of_the_crowd", [(CROWD, order)]);
    let report = std::iter::from_fn(|| crowd.line()).find(|line| line.contains("there:"));
    println!("{kind}: {}", report.expect("the crowd gathers"));
    crowd
}

/// A connection to an alias of the loopback address; each alias has ports of its own.
fn connect(alias: usize, port: u16) -> TcpStream {
    let address = std::net::SocketAddr::from(([127, 0, 0, alias as u8], port));
    let client = TcpStream::connect(address).expect("the server listens");
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    client
}

/// The code of the other processes.
#[test]
fn one_process_of_the_crowd() {
    let Ok(task) = std::env::var(CROWD) else {
        return;
    };
    let words: Vec<&str> = task.split(' ').collect();
    let count = |at: usize| words[at].parse::<usize>().unwrap();
    let (port, alias, count) = (count(0) as u16, count(2), count(3));
    mneme_sys::allow_open_files((count + OTHERS) as u64).unwrap();
    let mut kept = Vec::new();
    let mut refused = 0;
    match words[1] {
        "garbage" => {
            println!("there: {count}");
            send_garbage(port, alias, count);
        }
        "refused" => {
            for _ in 0..count {
                let mut reply = Vec::new();
                connect(alias, port).read_to_end(&mut reply).unwrap();
                assert_eq!(reply, b"-ERR max number of clients reached\r\n");
                refused += 1;
            }
        }
        kind => {
            let request = match kind {
                "idle" => Vec::new(),
                "half" => b"*3\r\n$3\r\nSET\r\n$4\r\nha".to_vec(),
                "slow" => b"GET large\r\n".repeat(100),
                other => panic!("there is no crowd called {other}"),
            };
            for _ in 0..count {
                let mut client = connect(alias, port);
                client.write_all(&request).unwrap();
                kept.push(client);
            }
        }
    }
    println!("there: {} and {refused} refused", kept.len());
    // The connections stay open until the test ends.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Sends garbage, gets an error, and connects again, over several connections, until the process is
/// killed.
fn send_garbage(port: u16, alias: usize, count: usize) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut garbage = [0; 512];
    loop {
        for _ in 0..count {
            for byte in &mut garbage {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
            garbage[0] = b'*';
            let mut client = connect(alias, port);
            // Both may fail, since the server ends the connection as soon as it can.
            let _ = client.write_all(&garbage);
            let _ = client.read(&mut [0; 256]);
        }
    }
}

/// Sends commands one after the other for that time, and checks the replies. Returns their
/// latencies in microseconds, sorted.
fn measure(client: &mut TcpStream, time: Duration) -> Vec<u64> {
    let begun = Instant::now();
    let mut took = Vec::new();
    while begun.elapsed() < time || took.len() < 1_000 {
        let value = format!("{:08}", took.len());
        let request = format!("SET mine {value}\r\nGET mine\r\n");
        let sent = Instant::now();
        client.write_all(request.as_bytes()).unwrap();
        let expected = format!("+OK\r\n$8\r\n{value}\r\n");
        let mut whole = [0; 19];
        client.read_exact(&mut whole).unwrap();
        assert_eq!(whole, expected.as_bytes());
        took.push(sent.elapsed().as_micros() as u64);
    }
    took.sort_unstable();
    took
}

fn shown(took: &[u64]) -> String {
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    format!(
        "{} times SET and GET: median {} us, p99 {}, p99.9 {}, longest {}",
        took.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    )
}

/// The number of resident bytes of a process.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim_end_matches("kB").trim();
    kib.parse::<u64>().unwrap() << 10
}

/// The maximum number of connections of this server.
fn possible(client: &mut TcpStream) -> usize {
    client.write_all(b"CONFIG GET maxclients\r\n").unwrap();
    let mut reply = [0; 256];
    let read = client.read(&mut reply).unwrap();
    let text = String::from_utf8_lossy(&reply[..read]);
    text.lines()
        .rfind(|line| !line.is_empty())
        .unwrap()
        .parse()
        .unwrap()
}

/// Waits until the server has that many clients, including the one that asks.
fn await_clients(client: &mut TcpStream, count: usize) {
    let expected = format!("connected_clients:{count}\r\n");
    loop {
        client.write_all(b"INFO clients\r\n").unwrap();
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            let mut some = [0; 4096];
            let read = client.read(&mut some).unwrap();
            assert!(read > 0, "the server goes on");
            text.push_str(&String::from_utf8_lossy(&some[..read]));
        }
        if text.contains(&expected) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Opens that many connections of a kind, in as many processes as necessary.
fn gather(port: u16, kind: &str, count: usize, alias: &mut usize) -> Vec<Process> {
    let mut crowds = Vec::new();
    let mut left = count;
    while left > 0 {
        let some = left.min(EACH);
        *alias += 1;
        crowds.push(start(port, kind, *alias, some));
        left -= some;
    }
    crowds
}

/// The number of bytes that a server needs for an idle connection.
fn idle_memory(
    (pid, port): (u32, u16),
    client: &mut TcpStream,
    count: usize,
    alias: &mut usize,
) -> (u64, Vec<Process>) {
    await_clients(client, 1);
    let before = resident(pid);
    let idle = gather(port, "idle", count, alias);
    await_clients(client, count + 1);
    let grown = resident(pid).saturating_sub(before);
    (grown / count.max(1) as u64, idle)
}

#[test]
fn a_client_is_served_beside_hostile_connections() {
    let seconds = setting("MNEME_LADDER_SECS");
    let usual = if seconds.is_some() { 100_000 } else { 400 };
    let wanted = setting("MNEME_LADDER_CONNECTIONS").unwrap_or(usual) as usize;
    let time = Duration::from_secs(seconds.unwrap_or(0) / 4);
    let max_clients = wanted.to_string();
    let mut command = serving::command(&["--port", "0", "--memory", "256mb", "--bind", "*"]);
    command.args(["--maxclients", &max_clients]);
    command.args(["--client-output-buffer-pause", "65536", "--log", "off"]);
    command.env("MNEME_PRIVATE", "yes");
    let serving = Serving::start(command);
    let (pid, port) = (serving.process.id(), serving.port());
    let mut client = serving.client();
    let most = possible(&mut client);
    if most < wanted {
        println!("{wanted} connections wanted; the limit on open files allows the server {most}");
    }
    let request = [
        b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$65536\r\n",
        &[b'x'; LARGE][..],
        b"\r\n",
    ];
    client.write_all(&request.concat()).unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    println!("alone: {}", shown(&measure(&mut client, time)));
    // The places left over by the client and the connections that send garbage: half are idle, the
    // others send half a command or do not read their replies.
    let places = most - 10;
    let slow = (places / 100).min(50);
    let mut alias = 1;
    let (bytes, mut crowds) = idle_memory((pid, port), &mut client, places / 2, &mut alias);
    println!("an idle connection takes {bytes} bytes");
    crowds.extend(gather(port, "slow", slow, &mut alias));
    crowds.extend(gather(
        port,
        "half",
        places - places / 2 - slow - 2,
        &mut alias,
    ));
    println!("resident with all: {} MiB", resident(pid) >> 20);
    println!("beside them: {}", shown(&measure(&mut client, time)));
    crowds.extend(gather(port, "garbage", 2, &mut alias));
    println!("and garbage: {}", shown(&measure(&mut client, time)));
    drop(crowds);
    await_clients(&mut client, 1);
    println!("without them again: {}", shown(&measure(&mut client, time)));
    if most < wanted {
        // Fills the server, so that further connections are refused.
        let filled = gather(port, "idle", most - 1, &mut alias);
        await_clients(&mut client, most);
        std::thread::scope(|scope| {
            let refused = scope.spawn(|| gather(port, "refused", wanted - most, &mut alias));
            let took = measure(&mut client, time);
            println!("while others are refused: {}", shown(&took));
            drop(refused.join().unwrap());
        });
        drop(filled);
    }
    beside_redis(places / 2, &mut alias);
}

/// A running Redis and its port; `None` if it is not installed.
fn redis(most: usize) -> Option<(Process, u16, TcpStream)> {
    // Outside the range of ports that the kernel gives to clients: a client with the server's port
    // would connect to itself.
    let first = 20_000 + std::process::id() as u16 % 10_000;
    for port in first..first + 1_000 {
        let mut command = Command::new("redis-server");
        let (port_text, most) = (port.to_string(), most.to_string());
        command.args(["--port", &port_text, "--save", "", "--maxclients", &most]);
        command.args(["--protected-mode", "no", "--bind", "0.0.0.0"]);
        let mut process = Process::of(command.stdout(Stdio::null())).ok()?;
        // Until it listens, or ends because another program has the port.
        while process.is_running() {
            std::thread::sleep(Duration::from_millis(10));
            let is_its = |client: &mut TcpStream| process_of(client) == Some(process.id());
            let client = TcpStream::connect(("127.0.0.1", port)).ok();
            if let Some(client) =
                client.and_then(|mut client| is_its(&mut client).then_some(client))
            {
                return Some((process, port, client));
            }
        }
    }
    panic!("redis-server finds no free port");
}

/// The process of the Redis at the other end, if it reports one.
fn process_of(client: &mut TcpStream) -> Option<u32> {
    client.write_all(b"INFO server\r\n").ok()?;
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        let mut some = [0; 4096];
        let read = client.read(&mut some).ok().filter(|read| *read > 0)?;
        text.push_str(&String::from_utf8_lossy(&some[..read]));
    }
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("process_id:"));
    line?.parse().ok()
}

/// Prints the memory that Redis needs for an idle connection.
fn beside_redis(count: usize, alias: &mut usize) {
    let Some((redis, port, mut client)) = redis(count + 10) else {
        println!("skipped: there is no redis-server");
        return;
    };
    let server = (redis.id(), port);
    let (bytes, idle) = idle_memory(server, &mut client, count, alias);
    println!("an idle connection of Redis takes {bytes} bytes");
    drop((idle, redis));
}
