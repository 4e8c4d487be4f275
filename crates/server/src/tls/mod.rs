//! TLS: connections of a `tls-port` are encrypted by [rustls](https://docs.rs/rustls), on the same
//! threads as all others.
//!
//! **A handshake is the work of a stranger**, and costs others nothing: no state is made for a
//! socket before it has sent the beginning of a ClientHello, each thread knows at most so many
//! handshakes that are not over, none lasts longer than [`HANDSHAKE_MS`], and a step of one is done
//! when the clients that are ready have been served.

mod certificate;
mod config;
mod stream;

pub(crate) use config::{Live, TlsError, TlsIdentity};
pub(crate) use stream::{BYTES, TlsStream};

use crate::settings::Key;

/// How many days ahead the end of a certificate is warned of.
pub(crate) const WARNING_DAYS: i64 = 14;

/// Whether a setting has its part in the identity.
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

/// How long a handshake may take: milliseconds.
pub(crate) const HANDSHAKE_MS: u64 = 10_000;

/// Handshakes of one thread that are not over. Of more the oldest is ended, which an honest client
/// is not: its own takes a few round trips.
pub(crate) const HANDSHAKES: usize = 512;
