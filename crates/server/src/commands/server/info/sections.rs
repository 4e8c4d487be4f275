//! The sections of `INFO`.

use std::net::SocketAddr;

use mneme_sys::{TimeOf, cpu_time, resident_memory};

use super::Fields;
use crate::client_memory;
use crate::command::*;
use crate::commands::server::memory::{page_warning, used};
use crate::key_types::drawn_types;
use crate::settings::Key;
use crate::shared::Shared;
use crate::statistics::Statistics;
use crate::version;

/// Adds zeros for things that this server never does, but that monitoring tools for Redis expect.
pub(super) fn add_zeros(fields: &mut Fields, names: &[&str]) {
    for name in names {
        fields.add(name, 0);
    }
}

pub(super) fn server(server: &Shared, fields: &mut Fields) -> Outcome {
    let port = server.addresses.first().map_or(0, SocketAddr::port);
    let uptime_s = server.uptime_s();
    // Clients choose the commands that they send by the version of Redis.
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
    fields.add("process_supervised", supervisor());
    fields.add("run_id", &server.run_id);
    fields.add("tcp_port", port);
    let tls_port = server.tls_addresses.first();
    fields.add("mneme_tls_port", tls_port.map_or(0, SocketAddr::port));
    fields.add(
        "mneme_tls_certificate_days",
        server.certificate_days().unwrap_or(0),
    );
    fields.add(
        "mneme_open_to_network",
        u8::from(server.is_open_to_network()),
    );
    fields.add("server_time_usec", server.wall_us());
    fields.add("uptime_in_seconds", uptime_s);
    fields.add("uptime_in_days", uptime_s / 86_400);
    let executable = std::env::current_exe();
    fields.add(
        "executable",
        executable.map_or(String::new(), |path| path.display().to_string()),
    );
    let config_file = server.settings.file();
    fields.add(
        "config_file",
        config_file.map_or(String::new(), |path| path.display().to_string()),
    );
    fields.add("io_threads_active", u8::from(server.threads.len() > 1));
    fields.add("io_threads", server.threads.len());
    Ok(())
}

pub(super) fn clients(server: &Shared, fields: &mut Fields) -> Outcome {
    fields.add("connected_clients", server.connected());
    fields.add("cluster_connections", 0);
    fields.add("maxclients", server.settings.count(Key::MaxClients));
    fields.add("blocked_clients", server.blocked());
    fields.add("tracking_clients", server.tracking.clients());
    Ok(())
}

