//! Any commands with any arguments, by one client of a whole server, in pipelines: each gets
//! exactly one reply, whatever it makes of its arguments, and the server goes on.
//!
//! Names and options come from lists, so that commands get past their first check; what no list has
//! is any bytes.
#![no_main]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use mneme_server::{Running, Server};

/// Commands that end or silence the connection, stop the server or make it sleep, in whole or as
/// they begin; and those that have several replies.
const LEFT_OUT: &[&str] = &[
    // Twenty wrong passwords end a connection.
    "auth",
    "client",
    "debug",
    "hello",
    "monitor",
    "psubscribe",
    "punsubscribe",
    "quit",
    "reset",
    "shutdown",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
];

/// Words that some command takes for an option.
const WORDS: &[&str] = &[
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "NX",
    "XX",
    "GT",
    "LT",
    "GET",
    "SET",
    "INCRBY",
    "KEEPTTL",
    "PERSIST",
    "DB",
    "REPLACE",
    "BIT",
    "BYTE",
    "AND",
    "OR",
    "XOR",
    "NOT",
    "OVERFLOW",
    "WRAP",
    "SAT",
    "FAIL",
    "u8",
    "i64",
    "u63",
    "i1",
    "#1",
    "LEN",
    "IDX",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "MATCH",
    "COUNT",
    "TYPE",
    "string",
    "ASYNC",
    "SYNC",
    "USAGE",
    "STATS",
    "HELP",
    "ENCODING",
    "FREQ",
    "IDLETIME",
    "LIST",
    "INFO",
    "DOCS",
    "GETKEYS",
    "*",
    "?",
    "[a-z]",
    "all",
];

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "7",
    "8",
    "63",
    "64",
    "100",
    "-100",
    "1000000",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "4294967295",
    "4294967296",
    "536870911",
    "536870912",
    "1.5",
    "-0.0",
    "1e300",
    "inf",
    "nan",
    "3.0e-10",
];

#[derive(Debug)]
struct Session(Vec<Vec<Vec<u8>>>);

impl<'a> Arbitrary<'a> for Session {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let names = &server().names;
        let mut commands = Vec::new();
        while commands.len() < 32 && u.arbitrary::<u8>()? != 0 {
            let mut command = vec![u.choose(names)?.clone()];
            for _ in 0..u.int_in_range(0..=6)? {
                command.push(match u.int_in_range(0..=3)? {
                    0 => format!("k{}", u.int_in_range(0..=3)?).into_bytes(),
                    1 => u.choose(WORDS)?.as_bytes().to_vec(),
                    2 => u.choose(NUMBERS)?.as_bytes().to_vec(),
                    _ => u.arbitrary()?,
                });
            }
            commands.push(command);
        }
        Ok(Session(commands))
    }
}

struct Fuzzed {
    _running: Running,
    names: Vec<Vec<u8>>,
    stream: Mutex<TcpStream>,
}

fn server() -> &'static Fuzzed {
    static SERVER: OnceLock<Fuzzed> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = Server::builder().port(0).threads(1).memory(64 << 20);
        let running = server.start().expect("a free port");
        let mut stream = TcpStream::connect(running.addresses()[0]).expect("the server listens");
        // A reply that does not come is what is looked for.
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        let mut input = Input::default();
        let mut names = |filter: &[&str]| {
            let words = ["COMMAND", "LIST"].iter().chain(filter);
            let words = words.map(|word| word.as_bytes().to_vec());
            write(&mut stream, &[words.collect()]);
            input.strings(&mut stream)
        };
        // They wait, and are not answered meanwhile.
        let waiting = names(&["FILTERBY", "ACLCAT", "blocking"]);
        assert!(waiting.contains(&b"bzpopmin".to_vec()));
        let names = names(&[]).into_iter().filter(|name| {
            !waiting.contains(name) && !LEFT_OUT.iter().any(|out| name == out.as_bytes())
        });
        Fuzzed {
            names: names.collect(),
            stream: Mutex::new(stream),
            _running: running,
        }
    })
}

fn write(stream: &mut TcpStream, commands: &[Vec<Vec<u8>>]) {
    let mut bytes = Vec::new();
    for command in commands {
        bytes.extend(format!("*{}\r\n", command.len()).into_bytes());
        for argument in command {
            bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
    }
    stream.write_all(&bytes).expect("the server reads");
}

/// What has come and was not looked at yet.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    at: usize,
}

impl Input {
    fn take(&mut self, stream: &mut TcpStream, len: usize) -> Vec<u8> {
        while self.bytes.len() < self.at + len {
            let mut more = [0; 1 << 16];
            let read = stream.read(&mut more).expect("a reply to each command");
            assert!(read > 0, "the server has closed the connection");
            self.bytes.extend_from_slice(&more[..read]);
        }
        self.at += len;
        self.bytes[self.at - len..self.at].to_vec()
    }

    fn line(&mut self, stream: &mut TcpStream) -> Vec<u8> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(self.take(stream, 1));
        }
        line
    }

    /// One whole reply, of which the texts are returned.
    fn strings(&mut self, stream: &mut TcpStream) -> Vec<Vec<u8>> {
        let line = self.line(stream);
        let number = || {
            let text = std::str::from_utf8(&line[1..line.len() - 2]).expect("a number");
            text.parse::<i64>().expect("a number")
        };
        match line[0] {
            b'+' | b'-' => vec![line[1..line.len() - 2].to_vec()],
            b':' => {
                number();
                Vec::new()
            }
            b'$' => usize::try_from(number()).map_or(Vec::new(), |len| {
                let text = self.take(stream, len);
                assert_eq!(self.take(stream, 2), b"\r\n");
                vec![text]
            }),
            b'*' => (0..number().max(0))
                .flat_map(|_| self.strings(stream))
                .collect(),
            kind => panic!("a reply of kind {kind}"),
        }
    }
}

fuzz_target!(|session: Session| {
    let Session(mut commands) = session;
    let mut stream = server()
        .stream
        .lock()
        .expect("no run before this has panicked");
    // Nothing is left of one session for the next, and what comes last is known.
    commands.extend([&b"DISCARD"[..], b"UNWATCH", b"FLUSHALL"].map(|name| vec![name.to_vec()]));
    commands.push(vec![b"SELECT".to_vec(), b"0".to_vec()]);
    commands.push(vec![b"ECHO".to_vec(), b"the end".to_vec()]);
    write(&mut stream, &commands);
    let mut input = Input::default();
    for command in &commands {
        let reply = input.strings(&mut stream);
        let last = command[0] == b"ECHO" && command[1..] == [b"the end"];
        assert!(
            !last || reply == [b"the end"] || reply == [b"QUEUED"],
            "a reply too many or too few"
        );
    }
    assert_eq!(input.at, input.bytes.len(), "a reply too many");
});
