//! `DEBUG`: what test suites of clients and of Redis need. Not for production use.

use std::time::Duration;

use super::enabled;
use crate::command::*;
use crate::resp::{Arguments, Protocol};
use crate::settings::Key;
use mneme_log::Expiry;

pub(super) static DEBUG: Command = Command {
    name: "debug",
    summary: "Waits, fills a database, shows replies of each type: for tests of clients",
    since: "1.0.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: -2,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
    exclusive_if: Some(reloads),
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    enabled::check(call, Key::EnableDebug, "DEBUG")?;
    let len = call.args.len();
    if call.is(1, "SLEEP") && len == 3 {
        sleep(call)
    } else if call.is(1, "SET-ACTIVE-EXPIRE") && len == 3 {
        // An expired key is invisible to all clients at once. The store decides when its memory is
        // freed.
        call.reply.ok();
        Ok(())
    } else if call.is(1, "QUICKLIST-PACKED-THRESHOLD") && len == 3 {
        // Every item of a list is stored in packed form.
        call.reply.ok();
        Ok(())
    } else if call.is(1, "PAUSE-CRON") && len == 3 {
        // There is no such task.
        call.reply.ok();
        Ok(())
    } else if call.is(1, "POPULATE") && (3..=5).contains(&len) {
        populate(call)
    } else if call.is(1, "PROTOCOL") && len == 3 {
        protocol(call)
    } else if call.is(1, "LOG") && len == 3 {
        // As text, which the log escapes, so that a client's bytes cannot add lines to it.
        let text = &*String::from_utf8_lossy(call.args.at(2));
        tracing::warn!(text, "DEBUG LOG");
        call.reply.ok();
        Ok(())
    } else if reloads(&call.args) {
        reload(call)
    } else if call.is(1, "HELP") && len == 2 {
        help(call)
    } else {
        Err(call.no_such_subcommand("DEBUG"))
    }
}

/// Whether the call loads the data.
fn reloads(args: &Arguments<'_>) -> bool {
    let is = |word: &[u8]| args.len() > 1 && args.at(1).eq_ignore_ascii_case(word);
    is(b"RELOAD") || (is(b"LOADAOF") && args.len() == 2)
}

/// Loads the directory's data beside the store that is served, and compares the two. The served
/// store stays in use, because its content was acknowledged and a failed load must not lose it.
fn reload(call: &mut Call<'_>) -> Outcome {
    let mut saves = call.is(1, "RELOAD");
    for option in 2..call.args.len() {
        match () {
            () if call.is(option, "NOSAVE") => saves = false,
            // These options only affect how Redis performs the load.
            () if call.is(option, "NOFLUSH") || call.is(option, "MERGE") => {}
            () => {
                return Err(Failure::other(
                    "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
                ));
            }
        }
    }
    let durability = super::save::durability(call)?;
    // First, because it fails at once within a transaction that has written.
    let saved = durability.sync().and_then(|()| match saves {
        true => durability.checkpoint_and_wait().map(drop),
        false => Ok(()),
    });
    match saved.and_then(|()| durability.compare_files()) {
        Ok(_) => {
            call.reply.ok();
            Ok(())
        }
        Err(error) => Err(Failure::other(format!("ERR {error}"))),
    }
}

fn help(call: &mut Call<'_>) -> Outcome {
    let lines = [
        "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "LOADAOF",
        "    Load what the directory holds, in memory of its own, and compare it with what is served.",
        "LOG <message>",
        "    Write <message> to the server's log.",
        "PAUSE-CRON <0|1>",
        "    Accepted, without effect.",
        "POPULATE <count> [<prefix>] [<size>]",
        "    Make <count> keys named <prefix>:<number>, with values of <size> bytes; those that are there stay.",
        "PROTOCOL <type>",
        "    Reply with a value of the type.",
        "QUICKLIST-PACKED-THRESHOLD <size>",
        "    Accepted, without effect.",
        "RELOAD [MERGE] [NOFLUSH] [NOSAVE]",
        "    As LOADAOF, after a checkpoint unless NOSAVE is said.",
        "SET-ACTIVE-EXPIRE <0|1>",
        "    Accepted, without effect.",
        "SLEEP <seconds>",
        "    Let this I/O thread, and the clients it serves, wait.",
    ];
    call.reply.array(lines.len());
    for line in lines {
        call.reply.simple(line);
    }
    Ok(())
}

