//! `INFO [section ...]`: the server about itself. Every field is true; one that would not be is left out.

use std::fmt::Write as _;

use crate::commands::prelude::*;
use crate::shared::Shared;
use crate::version;

use super::eviction;

pub(super) static INFO: Command = Command {
    name: "info",
    summary: "Tells about the server and what it has done",
    since: "1.0.0",
    group: Group::Server,
    arity: -1,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Dangerous],
    tips: &[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ],
    arguments: &[Argument::new("section", Kind::String).optional().multiple()],
    run,
    ..Command::BLANK
};

/// A section's name and what writes it.
type Section = (&'static str, fn(&Shared, &mut Fields) -> Outcome);

const SECTIONS: &[Section] = &[
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Segment", segment),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
];

fn run(call: &mut Call<'_>) -> Outcome {
    let asked = call.args.from(1);
    let is_asked = |name: &str| {
        asked.is_empty()
            || asked.iter().any(|one| {
                [name, "all", "default", "everything"]
                    .iter()
                    .any(|section| one.eq_ignore_ascii_case(section.as_bytes()))
            })
    };
    let mut text = String::new();
    for (name, write) in SECTIONS.iter().filter(|(name, _)| is_asked(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text.push_str(&format!("# {name}\r\n"));
        write(call.server, &mut Fields(&mut text))?;
    }
    call.reply.verbatim(&text);
    Ok(())
}

/// A section's lines.
struct Fields<'a>(&'a mut String);

impl Fields<'_> {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing to a `String` does not fail.
        let _ = write!(self.0, "{name}:{value}\r\n");
    }
}

fn server(server: &Shared, fields: &mut Fields) -> Outcome {
    let port = server
        .addresses
        .first()
        .map_or(0, std::net::SocketAddr::port);
    let uptime_s = server.uptime_s();
    // Clients choose what they send by the version of Redis.
    fields.add("redis_version", version::REDIS);
    fields.add("mneme_version", version::MNEME);
    fields.add("redis_mode", "standalone");
    fields.add(
        "os",
        format_args!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
    );
    fields.add("arch_bits", usize::BITS);
    fields.add("multiplexing_api", "epoll");
    fields.add("process_id", std::process::id());
    fields.add("run_id", &server.run_id);
    fields.add("tcp_port", port);
    fields.add("server_time_usec", server.wall_us());
    fields.add("uptime_in_seconds", uptime_s);
    fields.add("uptime_in_days", uptime_s / 86_400);
    fields.add("io_threads_active", u8::from(server.threads.len() > 1));
    fields.add("io_threads", server.threads.len());
    Ok(())
}

fn clients(server: &Shared, fields: &mut Fields) -> Outcome {
    fields.add("connected_clients", server.connected());
    fields.add("cluster_connections", 0);
    fields.add("maxclients", server.settings.max_clients);
    fields.add("blocked_clients", 0);
    fields.add("tracking_clients", 0);
    Ok(())
}

fn memory(server: &Shared, fields: &mut Fields) -> Outcome {
    let stats = server.store.stats();
    let used = stats.capacity.saturating_sub(stats.free_bytes);
    for (name, bytes) in [
        ("used_memory", used),
        ("used_memory_rss", stats.pages.resident_bytes as u64),
        ("used_memory_dataset", stats.live_bytes),
        ("maxmemory", stats.capacity),
    ] {
        fields.add(name, bytes);
        fields.add(&format!("{name}_human"), human(bytes));
    }
    fields.add("maxmemory_policy", eviction(server));
    fields.add("mneme_index_bytes", stats.index_bytes);
    fields.add("mneme_stale_bytes", stats.stale_bytes);
    fields.add("mneme_free_bytes", stats.free_bytes);
    fields.add("mneme_huge_page_bytes", stats.pages.huge_bytes);
    Ok(())
}

/// Where the records are, and who has them beside the server.
fn segment(server: &Shared, fields: &mut Fields) -> Outcome {
    let processes = server.store.processes();
    let others = processes.iter().filter(|process| !process.is_asker);
    fields.add("mneme_segment", server.store.segment().unwrap_or("none"));
    fields.add("mneme_attached_processes", others.clone().count());
    fields.add(
        "mneme_stopped_processes",
        others.filter(|process| process.is_stopped()).count(),
    );
    fields.add("mneme_maintains", u8::from(server.store.maintains()));
    if server.store.segment().is_some() {
        let heard = server.heard_of_locals();
        for (name, count) in [
            ("mneme_local_stored", heard.stored),
            ("mneme_local_removed", heard.removed),
            ("mneme_local_expired", heard.expired),
            ("mneme_local_evicted", heard.evicted),
            ("mneme_local_database_changes", heard.databases),
            ("mneme_local_effects_lost", heard.lost),
        ] {
            fields.add(name, count);
        }
    }
    Ok(())
}

fn persistence(_: &Shared, fields: &mut Fields) -> Outcome {
    for name in [
        "loading",
        "async_loading",
        "rdb_bgsave_in_progress",
        "aof_enabled",
    ] {
        fields.add(name, 0);
    }
    Ok(())
}

fn stats(server: &Shared, fields: &mut Fields) -> Outcome {
    let totals = server.totals();
    fields.add("total_connections_received", totals.connections);
    fields.add("total_commands_processed", totals.commands);
    fields.add("total_net_input_bytes", totals.input);
    fields.add("total_net_output_bytes", totals.output);
    fields.add("rejected_connections", totals.rejected);
    let forgotten = server.forgotten();
    fields.add("expired_keys", forgotten.expired);
    fields.add("evicted_keys", forgotten.evicted);
    fields.add("keyspace_hits", totals.hits);
    fields.add("keyspace_misses", totals.misses);
    fields.add("total_error_replies", totals.errors);
    fields.add("total_reads_processed", totals.reads);
    fields.add("total_writes_processed", totals.writes);
    Ok(())
}

fn replication(_: &Shared, fields: &mut Fields) -> Outcome {
    fields.add("role", "master");
    fields.add("connected_slaves", 0);
    fields.add("master_repl_offset", 0);
    Ok(())
}

fn cluster(_: &Shared, fields: &mut Fields) -> Outcome {
    fields.add("cluster_enabled", 0);
    Ok(())
}

fn keyspace(server: &Shared, fields: &mut Fields) -> Outcome {
    for index in 0..server.settings.databases {
        let keys = server.store.database(index)?.try_len()?;
        if keys > 0 {
            fields.add(
                &format!("db{index}"),
                format_args!("keys={keys},expires=0,avg_ttl=0"),
            );
        }
    }
    Ok(())
}

/// Bytes as Redis shows them to people.
fn human(bytes: u64) -> String {
    let units = [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.2}{unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes}B"),
    }
}
