//! `OBJECT`: how a value is stored.
//!
//! Every value is stored in the same way, as the bytes of one record; nothing is shared. `ENCODING`
//! returns the encoding that Redis would choose if the value were stored now, because Redis's
//! clients use it to distinguish numbers and short strings. The store samples when and how often
//! records are used; the samples are too coarse to report for a single key.

use crate::command::*;
use crate::commands::help;
use crate::resp::parse_i64;
use mneme_collections::{
    HASH, LARGE_HASH, LARGE_LIST, LARGE_SET, LARGE_SORTED_SET, LIST, PackedHash, PackedSet,
    PackedSortedSet, SET, SORTED_SET,
};
use mneme_log::Stored;

pub(super) static OBJECT: Command = Command {
    name: "object",
    summary: "A container for commands about how values are kept",
    since: "2.2.3",
    group: Group::Generic,
    subcommands: &[&ENCODING, &FREQ, &HELP, &IDLETIME, &REFCOUNT],
    ..help::CONTAINER
};

/// The common fields of the subcommands.
const PLAIN: Command = Command {
    since: "2.2.3",
    arity: 3,
    flags: &[Flag::Readonly],
    tips: &["nondeterministic_output"],
    keys: &[KeySpec::second(&[KeyFlag::ReadOnly])],
    arguments: &[Argument::key("key")],
    ..Command::KEYSPACE
};

static ENCODING: Command = Command {
    name: "object|encoding",
    summary: "Returns how Redis would keep the value: int, embstr, raw, listpack, intset, hashtable, quicklist or skiplist",
    run: |call| {
        let key = call.args.at(2);
        let encoding = call
            .keyspace
            .read_stored(key, |stored| stored.map(encoding).transpose())??;
        call.keyspace.count(encoding.is_some());
        call.reply.value(encoding.map(str::as_bytes));
        Ok(())
    },
    ..PLAIN
};

static FREQ: Command = Command {
    name: "object|freq",
    summary: "Fails for a key that is there: its uses are not counted",
    since: "4.0.0",
    run: |call| {
        refuse(
            call,
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        )
    },
    ..PLAIN
};

static IDLETIME: Command = Command {
    name: "object|idletime",
    summary: "Fails for a key that is there: the time of its last use is not kept",
    run: |call| refuse(call, "ERR Idle time of single keys is not tracked."),
    ..PLAIN
};

static REFCOUNT: Command = Command {
    name: "object|refcount",
    summary: "Returns how many keys share the value: always 1",
    run: |call| {
        match call.keyspace.contains(call.args.at(2))? {
            true => call.reply.integer(1),
            false => call.reply.null(),
        }
        Ok(())
    },
    ..PLAIN
};

static HELP: Command = Command {
    name: "object|help",
    since: "6.2.0",
    group: Group::Generic,
    categories: &[Category::Keyspace],
    run: |call| help::of(call, &OBJECT),
    ..help::HELP
};

/// The longest string that Redis stores together with its header.
const LONGEST_EMBEDDED: usize = 44;

fn encoding(stored: Stored<'_>) -> Result<&'static str, Failure> {
    let value = stored.value;
    Ok(match stored.kind {
        LARGE_HASH | LARGE_SET => "hashtable",
        LARGE_SORTED_SET => "skiplist",
        HASH if PackedHash::read(value)?.is_table() => "hashtable",
        HASH => "listpack",
        SET if PackedSet::read(value)?.is_table() => "hashtable",
        SET => "intset",
        LIST | LARGE_LIST => "quicklist",
        SORTED_SET if PackedSortedSet::read(value)?.is_skiplist() => "skiplist",
        SORTED_SET => "listpack",
        _ => encoding_of_string(value),
    })
}

fn encoding_of_string(value: &[u8]) -> &'static str {
    // Only the spelling in which Redis itself would write the number.
    if parse_i64(value).is_some() {
        "int"
    } else if value.len() <= LONGEST_EMBEDDED {
        "embstr"
    } else {
        "raw"
    }
}

/// Replies null for a key that does not exist, otherwise with an error.
fn refuse(call: &mut Call<'_>, error: &'static str) -> Outcome {
    if call.keyspace.contains(call.args.at(2))? {
        return Err(Failure::other(error));
    }
    call.reply.null();
    Ok(())
}
