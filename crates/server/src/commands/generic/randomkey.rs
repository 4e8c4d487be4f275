//! `RANDOMKEY`: returns a random key.
//!
//! If many keys were removed, the remaining ones are sparse, and finding one takes longer. The
//! search runs in time slices, between which other clients are served. Within `EXEC` it runs at
//! once.

use crate::client::Unfinished;
use crate::command::*;
use mneme_log::{Draw, Drawn};

pub(super) static RANDOMKEY: Command = Command {
    name: "randomkey",
    summary: "Returns a key drawn by lot, each as likely as any other",
    since: "1.0.0",
    arity: 1,
    flags: &[Flag::Readonly],
    tips: &["request_policy:all_shards", "nondeterministic_output"],
    reach: Reach::Databases,
    run,
    ..Command::KEYSPACE
};

fn run(call: &mut Call<'_>) -> Outcome {
    let database = call.keyspace.whole()?;
    let unfinished = call.client.unfinished.take();
    let mut draw = unfinished.map_or_else(Draw::default, |unfinished| unfinished.draw);
    loop {
        match database.draw(&mut draw)? {
            Drawn::Key(key) => call.reply.value(Some(&key)),
            Drawn::Nothing => call.reply.value(None),
            Drawn::Unfinished => {
                if call.is_slice_over() {
                    let unfinished = Unfinished {
                        draw,
                        ..Unfinished::default()
                    };
                    call.client.unfinished = Some(Box::new(unfinished));
                    return Err(Failure::Unfinished);
                }
                continue;
            }
        }
        return Ok(());
    }
}
