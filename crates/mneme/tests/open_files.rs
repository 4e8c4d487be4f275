//! A server that runs out of file descriptors.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use common::serving::{self, Serving};

/// A server of memory of its own, under a limit on open files if there is to be one.
fn mneme(limit: Option<u32>) -> Command {
    const ARGUMENTS: [&str; 6] = ["--port", "0", "--memory", "64mb", "--threads", "2"];
    let direct = serving::command(&ARGUMENTS);
    let mut command = match limit {
        None => direct,
        Some(limit) => {
            let mut shell = Command::new("sh");
            let line = format!("ulimit -n {limit}; exec \"$@\"");
            shell
                .args(["-c", &line, "sh"])
                .arg(direct.get_program())
                .args(direct.get_args());
            shell
        }
    };
    command.env("MNEME_PRIVATE", "yes");
    command
}

fn ping(client: &mut TcpStream) {
    client.write_all(b"PING\r\n").unwrap();
    pong(client);
}

fn pong(client: &mut TcpStream) {
    let mut reply = [0; 7];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

fn said(serving: &Serving, lines: &str) -> String {
    let mut client = serving.client();
    client
        .write_all(format!("{lines}QUIT\r\n").as_bytes())
        .unwrap();
    let mut replies = String::new();
    client.read_to_string(&mut replies).unwrap();
    replies
}

#[test]
fn maxclients_is_what_the_limit_on_open_files_allows() {
    let serving = Serving::start(mneme(Some(100)));
    let shown = said(&serving, "CONFIG GET maxclients\r\n");
    if shown.contains("\r\n10000\r\n") {
        eprintln!("skipped: this user may raise the hard limit on open files");
        return;
    }
    assert!(shown.contains("\r\n52\r\n"), "{shown}");
    let refused = said(&serving, "CONFIG SET maxclients 53\r\n");
    assert_eq!(
        refused,
        "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able to handle \
         the specified number of clients, try with 52\r\n+OK\r\n"
    );
    assert_eq!(
        said(&serving, "CONFIG SET maxclients 52\r\n"),
        "+OK\r\n+OK\r\n"
    );
    serving.signal("-TERM");
    let (_, log) = serving.end();
    assert!(log.contains("fewer clients than wanted"), "{log}");
}

/// Sets the limit on a running server's open files.
fn limit(serving: &Serving, open_files: usize) {
    let pid = serving.process.id().to_string();
    let limit = format!("--nofile={open_files}:");
    let set = Command::new("prlimit")
        .args(["--pid", &pid, &limit])
        .status();
    assert!(set.expect("util-linux is there").success());
}

#[test]
fn without_descriptors_connections_wait_and_the_log_stays_short() {
    const WAITING: usize = 200;
    let serving = Serving::start(mneme(None));
    let mut served: Vec<_> = (0..10).map(|_| serving.client()).collect();
    served.iter_mut().for_each(ping);
    let open = std::fs::read_dir(format!("/proc/{}/fd", serving.process.id())).unwrap();
    limit(&serving, open.count());
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let mut client = serving.client();
        client.write_all(b"PING\r\n").unwrap();
        waiting.push(client);
        // Those who are in are served meanwhile, by both threads.
        served.iter_mut().for_each(ping);
    }
    limit(&serving, 1_000);
    waiting.iter_mut().for_each(pong);
    served.iter_mut().for_each(ping);
    serving.signal("-TERM");
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
    let told = log.matches("cannot be accepted").count();
    assert!((1..WAITING / 10).contains(&told), "{told} times: {log}");
}
