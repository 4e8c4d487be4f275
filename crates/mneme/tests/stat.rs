//! `mneme stat` beside a server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use common::serving::{self, Serving};

fn stat(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mneme"));
    command.arg("stat").args(arguments);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MNEME_")) {
        command.env_remove(name);
    }
    command
}

fn serving() -> Serving {
    let memory = ["--port", "0", "--memory", "64mb", "--private"];
    Serving::start(serving::command(
        &[&memory[..], &["--requirepass", "secret"]].concat(),
    ))
}

#[test]
fn it_shows_what_the_server_does_and_holds() {
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
        "# records",
        "compaction",
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
fn watched_through_a_pipe_it_is_a_line_each_time() {
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
    // Two looks at least ask for what is shown: the second knows how long that took.
    let latency = lines[2].split_whitespace().nth(3).unwrap();
    assert!(latency.parse::<u64>().is_ok_and(|us| us > 0), "{lines:?}");
    assert_eq!(
        lines[1].split_whitespace().count(),
        lines[2].split_whitespace().count()
    );
}

/// A restart of the server does not end the view: it says that it waits, and goes on.
#[test]
fn watched_it_goes_on_over_a_restart() {
    let first = serving();
    let port = first.port().to_string();
    let mut process = stat(&["--port", &port, "--watch", "0.1"])
        .env("MNEME_REQUIREPASS", "secret")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut told = BufReader::new(process.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().take(2).all(|line| line.is_ok()));
    drop(first);
    let waits = told.next().expect("it says that it waits").unwrap();
    assert!(waits.contains("waiting for it"), "{waits}");
    let memory = ["--port", &port, "--memory", "64mb", "--private"];
    let second = Serving::start(serving::command(
        &[&memory[..], &["--requirepass", "secret"]].concat(),
    ));
    // Of the old server there may be some left; the second one knows nothing of what came before it.
    let anew = lines
        .by_ref()
        .take(200)
        .any(|line| line.is_ok_and(|line| line.split_whitespace().nth(1) == Some("-")));
    assert!(anew, "no look at the second server");
    process.kill().unwrap();
    process.wait().unwrap();
    drop(second);
}

#[test]
fn who_cannot_be_asked_is_named() {
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
