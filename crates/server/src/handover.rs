//! A server hands its segment and its listening sockets over to the next one, and no connection is
//! refused meanwhile.
//!
//! The serving process listens on a socket in the segment's directory. Its successor connects
//! there:
//!
//! ```text
//! successor                                server
//! hand over <version> ─────────────────►
//!                     ◄───────────────── <n> listeners, their addresses; the sockets themselves
//! checks whether it can open the segment
//! take ────────────────────────────────►  stops accepting, answers, releases the segment
//!                     ◄───────────────── yours; the lock of the directory for data, if there is one
//! opens the segment, serves
//! serving ─────────────────────────────►  ends
//! ```
//!
//! From the first reply on both processes have the listening sockets, so connections wait in their
//! queues and are never refused. If a successor dies or gives up before it serves, its connection
//! ends: the server then takes everything back and continues. It does the same if the next message
//! takes more than 30 s. There is one exception: the successor has the segment by then and is
//! alive, for instance because it is stopped. Then neither process can serve, and the server waits
//! for the successor to continue or to end. A server that ends by a signal before it says `yours`
//! leaves the segment to the successor, which has the sockets. The lock belongs to an open file,
//! which only the successor has from `yours` on: no third process gets it in between, and a server
//! that continues has to take it again. Connected clients get the replies to what they have sent
//! and are disconnected, as by a restart.
//!
//! Before `take`, candidates are served one after the other, for 2 s a message: a silent connection
//! delays the others for no longer than that. **Only the process that holds the server's role
//! touches the socket's file.** The process that is about to listen replaces it, and none removes
//! it, because by then the file might belong to the next server. A file that was left behind
//! refuses connections.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use mneme_sys::descriptors;

use crate::listen::{Listener, Listeners};
use crate::server::Stopper;
use crate::settings::Settings;

/// The socket's name in the segment's directory.
const SOCKET: &str = "server.sock";

/// The version of the protocol.
const VERSION: &str = "hand over 1\n";
const TAKE: &str = "take\n";
const YOURS: &str = "yours\n";
const SERVING: &str = "serving\n";

/// How long one side waits for the other's next message. A server may have to wait for clients to
/// read their replies.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server waits for each message before `take`: other candidates wait in the queue.
const TIMEOUT_BEFORE_TAKE: Duration = Duration::from_secs(2);

/// The maximum length of a message: it contains as many addresses as descriptors can be sent at
/// once.
const MESSAGE: usize = 16 << 10;

/// Why a server was not taken over. It continues to serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// No process serves the segment, or its server cannot be taken over.
    #[error("no server of this segment can be taken over ({}: {source})", path.display())]
    NoServer {
        /// Its socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The connection to it ended, or it did not answer in time.
    #[error("the server did not hand over: {}", in_words(.0))]
    Broken(#[from] io::Error),
    /// Its answer does not follow the protocol.
    #[error("the server's answer makes no sense: {0:?}; is it of another version?")]
    Nonsense(String),
}

impl HandoverError {
    /// Whether the other side exists and was only late with its next message.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Broken(error) if is_late(error))
    }

    /// Whether the other side has closed the connection, as a process that ends does.
    fn is_gone(&self) -> bool {
        let gone = [
            ErrorKind::UnexpectedEof,
            ErrorKind::BrokenPipe,
            ErrorKind::ConnectionReset,
        ];
        matches!(self, Self::Broken(error) if gone.contains(&error.kind()))
    }
}

fn is_late(error: &io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind())
}

/// A text for the system's error; a timeout is described in other words.
fn in_words(error: &io::Error) -> String {
    match is_late(error) {
        true => "it did not say its next word in time; is it stopped, or busy with others who take over?".to_owned(),
        false => error.to_string(),
    }
}

impl Listeners {
    /// The sockets' addresses, a line each.
    fn describe(&self) -> io::Result<String> {
        let mut text = format!("{} listeners\n", self.sockets.len());
        for listener in &self.sockets {
            match listener {
                Listener::Tcp(_) => text.push_str("tcp\n"),
                Listener::Tls(_) => text.push_str("tls\n"),
                Listener::Unix(_, path) => {
                    // Relative paths would refer to the old server's directory.
                    let path = std::path::absolute(path)?;
                    text.push_str(&format!("unix {}\n", path.display()));
                }
            }
        }
        Ok(text)
    }

    /// Opens the listeners after the old server has ended, which removes the files of its unix
    /// sockets: they are created again, as `settings` say.
    fn restored(self, settings: &Settings) -> io::Result<Self> {
        let restored = self.sockets.into_iter().map(|listener| match listener {
            Listener::Unix(_, path) if !path.try_exists()? => {
                let (listener, file) = Listener::unix(&path, settings)?;
                // The server that starts on it takes it over.
                file.keep();
                Ok(listener)
            }
            present => Ok(present),
        });
        Ok(Self::of(restored.collect::<io::Result<_>>()?))
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.sockets.iter().map(Listener::descriptor).collect()
    }

