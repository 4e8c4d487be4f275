//! A connection to a running server, for the operator's commands (`stat`, `check`, `doctor`).

mod encrypted;
mod info;
mod place;
mod stream;

pub use self::info::{Info, part};
pub use self::place::Where;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::time::Duration;

use self::stream::ClientStream;

/// The time a server has to accept a client, and to send a whole answer. After that it counts as
/// not answering.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a question has no answer.
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
    #[error(
        "the server at {place} has not answered within {} seconds: it is stopped, or held up",
        ANSWER_TIMEOUT.as_secs()
    )]
    Late { place: String },
    #[error("the server at {place} refuses: {said}")]
    Refused { place: String, said: String },
    #[error("what answers at {place} does not speak Redis' protocol")]
    Foreign { place: String },
    #[error("what answers at {place} puts lists within lists more than {DEEPEST} deep")]
    Deep { place: String },
}

impl AskError {
    /// Whether the question may succeed later, when the server has restarted or continues.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            AskError::Connect { .. } | AskError::Silent { .. } | AskError::Late { .. }
        )
    }
}

/// Why an answer could not be read, or the error that the server sent.
enum Fault {
    Refused(String),
    Foreign,
    Deep,
    Silent(std::io::Error),
}

impl Fault {
    fn at(self, place: String) -> AskError {
        match self {
            Fault::Refused(said) => AskError::Refused { place, said },
            Fault::Foreign => AskError::Foreign { place },
            Fault::Deep => AskError::Deep { place },
            Fault::Silent(source) if is_late(&source) => AskError::Late { place },
            Fault::Silent(source) => AskError::Silent { place, source },
        }
    }
}

/// Whether an error means that a socket's time limit has passed. Not all systems report it as a
/// timeout.
fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Fault::Silent(error)
    }
}

/// A server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Text(String),
    Number(i64),
    List(Vec<Answer>),
}

impl Answer {
    /// A list of alternating names and values, as a map; empty if the answer is not a list.
    pub fn fields(self) -> BTreeMap<String, Answer> {
        let Answer::List(items) = self else {
            return BTreeMap::new();
        };
        let mut fields = BTreeMap::new();
        let mut items = items.into_iter();
        while let (Some(Answer::Text(name)), Some(value)) = (items.next(), items.next()) {
            fields.insert(name, value);
        }
        fields
    }
}

/// A connection.
pub struct ServerConnection {
    stream: BufReader<Box<dyn ClientStream>>,
    place: String,
}

impl ServerConnection {
    /// Connects to the server at `place`.
    fn connect(place: &Where) -> Result<Self, AskError> {
        let words = place.place();
        match place.dial(ANSWER_TIMEOUT) {
            Ok(stream) => Ok(Self {
                stream: BufReader::new(stream),
                place: words,
            }),
            Err(error) if is_late(&error) => Err(AskError::Late { place: words }),
            Err(source) => Err(AskError::Connect {
                place: words,
                source,
            }),
        }
    }

    /// Where the server is.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The server's answer to a command that returns one text.
    pub fn ask(&mut self, command: &[&str]) -> Result<String, AskError> {
        match self.request(command)? {
            Answer::Text(text) => Ok(text),
            _ => Err(AskError::Foreign {
                place: self.place.clone(),
            }),
        }
    }

