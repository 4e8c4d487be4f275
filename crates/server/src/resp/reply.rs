//! Replies, written directly to a connection's output buffer, in the protocol version of its
//! client.

/// The version of the protocol that a client has asked for with `HELLO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// The protocol of every client that has not sent `HELLO`.
    #[default]
    Resp2,
    /// Maps, sets, null and verbatim text are types of their own.
    Resp3,
}

impl Protocol {
    /// 2 or 3.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// Bytes of the longest number with a fraction.
const LONGEST_DOUBLE: usize = 24;

/// Writes replies at the end of a buffer. An aggregate is a header followed by as many replies as
/// the header announces.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
    most: usize,
}

impl<'a> Reply<'a> {
    /// Replies appended to `out`.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self {
            out,
            protocol,
            most: usize::MAX,
        }
    }

    /// Sets the length of the buffer beyond which nothing more is appended, so that one command
    /// cannot fill the memory. If the buffer is longer than `most` afterwards, the reply is
    /// incomplete and the connection must be closed.
    pub fn up_to(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// A writer for the same buffer, borrowed from this one.
    pub fn reborrow(&mut self) -> Reply<'_> {
        Reply {
            out: self.out,
            protocol: self.protocol,
            most: self.most,
        }
    }

    /// The protocol version of the replies.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Sets the protocol version of the replies that follow.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// How many bytes the buffer holds, those of earlier replies included.
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// Whether the buffer is longer than it may be, so that the rest of the reply will not be sent.
    pub fn is_over(&self) -> bool {
        self.out.len() > self.most
    }

    /// The number of bytes that may still be appended.
    pub fn left(&self) -> usize {
        self.most.saturating_sub(self.out.len())
    }

    /// Removes everything written since `position`.
    pub fn truncate(&mut self, position: usize) {
        self.out.truncate(position);
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.append(b"+OK\r\n");
    }

    /// A short text without a line break.
    pub fn simple(&mut self, text: &str) {
        self.append(b"+");
        self.append(text.as_bytes());
        self.end();
    }

    /// An error: its code (`ERR`, `WRONGTYPE`, ...), a space, and a message. Line breaks in it
    /// become spaces.
    pub fn error(&mut self, error: &[u8]) {
        self.append(b"-");
        let start = self.out.len();
        self.append(error);
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.end();
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A number with a fraction.
    pub fn double(&mut self, value: f64) {
        let mut text = Vec::with_capacity(LONGEST_DOUBLE);
        super::append_f64(&mut text, value);
        match self.protocol {
            Protocol::Resp2 => self.bulk(&text),
            Protocol::Resp3 => {
                self.append(b",");
                self.append(&text);
                self.end();
            }
        }
    }

    /// Bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if self.is_over() {
            return;
        }
        self.out.reserve(bytes.len() + 32);
        self.header(b'$', bytes.len() as i64);
        self.append(bytes);
        self.end();
    }

    /// A value, or null where there is none.
    #[inline]
    pub fn value(&mut self, value: Option<&[u8]>) {
        match value {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Null.
    #[inline]
    pub fn null(&mut self) {
        self.append(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The null array.
    pub fn null_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.append(b"*-1\r\n"),
            Protocol::Resp3 => self.null(),
        }
    }

    /// A reply that is encoded already.
    pub fn raw(&mut self, encoded: &[u8]) {
        self.append(encoded);
    }

    /// The header of an array: `len` replies must follow.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// The header of a map: `pairs` keys and values must follow, alternating.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', 2 * pairs as i64),
            Protocol::Resp3 => self.header(b'%', pairs as i64),
        }
    }

    /// The header of a set, an aggregate without an order: `len` replies must follow.
    pub fn set(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len as i64),
            Protocol::Resp3 => self.header(b'~', len as i64),
        }
    }

    /// `len` replies follow that the client has not asked for just now.
    pub fn push(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len as i64),
            Protocol::Resp3 => self.header(b'>', len as i64),
        }
    }

    /// Plain text for people, line breaks allowed.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.header(b'=', text.len() as i64 + 4);
                self.append(b"txt:");
                self.append(text.as_bytes());
                self.end();
            }
        }
    }

    #[inline]
    fn header(&mut self, kind: u8, value: i64) {
        if self.is_over() {
            return;
        }
        self.out.push(kind);
        self.out
            .extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// Appends bytes of a reply. All bytes pass here or through [`header`](Self::header), which
    /// check the bound.
    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        if !self.is_over() {
            self.out.extend_from_slice(bytes);
        }
    }

    #[inline]
    fn end(&mut self) {
        self.append(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl Fn(&mut Reply<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, protocol));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_protocol_has_its_own_types() {
        let all = |reply: &mut Reply<'_>| {
            reply.null();
            reply.map(2);
            reply.set(3);
            reply.verbatim("a");
            reply.double(0.25);
            reply.array(0);
            reply.integer(i64::MIN);
            reply.bulk(b"xyz");
        };
        let common = "*0\r\n:-9223372036854775808\r\n$3\r\nxyz\r\n";
        assert_eq!(
            written(Protocol::Resp2, all),
            format!("$-1\r\n*4\r\n*3\r\n$1\r\na\r\n$4\r\n0.25\r\n{common}")
        );
        assert_eq!(
            written(Protocol::Resp3, all),
            format!("_\r\n%2\r\n~3\r\n=5\r\ntxt:a\r\n,0.25\r\n{common}")
        );
    }

    /// An aggregate may announce any number of any replies.
    #[test]
    fn no_kind_of_reply_goes_on_beyond_the_bound() {
        let kinds: [fn(&mut Reply<'_>); 13] = [
            |reply| reply.ok(),
            |reply| reply.simple("text"),
            |reply| reply.error(b"ERR text"),
            |reply| reply.integer(7),
            |reply| reply.double(0.5),
            |reply| reply.bulk(b"bytes"),
            |reply| reply.null(),
            |reply| reply.null_array(),
            |reply| reply.raw(b"+raw\r\n"),
            |reply| reply.array(1),
            |reply| reply.map(1),
            |reply| reply.push(1),
            |reply| reply.verbatim("text"),
        ];
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            for (kind, write) in kinds.iter().enumerate() {
                let mut out = Vec::new();
                let mut reply = Reply::new(&mut out, protocol).up_to(100);
                (0..1000).for_each(|_| write(&mut reply));
                assert!(reply.is_over(), "kind {kind}");
                assert!(
                    (101..200).contains(&out.len()),
                    "kind {kind}: {}",
                    out.len()
                );
            }
        }
    }

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(
            written(Protocol::Resp2, |r| r.error(b"ERR a\r\nb")),
            "-ERR a  b\r\n"
        );
    }
}
