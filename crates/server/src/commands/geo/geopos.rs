//! `GEOPOS`, `GEOHASH key [member ...]`, `GEODIST key member member [unit]`: the places of members.

use super::arguments::{UNIT, coordinates, distance, unit};
use super::geohash::GeoPlace;
use crate::command::*;

pub(super) static GEOPOS: Command = Command {
    name: "geopos",
    summary: "Returns the places of members",
    since: "3.2.0",
    complexity: "O(log N) for each member, where N is the number of members; a small set is looked through",
    arity: -2,
    flags: &[Flag::Readonly],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key"),
        Argument::new("member", Kind::String).multiple(),
    ],
    run: positions,
    ..Command::GEO
};

pub(super) static GEOHASH: Command = Command {
    name: "geohash",
    summary: "Returns the geohashes of members",
    since: "3.2.0",
    complexity: "O(log N) for each member, where N is the number of members; a small set is looked through",
    arity: -2,
    flags: &[Flag::Readonly],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key"),
        Argument::new("member", Kind::String).multiple(),
    ],
    run: hashes,
    ..Command::GEO
};

pub(super) static GEODIST: Command = Command {
    name: "geodist",
    summary: "Returns the distance between two members",
    since: "3.2.0",
    complexity: "O(log N) for each member, where N is the number of members; a small set is looked through",
    arity: -4,
    flags: &[Flag::Readonly],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key"),
        Argument::new("member1", Kind::String),
        Argument::new("member2", Kind::String),
        UNIT.optional(),
    ],
    run: between,
    ..Command::GEO
};

/// The places of the members from argument 2 on. `None`: there is no such member.
fn places(call: &mut Call<'_>) -> Result<Vec<Option<GeoPlace>>, Failure> {
    let members = call.args.from(2);
    let places = call.keyspace.read_sorted_set(call.args.at(1), |set| {
        let place = |member| Ok(set.score(member)?.and_then(GeoPlace::of_score));
        members.iter().map(place).collect()
    })?;
    Ok(places.unwrap_or_else(|| vec![None; members.len()]))
}

fn positions(call: &mut Call<'_>) -> Outcome {
    let places = places(call)?;
    call.reply.array(places.len());
    for place in places {
        match place {
            Some(place) => coordinates(&mut call.reply, call.client.protocol, place),
            None => call.reply.null_array(),
        }
    }
    Ok(())
}

fn hashes(call: &mut Call<'_>) -> Outcome {
    let places = places(call)?;
    call.reply.array(places.len());
    for place in places {
        match place {
            Some(place) => call.reply.bulk(&place.text()),
            None => call.reply.null(),
        }
    }
    Ok(())
}

fn between(call: &mut Call<'_>) -> Outcome {
    let to_meters = match call.args.len() {
        4 => 1.0,
        5 => unit(call.args.at(4))?,
        _ => return Err(Failure::Syntax),
    };
    let (one, other) = (call.args.at(2), call.args.at(3));
    let places = call.keyspace.read_sorted_set(call.args.at(1), |set| {
        let scores = [set.score(one)?, set.score(other)?];
        Ok(scores.map(|score| score.and_then(GeoPlace::of_score)))
    })?;
    match places {
        Some([Some(one), Some(other)]) => {
            distance(&mut call.reply, one.distance(other) / to_meters);
        }
        _ => call.reply.null(),
    }
    Ok(())
}
