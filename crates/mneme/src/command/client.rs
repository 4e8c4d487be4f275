//! One connection to a running server, for questions that an operator asks (`stat`, `check`, `doctor`).

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

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Text(String),
    Number(i64),
    List(Vec<Reply>),
}

impl Reply {
    /// A list of names and values in turn, by name; empty if it is none.
    pub fn fields(self) -> BTreeMap<String, Reply> {
        let Reply::List(items) = self else {
            return BTreeMap::new();
        };
        let mut fields = BTreeMap::new();
        let mut items = items.into_iter();
        while let (Some(Reply::Text(name)), Some(value)) = (items.next(), items.next()) {
            fields.insert(name, value);
        }
        fields
    }
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
    /// In words.
    pub fn place(&self) -> String {
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
        match self.request(command)? {
            Reply::Text(text) => Ok(text),
            _ => Err(AskError::Foreign {
                place: self.place.clone(),
            }),
        }
    }

    /// What the server answers.
    pub fn request(&mut self, command: &[&str]) -> Result<Reply, AskError> {
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
            Ok(Some(Ok(reply))) => Ok(reply),
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

    /// An answer or the server's error; `None` for what is neither.
    fn answer(&mut self) -> std::io::Result<Option<Result<Reply, String>>> {
        let mut line = Vec::new();
        (&mut self.stream)
            .take(LONGEST as u64)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        let (Some(kind), Some(rest)) = (line.get(..1), line.get(1..)) else {
            return Ok(None);
        };
        Ok(match kind {
            "+" => Some(Ok(Reply::Text(rest.to_owned()))),
            "-" => Some(Err(rest.to_owned())),
            ":" => rest.parse().ok().map(|number| Ok(Reply::Number(number))),
            "$" => self.text(rest)?.map(|text| Ok(Reply::Text(text))),
            "*" => self.list(rest)?,
            _ => None,
        })
    }

    fn text(&mut self, len: &str) -> std::io::Result<Option<String>> {
        let Some(len) = len.parse::<usize>().ok().filter(|len| *len <= LONGEST) else {
            return Ok(None);
        };
        let mut text = vec![0; len + 2];
        self.stream.read_exact(&mut text)?;
        text.truncate(len);
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    fn list(&mut self, len: &str) -> std::io::Result<Option<Result<Reply, String>>> {
        let Some(len) = len.parse::<usize>().ok().filter(|len| *len <= MOST) else {
            return Ok(None);
        };
        let mut items = Vec::new();
        for _ in 0..len {
            match self.answer()? {
                Some(Ok(item)) => items.push(item),
                other => return Ok(other),
            }
        }
        Ok(Some(Ok(Reply::List(items))))
    }

    /// `INFO`, all of it.
    pub fn info(&mut self) -> Result<Info, AskError> {
        Ok(Info::parse(&self.ask(&["INFO", "everything"])?))
    }
}

/// No answer to a question asked here is longer.
const LONGEST: usize = 16 << 20;

/// No list in an answer is longer.
const MOST: usize = 1 << 16;

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
    fn a_list_is_read_by_name() {
        let text = |text: &str| Reply::Text(text.to_owned());
        let list = Reply::List(vec![text("a"), Reply::Number(1), text("b"), text("c")]);
        let fields = list.fields();
        assert_eq!(
            (&fields["a"], &fields["b"]),
            (&Reply::Number(1), &text("c"))
        );
        assert!(text("a").fields().is_empty());
    }

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
