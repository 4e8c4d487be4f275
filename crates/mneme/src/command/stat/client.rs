//! One connection to a running server, for questions that an operator asks.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// A server that does not answer for so long is said not to.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the server is, and how to be let in.
#[derive(Debug, Clone, clap::Args)]
pub struct Where {
    /// The server's host.
    #[arg(
        long,
        env = "MNEME_HOST",
        default_value = "127.0.0.1",
        value_name = "HOST"
    )]
    host: String,

    /// The server's TCP port.
    #[arg(
        short,
        long,
        env = "MNEME_PORT",
        default_value_t = 6379,
        value_name = "PORT"
    )]
    port: u16,

    /// The server's unix socket, instead of host and port.
    #[arg(long, env = "MNEME_UNIXSOCKET", value_name = "PATH")]
    unixsocket: Option<PathBuf>,

    /// The password. Better set in the environment: others can see a process' arguments.
    #[arg(
        long,
        env = "MNEME_REQUIREPASS",
        hide_env_values = true,
        value_name = "PASSWORD"
    )]
    requirepass: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("no server can be reached at {place}")]
    Connect {
        place: String,
        source: std::io::Error,
    },
    #[error("the server at {place} does not answer")]
    Silent {
        place: String,
        source: std::io::Error,
    },
    #[error("the server at {place} refuses: {said}")]
    Refused { place: String, said: String },
    #[error("what answers at {place} does not speak Redis' protocol")]
    Foreign { place: String },
}

/// What a socket of either kind does.
trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A connection.
pub struct Client {
    stream: BufReader<Box<dyn Stream>>,
    place: String,
}

impl Where {
    fn place(&self) -> String {
        match &self.unixsocket {
            Some(path) => path.display().to_string(),
            None => format!("{}:{}", self.host, self.port),
        }
    }

    fn dial(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match &self.unixsocket {
            Some(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            None => {
                let stream = TcpStream::connect((self.host.as_str(), self.port))?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        })
    }

    /// Connects, and says the password if there is one.
    pub fn connect(&self) -> Result<Client, AskError> {
        let place = self.place();
        let stream = match self.dial() {
            Ok(stream) => BufReader::new(stream),
            Err(source) => return Err(AskError::Connect { place, source }),
        };
        let mut client = Client { stream, place };
        if let Some(password) = self
            .requirepass
            .as_deref()
            .filter(|password| !password.is_empty())
        {
            client.ask(&["AUTH", password])?;
        }
        Ok(client)
    }
}

impl Client {
    /// Where the server is.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What the server answers with one text.
    pub fn ask(&mut self, command: &[&str]) -> Result<String, AskError> {
        let mut request = format!("*{}\r\n", command.len());
        for word in command {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        let answered = self
            .stream
            .get_mut()
            .write_all(request.as_bytes())
            .and_then(|()| self.answer());
        let place = || self.place.clone();
        match answered {
            Ok(Some(Ok(text))) => Ok(text),
            Ok(Some(Err(said))) => Err(AskError::Refused {
                place: place(),
                said,
            }),
            Ok(None) => Err(AskError::Foreign { place: place() }),
            Err(source) => Err(AskError::Silent {
                place: place(),
                source,
            }),
        }
    }

    /// A text or the server's error; `None` for what is neither.
    fn answer(&mut self) -> std::io::Result<Option<Result<String, String>>> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        Ok(match (line.get(..1), line.get(1..)) {
            (Some("+"), Some(text)) => Some(Ok(text.to_owned())),
            (Some("-"), Some(said)) => Some(Err(said.to_owned())),
            (Some("$"), Some(len)) => match len.parse::<usize>() {
                Ok(len) if len <= LONGEST => {
                    let mut text = vec![0; len + 2];
                    self.stream.read_exact(&mut text)?;
                    text.truncate(len);
                    Some(Ok(String::from_utf8_lossy(&text).into_owned()))
                }
                _ => None,
            },
            _ => None,
        })
    }

    /// `INFO`, all of it.
    pub fn info(&mut self) -> Result<Info, AskError> {
        Ok(Info::parse(&self.ask(&["INFO", "everything"])?))
    }
}

/// No answer to a question asked here is longer.
const LONGEST: usize = 16 << 20;

/// The fields of `INFO`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Info(pub BTreeMap<String, String>);

impl Info {
    fn parse(text: &str) -> Self {
        let fields = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = fields.filter_map(|line| line.split_once(':'));
        Self(
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    /// A field's text; empty where the server does not say it.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A field's number; 0 where the server does not say it.
    pub fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// The fields whose names begin so, without that beginning.
    pub fn beginning<'a>(&'a self, with: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0
            .iter()
            .filter_map(move |(name, value)| Some((name.strip_prefix(with)?, value.as_str())))
    }
}

/// The value of `name` in a list such as `calls=1,usec=2`.
pub fn part<'a>(list: &'a str, name: &str) -> &'a str {
    list.split(',')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name_and_by_beginning() {
        let info = Info::parse(
            "# Stats\r\na:1\r\ncmdstat_get:calls=3,usec=7\r\n\r\ncmdstat_set:calls=2\r\nb:x:y\r\n",
        );
        assert_eq!(
            (info.number("a"), info.number("none"), info.text("b")),
            (1, 0, "x:y")
        );
        let commands: Vec<_> = info
            .beginning("cmdstat_")
            .map(|(name, list)| (name, part(list, "calls")))
            .collect();
        assert_eq!(commands, [("get", "3"), ("set", "2")]);
        assert_eq!(part("calls=3,usec=7", "usec"), "7");
        assert_eq!(part("calls=3", "failed"), "");
    }
}
