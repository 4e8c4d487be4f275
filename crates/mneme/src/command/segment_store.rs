//! The part of `mneme segment` for segments that hold a log store.

use std::error::Error;

use mneme::{Access, GrowError, Life, Process, Registry, SharedStore, StoreOptions, UpdatePolicy};
use mneme_shared::CONTENTS;
use mneme_space::Segment;
use serde_json::{Value, json};

use super::registry::table;
use super::{output, size};

/// Whether a segment holds a store.
pub fn is_one(segment: &Segment) -> bool {
    segment.contents() == Some(CONTENTS.kind)
}

/// The store's properties, as lines of `mneme segment show`.
pub fn lines(store: &SharedStore) -> Vec<(&'static str, String)> {
    let stats = store.stats();
    let used = stats.capacity.saturating_sub(stats.free_bytes);
    vec![
        ("records", stats.records.to_string()),
        (
            "used",
            format!(
                "{} of {}, {} of it live records",
                size::show(used),
                size::show(stats.capacity),
                size::show(stats.live_bytes)
            ),
        ),
        ("updates", policy(store.update_policy()).to_owned()),
    ]
}

/// The store's properties as JSON.
pub fn as_json(store: &SharedStore) -> Value {
    let stats = store.stats();
    let processes: Vec<Value> = others(store).iter().map(process_as_json).collect();
    json!({
        "records": stats.records,
        "capacity": stats.capacity,
        "used": stats.capacity.saturating_sub(stats.free_bytes),
        "live": stats.live_bytes,
        "update_policy": policy(store.update_policy()),
        "processes": processes,
    })
}

/// Parses an update policy.
fn read_policy(text: &str) -> Result<UpdatePolicy, String> {
    match text {
        "append" => Ok(UpdatePolicy::Append),
        "in-place" => Ok(UpdatePolicy::InPlace),
        _ => Err("say append or in-place".to_owned()),
    }
}

fn policy(policy: UpdatePolicy) -> &'static str {
    match policy {
        UpdatePolicy::InPlace => "in-place",
        _ => "append",
    }
}

/// The processes that have the store attached, except this one.
fn others(store: &SharedStore) -> Vec<Process> {
    let mut processes = store.processes();
    processes.retain(|process| !process.is_asker);
    processes
}

fn process_as_json(process: &Process) -> Value {
    let work: Vec<String> = process.work.iter().map(ToString::to_string).collect();
    json!({
        "pid": process.pid,
        "attached_ms": process.attached_ms,
        "state": state(process),
        "threads": process.threads,
        "serves": process.serves,
        "maintains": process.maintains,
        "work": work,
        "holds_up": process.is_stopped() && process.may_hold_up(),
    })
}

fn state(process: &Process) -> String {
    match (process.life, process.state) {
        (Life::Alive, Some(state)) => state.to_string(),
        (Life::Alive, None) => "alive, and not to be seen from here".to_owned(),
        (Life::Dead, _) => "dead, and not yet repaired after".to_owned(),
        (Life::Reaping, _) => "dead, and being repaired after".to_owned(),
    }
}

/// A table of the processes that have the store attached.
pub fn processes(store: &SharedStore) -> String {
    let others = others(store);
    if others.is_empty() {
        return "no process has it\n".to_owned();
    }
    let rows: Vec<[String; 4]> = others
        .iter()
        .map(|process| {
            let mut does: Vec<String> = Vec::new();
            does.extend(process.serves.then(|| "serves".to_owned()));
            does.extend(process.maintains.then(|| "maintains".to_owned()));
            if let Some(pin) = process.oldest_pin {
                let kind = if pin.firm {
                    "reads"
                } else {
                    "reads, revocably"
                };
                does.push(kind.to_owned());
            }
            does.extend(process.work.iter().map(ToString::to_string));
            [
                process.pid.to_string(),
                state(process),
                process.threads.to_string(),
                does.join(", "),
            ]
        })
        .collect();
    table(["PID", "STATE", "THREADS", "DOES"], &rows)
}

/// `mneme segment check` for a store: checks all of it.
pub fn check(registry: &Registry, name: &str, json: bool) -> Result<(), Box<dyn Error>> {
    let options = StoreOptions::new().maintainer(false).administers(true);
    let store = options.attach(registry, name, Access::ReadWrite)?;
    let mut report = store.check()?;
    let problems = mneme_collections::check_while(&store, &|| true)?;
    report.problems.extend(problems);
    if json {
        let (records, problems) = (report.records, &report.problems);
        let report = json!({ "records": records, "problems": problems });
        output::line(format_args!("{report:#}"))?;
    } else {
        output::line(format_args!("{name}: {} records", report.records))?;
        for problem in &report.problems {
            output::line(problem)?;
        }
    }
    match report.problems.len() {
        0 => Ok(()),
        problems => Err(format!("{problems} things are wrong with the store in {name}").into()),
    }
}

