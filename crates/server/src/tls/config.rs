//! Turns the settings `tls-...` into a configuration of rustls. **All files are read at once; if
//! one has an error, the configuration is refused as a whole.**

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};

use super::certificate::expires_s;
use crate::settings::{Key, Settings};

/// Why the TLS settings are refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{setting} is not set, and is needed with tls-port")]
    Missing { setting: &'static str },
    #[error(
        "tls-auth-clients asks clients for certificates: set tls-ca-cert-file or tls-ca-cert-dir to \
         what they are signed by, or tls-auth-clients to no"
    )]
    NoAuthority,
    #[error("{}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: there is no {what} in it, as PEM", path.display())]
    Empty { path: PathBuf, what: &'static str },
    #[error("{}: {source}", path.display())]
    Pem {
        path: PathBuf,
        source: rustls::pki_types::pem::Error,
    },
    #[error("{}: the key is encrypted: decrypt it first, as by `openssl pkey`", path.display())]
    Encrypted { path: PathBuf },
    #[error("{} and {}: {source}", certificate.display(), key.display())]
    Pair {
        certificate: PathBuf,
        key: PathBuf,
        source: rustls::Error,
    },
    #[error("{}: {source}", path.display())]
    Authority {
        path: PathBuf,
        source: rustls::Error,
    },
    #[error("{setting}: '{word}' is none of {known}")]
    Unknown {
        setting: &'static str,
        word: String,
        known: String,
    },
    #[error("tls-protocols and the ciphers leave nothing to speak")]
    Nothing,
    #[error("{0}")]
    Refused(#[from] rustls::Error),
    #[error("the clients' certificates cannot be verified: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// A server's TLS identity: its certificate, and the protocol parameters.
#[derive(Clone)]
pub(crate) struct TlsIdentity {
    pub config: Arc<ServerConfig>,
    /// The second since 1970 after which its certificate, or one in its chain, is no longer valid.
    pub expires_s: Option<i64>,
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity")
            .field("expires_s", &self.expires_s)
            .finish_non_exhaustive()
    }
}

/// The identity for new connections; none if there is no `tls-port`.
#[derive(Debug, Default)]
pub(crate) struct Live(Mutex<Option<TlsIdentity>>);

impl Live {
    pub fn get(&self) -> Option<TlsIdentity> {
        let identity = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        identity.clone()
    }

    /// Sets the identity for new connections. Existing connections keep theirs.
    pub fn set(&self, identity: TlsIdentity) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity);
    }
}

impl TlsIdentity {
    /// Reads the files that the settings name.
    pub fn read(settings: &Settings) -> Result<Self, TlsError> {
        let certificate = named(settings, Key::TlsCertificate)?;
        let key = named(settings, Key::TlsKey)?;
        let chain = certificates(&certificate)?;
        let expires_s = chain.iter().filter_map(|one| expires_s(one)).min();
        let provider = Arc::new(provider(settings)?);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions(settings)?)
            .map_err(|_| TlsError::Nothing)?;
        let builder = match settings.number(Key::TlsAuthClients) {
            1 => builder.with_no_client_auth(),
            number => {
                let roots = Arc::new(authorities(settings)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match number {
                    0 => verifier,
                    _ => verifier.allow_unauthenticated(),
                };
                builder.with_client_cert_verifier(verifier.build()?)
            }
        };
        let mut config = builder
            .with_single_cert(chain, private_key(&key)?)
            .map_err(|source| TlsError::Pair {
                certificate,
                key,
                source,
            })?;
        config.ignore_client_order = settings.is(Key::TlsPreferServerCiphers);
        // Session state is kept by the clients, in tickets that every thread can decrypt; the
        // server keeps none.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        match settings.is(Key::TlsSessionCaching) {
            true => config.ticketer = ring::Ticketer::new()?,
            false => config.send_tls13_tickets = 0,
        }
        Ok(Self {
            config: Arc::new(config),
            expires_s,
        })
    }
}