    /// The server's answer.
    pub fn request(&mut self, command: &[&str]) -> Result<Answer, AskError> {
        let mut request = format!("*{}\r\n", command.len());
        for word in command {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().allow(ANSWER_TIMEOUT);
        let answered = match self.stream.get_mut().write_all(request.as_bytes()) {
            Ok(()) => self.answer(DEEPEST),
            Err(error) => Err(error.into()),
        };
        answered.map_err(|fault| fault.at(self.place.clone()))
    }

    /// Reads an answer whose lists are nested at most `depth` deep.
    fn answer(&mut self, depth: usize) -> Result<Answer, Fault> {
        let mut line = Vec::new();
        (&mut self.stream)
            .take(LONGEST as u64)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        let (Some(kind), Some(rest)) = (line.get(..1), line.get(1..)) else {
            return Err(Fault::Foreign);
        };
        match kind {
            "+" => Ok(Answer::Text(rest.to_owned())),
            "-" => Err(Fault::Refused(rest.to_owned())),
            ":" => Ok(Answer::Number(rest.parse().map_err(|_| Fault::Foreign)?)),
            "$" => Ok(Answer::Text(self.text(length(rest, LONGEST)?)?)),
            "*" => self.list(length(rest, MOST)?, depth),
            _ => Err(Fault::Foreign),
        }
    }

    fn text(&mut self, len: usize) -> Result<String, Fault> {
        let mut text = vec![0; len + 2];
        self.stream.read_exact(&mut text)?;
        text.truncate(len);
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn list(&mut self, len: usize, depth: usize) -> Result<Answer, Fault> {
        let depth = depth.checked_sub(1).ok_or(Fault::Deep)?;
        let items = (0..len).map(|_| self.answer(depth));
        Ok(Answer::List(items.collect::<Result<_, _>>()?))
    }

    /// All fields of `INFO`.
    pub fn info(&mut self) -> Result<Info, AskError> {
        Ok(Info::parse(&self.ask(&["INFO", "everything"])?))
    }
}

/// The maximum number of bytes of an answer; the questions asked here have shorter ones.
const LONGEST: usize = 16 << 20;

/// The maximum number of elements of a list in an answer.
const MOST: usize = 1 << 16;

/// The maximum depth of nested lists in an answer. Each level needs some stack to read.
const DEEPEST: usize = 32;

/// Parses a length of at most `most`.
fn length(text: &str, most: usize) -> Result<usize, Fault> {
    let length = text.parse().ok().filter(|length| *length <= most);
    length.ok_or(Fault::Foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends these bytes, whatever it is asked.
    struct Saying(std::io::Cursor<Vec<u8>>);

    impl Read for Saying {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(to)
        }
    }

    impl Write for Saying {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl ClientStream for Saying {
        fn allow(&mut self, _: Duration) {}
    }

    fn asked(answer: impl Into<Vec<u8>>) -> Result<Answer, AskError> {
        let saying = Saying(std::io::Cursor::new(answer.into()));
        let mut client = ServerConnection {
            stream: BufReader::new(Box::new(saying)),
            place: "a test".to_owned(),
        };
        client.request(&["PING"])
    }

    #[test]
    fn nested_lists_have_a_limit() {
        for depth in [0, 1, DEEPEST] {
            let mut reply = asked("*1\r\n".repeat(depth) + ":7\r\n").unwrap();
            for _ in 0..depth {
                let Answer::List(mut items) = reply else {
                    panic!("{reply:?}")
                };
                reply = items.pop().unwrap();
            }
            assert_eq!(reply, Answer::Number(7));
        }
        // The last depth would overflow the stack without the limit.
        for depth in [DEEPEST + 1, 1 << 20] {
            let refused = asked("*1\r\n".repeat(depth) + ":7\r\n").unwrap_err();
            assert!(matches!(refused, AskError::Deep { .. }), "{refused}");
            assert!(refused.to_string().contains("a test"), "{refused}");
        }
    }

    #[test]
    fn invalid_bytes_are_recognised() {
        let refused = |answer: &str| asked(answer).unwrap_err();
        assert!(
            matches!(refused("-ERR no\r\n"), AskError::Refused { said, .. } if said == "ERR no")
        );
        assert!(matches!(
            refused("*2\r\n:1\r\n-ERR no\r\n"),
            AskError::Refused { .. }
        ));
        for answer in ["HTTP/1.1 400\r\n", "$x\r\n", "*99999999\r\n", ":1x\r\n"] {
            assert!(
                matches!(refused(answer), AskError::Foreign { .. }),
                "{answer}"
            );
        }
        for answer in ["", "$5\r\nab", "*2\r\n:1\r\n"] {
            assert!(
                matches!(refused(answer), AskError::Silent { .. }),
                "{answer}"
            );
        }
    }

    #[test]
    fn a_list_is_read_by_name() {
        let text = |text: &str| Answer::Text(text.to_owned());
        let list = Answer::List(vec![text("a"), Answer::Number(1), text("b"), text("c")]);
        let fields = list.fields();
        assert_eq!(
            (&fields["a"], &fields["b"]),
            (&Answer::Number(1), &text("c"))
        );
        assert!(text("a").fields().is_empty());
    }
}
