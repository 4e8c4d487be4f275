//! Listening sockets and the connections accepted from them.
//!
//! All threads wait on the same listening sockets, and the thread that accepts a connection gives
//! it to the thread that serves the fewest. `SO_REUSEPORT`, with a separate socket for each thread,
//! would avoid that. But it distributes a few long-lived connections unevenly (by a hash of the
//! addresses, and most clients keep only a few connections), leaves the connections queued for a
//! busy thread waiting, and silently lets a second server use the same port.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use crate::acl::Table;
use crate::log_limiter::LogLimiter;
use crate::settings::{Key, Settings};
use crate::socket_file::SocketFile;
use crate::tls::{self, TlsStream};

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    /// TCP whose peers speak TLS.
    Tls(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// The sockets that a server listens on, and their TCP addresses.
pub(crate) struct Bound {
    pub listeners: Vec<Listener>,
    pub addresses: Vec<SocketAddr>,
    /// Those whose peers speak TLS.
    pub tls_addresses: Vec<SocketAddr>,
}

/// Listening sockets that are passed from one server to the next, together with the lock of the
/// data directory, and the users for a server that continues.
#[derive(Debug, Default)]
pub struct Listeners {
    pub(crate) sockets: Vec<Listener>,
    /// An open file that holds the lock, even if the predecessor has closed its own.
    pub(crate) lock: Option<OwnedFd>,
    /// The users of the server that has retired, including changes by its clients. They are not
    /// passed to another process, which has its own file of users.
    pub(crate) users: Option<Table>,
}

impl Listeners {
    /// Listeners without a lock and users.
    pub(crate) fn of(sockets: Vec<Listener>) -> Self {
        Self {
            sockets,
            ..Self::default()
        }
    }

    /// Whether there are no listeners, because the server had already ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }
}

/// A connection's socket.
#[derive(Debug)]
pub(crate) enum ClientSocket {
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
    Unix(UnixStream),
}

/// A connection that has been accepted and not yet served.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub stream: ClientSocket,
    /// The peer's address, as `CLIENT LIST` shows it.
    pub peer: String,
    /// The local address.
    pub local: String,
    /// Whether it comes from this machine.
    pub is_local: bool,
    /// Whether its peer must speak TLS.
    pub is_tls: bool,
}

