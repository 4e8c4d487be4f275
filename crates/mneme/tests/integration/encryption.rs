//! Commands that use a server over TLS.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};

use mneme_testkit::TestDir;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::common::serving::{self, Serving};

/// Signs certificates for 127.0.0.1, and keeps them in a directory of its own.
struct Authority {
    directory: TestDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(parameters, key).unwrap();
        let directory = TestDir::new("encryption");
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { directory, issuer }
    }

    fn path(&self, name: &str) -> String {
        let path: PathBuf = self.directory.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    /// Issues `NAME.pem` and `NAME.key`.
    fn issue(&self, name: &str) {
        let parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// A server with a certificate of this authority, and its port for TLS.
    fn serve(&self, clients: &str) -> (Serving, String) {
        self.issue("server");
        // Port 0 is not accepted here, and another program may take a port that was free: tries
        // several.
        for _ in 0..20 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port().to_string();
            drop(free);
            let mut command = serving::command(&["--port", "0", "--memory", "64mb", "--private"]);
            command.args(["--tls-port", &port, "--tls-auth-clients", clients]);
            command.args(["--tls-cert-file", &self.path("server.pem")]);
            command.args(["--tls-key-file", &self.path("server.key")]);
            command.args(["--tls-ca-cert-file", &self.path("ca.pem")]);
            if let Ok(serving) = Serving::try_start(command) {
                return (serving, port);
            }
        }
        panic!("no port was free");
    }
}

fn stat(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mneme"));
    command.arg("stat").args(arguments);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MNEME_")) {
        command.env_remove(name);
    }
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
    let (_serving, port) = authority.serve("no");
    let ca = authority.path("ca.pem");
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
        &stranger.path("ca.pem"),
    ]);
    assert!(said.contains("certificate"), "{said}");
}

#[test]
fn a_command_shows_its_certificate_to_a_server_that_asks_for_one() {
    let authority = Authority::new();
    let (_serving, port) = authority.serve("yes");
    authority.issue("client");
    let (ca, cert, key) = (
        authority.path("ca.pem"),
        authority.path("client.pem"),
        authority.path("client.key"),
    );
    let verified = ["--port", &port, "--tls", "--cacert", &ca];
    let output = stat(&[&verified[..], &["--cert", &cert, "--key", &key]].concat());
    assert!(output.status.success(), "{output:?}");
    let said = refused(&verified);
    assert!(said.to_lowercase().contains("certificate"), "{said}");
    // If a file of the pair cannot be read or does not match, it is named.
    let absent = authority.path("absent.pem");
    let said = refused(&[&verified[..], &["--cert", &absent, "--key", &key]].concat());
    assert!(said.contains("absent.pem"), "{said}");
    let said = refused(&[&verified[..], &["--cert", &cert]].concat());
    assert!(said.contains("--key"), "{said}");
}

#[test]
fn a_mismatch_in_tls_between_command_and_server_is_an_error() {
    let authority = Authority::new();
    let (serving, port) = authority.serve("no");
    let ca = authority.path("ca.pem");
    let plain = serving.port().to_string();
    let said = refused(&["--port", &plain, "--tls", "--cacert", &ca]);
    assert!(!said.is_empty());
    let said = refused(&["--port", &port]);
    assert!(!said.is_empty());
    // The server is unharmed.
    assert!(stat(&["--port", &plain]).status.success());
}