/// `mneme segment grow` for a store. Returns its size afterwards.
pub fn grow(registry: &Registry, name: &str, bytes: u64) -> Result<u64, Box<dyn Error>> {
    let options = StoreOptions::new().maintainer(false).administers(true);
    let store = options.attach(registry, name, Access::ReadWrite)?;
    match store.grow(bytes) {
        Err(GrowError::BeyondMax { asked, max }) => Err(format!(
            "{name} can grow to {}, and {} were asked for: `mneme segment upgrade {name} --memory {asked}` lays it out anew",
            size::show(max),
            size::show(asked),
        )
        .into()),
        grown => Ok(grown?),
    }
}

/// `mneme segment unstick` for a store: lists the processes that block others, and ends one of them
/// if asked to.
pub fn unstick(
    registry: &Registry,
    name: &str,
    end: Option<u32>,
    json: bool,
) -> Result<(), Box<dyn Error>> {
    // Attached read-only unless a process is to be ended, since the store may be blocked.
    let store = SharedStore::administer(registry, name)?;
    if let Some(pid) = end {
        let others = others(&store);
        let all_of_it = others.iter().filter(|process| process.pid == pid);
        let lives: Vec<bool> = all_of_it
            .map(|process| process.life == Life::Alive)
            .collect();
        if lives.is_empty() {
            return Err(format!("process {pid} does not have {name}; nothing was done").into());
        }
        // If the process is dead, its number may meanwhile belong to another: nothing is ended,
        // only what it left is repaired.
        if lives.contains(&true) {
            end_one_of_ours(pid, &store)?;
        }
        drop(store);
        // Attaching for writing repairs what the dead process left.
        let options = StoreOptions::new().maintainer(false);
        let store = options.attach(registry, name, Access::ReadWrite)?;
        let gone = || !store.processes().iter().any(|process| process.pid == pid);
        for _ in 0..100 {
            store.reap()?;
            if gone() {
                break;
            }
            // The kernel takes a moment to end the process.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        return report_condition(&store, name, json);
    }
    report_condition(&store, name, json)
}

/// Ends a process, but only if it has the store's data mapped. The number recorded in the store is
/// valid in the PID namespace of that process, and may denote another process in this one.
fn end_one_of_ours(pid: u32, store: &SharedStore) -> Result<(), Box<dyn Error>> {
    let identity = store.segment().uuid().to_string();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))
        .map_err(|error| format!("cannot see what process {pid} has: {error}; nothing was done"))?;
    if !maps.contains(&identity) {
        return Err(format!(
            "process {pid} of this machine is another than the one that has the store, which lives in another container; \
             nothing was done"
        )
        .into());
    }
    Ok(mneme_sys::end_process(pid)?)
}

fn report_condition(store: &SharedStore, name: &str, json: bool) -> Result<(), Box<dyn Error>> {
    if json {
        return output::line(format_args!("{:#}", as_json(store)));
    }
    output::print(processes(store))?;
    for process in others(store) {
        if process.is_stopped() && process.may_hold_up() {
            output::line(format_args!(
                "process {pid} is stopped and may hold up the others: `kill -CONT {pid}` lets it go on, and `mneme segment \
                 unstick {name} --end {pid}` ends it and repairs what it leaves",
                pid = process.pid
            ))?;
        }
    }
    Ok(())
}

/// The arguments of `mneme segment upgrade`.
#[derive(Debug, clap::Args)]
pub struct Upgrade {
    /// The segment.
    name: String,

    /// Bytes of the new store; those of the present one unless said otherwise.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<size::Size>,

    /// Bytes that it may grow to; the machine's memory unless said otherwise.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_memory: Option<size::Size>,

    /// How it updates records; as the present one unless said otherwise.
    #[arg(long, value_name = "append|in-place", value_parser = read_policy)]
    update_policy: Option<UpdatePolicy>,
}

/// Rebuilds a store with another size or policy.
pub fn upgrade(registry: &Registry, asked: Upgrade) -> Result<(), Box<dyn Error>> {
    let Upgrade {
        name,
        memory,
        max_memory,
        update_policy,
    } = asked;
    let mut options = StoreOptions::new();
    // If an earlier upgrade was interrupted between its two renames, the remaining steps follow
    // from the files that exist.
    if let Ok(present) = SharedStore::administer(registry, &name) {
        let capacity = memory.map_or(present.capacity(), |size| size.0);
        options = options
            .capacity(capacity)
            .evict(present.eviction())
            .mode(present.segment().info()?.mode)
            .backing(present.segment().info()?.backing)
            .update_policy(update_policy.unwrap_or(present.update_policy()));
    }
    if let Some(size::Size(bytes)) = max_memory {
        options = options.max_capacity(bytes);
    }
    let done = options.upgrade(registry, &name)?;
    output::line(format_args!(
        "{name}: {} records; the old store is `{old}`: remove it by `mneme segment rm {old}`",
        done.records,
        old = done.old
    ))
}
