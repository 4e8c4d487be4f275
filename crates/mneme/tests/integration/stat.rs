//! `mneme stat` with a running server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::serving::{self, Serving};
use socket2::{Domain, SockAddr, Socket, Type};

fn stat(arguments: &[&str]) -> Command {
    serving::mneme(&[&["stat"], arguments].concat())
}

fn serving() -> Serving {
    let memory = ["--port", "0", "--memory", "64mb", "--private"];
    Serving::start(serving::command(
        &[&memory[..], &["--requirepass", "secret"]].concat(),
    ))
}

#[test]
fn stat_shows_activity_and_memory() {
    let serving = serving();
    let mut client = serving.client();
    client
        .write_all(b"AUTH secret\r\nSET a 1\r\nSET b 2\r\nGET a\r\n")
        .unwrap();
    client.read_exact(&mut [0; 3 * 5 + 7]).unwrap();
    let port = serving.port().to_string();
    let output = stat(&["--port", &port, "--requirepass", "secret"])
        .output()
        .unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    for expected in [
        &format!("at 127.0.0.1:{port}")[..],
        "2 in database 0",
        "operations",
        "# live",
        "- stale",
        " spare; fill ",
        "target fill 0.800",
        "write amplification 1.000",
    ] {
        assert!(page.contains(expected), "{expected:?} is not in {page}");
    }
    let output = stat(&["--port", &port, "--requirepass", "secret", "--json"])
        .output()
        .unwrap();
    let fields: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(fields["keyspace_hits"], "1");
}

#[test]
fn a_watch_through_a_pipe_prints_a_line_for_each_sample() {
    let serving = serving();
    let port = serving.port().to_string();
    let mut process = stat(&["--port", &port, "--watch", "0.1"])
        .env("MNEME_REQUIREPASS", "secret")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<String> = BufReader::new(process.stdout.take().unwrap())
        .lines()
        .take(3)
        .map(Result::unwrap)
        .collect();
    process.wait().unwrap();
    assert!(
        lines[0].contains("ops/s") && lines[0].contains("p99.9us"),
        "{lines:?}"
    );
    // No other commands were executed: the second sample shows the latency of the first sample's.
    let latency = lines[2].split_whitespace().nth(3).unwrap();
    assert!(latency.parse::<u64>().is_ok_and(|us| us > 0), "{lines:?}");
    assert_eq!(
        lines[1].split_whitespace().count(),
        lines[2].split_whitespace().count()
    );
}

/// A restart of the server does not end the view: it reports that it waits, and continues.
#[test]
fn a_watch_continues_over_a_restart() {
    // A unix socket, since another program could take a port between the two servers.
    let path = std::env::temp_dir().join(format!("mneme-restart-{}.sock", std::process::id()));
    let place = path.to_str().unwrap();
    let start = || {
        let memory = ["--port", "0", "--memory", "64mb", "--private"];
        let access = ["--requirepass", "secret", "--unixsocket", place];
        Serving::start(serving::command(&[&memory[..], &access].concat()))
    };
    let first = start();
    let mut process = stat(&["--unixsocket", place, "--watch", "0.1"])
        .env("MNEME_REQUIREPASS", "secret")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut errors = BufReader::new(process.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().take(2).all(|line| line.is_ok()));
    drop(first);
    let waits = errors.next().expect("it says that it waits").unwrap();
    assert!(waits.contains("waiting for it"), "{waits}");
    let second = start();
    // Some lines may still show the old server; the second server has no counts from before.
    let anew = lines
        .by_ref()
        .take(200)
        .any(|line| line.is_ok_and(|line| line.split_whitespace().nth(1) == Some("-")));
    assert!(anew, "no look at the second server");
    process.kill().unwrap();
    process.wait().unwrap();
    drop(second);
    let _ = std::fs::remove_file(&path);
}

#[test]
fn a_server_that_cannot_be_reached_is_named() {
    let serving = serving();
    let port = serving.port().to_string();
    let refused = |arguments: &[&str], expected: &str| {
        let output = stat(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && said.contains(expected),
            "{said}"
        );
    };
    refused(&["--port", &port], "NOAUTH");
    refused(&["--port", &port, "--requirepass", "wrong"], "WRONGPASS");
    refused(
        &["--unixsocket", "/nowhere"],
        "no server can be reached at /nowhere",
    );
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let answers = std::thread::spawn(move || {
        silent
            .accept()
            .unwrap()
            .0
            .write_all(b"HTTP/1.1 400 Bad Request\r\n")
    });
    refused(&["--port", &port], "does not speak Redis' protocol");
    answers.join().unwrap().unwrap();
}