/// The longest time that a thread may be made to sleep.
const LONGEST: f64 = 3600.0;

fn sleep(call: &mut Call<'_>) -> Outcome {
    // As in Redis, text that is not a number counts as 0.
    let text = String::from_utf8_lossy(call.args.at(2));
    let seconds: f64 = text.parse().unwrap_or(0.0);
    if seconds > 0.0 {
        std::thread::sleep(Duration::from_secs_f64(seconds.min(LONGEST)));
    }
    call.reply.ok();
    Ok(())
}

fn populate(call: &mut Call<'_>) -> Outcome {
    // The command's flags are those of its other subcommands, which write nothing.
    if call.server.store.is_loading() {
        return Err(Failure::Loading);
    }
    if let Some(reason) = call.server.gate().and_then(|gate| gate.refusal()) {
        return Err(Failure::NotDurable(reason));
    }
    let positive = |index| {
        call.integer(index)
            .ok()
            .and_then(|number| usize::try_from(number).ok())
            .ok_or(Failure::other(
                "ERR value is out of range, must be positive",
            ))
    };
    let count = positive(2)?;
    let prefix = match call.args.len() {
        3 => b"key",
        _ => call.args.at(3),
    };
    let size = match call.args.len() {
        5 => Some(positive(4)?),
        _ => None,
    };
    if size.is_some_and(|size| size > call.server.settings.count(Key::BulkLength)) {
        return Err(Failure::TooLong);
    }
    for number in 0..count {
        let key = [prefix, format!(":{number}").as_bytes()].concat();
        if call.keyspace.contains(&key)? {
            continue;
        }
        let mut value = format!("value:{number}").into_bytes();
        if let Some(size) = size {
            value.resize(size, 0);
        }
        call.keyspace.put(&key, &value, Expiry::default())?;
    }
    call.reply.ok();
    Ok(())
}

fn protocol(call: &mut Call<'_>) -> Outcome {
    let new = call.client.protocol == Protocol::Resp3;
    let name = String::from_utf8_lossy(call.args.at(2)).to_ascii_lowercase();
    let reply = &mut call.reply;
    match name.as_str() {
        "string" => reply.bulk(b"Hello World"),
        "integer" => reply.integer(12345),
        "double" if new => reply.raw(b",3.141\r\n"),
        "double" => reply.bulk(b"3.141"),
        "bignum" if new => reply.raw(b"(1234567999999999999999999999999999999\r\n"),
        "bignum" => reply.bulk(b"1234567999999999999999999999999999999"),
        "null" => reply.null(),
        "array" | "set" => {
            match name.as_str() {
                "array" => reply.array(3),
                _ => reply.set(3),
            }
            (0..3).for_each(|number| reply.integer(number));
        }
        "map" => {
            reply.map(3);
            for number in 0..3 {
                reply.integer(number);
                reply.raw(truth(new, number == 1));
            }
        }
        "attrib" => {
            if new {
                reply.raw(b"|1\r\n");
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        "push" if !new => {
            return Err(Failure::other("ERR RESP2 is not supported by this command"));
        }
        "push" => {
            reply.raw(b">2\r\n");
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
            reply.bulk(b"Some real reply following the push reply");
        }
        "true" => reply.raw(truth(new, true)),
        "false" => reply.raw(truth(new, false)),
        "verbatim" => reply.verbatim("This is a verbatim\nstring"),
        _ => {
            return Err(Failure::other(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

/// A boolean in either protocol.
fn truth(new: bool, value: bool) -> &'static [u8] {
    match (new, value) {
        (true, true) => b"#t\r\n",
        (true, false) => b"#f\r\n",
        (false, true) => b":1\r\n",
        (false, false) => b":0\r\n",
    }
}
