//! The part of HTTP/1.1 that a scraper needs: one `GET` or `HEAD` for each connection, answered and
//! closed. **A request costs a bounded amount of memory and time**: its head is at most [`HEAD`]
//! bytes, and the connection is closed after [`TIMEOUT`].

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use mio::net::TcpStream;

use super::exposition::CONTENT_TYPE;

/// The maximum length of a request's first line and headers in bytes. Prometheus sends some
/// hundred.
pub(super) const HEAD: usize = 8 << 10;

/// The maximum duration of a connection.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of headers of a request.
const HEADERS: usize = 64;

/// The number of bytes that are read and dropped after the answer is sent: closing a socket with
/// unread input would discard the answer.
const DROPPED: usize = 64 << 10;

/// One connection.
pub(super) struct Visit {
    pub stream: TcpStream,
    /// When it is cut off.
    pub deadline_ns: u64,
    state: State,
}

enum State {
    /// A request is being received.
    Asking(Vec<u8>),
    /// An answer is being sent, from this byte on.
    Answering(Vec<u8>, usize),
    /// The peer should read the answer and close; this many bytes have been dropped.
    Leaving(usize),
}

/// Whether a connection is finished.
#[derive(PartialEq, Eq)]
pub(super) enum AfterRequest {
    Wait,
    Over,
}

impl Visit {
    pub fn new(stream: TcpStream, deadline_ns: u64) -> Self {
        Self {
            stream,
            deadline_ns,
            state: State::Asking(Vec::new()),
        }
    }

    /// Continues as far as possible without waiting. `page` writes the requested page.
    pub fn go_on(&mut self, page: impl Fn() -> String) -> AfterRequest {
        loop {
            match self.step(&page) {
                Ok(None) => {}
                Ok(Some(after)) => return after,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return AfterRequest::Wait;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The peer has gone.
                Err(_) => return AfterRequest::Over,
            }
        }
    }

    fn step(&mut self, page: &impl Fn() -> String) -> io::Result<Option<AfterRequest>> {
        match &mut self.state {
            State::Asking(head) => {
                let mut chunk = [0; 1024];
                let read = self.stream.read(&mut chunk)?;
                if read == 0 {
                    return Ok(Some(AfterRequest::Over));
                }
                head.extend_from_slice(&chunk[..read]);
                if let Some(answer) = answer(head, page) {
                    self.state = State::Answering(answer, 0);
                }
            }
            State::Answering(bytes, sent) if *sent < bytes.len() => {
                match self.stream.write(&bytes[*sent..])? {
                    0 => return Ok(Some(AfterRequest::Over)),
                    written => *sent += written,
                }
            }
            State::Answering(..) => {
                self.stream.shutdown(Shutdown::Write)?;
                self.state = State::Leaving(0);
            }
            State::Leaving(dropped) => {
                let mut chunk = [0; 4096];
                let read = self.stream.read(&mut chunk)?;
                *dropped += read;
                if read == 0 || *dropped > DROPPED {
                    return Ok(Some(AfterRequest::Over));
                }
            }
        }
        Ok(None)
    }
}

/// The answer to a request with this head; `None` while it is incomplete.
fn answer(head: &[u8], page: &impl Fn() -> String) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let plain = "text/plain; charset=utf-8";
    let parsed = request.parse(head.get(..HEAD).unwrap_or(head));
    let (status, body) = match parsed {
        Ok(httparse::Status::Partial) if head.len() < HEAD => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => (
            "431 Request Header Fields Too Large",
            "The request is too long.\n",
        ),
        Err(_) => ("400 Bad Request", "This is no request of HTTP/1.1.\n"),
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default();
            match (request.method.unwrap_or_default(), path) {
                ("GET", "/metrics") => {
                    return Some(response("200 OK", CONTENT_TYPE, &page(), true));
                }
                ("HEAD", "/metrics") => {
                    return Some(response("200 OK", CONTENT_TYPE, &page(), false));
                }
                ("GET" | "HEAD", _) => ("404 Not Found", "There is nothing here but /metrics.\n"),
                _ => (
                    "405 Method Not Allowed\r\nAllow: GET, HEAD",
                    "Only GET and HEAD are answered.\n",
                ),
            }
        }
    };
    let is_whole = request.method != Some("HEAD");
    Some(response(status, plain, body, is_whole))
}

fn response(status: &str, kind: &str, body: &str, is_whole: bool) -> Vec<u8> {
    let body_sent = if is_whole { body } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n\
         {body_sent}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(head: &[u8]) -> Option<String> {
        let answer = answer(head, &|| "page\n".to_owned())?;
        Some(String::from_utf8(answer).unwrap())
    }

    #[test]
    fn an_incomplete_request_is_waited_for_up_to_a_bound() {
        let whole = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(said(&whole[..end]), None, "{end}");
        }
        assert!(said(whole).unwrap().ends_with("\r\n\r\npage\n"));
        let long = [b"GET /".as_slice(), &vec![b'a'; HEAD]].concat();
        assert!(said(&long).unwrap().starts_with("HTTP/1.1 431 "));
        let many = [
            b"GET / HTTP/1.1\r\n".as_slice(),
            &b"a: b\r\n".repeat(HEADERS + 1),
        ]
        .concat();
        assert!(said(&many).unwrap().starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn other_requests_get_other_answers() {
        for (head, expected) in [
            ("GET / HTTP/1.0\r\n\r\n", "404"),
            ("HEAD /x HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n", "405"),
            ("*1\r\n$4\r\nPING\r\n", "400"),
            ("\0\0\0\0", "400"),
            ("GET /metrics?name[]=x HTTP/1.1\r\n\r\n", "200"),
        ] {
            let answer = said(head.as_bytes()).unwrap();
            assert_eq!(&answer[9..12], expected, "{head:?}: {answer}");
        }
        let head = said(b"HEAD /metrics HTTP/1.1\r\n\r\n").unwrap();
        assert!(head.contains("Content-Length: 5\r\n") && head.ends_with("\r\n\r\n"));
    }
}
