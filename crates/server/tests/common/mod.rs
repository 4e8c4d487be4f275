//! A small Redis client for tests, and a real Redis to compare with, if there is one.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use mneme_server::settings::Key;
use mneme_server::{Running, Server};
use mneme_testkit::{Process, TestDir};

/// A reply in either protocol.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Verbatim(Vec<u8>),
    Null,
    Double(f64),
    Array(Vec<Reply>),
    Set(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// A message that is not a reply to a command.
    Push(Vec<Reply>),
}

impl Reply {
    pub fn bulk(text: impl AsRef<[u8]>) -> Self {
        Reply::Bulk(text.as_ref().to_vec())
    }

    pub fn ok() -> Self {
        Reply::Simple("OK".into())
    }

    /// The text of a reply that has one.
    pub fn text(&self) -> String {
        match self {
            Reply::Simple(text) | Reply::Error(text) => text.clone(),
            Reply::Bulk(bytes) | Reply::Verbatim(bytes) => {
                String::from_utf8_lossy(bytes).into_owned()
            }
            other => panic!("{other:?} has no text"),
        }
    }

    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => items,
            other => panic!("{other:?} has no items"),
        }
    }
}

/// A connection.
pub struct Client {
    pub stream: BufReader<TcpStream>,
}

/// No reply in these tests takes as long; the timeout turns a hang into a failure.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream
            .get_mut()
            .write_all(bytes)
            .expect("the server reads");
    }

    pub fn command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply {
        self.send(&encode(arguments));
        self.reply()
    }

    /// A command of words without spaces.
    pub fn line(&mut self, line: &str) -> Reply {
        self.command(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub fn reply(&mut self) -> Reply {
        self.try_reply().expect("a reply, not the end")
    }

    /// The next reply; `None` at the end of the stream.
    pub fn try_reply(&mut self) -> Option<Reply> {
        let mut line = Vec::new();
        let read = self.stream.read_until(b'\n', &mut line);
        match read {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("no reply: {error}"),
        }
        assert!(
            line.ends_with(b"\r\n"),
            "cut short: {:?}",
            String::from_utf8_lossy(&line)
        );
        let text = String::from_utf8_lossy(&line[1..line.len() - 2]).into_owned();
        let number = || text.parse::<i64>().expect("a number");
        let count = || usize::try_from(number()).ok();
        Some(match line[0] {
            b'+' => Reply::Simple(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Integer(number()),
            b'_' => Reply::Null,
            b'$' => count().map_or(Reply::Null, |len| Reply::Bulk(self.body(len))),
            b'=' => Reply::Verbatim(self.body(count().unwrap()).split_off(4)),
            b'*' => count().map_or(Reply::Null, |len| Reply::Array(self.many(len))),
            b'>' => Reply::Push(self.many(count().unwrap())),
            b'~' => Reply::Set(self.many(count().unwrap())),
            b',' => Reply::Double(text.parse().unwrap()),
            b'%' => {
                let pairs = count().unwrap();
                Reply::Map((0..pairs).map(|_| (self.reply(), self.reply())).collect())
            }
            other => panic!("unknown type {:?}", other as char),
        })
    }

    /// Everything up to the end of the stream.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => rest,
            Err(error) => panic!("no end: {error}"),
        }
    }

    fn many(&mut self, len: usize) -> Vec<Reply> {
        (0..len).map(|_| self.reply()).collect()
    }

    fn body(&mut self, len: usize) -> Vec<u8> {
        let mut body = vec![0; len + 2];
        self.stream.read_exact(&mut body).expect("the whole reply");
        assert_eq!(body.split_off(len), b"\r\n");
        body
    }
}

/// A command as clients send it.
pub fn encode<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.as_ref().len()).as_bytes());
        bytes.extend_from_slice(argument.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A field of `INFO` that is a number.
pub fn info(client: &mut Client, field: &str) -> u64 {
    let text = client.line("INFO").text();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field}"))
        .parse()
        .unwrap()
}

/// A small server on a port of its own.
pub fn server() -> Server {
    Server::builder().port(0).threads(2).memory(64 << 20)
}

/// A server for tests that need `DEBUG`.
pub fn debugged() -> Server {
    server().set(Key::EnableDebug, "yes").unwrap()
}

/// A server that reads no more of a client's commands beyond `pause` bytes of unsent replies, and
/// disconnects it beyond `limit`.
pub fn bounded(server: Server, pause: usize, limit: usize) -> Server {
    let server = server.set(Key::OutputPause, &pause.to_string()).unwrap();
    let limit = format!("normal {limit} 0 0");
    server.set(Key::OutputLimit, &limit).unwrap()
}

pub fn start(server: Server) -> (Running, SocketAddr) {
    let running = server.start().expect("a free port and a little memory");
    let address = running.addresses()[0];
    (running, address)
}

/// A real Redis 7.0, which is ended when this value is dropped.
pub struct Redis {
    _process: Process,
    pub address: SocketAddr,
    _directory: TestDir,
}

impl Redis {
    /// `None`, with a message on the terminal, if Redis is not installed.
    pub fn start() -> Option<Self> {
        let version = Command::new("redis-server").arg("--version").output().ok();
        let version = version
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default();
        if !version.contains("v=7.0.") {
            eprintln!(
                "skipped: there is no redis-server 7.0 ({:?})",
                version.trim()
            );
            return None;
        }
        // A port that was just free may be taken by now; then another is tried.
        let started = (0..20).find_map(|_| {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            Self::start_at(port)
        });
        assert!(started.is_some(), "redis-server finds no free port");
        started
    }

    /// `None` if Redis has ended because another server has the port.
    pub fn start_at(port: u16) -> Option<Self> {
        let directory = TestDir::new("redis");
        // Redis makes its socket once it has its port. Before that, another server may answer at
        // the port.
        let socket = directory.path().join("socket");
        let mut redis = Command::new("redis-server");
        redis
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--unixsocket", &socket.display().to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .args(["--enable-debug-command", "yes"])
            // It looks this often a second for clients whose wait is over, instead of 10 times.
            .args(["--hz", "500"])
            .args(["--dir", &directory.path().display().to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut process = Process::of(&mut redis).expect("it has just printed its version");
        while process.is_running() {
            if UnixStream::connect(&socket).is_ok() {
                return Some(Self {
                    _process: process,
                    address: SocketAddr::from(([127, 0, 0, 1], port)),
                    _directory: directory,
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}
