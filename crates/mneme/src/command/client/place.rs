//! The server's address, from flags and the environment.

use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, Error};
use mneme::server::settings::Key;

use super::encrypted::Encryption;
use super::stream::{ClientStream, Timed};
use super::{AskError, ServerConnection};
use crate::command::flags;

/// The flags; where one is missing, the environment variable is used.
#[derive(Debug, clap::Args)]
struct Words {
    /// The server's host. [default: 127.0.0.1]
    #[arg(long, env = "MNEME_HOST", value_name = "HOST")]
    host: Option<String>,

    /// The server's TCP port. [default: 6379]
    #[arg(short, long, env = "MNEME_PORT", value_name = "PORT")]
    port: Option<String>,

    /// The server's unix socket, instead of host and port.
    #[arg(
        long,
        visible_alias = "socket",
        env = "MNEME_UNIXSOCKET",
        value_name = "PATH"
    )]
    unixsocket: Option<PathBuf>,

    /// The password. Better set in the environment: others can see a process' arguments.
    #[arg(
        long,
        env = "MNEME_REQUIREPASS",
        hide_env_values = true,
        value_name = "PASSWORD"
    )]
    requirepass: Option<String>,

    /// The user to authenticate as, with that password. [default: default]
    #[arg(long, env = "MNEME_USER", value_name = "NAME")]
    user: Option<String>,

    #[command(flatten)]
    encryption: Encryption,
}

/// A server's address, and the user and password for it.
#[derive(Debug, Clone)]
pub struct Where {
    host: Option<String>,
    port: Option<u16>,
    unixsocket: Option<PathBuf>,
    requirepass: Option<String>,
    user: Option<String>,
    encryption: Encryption,
}

impl clap::Args for Where {
    fn augment_args(command: Command) -> Command {
        Words::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Words::augment_args_for_update(command)
    }
}

impl clap::FromArgMatches for Where {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let words = Words::from_arg_matches(matches)?;
        // The error names the flag or variable that has the value.
        let place = match matches.value_source("port") {
            Some(ValueSource::EnvVariable) => "MNEME_PORT",
            _ => "--port",
        };
        let said = words
            .port
            .filter(|text| !flags::is_service_link(place, text.as_ref()));
        let port = said.map(|text| port(&text, place)).transpose()?;
        let socket = || std::env::var_os("MNEME_SOCKET").map(PathBuf::from);
        if words.requirepass.is_some() {
            // If this fails, the password is where the operator's limits leave it.
            let _ = mneme_sys::forbid_core_dumps();
        }
        Ok(Self {
            host: words.host,
            port,
            unixsocket: words.unixsocket.or_else(socket),
            requirepass: words.requirepass,
            user: words.user,
            encryption: words.encryption,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Parses a port. The error is that of the server's setting.
fn port(text: &str, place: &str) -> Result<u16, Error> {
    let setting = Key::Port.setting();
    let parsed = setting.kind.parse(text);
    let value = parsed.map_err(|reason| flags::refused(text, place, &setting.refusal(&reason)))?;
    // Always in range, since the setting only accepts ports.
    Ok(u16::try_from(value.number).unwrap_or(0))
}

impl Where {
    /// The address as text.
    pub fn place(&self) -> String {
        match &self.unixsocket {
            Some(path) => path.display().to_string(),
            None => {
                let (host, port) = self.address();
                format!("{host}:{port}")
            }
        }
    }

    /// Whether the operator has named an address, and so expects a server there.
    pub fn is_chosen(&self) -> bool {
        self.host.is_some() || self.port.is_some() || self.unixsocket.is_some()
    }

    fn address(&self) -> (&str, u16) {
        (
            self.host.as_deref().unwrap_or("127.0.0.1"),
            self.port.unwrap_or(6379),
        )
    }

    pub(super) fn dial(&self, timeout: Duration) -> std::io::Result<Box<dyn ClientStream>> {
        let (host, port) = self.address();
        Ok(match &self.unixsocket {
            Some(path) => Box::new(Timed::unix(path, timeout)?),
            None if self.encryption.tls => {
                let stream = Timed::tcp(host, port, timeout)?;
                Box::new(self.encryption.around(stream, host)?)
            }
            None => Box::new(Timed::tcp(host, port, timeout)?),
        })
    }

    /// Connects, and authenticates if there is a password.
    pub fn connect(&self) -> Result<ServerConnection, AskError> {
        let mut client = ServerConnection::connect(self)?;
        let password = self.requirepass.as_deref();
        if let Some(password) = password.filter(|password| !password.is_empty()) {
            match self.user.as_deref() {
                Some(user) => client.ask(&["AUTH", user, password])?,
                None => client.ask(&["AUTH", password])?,
            };
        }
        Ok(client)
    }
}
