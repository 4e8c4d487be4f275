//! Places as numbers of 52 bits, and the areas that cover a shape: **the arithmetic of Redis, bit
//! for bit**, so that scores, distances and orders are its own.
//!
//! The bits of longitude and latitude alternate, so that close places mostly have close numbers:
//! all places in a *cell* of 2 * `step` bits begin with the same bits.

use std::f64::consts::PI;
use std::ops::Bound;

use mneme_collections::SortedRange;

/// The number of bits of a coordinate in a score.
const STEPS: u32 = 26;
const LONGITUDES: (f64, f64) = (-180.0, 180.0);
/// The limits of the Mercator projection.
const LATITUDES: (f64, f64) = (-85.051_128_78, 85.051_128_78);
const EARTH_RADIUS: f64 = 6_372_797.560_856;
const MERCATOR_MAX: f64 = 20_037_726.37;
const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

/// Longitude and latitude, in degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct GeoPlace {
    pub longitude: f64,
    pub latitude: f64,
}

impl GeoPlace {
    /// The place; `None` if the coordinates are out of range.
    pub fn new(longitude: f64, latitude: f64) -> Option<GeoPlace> {
        let is_within = |(low, high): (f64, f64), at: f64| (low..=high).contains(&at);
        let place = GeoPlace {
            longitude,
            latitude,
        };
        (is_within(LONGITUDES, longitude) && is_within(LATITUDES, latitude)).then_some(place)
    }

    /// The centre of the cell that a score denotes.
    pub fn of_score(score: f64) -> Option<GeoPlace> {
        let cell = Cell {
            bits: bits_of(score),
            step: STEPS,
        };
        let ((west, east), (south, north)) = cell.area();
        let middle = |low: f64, high: f64, (least, most): (f64, f64)| {
            // Not `clamp`: the order of the comparisons is that of Redis.
            let middle = (low + high) / 2.0;
            if middle > most {
                most
            } else if middle < least {
                least
            } else {
                middle
            }
        };
        Some(GeoPlace {
            longitude: middle(west, east, LONGITUDES),
            latitude: middle(south, north, LATITUDES),
        })
    }

    /// The score of its cell.
    pub fn score(self) -> f64 {
        Cell::of(self, STEPS, LATITUDES).bits as f64
    }

    /// The standard geohash of 11 characters, the last of which is always 0.
    pub fn text(self) -> [u8; 11] {
        let bits = Cell::of(self, STEPS, (-90.0, 90.0)).bits;
        let mut text = [ALPHABET[0]; 11];
        for (at, letter) in text[..10].iter_mut().enumerate() {
            *letter = ALPHABET[(bits >> (52 - (at as u32 + 1) * 5)) as usize & 0x1f];
        }
        text
    }

    /// The distance to another place in meters.
    pub fn distance(self, to: GeoPlace) -> f64 {
        let half = ((radians(to.longitude) - radians(self.longitude)) / 2.0).sin();
        if half == 0.0 {
            return distance_of_latitudes(self.latitude, to.latitude);
        }
        let (from, to) = (radians(self.latitude), radians(to.latitude));
        let of_latitudes = ((to - from) / 2.0).sin();
        let a = of_latitudes * of_latitudes + from.cos() * to.cos() * half * half;
        2.0 * EARTH_RADIUS * a.sqrt().asin()
    }
}

fn radians(degrees: f64) -> f64 {
    degrees * (PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (PI / 180.0)
}

fn distance_of_latitudes(one: f64, other: f64) -> f64 {
    EARTH_RADIUS * (radians(other) - radians(one)).abs()
}

/// A score as a number, converted like a cast in C: scores need not be those of places.
fn bits_of(score: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if score < HALF {
        score as i64 as u64
    } else if score < 2.0 * HALF {
        (score - HALF) as i64 as u64 ^ 1 << 63
    } else {
        0
    }
}

/// An area of the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cell {
    bits: u64,
    /// The number of bits of each coordinate.
    step: u32,
}

/// The ranges of longitude and latitude of a cell.
type Area = ((f64, f64), (f64, f64));

