//! The exported metrics. Each number is the one in `INFO`, in the units that Prometheus asks for:
//! seconds and bytes.

use mneme_durable::GateState;
use mneme_sys::{TimeOf, cpu_time, resident_memory};

use super::exposition::Exposition;
use crate::client_memory;
use crate::key_types::drawn_types;
use crate::settings::Key;
use crate::shared::Shared;
use crate::statistics::Statistics;
use crate::version;
use mneme_log::Stats;

/// The smallest and the largest bound of a distribution: 2^10 ns, a microsecond, and 2^34 ns,
/// seventeen seconds.
const BOUNDS: (u32, u32) = (10, 34);

/// The complete page.
pub(super) fn page(server: &Shared) -> String {
    let mut page = Exposition::default();
    process(&mut page, server);
    clients(&mut page, server);
    commands(&mut page, server);
    // This thread serves no clients, so it may wait for the system to count the pages; but at most
    // once a second, however often it is asked.
    server
        .pages
        .refresh(&server.store, 1_000_000_000, || server.now_ns());
    let (pages, _) = server.pages.last(server.now_ns());
    memory(&mut page, &server.store.stats_with(pages));
    keys(&mut page, server);
    segment(&mut page, server);
    durability(&mut page, server);
    page.into_text()
}

/// The metrics of data on disk, if there are any.
fn durability(page: &mut Exposition, server: &Shared) {
    page.gauge("mneme_loading", "Whether the data is still being loaded.")
        .is(u8::from(server.store.is_loading()));
    let Some(durability) = server.store.durability() else {
        return;
    };
    let stats = durability.stats();
    page.gauge(
        "mneme_durable_writes_refused",
        "Whether writes are refused, because the disk is full or fails.",
    )
    .is(u8::from(stats.state != GateState::Open));
    page.gauge(
        "mneme_durable_pending_bytes",
        "Changes that were made and are not durable yet.",
    )
    .is(stats.pending);
    page.gauge(
        "mneme_checkpoint_running",
        "Whether a checkpoint or a backup is being written.",
    )
    .is(u8::from(stats.checkpoints.running.is_some()));
    page.counter(
        "mneme_checkpoints_total",
        "Checkpoints and backups that were written.",
    )
    .is(stats.checkpoints.published);
    page.counter(
        "mneme_checkpoint_failures_total",
        "Checkpoints and backups that could not be written.",
    )
    .is(stats.checkpoints.failed);
    page.counter(
        "mneme_scrub_damaged_total",
        "Damaged places that were found in the tree on disk.",
    )
    .is(stats.scrub.damaged);
    page.gauge(
        "mneme_journal_bytes",
        "Changes that the journal's files hold.",
    )
    .is(stats.durable.saturating_sub(stats.journal_first));
    page.gauge(
        "mneme_journal_free_bytes",
        "Space of the journal that is preallocated; what is in flight fits even if the disk is full.",
    )
    .is(stats.journal.free_space);
    page.counter(
        "mneme_journal_written_bytes_total",
        "Bytes written to the journal's files.",
    )
    .is(stats.journal.written);
    page.counter(
        "mneme_journal_syncs_total",
        "Groups of changes that one sync made durable.",
    )
    .is(stats.groups);
    page.counter(
        "mneme_journal_sync_seconds_total",
        "Time that these syncs took.",
    )
    .is(stats.sync_ns as f64 / 1e9);
}

fn process(page: &mut Exposition, server: &Shared) {
    let mut build = page.gauge("mneme_build_info", "The version, as labels; always 1.");
    let versions = [
        ("version", version::MNEME),
        ("redis_version", version::REDIS),
    ];
    build.add(&versions, 1);
    page.gauge("mneme_uptime_seconds", "Seconds since the start.")
        .is(server.uptime_s());
    let mut time = page.counter(
        "mneme_cpu_seconds_total",
        "Processor time of the server's process.",
    );
    let used = cpu_time(TimeOf::Process);
    time.add(&[("mode", "user")], used.user.as_secs_f64());
    time.add(&[("mode", "system")], used.system.as_secs_f64());
    page.gauge("mneme_io_threads", "Threads that serve clients.")
        .is(server.threads.len());
    page.gauge(
        "mneme_process_resident_bytes",
        "Memory that the process has mapped and that is present.",
    )
    .is(resident_memory().unwrap_or(0));
}

