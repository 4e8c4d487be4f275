//! `mneme check` and `mneme doctor` with a running server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;

use crate::common::Registry;
use crate::common::serving::{self, Serving};

/// Exit code, standard output and standard error.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = serving::mneme(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn private(more: &[&str]) -> Serving {
    let arguments = ["--port", "0", "--memory", "64mb", "--private"];
    Serving::start(serving::command(&[&arguments[..], more].concat()))
}

fn said(serving: &Serving, request: &[u8], reply: &[u8]) {
    let mut client = serving.client();
    client.write_all(request).unwrap();
    let mut answer = vec![0; reply.len()];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, reply);
}

#[test]
fn a_sound_store_is_checked_while_it_is_served() {
    let serving = private(&["--requirepass", "secret"]);
    said(
        &serving,
        b"AUTH secret\r\nSET a 1\r\nSET b 2\r\n",
        b"+OK\r\n+OK\r\n+OK\r\n",
    );
    let port = serving.port().to_string();
    let (code, text, error) = run(&["check", "--port", &port, "--requirepass", "secret"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(text.contains("is sound: 2 records"), "{text}");
    let (code, text, _) = run(&[
        "check",
        "--port",
        &port,
        "--requirepass",
        "secret",
        "--json",
    ]);
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(
        (&found["sound"], &found["records"]),
        (&true.into(), &2.into())
    );
    let (code, text, error) = run(&["check", "--port", &port]);
    assert!(code == Some(1) && error.contains("NOAUTH"), "{text}{error}");
}

#[test]
fn a_damaged_store_is_named_in_words_and_by_the_exit_code() {
    const KEY: &[u8] = b"a-key-that-is-found-nowhere-else";
    let registry = Registry::new("segment", "check");
    let mut command = serving::command(&["--port", "0", "--memory", "64mb"]);
    command.env("MNEME_DIR", &registry.root);
    let serving = Serving::start(command);
    let request = [b"SET ", KEY, b" 1\r\n"].concat();
    said(&serving, &request, b"+OK\r\n");
    let file = registry.root.join("segments/default/data");
    let bytes = std::fs::read(&file).unwrap();
    let at = bytes
        .windows(KEY.len())
        .position(|window| window == KEY)
        .unwrap();
    let file = std::fs::File::options().write(true).open(file).unwrap();
    file.write_all_at(&vec![b'x'; KEY.len()], at as u64)
        .unwrap();
    let port = serving.port().to_string();
    let (code, text, error) = run(&["check", "--port", &port]);
    assert_eq!(code, Some(1), "{text}{error}");
    assert!(
        text.contains("is damaged") && error.contains("wrong with the store"),
        "{text}{error}"
    );
    let (code, text, _) = run(&["check", "--port", &port, "--json"]);
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &found["sound"]), (Some(1), &false.into()));
    assert!(!found["problems"].as_array().unwrap().is_empty());
}

#[test]
fn a_server_that_cannot_run_a_check_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let redis = std::thread::spawn(move || {
        let (mut client, _) = taken.accept().unwrap();
        client
            .write_all(b"-ERR unknown command 'MNEME'\r\n")
            .unwrap();
        // Until the other side has read it and closed the connection.
        let _ = client.read_to_end(&mut Vec::new());
    });
    let (code, _, error) = run(&["check", "--port", &port]);
    assert!(
        code == Some(1) && error.contains("unknown command"),
        "{error}"
    );
    redis.join().unwrap();
    let (code, _, error) = run(&["check", "--socket", "/nowhere"]);
    assert!(
        code == Some(1) && error.contains("no server can be reached at /nowhere"),
        "{error}"
    );
}

#[test]
fn the_doctor_looks_at_a_running_server() {
    let serving = private(&["--maxclients", "1000"]);
    said(
        &serving,
        b"CONFIG SET slowlog-log-slower-than 0\r\nSET a 1\r\n",
        b"+OK\r\n+OK\r\n",
    );
    let port = serving.port().to_string();
    let (code, text, error) = run(&["doctor", "--port", &port, "--json"]);
    assert_eq!(code, Some(0), "{error}");
    let findings: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of = |name: &str| {
        let mut all = findings.as_array().unwrap().iter();
        all.find(|finding| finding["check"] == name)
            .unwrap_or_else(|| panic!("no {name}: {text}"))
            .clone()
    };
    assert!(of("server")["found"].as_str().unwrap().contains(&port));
    assert_eq!(of("server memory")["state"], "ok");
    assert_eq!(of("eviction")["state"], "ok");
    assert_eq!(of("compaction")["state"], "ok");
    assert_eq!(of("clients")["state"], "ok");
    assert_eq!(of("slow commands")["state"], "could be better");
    assert!(of("latency")["found"].as_str().unwrap().contains("p99.9"));
}

/// The doctor's findings about the server at this port.
fn doctored(port: &str) -> serde_json::Value {
    let (code, text, error) = run(&["doctor", "--port", port, "--json"]);
    assert_eq!(code, Some(0), "{error}");
    let findings: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut all = findings.as_array().unwrap().iter();
    let server = all.find(|finding| finding["check"] == "server").unwrap();
    server.clone()
}

/// If a server was named but does not exist, does not answer or refuses the client, the doctor does
/// not report that nothing is wrong.
#[test]
fn a_server_that_cannot_be_looked_at_is_a_problem() {
    let serving = private(&["--requirepass", "secret"]);
    let port = serving.port().to_string();
    let server = doctored(&port);
    assert_eq!(server["state"], "problem");
    assert!(server["found"].as_str().unwrap().contains("NOAUTH"));
    let (_, text, _) = run(&["doctor", "--port", &port]);
    assert!(
        text.lines().last().unwrap().contains("problem(s)"),
        "{text}"
    );
    serving.signal("-STOP");
    // Each waits for a few seconds.
    let ((code, _, error), server) = std::thread::scope(|scope| {
        let asked = scope.spawn(|| run(&["stat", "--port", &port]));
        let server = doctored(&port);
        (asked.join().unwrap(), server)
    });
    assert_eq!(code, Some(1));
    serving.signal("-CONT");
    for said in [&error, server["found"].as_str().unwrap()] {
        assert!(said.contains("has not answered within"), "{said}");
        assert!(!said.contains("os error"), "{said}");
    }
    assert_eq!(server["state"], "problem");
    drop(serving);
    let server = doctored(&port);
    assert_eq!(server["state"], "problem");
    assert!(
        server["found"]
            .as_str()
            .unwrap()
            .contains("no server can be reached at 127.0.0.1:"),
    );
}