impl Cell {
    fn of(place: GeoPlace, step: u32, latitudes: (f64, f64)) -> Cell {
        let bits = |at: f64, (low, high): (f64, f64)| {
            ((at - low) / (high - low) * (1u64 << step) as f64) as u32
        };
        let latitude = bits(place.latitude, latitudes);
        let longitude = bits(place.longitude, LONGITUDES);
        Cell {
            bits: spread(latitude) | spread(longitude) << 1,
            step,
        }
    }

    fn area(self) -> Area {
        let of = |bits: u64, (low, high): (f64, f64)| {
            let (at, cells) = (gathered(bits), (1u64 << self.step) as f64);
            let end = |at: u32| low + f64::from(at) / cells * (high - low);
            (end(at), end(at.wrapping_add(1)))
        };
        (of(self.bits >> 1, LONGITUDES), of(self.bits, LATITUDES))
    }

    /// The cell this many cells to the east and to the north, around the world. A place at the
    /// eastern or northern end of the world is in a cell beyond it: in a direction in which it
    /// does not move, it stays there, as in Redis.
    fn moved(self, east: i64, north: i64) -> Cell {
        const OF_LATITUDE: u64 = 0x5555_5555_5555_5555;
        let within = u64::MAX >> (64 - 2 * self.step);
        let step = |own: u64, by: i64| {
            let (bits, gaps) = (self.bits & own, !own & within);
            match by {
                0 => bits,
                1.. => bits.wrapping_add(gaps + 1) & own & within,
                _ => (bits | gaps).wrapping_sub(gaps + 1) & own & within,
            }
        };
        let bits = step(!OF_LATITUDE, east) | step(OF_LATITUDE, north);
        Cell { bits, ..self }
    }

    /// The scores of the places in it.
    fn scores(self) -> SortedRange<'static> {
        let end = |bits: u64| (bits << (2 * (STEPS - self.step))) as f64;
        let (low, high) = (end(self.bits), end(self.bits.wrapping_add(1)));
        SortedRange::Scores(Bound::Included(low), Bound::Excluded(high))
    }
}

/// Inserts a 0 before each bit.
fn spread(bits: u32) -> u64 {
    let mut spread = u64::from(bits);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        spread = (spread | spread << shift) & mask;
    }
    spread
}

/// Reverses [spread].
fn gathered(bits: u64) -> u32 {
    let mut gathered = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        gathered = (gathered | gathered >> shift) & mask;
    }
    gathered as u32
}

/// A shape around a place; lengths are in meters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum SearchArea {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

impl SearchArea {
    /// The distance of a place from the centre, if it lies in the shape.
    pub fn distance(self, centre: GeoPlace, place: GeoPlace) -> Option<f64> {
        match self {
            SearchArea::Circle { radius } => {
                let distance = centre.distance(place);
                (distance <= radius).then_some(distance)
            }
            SearchArea::Box { width, height } => {
                if distance_of_latitudes(place.latitude, centre.latitude) > height / 2.0 {
                    return None;
                }
                let beside = GeoPlace {
                    latitude: place.latitude,
                    ..centre
                };
                if place.distance(beside) > width / 2.0 {
                    return None;
                }
                Some(centre.distance(place))
            }
        }
    }