fn clients(page: &mut Exposition, server: &Shared) {
    let totals = server.totals();
    page.gauge("mneme_connected_clients", "Connections now.")
        .is(server.connected());
    page.gauge(
        "mneme_max_clients",
        "Connections beyond which others are refused.",
    )
    .is(server.settings.count(Key::MaxClients));
    page.gauge(
        "mneme_blocked_clients",
        "Clients whose command waits for a key, or for the end of a pause.",
    )
    .is(server.blocked());
    let topics = server.pubsub.counts();
    for (name, help, count) in [
        (
            "mneme_channels",
            "Channels that somebody has subscribed to.",
            topics.channels,
        ),
        (
            "mneme_channel_patterns",
            "Patterns of channels that somebody has subscribed to.",
            topics.patterns,
        ),
        (
            "mneme_shard_channels",
            "Shard channels that somebody has subscribed to.",
            topics.shard_channels,
        ),
    ] {
        page.gauge(name, help).is(count);
    }
    if let Some(days) = server.certificate_days() {
        page.gauge(
            "mneme_tls_certificate_days",
            "Days until the certificate of tls-port ends; negative once it has.",
        )
        .is(days);
    }
    page.gauge(
        "mneme_client_memory_bytes",
        "Memory that all clients take; maxmemory-clients bounds it.",
    )
    .is(client_memory::used(server));
    page.gauge(
        "mneme_tracking_bytes",
        "Memory of the table of the keys that clients track.",
    )
    .is(server.tracking.totals().bytes);
    page.counter(
        "mneme_evicted_clients_total",
        "Clients disconnected because all together took too much memory.",
    )
    .is(server.evictions.count());
    for (name, help, count) in [
        (
            "mneme_connections_received_total",
            "Connections accepted, refused ones included.",
            totals.connections,
        ),
        (
            "mneme_connections_rejected_total",
            "Connections refused.",
            totals.rejected,
        ),
        (
            "mneme_commands_processed_total",
            "Commands executed, failed ones included.",
            totals.commands,
        ),
        (
            "mneme_net_input_bytes_total",
            "Bytes received from clients.",
            totals.input,
        ),
        (
            "mneme_net_output_bytes_total",
            "Bytes sent to clients.",
            totals.output,
        ),
        (
            "mneme_net_reads_total",
            "Reads from sockets that brought something.",
            totals.reads,
        ),
        (
            "mneme_net_writes_total",
            "Writes to sockets.",
            totals.writes,
        ),
        (
            "mneme_keyspace_hits_total",
            "Keys looked up and found.",
            totals.hits,
        ),
        (
            "mneme_keyspace_misses_total",
            "Keys looked up and not found.",
            totals.misses,
        ),
    ] {
        page.counter(name, help).is(count);
    }
    let mut errors = page.counter(
        "mneme_error_replies_total",
        "Error replies, by their first word.",
    );
    for (code, count) in Statistics::all_errors(server.statistics()) {
        errors.add(&[("code", &code)], count);
    }
}

fn commands(page: &mut Exposition, server: &Shared) {
    let called: Vec<_> = server
        .commands
        .executable()
        .map(|command| (command.name, server.calls(command)))
        .filter(|(_, totals)| totals.calls + totals.rejected > 0)
        .collect();
    let mut calls = page.counter(
        "mneme_command_calls_total",
        "Calls by command, failed ones included.",
    );
    for (name, totals) in &called {
        calls.add(&[("command", name)], totals.calls);
    }
    let mut time = page.counter(
        "mneme_command_seconds_total",
        "The time that the calls of a command took together.",
    );
    for (name, totals) in &called {
        time.add(&[("command", name)], seconds(totals.nanoseconds));
    }
    let mut failed = page.counter(
        "mneme_command_failures_total",
        "Calls that ended in an error.",
    );
    for (name, totals) in &called {
        failed.add(&[("command", name)], totals.failed);
    }
    let mut rejected = page.counter(
        "mneme_command_rejections_total",
        "Calls that were refused before they began.",
    );
    for (name, totals) in &called {
        rejected.add(&[("command", name)], totals.rejected);
    }
    let mut spread = page.histogram(
        "mneme_command_duration_seconds",
        "How long calls took, if latency-tracking is on.",
    );
    for (name, totals) in &called {
        let times = &totals.distribution;
        let count = times.calls();
        if count > 0 {
            // The times are whole nanoseconds: below 1024 means at most 1023.
            let rows = times
                .below(BOUNDS.0, BOUNDS.1)
                .map(|(bound, seen)| (seconds(bound - 1), seen));
            let sum = seconds(totals.spread_nanoseconds);
            spread.spread(("command", name), rows, count, sum);
        }
    }
    page.gauge("mneme_slowlog_entries", "Commands that the SLOWLOG holds.")
        .is(server.slowlog.len());
}

