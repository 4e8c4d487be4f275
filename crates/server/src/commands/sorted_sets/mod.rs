//! Sorted sets: members with scores under one key, in the order of the scores.

mod arguments;
mod bzpop;
mod zadd;
mod zpop;
mod zrandmember;
mod zrange;
mod zrem;
mod zscan;
mod zscore;
mod zunion;

use crate::command::Command;
pub(super) use zadd::{Conditions, give};

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &bzpop::BZMPOP,
    &bzpop::BZPOPMAX,
    &bzpop::BZPOPMIN,
    &zadd::ZADD,
    &zscore::ZCARD,
    &zscore::ZCOUNT,
    &zunion::ZDIFF,
    &zunion::ZDIFFSTORE,
    &zadd::ZINCRBY,
    &zunion::ZINTER,
    &zunion::ZINTERCARD,
    &zunion::ZINTERSTORE,
    &zscore::ZLEXCOUNT,
    &zpop::ZMPOP,
    &zscore::ZMSCORE,
    &zpop::ZPOPMAX,
    &zpop::ZPOPMIN,
    &zrandmember::ZRANDMEMBER,
    &zrange::ZRANGE,
    &zrange::ZRANGEBYLEX,
    &zrange::ZRANGEBYSCORE,
    &zrange::ZRANGESTORE,
    &zscore::ZRANK,
    &zrem::ZREM,
    &zrem::ZREMRANGEBYLEX,
    &zrem::ZREMRANGEBYRANK,
    &zrem::ZREMRANGEBYSCORE,
    &zrange::ZREVRANGE,
    &zrange::ZREVRANGEBYLEX,
    &zrange::ZREVRANGEBYSCORE,
    &zscore::ZREVRANK,
    &zscan::ZSCAN,
    &zscore::ZSCORE,
    &zunion::ZUNION,
    &zunion::ZUNIONSTORE,
];
