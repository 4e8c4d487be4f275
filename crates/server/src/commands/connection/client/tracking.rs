//! `CLIENT TRACKING`, `CACHING`, `TRACKINGINFO` and `GETREDIR`: which of the keys that the client
//! reads the server notifies it of once they have changed. See [`crate::tracking`].

use std::sync::atomic::Ordering;

use super::PLAIN;
use crate::command::*;
use crate::resp::parse_i64;
use crate::tracking::{Prefixes, TrackingMode};

pub(super) static TRACKING: Command = Command {
    name: "client|tracking",
    summary: "Notifies the client when keys that it has read change, or no longer",
    since: "6.0.0",
    complexity: "O(N) where N is the number of prefixes that are named, or that the client has when it ends it",
    arity: -3,
    arguments: &[
        Argument::one_of(
            "status",
            &[Argument::word("on", "ON"), Argument::word("off", "OFF")],
        ),
        Argument::new("client-id", Kind::Integer)
            .after("REDIRECT")
            .optional(),
        Argument::new("prefix", Kind::String)
            .after("PREFIX")
            .optional()
            .multiple_with_token(),
        Argument::word("bcast", "BCAST").optional(),
        Argument::word("optin", "OPTIN").optional(),
        Argument::word("optout", "OPTOUT").optional(),
        Argument::word("noloop", "NOLOOP").optional(),
    ],
    run: track,
    ..PLAIN
};

pub(super) static CACHING: Command = Command {
    name: "client|caching",
    summary: "Tracks the keys of the next command, or not",
    since: "6.0.0",
    arity: 3,
    arguments: &[Argument::one_of(
        "mode",
        &[Argument::word("yes", "YES"), Argument::word("no", "NO")],
    )],
    run: caching,
    ..PLAIN
};

pub(super) static TRACKINGINFO: Command = Command {
    name: "client|trackinginfo",
    summary: "Returns how the client's keys are tracked",
    since: "6.2.0",
    arity: 2,
    run: info,
    ..PLAIN
};

pub(super) static GETREDIR: Command = Command {
    name: "client|getredir",
    summary: "Returns the client that is notified instead: 0 for none, -1 if no keys are tracked",
    since: "6.0.0",
    arity: 2,
    run: |call| {
        call.reply.integer(redirect(call));
        Ok(())
    },
    ..PLAIN
};

fn redirect(call: &Call<'_>) -> i64 {
    let mode = call.client.tracking.as_ref();
    mode.map_or(-1, |mode| i64::try_from(mode.redirect).unwrap_or(i64::MAX))
}

/// The options, and the prefixes in their order.
fn parse<'a>(call: &Call<'a>) -> Result<(TrackingMode, Vec<&'a [u8]>), Failure> {
    let (mut mode, mut prefixes) = (TrackingMode::default(), Vec::new());
    let (mut at, end) = (3, call.args.len());
    while at < end {
        let has_more = at + 1 < end;
        match () {
            () if call.is(at, "REDIRECT") && has_more => {
                at += 1;
                if mode.redirect != 0 {
                    return Err(Failure::other(
                        "ERR A client can only redirect to a single other client",
                    ));
                }
                let id = parse_i64(call.args.at(at)).ok_or(Failure::NotAnInteger)?;
                let id = u64::try_from(id).unwrap_or(0);
                if call.server.clients.named(&[id]).is_empty() {
                    return Err(Failure::other(
                        "ERR The client ID you want redirect to does not exist",
                    ));
                }
                mode.redirect = id;
            }
            () if call.is(at, "BCAST") => mode.broadcasts = true,
            () if call.is(at, "OPTIN") => mode.opts_in = true,
            () if call.is(at, "OPTOUT") => mode.opts_out = true,
            () if call.is(at, "NOLOOP") => mode.skips_own = true,
            () if call.is(at, "PREFIX") && has_more => {
                at += 1;
                prefixes.push(call.args.at(at));
            }
            () => return Err(Failure::Syntax),
        }
        at += 1;
    }
    Ok((mode, prefixes))
}

