//! A connection's socket under TLS: **plain bytes in and out, never waiting.**
//!
//! All available bytes of the socket are read at once into a buffer of the thread, and decrypted
//! from there. Bytes to send are encrypted and written at once; only what the socket does not
//! accept is kept, up to rustls' limit of 64 KiB.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};

/// The length of a ClientHello's beginning: a handshake record's type, version and length, and the
/// message type.
const HELLO: usize = 6;

/// The number of encrypted bytes read from a socket at once.
const READ: usize = 64 << 10;

/// The maximum number of plain bytes that one encrypted record can contain.
const RECORD: usize = 16 << 10;

/// The answer to a client that does not speak TLS.
const PLAIN: &[u8] = b"-ERR this port speaks TLS, and nothing else: connect with TLS\r\n";

thread_local! {
    /// Bytes that have been read from a socket and not been decrypted yet.
    static ENCRYPTED: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// The approximate number of bytes that rustls needs for an idle connection, counted as the
/// client's memory.
pub(crate) const BYTES: usize = 8 << 10;

/// A socket whose peer must use TLS.
#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: TcpStream,
    state: State,
    /// Whether the last read has emptied the socket.
    is_drained: bool,
    /// Whether decrypted bytes are waiting to be read.
    has_plain: bool,
}

#[derive(Debug)]
enum State {
    /// The peer has not sent the beginning of a ClientHello yet, only these bytes of it. The
    /// configuration is the one that its handshake will use.
    Silent {
        config: Arc<ServerConfig>,
        hello: [u8; HELLO],
        len: usize,
    },
    Speaking(Box<ServerConnection>),
}

