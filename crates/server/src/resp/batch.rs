//! The commands found in one read. An argument is recorded by its position in the input and never
//! copied.

use std::io::Write;

/// The place of one argument, as offsets from the first byte of the input that it was parsed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

/// The end of one command, as an index into `Batch::spans` and as an offset into the input.
#[derive(Debug, Clone, Copy)]
struct End {
    span: u32,
    byte: u32,
}

/// Complete commands, in the order sent. A batch is reused from read to read, so that parsing does
/// not allocate once its buffers have grown.
#[derive(Debug, Default)]
pub struct Batch {
    pub(super) spans: Vec<Span>,
    ends: Vec<End>,
    /// Whether its only command is an inline one.
    pub(super) is_inline: bool,
}

/// The number of spans that an idle batch keeps memory for. Memory beyond that, for instance after
/// a command with a million arguments, is released.
const KEPT_SPANS: usize = 1 << 16;

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of commands.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it holds no command.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether its only command is an inline one, which has been unescaped in its input.
    pub fn is_inline(&self) -> bool {
        self.is_inline
    }

    /// The arguments of command `index`, its name first; none if there is no such command. `input`
    /// must be the input that the batch was parsed from.
    #[inline]
    pub fn command<'a>(&'a self, index: usize, input: &'a [u8]) -> Arguments<'a> {
        let from = match index.checked_sub(1) {
            Some(before) => self.ends.get(before).map_or(0, |end| end.span as usize),
            None => 0,
        };
        let to = self.ends.get(index).map_or(from, |end| end.span as usize);
        Arguments {
            input,
            spans: self.spans.get(from..to).unwrap_or_default(),
        }
    }

    /// The number of bytes of the input that the first `commands` commands take.
    pub fn bytes(&self, commands: usize) -> usize {
        match commands.checked_sub(1) {
            Some(last) => self.ends.get(last).map_or(0, |end| end.byte as usize),
            None => 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.spans.clear();
        self.spans.shrink_to(KEPT_SPANS);
        self.ends.clear();
        self.is_inline = false;
    }

    pub(super) fn finish_command(&mut self, byte: usize) {
        self.ends.push(End {
            span: self.spans.len() as u32,
            byte: byte as u32,
        });
    }

    /// The first span that belongs to no finished command.
    pub(super) fn unfinished(&self) -> usize {
        self.ends.last().map_or(0, |end| end.span as usize)
    }
}

/// The arguments of one command; the first is its name.
#[derive(Debug, Clone, Copy)]
pub struct Arguments<'a> {
    input: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Arguments<'a> {
    /// The number of arguments, the name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are no arguments at all, not even a name.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `index`, or an empty slice if there is none. A command's arity is checked before it
    /// runs, so commands only ask for arguments that exist.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.spans
            .get(index)
            .and_then(|span| self.resolve(span))
            .unwrap_or_default()
    }

    /// The arguments from `index` on.
    #[inline]
    pub fn from(&self, index: usize) -> Arguments<'a> {
        Arguments {
            input: self.input,
            spans: self.spans.get(index..).unwrap_or_default(),
        }
    }

    /// The arguments one by one.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let arguments = *self;
        self.spans
            .iter()
            .map(move |span| arguments.resolve(span).unwrap_or_default())
    }

    /// Appends the command to `out` in the encoding that clients use.
    pub fn encode(&self, out: &mut Vec<u8>) {
        // Writing to a `Vec` does not fail.
        let _ = write!(out, "*{}\r\n", self.len());
        for argument in self.iter() {
            let _ = write!(out, "${}\r\n", argument.len());
            out.extend_from_slice(argument);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// A copy that outlives the input.
    pub fn keep(&self) -> KeptArguments {
        let mut kept = KeptArguments {
            input: Vec::with_capacity(self.iter().map(<[u8]>::len).sum()),
            spans: Vec::with_capacity(self.len()),
        };
        for argument in self.iter() {
            let start = kept.input.len() as u32;
            kept.input.extend_from_slice(argument);
            kept.spans.push(Span {
                start,
                len: argument.len() as u32,
            });
        }
        kept
    }

    #[inline]
    fn resolve(&self, span: &Span) -> Option<&'a [u8]> {
        self.input
            .get(span.start as usize..span.start as usize + span.len as usize)
    }
}

/// The arguments of one command, copied from the input they were sent in.
#[derive(Debug)]
pub struct KeptArguments {
    input: Vec<u8>,
    spans: Vec<Span>,
}

impl KeptArguments {
    /// The arguments.
    pub fn arguments(&self) -> Arguments<'_> {
        Arguments {
            input: &self.input,
            spans: &self.spans,
        }
    }

    /// The number of bytes of memory they occupy.
    pub fn bytes(&self) -> usize {
        self.input.len() + size_of_val(self.spans.as_slice())
    }
}