impl Listener {
    /// Listens on a TCP address.
    pub fn tcp(address: SocketAddr, backlog: i32) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        // A port whose last server has just ended can be reused at once; one with a living server
        // cannot.
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(backlog)?;
        Ok(Listener::Tcp(TcpListener::from_std(socket.into())))
    }

    /// Listens on a unix socket. A socket that a dead server has left behind is replaced; one that
    /// answers, or a file of another kind, is not. Its file gets the permissions of
    /// `unixsocketperm` before anybody can connect, and is removed with the second value.
    pub fn unix(path: &Path, settings: &Settings) -> io::Result<(Self, SocketFile)> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        let address = SockAddr::unix(path)?;
        match socket.bind(&address) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path, &address) =>
            {
                std::fs::remove_file(path)?;
                socket.bind(&address)?;
            }
            bound => bound?,
        }
        let file = SocketFile::new(path.to_owned());
        if settings.is(Key::UnixSocketPermissions) {
            let mode = settings.number(Key::UnixSocketPermissions) as u32;
            std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        socket.listen(settings.number(Key::Backlog) as i32)?;
        let listener = UnixListener::from_std(OwnedFd::from(socket).into());
        Ok((Listener::Unix(listener, path.to_owned()), file))
    }

    /// Makes a TCP listener accept only peers that speak TLS.
    pub fn with_tls(self) -> Self {
        match self {
            Listener::Tcp(listener) => Listener::Tls(listener),
            other => other,
        }
    }

    /// The TCP address on which it listens for peers that speak TLS, or that do not.
    pub fn address(&self, is_tls: bool) -> io::Result<Option<SocketAddr>> {
        match self {
            Listener::Tcp(listener) if !is_tls => listener.local_addr().map(Some),
            Listener::Tls(listener) if is_tls => listener.local_addr().map(Some),
            _ => Ok(None),
        }
    }

    /// Its socket, for passing it to another process.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }

    /// The path of the unix socket it listens on.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Listener::Tcp(_) | Listener::Tls(_) => None,
            Listener::Unix(_, path) => Some(path.clone()),
        }
    }

    /// Another handle of this socket, for another thread.
    pub fn share(&self) -> io::Result<Self> {
        match self {
            Listener::Tcp(listener) => {
                let shared = SockRef::from(listener).try_clone()?;
                Ok(Listener::Tcp(TcpListener::from_std(shared.into())))
            }
            Listener::Tls(listener) => {
                let shared = SockRef::from(listener).try_clone()?;
                Ok(Listener::Tls(TcpListener::from_std(shared.into())))
            }
            Listener::Unix(listener, path) => {
                let shared = SockRef::from(listener).try_clone()?;
                Ok(Listener::Unix(
                    UnixListener::from_std(OwnedFd::from(shared).into()),
                    path.clone(),
                ))
            }
        }
    }

    /// Other handles of these sockets, for another thread or another server.
    pub fn share_all(listeners: &[Listener]) -> io::Result<Vec<Self>> {
        listeners.iter().map(Self::share).collect()
    }

    /// Accepts the next connection. After `keepalive_s` seconds of silence (limited by the system),
    /// its peer is probed; 0 disables that.
    pub fn accept(&self, keepalive_s: u64) -> io::Result<Accepted> {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener) => {
                let (stream, peer) = listener.accept()?;
                // A connection without a local address has already ended.
                let local = stream
                    .local_addr()
                    .map_err(|_| io::ErrorKind::ConnectionAborted)?;
                if let Err(error) = configure(&stream, keepalive_s) {
                    // It is served all the same: the option is less important than the client.
                    tracing::debug!(%peer, %error, "a connection keeps the system's own options");
                }
                let is_local = peer.ip().to_canonical().is_loopback();
                Ok(Accepted {
                    stream: ClientSocket::Tcp(stream),
                    peer: peer.to_string(),
                    local: local.to_string(),
                    is_local,
                    is_tls: matches!(self, Listener::Tls(_)),
                })
            }
            Listener::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                let path = format!("{}:0", path.display());
                Ok(Accepted {
                    stream: ClientSocket::Unix(stream),
                    peer: path.clone(),
                    local: path,
                    is_local: true,
                    is_tls: false,
                })
            }
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener) => listener,
            Listener::Unix(listener, _) => listener,
        }
    }

    /// Registers for notification of new connections.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE)
    }

    /// Ends the registration.
    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(self.source())
    }
}

/// The maximum number of seconds that Linux accepts in `TCP_KEEPIDLE` and `TCP_KEEPINTVL`.
const MOST_KEEPALIVE_S: u64 = 32_767;

/// Sets an accepted connection's options.
fn configure(stream: &TcpStream, keepalive_s: u64) -> io::Result<()> {
    let socket = SockRef::from(stream);
    // Replies are written in one piece: waiting for more of them would only add latency.
    let delay = socket.set_tcp_nodelay(true);
    if keepalive_s > 0 {
        let seconds = keepalive_s.min(MOST_KEEPALIVE_S);
        socket.set_tcp_keepalive(
            &TcpKeepalive::new()
                .with_time(Duration::from_secs(seconds))
                .with_interval(Duration::from_secs((seconds / 3).max(1)))
                .with_retries(3),
        )?;
    }
    delay
}