/// For each of the three commands that use a server: its exit code and all its output.
fn asked(arguments: &[&str]) -> Vec<(&'static str, Option<i32>, String)> {
    let asking = ["stat", "check", "doctor"].map(|name| {
        let mut command = serving::mneme(&[&[name], arguments].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        (name, command.spawn().unwrap())
    });
    let ended = asking.into_iter().map(|(name, process)| {
        let output = process.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        (name, output.status.code(), said)
    });
    ended.collect()
}

fn all_are_late(arguments: &[&str]) {
    for (name, code, said) in asked(arguments) {
        let expected = if name == "doctor" { 0 } else { 1 };
        assert_eq!(code, Some(expected), "{name}: {said}");
        let late = "has not answered within 5 seconds";
        assert!(said.contains(late), "{name}: {said}");
    }
}

/// Such a server is stopped, say, or has no descriptors left: the system accepts no connection.
#[test]
fn a_server_that_accepts_nobody_is_not_waited_for() {
    let full = |domain, address: &SockAddr| {
        let listener = Socket::new(domain, Type::STREAM, None).unwrap();
        listener.bind(address).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        // More than the backlog of the socket.
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let socket = Socket::new(domain, Type::STREAM, None).unwrap();
                socket.set_nonblocking(true).unwrap();
                let _ = socket.connect(&address);
                socket
            })
            .collect();
        (listener, waiting)
    };
    let loopback: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    let tcp = full(Domain::IPV4, &loopback.into());
    let port = tcp.0.local_addr().unwrap().as_socket().unwrap().port();
    all_are_late(&["--port", &port.to_string()]);

    let name = format!("mneme-full-{}.sock", std::process::id());
    let path: PathBuf = std::env::temp_dir().join(name);
    let unix = full(Domain::UNIX, &SockAddr::unix(&path).unwrap());
    let late = std::panic::catch_unwind(|| all_are_late(&["--socket", path.to_str().unwrap()]));
    std::fs::remove_file(&path).unwrap();
    late.unwrap();
    drop((tcp, unix));
}

/// A server at a port of its own that sends these pieces to each client, until the client
/// disconnects.
fn saying(pieces: Vec<Vec<u8>>, pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, pieces) = (client.unwrap(), pieces.clone());
            std::thread::spawn(move || {
                for piece in pieces {
                    if client.write_all(&piece).is_err() {
                        return;
                    }
                    std::thread::sleep(pause);
                }
                let _ = client.read_to_end(&mut Vec::new());
            });
        }
    });
    port
}

#[test]
fn a_server_that_sends_a_byte_now_and_then_is_not_waited_for() {
    // A valid answer, which takes 20 seconds to arrive.
    let info = b"$100\r\n".iter().chain([b'x'; 100].iter()).chain(b"\r\n");
    let pieces = info.map(|byte| vec![*byte]).collect();
    let port = saying(pieces, Duration::from_millis(200));
    all_are_late(&["--port", &port]);
}

#[test]
fn a_servers_answer_sends_no_control_characters_to_the_terminal() {
    let evil = "\u{1b}]0;title\u{7}\u{9b}2J";
    let info = format!(
        "mneme_version:0{evil}\r\nmneme_segment:s{evil}\r\nmaxmemory:1\r\nerrorstat_{evil}:count=1\r\n\
         cmdstat_get{evil}:calls=1,usec=1\r\nlatency_percentiles_usec_get{evil}:p50={evil},p99=1,p99.9=20000\r\n"
    );
    let info = format!("${}\r\n{info}\r\n", info.len()).into_bytes();
    let refusal = format!("-ERR {evil}\r\n").into_bytes();
    for answer in [info, refusal] {
        let port = saying(vec![answer], Duration::ZERO);
        for (name, _, said) in asked(&["--port", &port]) {
            let mut controls = said.chars().filter(|c| c.is_control() && *c != '\n');
            assert_eq!(controls.next(), None, "{name}: {said:?}");
            let is_seen = said.contains("\\x1b]0;title\\x07\\x9b2J");
            // `check` does not ask for `INFO`.
            assert!(is_seen || name == "check", "{name}: {said}");
        }
    }
}

#[test]
fn an_invalid_port_is_refused_with_its_origin() {
    for (arguments, variable, expected) in [
        (
            &["--port", "99999"][..],
            None,
            "'99999' for '--port': argument must be between",
        ),
        (
            &[],
            Some("99999"),
            "'99999' for 'MNEME_PORT': argument must be between",
        ),
        (
            &["--port", "x"],
            Some("99999"),
            "'x' for '--port': argument couldn't be parsed",
        ),
    ] {
        let mut command = stat(arguments);
        if let Some(text) = variable {
            command.env("MNEME_PORT", text);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(expected), "{said}");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn a_service_address_is_not_taken_as_a_port() {
    let mut command = stat(&["--host", "256.0.0.1"]);
    command.env("MNEME_PORT", "tcp://10.0.0.1:6379");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("256.0.0.1:6379"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

/// The server and the commands that use it accept `socket` for `unixsocket`, as a flag and in the
/// environment.
#[test]
fn a_socket_has_two_names() {
    let path = std::env::temp_dir().join(format!("mneme-names-{}.sock", std::process::id()));
    let place = path.to_str().unwrap();
    let arguments = [
        "--port",
        "0",
        "--memory",
        "64mb",
        "--private",
        "--socket",
        place,
    ];
    let serving = Serving::start(serving::command(&arguments));
    for output in [
        stat(&["--unixsocket", place]).output(),
        stat(&[]).env("MNEME_SOCKET", place).output(),
    ] {
        let output = output.unwrap();
        let page = String::from_utf8(output.stdout).unwrap();
        assert!(page.contains(place), "{page}");
    }
    drop(serving);
    let _ = std::fs::remove_file(&path);
}
