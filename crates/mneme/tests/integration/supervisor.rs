//! The server's output for service managers and log collectors.

use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;

use crate::common::serving::{self, Serving};

fn server(arguments: &[&str]) -> Command {
    let mut command = serving::command(&["--port", "0", "--memory", "64mb", "--private"]);
    command.args(arguments);
    command
}

#[test]
fn a_service_manager_is_notified_when_the_server_serves_and_when_it_ends() {
    let path = std::env::temp_dir().join(format!("mneme-notify-{}", std::process::id()));
    let manager = UnixDatagram::bind(&path).unwrap();
    is_notified(&manager, path.to_str().unwrap());
    std::fs::remove_file(path).unwrap();
    // A socket in the abstract namespace, as in containers.
    let name = format!("mneme-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = UnixDatagram::bind_addr(&address).unwrap();
    is_notified(&manager, &format!("@{name}"));
}

fn is_notified(manager: &UnixDatagram, socket: &str) {
    manager
        .set_read_timeout(Some(std::time::Duration::from_secs(60)))
        .unwrap();
    let mut command = server(&[]);
    command.env("NOTIFY_SOCKET", socket);
    let serving = Serving::start(command);
    let next_message = || {
        let mut message = [0; 4096];
        let len = manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..len]).into_owned()
    };
    let ready = next_message();
    assert!(ready.lines().any(|line| line == "READY=1"), "{ready}");
    let pid = format!("MAINPID={}", serving.process.id());
    assert!(ready.lines().any(|line| line == pid), "{ready}");
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
    let stopping = next_message();
    assert!(
        stopping.lines().any(|line| line == "STOPPING=1"),
        "{stopping}"
    );
}

/// A client's bytes in the log can neither end a line nor control the terminal that shows it.
#[test]
fn a_clients_bytes_stay_within_one_line_of_the_log() {
    let serving = Serving::start(server(&["--enable-debug-command", "yes"]));
    let mut client = serving.client();
    client
        .write_all(b"*3\r\n$5\r\nDEBUG\r\n$3\r\nLOG\r\n$9\r\none\n\x1b[31m\r\n")
        .unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    serving.signal("-TERM");
    let (_, log) = serving.end();
    let line = log.lines().find(|line| line.contains("DEBUG LOG")).unwrap();
    assert!(line.contains("one\\n") && line.contains("[31m"), "{log}");
    assert!(!log.contains('\x1b'), "{log:?}");
}

#[test]
fn a_json_log_has_an_object_in_each_line() {
    let serving = Serving::start(server(&["--log-format", "json", "--log", "debug"]));
    serving.signal("-TERM");
    let (_, log) = serving.end();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    assert!(
        lines
            .iter()
            .any(|line| line["fields"]["message"] == "stopped" && line["level"] == "INFO"),
        "{log}"
    );
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let mneme = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_mneme"))
            .args(arguments)
            .output()
            .unwrap()
    };
    let page = String::from_utf8(mneme(&["man"]).stdout).unwrap();
    assert!(
        page.starts_with(".ie") && page.contains(".TH mneme 1"),
        "{page}"
    );
    let directory = std::env::temp_dir().join(format!("mneme-man-{}", std::process::id()));
    // Neither the directory nor its parent exists yet.
    let parent = directory.clone();
    let directory = directory.join("share/man1");
    let written = mneme(&["man", "--to", directory.to_str().unwrap()]);
    assert!(written.status.success());
    let serve = std::fs::read_to_string(directory.join("mneme-serve.1")).unwrap();
    assert!(serve.contains("\\-\\-maxmemory"), "{serve}");
    std::fs::remove_dir_all(parent).unwrap();
    let refused = mneme(&["man", "--to", "/dev/null/man1"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("/dev/null/man1"));
}
