//! Records of TLS to a whole server, before a handshake or after it: whole ones with commands, ones
//! with a byte changed or cut short, made-up ones and bytes. Whole ones are answered. Whatever else
//! comes, the connection ends once its client has nothing more to send, and the server goes on.
#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mneme_server::settings::Key;
use mneme_server::{Running, Server};
use mneme_testkit::Authority;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, version};

#[derive(Debug, Arbitrary)]
enum Step {
    /// A command and its reply, in whole records.
    Echo(Vec<u8>),
    /// The next records, which have this command, with one byte changed.
    Changed {
        text: Vec<u8>,
        at: u16,
        by: u8,
    },
    /// The first bytes of the next records.
    Cut {
        text: Vec<u8>,
        len: u16,
    },
    /// A record of any content, with a true length or another one.
    Record {
        kind: u8,
        version: u8,
        content: Vec<u8>,
        len: Option<u16>,
    },
    Bytes(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
struct Session {
    shakes_hands: bool,
    is_old: bool,
    steps: Vec<Step>,
}

struct Fuzzed {
    _running: Running,
    /// Clients of TLS 1.3 and 1.2.
    configs: [Arc<ClientConfig>; 2],
    tls: SocketAddr,
    plain: Mutex<TcpStream>,
}

fn server() -> &'static Fuzzed {
    static SERVER: OnceLock<Fuzzed> = OnceLock::new();
    SERVER.get_or_init(|| {
        let authority = Authority::new();
        let files = authority.issue("server", 2090);
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.expect("a free port").port().to_string();
        let [certificate, key] = [&files.certificate, &files.key].map(|path| {
            let path = path.to_str();
            path.expect("a path in UTF-8")
        });
        let mut server = Server::builder().port(0).threads(1).memory(64 << 20);
        for (key, value) in [
            (Key::TlsPort, &*port),
            (Key::TlsCertificate, certificate),
            (Key::TlsKey, key),
            (Key::TlsAuthClients, "no"),
        ] {
            server = server.set(key, value).expect("a setting");
        }
        let running = server.start().expect("free ports");
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(authority.path("ca.pem"));
        roots.add(ca.expect("it was written")).expect("it is one");
        let config = |version| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider);
            let builder = builder.with_protocol_versions(&[version]);
            let builder = builder.expect("ring has its suites");
            let builder = builder.with_root_certificates(roots.clone());
            Arc::new(builder.with_no_client_auth())
        };
        Fuzzed {
            configs: [&version::TLS13, &version::TLS12].map(config),
            tls: running.tls_addresses()[0],
            plain: Mutex::new(connect(running.addresses()[0])),
            _running: running,
        }
    })
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    // What is looked for is a reply, or an end, that does not come. A handshake that is not
    // continued is ended after ten seconds.
    let limit = Some(Duration::from_secs(5));
    stream.set_read_timeout(limit).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

/// A bulk string.
fn bulk(text: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

/// The command whose reply is `text`.
fn echo(text: &[u8]) -> Vec<u8> {
    [b"*2\r\n$4\r\nECHO\r\n", &bulk(text)[..]].concat()
}

/// The records that the client sends next. After its handshake the last has a command.
fn records(client: &mut ClientConnection, text: &[u8]) -> Vec<u8> {
    let taken = client.writer().write_all(&echo(text));
    taken.expect("there is no limit");
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("a vector takes all");
    }
    bytes
}

fuzz_target!(|session: Session| {
    let server = server();
    let mut socket = connect(server.tls);
    let config = &server.configs[usize::from(session.is_old)];
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    let client = ClientConnection::new(Arc::clone(config), name);
    let mut client = client.expect("the settings are good");
    client.set_buffer_limit(None);
    if session.shakes_hands {
        let shaken = client.complete_io(&mut socket);
        shaken.expect("nothing is wrong with this handshake");
    }
    let mut is_honest = session.shakes_hands;
    for step in session.steps.iter().take(16) {
        let bytes = match step {
            Step::Echo(text) if is_honest => {
                let mut stream = rustls::Stream::new(&mut client, &mut socket);
                stream.write_all(&echo(text)).expect("the server reads");
                let mut reply = vec![0; bulk(text).len()];
                stream.read_exact(&mut reply).expect("a reply");
                assert_eq!(reply, bulk(text));
                continue;
            }
            Step::Echo(text) => records(&mut client, text),
            Step::Changed { text, at, by } => {
                let mut bytes = records(&mut client, text);
                let len = bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(usize::from(*at) % len) {
                    *byte ^= by;
                }
                bytes
            }
            Step::Cut { text, len } => {
                let mut bytes = records(&mut client, text);
                bytes.truncate(usize::from(*len));
                bytes
            }
            Step::Record {
                kind,
                version,
                content,
                len,
            } => {
                let len = len.unwrap_or(content.len() as u16).to_be_bytes();
                // Kinds from 20 on have a meaning.
                [&[20 + kind % 6, 3, version % 5][..], &len, content].concat()
            }
            Step::Bytes(bytes) => bytes.clone(),
        };
        is_honest = false;
        if socket.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = socket.shutdown(Shutdown::Write);
    match socket.read_to_end(&mut Vec::new()) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("the server keeps a connection whose client has gone")
        }
        _ => {}
    }
    let mut plain = server
        .plain
        .lock()
        .expect("no run before this has panicked");
    let mut reply = [0; 7];
    plain.write_all(b"PING\r\n").expect("the server reads");
    plain.read_exact(&mut reply).expect("the server replies");
    assert_eq!(&reply, b"+PONG\r\n");
});
