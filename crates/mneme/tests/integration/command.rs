//! The `mneme` command from its operator's point of view.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::serving::{self, Serving};

/// The command for a server with private memory.
fn mneme(arguments: &[&str]) -> Command {
    let mut command = serving::command(arguments);
    command.env("MNEME_PRIVATE", "yes");
    command
}

/// Exit code and standard error of a command that should end by itself.
fn outcome(arguments: &[&str]) -> (Option<i32>, String) {
    let mut process = mneme(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while process.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            process.kill().unwrap();
            panic!("{arguments:?} is served");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let Output { status, stderr, .. } = process.wait_with_output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

const SMALL: [&str; 4] = ["--port", "0", "--memory", "64mb"];

#[test]
fn the_banner_shows_addresses_memory_and_commands_to_try() {
    let serving = Serving::start(mneme(&[&SMALL[..], &["--threads", "3"]].concat()));
    let port = serving.port();
    for expected in [
        format!("listening on  127.0.0.1:{port}\n"),
        "64.0 MiB, in ".to_owned(),
        "threads       3\n".to_owned(),
        format!("redis-cli -p {port} set greeting hello\n"),
        format!("kill {}\n", serving.process.id()),
    ] {
        assert!(
            serving.banner.contains(&expected),
            "{expected:?} is not in {}",
            serving.banner
        );
    }
}

#[test]
fn both_signals_stop_the_server_cleanly() {
    for signal in ["-TERM", "-INT"] {
        let serving = Serving::start(mneme(&SMALL));
        let mut client = serving.client();
        client.write_all(b"SET a b\r\nGET a\r\n").unwrap();
        let mut replies = [0; 12];
        client.read_exact(&mut replies).unwrap();
        assert_eq!(&replies, b"+OK\r\n$1\r\nb\r\n");
        serving.signal(signal);
        assert_eq!(client.read(&mut replies).unwrap(), 0);
        let (code, log) = serving.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("stopped"), "{log}");
    }
}

/// As in Redis: closing a terminal ends no server.
#[test]
fn a_hangup_is_ignored() {
    let serving = Serving::start(mneme(&SMALL));
    serving.signal("-HUP");
    assert_eq!(
        serving.said("SET a b\r\nGET a\r\n"),
        "+OK\r\n$1\r\nb\r\n+OK\r\n"
    );
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn the_environment_sets_what_the_flags_do_not() {
    let mut command = mneme(&["--memory", "64mb"]);
    command.envs([
        ("MNEME_PORT", "0"),
        ("MNEME_REQUIREPASS", "secret"),
        ("MNEME_THREADS", "1"),
    ]);
    command.env("MNEME_MEMORY", "nonsense");
    command.env("MNEME_LOG", "off");
    let serving = Serving::start(command);
    let mut client = serving.client();
    client
        .write_all(b"GET a\r\nAUTH secret\r\nSHUTDOWN\r\n")
        .unwrap();
    let mut replies = String::new();
    client.read_to_string(&mut replies).unwrap();
    assert_eq!(replies, "-NOAUTH Authentication required.\r\n+OK\r\n");
    assert_eq!(serving.end(), (Some(0), String::new()));
}

/// Kubernetes sets this variable for a service named `mneme`.
#[test]
fn a_service_address_is_not_taken_as_the_port_setting() {
    let file = Configuration::new("link", "port = 0\n");
    let mut command = mneme(&["--memory", "64mb", "--config", file.path()]);
    command.env("MNEME_PORT", "tcp://10.0.0.1:6379");
    let serving = Serving::start(command);
    serving.signal("-TERM");
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("MNEME_PORT=tcp://10.0.0.1:6379 is"), "{log}");
}

/// A file that is removed at the end.
struct Configuration(std::path::PathBuf);

impl Configuration {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("mneme-command-{}-{name}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file() {
    let file = Configuration::new(
        "order",
        "# Ours.\nport = 0\nmaxmemory = \"64mb\"\nmaxclients = 11\ndatabases = 11\ntcp-backlog = 11\n",
    );
    let mut command = mneme(&["--config", file.path(), "--maxclients", "33"]);
    command
        .env("MNEME_MAXCLIENTS", "22")
        .env("MNEME_DATABASES", "22");
    let serving = Serving::start(command);
    let replies = serving.said(
        "CONFIG GET maxclients databases\r\nCONFIG GET tcp-backlog\r\nCONFIG SET slowlog-max-len 7\r\n\
         CONFIG REWRITE\r\n",
    );
    for expected in [
        "$10\r\nmaxclients\r\n$2\r\n33\r\n",
        "$9\r\ndatabases\r\n$2\r\n22\r\n",
        "$11\r\ntcp-backlog\r\n$2\r\n11\r\n",
    ] {
        assert!(replies.contains(expected), "{replies}");
    }
    let text = std::fs::read_to_string(&file.0).unwrap();
    for expected in [
        "# Ours.\n",
        "maxmemory = \"64mb\"\nmaxclients = 33\ndatabases = 22\ntcp-backlog = 11\n",
        "# Commands that the SLOWLOG keeps.\nslowlog-max-len = 7\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    let (code, error) = outcome(&["--config", "/nowhere/at all.toml"]);
    assert_eq!(code, Some(1));
    assert!(
        error.contains("cannot read /nowhere/at all.toml"),
        "{error}"
    );
}

#[test]
fn the_configuration_is_printed_as_a_file_that_says_the_same() {
    let print = |arguments: &[&str]| {
        let output = mneme(&[arguments, &["--print-config"]].concat())
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = print(&[
        "--port",
        "7001",
        "--bind",
        "::1,*",
        "--requirepass",
        "hidden",
    ]);
    for expected in [
        "# The TCP port; 0 lets the system choose a free one, which CONFIG GET shows",
        "port = 7001\n",
        "bind = [\"::1\", \"*\"]\n",
        "private = true\n",
    ] {
        assert!(printed.contains(expected), "{printed}");
    }
    assert!(!printed.contains("hidden"));
    let file = Configuration::new("printed", &printed);
    assert_eq!(
        print(&["--config", file.path(), "--requirepass", "hidden"]),
        printed
    );
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (code, error) = outcome(&["--port", &port.to_string(), "--memory", "64mb"]);
    assert_eq!(code, Some(1));
    let expected =
        format!("127.0.0.1:{port} is in use by another server; stop it, or choose another port");
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn invalid_arguments_are_refused_with_a_reason() {
    for (arguments, expected) in [
        (
            &["--memory", "4 elephants"][..],
            "invalid value '4 elephants' for '--maxmemory': argument must be a memory value",
        ),
        (
            &["--port", "70000"],
            "'70000' for '--port': argument must be between 0 and 65535 inclusive",
        ),
        (
            &["--port", "x"],
            "argument couldn't be parsed into an integer",
        ),
        (&["--bind", "nowhere"], "give an IP address"),
        (
            &["--threads", "1000"],
            "argument must be between 0 and 512 inclusive",
        ),
        (
            &["--maxclients", "99999999999999999999999"],
            "integer; it takes a number from 1 to 4294967295",
        ),
        (
            &["--memory", "-5"],
            "argument must be a memory value; it takes 0, or bytes, also with a unit as in 512mb or 4gb, from 67108864 on",
        ),
        (
            &["--memory", "18446744073709551616"],
            "argument must be 0, or between 67108864 and",
        ),
        (
            &["--memory", "1mb"],
            "'1mb' for '--maxmemory': argument must be 0, or between 67108864 and",
        ),
        (
            &["--save", "900"],
            "'900' for '--save': Invalid save parameters",
        ),
        (&["--databases", "100"], "between 1 and 64 inclusive"),
        (
            &["--maxmemory-policy", "lru"],
            "possible values: volatile-lru",
        ),
        (
            &["--protected-mode", "perhaps"],
            "[possible values: yes, no]",
        ),
        (&["--frobnicate"], "unexpected argument '--frobnicate'"),
        (
            &["--log", "server=everything"],
            "invalid value 'server=everything'",
        ),
    ] {
        let (code, error) = outcome(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    for (arguments, expected) in [
        (
            &["--port", "0", "--appendonly", "yes"][..],
            "'appendonly': nothing is kept on disk: start the server with --data DIR",
        ),
        (
            &["--port", "0", "--save", "900 1"],
            "'save': nothing is kept on disk: start the server with --data DIR",
        ),
        (&["--port", "0", "--memory", "900tb"], "cannot open a store"),
        (
            &["--port", "0", "--memory", "64mb", "--bind", "192.0.2.1"],
            "cannot listen on 192.0.2.1:0",
        ),
    ] {
        let (code, error) = outcome(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
