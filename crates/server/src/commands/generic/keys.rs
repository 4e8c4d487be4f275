//! `KEYS pattern`: every key that matches.
//!
//! As in Redis it walks the whole database in one go, and has the server to itself meanwhile: no
//! client is served, whichever thread serves it. `SCAN` is for programs.

use crate::command::*;
use crate::glob;
use mneme_log::Cursor;

pub(super) static KEYS: Command = Command {
    name: "keys",
    summary: "Returns all keys that match a pattern; no other client is served meanwhile",
    since: "1.0.0",
    group: Group::Generic,
    complexity: "O(N) where N is the number of keys in the database",
    arity: 2,
    flags: &[Flag::Readonly],
    categories: &[Category::Keyspace, Category::Dangerous],
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    arguments: &[Argument::new("pattern", Kind::Pattern)],
    reach: Reach::Exclusive,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    let (database, pattern) = (call.keyspace.whole()?, call.args.at(1));
    call.reply.counted_array(|reply| {
        let mut matching = 0;
        let mut cursor = Cursor::START;
        // A reply that is too long is not sent: its connection is closed.
        while !reply.is_over() {
            cursor = database.scan_keys(cursor, 1024, |key| {
                if glob::matches(pattern, key) {
                    matching += 1;
                    reply.bulk(key);
                }
            })?;
            if cursor == Cursor::END {
                break;
            }
        }
        Ok(matching)
    })
}
