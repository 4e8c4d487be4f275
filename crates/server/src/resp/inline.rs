//! Inline commands: a line of words as typed into `telnet`, quoted as Redis quotes.
//!
//! Words are unescaped in place (an unescaped word is never longer than its source), so that they
//! are spans of the input like other arguments.

use super::batch::Span;

/// Appends the words of `line[from..to]` to `words`, unescaping them in place. `None` if a quote is
/// not closed, or if a closing quote is followed by anything but a space.
pub(super) fn split(line: &mut [u8], from: usize, to: usize, words: &mut Vec<Span>) -> Option<()> {
    let mut read = from;
    loop {
        while read < to && is_space(line[read]) {
            read += 1;
        }
        if read >= to {
            return Some(());
        }
        let start = read;
        let mut write = read;
        while read < to && !ends_word(line[read]) {
            // After a closing quote, every kind of space ends the word.
            match line[read] {
                b'"' => {
                    read = double_quoted(line, read + 1, to, &mut write)?;
                    break;
                }
                b'\'' => {
                    read = single_quoted(line, read + 1, to, &mut write)?;
                    break;
                }
                byte => {
                    put(line, &mut write, byte);
                    read += 1;
                }
            }
        }
        words.push(Span {
            start: start as u32,
            len: (write - start) as u32,
        });
    }
}

/// The unescaped words of one line. `None` as in [`split`].
pub(crate) fn split_line(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut line = line.to_vec();
    let (len, mut spans) = (line.len(), Vec::new());
    split(&mut line, 0, len, &mut spans)?;
    let word = |span: &Span| line[span.start as usize..][..span.len as usize].to_vec();
    Some(spans.iter().map(word).collect())
}

/// Unescapes the rest of a word after an opening `"`. Returns where parsing goes on, which is at a
/// space or the end.
fn double_quoted(line: &mut [u8], mut read: usize, to: usize, write: &mut usize) -> Option<usize> {
    while read < to {
        let (byte, taken) = match &line[read..to] {
            [b'"', ..] => return closed(line, read, to),
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), 4)
            }
            [b'\\', escaped, ..] => {
                let byte = match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                };
                (byte, 2)
            }
            [byte, ..] => (*byte, 1),
            [] => break,
        };
        put(line, write, byte);
        read += taken;
    }
    None
}

/// As [`double_quoted`], for `'`: only `\'` is an escape.
fn single_quoted(line: &mut [u8], mut read: usize, to: usize, write: &mut usize) -> Option<usize> {
    while read < to {
        let (byte, taken) = match &line[read..to] {
            [b'\\', b'\'', ..] => (b'\'', 2),
            [b'\'', ..] => return closed(line, read, to),
            [byte, ..] => (*byte, 1),
            [] => break,
        };
        put(line, write, byte);
        read += taken;
    }
    None
}

/// Checks that the word ends at its closing quote.
fn closed(line: &[u8], quote: usize, to: usize) -> Option<usize> {
    let next = quote + 1;
    (next >= to || is_space(line[next])).then_some(next)
}

fn put(line: &mut [u8], write: &mut usize, byte: u8) {
    line[*write] = byte;
    *write += 1;
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

/// Whether `byte` ends an unquoted word. As in Redis, a vertical tab or a form feed does not,
/// though elsewhere it counts as a space.
fn ends_word(byte: u8) -> bool {
    is_space(byte) && !matches!(byte, 0x0b | 0x0c)
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_in_redis() {
        let cases: [(&str, Option<&[&[u8]]>); 17] = [
            ("", Some(&[])),
            ("   ", Some(&[])),
            ("a b", Some(&[b"a", b"b"])),
            ("  a\tb  ", Some(&[b"a", b"b"])),
            (r#"set "a b" 'c d'"#, Some(&[b"set", b"a b", b"c d"])),
            (
                r#""\x41\n\t\r\b\a\q\\\"""#,
                Some(&[b"A\n\t\r\x08\x07q\\\""]),
            ),
            (r#""\xZZ""#, Some(&[b"xZZ"])),
            (r"'\n\''", Some(&[br"\n'"])),
            (r#"ab"c d""#, Some(&[b"abc d"])),
            (r#""" ''"#, Some(&[b"", b""])),
            (r#""abc"#, None),
            (r#""abc\""#, None),
            (r#""a"b"#, None),
            ("'a'b", None),
            ("a\x0bb\x0c c", Some(&[b"a\x0bb\x0c", b"c"])),
            ("\x0b\x0ca", Some(&[b"a"])),
            ("'a'\x0bb", Some(&[b"a", b"b"])),
        ];
        for (line, expected) in cases {
            let expected =
                expected.map(|words| words.iter().map(|w| w.to_vec()).collect::<Vec<_>>());
            assert_eq!(split_line(line.as_bytes()), expected, "{line:?}");
        }
    }
}
