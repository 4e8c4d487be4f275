//! Places, units and distances among the arguments.

use super::geohash::GeoPlace;
use crate::command::*;
use crate::resp::{Protocol, Reply, parse_f64};

/// The place of longitude and latitude.
pub(super) fn place(longitude: &[u8], latitude: &[u8]) -> Result<GeoPlace, Failure> {
    let number = |text| parse_f64(text).ok_or(Failure::NotAFloat);
    let (longitude, latitude) = (number(longitude)?, number(latitude)?);
    GeoPlace::new(longitude, latitude).ok_or_else(|| {
        Failure::other(format!(
            "ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"
        ))
    })
}

/// A unit of distances.
pub(super) const UNIT: Argument = Argument::one_of(
    "unit",
    &[
        Argument::word("m", "M"),
        Argument::word("km", "KM"),
        Argument::word("ft", "FT"),
        Argument::word("mi", "MI"),
    ],
);

/// The meters of a unit.
pub(super) fn unit(text: &[u8]) -> Result<f64, Failure> {
    let is = |name: &str| text.eq_ignore_ascii_case(name.as_bytes());
    if is("m") {
        Ok(1.0)
    } else if is("km") {
        Ok(1000.0)
    } else if is("ft") {
        Ok(0.3048)
    } else if is("mi") {
        Ok(1609.34)
    } else {
        Err(Failure::other(
            "ERR unsupported unit provided. please use M, KM, FT, MI",
        ))
    }
}

/// Writes a distance: with four decimals.
pub(super) fn distance(reply: &mut Reply<'_>, distance: f64) {
    let scaled = (distance * 10_000.0).round_ties_even() as i64;
    let sign = if scaled < 0 { "-" } else { "" };
    let scaled = scaled.unsigned_abs();
    let text = format!("{sign}{}.{:04}", scaled / 10_000, scaled % 10_000);
    reply.bulk(text.as_bytes());
}

/// Writes a place: its coordinates with at most 17 decimals.
pub(super) fn coordinates(reply: &mut Reply<'_>, protocol: Protocol, place: GeoPlace) {
    reply.array(2);
    for number in [place.longitude, place.latitude] {
        let text = format!("{number:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let text = if text == "-0" { "0" } else { text };
        match protocol {
            Protocol::Resp2 => reply.bulk(text.as_bytes()),
            Protocol::Resp3 => reply.raw(format!(",{text}\r\n").as_bytes()),
        }
    }
}
