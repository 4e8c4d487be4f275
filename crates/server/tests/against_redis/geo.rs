//! Places, under the keys that the sorted sets have too.

use crate::generate::{Command, key, line, name, words};
use proptest::collection::vec;
use proptest::prelude::*;

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => (geo_key(), name(&["", "NX", "XX", "CH", "NX CH"]), vec((place(), member()), 1..5)).prop_map(
            |(key, options, members)| {
                let options = String::from_utf8(options).expect("text");
                let options = words(&options).into_iter().filter(|word| !word.is_empty());
                let members = members.into_iter().flat_map(|(place, member)| [place, vec![member]].concat());
                [b"GEOADD".to_vec(), key].into_iter().chain(options).chain(members).collect()
            }
        ),
        3 => (name(&["GEOPOS", "GEOHASH"]), geo_key(), vec(member(), 0..4))
            .prop_map(|(name, key, members)| [vec![name, key], members].concat()),
        2 => (geo_key(), member(), member(), name(&["m", "km", "FT", "mi", "x"]))
            .prop_map(|(key, one, other, unit)| vec![b"GEODIST".to_vec(), key, one, other, unit]),
        8 => (geo_key(), centre(), area(), vec(option(), 0..4)).prop_map(
            |(key, centre, area, options)| {
                [vec![b"GEOSEARCH".to_vec(), key], centre, area, options.concat()].concat()
            }
        ),
        3 => (key(), geo_key(), centre(), area(), vec(option(), 0..2), any::<bool>()).prop_map(
            |(to, key, centre, area, options, is_distance)| {
                let mut command = [vec![b"GEOSEARCHSTORE".to_vec(), to, key], centre, area].concat();
                command.extend(options.concat());
                if is_distance {
                    command.push(b"STOREDIST".to_vec());
                }
                command
            }
        ),
        3 => (name(&["GEORADIUS", "GEORADIUS_RO"]), geo_key(), place(), radius(), vec(option(), 0..3)).prop_map(
            |(name, key, place, radius, options)| {
                [vec![name, key], place, radius, options.concat()].concat()
            }
        ),
        3 => (
                name(&["GEORADIUSBYMEMBER", "GEORADIUSBYMEMBER_RO"]), geo_key(), member(), radius(),
                vec(option(), 0..3), key(),
            ).prop_map(|(name, key, member, radius, options, to)| {
                let mut command = [vec![name, key, member], radius, options.concat()].concat();
                if command.len().is_multiple_of(3) {
                    command.extend([b"STORE".to_vec(), to]);
                }
                command
            }),
        2 => line(&[
            "GEOADD g0", "GEOADD g0 1 2", "GEOADD g0 NX XX 1 2 m", "GEOADD g0 x 2 m", "GEOADD g0 181 86 m",
            "GEOADD g0 -180 -85.05112878 m", "GEOADD g0 180 85.05112878 m7", "GEOADD g0 NX", "GEODIST g0 m1",
            "GEODIST g0 m1 m2 km x", "GEOSEARCH g0 FROMMEMBER m1", "GEOSEARCH g0 BYRADIUS 1 m",
            "geosearch g0 FROMMEMBER m1 FROMLONLAT 1 1 BYRADIUS 1 m", "GEOSEARCH g0 FROMLONLAT 1 1 BYRADIUS x m",
            "GEOSEARCH g0 FROMLONLAT 1 1 BYRADIUS -1 m", "GEOSEARCH g0 FROMLONLAT 1 1 BYBOX 1 -1 km",
            "GEOSEARCH g0 FROMLONLAT 1 1 BYBOX 1 x km", "GEOSEARCH g0 FROMLONLAT 1 1 BYBOX 1 1 x",
            "GEOSEARCH g0 FROMLONLAT 1 1 BYRADIUS 1 km (ANY|COUNT 0|COUNT x|COUNT|STOREDIST|FOO)",
            "GEORADIUS g0 1 1 5 km (STORE|STOREDIST) (g1|k1)", "GEORADIUS g0 1 1 5 km STORE g1 WITHDIST",
            "GEORADIUS_RO g0 1 1 5 km STORE g1", "GEORADIUSBYMEMBER none m1 x y", "GEORADIUSBYMEMBER g0 none 1 km",
            "GEORADIUSBYMEMBER none m1 1 km STORE g1", "GEORADIUS none 1 1 1 km", "ZADD g0 -5 m8 1e300 m9 inf m6",
            "GEOSEARCHSTORE g1 g0 FROMLONLAT 1 1 BYRADIUS 1 km WITHDIST", "GEOSEARCHSTORE g1 none FROMMEMBER a BYRADIUS 1 m",
        ]),
    ]
}

fn geo_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..2u8).prop_map(|i| format!("g{i}").into_bytes()),
        1 => key(),
    ]
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    (0..9u8).prop_map(|i| format!("m{i}").into_bytes())
}

/// A place: mostly near others, with coordinates that no other place has.
fn place() -> impl Strategy<Value = Command> {
    let near = (12.0..16.0f64, 36.0..39.0f64);
    let far = (-180.0..180.0f64, -85.0..85.0f64);
    prop_oneof![3 => near, 1 => far].prop_map(|(longitude, latitude)| {
        [longitude, latitude]
            .map(|at| format!("{at}").into_bytes())
            .to_vec()
    })
}

fn centre() -> impl Strategy<Value = Command> {
    prop_oneof![
        place().prop_map(|place| [vec![b"FROMLONLAT".to_vec()], place].concat()),
        member().prop_map(|member| vec![b"FROMMEMBER".to_vec(), member]),
    ]
}

fn length() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => 0.0..300.0f64,
        1 => 0.0..30_000.0f64,
        1 => Just(0.0),
    ]
    .prop_map(|length| format!("{length}").into_bytes())
}

fn radius() -> impl Strategy<Value = Command> {
    (length(), name(&["km", "mi", "KM", "m"])).prop_map(|(length, unit)| vec![length, unit])
}

fn area() -> impl Strategy<Value = Command> {
    prop_oneof![
        radius().prop_map(|radius| [vec![b"BYRADIUS".to_vec()], radius].concat()),
        (length(), length(), name(&["km", "mi"])).prop_map(|(width, height, unit)| vec![
            b"BYBOX".to_vec(),
            width,
            height,
            unit
        ]),
    ]
}

fn option() -> impl Strategy<Value = Command> {
    name(&[
        "WITHDIST",
        "WITHCOORD",
        "WITHHASH",
        "ASC",
        "DESC",
        "COUNT 1",
        "COUNT 3",
        "COUNT 2 ANY",
    ])
    .prop_map(|option| words(&String::from_utf8(option).expect("text")))
}
