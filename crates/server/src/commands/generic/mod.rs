//! Commands on keys, whatever their values are.

mod del;
mod exists;
mod expire;
mod keys;
mod kind;
mod object;
mod persist;
mod randomkey;
mod scan;
mod touch;
mod transfer;
mod ttl;
mod unlink;

use crate::command::Command;
pub(super) use scan::{SCAN_ELEMENTS, ScanOptions, cursor, reply_step};

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &del::DEL,
    &exists::EXISTS,
    &expire::EXPIRE,
    &expire::EXPIREAT,
    &expire::PEXPIRE,
    &expire::PEXPIREAT,
    &keys::KEYS,
    &kind::TYPE,
    &object::OBJECT,
    &persist::PERSIST,
    &randomkey::RANDOMKEY,
    &scan::SCAN,
    &touch::TOUCH,
    &transfer::COPY,
    &transfer::MOVE,
    &transfer::RENAME,
    &transfer::RENAMENX,
    &ttl::EXPIRETIME,
    &ttl::PEXPIRETIME,
    &ttl::PTTL,
    &ttl::TTL,
    &unlink::UNLINK,
];