pub(super) fn memory(server: &Shared, fields: &mut Fields) -> Outcome {
    let stats = server.stats();
    let used = used(&stats);
    let resident = resident_memory().unwrap_or(stats.pages.resident_bytes as u64);
    for (name, bytes) in [
        ("used_memory", used),
        ("used_memory_rss", resident),
        ("total_system_memory", mneme_sys::total_memory()),
        ("maxmemory", stats.capacity),
    ] {
        fields.add(name, bytes);
        fields.add(&format!("{name}_human"), human(bytes));
    }
    let overhead = used.saturating_sub(stats.live_bytes);
    let percentage = 100.0 * stats.live_bytes as f64 / used.max(1) as f64;
    fields.add("used_memory_overhead", overhead);
    fields.add("used_memory_dataset", stats.live_bytes);
    fields.add("used_memory_dataset_perc", format_args!("{percentage:.2}%"));
    fields.add("maxmemory_policy", server.shown(Key::MaxMemoryPolicy));
    // After attaching a segment, this process has mapped only what it has used since; but
    // everything in use is in memory.
    let mapped = stats.pages.resident_bytes as u64;
    let held = resident.saturating_sub(mapped) + mapped.max(used);
    let ratio = held as f64 / used.max(1) as f64;
    fields.add("mem_fragmentation_ratio", format_args!("{ratio:.2}"));
    fields.add("mem_clients_normal", client_memory::used(server));
    fields.add("mem_clients_slaves", 0);
    fields.add("mneme_tracking_bytes", server.tracking.totals().bytes);
    fields.add("mem_allocator", "mneme");
    fields.add("active_defrag_running", u8::from(stats.below_target));
    add_zeros(
        fields,
        &[
            "lazyfree_pending_objects",
            "mem_aof_buffer",
            "mem_cluster_links",
            "mem_replication_backlog",
            "number_of_cached_scripts",
            "number_of_functions",
            "number_of_libraries",
            "used_memory_functions",
            "used_memory_lua",
            "used_memory_scripts",
        ],
    );
    fields.add("mneme_max_capacity", stats.max_capacity);
    fields.add("mneme_index_bytes", stats.index_bytes);
    fields.add("mneme_live_bytes", stats.live_bytes);
    fields.add("mneme_stale_bytes", stats.stale_bytes);
    fields.add("mneme_head_bytes", stats.head_bytes);
    fields.add("mneme_table_bytes", stats.overhead_bytes);
    fields.add("mneme_free_bytes", stats.free_bytes);
    fields.add("mneme_spare_bytes", stats.spare_bytes);
    fields.add("mneme_fill", format_args!("{:.3}", stats.fill()));
    fields.add(
        "mneme_target_fill",
        format_args!("{:.3}", stats.target_fill),
    );
    let wait = stats.compaction_wait.map(|wait| wait.to_string());
    fields.add("mneme_compaction_wait", wait.as_deref().unwrap_or("none"));
    fields.add("mneme_reserve_bytes", stats.reserve_bytes);
    fields.add("mneme_unbacked_bytes", stats.unbacked_bytes);
    fields.add("mneme_resident_bytes", stats.pages.resident_bytes);
    fields.add("mneme_huge_page_bytes", stats.pages.huge_bytes);
    fields.add("mneme_pages_age_ms", server.pages_age_ms());
    fields.add("mneme_page_warning", page_warning(&stats));
    fields.add("mneme_log_segments", stats.segments);
    fields.add("mneme_condemned_segments", stats.condemned);
    fields.add("mneme_moved_bytes", stats.moved_bytes);
    fields.add("mneme_written_bytes", stats.written_bytes);
    fields.add(
        "mneme_write_amplification",
        format_args!("{:.3}", stats.write_amplification()),
    );
    if let Some(lent) = &stats.lent {
        fields.add("mneme_lent_bytes", lent.bytes());
        fields.add("mneme_lent_max_bytes", u64::from(lent.max_frames) << 21);
        fields.add("mneme_lent_hits", lent.all_hits);
        fields.add("mneme_lent_misses", lent.all_misses);
        fields.add("mneme_lent_discarded_frames", lent.discards);
        fields.add("mneme_claims", lent.claims.count);
        fields.add("mneme_claim_p50_ns", lent.claims.p50_ns);
        fields.add("mneme_claim_p999_ns", lent.claims.p999_ns);
        fields.add("mneme_claim_max_ns", lent.claims.max_ns);
    }
    Ok(())
}

/// The segment that holds the records, and the other processes that have it attached.
pub(super) fn segment(server: &Shared, fields: &mut Fields) -> Outcome {
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
        let changes = server.local_changes.stats(&server.store, server);
        for (name, count) in [
            ("mneme_local_stored", changes.stored),
            ("mneme_local_removed", changes.removed),
            ("mneme_local_expired", changes.expired),
            ("mneme_local_evicted", changes.evicted),
            ("mneme_local_database_changes", changes.databases),
            ("mneme_local_changes_lost", changes.lost),
        ] {
            fields.add(name, count);
        }
    }
    Ok(())
}

pub(super) fn stats(server: &Shared, fields: &mut Fields) -> Outcome {
    let totals = server.totals();
    fields.add("total_connections_received", totals.connections);
    fields.add("total_commands_processed", totals.commands);
    let rates = server.rate.now(server.now_ns(), || server.all_time());
    fields.add("instantaneous_ops_per_sec", rates.commands);
    fields.add("total_net_input_bytes", totals.input);
    fields.add("total_net_output_bytes", totals.output);
    let kibibytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    fields.add("instantaneous_input_kbps", kibibytes(rates.input));
    fields.add("instantaneous_output_kbps", kibibytes(rates.output));
    fields.add("rejected_connections", totals.rejected);
    let dropped = server.dropped();
    fields.add("expired_keys", dropped.expired);
    fields.add("evicted_keys", dropped.evicted);
    fields.add("evicted_clients", server.evictions.count());
    fields.add("keyspace_hits", totals.hits);
    fields.add("keyspace_misses", totals.misses);
    let topics = server.pubsub.counts();
    fields.add("pubsub_channels", topics.channels);
    fields.add("pubsub_patterns", topics.patterns);
    fields.add("pubsubshard_channels", topics.shard_channels);
    add_zeros(
        fields,
        &[
            "total_forks",
            "latest_fork_usec",
            "migrate_cached_sockets",
            "sync_full",
            "sync_partial_ok",
            "sync_partial_err",
            "total_net_repl_input_bytes",
            "total_net_repl_output_bytes",
        ],
    );
    let tracked = server.tracking.totals();
    fields.add("tracking_total_keys", tracked.keys);
    fields.add("tracking_total_items", tracked.items);
    fields.add("tracking_total_prefixes", tracked.prefixes);
    fields.add("slowlog_len", server.slowlog.len());
    fields.add("total_error_replies", totals.errors);
    fields.add("total_reads_processed", totals.reads);
    fields.add("total_writes_processed", totals.writes);
    Ok(())
}

