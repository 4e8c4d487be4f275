//! Regions as they are written: `chr1`, `chr1:1,000-2,000`, `{chr:1}:5-`, `*`, `.`.

use crate::Header;
use crate::error::RegionError;
use allocator_api2::alloc::Allocator;

/// What to view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// All alignments: `.`.
    All,
    /// Those placed on no reference sequence: `*`.
    Unplaced,
    /// Those that overlap a part of a reference sequence.
    Part {
        /// The reference's number.
        reference: u32,
        /// The first position, from 0.
        start: i64,
        /// The position behind the last.
        end: i64,
    },
}

impl Region {
    /// Reads a region: a reference's name, or `name:from-to` with positions from 1, both included;
    /// either may be left out, and so may be `-to`. Numbers may have thousands' commas, decimals,
    /// exponents and the suffixes k, M and G. A name that holds a colon may stand in braces.
    ///
    /// # Errors
    /// [`RegionError`], which names the text.
    pub fn parse<A: Allocator + Copy>(text: &str, header: &Header<A>) -> Result<Self, RegionError> {
        match text {
            "." => return Ok(Self::All),
            "*" => return Ok(Self::Unplaced),
            _ => {}
        }
        let find = |name: &str| header.reference(name.as_bytes());
        let unknown = || RegionError::Unknown(text.to_owned());
        let (name, positions) = match text.strip_prefix('{') {
            Some(braced) => {
                let (name, rest) = braced
                    .split_once('}')
                    .ok_or_else(|| RegionError::Brace(text.to_owned()))?;
                (name, rest.strip_prefix(':'))
            }
            None => match text.rsplit_once(':') {
                None => (text, None),
                Some((name, positions)) => match (find(text), find(name)) {
                    (Some(_), Some(_)) => return Err(RegionError::Ambiguous(text.to_owned())),
                    (Some(_), None) => (text, None),
                    (None, _) => (name, Some(positions)),
                },
            },
        };
        let reference = find(name).ok_or_else(unknown)?;
        let (start, end) = match positions {
            None => (0, i64::MAX),
            Some(written) => {
                range(written).ok_or_else(|| RegionError::Positions(text.to_owned()))?
            }
        };
        if start >= end {
            return Err(RegionError::Empty(text.to_owned()));
        }
        Ok(Self::Part {
            reference,
            start,
            end,
        })
    }
}

/// Start and end of `from-to`.
fn range(text: &str) -> Option<(i64, i64)> {
    // A minus behind an `e` belongs to an exponent.
    let dash = text
        .match_indices('-')
        .find(|(at, _)| !text[..*at].ends_with(['e', 'E']));
    let (from, to) = dash.map_or((text, ""), |(at, _)| (&text[..at], &text[at + 1..]));
    let start = if from.is_empty() {
        0
    } else {
        (position(from)? - 1).max(0)
    };
    let end = if to.is_empty() { 0 } else { position(to)? };
    // No end, or 0: to the end of the reference.
    Some((start, if end == 0 { i64::MAX } else { end }))
}

/// A number with commas, decimals, an exponent or a suffix; what is below 1 is cut off.
fn position(text: &str) -> Option<i64> {
    let text = text.replace(',', "");
    let exponent_at = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(exponent_at);
    let exponent: i32 = match suffix {
        "" => 0,
        "k" | "K" => 3,
        "m" | "M" => 6,
        "g" | "G" => 9,
        _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
    };
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let digits = [whole, decimals].concat();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: i64 = digits.parse().ok()?;
    let exponent = exponent.checked_sub(i32::try_from(decimals.len()).ok()?)?;
    match u32::try_from(exponent) {
        Ok(up) => value.checked_mul(10i64.checked_pow(up)?),
        Err(_) => Some(
            10i64
                .checked_pow(exponent.unsigned_abs())
                .map_or(0, |by| value / by),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allocator_api2::alloc::Global;

    fn parse(text: &str) -> Result<Region, RegionError> {
        let header = b"@SQ\tSN:c\tLN:9\n@SQ\tSN:c:1\tLN:9\n@SQ\tSN:d:1-2\tLN:9\n";
        Region::parse(text, &Header::read(header, &[], Global).unwrap())
    }

    #[test]
    fn positions_count_from_one_and_include_both_ends() {
        let part = |text: &str| match parse(text) {
            Ok(Region::Part {
                reference,
                start,
                end,
            }) => (reference, start, end),
            other => panic!("{other:?}"),
        };
        for (text, meant) in [
            ("c", (0, 0, i64::MAX)),
            ("c:5", (0, 4, i64::MAX)),
            ("c:5-", (0, 4, i64::MAX)),
            ("c:-7", (0, 0, 7)),
            ("c:0-7", (0, 0, 7)),
            ("c:1,000-2,000", (0, 999, 2000)),
            ("c:1k-1.5k", (0, 999, 1500)),
            ("c:25e-1-1e1", (0, 1, 10)),
            ("d:1-2", (2, 0, i64::MAX)),
            ("{c:1}:5-6", (1, 4, 6)),
            ("{c}:1", (0, 0, i64::MAX)),
        ] {
            assert_eq!(part(text), meant, "{text}");
        }
        assert_eq!(parse("."), Ok(Region::All));
        assert_eq!(parse("*"), Ok(Region::Unplaced));
    }

    #[test]
    fn an_invalid_region_is_refused() {
        let of = |text: &str| parse(text).unwrap_err();
        for text in ["x", "x:1-2", "C"] {
            assert_eq!(of(text), RegionError::Unknown(text.into()));
        }
        for text in ["c:a", "c:1-2x", "c:1--2", "c:99999999999999999999"] {
            assert_eq!(of(text), RegionError::Positions(text.into()), "{text}");
        }
        assert_eq!(of("c:5-4"), RegionError::Empty("c:5-4".into()));
        assert_eq!(of("c:1"), RegionError::Ambiguous("c:1".into()));
        assert_eq!(of("{c"), RegionError::Brace("{c".into()));
    }
}
