//! `INFO persistence`: the state of the data on disk.

use mneme_durable::{DurabilityMode, DurabilityStats, GateState};

use super::Fields;
use super::sections::add_zeros;
use crate::command::*;
use crate::saver::changes_since;
use crate::settings::Key;
use crate::shared::Shared;

/// Numbers that Redis reports about forks and copied memory. This server does not fork.
const ZEROS: &[&str] = &[
    "async_loading",
    "rdb_last_cow_size",
    "aof_last_cow_size",
    "module_fork_in_progress",
];

pub(super) fn persistence(server: &Shared, fields: &mut Fields) -> Outcome {
    let is_loading = server.store.is_loading();
    fields.add("loading", u8::from(is_loading));
    add_zeros(fields, ZEROS);
    fields.add("aof_enabled", u8::from(server.settings.is(Key::Data)));
    if is_loading {
        let now = server.loading.progress(server.now_ns());
        fields.add("loading_start_time", now.begun_s);
        fields.add("loading_total_bytes", now.total);
        fields.add("loading_loaded_bytes", now.done);
        fields.add("loading_loaded_perc", format_args!("{:.2}", now.percent));
        fields.add("loading_eta_seconds", now.left_s);
    }
    match server.store.durability() {
        Some(durability) => kept(server, &durability.stats(), fields),
        // Nothing is written to disk, so nothing has failed or takes time. Fields that could be
        // read as "saved" are left out.
        None => {
            add_zeros(
                fields,
                &[
                    "rdb_bgsave_in_progress",
                    "rdb_saves",
                    "aof_rewrite_in_progress",
                    "aof_rewrite_scheduled",
                    "aof_rewrites",
                ],
            );
            for name in ["rdb_last_bgsave", "rdb_current_bgsave", "aof_last_rewrite"] {
                fields.add(&format!("{name}_time_sec"), -1);
            }
        }
    }
    Ok(())
}

/// The fields for a store that is kept in a directory.
fn kept(server: &Shared, stats: &DurabilityStats, fields: &mut Fields) {
    let writes = match stats.state {
        GateState::Open => "ok",
        GateState::RefusesWrites(_) | GateState::Failed => "err",
    };
    let checkpoints = &stats.checkpoints;
    let is_running = u8::from(checkpoints.running.is_some());
    let last = match checkpoints.why.is_empty() {
        true => "ok",
        false => "err",
    };
    let last_s = match checkpoints.published + checkpoints.failed {
        0 => -1,
        _ => (checkpoints.last_ns / 1_000_000_000) as i64,
    };
    // Checkpoints serve both purposes: they hold all records in a file, and shorten the journal.
    let changes = changes_since(server, checkpoints);
    fields.add("rdb_changes_since_last_save", changes);
    fields.add("rdb_bgsave_in_progress", is_running);
    fields.add("rdb_last_save_time", last_save_s(server, stats));
    fields.add("rdb_last_bgsave_status", last);
    fields.add("rdb_last_bgsave_time_sec", last_s);
    fields.add("rdb_saves", checkpoints.published);
    if let Some((records, bytes)) = checkpoints.running {
        fields.add("current_save_keys_processed", records);
        fields.add("current_save_keys_total", server.store.records());
        fields.add("mneme_checkpoint_bytes", bytes);
    }
    fields.add("aof_rewrite_in_progress", is_running);
    fields.add(
        "aof_rewrite_scheduled",
        u8::from(server.saver.is_scheduled()),
    );
    fields.add("aof_last_rewrite_time_sec", last_s);
    fields.add("aof_last_bgrewrite_status", last);
    fields.add("aof_rewrites", checkpoints.published);
    fields.add("mneme_checkpoint_failures", checkpoints.failed);
    fields.add("mneme_checkpoint_reason", &checkpoints.why);
    fields.add("mneme_journal_since_checkpoint", checkpoints.journal_bytes);
    fields.add("aof_last_write_status", writes);
    fields.add(
        "aof_current_size",
        stats.durable.saturating_sub(stats.journal_first),
    );
    fields.add("aof_buffer_length", stats.pending);
    fields.add("mneme_data", server.settings.show(Key::Data));
    fields.add("mneme_durability", stats.mode);
    fields.add("mneme_durable_state", state(stats.state));
    fields.add("mneme_durable_reason", &stats.why);
    fields.add("mneme_durable_position", stats.durable);
    fields.add("mneme_durable_pending_bytes", stats.pending);
    fields.add("mneme_feed_bytes", stats.feed_capacity);
    fields.add("mneme_journal_written_bytes", stats.journal.written);
    fields.add("mneme_journal_files", stats.journal.files);
    fields.add("mneme_journal_spares", stats.journal.spares);
    fields.add("mneme_journal_free_bytes", stats.journal.free_space);
    fields.add("mneme_journal_groups", stats.groups);
    fields.add("mneme_journal_sync_usec", stats.sync_ns / 1000);
    fields.add("mneme_journal_last_sync_usec", stats.last_sync_ns / 1000);
    if stats.mode == DurabilityMode::Tree {
        fields.add("mneme_scrub_bytes", stats.scrub.bytes);
        fields.add("mneme_scrub_rounds", stats.scrub.rounds);
        fields.add("mneme_scrub_damaged", stats.scrub.damaged);
        fields.add("mneme_scrub_reason", &stats.scrub.why);
    }
}

/// When the last checkpoint was written, or else the server started, in seconds since 1970.
pub(crate) fn last_save_s(server: &Shared, stats: &DurabilityStats) -> u64 {
    match stats.checkpoints.last_wall_ms {
        0 => server.started_s(),
        last_ms => last_ms / 1000,
    }
}

/// A word for whether writes are accepted, and whether replies wait as `appendfsync` demands.
pub(crate) fn state(state: GateState) -> &'static str {
    match state {
        GateState::Open => "ok",
        GateState::RefusesWrites(_) => "refuses-writes",
        // Reads are answered, and may show data that a power loss would revert.
        GateState::Failed => "failed-reads-not-durable",
    }
}
