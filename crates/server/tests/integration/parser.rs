//! Compares the request parser with a simple implementation of the protocol: the same commands and
//! the same errors, however the bytes are split.

use mneme_server::resp::{Batch, Parser, ProtocolError, RequestLimits, Stop};
use proptest::collection::vec;
use proptest::prelude::*;

type Command = Vec<Vec<u8>>;

/// All commands that the parser finds in `input` split at `cuts`, and the error it ends with.
///
/// `leave` is the number of commands of each batch that are passed to the parser again, as the
/// server does if its client does not read.
fn parse(input: &[u8], cuts: &[usize], leave: usize) -> (Vec<Command>, Option<ProtocolError>) {
    let mut parser = Parser::new(RequestLimits::default());
    let mut batch = Batch::new();
    let mut found = Vec::new();
    let mut seen: Vec<u8> = Vec::new();
    let mut from = 0;
    for &cut in cuts.iter().chain([&input.len()]) {
        let to = cut.clamp(from, input.len());
        seen.extend_from_slice(&input[from..to]);
        from = to;
        loop {
            let parsed = parser.parse(&mut seen, &mut batch);
            let taken = batch.len().saturating_sub(leave).max(1).min(batch.len());
            found.extend(
                (0..taken).map(|i| batch.command(i, &seen).iter().map(<[u8]>::to_vec).collect()),
            );
            if taken < batch.len() {
                seen.drain(..batch.bytes(taken));
                parser.rewind();
                continue;
            }
            seen.drain(..parsed.consumed);
            match parsed.stop {
                Stop::Incomplete => break,
                Stop::Full => {}
                Stop::Broken(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

/// The protocol according to Redis' documentation and source, one command at a time, from complete
/// input.
mod model {
    use super::{Command, ProtocolError};

    pub fn parse(mut input: &[u8]) -> (Vec<Command>, Option<ProtocolError>) {
        let mut found = Vec::new();
        loop {
            match command(&mut input) {
                Ok(Some(command)) if command.is_empty() => {}
                Ok(Some(command)) => found.push(command),
                Ok(None) => return (found, None),
                Err(error) => return (found, Some(error)),
            }
        }
    }

    /// `None` if incomplete. An empty command must be skipped by the caller.
    fn command(input: &mut &[u8]) -> Result<Option<Command>, ProtocolError> {
        let mut rest = *input;
        let parsed = match rest.first() {
            None => return Ok(None),
            Some(b'*') => multibulk(&mut rest)?,
            Some(_) => inline(&mut rest)?,
        };
        if parsed.is_some() {
            *input = rest;
        }
        Ok(parsed)
    }

    fn multibulk(rest: &mut &[u8]) -> Result<Option<Command>, ProtocolError> {
        let Some(line) = header(rest, 1, ProtocolError::TooBigMultibulkCount)? else {
            return Ok(None);
        };
        let count = integer(&line[1..]).filter(|count| *count <= i64::from(i32::MAX));
        let count = count.ok_or(ProtocolError::InvalidMultibulkLength)?;
        let mut command = Vec::new();
        for _ in 0..count.max(0) {
            let Some(line) = header(rest, 0, ProtocolError::TooBigBulkCount)? else {
                return Ok(None);
            };
            let line = if line.is_empty() { b"\r" } else { line };
            if line[0] != b'$' {
                return Err(ProtocolError::ExpectedDollar(line[0]));
            }
            let len = integer(&line[1..]).filter(|len| (0..=512 << 20).contains(len));
            let len = len.ok_or(ProtocolError::InvalidBulkLength)? as usize;
            if rest.len() < len + 2 {
                return Ok(None);
            }
            command.push(rest[..len].to_vec());
            *rest = &rest[len + 2..];
        }
        Ok(Some(command))
    }

    /// The line up to the `\r`, which one more byte must follow. After the first `skip` bytes, at
    /// most 64 KiB may precede it.
    fn header<'a>(
        rest: &mut &'a [u8],
        skip: usize,
        error: ProtocolError,
    ) -> Result<Option<&'a [u8]>, ProtocolError> {
        let from = if rest.first() == Some(&b'$') { 1 } else { skip };
        match rest
            .iter()
            .position(|byte| *byte == b'\r')
            .filter(|end| end + 1 < rest.len())
        {
            Some(end) => {
                let line = &rest[..end];
                *rest = &rest[end + 2..];
                Ok(Some(line))
            }
            None if rest.len() - from.min(rest.len()) > 64 << 10 => Err(error),
            None => Ok(None),
        }
    }

    fn integer(text: &[u8]) -> Option<i64> {
        let text = std::str::from_utf8(text).ok()?;
        text.parse::<i64>()
            .ok()
            .filter(|value| value.to_string() == text)
    }

    fn inline(rest: &mut &[u8]) -> Result<Option<Command>, ProtocolError> {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let is_foreign = rest.starts_with(b"\x16\x03") || rest.starts_with(b"PRI ");
        if is_foreign || rest[..end.unwrap_or(rest.len())].contains(&0) {
            return Err(ProtocolError::ForeignProtocol);
        }
        let Some(end) = end else {
            return if rest.len() > 64 << 10 {
                Err(ProtocolError::TooBigInline)
            } else {
                Ok(None)
            };
        };
        let line = &rest[..end];
        *rest = &rest[end + 1..];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        words(line).map(Some).ok_or(ProtocolError::UnbalancedQuotes)
    }

    fn is_space(byte: u8) -> bool {
        byte.is_ascii_whitespace() || byte == 0x0b
    }

    fn words(line: &[u8]) -> Option<Command> {
        let mut bytes = line.iter().copied().peekable();
        let mut words = Vec::new();
        loop {
            while bytes.next_if(|byte| is_space(*byte)).is_some() {}
            if bytes.peek().is_none() {
                return Some(words);
            }
            let mut word = Vec::new();
            while let Some(byte) = bytes.next_if(|byte| !b" \t\n\r".contains(byte)) {
                if byte != b'"' && byte != b'\'' {
                    word.push(byte);
                    continue;
                }
                loop {
                    match bytes.next()? {
                        quote if quote == byte => break,
                        b'\\' if byte == b'\'' => {
                            word.push(if bytes.next_if_eq(&b'\'').is_some() {
                                b'\''
                            } else {
                                b'\\'
                            });
                        }
                        b'\\' => {
                            let mut ahead = bytes.clone();
                            let hex = |digit: Option<u8>| {
                                digit.and_then(|digit| (digit as char).to_digit(16))
                            };
                            match (ahead.next(), hex(ahead.next()), hex(ahead.next())) {
                                (Some(b'x'), Some(high), Some(low)) => {
                                    word.push((high * 16 + low) as u8);
                                    bytes = ahead;
                                }
                                _ => word.push(match bytes.next() {
                                    None => b'\\',
                                    Some(b'n') => b'\n',
                                    Some(b'r') => b'\r',
                                    Some(b't') => b'\t',
                                    Some(b'b') => 8,
                                    Some(b'a') => 7,
                                    Some(other) => other,
                                }),
                            }
                        }
                        other => word.push(other),
                    }
                }
                if bytes.peek().is_some_and(|next| !is_space(*next)) {
                    return None;
                }
                break;
            }
            words.push(word);
        }
    }
}

/// Random bytes that contain the protocol's special bytes more often than by chance.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        Just(b'\r'),
        Just(b'\n'),
        Just(b'*'),
        Just(b'$'),
        Just(b'"'),
        b'0'..=b'9',
        any::<u8>()
    ];
    vec(byte, 0..12)
}

fn multibulk(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A piece of a request, mostly well-formed.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let well_formed =
        || vec(vec(any::<u8>(), 0..20), 0..6).prop_map(|arguments| multibulk(&arguments));
    let inline = "[ -~\\t\x0b\x0c]{0,30}(\r)?\n";
    let length = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        (-2i64..3).prop_map(|n| n.to_string()),
        Just("007".to_owned()),
        Just("1048577".to_owned()),
        Just("536870913".to_owned()),
        Just(String::new()),
        "[+-]?[0-9a-f]{1,20}",
    ];
    let header =
        (prop_oneof![Just('*'), Just('$')], length).prop_map(|(kind, n)| format!("{kind}{n}\r\n"));
    prop_oneof![
        8 => well_formed(),
        3 => inline.prop_map(String::into_bytes),
        1 => header.prop_map(String::into_bytes),
        1 => noise(),
        // A valid command with one byte changed.
        2 => (well_formed(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, byte)| {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_result_of_the_protocol(
        pieces in vec(piece(), 0..8),
        cuts in vec(0usize..300, 0..12),
        leave in 0usize..4,
    ) {
        let input = pieces.concat();
        let mut cuts = cuts;
        cuts.sort_unstable();
        prop_assert_eq!(parse(&input, &cuts, leave), model::parse(&input));
    }

    #[test]
    fn garbage_is_refused_or_waited_for(input in vec(any::<u8>(), 0..400), cuts in vec(0usize..400, 0..6)) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        prop_assert_eq!(parse(&input, &cuts, 0), model::parse(&input));
    }
}

#[test]
fn byte_by_byte_gives_the_same_commands() {
    let input = [
        multibulk(&[b"SET".to_vec(), b"key".to_vec(), vec![b'\n'; 3000]]),
        b"GET 'a key'\r\n\r\n*0\r\n*-7\r\n".to_vec(),
        multibulk(&[b"".to_vec()]),
    ]
    .concat();
    let cuts: Vec<usize> = (0..input.len()).collect();
    let (commands, error) = parse(&input, &cuts, 0);
    assert_eq!((commands.clone(), error), parse(&input, &[], 0));
    assert_eq!(commands.len(), 3);
}

#[test]
fn lines_without_an_end_are_refused_beyond_64_kib() {
    let long =
        |start: &str, byte: u8| [start.as_bytes(), &vec![byte; (64 << 10) + 10][..]].concat();
    for (input, expected) in [
        (long("*", b'1'), ProtocolError::TooBigMultibulkCount),
        (long("*1\r\n$", b'1'), ProtocolError::TooBigBulkCount),
        (long("*1\r\nx", b'x'), ProtocolError::TooBigBulkCount),
        (long("", b'x'), ProtocolError::TooBigInline),
    ] {
        assert_eq!(parse(&input, &[], 0), (vec![], Some(expected)));
        assert_eq!(parse(&input[..input.len() / 2], &[], 0), (vec![], None));
    }
}

#[test]
fn errors_are_worded_as_in_redis() {
    for (input, text) in [
        ("*x\r\n", "Protocol error: invalid multibulk length"),
        ("*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        (
            "*1\r\n$536870913\r\n",
            "Protocol error: invalid bulk length",
        ),
        ("*1\r\n+PING\r\n", "Protocol error: expected '$', got '+'"),
        ("*1\r\n\r\n", "Protocol error: expected '$', got ' '"),
        ("\"abc\r\n", "Protocol error: unbalanced quotes in request"),
    ] {
        let (_, error) = parse(input.as_bytes(), &[], 0);
        assert_eq!(
            error.map(|error| error.to_string()).as_deref(),
            Some(text),
            "{input:?}"
        );
    }
}

#[test]
fn unauthenticated_clients_have_narrow_limits_and_single_commands() {
    let mut parser = Parser::new(RequestLimits::default());
    let mut batch = Batch::new();
    parser.set_trusted(false);
    let auth = multibulk(&[b"AUTH".to_vec(), b"secret".to_vec()]);
    let large = multibulk(&[b"SET".to_vec(), b"k".to_vec(), vec![b'x'; 20_000]]);
    let mut input = [auth.clone(), large].concat();

    let parsed = parser.parse(&mut input, &mut batch);
    assert_eq!(
        (parsed.consumed, parsed.stop, batch.len()),
        (auth.len(), Stop::Full, 1)
    );
    let mut rest = input.split_off(parsed.consumed);
    let refused = parser.parse(&mut rest.clone(), &mut batch);
    assert_eq!(
        refused.stop,
        Stop::Broken(ProtocolError::UnauthenticatedBulkLength)
    );

    let mut many = b"*11\r\n".to_vec();
    let refused = Parser::new(RequestLimits::default());
    let mut refused = {
        let mut parser = refused;
        parser.set_trusted(false);
        parser
    };
    assert_eq!(
        refused.parse(&mut many, &mut batch).stop,
        Stop::Broken(ProtocolError::UnauthenticatedMultibulkLength)
    );

    let mut trusted = Parser::new(RequestLimits::default());
    assert_eq!(trusted.parse(&mut rest, &mut batch).stop, Stop::Incomplete);
    assert_eq!(batch.len(), 1);
}

#[test]
fn an_announced_length_reserves_no_memory() {
    let mut parser = Parser::new(RequestLimits::default());
    let mut batch = Batch::new();
    let mut input = b"*1048576\r\n$536870912\r\nabc".to_vec();
    let parsed = parser.parse(&mut input, &mut batch);
    assert_eq!((parsed.consumed, parsed.stop), (0, Stop::Incomplete));
    assert_eq!(parser.wanted(input.len()), (512 << 20) + 2 - 3);
}
