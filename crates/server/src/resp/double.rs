//! Numbers with a fraction, read and written as Redis 7.0 does with C's `strtod` and `%.17g`.

/// The number of digits written: enough to distinguish any two numbers.
const DIGITS: usize = 17;

/// The number in `text`, all of which must be a number: decimal, hexadecimal or infinite. `None`:
/// it is not a number, or is out of range.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let number = parse(text)?;
    let is_word = !text.iter().any(u8::is_ascii_digit);
    let is_zero = || {
        let mut mantissa = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
        is_hexadecimal(text) || !mantissa.any(|byte| matches!(byte, b'1'..=b'9'))
    };
    let is_exact = (number.is_finite() || is_word) && (number != 0.0 || is_zero());
    is_exact.then_some(number)
}

/// An end of a range of scores, parsed like `strtod`: spaces before the number are skipped, a NUL
/// ends it, and a number that is too large is infinite. Empty text is 0.
pub fn parse_bound(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    match text {
        [] => Some(0.0),
        text => {
            let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
            let begin = text.iter().position(|byte| !is_space(byte))?;
            parse(&text[begin..])
        }
    }
}

fn without_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    }
}

fn is_hexadecimal(text: &[u8]) -> bool {
    matches!(without_sign(text).1, [b'0', b'x' | b'X', ..])
}

/// Any number except NaN.
fn parse(text: &[u8]) -> Option<f64> {
    if is_hexadecimal(text) {
        return hexadecimal(text);
    }
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

fn hexadecimal(text: &[u8]) -> Option<f64> {
    let (is_negative, text) = without_sign(text);
    let mantissa = &text[2..];
    let end = mantissa.iter().position(|byte| matches!(byte, b'p' | b'P'));
    let (mantissa, exponent) = match end {
        None => (mantissa, 0),
        Some(end) => {
            let (is_below, digits) = without_sign(&mantissa[end + 1..]);
            let mut exponent = 0i32;
            if digits.is_empty() {
                return None;
            }
            for digit in digits {
                let digit = char::from(*digit).to_digit(10)?;
                exponent = exponent.saturating_mul(10).saturating_add(digit as i32);
            }
            (
                &mantissa[..end],
                if is_below { -exponent } else { exponent },
            )
        }
    };
    let (mut bits, mut scale, mut any, mut behind) = (0u64, 0i32, false, false);
    for byte in mantissa {
        if *byte == b'.' && !behind {
            behind = true;
            continue;
        }
        let digit = char::from(*byte).to_digit(16)?;
        any = true;
        if bits >> 60 == 0 {
            bits = bits << 4 | u64::from(digit);
            scale -= if behind { 4 } else { 0 };
        } else {
            // Bits beyond the 61st only affect rounding.
            bits |= u64::from(digit != 0);
            scale += if behind { 0 } else { 4 };
        }
    }
    let number = times_power_of_two(bits as f64, exponent.saturating_add(scale));
    any.then_some(if is_negative { -number } else { number })
}

fn times_power_of_two(mut number: f64, mut exponent: i32) -> f64 {
    while exponent > 1000 && number.is_finite() && number != 0.0 {
        number *= 2f64.powi(1000);
        exponent -= 1000;
    }
    while exponent < -1000 && number != 0.0 {
        number *= 2f64.powi(-1000);
        exponent += 1000;
    }
    number * 2f64.powi(exponent.clamp(-1000, 1000))
}

/// Appends a number in decimal form, rounded to 17 digits.
pub fn append_f64(to: &mut Vec<u8>, number: f64) {
    if number.trunc() == number
        && number.abs() < 1e17
        && !(number == 0.0 && number.is_sign_negative())
    {
        to.extend_from_slice(itoa::Buffer::new().format(number as i64).as_bytes());
        return;
    }
    if !number.is_finite() {
        let text = if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        to.extend_from_slice(text.as_bytes());
        return;
    }
    // d.ddde±n
    let text = format!("{:.*e}", DIGITS - 1, number.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let digits: Vec<u8> = mantissa.bytes().filter(|byte| *byte != b'.').collect();
    let len = digits
        .iter()
        .rposition(|digit| *digit != b'0')
        .map_or(1, |last| last + 1);
    let digits = &digits[..len];
    if number.is_sign_negative() {
        to.push(b'-');
    }
    if !(-4..DIGITS as i32).contains(&exponent) {
        to.push(digits[0]);
        if digits.len() > 1 {
            to.push(b'.');
            to.extend_from_slice(&digits[1..]);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        to.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
    } else if exponent < 0 {
        to.extend_from_slice(b"0.");
        to.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
        to.extend_from_slice(digits);
    } else {
        let whole = exponent as usize + 1;
        for (at, digit) in digits.iter().enumerate() {
            if at == whole {
                to.push(b'.');
            }
            to.push(*digit);
        }
        to.extend(std::iter::repeat_n(
            b'0',
            whole.saturating_sub(digits.len()),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: f64) -> String {
        let mut text = Vec::new();
        append_f64(&mut text, number);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn numbers_are_written_as_printf_writes_them() {
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (2.2, "2.2000000000000002"),
            (-1.5, "-1.5"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123456789012345678.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (0.1, "0.10000000000000001"),
            (1e300, "1.0000000000000001e+300"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (1234.5678, "1234.5678"),
        ] {
            assert_eq!(text(number), expected);
        }
    }

    #[test]
    fn numbers_are_read_as_strtod_reads_them() {
        for (text, expected) in [
            ("1", Some(1.0)),
            ("+1.5e3", Some(1500.0)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("Infinity", Some(f64::INFINITY)),
            ("0x10", Some(16.0)),
            ("-0X1.8p1", Some(-3.0)),
            ("0x1p-2", Some(0.25)),
            ("0x1fffffffffffffffff", Some(590_295_810_358_705_651_711.0)),
            ("1e-310", Some(1e-310)),
            ("0e5", Some(0.0)),
            ("1e400", None),
            ("-1e400", None),
            ("1e-400", None),
            ("nan", None),
            ("", None),
            (" 1", None),
            ("1 ", None),
            ("1e", None),
            ("0x", None),
            ("x", None),
            ("--1", None),
        ] {
            assert_eq!(parse_f64(text.as_bytes()), expected, "{text:?}");
        }
        for (text, expected) in [
            ("", Some(0.0)),
            ("  7", Some(7.0)),
            ("7 ", None),
            (" ", None),
            ("7\0x", Some(7.0)),
            ("1e400", Some(f64::INFINITY)),
            ("nan", None),
        ] {
            assert_eq!(parse_bound(text.as_bytes()), expected, "{text:?}");
        }
    }
}
