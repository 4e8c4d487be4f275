//! `mneme serve` in a process of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use mneme_testkit::Process;

/// `mneme serve`, without the variables of the tester's environment.
pub fn command(arguments: &[&str]) -> Command {
    mneme(&[&["serve"], arguments].concat())
}

/// The command, without the variables of the tester's environment.
pub fn mneme(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mneme"));
    command.args(arguments);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MNEME_")) {
        command.env_remove(name);
    }
    command
}

/// A server that is killed at the end, if it has not ended by then.
pub struct Serving {
    pub process: Process,
    pub banner: String,
}

impl Serving {
    pub fn start(command: Command) -> Self {
        match Self::try_start(command) {
            Ok(serving) => serving,
            Err(said) => panic!("it ended: {said}"),
        }
    }

    /// Starts the server. An error is the server's output if it has ended instead.
    pub fn try_start(mut command: Command) -> Result<Self, String> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut serving = Self {
            process: Process::of(&mut command).unwrap(),
            banner: String::new(),
        };
        while !serving.banner.contains("Stop it:") {
            let Some(line) = serving.process.line() else {
                let banner = serving.banner.clone();
                return Err(format!("{banner}{:?}", serving.end()));
            };
            serving.banner += &format!("{line}\n");
        }
        Ok(serving)
    }

    pub fn port(&self) -> u16 {
        let line = self
            .banner
            .lines()
            .find(|line| line.contains("listening on"))
            .unwrap();
        // The path of a unix socket may follow it.
        let port = |word: &str| word.trim_end_matches(',').rsplit_once(':')?.1.parse().ok();
        line.split_whitespace().find_map(port).unwrap()
    }

    /// The address that serves metrics.
    pub fn metrics(&self) -> SocketAddr {
        let url = self.banner.split("http://").nth(1).unwrap();
        url.split('/').next().unwrap().parse().unwrap()
    }

    pub fn client(&self) -> TcpStream {
        let client = TcpStream::connect(("127.0.0.1", self.port())).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        client
    }

    /// The server's answer to these lines, up to the end of the connection.
    pub fn said(&self, lines: &str) -> String {
        let mut client = self.client();
        client
            .write_all(format!("{lines}QUIT\r\n").as_bytes())
            .unwrap();
        let mut replies = String::new();
        client.read_to_string(&mut replies).unwrap();
        replies
    }

    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// The exit code and everything on standard error.
    pub fn end(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        let mut errors = self.process.child.stderr.take().unwrap();
        errors.read_to_string(&mut log).unwrap();
        (self.process.wait().code(), log)
    }
}