/// The path in a setting.
fn named(settings: &Settings, key: Key) -> Result<PathBuf, TlsError> {
    let text = settings.text(key);
    match text.is_empty() {
        true => Err(TlsError::Missing {
            setting: key.setting().name,
        }),
        false => Ok(PathBuf::from(&*text)),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    mneme_sys::files::read_linked(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

/// All certificates of a file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let found = found.map_err(|source| TlsError::Pem {
        path: path.to_owned(),
        source,
    })?;
    match found.is_empty() {
        true => Err(TlsError::Empty {
            path: path.to_owned(),
            what: "certificate",
        }),
        false => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(path)?;
    let path = path.to_owned();
    PrivateKeyDer::from_pem_slice(&text).map_err(|source| {
        let has = |word: &[u8]| memchr::memmem::find(&text, word).is_some();
        match source {
            _ if has(b"ENCRYPTED") => TlsError::Encrypted { path },
            rustls::pki_types::pem::Error::NoItemsFound => TlsError::Empty {
                path,
                what: "private key",
            },
            source => TlsError::Pem { path, source },
        }
    })
}

/// The authorities that must have signed clients' certificates: those of the file and of all files
/// in the directory.
fn authorities(settings: &Settings) -> Result<RootCertStore, TlsError> {
    let mut paths = Vec::new();
    paths.extend(named(settings, Key::TlsAuthority).ok());
    if let Ok(directory) = named(settings, Key::TlsAuthorities) {
        let unread = |source| TlsError::Read {
            path: directory.clone(),
            source,
        };
        for entry in std::fs::read_dir(&directory).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            if path.is_file() {
                paths.push(path);
            }
        }
    }
    if paths.is_empty() {
        return Err(TlsError::NoAuthority);
    }
    let mut roots = RootCertStore::empty();
    for path in paths {
        for certificate in certificates(&path)? {
            let added = roots.add(certificate);
            added.map_err(|source| TlsError::Authority {
                path: path.clone(),
                source,
            })?;
        }
    }
    Ok(roots)
}

/// The TLS versions in `tls-protocols`, which uses OpenSSL's names; all if it is empty.
fn versions(settings: &Settings) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    const KNOWN: [(&str, &SupportedProtocolVersion); 2] =
        [("TLSv1.2", &version::TLS12), ("TLSv1.3", &version::TLS13)];
    let text = settings.text(Key::TlsProtocols);
    let words = text.split_whitespace();
    let named = chosen(Key::TlsProtocols, words, &KNOWN)?;
    Ok(match named.is_empty() {
        true => KNOWN.iter().map(|(_, version)| *version).collect(),
        false => named,
    })
}

/// The provider of ring, with the cipher suites in `tls-ciphersuites` (of TLS 1.3) and
/// `tls-ciphers` (of TLS 1.2), in that order. If one of the settings is empty, all suites of its
/// version are used.
fn provider(settings: &Settings) -> Result<CryptoProvider, TlsError> {
    use ring::cipher_suite::*;
    let thirteen = [
        ("TLS_AES_256_GCM_SHA384", TLS13_AES_256_GCM_SHA384),
        ("TLS_AES_128_GCM_SHA256", TLS13_AES_128_GCM_SHA256),
        (
            "TLS_CHACHA20_POLY1305_SHA256",
            TLS13_CHACHA20_POLY1305_SHA256,
        ),
    ];
    let twelve = [
        (
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        ),
        (
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        (
            "ECDHE-RSA-AES256-GCM-SHA384",
            TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        ),
        (
            "ECDHE-RSA-AES128-GCM-SHA256",
            TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            "ECDHE-RSA-CHACHA20-POLY1305",
            TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
    ];
    let mut cipher_suites = Vec::new();
    for (key, known) in [
        (Key::TlsCipherSuites, &thirteen[..]),
        (Key::TlsCiphers, &twelve[..]),
    ] {
        let text = settings.text(key);
        let words = text
            .split(':')
            .map(str::trim)
            .filter(|word| !word.is_empty());
        let named = chosen(key, words, known)?;
        match named.is_empty() {
            true => cipher_suites.extend(known.iter().map(|(_, suite)| *suite)),
            false => cipher_suites.extend(named),
        }
    }
    Ok(CryptoProvider {
        cipher_suites,
        ..ring::default_provider()
    })
}

/// The items that the words name.
fn chosen<'a, T: Copy>(
    key: Key,
    words: impl Iterator<Item = &'a str>,
    known: &[(&str, T)],
) -> Result<Vec<T>, TlsError> {
    let one = |word: &str| {
        let found = known
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(word));
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            TlsError::Unknown {
                setting: key.setting().name,
                word: word.to_owned(),
                known: names.join(", "),
            }
        })
    };
    words.map(one).collect()
}
