//! `DEL key [key ...]`: removes keys and says how many there were.

use crate::commands::prelude::*;

pub(super) static DEL: Command = Command {
    name: "del",
    summary: "Removes keys",
    since: "1.0.0",
    group: Group::Generic,
    complexity: "O(N) where N is the number of keys",
    arity: -2,
    flags: &[Flag::Write],
    categories: &[Category::Keyspace],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    keys: &[KeySpec::all(&[KeyFlag::Remove, KeyFlag::Delete])],
    arguments: &[Argument::key("key").multiple()],
    run: remove,
    ..Command::BLANK
};

/// `UNLINK` is the same: removing a key never takes longer for a larger value.
pub(super) fn remove(call: &mut Call<'_>) -> Outcome {
    let database = call.database()?;
    let keys = call.args.from(1);
    let mut removed = 0;
    if keys.len() == 1 {
        removed += i64::from(database.remove(keys.at(0))?);
    } else {
        let mut batch = [&b""[..]; 64];
        let mut rest = keys.iter();
        while rest.len() > 0 {
            let mut filled = 0;
            for (slot, key) in batch.iter_mut().zip(&mut rest) {
                *slot = key;
                filled += 1;
            }
            removed += database.remove_many(&batch[..filled])? as i64;
        }
    }
    call.reply.integer(removed);
    Ok(())
}
