//! Lists: ordered items, which are pushed and popped at both ends.

mod blpop;
mod lindex;
mod linsert;
mod list;
mod lmove;
mod lmpop;
mod lpop;
mod lpos;
mod lpush;

use crate::command::Command;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &blpop::BLMPOP,
    &blpop::BLPOP,
    &blpop::BRPOP,
    &lindex::LINDEX,
    &lindex::LLEN,
    &lindex::LRANGE,
    &linsert::LINSERT,
    &linsert::LREM,
    &linsert::LSET,
    &linsert::LTRIM,
    &lmove::BLMOVE,
    &lmove::BRPOPLPUSH,
    &lmove::LMOVE,
    &lmove::RPOPLPUSH,
    &lmpop::LMPOP,
    &lpop::LPOP,
    &lpop::RPOP,
    &lpos::LPOS,
    &lpush::LPUSH,
    &lpush::LPUSHX,
    &lpush::RPUSH,
    &lpush::RPUSHX,
];
