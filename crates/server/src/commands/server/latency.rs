//! `LATENCY`: events that took longer than `latency-monitor-threshold`, and the distribution of
//! commands' durations.

use std::fmt::Write as _;

use crate::command::*;
use crate::commands::help;
use crate::settings::Key;
use crate::statistics::Series;

pub(super) static LATENCY: Command = Command {
    name: "latency",
    summary: "A container for commands about what took long",
    since: "2.8.13",
    subcommands: &[
        &DOCTOR, &GRAPH, &HELP, &HISTOGRAM, &HISTORY, &LATEST, &RESET,
    ],
    ..help::CONTAINER
};

/// The common fields of the subcommands.
const PLAIN: Command = Command {
    since: "2.8.13",
    group: Group::Server,
    arity: 2,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
    tips: &[
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ],
    ..Command::BLANK
};

static DOCTOR: Command = Command {
    name: "latency|doctor",
    summary: "Describes what took long, and what to do about it",
    run: doctor,
    ..PLAIN
};

static GRAPH: Command = Command {
    name: "latency|graph",
    summary: "Draws the latest events of a kind",
    arity: 3,
    arguments: &[Argument::new("event", Kind::String)],
    run: graph,
    ..PLAIN
};

static HISTOGRAM: Command = Command {
    name: "latency|histogram",
    summary: "Returns how the time of commands spreads, cumulated over powers of two of microseconds",
    since: "7.0.0",
    complexity: "O(N) where N is the number of commands asked for, times the number of threads",
    arity: -2,
    arguments: &[Argument::new("command", Kind::String).optional().multiple()],
    run: histogram,
    ..PLAIN
};

static HISTORY: Command = Command {
    name: "latency|history",
    summary: "Returns when events of a kind took how many milliseconds",
    arity: 3,
    arguments: &[Argument::new("event", Kind::String)],
    run: history,
    ..PLAIN
};

static LATEST: Command = Command {
    name: "latency|latest",
    summary: "Returns the latest event of each kind, and the worst",
    run: latest,
    ..PLAIN
};

static RESET: Command = Command {
    name: "latency|reset",
    summary: "Forgets the events of these kinds, or all; returns how many kinds that were",
    arity: -2,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::new("event", Kind::String).optional().multiple()],
    run: reset,
    ..PLAIN
};

static HELP: Command = Command {
    name: "latency|help",
    since: "2.8.13",
    run: |call| help::of(call, &LATENCY),
    ..help::HELP
};

fn history(call: &mut Call<'_>) -> Outcome {
    let series = call.server.latency.of(call.args.at(2)).unwrap_or_default();
    call.reply.array(series.samples.len());
    for (second, milliseconds) in series.samples {
        call.reply.array(2);
        call.reply.integer(second as i64);
        call.reply.integer(milliseconds as i64);
    }
    Ok(())
}

fn latest(call: &mut Call<'_>) -> Outcome {
    let events = call.server.latency.all();
    call.reply.array(events.len());
    for (event, series) in events {
        let (second, milliseconds) = series.samples.back().copied().unwrap_or_default();
        call.reply.array(4);
        call.reply.bulk(event.as_bytes());
        for number in [second, milliseconds, series.worst] {
            call.reply.integer(number as i64);
        }
    }
    Ok(())
}

fn reset(call: &mut Call<'_>) -> Outcome {
    let events = call.args.from(2);
    let is_named = |event: &[u8]| events.is_empty() || events.iter().any(|name| name == event);
    let dropped = call.server.latency.forget(is_named);
    call.reply.integer(dropped as i64);
    Ok(())
}

