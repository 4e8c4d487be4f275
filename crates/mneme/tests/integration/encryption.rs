//! Commands that ask a server over TLS.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use mneme_testkit::Authority;

use crate::common::serving::{self, Serving};

/// A server with a certificate of `authority`, and its port for TLS.
fn serve(authority: &Authority, clients: &str) -> (Serving, String) {
    let files = authority.issue("server", 2090);
    // Port 0 is not accepted here, and another program may take a port that was free: tries
    // several.
    for _ in 0..20 {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port().to_string();
        drop(free);
        let mut command = serving::command(&["--port", "0", "--memory", "64mb", "--private"]);
        command.args(["--tls-port", &port, "--tls-auth-clients", clients]);
        command.arg("--tls-cert-file").arg(&files.certificate);
        command.arg("--tls-key-file").arg(&files.key);
        let ca = authority.path("ca.pem");
        command.arg("--tls-ca-cert-file").arg(ca);
        if let Ok(serving) = Serving::try_start(command) {
            return (serving, port);
        }
    }
    panic!("no port was free");
}

/// The path of a file of `authority`, as an argument.
fn path(authority: &Authority, name: &str) -> String {
    authority.path(name).to_str().unwrap().to_owned()
}

fn stat(arguments: &[&str]) -> Output {
    let mut command = serving::mneme(&[&["stat"], arguments].concat());
    command.output().unwrap()
}

/// The error text of a command that must fail.
fn refused(arguments: &[&str]) -> String {
    let output = stat(arguments);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_command_uses_tls_and_verifies_the_server() {
    let authority = Authority::new();
    let (_serving, port) = serve(&authority, "no");
    let ca = path(&authority, "ca.pem");
    let output = stat(&["--port", &port, "--tls", "--cacert", &ca]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        page.contains(&format!("at 127.0.0.1:{port}")),
        "{page:?} {:?}",
        output.stderr
    );
    let stranger = Authority::new();
    let said = refused(&[
        "--port",
        &port,
        "--tls",
        "--cacert",
        &path(&stranger, "ca.pem"),
    ]);
    assert!(said.contains("certificate"), "{said}");
}

#[test]
fn a_command_shows_its_certificate_to_a_server_that_asks_for_one() {
    let authority = Authority::new();
    let (_serving, port) = serve(&authority, "yes");
    authority.issue("client", 2090);
    let (ca, cert, key) = (
        path(&authority, "ca.pem"),
        path(&authority, "client.pem"),
        path(&authority, "client.key"),
    );
    let verified = ["--port", &port, "--tls", "--cacert", &ca];
    let output = stat(&[&verified[..], &["--cert", &cert, "--key", &key]].concat());
    assert!(output.status.success(), "{output:?}");
    let said = refused(&verified);
    assert!(said.to_lowercase().contains("certificate"), "{said}");
    // If a file of the pair cannot be read or does not match, it is named.
    let absent = path(&authority, "absent.pem");
    let said = refused(&[&verified[..], &["--cert", &absent, "--key", &key]].concat());
    assert!(said.contains("absent.pem"), "{said}");
    let said = refused(&[&verified[..], &["--cert", &cert]].concat());
    assert!(said.contains("--key"), "{said}");
}

#[test]
fn a_mismatch_in_tls_between_command_and_server_is_an_error() {
    let authority = Authority::new();
    let (serving, port) = serve(&authority, "no");
    let ca = path(&authority, "ca.pem");
    let plain = serving.port().to_string();
    let said = refused(&["--port", &plain, "--tls", "--cacert", &ca]);
    assert!(!said.is_empty());
    let said = refused(&["--port", &port]);
    assert!(!said.is_empty());
    // The server is unharmed.
    assert!(stat(&["--port", &plain]).status.success());
}

/// Runs the commands of `docs/guides/securing.md` in an empty directory.
#[test]
fn the_guide_to_secure_a_server_can_be_followed() {
    let guide = include_str!("../../../../docs/guides/securing.md");
    let commands = guide.split("```sh\n").skip(1);
    let commands: Vec<_> = commands
        .filter_map(|block| block.split("```").next())
        .collect();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    // The server reads the certificate of 60 days in the background.
    let read = "while openssl s_client -connect localhost:6380 < out.txt 2>&1 \\
        | openssl x509 -noout -checkend 6048000; do sleep 0.1; done";
    let script = commands.concat();
    let script = script.replace("kill -HUP $!\n", &format!("kill -HUP $!\n{read}\n"));
    let script = script.replace("6380", &port);
    let script = format!("set -e\ntrap 'kill $!; wait' EXIT\n{script}");
    let dir = mneme_testkit::TestDir::on_disk("guide");
    let mneme = serving::mneme(&[]);
    let mut command = Command::new("timeout");
    for (name, _) in mneme.get_envs() {
        command.env_remove(name);
    }
    let beside = Path::new(mneme.get_program()).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = command
        .args(["100", "bash", "-c", &script])
        .current_dir(dir.path())
        .env("PATH", format!("{}:{path}", beside.display()))
        .env("MNEME_DIR", dir.join("registry"))
        .env("MNEME_MAXMEMORY", "64mb")
        .output()
        .unwrap();
    let [said, log] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    if log.contains("redis-cli: command not found") || log.contains("openssl: command not found") {
        return eprintln!("skipped: there is no redis-cli or no openssl");
    }
    assert!(output.status.success(), "{said}{log}");
    assert!(said.contains("\nOK\nNOPERM this user"), "{said}{log}");
    // 60 in the second in which it was made.
    let days = [59, 60].map(|days| format!("certificate         valid for {days} days"));
    assert!(days.iter().any(|line| said.contains(line)), "{said}{log}");
    assert!(log.contains("the certificate has been read again"), "{log}");
}