pub(super) fn replication(_: &Shared, fields: &mut Fields) -> Outcome {
    fields.add("role", "master");
    fields.add("master_failover_state", "no-failover");
    add_zeros(
        fields,
        &[
            "connected_slaves",
            "master_repl_offset",
            "repl_backlog_active",
            "repl_backlog_histlen",
        ],
    );
    Ok(())
}

/// The processor time of the process, of its children, and of its main thread, which serves no
/// clients.
pub(super) fn cpu(_: &Shared, fields: &mut Fields) -> Outcome {
    for (of, suffix) in [
        (TimeOf::Process, ""),
        (TimeOf::Children, "_children"),
        (TimeOf::MainThread, "_main_thread"),
    ] {
        let time = cpu_time(of);
        for (kind, time) in [("sys", time.system), ("user", time.user)] {
            let seconds = time.as_secs_f64();
            fields.add(
                &format!("used_cpu_{kind}{suffix}"),
                format_args!("{seconds:.6}"),
            );
        }
    }
    Ok(())
}

/// The cost of each command.
pub(super) fn commandstats(server: &Shared, fields: &mut Fields) -> Outcome {
    for command in server.commands.executable() {
        let totals = server.calls(command);
        if totals.calls + totals.rejected == 0 {
            continue;
        }
        let usec = totals.nanoseconds / 1000;
        let each = totals.nanoseconds as f64 / 1000.0 / totals.calls.max(1) as f64;
        fields.add(
            &format!("cmdstat_{}", command.name),
            format_args!(
                "calls={},usec={usec},usec_per_call={each:.2},rejected_calls={},failed_calls={}",
                totals.calls, totals.rejected, totals.failed
            ),
        );
    }
    Ok(())
}

/// The number of error replies by their first word.
pub(super) fn errorstats(server: &Shared, fields: &mut Fields) -> Outcome {
    for (code, count) in Statistics::all_errors(server.statistics()) {
        fields.add(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
    Ok(())
}

/// The distribution of each command's duration.
pub(super) fn latencystats(server: &Shared, fields: &mut Fields) -> Outcome {
    for command in server.commands.executable() {
        let times = server.calls(command).distribution;
        if times.calls() > 0 {
            let at = |part| times.quantile(part) as f64 / 1000.0;
            fields.add(
                &format!("latency_percentiles_usec_{}", command.name),
                format_args!(
                    "p50={:.3},p99={:.3},p99.9={:.3}",
                    at(0.5),
                    at(0.99),
                    at(0.999)
                ),
            );
        }
    }
    Ok(())
}

pub(super) fn cluster(_: &Shared, fields: &mut Fields) -> Outcome {
    fields.add("cluster_enabled", 0);
    Ok(())
}

pub(super) fn keyspace(server: &Shared, fields: &mut Fields) -> Outcome {
    for index in 0..server.settings.count(Key::Databases) {
        let found = server.store.database(index)?.keyspace()?;
        if found.records > 0 {
            let (keys, expires) = (found.records, found.expiring);
            let ttl = found.mean_ttl.map_or(0, |ttl| ttl.as_millis());
            fields.add(
                &format!("db{index}"),
                format_args!("keys={keys},expires={expires},avg_ttl={ttl}"),
            );
        }
    }
    Ok(())
}

/// For each database, how many keys were sampled, and how many of them had each type.
pub(super) fn key_types(server: &Shared, fields: &mut Fields) -> Outcome {
    for index in 0..server.settings.count(Key::Databases) {
        let types = drawn_types(&server.store, index)?;
        if !types.is_empty() {
            let drawn: usize = types.values().sum();
            let types = types.iter().map(|(name, keys)| format!(",{name}={keys}"));
            let types: String = types.collect();
            fields.add(
                &format!("types_db{index}"),
                format_args!("drawn={drawn}{types}"),
            );
        }
    }
    Ok(())
}

/// The supervisor that receives the process' state.
fn supervisor() -> &'static str {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(_) => "systemd",
        None => "no",
    }
}

/// Bytes in Redis's human-readable form.
fn human(bytes: u64) -> String {
    let units = [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.2}{unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes}B"),
    }
}