fn histogram(call: &mut Call<'_>) -> Outcome {
    let asked = call.args.from(2);
    let is_asked = |command: &Command| {
        let (container, _) = command.name.split_once('|').unwrap_or((command.name, ""));
        asked.is_empty()
            || asked.iter().any(|name| {
                name.eq_ignore_ascii_case(command.name.as_bytes())
                    || call
                        .server
                        .commands
                        .find(name)
                        .is_some_and(|known| known.name == container)
            })
    };
    let spread: Vec<_> = call
        .server
        .commands
        .executable()
        .filter(|command| is_asked(command))
        .map(|command| {
            let totals = call.server.calls(command);
            (command, totals.distribution)
        })
        .filter(|(_, distribution)| distribution.calls() > 0)
        .collect();
    call.reply.map(spread.len());
    for (command, distribution) in spread {
        call.reply.bulk(command.name.as_bytes());
        call.reply.map(2);
        call.reply.bulk(b"calls");
        call.reply.integer(distribution.calls() as i64);
        call.reply.bulk(b"histogram_usec");
        let rows = distribution.doublings();
        call.reply.map(rows.len());
        for (microseconds, calls) in rows {
            call.reply.integer(microseconds as i64);
            call.reply.integer(calls as i64);
        }
    }
    Ok(())
}

/// The number of lines of a graph, without those that name the seconds.
const ROWS: u64 = 8;

fn graph(call: &mut Call<'_>) -> Outcome {
    let event = call.args.at(2);
    let Some(series) = call.server.latency.of(event) else {
        return Err(Failure::quoting(
            "ERR No samples available for event '",
            event,
            "'",
        ));
    };
    let text = draw(
        &String::from_utf8_lossy(event),
        &series,
        call.server.wall_ms() / 1000,
    );
    call.reply.verbatim(&text);
    Ok(())
}

fn draw(event: &str, series: &Series, now_s: u64) -> String {
    let times = || series.samples.iter().map(|sample| sample.1);
    let (high, low) = (times().max().unwrap_or(0), times().min().unwrap_or(0));
    let mut text = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        series.worst,
        "-".repeat(80)
    );
    for row in (1..=ROWS).rev() {
        let bar = |time| if time * ROWS >= row * high { '#' } else { ' ' };
        text.extend(times().map(bar));
        text.push('\n');
    }
    let (first, last) = (series.samples.front(), series.samples.back());
    let ago = |sample: Option<&(u64, u64)>| now_s.saturating_sub(sample.map_or(now_s, |s| s.0));
    // Writing to a `String` does not fail.
    let _ = writeln!(text, "from {} s ago to {} s ago", ago(first), ago(last));
    text
}

fn doctor(call: &mut Call<'_>) -> Outcome {
    let server = call.server;
    let threshold = server.settings.number(Key::LatencyThreshold);
    let events = server.latency.all();
    let mut text = String::new();
    if threshold == 0 {
        text.push_str(
            "Nothing is watched: CONFIG SET latency-monitor-threshold <milliseconds> makes the server remember what takes \
             longer.\n",
        );
    }
    for (event, series) in &events {
        let count = series.samples.len() as u64;
        let sum: u64 = series.samples.iter().map(|sample| sample.1).sum();
        let first = series.samples.front().map_or(0, |sample| sample.0);
        let last = series.samples.back().map_or(0, |sample| sample.0);
        // Writing to a `String` does not fail.
        let _ = writeln!(
            text,
            "{event}: {count} slow seconds within {} s, {} ms on average, the worst ever {} ms.",
            last.abs_diff(first) + 1,
            sum / count.max(1),
            series.worst
        );
    }
    let slower = server.settings.number(Key::SlowerThan);
    if events.is_empty() {
        text.push_str("Nothing has taken long.\n");
    } else if slower < 0 || slower / 1000 > threshold {
        let _ = writeln!(
            text,
            "CONFIG SET slowlog-log-slower-than {} makes SLOWLOG GET tell which commands these were.",
            threshold * 1000
        );
    } else {
        text.push_str(
            "SLOWLOG GET tells which commands these were. Commands that look at all keys (KEYS, a large SCAN COUNT, FLUSHALL \
             with SYNC) and long transactions take long by nature; what took long and is none of these waited: for the CPU \
             (more I/O threads than CPUs, other programs), or for memory (`mneme doctor` looks at the machine).\n",
        );
    }
    call.reply.verbatim(&text);
    Ok(())
}