    /// The sockets that a description lists.
    fn described(text: &str, sockets: Vec<OwnedFd>) -> Result<Self, HandoverError> {
        let nonsense = || HandoverError::Nonsense(text.to_owned());
        let mut lines = text.lines();
        let count = lines
            .next()
            .and_then(|line| line.strip_suffix(" listeners"));
        if count.and_then(|count| count.parse().ok()) != Some(sockets.len()) {
            return Err(nonsense());
        }
        let mut listeners = Vec::new();
        for socket in sockets {
            let line = lines.next().ok_or_else(nonsense)?;
            listeners.push(match line.split_once(' ') {
                None if line == "tcp" || line == "tls" => {
                    let listener = TcpListener::from(socket);
                    listener.set_nonblocking(true)?;
                    let listener = Listener::Tcp(mio::net::TcpListener::from_std(listener));
                    match line {
                        "tls" => listener.with_tls(),
                        _ => listener,
                    }
                }
                Some(("unix", path)) => {
                    let listener = UnixListener::from(socket);
                    listener.set_nonblocking(true)?;
                    let listener = mio::net::UnixListener::from_std(listener);
                    Listener::Unix(listener, path.into())
                }
                _ => return Err(nonsense()),
            });
        }
        Ok(Self::of(listeners))
    }
}

/// Sends and receives messages, each within a time limit.
struct Talk(UnixStream);

impl Talk {
    fn over(stream: UnixStream, timeout: Duration) -> io::Result<Self> {
        let talk = Self(stream);
        talk.wait_for(timeout)?;
        Ok(talk)
    }

    /// Sets the time limit for the next messages.
    fn wait_for(&self, timeout: Duration) -> io::Result<()> {
        self.0.set_read_timeout(Some(timeout))?;
        self.0.set_write_timeout(Some(timeout))
    }

    fn say(&mut self, word: &str) -> io::Result<()> {
        self.0.write_all(word.as_bytes())
    }

    /// Receives one message. Messages are short, and each side waits for the other's before it
    /// sends the next.
    fn hear(&mut self) -> io::Result<(String, Vec<OwnedFd>)> {
        let mut buffer = vec![0; MESSAGE];
        let (bytes, descriptors) = descriptors::receive(&self.0, &mut buffer)?;
        if bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        buffer.truncate(bytes);
        let text = String::from_utf8(buffer).map_err(|_| ErrorKind::InvalidData)?;
        Ok((text, descriptors))
    }

    /// Returns the descriptors that came with it.
    fn expect(&mut self, word: &str) -> Result<Vec<OwnedFd>, HandoverError> {
        let (received, descriptors) = self.hear()?;
        if received == word {
            Ok(descriptors)
        } else {
            Err(HandoverError::Nonsense(received))
        }
    }
}

/// The successor's side.
pub struct Handover {
    talk: Talk,
    listeners: Listeners,
    server: u32,
}

impl Handover {
    /// Asks the server of the segment in `directory` for its listening sockets. It continues to
    /// serve.
    ///
    /// # Errors
    /// No process serves the segment, or its server does not answer.
    pub fn ask(directory: &Path) -> Result<Self, HandoverError> {
        let path = directory.join(SOCKET);
        let no_server = |source| HandoverError::NoServer {
            path: path.clone(),
            source,
        };
        let (reached, _held) = short(directory).map_err(no_server)?;
        let stream = UnixStream::connect(reached).map_err(no_server)?;
        let server = trusted_peer(&stream)?;
        let mut talk = Talk::over(stream, TIMEOUT)?;
        talk.say(VERSION)?;
        let (text, sockets) = talk.hear()?;
        let listeners = Listeners::described(&text, sockets)?;
        Ok(Self {
            talk,
            listeners,
            server,
        })
    }

    /// The process id of the server.
    pub fn server(&self) -> u32 {
        self.server
    }

    /// Stops the server, and returns its listening sockets once it has released the segment. From
    /// here on the caller serves, and reports so by [`TakenOver::serving`]; otherwise the server
    /// continues.
    ///
    /// `None`: the server has closed the connection, and has most likely ended by a signal. The
    /// sockets work all the same (files of unix sockets are created again, as `settings` say).
    /// Opening the segment shows whether it is free.
    ///
    /// # Errors
    /// The server does not release the segment, and continues to serve.
    pub fn take(
        mut self,
        settings: &Settings,
    ) -> Result<(Listeners, Option<TakenOver>), HandoverError> {
        let asked = self.talk.say(TAKE).map_err(HandoverError::from);
        match asked.and_then(|()| self.talk.expect(YOURS)) {
            Ok(locks) => {
                self.listeners.lock = locks.into_iter().next();
                Ok((self.listeners, Some(TakenOver(self.talk))))
            }
            Err(gone) if gone.is_gone() => Ok((self.listeners.restored(settings)?, None)),
            Err(error) => Err(error),
        }
    }
}

/// The confirmation that the old server is waiting for.
#[must_use = "unless it gets this confirmation, the old server goes on"]
pub struct TakenOver(Talk);

