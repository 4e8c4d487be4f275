//! Checks of a running server, based on its `INFO`.

use crate::command::client::{AskError, Info, Where, part};
use crate::command::size;

use super::{Finding, State};

/// All checks of a server, the most important for most users first.
const CHECKS: &[fn(&Info) -> Option<Finding>] = &[
    memory,
    eviction,
    compaction,
    pages,
    clients,
    open,
    certificate,
    slow,
    latency,
    programs,
];

/// A store is nearly full if records, or memory that compaction cannot free, take more than this
/// share of it.
const FULL: f64 = 0.9;

/// A server is running out of connections if more than this share of them is in use.
const CROWDED: f64 = 0.9;

/// The 99.9th percentile of a command's time, in microseconds, from which it is worth a look.
const LATE_US: f64 = 10_000.0;

/// The findings about the server at `place`; a single one if there is no server.
pub fn examine(place: &Where) -> Vec<Finding> {
    const NAME: &str = "server";
    let asked = place.connect().and_then(|mut client| client.info());
    let info = match asked {
        Ok(info) => info,
        Err(AskError::Connect { place: at, .. }) if !place.is_chosen() => {
            let found = format!("none at {at}: what a running one would tell is left out");
            return vec![Finding::new(NAME, State::Good, found)];
        }
        Err(error) => {
            let finding = Finding::new(NAME, State::Bad, error.to_string());
            return vec![finding.advise(
                "it is not looked at: `--host`, `--port`, `--unixsocket` and `--requirepass` say which, and how to be let in",
            )];
        }
    };
    let version = match info.text("mneme_version") {
        "" => format!("Redis {}", info.text("redis_version")),
        version => format!("Mneme {version}"),
    };
    let found = format!(
        "{version} at {}, process {}",
        place.place(),
        info.text("process_id")
    );
    let mut findings = vec![Finding::new(NAME, State::Good, found)];
    if !info.text("mneme_version").is_empty() {
        findings.extend(judge(&info));
    }
    findings
}

fn judge(info: &Info) -> impl Iterator<Item = Finding> {
    CHECKS.iter().filter_map(move |check| check(info))
}