fn is_abandoned(path: &Path, address: &SockAddr) -> bool {
    let is_socket = std::fs::symlink_metadata(path)
        .is_ok_and(|metadata| std::os::unix::fs::FileTypeExt::is_socket(&metadata.file_type()));
    let refused = || {
        let probe = Socket::new(Domain::UNIX, Type::STREAM, None).and_then(|socket| {
            // A socket that answers could otherwise make this wait while its queue is full.
            socket.set_nonblocking(true)?;
            socket.connect(address)
        });
        probe.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    is_socket && refused()
}

impl ClientSocket {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            ClientSocket::Tcp(stream) => stream,
            ClientSocket::Tls(stream) => stream.socket_mut(),
            ClientSocket::Unix(stream) => stream,
        }
    }

    /// Registers for input, reported once for each arrival. Not for writability: a unix socket
    /// would report each reply that its client reads, and wake the thread needlessly.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE)
    }

    /// Registers for writability as well, or ends that. Existing readiness is reported again.
    pub fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        reports_writable: bool,
    ) -> io::Result<()> {
        let interest = match reports_writable {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        registry.reregister(self.source(), token, interest)
    }

    /// Its file descriptor, for `CLIENT LIST`.
    pub fn descriptor(&self) -> i32 {
        match self {
            ClientSocket::Tcp(stream) => stream.as_raw_fd(),
            ClientSocket::Tls(stream) => stream.socket().as_raw_fd(),
            ClientSocket::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// Whether its peer must speak TLS and has not completed the handshake yet.
    #[inline]
    pub fn is_shaking_hands(&self) -> bool {
        matches!(self, ClientSocket::Tls(stream) if stream.is_shaking_hands())
    }

    /// Whether there may be more to read after a read that did, or did not, fill its buffer.
    #[inline]
    pub fn may_have_more(&self, is_full: bool) -> bool {
        match self {
            ClientSocket::Tls(stream) => stream.may_have_more(),
            // The next byte will be reported.
            ClientSocket::Tcp(_) | ClientSocket::Unix(_) => is_full,
        }
    }

    /// Whether it has accepted bytes that still wait for the socket.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        matches!(self, ClientSocket::Tls(stream) if stream.has_unsent())
    }

    /// The memory that it uses in addition to the socket.
    pub fn bytes(&self) -> usize {
        match self {
            ClientSocket::Tls(_) => tls::BYTES,
            ClientSocket::Tcp(_) | ClientSocket::Unix(_) => 0,
        }
    }

    /// Closes the connection so that everything sent arrives: closing a socket with unread input
    /// makes the kernel reset the connection, and a reset destroys data that the peer has not read
    /// yet.
    pub fn finish(&mut self) {
        if let ClientSocket::Tls(stream) = self {
            stream.say_goodbye();
        }
        let socket = match self {
            ClientSocket::Tcp(stream) => SockRef::from(&*stream),
            ClientSocket::Tls(stream) => SockRef::from(stream.socket()),
            ClientSocket::Unix(stream) => SockRef::from(&*stream),
        };
        // If the peer has already closed, it is not notified.
        let _ = socket.shutdown(Shutdown::Write);
        let mut ignored = [0; 4096];
        for _ in 0..256 {
            let read = match self {
                ClientSocket::Tcp(stream) => stream.read(&mut ignored),
                ClientSocket::Tls(stream) => stream.socket_mut().read(&mut ignored),
                ClientSocket::Unix(stream) => stream.read(&mut ignored),
            };
            match read {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
    }
}

impl Read for ClientSocket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            ClientSocket::Tcp(stream) => stream.read(bytes),
            ClientSocket::Tls(stream) => stream.read(bytes),
            ClientSocket::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for ClientSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ClientSocket::Tcp(stream) => stream.write(bytes),
            ClientSocket::Tls(stream) => stream.write(bytes),
            ClientSocket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            ClientSocket::Tls(stream) => stream.flush(),
            ClientSocket::Tcp(_) | ClientSocket::Unix(_) => Ok(()),
        }
    }
}

/// Logs that connections cannot be accepted, unless that was logged recently.
pub(crate) fn warn_of_failure(failed: &LogLimiter, error: &io::Error, now_ms: u64) {
    if let Some(failures) = failed.count(now_ms) {
        tracing::warn!(
            %error,
            failures,
            "connections cannot be accepted; they wait, and it is tried again"
        );
    }
}

/// Whether accepting failed for a reason specific to that connection, so that the next one may
/// succeed.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, NotConnected};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted | NotConnected
    )
}