impl TlsStream {
    pub fn new(socket: TcpStream, config: Arc<ServerConfig>) -> Self {
        Self {
            socket,
            state: State::Silent {
                config,
                hello: [0; HELLO],
                len: 0,
            },
            is_drained: false,
            has_plain: false,
        }
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub fn socket_mut(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Whether its handshake is unfinished.
    pub fn is_shaking_hands(&self) -> bool {
        match &self.state {
            State::Silent { .. } => true,
            State::Speaking(session) => session.is_handshaking(),
        }
    }

    /// Whether another read may return bytes although the socket reports none.
    pub fn may_have_more(&self) -> bool {
        self.has_plain || !self.is_drained
    }

    /// Whether encrypted bytes are waiting until the socket accepts them.
    pub fn has_unsent(&self) -> bool {
        match &self.state {
            State::Silent { .. } => false,
            State::Speaking(session) => session.wants_write(),
        }
    }

    /// Sends TLS' `close_notify`, if the socket accepts it.
    pub fn say_goodbye(&mut self) {
        if let State::Speaking(session) = &mut self.state {
            session.send_close_notify();
            let _ = send(session, &mut self.socket);
        }
    }

    /// Makes the session, once the client has sent the beginning of a ClientHello. Returns false if
    /// the client has ended before.
    fn begin(&mut self) -> io::Result<bool> {
        let State::Silent { config, hello, len } = &mut self.state else {
            return Ok(true);
        };
        // The system reports the next bytes as an event, whether or not the ClientHello is
        // complete.
        self.is_drained = true;
        let read = self.socket.read(&mut hello[*len..])?;
        *len += read;
        let is_hello = match hello[..*len] {
            _ if read == 0 => return Ok(false),
            [kind, ..] if kind != 0x16 => false,
            [_, version, ..] if version != 3 => false,
            [.., message] if *len == HELLO => message == 1,
            _ => return Err(ErrorKind::WouldBlock.into()),
        };
        if !is_hello {
            let _ = self.socket.write(PLAIN);
            return Err(invalid("the client does not speak TLS"));
        }
        self.is_drained = false;
        let session = ServerConnection::new(Arc::clone(config)).map_err(invalid)?;
        let mut session = Box::new(session);
        session.read_tls(&mut &hello[..])?;
        self.state = State::Speaking(session);
        Ok(true)
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// Writes as many encrypted bytes as the socket accepts.
fn send(session: &mut ServerConnection, socket: &mut TcpStream) -> io::Result<()> {
    while session.wants_write() {
        if session.write_tls(socket)? == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// Decrypts all of `encrypted`, and moves as much to `plain` as fits; returns the number of bytes
/// moved.
fn decrypt(
    session: &mut ServerConnection,
    mut encrypted: &[u8],
    plain: &mut [u8],
) -> io::Result<usize> {
    let mut filled = 0;
    while !encrypted.is_empty() {
        session.read_tls(&mut encrypted)?;
        session.process_new_packets().map_err(invalid)?;
        match session.reader().read(&mut plain[filled..]) {
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl Read for TlsStream {
    fn read(&mut self, plain: &mut [u8]) -> io::Result<usize> {
        if !self.begin()? {
            return Ok(0);
        }
        let State::Speaking(session) = &mut self.state else {
            return Err(ErrorKind::WouldBlock.into());
        };
        self.has_plain = false;
        match session.reader().read(plain) {
            // The rest is less than a record.
            Ok(read) => {
                self.has_plain = read == plain.len();
                return Ok(read);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        // Reads only as many bytes as fit into `plain` when decrypted, together with the incomplete
        // record from before. Bytes beyond that stay in rustls, which has space for one record.
        let most = plain.len().saturating_sub(RECORD).clamp(4 << 10, READ);
        ENCRYPTED.with_borrow_mut(|encrypted| {
            let encrypted = &mut encrypted[..most];
            self.is_drained = true;
            let read = self.socket.read(encrypted)?;
            self.is_drained = read < most;
            if read == 0 {
                return Ok(0);
            }
            let filled = decrypt(session, &encrypted[..read], plain);
            // The alert is sent even after an error, so that the client learns the reason.
            let sent = send(session, &mut self.socket);
            let filled = filled?;
            match sent {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            self.has_plain = filled == plain.len();
            match filled {
                // Either the client has closed the session, or there are no bytes yet.
                0 => session.reader().read(plain),
                filled => Ok(filled),
            }
        })
    }
}

impl Write for TlsStream {
    /// Encrypts and sends. Returns `WouldBlock` if bytes encrypted earlier have not been sent yet.
    fn write(&mut self, plain: &[u8]) -> io::Result<usize> {
        let State::Speaking(session) = &mut self.state else {
            return Err(ErrorKind::WouldBlock.into());
        };
        send(session, &mut self.socket)?;
        let taken = session.writer().write(plain)?;
        match send(session, &mut self.socket) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.state {
            State::Silent { .. } => Ok(()),
            State::Speaking(session) => send(session, &mut self.socket),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use mneme_testkit::{Authority, wait_until};

    use super::*;
    use crate::settings::{Key, Settings, Source};
    use crate::tls::TlsIdentity;

    #[test]
    fn a_client_that_leaves_within_its_first_bytes_has_ended() {
        let authority = Authority::new();
        let files = authority.issue("server", 2090);
        let settings = Settings::default();
        for (key, value) in [
            (Key::TlsCertificate, files.certificate.to_str().unwrap()),
            (Key::TlsKey, files.key.to_str().unwrap()),
            (Key::TlsAuthClients, "no"),
        ] {
            settings.say(key, value, Source::Said).unwrap();
        }
        let identity = TlsIdentity::read(&settings).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for bytes in [
            &b""[..],
            b"\x16",
            b"\x16\x03\x01\x02\x00",
            b"\x16\x03\x01\x02\x00\x01\x00",
        ] {
            let address = listener.local_addr().unwrap();
            let mut client = std::net::TcpStream::connect(address).unwrap();
            let (socket, _) = listener.accept().unwrap();
            socket.set_nonblocking(true).unwrap();
            let config = Arc::clone(&identity.config);
            let mut stream = TlsStream::new(TcpStream::from_std(socket), config);
            client.write_all(bytes).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            wait_until("the end has arrived", || {
                matches!(stream.read(&mut [0; 100]), Ok(0))
            });
        }
    }
}