    /// The scores of places that may lie in the shape, in the order in which Redis searches them.
    pub fn scores(self, centre: GeoPlace) -> Vec<SortedRange<'static>> {
        let (radius, width, height) = match self {
            SearchArea::Circle { radius } => (radius, radius, radius),
            SearchArea::Box { width, height } => {
                let (width, height) = (width / 2.0, height / 2.0);
                ((width * width + height * height).sqrt(), width, height)
            }
        };
        let GeoPlace {
            longitude,
            latitude,
        } = centre;
        let of_latitude = degrees(height / EARTH_RADIUS);
        let of_longitude = |at: f64| degrees(width / EARTH_RADIUS / radians(at).cos());
        // The wider end of the box.
        let of_longitude = match latitude < 0.0 {
            true => of_longitude(latitude - of_latitude),
            false => of_longitude(latitude + of_latitude),
        };
        let (west, east) = (longitude - of_longitude, longitude + of_longitude);
        let (south, north) = (latitude - of_latitude, latitude + of_latitude);
        let mut cell = Cell::of(centre, steps(radius, latitude), LATITUDES);
        let beyond = {
            let ((_, of_east), _) = cell.moved(1, 0).area();
            let ((of_west, _), _) = cell.moved(-1, 0).area();
            let (_, (_, of_north)) = cell.moved(0, 1).area();
            let (_, (of_south, _)) = cell.moved(0, -1).area();
            of_north < north || of_south > south || of_east < east || of_west > west
        };
        if cell.step > 1 && beyond {
            cell = Cell::of(centre, cell.step - 1, LATITUDES);
        }
        let ((of_west, of_east), (of_south, of_north)) = cell.area();
        let is_useless = |(to_east, to_north): (i64, i64)| {
            cell.step >= 2
                && (to_north < 0 && of_south < south
                    || to_north > 0 && of_north > north
                    || to_east < 0 && of_west < west
                    || to_east > 0 && of_east > east)
        };
        // The cell itself, and its neighbours.
        let cells = [
            (0, 0),
            (0, 1),
            (0, -1),
            (1, 0),
            (-1, 0),
            (1, 1),
            (-1, 1),
            (1, -1),
            (-1, -1),
        ];
        let (mut last, mut scores) = (None, Vec::new());
        for (at, (east, north)) in cells.into_iter().enumerate() {
            let neighbour = cell.moved(east, north);
            // In a large shape several neighbours may be one cell.
            if is_useless((east, north)) || last == Some(neighbour) {
                continue;
            }
            scores.push(neighbour.scores());
            // As in Redis, the first neighbour is not remembered.
            last = (at > 0).then_some(neighbour);
        }
        scores
    }
}

/// The number of bits of a coordinate for a cell that is about as large as the shape.
fn steps(mut radius: f64, latitude: f64) -> u32 {
    if radius == 0.0 {
        return STEPS;
    }
    let mut steps = 1i32;
    while radius < MERCATOR_MAX {
        radius *= 2.0;
        steps += 1;
    }
    steps -= 2;
    let latitude = latitude.abs();
    steps -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
    steps.clamp(1, STEPS as i32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_the_scores_and_texts_of_redis() {
        // As in GEOADD, ZSCORE and GEOHASH of Redis 7.0.
        let palermo = GeoPlace::new(13.361389, 38.115556).unwrap();
        let catania = GeoPlace::new(15.087269, 37.502669).unwrap();
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        assert_eq!(catania.score(), 3_479_447_370_796_909.0);
        let of_score = |place: GeoPlace| GeoPlace::of_score(place.score()).unwrap();
        assert_eq!(&of_score(palermo).text(), b"sqc8b49rny0");
        assert_eq!(&of_score(catania).text(), b"sqdtr74hyu0");
        let distance = of_score(palermo).distance(of_score(catania));
        assert_eq!(format!("{distance:.4}"), "166274.1516");
        assert_eq!(GeoPlace::new(180.1, 0.0), None);
        assert_eq!(GeoPlace::new(0.0, -85.06), None);
    }

    #[test]
    fn bits_are_spread_and_gathered() {
        for bits in [0, 1, 0x1234_5678, u32::MAX] {
            assert_eq!(gathered(spread(bits)), bits);
        }
        let cell = Cell {
            bits: 0b1111,
            step: 2,
        };
        assert_eq!(cell.moved(1, 0).bits, 0b0101);
        assert_eq!(cell.moved(-1, -1).bits, 0b1100);
        assert_eq!(cell.moved(0, 1).bits, 0b1010);
        let cell = Cell {
            bits: 0b10_0000,
            step: 2,
        };
        assert_eq!(cell.moved(0, 0).bits, 0b10_0000);
        assert_eq!(cell.moved(1, 0).bits, 0b0010);
        assert_eq!(cell.moved(0, 1).bits, 0b10_0001);
    }
}
