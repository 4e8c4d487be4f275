//! `MEMORY`: the use of memory, from the store's own accounting.

use std::fmt::Write as _;

use crate::client_memory;
use crate::command::*;
use crate::commands::help;
use mneme_log::{Evict, Stats};

pub(super) static MEMORY: Command = Command {
    name: "memory",
    summary: "A container for commands about memory",
    since: "4.0.0",
    subcommands: &[&DOCTOR, &HELP, &MALLOC_STATS, &PURGE, &STATS, &USAGE],
    ..help::CONTAINER
};

/// The common fields of the subcommands.
const PLAIN: Command = Command {
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of the store's log segments",
    arity: 2,
    tips: &[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ],
    ..Command::BLANK
};

static DOCTOR: Command = Command {
    name: "memory|doctor",
    summary: "Describes how the memory is used, and what to do about it",
    run: doctor,
    ..PLAIN
};

static MALLOC_STATS: Command = Command {
    name: "memory|malloc-stats",
    summary: "Returns the store's accounts, by NUMA node",
    run: |call| {
        let text = accounts(&call.server.stats());
        call.reply.verbatim(&text);
        Ok(())
    },
    ..PLAIN
};

static PURGE: Command = Command {
    name: "memory|purge",
    summary: "Compacts the store and frees what that wins, on a thread of its own, after the reply",
    complexity: "O(1)",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    run: |call| {
        call.server.purge.ask();
        call.reply.ok();
        Ok(())
    },
    ..PLAIN
};

static STATS: Command = Command {
    name: "memory|stats",
    summary: "Returns where the memory is",
    run: stats,
    ..PLAIN
};

static USAGE: Command = Command {
    name: "memory|usage",
    summary: "Returns the bytes that a key takes: its record, with the slack that its value has to grow, the elements of a large value, and its share of the index",
    arity: -3,
    flags: &[Flag::Readonly],
    tips: &[],
    keys: &[KeySpec::second(&[KeyFlag::ReadOnly])],
    arguments: &[
        Argument::key("key"),
        Argument::new("count", Kind::Integer)
            .after("SAMPLES")
            .optional(),
    ],
    run: usage,
    ..PLAIN
};

static HELP: Command = Command {
    name: "memory|help",
    since: "4.0.0",
    run: |call| help::of(call, &MEMORY),
    ..help::HELP
};

fn usage(call: &mut Call<'_>) -> Outcome {
    match call.args.len() {
        3 => {}
        5 if call.is(3, "SAMPLES") => {
            if call.integer(4)? < 0 {
                return Err(Failure::Syntax);
            }
        }
        _ => return Err(Failure::Syntax),
    }
    let key = call.args.at(2);
    let Some(record) = call.keyspace.record_bytes(key)? else {
        call.reply.null();
        return Ok(());
    };
    let led_to = call.keyspace.bytes_led_to(key)?;
    let stats = call.server.stats();
    let index = stats.index_used_bytes / stats.records.max(1);
    let bytes = record + index + led_to;
    call.reply.integer(bytes as i64);
    Ok(())
}

/// Why the store's pages are smaller than it prefers, in one line; empty if they are not.
pub(super) fn page_warning(stats: &Stats) -> String {
    let warning = stats.pages.warning.as_deref().unwrap_or_default();
    warning.replace(['\r', '\n'], " ")
}