impl TakenOver {
    /// Tells the old server that clients are served, so that it can end.
    ///
    /// # Errors
    /// The old server no longer exists.
    pub fn serving(mut self) -> io::Result<()> {
        self.0.say(SERVING)
    }
}

/// The server's side: its socket in the segment's directory, until it is dropped.
pub struct HandoverSocket {
    /// Another handle of the socket that the thread listens on.
    listener: UnixStream,
    requests: Receiver<Talk>,
}

/// A successor that waits for the confirmation that it has the segment.
pub struct Request(Talk);

impl HandoverSocket {
    /// Waits for a successor in the directory of the segment that this process serves; when one
    /// asks for the segment, `stopper` makes the server [retire](Stopper::retire). Only the
    /// segment's owner may ask. The server must have its role, so that the socket's file belongs to
    /// this process.
    ///
    /// # Errors
    /// The socket cannot be created: the server can serve, but cannot be taken over.
    pub fn listen(directory: &Path, stopper: Stopper) -> io::Result<Self> {
        let (reached, held) = short(directory)?;
        let path = directory.join(SOCKET);
        // This process holds the server's role, so the process that left the file is gone.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(reached)?;
        drop(held);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        // The standard library can shut down connections, but not listeners; to the kernel both are
        // sockets.
        let again = UnixStream::from(OwnedFd::from(listener.try_clone()?));
        let (send, requests) = mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("mneme-handover".to_owned())
            .spawn(move || {
                for stream in listener.incoming() {
                    // Accepting also fails for lack of descriptors: the loop must pause then.
                    let stream = match stream {
                        Ok(stream) => stream,
                        // It was dropped.
                        Err(closed) if closed.kind() == ErrorKind::InvalidInput => return,
                        Err(_) => {
                            std::thread::sleep(Duration::from_millis(100));
                            continue;
                        }
                    };
                    match answer(stream, &stopper) {
                        Ok(talk) => {
                            if send.send(talk).is_err() {
                                return;
                            }
                            stopper.retire();
                        }
                        Err(error) => tracing::info!(%error, "a successor gave up"),
                    }
                }
            })?;
        Ok(Self {
            listener: again,
            requests,
        })
    }

    /// The successor for which the server has retired. No other candidate is answered from here on.
    pub fn into_request(self) -> Option<Request> {
        self.requests.try_recv().ok().map(Request)
    }
}

impl Drop for HandoverSocket {
    fn drop(&mut self) {
        // The file is kept: the role may belong to another process by now, and so may the file.
        // Queued candidates are disconnected, and the thread ends: a server that continues starts
        // another.
        let _ = self.listener.shutdown(Shutdown::Both);
    }
}

impl Request {
    /// Confirms that the segment belongs to the successor, passes it the lock that came with these
    /// sockets, and waits until it serves.
    ///
    /// # Errors
    /// The successor does not serve: the caller must continue. The caller then takes the lock
    /// again, or finds that the successor has it.
    pub fn grant(&mut self, retired: &mut Listeners) -> Result<(), HandoverError> {
        let lock: Vec<_> = retired.lock.iter().map(AsFd::as_fd).collect();
        descriptors::send(&self.0.0, YOURS.as_bytes(), &lock)?;
        // If both processes had the open file, both would own the directory.
        retired.lock = None;
        self.serves()
    }

    /// Continues to wait for a successor that has the confirmation, and may have the segment
    /// already.
    ///
    /// # Errors
    /// The successor does not serve: it is [late](HandoverError::is_late), or gone.
    pub fn serves(&mut self) -> Result<(), HandoverError> {
        self.0.expect(SERVING).map(drop)
    }
}

/// The process at the other end, which must belong to this user or to root: neither side exchanges
/// sockets with another user.
fn trusted_peer(stream: &UnixStream) -> io::Result<u32> {
    let (process, user) = descriptors::peer(stream)?;
    if user != 0 && user != mneme_sys::files::user() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(process)
}

/// Passes a successor the listening sockets, and waits until it asks for the segment.
fn answer(stream: UnixStream, stopper: &Stopper) -> Result<Talk, HandoverError> {
    trusted_peer(&stream)?;
    let mut talk = Talk::over(stream, TIMEOUT_BEFORE_TAKE)?;
    talk.expect(VERSION)?;
    let listeners = stopper.listeners()?;
    let text = listeners.describe()?;
    let sent = descriptors::send(&talk.0, text.as_bytes(), &listeners.descriptors())?;
    if sent < text.len() {
        return Err(io::Error::from(ErrorKind::WriteZero).into());
    }
    talk.expect(TAKE)?;
    talk.wait_for(TIMEOUT)?;
    Ok(talk)
}

/// A path to the socket that is short enough for an address, valid as long as the directory is held
/// open.
fn short(directory: &Path) -> io::Result<(PathBuf, File)> {
    let held = File::open(directory)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", held.as_raw_fd());
    Ok((path.into(), held))
}
