//! A socket to a server with a deadline for a whole exchange. The system's timeouts apply to single
//! reads, so a server that sends a byte now and then could keep a client waiting without end;
//! **here the time is limited however often a byte arrives**.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use mneme_sys::{Clock, SystemClock};
use socket2::{Domain, SockAddr, Socket, Type};

/// The connection that a client reads and writes.
pub trait ClientStream: Read + Write {
    /// Limits the total time of all reads and writes from now on.
    fn allow(&mut self, time: Duration);
}

/// A point in time of a monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    at_ns: u64,
}

impl Deadline {
    fn after(time: Duration) -> Self {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            at_ns: SystemClock.now_ns().saturating_add(ns),
        }
    }

    /// The time left until then.
    fn left(self) -> Result<Duration> {
        match self.at_ns.saturating_sub(SystemClock.now_ns()) {
            0 => Err(ErrorKind::TimedOut.into()),
            // At least a microsecond: the system counts microseconds, and takes 0 for no limit.
            ns => Ok(Duration::from_nanos(ns).max(Duration::from_micros(1))),
        }
    }
}

/// A TCP or unix socket with a deadline.
#[derive(Debug)]
pub struct Timed {
    socket: Socket,
    deadline: Deadline,
}

impl Timed {
    /// Connects by TCP to the first address of `host` that answers, within `timeout` altogether.
    pub fn tcp(host: &str, port: u16, timeout: Duration) -> Result<Self> {
        let deadline = Deadline::after(timeout);
        let addresses = addresses(host, port, deadline)?;
        let mut last = Error::from(ErrorKind::AddrNotAvailable);
        for (index, address) in addresses.iter().enumerate() {
            // Divided among the remaining addresses, so that one that does not answer leaves time
            // for the others.
            let others = addresses.len() - index;
            let share = deadline.left()? / u32::try_from(others).unwrap_or(u32::MAX);
            match TcpStream::connect_timeout(address, share.max(Duration::from_micros(1))) {
                Ok(stream) => {
                    let socket = stream.into();
                    return Ok(Self { socket, deadline });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Connects to a unix socket. If the server's backlog is full, Linux waits as long as the write
    /// timeout allows.
    pub fn unix(path: &Path, timeout: Duration) -> Result<Self> {
        let deadline = Deadline::after(timeout);
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_write_timeout(Some(deadline.left()?))?;
        socket.connect(&SockAddr::unix(path)?)?;
        Ok(Self { socket, deadline })
    }
}

/// The addresses of `host`. Resolving a name has no timeout of its own, so a thread does it, and is
/// abandoned at the deadline.
fn addresses(host: &str, port: u16, deadline: Deadline) -> Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let host = host.to_owned();
    let (answer, answers) = mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs();
        // The waiting thread may have given up.
        let _ = answer.send(found.map(Iterator::collect));
    })?;
    let answered = answers.recv_timeout(deadline.left()?);
    answered.map_err(|_| Error::from(ErrorKind::TimedOut))?
}

impl ClientStream for Timed {
    fn allow(&mut self, time: Duration) {
        self.deadline = Deadline::after(time);
    }
}

impl Read for Timed {
    fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        self.socket.set_read_timeout(Some(self.deadline.left()?))?;
        self.socket.read(to)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.socket.set_write_timeout(Some(self.deadline.left()?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.socket.flush()
    }
}
