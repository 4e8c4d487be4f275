//! TLS for the connection to a server. The server's certificate is verified.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::stream::{ClientStream, Timed};

/// Where operating systems keep the certificates of the authorities they trust.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Flags that say how the connection is encrypted.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Encryption {
    /// Speak TLS, and verify the server's certificate.
    #[arg(long, env = "MNEME_TLS")]
    pub tls: bool,

    /// The certificates, as PEM, that the server's is to be signed by; the system's unless given.
    #[arg(long, env = "MNEME_CACERT", value_name = "FILE", requires = "tls")]
    cacert: Option<PathBuf>,

    /// The certificate to show to the server, as PEM.
    #[arg(
        long,
        env = "MNEME_CERT",
        value_name = "FILE",
        requires = "tls",
        requires = "key"
    )]
    cert: Option<PathBuf>,

    /// The key of that certificate, as PEM.
    #[arg(
        long,
        env = "MNEME_KEY",
        value_name = "FILE",
        requires = "tls",
        requires = "cert"
    )]
    key: Option<PathBuf>,
}

fn wrong(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        format!("{}: {error}", path.display()),
    )
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(path, error))?;
    let found: std::result::Result<Vec<_>, _> = found.collect();
    let found = found.map_err(|error| wrong(path, error))?;
    match found.is_empty() {
        true => Err(wrong(path, "there is no certificate in it, as PEM")),
        false => Ok(found),
    }
}

impl Encryption {
    /// The file with the authorities' certificates.
    fn authorities(&self) -> Result<PathBuf> {
        let of_system = || {
            let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
            let usual = BUNDLES.iter().map(PathBuf::from);
            named.into_iter().chain(usual).find(|path| path.exists())
        };
        let file = self.cacert.clone().or_else(of_system);
        file.ok_or_else(|| {
            let what = "this system has no list of authorities: say --cacert";
            Error::new(ErrorKind::NotFound, what)
        })
    }

    fn config(&self) -> Result<ClientConfig> {
        let authorities = self.authorities()?;
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(certificates(&authorities)?);
        if added == 0 {
            return Err(wrong(&authorities, "none of its certificates can be used"));
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(Error::other)?
            .with_root_certificates(roots);
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else {
            return Ok(builder.with_no_client_auth());
        };
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, error))?;
        let config = builder.with_client_auth_cert(certificates(cert)?, secret);
        config.map_err(|error| wrong(cert, error))
    }

    /// Makes the TLS handshake with `host` over `stream`.
    pub fn around(&self, stream: Timed, host: &str) -> Result<Encrypted> {
        let config = Arc::new(self.config()?);
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| Error::new(ErrorKind::InvalidInput, error))?;
        let session = ClientConnection::new(config, name).map_err(Error::other)?;
        let mut stream = StreamOwned::new(session, stream);
        // Completed here, so that an error in a certificate is reported here and not by the first
        // question.
        stream.conn.complete_io(&mut stream.sock)?;
        Ok(Encrypted(stream))
    }
}

/// An encrypted connection.
#[derive(Debug)]
pub struct Encrypted(StreamOwned<ClientConnection, Timed>);

impl ClientStream for Encrypted {
    fn allow(&mut self, time: Duration) {
        self.0.sock.allow(time);
    }
}

impl Read for Encrypted {
    fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        self.0.read(to)
    }
}

impl Write for Encrypted {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
}
