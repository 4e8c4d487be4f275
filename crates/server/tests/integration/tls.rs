//! Clients that use TLS, and strangers that do not.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mneme_server::settings::{Key, Settings};
use mneme_server::{Ended, Handover, HandoverSocket, Running, StartError};
use mneme_testkit::{Authority, CertificateFiles, TestDir, make_pipe, setting};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, version};

use super::common::{Client, Reply, encode, server};
use super::tools::programs_with_redis_py;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The settings of a certificate and its key.
fn identity(pair: &CertificateFiles) -> [(Key, &str); 2] {
    [
        (Key::TlsCertificate, text(&pair.certificate)),
        (Key::TlsKey, text(&pair.key)),
    ]
}

/// A server with a certificate of `authority`, which must also have signed clients' certificates.
fn with_tls(authority: &Authority, settings: &[(Key, &str)]) -> (Running, SocketAddr, SocketAddr) {
    let pair = authority.issue("server", 2090);
    loop {
        // Port 0 is not accepted here; another program may take the port meanwhile.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port().to_string();
        drop(free);
        let ca = authority.path("ca.pem");
        let of_tls = [(Key::TlsPort, &*port), (Key::TlsAuthority, text(&ca))];
        let mut server = server();
        for (key, value) in of_tls.iter().chain(&identity(&pair)).chain(settings) {
            server = server.set(*key, value).unwrap();
        }
        match server.start() {
            Ok(running) => {
                let plain = running.addresses().first().copied();
                let tls = running.tls_addresses()[0];
                return (running, plain.unwrap_or(tls), tls);
            }
            Err(StartError::AddressInUse { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// The configuration of a client that trusts `authority`, with a certificate if it has one.
fn config(
    authority: &Authority,
    shown: Option<&CertificateFiles>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(authority.path("ca.pem")).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match shown {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain = vec![CertificateDer::from_pem_file(&pair.certificate).unwrap()];
            let key = PrivateKeyDer::from_pem_file(&pair.key).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    })
}

fn socket(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    let limit = Some(Duration::from_secs(60));
    socket.set_read_timeout(limit).unwrap();
    socket.set_write_timeout(limit).unwrap();
    socket
}

fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> BufReader<Stream> {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let session = ClientConnection::new(Arc::clone(config), name).unwrap();
    BufReader::new(StreamOwned::new(session, socket(address)))
}

/// The first line of the reply to an inline command, or the connection's error.
fn asked(client: &mut BufReader<Stream>, command: &str) -> std::io::Result<String> {
    client
        .get_mut()
        .write_all(format!("{command}\r\n").as_bytes())?;
    let mut line = String::new();
    client.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

const BOTH: &[&rustls::SupportedProtocolVersion] = &[&version::TLS12, &version::TLS13];

#[test]
fn clients_of_both_versions_are_served() {
    let authority = Authority::new();
    let shown = authority.issue("client", 2090);
    let (_running, plain, tls) = with_tls(&authority, &[]);
    for version in [&version::TLS12, &version::TLS13] {
        let mut client = connect(tls, &config(&authority, Some(&shown), &[version]));
        assert_eq!(asked(&mut client, "PING").unwrap(), "+PONG");
        // More than fits into records, buffers and sockets, in both directions.
        let value = vec![b'x'; 3 << 20];
        let mut exchange = |sent: Vec<u8>, expected: usize| {
            let stream = client.get_mut();
            stream.write_all(&sent).unwrap();
            let mut replies = vec![0; expected];
            stream.read_exact(&mut replies).unwrap();
            replies
        };
        assert_eq!(
            exchange(encode(&[&b"SET"[..], b"large", &value]), 5),
            b"+OK\r\n"
        );
        let bulk = [b"$3145728\r\n", &value[..], b"\r\n"].concat();
        let three = exchange(encode(&["GET", "large"]).repeat(3), 3 * bulk.len());
        assert!(three == bulk.repeat(3));
        let counts = exchange(
            encode(&["INCR", "count"]).repeat(1000),
            9 * 4 + 90 * 5 + 900 * 6 + 7,
        );
        assert!(counts.ends_with(b":999\r\n:1000\r\n"));
        assert_eq!(asked(&mut client, "GETDEL count").unwrap(), "$4");
        let mut count = String::new();
        client.read_line(&mut count).unwrap();
        assert_eq!(count, "1000\r\n");
    }
    // The plain port is unaffected.
    assert_eq!(
        Client::connect(plain).line("STRLEN large"),
        Reply::Integer(3 << 20)
    );
}

#[test]
fn a_client_is_known_by_a_certificate_that_is_signed_and_valid() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let (running, plain, tls) = with_tls(&authority, &[]);
    let mut other = Client::connect(plain);
    let shown = [
        None,
        Some(authority.issue("expired", 2021)),
        Some(foreign.issue("foreign", 2090)),
    ];
    for (place, shown) in shown.iter().enumerate() {
        for version in [&version::TLS12, &version::TLS13] {
            let mut client = connect(tls, &config(&authority, shown.as_ref(), &[version]));
            let refused = asked(&mut client, "PING");
            assert!(
                refused.as_ref().is_err() || refused.as_ref().is_ok_and(String::is_empty),
                "{place}: {refused:?}"
            );
            assert_eq!(other.line("PING"), Reply::Simple("PONG".into()));
        }
    }
    // A client that does not trust the server sends an alert and closes the connection.
    let mut client = connect(tls, &config(&foreign, None, BOTH));
    let refused = asked(&mut client, "PING").unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
    // When certificates become optional, clients without one are served; a wrong one is still
    // refused.
    other.command(&["CONFIG", "SET", "tls-auth-clients", "optional"]);
    let [none, expired, _] = &shown;
    for (shown, is_served) in [(none, true), (expired, false)] {
        let mut client = connect(tls, &config(&authority, shown.as_ref(), BOTH));
        let answer = asked(&mut client, "PING");
        assert_eq!(answer.is_ok_and(|line| line == "+PONG"), is_served);
    }
    drop(running);
}

#[test]
fn plain_text_at_the_tls_port_gets_a_clear_error_and_the_reverse() {
    let authority = Authority::new();
    let (_running, plain, tls) = with_tls(&authority, &[(Key::TlsAuthClients, "no")]);
    let mut client = Client::connect(tls);
    let Reply::Error(answer) = client.line("PING") else {
        panic!("no error")
    };
    assert!(answer.starts_with("ERR this port speaks TLS"), "{answer}");
    assert_eq!(client.try_reply(), None);
    let mut client = connect(plain, &config(&authority, None, BOTH));
    let refused = asked(&mut client, "PING").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidData, "{refused}");
    // Garbage that begins like TLS.
    for garbage in [
        &b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"[..],
        b"\x16\x03\x03\xff\xff\x01aaaaaaaaaaaaaaaaaaaaaaaa",
        b"\x16\x03\x01\x00\x02\x01\x00",
        b"\x15\x03\x01\x00\x02\x02\x28",
    ] {
        let mut stranger = socket(tls);
        stranger.write_all(garbage).unwrap();
        let _ = stranger.shutdown(std::net::Shutdown::Write);
        // The connection ends, with or without an alert.
        let mut rest = Vec::new();
        let _ = stranger.read_to_end(&mut rest);
    }
    let mut client = connect(tls, &config(&authority, None, BOTH));
    assert_eq!(asked(&mut client, "PING").unwrap(), "+PONG");
}

#[test]
fn a_certificate_is_replaced_while_clients_are_served() {
    let authority = Authority::new();
    let settings = [(Key::TlsAuthClients, "no")];
    let (running, plain, tls) = with_tls(&authority, &settings);
    let mut admin = Client::connect(plain);
    let config = config(&authority, None, BOTH);
    let shown = |client: &mut BufReader<Stream>| {
        assert_eq!(asked(client, "PING").unwrap(), "+PONG");
        client.get_ref().conn.peer_certificates().unwrap()[0].to_vec()
    };
    let mut before = connect(tls, &config);
    let first = shown(&mut before);
    let next = authority.issue("next", 2090);
    let [certificate, key] = [&next.certificate, &next.key].map(|path| text(path));
    let pipe = authority.path("pipe");
    make_pipe(&pipe);
    // One file without the other does not match, and changes nothing.
    for (setting, value, reason) in [
        ("tls-cert-file", certificate, "key"),
        ("tls-cert-file", "/nowhere", "No such file"),
        ("tls-cert-file", text(&pipe), "not a file"),
        ("tls-key-file", text(&pipe), "not a file"),
        ("tls-key-file", certificate, "no private key"),
        ("tls-protocols", "SSLv3", "TLSv1.2, TLSv1.3"),
        ("tls-ciphers", "DEFAULT:!MEDIUM", "ECDHE"),
        ("tls-ca-cert-file", key, "no certificate"),
        ("tls-ca-cert-file", text(&pipe), "not a file"),
    ] {
        if setting == "tls-ca-cert-file" {
            admin.command(&["CONFIG", "SET", "tls-auth-clients", "optional"]);
        }
        let Reply::Error(refused) = admin.command(&["CONFIG", "SET", setting, value]) else {
            panic!("{setting} is taken")
        };
        assert!(refused.contains(reason), "{refused}");
        assert_eq!(shown(&mut connect(tls, &config)), first);
    }
    let both = [
        "CONFIG",
        "SET",
        "tls-cert-file",
        certificate,
        "tls-key-file",
        key,
    ];
    assert_eq!(admin.command(&both), Reply::ok());
    let second = shown(&mut connect(tls, &config));
    assert_ne!(first, second);
    assert_eq!(shown(&mut before), first, "it keeps what it began with");
    // New content in the same files, as an ACME client writes them.
    authority.issue("next", 2091);
    running.stopper().reload();
    let third = shown(&mut connect(tls, &config));
    assert_ne!(third, second);
    std::fs::write(&next.key, "nonsense").unwrap();
    running.stopper().reload();
    assert_eq!(shown(&mut connect(tls, &config)), third);
    // A pipe into which nobody writes.
    std::fs::remove_file(&next.key).unwrap();
    make_pipe(&next.key);
    running.stopper().reload();
    assert_eq!(shown(&mut connect(tls, &config)), third);
}

#[test]
fn unfinished_handshakes_delay_nobody() {
    let authority = Authority::new();
    let settings = [(Key::TlsAuthClients, "no")];
    let (_running, plain, tls) = with_tls(&authority, &settings);
    let config = config(&authority, None, BOTH);
    let mut client = connect(tls, &config);
    assert_eq!(asked(&mut client, "PING").unwrap(), "+PONG");
    // More than a thread keeps: half of them send nothing, half a part of their first message.
    let count =
        setting("MNEME_LADDER_CONNECTIONS").map_or(1200, |count| count.min(10_000) as usize);
    mneme_sys::allow_open_files(count as u64 + 3000).unwrap();
    let mut strangers: Vec<TcpStream> = (0..count)
        .map(|number| {
            let mut stranger = socket(tls);
            if number % 2 == 0 {
                let _ = stranger.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
            }
            stranger
        })
        .collect();
    assert_eq!(asked(&mut client, "PING").unwrap(), "+PONG");
    assert_eq!(asked(&mut connect(tls, &config), "PING").unwrap(), "+PONG");
    // The oldest have been disconnected.
    let mut first = &strangers[0];
    let mut rest = Vec::new();
    let _ = first.read_to_end(&mut rest);
    let connected = Client::connect(plain).line("INFO clients").text();
    let clients = connected
        .lines()
        .find_map(|line| line.strip_prefix("connected_clients:"));
    assert!(
        clients.unwrap().parse::<usize>().unwrap() < 1200,
        "{connected}"
    );
    // The newest are disconnected at their deadline, also one that goes on sending.
    let mut sends = strangers.swap_remove(count - 2);
    let pause = Some(Duration::from_millis(100));
    sends.set_read_timeout(pause).unwrap();
    let is_closed = (0..600).any(|_| {
        let sent = sends.write_all(b"a");
        match sent.and_then(|()| sends.read(&mut [0; 100])) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    });
    assert!(is_closed);
    for stranger in &mut strangers[count - 50..] {
        let _ = stranger.read_to_end(&mut rest);
    }
    assert_eq!(asked(&mut client, "PING").unwrap(), "+PONG");
}

/// In some of the rounds its last bytes arrive together with the end.
#[test]
fn a_client_that_leaves_at_the_end_of_its_handshake_is_disconnected() {
    let authority = Authority::new();
    let (_running, _, tls) = with_tls(&authority, &[(Key::TlsAuthClients, "no")]);
    for version in [&version::TLS12, &version::TLS13] {
        let config = config(&authority, None, &[version]);
        for _ in 0..50 {
            let mut client = connect(tls, &config).into_inner();
            client.conn.complete_io(&mut client.sock).unwrap();
            client.sock.shutdown(std::net::Shutdown::Write).unwrap();
            let ended = client.sock.read_to_end(&mut Vec::new());
            let is_open = ended.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            assert!(
                !is_open,
                "the server keeps a connection whose client has gone"
            );
        }
    }
}

#[test]
fn without_its_files_a_server_does_not_start() {
    let authority = Authority::new();
    let pair = authority.issue("server", 2090);
    let other = authority.issue("other", 2090);
    let start = |settings: &[(Key, &str)]| {
        let mut server = server().set(Key::TlsPort, "1").unwrap();
        for (key, value) in settings {
            server = server.set(*key, value).unwrap();
        }
        server.start().err().expect("it does not start").to_string()
    };
    let certificate = (Key::TlsCertificate, text(&pair.certificate));
    let key = (Key::TlsKey, text(&pair.key));
    let no = (Key::TlsAuthClients, "no");
    assert!(start(&[]).contains("tls-cert-file is not set"));
    assert!(start(&[certificate]).contains("tls-key-file is not set"));
    assert!(start(&[certificate, key]).contains("tls-ca-cert-file"));
    let mixed = [certificate, (Key::TlsKey, text(&other.key)), no];
    assert!(start(&mixed).contains("server.pem"));
    let encrypted = authority.path("encrypted.key");
    std::fs::write(
        &encrypted,
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    let refused = start(&[certificate, (Key::TlsKey, text(&encrypted)), no]);
    assert!(refused.contains("decrypt it first"), "{refused}");
    let pipe = authority.path("pipe");
    make_pipe(&pipe);
    let refused = start(&[certificate, (Key::TlsKey, text(&pipe)), no]);
    assert!(refused.contains("not a file"), "{refused}");
}

#[test]
fn a_successor_takes_the_tls_socket_over_and_reads_certificates_and_users_anew() {
    let authority = Authority::new();
    let directory = TestDir::on_disk("tls-handover");
    let users = directory.path().join("users.acl");
    std::fs::write(&users, "user default on nopass ~* &* +@all\n").unwrap();
    let kept = [(Key::TlsAuthClients, "no"), (Key::AclFile, text(&users))];
    let (running, plain, tls) = with_tls(&authority, &kept);
    let config = config(&authority, None, BOTH);
    let shown = |client: &mut BufReader<Stream>| {
        asked(client, "PING").unwrap();
        client.get_ref().conn.peer_certificates().unwrap()[0].to_vec()
    };
    let first = shown(&mut connect(tls, &config));
    let mut admin = Client::connect(plain);
    for line in [
        "ACL SETUSER app on >secret ~app:* +get +set",
        "ACL SAVE",
        "ACL SETUSER unsaved on nopass +@all",
    ] {
        assert_eq!(admin.line(line), Reply::ok());
    }
    // Both are changed on disk, which the running server does not notice.
    authority.issue("server", 2091);
    let mut saved = std::fs::read_to_string(&users).unwrap();
    saved += "user added on nopass ~* +ping\n";
    std::fs::write(&users, saved).unwrap();
    assert_eq!(shown(&mut connect(tls, &config)), first);
    let socket = HandoverSocket::listen(directory.path(), running.stopper()).unwrap();
    let successor = Handover::ask(directory.path()).unwrap();
    let old = std::thread::spawn(move || {
        let Ended::Retired(mut listeners) = running.join().unwrap() else {
            panic!("it was stopped")
        };
        let mut request = socket.into_request().unwrap();
        request.grant(&mut listeners).unwrap();
    });
    let (listeners, taken) = successor.take(&Settings::default()).unwrap();
    let pair = CertificateFiles {
        certificate: authority.path("server.pem"),
        key: authority.path("server.key"),
    };
    let mut next = server().listeners(listeners);
    for (key, value) in identity(&pair).into_iter().chain(kept) {
        next = next.set(key, value).unwrap();
    }
    let next = next.start().unwrap();
    taken.unwrap().serving().unwrap();
    old.join().unwrap();
    assert_eq!(next.tls_addresses(), [tls]);
    let mut client = connect(tls, &config);
    assert_ne!(shown(&mut client), first);
    for (line, answer) in [
        ("AUTH unsaved x", "-WRONGPASS"),
        ("AUTH added x", "+OK"),
        ("PING", "+PONG"),
        ("GET app:1", "-NOPERM"),
        ("AUTH app wrong", "-WRONGPASS"),
        ("AUTH app secret", "+OK"),
        ("SET app:1 x", "+OK"),
        ("GET other", "-NOPERM"),
        ("CONFIG GET port", "-NOPERM"),
    ] {
        let line = asked(&mut client, line).unwrap();
        assert!(line.starts_with(answer), "{line} instead of {answer}");
    }
    let port = Client::connect(next.addresses()[0]).line("CONFIG GET tls-port");
    assert_eq!(port.items()[1], Reply::bulk(tls.port().to_string()));
}

#[test]
fn redis_cli_speaks_tls() {
    if std::process::Command::new("redis-cli")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: there is no redis-cli");
        return;
    }
    let authority = Authority::new();
    let shown = authority.issue("client", 2090);
    let (_running, _, tls) = with_tls(&authority, &[(Key::TlsOnly, "yes")]);
    let ca = authority.path("ca.pem");
    let port = tls.port().to_string();
    let output = std::process::Command::new("redis-cli")
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "--tls",
            "--cacert",
            text(&ca),
        ])
        .args([
            "--cert",
            text(&shown.certificate),
            "--key",
            text(&shown.key),
        ])
        .args(["SET", "key", "value"])
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"OK\n", "{output:?}");
}

#[test]
fn redis_benchmark_speaks_tls() {
    let authority = Authority::new();
    let (_running, _, tls) = with_tls(&authority, &[(Key::TlsAuthClients, "no")]);
    let port = tls.port().to_string();
    let ca = authority.path("ca.pem");
    let of_tls = ["-p", &port, "--tls", "--cacert", text(&ca), "-q"];
    let load = "-t set,get,lpush,hset -n 2000 -c 20 -P 16 -d 1000".split(' ');
    let run = std::process::Command::new("redis-benchmark")
        .args(of_tls)
        .args(load)
        .output();
    let Ok(output) = run else {
        println!("skipped: there is no redis-benchmark");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.matches("requests per second").count(), 4, "{output:?}");
}

#[test]
fn redis_py_speaks_tls() {
    let authority = Authority::new();
    let shown = authority.issue("client", 2090);
    let (_running, _, tls) = with_tls(&authority, &[(Key::TlsOnly, "yes")]);
    let ca = authority.path("ca.pem");
    let files = [text(&ca), text(&shown.certificate), text(&shown.key)];
    programs_with_redis_py(tls, &files);
}
