//! Reads the expiry time of a certificate; nothing else of X.509 is parsed here.

/// The DER tags that precede the expiry time.
mod tag {
    pub const INTEGER: u8 = 0x02;
    pub const SEQUENCE: u8 = 0x30;
    pub const UTC_TIME: u8 = 0x17;
    pub const GENERALIZED_TIME: u8 = 0x18;
    /// `[0]`, which holds the version.
    pub const VERSION: u8 = 0xa0;
}

/// The second since 1970 after which the certificate is no longer valid. `None` if it is not a
/// certificate in DER.
pub(crate) fn expires_s(der: &[u8]) -> Option<i64> {
    let (certificate, _) = element(der, tag::SEQUENCE)?;
    let (mut rest, _) = element(certificate, tag::SEQUENCE)?;
    if let Some((_, behind)) = element(rest, tag::VERSION) {
        rest = behind;
    }
    // Serial number, algorithm of the signature, issuer.
    for tag in [tag::INTEGER, tag::SEQUENCE, tag::SEQUENCE] {
        rest = element(rest, tag)?.1;
    }
    let (validity, _) = element(rest, tag::SEQUENCE)?;
    let (_, end) = any(validity)?;
    let (kind, text, _) = head(end)?;
    seconds(kind, text)
}

/// The tag and the content of the first element, and what follows it.
fn head(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, rest) = der.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut len = usize::from(first);
    if first >= 0x80 {
        let (digits, behind) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.is_empty() || digits.len() > 4 {
            return None;
        }
        len = digits
            .iter()
            .fold(0, |len, digit| len << 8 | usize::from(*digit));
        rest = behind;
    }
    let (content, behind) = rest.split_at_checked(len)?;
    Some((kind, content, behind))
}

/// The content of the first element, which must have the tag `kind`, and what follows it.
fn element(der: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, behind) = head(der)?;
    (found == kind).then_some((content, behind))
}

fn any(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, content, behind) = head(der)?;
    Some((content, behind))
}

/// Parses `YYMMDDHHMMSSZ`, or the same with a year of four digits, as in RFC 5280.
fn seconds(kind: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let (year_digits, len) = match kind {
        tag::UTC_TIME => (2, 12),
        tag::GENERALIZED_TIME => (4, 14),
        _ => return None,
    };
    if digits.len() != len || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| {
        let sum = |sum, digit: &u8| sum * 10 + i64::from(digit - b'0');
        digits.iter().fold(0, sum)
    };
    let (year, rest) = digits.split_at(year_digits);
    let year = match (number(year), year_digits) {
        (year, 2) if year >= 50 => year + 1900,
        (year, 2) => year + 2000,
        (year, _) => year,
    };
    let mut parts = rest.chunks(2).map(number);
    let mut next = || parts.next();
    let (month, day) = (next()?, next()?);
    let (hour, minute, second) = (next()?, next()?, next()?);
    if !(1..=12).contains(&month) {
        return None;
    }
    Some(((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

/// Days from the first of January 1970 to a day of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Counts years from March, so that the leap day is the last day of a year.
    let (year, month) = match month > 2 {
        true => (year, month - 3),
        false => (year - 1, month + 9),
    };
    let before_year = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let before_month = (month * 153 + 2) / 5;
    before_year + before_month + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_from_1970() {
        let at = |text: &str| {
            let kind = match text.len() {
                13 => tag::UTC_TIME,
                _ => tag::GENERALIZED_TIME,
            };
            seconds(kind, text.as_bytes())
        };
        assert_eq!(at("700101000000Z"), Some(0));
        assert_eq!(at("000229120000Z"), Some(951_825_600));
        assert_eq!(at("20500101000000Z"), Some(2_524_608_000));
        assert_eq!(at("491231235959Z"), Some(2_524_607_999));
        for wrong in ["", "7001010000Z", "701301000000Z", "70010100000xZ"] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_certificate_says_until_when_it_is_valid() {
        let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(2031, 5, 6);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let der = certificate.der();
        assert_eq!(expires_s(der), Some(1_935_792_000));
        // A certificate that is truncated or overwritten gives either an error or another time.
        for len in 0..der.len().min(200) {
            let _ = expires_s(&der[..len]);
            let mut damaged = der.to_vec();
            damaged[len] ^= 0xff;
            let _ = expires_s(&damaged);
        }
        assert_eq!(expires_s(&der[..20]), None);
    }
}
