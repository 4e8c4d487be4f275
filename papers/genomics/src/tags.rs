//! Tags: between SAM's text and the encoding of BAM.
//!
//! Numbers take the narrowest type that holds them, and floats are written as C's `%g` writes them,
//! because that is what samtools does; section 4.2.4 of the SAM specification defines the encoding.

use crate::error::RecordError;
use crate::text::{number, percent_g};
use std::ops::Range;

/// One tag of an encoded list.
#[derive(Debug, PartialEq, Eq)]
pub struct Tag<'a> {
    /// Its two letters.
    pub name: [u8; 2],
    /// The type: a letter of the specification.
    pub kind: u8,
    /// The value, a string's final zero included.
    pub value: &'a [u8],
    /// Where the whole tag lies in the list.
    pub at: Range<usize>,
}

/// The tags of an encoded list, until one is damaged: that one is the last item, as an error.
pub fn each(list: &[u8]) -> impl Iterator<Item = Result<Tag<'_>, RecordError>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = list.get(at..).filter(|rest| !rest.is_empty())?;
        let tag = match one(rest, at) {
            Some(tag) => tag,
            None => {
                at = list.len();
                return Some(Err(RecordError::Tag(lossy(&rest[..rest.len().min(2)]))));
            }
        };
        at = tag.at.end;
        Some(Ok(tag))
    })
}

fn one(rest: &[u8], at: usize) -> Option<Tag<'_>> {
    let [first, second, kind, value @ ..] = rest else {
        return None;
    };
    let len = match kind {
        b'A' | b'c' | b'C' => 1,
        b's' | b'S' => 2,
        b'i' | b'I' | b'f' => 4,
        b'd' => 8,
        b'Z' | b'H' => value.iter().position(|byte| *byte == 0)? + 1,
        b'B' => {
            let (kind, count) = array(value)?;
            count.checked_mul(width(kind)?)?.checked_add(5)?
        }
        _ => return None,
    };
    Some(Tag {
        name: [*first, *second],
        kind: *kind,
        value: value.get(..len)?,
        at: at..at + 3 + len,
    })
}

/// The element type and number of elements of an array.
fn array(value: &[u8]) -> Option<(u8, usize)> {
    let (head, _) = value.split_first_chunk::<5>()?;
    let [kind, count @ ..] = *head;
    Some((kind, u32::from_le_bytes(count) as usize))
}

/// Bytes of an array's element.
fn width(kind: u8) -> Option<usize> {
    match kind {
        b'A' | b'c' | b'C' => Some(1),
        b's' | b'S' => Some(2),
        b'i' | b'I' | b'f' => Some(4),
        _ => None,
    }
}

/// Where a CIGAR string too long for its own field lies: the tag `CG`, and its operations.
pub fn long_cigar(list: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
    let tag = each(list)
        .map_while(Result::ok)
        .find(|tag| tag.name == *b"CG")?;
    let operations = tag.at.start + 8..tag.at.end;
    (tag.kind == b'B' && matches!(tag.value[0], b'I' | b'i')).then_some((tag.at, operations))
}

/// Writes a list as text, each tag after a tab. A damaged tag ends it.
pub fn write(list: &[u8], out: &mut Vec<u8>) {
    for tag in each(list).map_while(Result::ok) {
        out.push(b'\t');
        out.extend_from_slice(&tag.name);
        let value = tag.value;
        match tag.kind {
            b'Z' | b'H' => {
                out.extend_from_slice(&[b':', tag.kind, b':']);
                out.extend_from_slice(&value[..value.len() - 1]);
            }
            b'B' => {
                out.extend_from_slice(&[b':', b'B', b':', value[0]]);
                let (kind, width) = (value[0], width(value[0]).unwrap_or(1));
                for element in value[5..].chunks_exact(width) {
                    out.push(b',');
                    match kind {
                        b'f' => array_float(float(element), out),
                        _ => number(integer(kind, element), out),
                    }
                }
            }
            b'A' => out.extend_from_slice(&[b':', b'A', b':', value[0]]),
            b'f' => {
                out.extend_from_slice(b":f:");
                percent_g(float(value), out);
            }
            b'd' => {
                out.extend_from_slice(b":d:");
                percent_g(le(value).map_or(0.0, f64::from_le_bytes), out);
            }
            kind => {
                out.extend_from_slice(b":i:");
                number(integer(kind, value), out);
            }
        }
    }
}