fn finding(name: &'static str, is_good: bool, else_: State, found: String) -> Finding {
    let state = if is_good { State::Good } else { else_ };
    Finding::new(name, state, found)
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn refuses(info: &Info) -> bool {
    info.text("maxmemory_policy") == "noeviction"
}

fn memory(info: &Info) -> Option<Finding> {
    const NAME: &str = "server memory";
    let (capacity, records) = (info.number("maxmemory"), info.number("used_memory_dataset"));
    let machine = info.number("total_system_memory");
    if capacity > machine {
        let found = format!(
            "maxmemory is {}, of {} that there are",
            size::show(capacity),
            size::show(machine)
        );
        return Some(Finding::new(NAME, State::Bad, found).advise(
            "the kernel ends the server before the store is full: serve a smaller store, or raise the limit",
        ));
    }
    // Reserved frames are for compaction, which also frees the stale bytes.
    let (free, stale) = (
        info.number("mneme_free_bytes"),
        info.number("mneme_stale_bytes"),
    );
    let kept = info.number("mneme_reserve_bytes") + info.number("mneme_unbacked_bytes");
    let left = (free + stale).saturating_sub(kept);
    let found = format!(
        "{} of {} in records ({:.0} %), free space for {} more",
        size::show(records),
        size::show(capacity),
        100.0 * share(records, capacity),
        size::show(left)
    );
    let refused = part(info.text("errorstat_OOM"), "count");
    let is_full = share(records, capacity) >= FULL;
    if !refuses(info) {
        let finding = finding(NAME, !is_full, State::Worth, found);
        return Some(match finding.state {
            State::Good => finding,
            _ => finding.advise(
                "compaction costs more, the less free space it has: `CONFIG SET maxmemory`",
            ),
        });
    }
    if is_full || share(left, capacity) < 1.0 - FULL {
        let found = match refused {
            "" => found,
            count => format!("{found}; {count} writes refused"),
        };
        return Some(Finding::new(NAME, State::Bad, found).advise(
            "writes cost more, and are refused without free space: `CONFIG SET maxmemory`, or let it forget by `maxmemory-policy`",
        ));
    }
    Some(match refused {
        "" => Finding::new(NAME, State::Good, found),
        count => Finding::new(
            NAME,
            State::Worth,
            format!("{found}; {count} writes were refused"),
        )
        .advise("it was full: `CONFIG SET maxmemory`; `CONFIG RESETSTAT` forgets the count"),
    })
}

fn eviction(info: &Info) -> Option<Finding> {
    let evicted = info.number("evicted_keys");
    let policy = match refuses(info) {
        true => "noeviction, writes are refused once it is full".to_owned(),
        false => info.text("maxmemory_policy").to_owned(),
    };
    let found = format!("{policy}; {evicted} keys evicted");
    let finding = finding("eviction", evicted == 0, State::Worth, found);
    Some(match finding.state {
        State::Good => finding,
        _ => finding.advise(
            "what was forgotten may be wanted again: look at keyspace_misses, or give it more memory",
        ),
    })
}

fn compaction(info: &Info) -> Option<Finding> {
    let condemned = info.number("mneme_condemned_segments");
    let stalled =
        condemned > 0 && info.number("mneme_free_bytes") <= info.number("mneme_reserve_bytes");
    let moved = size::show(info.number("mneme_moved_bytes"));
    let found = match stalled {
        true => format!("stalled: {condemned} emptied log segments wait for readers"),
        false => format!("{moved} moved so far"),
    };
    let finding = finding("compaction", !stalled, State::Bad, found);
    Some(match stalled {
        true => finding.advise(
            "`mneme segment show` says who reads, `mneme segment unstick` ends one that is stopped",
        ),
        false => finding,
    })
}

fn pages(info: &Info) -> Option<Finding> {
    let warning = info.text("mneme_page_warning");
    let found = match warning {
        "" => format!(
            "{} of {} resident in huge ones",
            size::show(info.number("mneme_huge_page_bytes")),
            size::show(info.number("mneme_resident_bytes"))
        ),
        warning => warning.to_owned(),
    };
    Some(finding(
        "server pages",
        warning.is_empty(),
        State::Worth,
        found,
    ))
}

fn clients(info: &Info) -> Option<Finding> {
    let (now, most) = (info.number("connected_clients"), info.number("maxclients"));
    let rejected = info.number("rejected_connections");
    let found = format!("{now} of {most}, {rejected} refused so far");
    let is_good = share(now, most) < CROWDED && rejected == 0;
    let finding = finding("clients", is_good, State::Worth, found);
    Some(match is_good {
        true => finding,
        false => finding.advise(
            "`maxclients` and the limit of open files bound them; others than this machine need a password, or protected-mode off",
        ),
    })
}

fn open(info: &Info) -> Option<Finding> {
    let is_open = info.text("mneme_open_to_network") == "1";
    let found = match is_open {
        true => {
            "every program that reaches an address of this machine may do everything, without a password"
        }
        false => "others than this machine's programs need a password",
    };
    let finding = finding("access", !is_open, State::Bad, found.to_owned());
    Some(match is_open {
        true => finding.advise("`requirepass`, users in an `aclfile`, or `protected-mode yes`"),
        false => finding,
    })
}

/// The number of days before a certificate's expiry from which a finding is made.
const FEW_DAYS: i64 = 14;

fn certificate(info: &Info) -> Option<Finding> {
    if matches!(info.text("mneme_tls_port"), "" | "0") {
        return None;
    }
    let days: i64 = info.text("mneme_tls_certificate_days").parse().ok()?;
    let found = match days {
        ..0 => "it is no longer valid: clients refuse it".to_owned(),
        days => format!("valid for {days} days"),
    };
    let state = if days < 0 { State::Bad } else { State::Worth };
    let finding = finding("certificate", days >= FEW_DAYS, state, found);
    Some(match finding.state {
        State::Good => finding,
        _ => finding.advise(
            "put another one in its place, and have it read: SIGHUP, or `CONFIG SET tls-cert-file`",
        ),
    })
}

fn slow(info: &Info) -> Option<Finding> {
    let count = info.number("slowlog_len");
    let finding = finding(
        "slow commands",
        count == 0,
        State::Worth,
        format!("{count} in the SLOWLOG"),
    );
    Some(match count {
        0 => finding,
        _ => finding
            .advise("`SLOWLOG GET` has them, with who sent them; `SLOWLOG RESET` forgets them"),
    })
}

fn latency(info: &Info) -> Option<Finding> {
    let times = info.beginning("latency_percentiles_usec_");
    let slowest =
        times.filter_map(|(name, list)| Some((part(list, "p99.9").parse::<f64>().ok()?, name)));
    let (us, name) = slowest.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let found = format!("p99.9 of the slowest command, {name}: {us:.0} us");
    let finding = finding("latency", us < LATE_US, State::Worth, found);
    Some(match finding.state {
        State::Good => finding,
        _ => finding
            .advise("`mneme stat` shows all commands, `LATENCY DOCTOR` what took long and when"),
    })
}

fn programs(info: &Info) -> Option<Finding> {
    let segment = info.text("mneme_segment");
    if matches!(segment, "" | "none") {
        return None;
    }
    let (stopped, lost) = (
        info.number("mneme_stopped_processes"),
        info.number("mneme_local_changes_lost"),
    );
    let found = format!(
        "{} attached to segment {segment}, {stopped} of them stopped; changes may have been missed {lost} times",
        info.number("mneme_attached_processes")
    );
    let state = match stopped {
        0 => State::Worth,
        _ => State::Bad,
    };
    let finding = finding("local programs", stopped + lost == 0, state, found);
    Some(match finding.state {
        State::Good => finding,
        State::Bad => finding
            .advise("one that is stopped may hold others up: `mneme segment show`, then `unstick`"),
        State::Worth => finding
            .advise("the server could not count all that they did; nothing is wrong with the data"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings for a healthy server with some of its fields changed.
    fn judged(changes: &[(&str, &str)]) -> Vec<Finding> {
        let healthy = [
            ("maxmemory", "1073741824"),
            ("total_system_memory", "8589934592"),
            ("used_memory_dataset", "104857600"),
            ("mneme_free_bytes", "500000000"),
            ("mneme_stale_bytes", "400000000"),
            ("mneme_reserve_bytes", "10000000"),
            ("maxmemory_policy", "noeviction"),
            ("maxclients", "100"),
            ("connected_clients", "3"),
            ("mneme_segment", "default"),
            ("mneme_open_to_network", "0"),
            ("mneme_tls_port", "6380"),
            ("mneme_tls_certificate_days", "80"),
            ("latency_percentiles_usec_get", "p50=1.0,p99=2.0,p99.9=30.0"),
        ];
        let fields = healthy.iter().chain(changes);
        let info = Info(
            fields
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
        );
        judge(&info).collect()
    }

    #[test]
    fn a_healthy_server_gets_no_advice() {
        let findings = judged(&[]);
        assert_eq!(findings.len(), CHECKS.len());
        assert!(
            findings
                .iter()
                .all(|one| one.state == State::Good && one.advice.is_none()),
            "{findings:?}"
        );
    }

    /// Stale bytes are freed when they are needed.
    #[test]
    fn a_store_that_has_not_been_compacted_yet_is_not_full() {
        let findings = judged(&[
            ("used_memory_dataset", "622770258"),
            ("mneme_stale_bytes", "289910292"),
            ("mneme_free_bytes", "50000000"),
        ]);
        assert!(
            findings.iter().all(|one| one.state == State::Good),
            "{findings:?}"
        );
    }

    #[test]
    fn each_trouble_is_named_and_nothing_else() {
        let full = ("used_memory_dataset", "1020000000");
        for (changes, name, state) in [
            (&[full][..], "server memory", State::Bad),
            (
                &[full, ("maxmemory_policy", "allkeys-lru")],
                "server memory",
                State::Worth,
            ),
            (&[("maxmemory", "9000000000")], "server memory", State::Bad),
            (
                &[
                    ("mneme_free_bytes", "10000000"),
                    ("mneme_stale_bytes", "20000000"),
                ],
                "server memory",
                State::Bad,
            ),
            (
                &[("errorstat_OOM", "count=140")],
                "server memory",
                State::Worth,
            ),
            (&[("evicted_keys", "7")], "eviction", State::Worth),
            (
                &[
                    ("mneme_condemned_segments", "2"),
                    ("mneme_free_bytes", "10000000"),
                ],
                "compaction",
                State::Bad,
            ),
            (
                &[("mneme_page_warning", "4 KiB")],
                "server pages",
                State::Worth,
            ),
            (&[("connected_clients", "95")], "clients", State::Worth),
            (&[("rejected_connections", "1")], "clients", State::Worth),
            (&[("mneme_open_to_network", "1")], "access", State::Bad),
            (
                &[("mneme_tls_certificate_days", "13")],
                "certificate",
                State::Worth,
            ),
            (
                &[("mneme_tls_certificate_days", "-1")],
                "certificate",
                State::Bad,
            ),
            (&[("slowlog_len", "1")], "slow commands", State::Worth),
            (
                &[("latency_percentiles_usec_keys", "p50=1,p99=2,p99.9=20000.5")],
                "latency",
                State::Worth,
            ),
            (
                &[("mneme_local_changes_lost", "1")],
                "local programs",
                State::Worth,
            ),
            (
                &[("mneme_stopped_processes", "1")],
                "local programs",
                State::Bad,
            ),
        ] {
            let findings = judged(changes);
            let troubles: Vec<_> = findings
                .iter()
                .filter(|one| one.state != State::Good)
                .map(|one| (one.name, one.state))
                .collect();
            assert_eq!(troubles, [(name, state)], "{changes:?}");
        }
    }
}