fn memory(page: &mut Exposition, stats: &Stats) {
    let mut uses = page.gauge(
        "mneme_memory_bytes",
        "The store's memory by what it is used for; all uses together are its capacity.",
    );
    for (name, bytes) in [
        ("live", stats.live_bytes),
        ("stale", stats.stale_bytes),
        ("index", stats.index_bytes),
        ("heads", stats.head_bytes),
        ("tables", stats.overhead_bytes),
        ("free", stats.free_bytes),
    ] {
        uses.add(&[("use", name)], bytes);
    }
    page.gauge(
        "mneme_memory_target_fill_ratio",
        "The share of the log that is to live; 0: activedefrag is no.",
    )
    .is(stats.target_fill);
    for (name, help, bytes) in [
        (
            "mneme_memory_capacity_bytes",
            "The store's memory: maxmemory.",
            stats.capacity,
        ),
        (
            "mneme_memory_max_capacity_bytes",
            "What the store may grow to.",
            stats.max_capacity,
        ),
        (
            "mneme_memory_reserve_bytes",
            "Free memory that only compaction may take.",
            stats.reserve_bytes,
        ),
        (
            "mneme_memory_spare_bytes",
            "Free memory that was in use and is resident still.",
            stats.spare_bytes,
        ),
        (
            "mneme_memory_resident_bytes",
            "The store's memory that is present in this process.",
            stats.pages.resident_bytes as u64,
        ),
        (
            "mneme_memory_huge_page_bytes",
            "Of the resident memory, what is in pages of 2 MiB or more.",
            stats.pages.huge_bytes as u64,
        ),
        ("mneme_log_segments", "Log segments.", stats.segments),
        (
            "mneme_log_segments_condemned",
            "Log segments that are empty and wait for readers to leave.",
            stats.condemned,
        ),
    ] {
        page.gauge(name, help).is(bytes);
    }
    page.counter(
        "mneme_compaction_moved_bytes_total",
        "Records that compaction has moved since the store was made.",
    )
    .is(stats.moved_bytes);
    page.counter(
        "mneme_log_written_bytes_total",
        "Records that were appended since the store was made, copies of compaction excepted.",
    )
    .is(stats.written_bytes);
}

fn keys(page: &mut Exposition, server: &Shared) {
    let dropped = server.dropped();
    page.counter(
        "mneme_expired_keys_total",
        "Keys removed because their time had come.",
    )
    .is(dropped.expired);
    page.counter(
        "mneme_evicted_keys_total",
        "Keys dropped because the store was full.",
    )
    .is(dropped.evicted);
    let found: Vec<_> = (0..server.settings.count(Key::Databases))
        .filter_map(|index| {
            // A damaged database has no count; `mneme check` reports the damage.
            let found = server.store.database(index).and_then(|one| one.keyspace());
            Some((index.to_string(), found.ok()?))
        })
        .filter(|(_, found)| found.records > 0)
        .collect();
    let mut keys = page.gauge(
        "mneme_database_keys",
        "Keys by database, of those with any.",
    );
    for (index, found) in &found {
        keys.add(&[("database", index)], found.records);
    }
    let mut expiring = page.gauge(
        "mneme_database_expiring_keys",
        "Of these, keys that are to expire.",
    );
    for (index, found) in &found {
        expiring.add(&[("database", index)], found.expiring);
    }
    let mut drawn = page.gauge(
        "mneme_database_drawn_keys",
        "By type, some keys that were drawn by lot for this page.",
    );
    for (index, _) in &found {
        let database = index.parse().unwrap_or(0);
        let types = drawn_types(&server.store, database).unwrap_or_default();
        for (name, keys) in types {
            drawn.add(&[("database", index), ("type", name)], keys);
        }
    }
}

fn segment(page: &mut Exposition, server: &Shared) {
    if server.store.segment().is_none() {
        return;
    }
    let processes = server.store.processes();
    let others = processes.iter().filter(|process| !process.is_asker);
    page.gauge(
        "mneme_attached_processes",
        "Processes beside the server that have the store attached.",
    )
    .is(others.clone().count());
    page.gauge(
        "mneme_stopped_processes",
        "Of these, the ones that are stopped and may hold others up.",
    )
    .is(others.filter(|process| process.is_stopped()).count());
    let changes = server.local_changes.stats(&server.store, server);
    let mut counter = page.counter("mneme_local_changes_total", "Changes by attached programs.");
    for (what, count) in [
        ("stored", changes.stored),
        ("removed", changes.removed),
        ("expired", changes.expired),
        ("evicted", changes.evicted),
        ("database", changes.databases),
    ] {
        counter.add(&[("what", what)], count);
    }
    page.counter(
        "mneme_local_changes_lost_total",
        "How often the server may have missed some of these.",
    )
    .is(changes.lost);
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