fn le<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    value.first_chunk().copied()
}

fn float(value: &[u8]) -> f64 {
    f64::from(le(value).map_or(0.0, f32::from_le_bytes))
}

fn integer(kind: u8, value: &[u8]) -> i64 {
    match kind {
        b'c' => le(value).map_or(0, i8::from_le_bytes).into(),
        b's' => le(value).map_or(0, i16::from_le_bytes).into(),
        b'S' => le(value).map_or(0, u16::from_le_bytes).into(),
        b'i' => le(value).map_or(0, i32::from_le_bytes).into(),
        b'I' => le(value).map_or(0, u32::from_le_bytes).into(),
        _ => le(value).map_or(0, u8::from_le_bytes).into(),
    }
}

/// A float of an array. Between 0.0001 and 999,999 htslib rounds half a unit of the sixth digit up,
/// in decimal, and cuts what follows, which is not always what `%g` gives.
fn array_float(value: f64, out: &mut Vec<u8>) {
    let size = value.abs();
    if value == 0.0 || !(0.0001..=999_999.0).contains(&size) {
        return percent_g(value, out);
    }
    if value < 0.0 {
        out.push(b'-');
    }
    // Ten decimals, then half of the sixth significant digit.
    let half = [
        (0.001, 5),
        (0.01, 50),
        (0.1, 500),
        (1.0, 5_000),
        (10.0, 50_000),
        (100.0, 500_000),
        (1_000.0, 5_000_000),
        (10_000.0, 50_000_000),
        (100_000.0, 500_000_000),
    ];
    let half = half.iter().find(|(below, _)| size < *below);
    let scaled = (size * 1e10) as u64 + half.map_or(5_000_000_000, |(_, half)| *half);
    let (whole, decimals) = (scaled / 10_000_000_000, scaled % 10_000_000_000);
    number(whole as i64, out);
    let decimals = format!("{decimals:010}");
    let shown = if whole > 0 {
        6usize.saturating_sub(whole.ilog10() as usize + 1)
    } else {
        decimals.len() - decimals.trim_start_matches('0').len() + 6
    };
    let decimals = decimals[..shown.min(10)].trim_end_matches('0');
    if !decimals.is_empty() {
        out.push(b'.');
        out.extend_from_slice(decimals.as_bytes());
    }
}

/// Encodes tags written as text, separated by tabs.
pub fn encode(text: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
    // One tab more at the end is nothing.
    let text = text.strip_suffix(b"\t").unwrap_or(text);
    if text.is_empty() {
        return Ok(());
    }
    for field in text.split(|byte| *byte == b'\t') {
        encode_one(field, out).ok_or_else(|| RecordError::Tag(lossy(field)))?;
    }
    Ok(())
}

fn encode_one(field: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let [first, second, b':', kind, b':', value @ ..] = field else {
        return None;
    };
    if *first < b'!' || *second < b'!' {
        return None;
    }
    out.extend_from_slice(&[*first, *second]);
    match kind {
        b'A' | b'a' | b'c' | b'C' => out.extend_from_slice(&[b'A', *value.first()?]),
        b'i' | b'I' => encode_integer(parse(value)?, out)?,
        b'f' => {
            out.push(b'f');
            out.extend_from_slice(&(parse::<f64>(value)? as f32).to_le_bytes());
        }
        b'd' => {
            out.push(b'd');
            out.extend_from_slice(&parse::<f64>(value)?.to_le_bytes());
        }
        b'Z' | b'H' => {
            if *kind == b'H' && value.len() % 2 == 1 {
                return None;
            }
            out.push(*kind);
            out.extend_from_slice(value);
            out.push(0);
        }
        b'B' => encode_array(value, out)?,
        _ => return None,
    }
    Some(())
}

fn encode_integer(value: i64, out: &mut Vec<u8>) -> Option<()> {
    let kind = narrowest(value.min(0), value.max(0))?;
    out.push(kind);
    element(kind, value, out);
    Some(())
}

/// The narrowest type that holds a range: signed ones only where there is something negative.
fn narrowest(min: i64, max: i64) -> Option<u8> {
    let kinds = if min < 0 { b"csi" } else { b"CSI" };
    kinds.iter().copied().find(|kind| fits(*kind, min, max))
}

