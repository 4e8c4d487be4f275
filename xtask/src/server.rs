//! A server for as long as an errand needs it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server on this machine, which ends when this is dropped.
pub struct Server {
    /// Where it listens.
    pub port: u16,
    /// Its process.
    pub process: Child,
}

impl Server {
    /// Starts `mneme serve` on memory of its own and a port that is free, with these settings, and
    /// waits until it listens.
    ///
    /// # Errors
    /// In words, when it does not start.
    pub fn start(program: &Path, settings: &[&str]) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(["serve", "--private", "--port", "0"]);
        let started = command.args(settings).stdout(Stdio::piped()).spawn();
        let mut server = Self {
            port: 0,
            process: started.map_err(|error| format!("{}: {error}", program.display()))?,
        };
        let banner = server.process.stdout.take();
        let banner = BufReader::new(banner.ok_or("mneme serve has no output")?);
        let mut lines = banner.lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            let (_, at) = line.split_once("listening on")?;
            at.rsplit_once(':')?.1.trim().parse().ok()
        });
        server.port = port.ok_or("mneme serve has ended before it listened")?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Politely first, for the process that cargo has become is the server itself.
        let id = self.process.id().to_string();
        let _ = Command::new("kill").arg(id).status();
        let _ = self.process.wait();
    }
}
