//! TLS: connections of a `tls-port` are encrypted by [rustls](https://docs.rs/rustls), on the same
//! threads as all others.
//!
//! **Handshakes cannot exhaust the server, although any stranger can begin one.** No state is made
//! for a socket before it has sent the beginning of a ClientHello, the number of unfinished
//! handshakes of each thread is limited, none lasts longer than [`HANDSHAKE_MS`], and a step of a
//! handshake is done after the clients that are ready have been served.

mod certificate;
mod config;
mod stream;

pub(crate) use config::{Live, TlsError, TlsIdentity};
pub(crate) use stream::{BYTES, TlsStream};

use crate::settings::Key;

/// How many days before a certificate's end the warnings begin.
pub(crate) const WARNING_DAYS: i64 = 14;

/// Whether the identity depends on a setting.
pub(crate) fn is_meant(key: Key) -> bool {
    matches!(
        key,
        Key::TlsAuthClients
            | Key::TlsAuthorities
            | Key::TlsAuthority
            | Key::TlsCertificate
            | Key::TlsKey
            | Key::TlsCiphers
            | Key::TlsCipherSuites
            | Key::TlsPreferServerCiphers
            | Key::TlsProtocols
            | Key::TlsSessionCaching
    )
}

/// The time limit of a handshake, in milliseconds.
pub(crate) const HANDSHAKE_MS: u64 = 10_000;

/// The maximum number of unfinished handshakes of a thread. Beyond it, the oldest is ended: an
/// honest client's handshake takes a few round trips, so it is never the oldest for long.
pub(crate) const HANDSHAKES: usize = 512;
