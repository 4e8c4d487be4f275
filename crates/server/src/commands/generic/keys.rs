//! `KEYS pattern`: returns every key that matches.
//!
//! Walks the database in time slices, between which other clients are served; no record stays
//! pinned in between. As with `SCAN`, a key that exists throughout is returned, and one that is
//! added or removed meanwhile may be. Within `EXEC` it runs at once.

use crate::command::*;
use crate::glob::Steps;
use crate::resp::Reply;
use mneme_log::Cursor;

pub(super) static KEYS: Command = Command {
    name: "keys",
    summary: "Returns all keys that match a pattern",
    since: "1.0.0",
    group: Group::Generic,
    complexity: "O(N) where N is the number of keys in the database",
    arity: 2,
    flags: &[Flag::Readonly],
    categories: &[Category::Keyspace, Category::Dangerous],
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    arguments: &[Argument::new("pattern", Kind::Pattern)],
    reach: Reach::Databases,
    run,
    ..Command::BLANK
};

/// The number of keys requested in one step of the store.
const STEP: usize = 1024;

fn run(call: &mut Call<'_>) -> Outcome {
    let (database, pattern) = (call.keyspace.whole()?, call.args.at(1));
    let mut unfinished = call.client.unfinished.take().unwrap_or_default();
    let (mut matching, most) = (0, call.reply.left());
    let are_all_wanted = pattern == b"*";
    loop {
        let mut reply = Reply::new(&mut unfinished.reply, call.client.protocol).up_to(most);
        let steps = Steps::default();
        unfinished.cursor = database.scan_keys(unfinished.cursor, STEP, |key| {
            if are_all_wanted || steps.matches(pattern, key) {
                matching += 1;
                reply.bulk(key);
            }
        })?;
        steps.check()?;
        // A reply that is too long is not sent, and its connection is closed.
        if unfinished.cursor == Cursor::END || reply.is_over() {
            break;
        }
        if call.is_slice_over() {
            unfinished.elements += matching;
            call.client.unfinished = Some(unfinished);
            return Err(Failure::Unfinished);
        }
    }
    call.reply.array(unfinished.elements + matching);
    call.reply.raw(&unfinished.reply);
    Ok(())
}
