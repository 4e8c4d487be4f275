//! SAM text, as samtools writes it.

use crate::Header;
use crate::alignment::{Fields, operations};
use crate::tags;
use allocator_api2::alloc::Allocator;

/// The letters of the bases, by their four bits.
pub const BASES: &[u8; 16] = b"=ACMGRSVTWYHKDBN";

/// The letters of CIGAR operations, by their number; the rest stand for none.
pub const OPERATIONS: &[u8; 16] = b"MIDNSHP=XB??????";

/// Two bases by one byte.
const PAIRS: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [BASES[byte >> 4], BASES[byte & 15]];
        byte += 1;
    }
    pairs
};

/// Appends a line.
pub fn line<A: Allocator + Copy>(header: &Header<A>, fields: &Fields<'_>, out: &mut Vec<u8>) {
    let reference = |number: i32, out: &mut Vec<u8>| {
        let number = usize::try_from(number).ok();
        let reference = number.and_then(|number| header.references().get(number));
        out.extend_from_slice(reference.map_or(b"*", |reference| reference.name()));
    };
    out.extend_from_slice(fields.name);
    out.push(b'\t');
    number(fields.flags.into(), out);
    out.push(b'\t');
    reference(fields.reference, out);
    out.push(b'\t');
    number(fields.position + 1, out);
    out.push(b'\t');
    number(fields.mapping_quality.into(), out);
    out.push(b'\t');
    if fields.cigar.is_empty() {
        out.push(b'*');
    }
    for (length, operation) in operations(fields.cigar) {
        number(length.into(), out);
        out.push(OPERATIONS[operation as usize & 15]);
    }
    out.push(b'\t');
    if fields.mate_reference >= 0 && fields.mate_reference == fields.reference {
        out.push(b'=');
    } else {
        reference(fields.mate_reference, out);
    }
    out.push(b'\t');
    number(fields.mate_position + 1, out);
    out.push(b'\t');
    number(fields.template_length.into(), out);
    out.push(b'\t');
    if fields.bases == 0 {
        out.extend_from_slice(b"*\t*");
    } else {
        let start = out.len();
        out.extend(
            fields
                .sequence
                .iter()
                .flat_map(|byte| PAIRS[usize::from(*byte)]),
        );
        out.truncate(start + fields.bases as usize);
        out.push(b'\t');
        match fields.qualities {
            [255, ..] => out.push(b'*'),
            qualities => out.extend(qualities.iter().map(|quality| quality.wrapping_add(33))),
        }
    }
    tags::write(fields.tags, out);
    out.push(b'\n');
}

/// Appends a number.
pub fn number(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a float as C's `%g`: six significant digits, no zeros at the end, an exponent below -4
/// and from 6 on.
pub fn percent_g(value: f64, out: &mut Vec<u8>) {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        let word = if value.is_nan() { "nan" } else { "inf" };
        out.extend_from_slice(sign.as_bytes());
        return out.extend_from_slice(word.as_bytes());
    }
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |digits: &str, out: &mut Vec<u8>| {
        let digits = match digits.contains('.') {
            true => digits.trim_end_matches('0').trim_end_matches('.'),
            false => digits,
        };
        out.extend_from_slice(digits.as_bytes());
    };
    if (-4..6).contains(&exponent) {
        let decimals = (5 - exponent) as usize;
        trimmed(&format!("{value:.decimals$}"), out);
    } else {
        trimmed(digits, out);
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_c_writes_them() {
        // The right column: printf %g.
        for (value, written) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (1234567.0, "1.23457e+06"),
            (999999.5, "1e+06"),
            (100000.5, "100000"),
            (0.0001, "0.0001"),
            (0.000012345, "1.2345e-05"),
            (1e100, "1e+100"),
            (-2.5e-7, "-2.5e-07"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            let mut out = Vec::new();
            percent_g(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), written);
        }
    }
}
