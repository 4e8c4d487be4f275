//! Geo commands: members of sorted sets whose scores are places in the world.

mod arguments;
mod geoadd;
mod geohash;
mod geopos;
mod geosearch;

use crate::command::Command;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &geoadd::GEOADD,
    &geopos::GEODIST,
    &geopos::GEOHASH,
    &geopos::GEOPOS,
    &geosearch::GEORADIUS,
    &geosearch::GEORADIUS_RO,
    &geosearch::GEORADIUSBYMEMBER,
    &geosearch::GEORADIUSBYMEMBER_RO,
    &geosearch::GEOSEARCH,
    &geosearch::GEOSEARCHSTORE,
];
