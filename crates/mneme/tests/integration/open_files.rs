//! A server that runs out of file descriptors.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::common::serving::{self, Serving};

/// The command for a server with private memory, possibly under a limit on open files.
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

#[test]
fn maxclients_is_what_the_limit_on_open_files_allows() {
    let serving = Serving::start(mneme(Some(100)));
    let shown = serving.said("CONFIG GET maxclients\r\n");
    if shown.contains("\r\n10000\r\n") {
        eprintln!("skipped: this user may raise the hard limit on open files");
        return;
    }
    assert!(shown.contains("\r\n52\r\n"), "{shown}");
    let refused = serving.said("CONFIG SET maxclients 53\r\n");
    assert_eq!(
        refused,
        "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able to handle \
         the specified number of clients, try with 52\r\n+OK\r\n"
    );
    assert_eq!(
        serving.said("CONFIG SET maxclients 52\r\n"),
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
    let mut command = mneme(None);
    command.env("MNEME_METRICS_LISTEN", "127.0.0.1:0");
    let serving = Serving::start(command);
    let metrics = serving.metrics();
    let mut served: Vec<_> = (0..10).map(|_| serving.client()).collect();
    served.iter_mut().for_each(ping);
    let open = std::fs::read_dir(format!("/proc/{}/fd", serving.process.id())).unwrap();
    limit(&serving, open.count());
    let mut scraper = TcpStream::connect(metrics).unwrap();
    scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let mut client = serving.client();
        client.write_all(b"PING\r\n").unwrap();
        waiting.push(client);
        // Connected clients are still served, by both threads.
        served.iter_mut().for_each(ping);
    }
    limit(&serving, 1_000);
    waiting.iter_mut().for_each(pong);
    served.iter_mut().for_each(ping);
    let mut page = String::new();
    scraper.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    serving.signal("-TERM");
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("cannot be accepted"), "{log}");
    // The scraper's attempts are counted together with them.
    let lines = log.lines().count();
    assert!(lines < WAITING / 10, "{lines} lines: {log}");
}