/// The number of bytes in use: everything except free frames.
pub(super) fn used(stats: &Stats) -> u64 {
    stats.capacity.saturating_sub(stats.free_bytes)
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn stats(call: &mut Call<'_>) -> Outcome {
    let stats = call.server.stats();
    let used = used(&stats);
    let overhead = used.saturating_sub(stats.live_bytes);
    let counts = [
        ("total.allocated", used),
        ("overhead.total", overhead),
        ("clients.normal", client_memory::used(call.server) as u64),
        ("clients.slaves", 0),
        ("keys.count", stats.records),
        (
            "keys.bytes-per-key",
            used.checked_div(stats.records).unwrap_or(0),
        ),
        ("dataset.bytes", stats.live_bytes),
        ("allocator.allocated", used),
        ("allocator.active", stats.capacity),
        ("allocator.resident", stats.pages.resident_bytes as u64),
        ("fragmentation.bytes", stats.stale_bytes),
        ("mneme.capacity", stats.capacity),
        ("mneme.live", stats.live_bytes),
        ("mneme.max-capacity", stats.max_capacity),
        ("mneme.index", stats.index_bytes),
        ("mneme.stale", stats.stale_bytes),
        ("mneme.heads", stats.head_bytes),
        ("mneme.tables", stats.overhead_bytes),
        ("mneme.free", stats.free_bytes),
        ("mneme.spare", stats.spare_bytes),
        ("mneme.tracking", call.server.tracking.totals().bytes as u64),
    ];
    let shares = [
        ("dataset.percentage", 100.0 * ratio(stats.live_bytes, used)),
        ("fragmentation", ratio(used, stats.live_bytes)),
        ("mneme.fill", stats.fill()),
        ("mneme.target-fill", stats.target_fill),
        ("mneme.write-amplification", stats.write_amplification()),
    ];
    call.reply.map(counts.len() + shares.len());
    for (name, count) in counts {
        call.reply.bulk(name.as_bytes());
        call.reply.integer(count as i64);
    }
    for (name, share) in shares {
        call.reply.bulk(name.as_bytes());
        call.reply.double(share);
    }
    Ok(())
}

fn accounts(stats: &Stats) -> String {
    let mut text = format!(
        "capacity {}\nmax capacity {}\nrecords {}\nlive {}\nstale {}\nindex {}\nheads {}\ntables {}\nfree {}\n\
         of these reserved {}\nof these spare {}\nfill {:.3}\ntarget fill {:.3}\nresident {}\nhuge pages {}\nwritten {}\nmoved by compaction {}\nwrite amplification {:.3}\nevicted {}\nlog segments {}\n",
        stats.capacity,
        stats.max_capacity,
        stats.records,
        stats.live_bytes,
        stats.stale_bytes,
        stats.index_bytes,
        stats.head_bytes,
        stats.overhead_bytes,
        stats.free_bytes,
        stats.reserve_bytes,
        stats.spare_bytes,
        stats.fill(),
        stats.target_fill,
        stats.pages.resident_bytes,
        stats.pages.huge_bytes,
        stats.written_bytes,
        stats.moved_bytes,
        stats.write_amplification(),
        stats.evicted,
        stats.segments,
    );
    for (node, on) in stats.nodes.iter().enumerate() {
        // Writing to a `String` does not fail.
        let _ = writeln!(
            text,
            "node {node}: capacity {}, live {}, stale {}, index {}, free {}",
            on.capacity, on.live_bytes, on.stale_bytes, on.index_bytes, on.free_bytes
        );
    }
    text
}

fn doctor(call: &mut Call<'_>) -> Outcome {
    let stats = call.server.stats();
    let percent = |part: u64| 100 * part / stats.capacity.max(1);
    let mut text = format!(
        "Of {} bytes, {}% are live, {}% stale (compaction wins them back as they are needed), {}% index, {}% free.\n",
        stats.capacity,
        percent(stats.live_bytes),
        percent(stats.stale_bytes),
        percent(stats.index_bytes),
        percent(stats.free_bytes),
    );
    // Writing to a `String` does not fail.
    let _ = match stats.target_fill {
        0.0 => writeln!(
            text,
            "The log's fill is {:.3}. Memory does not follow what lives: activedefrag is no.",
            stats.fill()
        ),
        target => writeln!(
            text,
            "The log's fill is {:.3}, target fill {target:.3}, write amplification {:.3}; {} of the free bytes are spare.",
            stats.fill(),
            stats.write_amplification(),
            stats.spare_bytes
        ),
    };
    if let Some(wait) = stats.compaction_wait {
        // Writing to a `String` does not fail.
        let _ = writeln!(text, "Memory does not follow what lives: {wait}.");
    }
    // Reserved frames are for compaction, which also recovers stale memory.
    let kept = stats.reserve_bytes + stats.unbacked_bytes;
    let available = (stats.free_bytes + stats.stale_bytes).saturating_sub(kept);
    if stats.unbacked_bytes > 0 {
        let _ = writeln!(
            text,
            "Of the free bytes {} are not to be had: the file system that the segment lies on is full.",
            stats.unbacked_bytes
        );
    }
    let forgets = call.server.store.eviction() != Evict::None;
    if percent(stats.live_bytes) >= 90 || percent(available) < 10 && !forgets {
        text.push_str(match forgets {
            true => "It is nearly full: writes cost more, and records are dropped. CONFIG SET maxmemory makes it larger.\n",
            false => {
                "It is nearly full: writes cost more, and are refused without free memory. CONFIG SET maxmemory makes it larger, \
                 CONFIG SET maxmemory-policy lets it forget.\n"
            }
        });
    }
    if let Some(warning) = &stats.pages.warning {
        // Writing to a `String` does not fail.
        let _ = writeln!(
            text,
            "Its pages are small: {warning}. `mneme doctor` says more."
        );
    }
    if stats.condemned > 0 && stats.free_bytes <= stats.reserve_bytes {
        text.push_str("Readers hold memory that could be free: see `mneme segment show`.\n");
    }
    call.reply.verbatim(&text);
    Ok(())
}
