//! Sizes in the notation of the server's settings.

use mneme::server::settings::{SizeError, parse_size};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl Size {
    /// The size as a number of bytes in memory. A size that is too large becomes the largest
    /// number.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Parses a size.
pub fn parse(text: &str) -> Result<Size, SizeError> {
    parse_size(text).map(Size)
}

/// A number of bytes in a readable form.
pub fn show(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        assert_eq!(show(100), "100 bytes");
        assert_eq!(show(64 << 20), "64.0 MiB");
        assert_eq!(show(3 << 29), "1.5 GiB");
    }
}