fn track(call: &mut Call<'_>) -> Outcome {
    let (mode, named) = parse(call)?;
    if call.is(2, "OFF") {
        call.server.end_tracking(call.client);
        // Messages that were already sent to it precede the reply.
        call.drain_pushes();
        call.client.settle_pushes();
        call.reply.ok();
        return Ok(());
    }
    if !call.is(2, "ON") {
        return Err(Failure::Syntax);
    }
    if !mode.broadcasts && !named.is_empty() {
        return Err(Failure::other(
            "ERR PREFIX option requires BCAST mode to be enabled",
        ));
    }
    let before = call.client.tracking.as_deref();
    if before.is_some_and(|before| before.broadcasts != mode.broadcasts) {
        return Err(Failure::other(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
        ));
    }
    if mode.broadcasts && (mode.opts_in || mode.opts_out) {
        return Err(Failure::other(
            "ERR OPTIN and OPTOUT are not compatible with BCAST",
        ));
    }
    if mode.opts_in && mode.opts_out {
        return Err(Failure::other(
            "ERR You can't specify both OPTIN mode and OPTOUT mode",
        ));
    }
    let switches =
        |before: &TrackingMode| mode.opts_in && before.opts_out || mode.opts_out && before.opts_in;
    if before.is_some_and(switches) {
        return Err(Failure::other(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
        ));
    }
    let mut prefixes = Prefixes::default();
    if mode.broadcasts {
        for prefix in &named {
            if let Some(own) = call.client.prefixes.overlap(prefix) {
                return Err(overlapping(prefix, own, "an existing prefix"));
            }
            if let Some(other) = prefixes.overlap(prefix) {
                return Err(overlapping(other, prefix, "another provided prefix"));
            }
            prefixes.insert(prefix);
        }
        if named.is_empty() {
            // An empty prefix: all keys.
            prefixes.insert(&[]);
        }
    }
    call.server.begin_tracking(call.client, mode, &prefixes);
    call.reply.ok();
    // No thread may be executing a command whose changes are not recorded for this client.
    call.await_sections(0..call.server.threads.len());
    Ok(())
}

fn overlapping(prefix: &[u8], other: &[u8], which: &str) -> Failure {
    let (prefix, other) = (
        String::from_utf8_lossy(prefix),
        String::from_utf8_lossy(other),
    );
    Failure::other(format!(
        "ERR Prefix '{prefix}' overlaps with {which} '{other}'. Prefixes for a single client must not overlap."
    ))
}

fn caching(call: &mut Call<'_>) -> Outcome {
    let Some(mode) = &call.client.tracking else {
        return Err(Failure::other(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    let caching = match () {
        () if call.is(2, "YES") && mode.opts_in => true,
        () if call.is(2, "NO") && mode.opts_out => false,
        () if call.is(2, "YES") => {
            return Err(Failure::other(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
        () if call.is(2, "NO") => {
            return Err(Failure::other(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
        () => return Err(Failure::Syntax),
    };
    call.client.caching = Some(caching);
    call.reply.ok();
    Ok(())
}

fn info(call: &mut Call<'_>) -> Outcome {
    let (mode, caching) = (call.client.tracking.clone(), call.client.caching);
    let flags: Vec<&str> = match &mode {
        None => vec!["off"],
        Some(mode) => [
            (true, "on"),
            (mode.broadcasts, "bcast"),
            (mode.opts_in, "optin"),
            (mode.opts_in && caching == Some(true), "caching-yes"),
            (mode.opts_out, "optout"),
            (mode.opts_out && caching == Some(false), "caching-no"),
            (mode.skips_own, "noloop"),
            (mode.is_broken.load(Ordering::Relaxed), "broken_redirect"),
        ]
        .into_iter()
        .filter_map(|(holds, flag)| holds.then_some(flag))
        .collect(),
    };
    let redirect = redirect(call);
    call.reply.map(3);
    call.reply.bulk(b"flags");
    call.reply.set(flags.len());
    flags
        .iter()
        .for_each(|flag| call.reply.bulk(flag.as_bytes()));
    call.reply.bulk(b"redirect");
    call.reply.integer(redirect);
    call.reply.bulk(b"prefixes");
    let prefixes = call.client.prefixes.iter();
    call.reply.array(prefixes.len());
    prefixes.for_each(|prefix| call.reply.bulk(prefix));
    Ok(())
}