fn encode_array(value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (kind, rest) = value.split_first()?;
    width(*kind).filter(|_| *kind != b'A')?;
    let elements = || {
        let mut elements = rest.split(|byte| *byte == b',');
        // What stands between the type and the first comma is nothing.
        elements.next().filter(|before| before.is_empty())?;
        Some(elements)
    };
    let count = u32::try_from(elements()?.count()).ok()?;
    out.push(b'B');
    if *kind == b'f' {
        out.push(b'f');
        out.extend_from_slice(&count.to_le_bytes());
        for element in elements()? {
            out.extend_from_slice(&(parse::<f64>(element)? as f32).to_le_bytes());
        }
        return Some(());
    }
    let values: Option<Vec<i64>> = elements()?.map(parse).collect();
    let values = values?;
    let min = values.iter().copied().min().unwrap_or(0).min(0);
    let max = values.iter().copied().max().unwrap_or(0).max(0);
    let kind = if fits(*kind, min, max) {
        *kind
    } else if (min, max) == (0, u8::MAX.into()) {
        // An oddity of htslib's.
        b'S'
    } else {
        narrowest(min, max)?
    };
    out.push(kind);
    out.extend_from_slice(&count.to_le_bytes());
    for value in values {
        element(kind, value, out);
    }
    Some(())
}

/// Whether a type holds a range.
fn fits(kind: u8, min: i64, max: i64) -> bool {
    let (low, high) = match kind {
        b'c' => (i8::MIN.into(), i8::MAX.into()),
        b'C' => (0, u8::MAX.into()),
        b's' => (i16::MIN.into(), i16::MAX.into()),
        b'S' => (0, u16::MAX.into()),
        b'i' => (i32::MIN.into(), i32::MAX.into()),
        _ => (0, i64::from(u32::MAX)),
    };
    min >= low && max <= high
}

/// Appends the low bytes of a number that the type holds.
fn element(kind: u8, value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_le_bytes()[..width(kind).unwrap_or(1)]);
}

fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(text: &str) -> String {
        let mut list = Vec::new();
        encode(text.as_bytes(), &mut list).unwrap();
        let mut out = Vec::new();
        write(&list, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_come_back_as_they_were_written() {
        for text in [
            "XA:A:!\tXZ:Z:\tXY:Z:a b\tXH:H:00FF",
            "i0:i:0\ti1:i:-128\ti2:i:255\ti3:i:-32769\ti4:i:4294967295\ti5:i:-2147483648",
            "Bc:B:c,-128,127\tBC:B:C\tBS:B:S,0,65535\tBi:B:i,-2147483648\tBI:B:I,4294967295",
            "f0:f:0.1\tf1:f:1e+10\tf2:f:-0.0001\tf3:f:3.14159\tBf:B:f,0,-1.5,1e-05,999999,0.25",
        ] {
            assert_eq!(there_and_back(text), format!("\t{text}"));
        }
    }

    #[test]
    fn an_array_of_the_wrong_type_gets_the_narrowest_that_holds_it() {
        assert_eq!(there_and_back("XX:B:C,-1,127"), "\tXX:B:c,-1,127");
        assert_eq!(there_and_back("XX:B:c,128"), "\tXX:B:C,128");
        assert_eq!(there_and_back("XX:B:S,-1,65535"), "\tXX:B:i,-1,65535");
        assert_eq!(there_and_back("XX:B:c,255"), "\tXX:B:S,255");
    }

    #[test]
    fn an_unreadable_field_is_named() {
        for text in [
            "XX",
            "XX:i:",
            "XX:i:x",
            "XX:i:4294967296",
            "XX:H:0",
            "XX:B:A,1",
            "XX:B:c1",
            "XX:?:1",
        ] {
            let error = encode(text.as_bytes(), &mut Vec::new());
            assert_eq!(error, Err(RecordError::Tag(text.to_owned())));
        }
    }

    #[test]
    fn a_damaged_list_ends_with_an_error_and_never_reads_on() {
        let lists: [&[u8]; 5] = [
            b"XX",
            b"XXi\0\0\0",
            b"XXZabc",
            b"XXBi\xff\xff\xff\xff\0",
            b"XX?\0",
        ];
        for list in lists {
            let tags: Vec<_> = each(list).collect();
            assert_eq!(tags, [Err(RecordError::Tag("XX".to_owned()))]);
        }
    }
}
