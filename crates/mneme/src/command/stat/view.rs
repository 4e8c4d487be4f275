//! The views of `mneme stat`, made from answers to `INFO`.

use std::fmt::Write as _;
use std::time::Duration;

use mneme_sys::{Clock, SystemClock};

use super::commands;
use super::spread::Spreads;
use crate::command::client::{AskError, Info, ServerConnection, part};
use crate::command::size;

/// An answer, and when it arrived.
pub struct Sample {
    /// When the answer arrived, by a monotonic clock.
    pub at_ns: u64,
    pub info: Info,
    /// The distributions of commands' times; empty unless the view is watched.
    pub spreads: Spreads,
}

impl Sample {
    /// Takes a sample from the server, with the distributions of times if the view `is_watched`.
    pub fn at(client: &mut ServerConnection, is_watched: bool) -> Result<Self, AskError> {
        Ok(Self {
            at_ns: SystemClock.now_ns(),
            info: client.info()?,
            spreads: match is_watched {
                true => Spreads::ask(client)?,
                false => Spreads::default(),
            },
        })
    }

    /// Seconds between two samples.
    pub fn seconds_since(&self, before: &Sample) -> f64 {
        let span = Duration::from_nanos(self.at_ns.saturating_sub(before.at_ns));
        span.as_secs_f64().max(0.001)
    }
}

/// The width in characters of the bar that shows the use of memory.
const BAR: usize = 60;

/// The uses of memory: the field, its label, and its character in the bar.
const USES: [(&str, &str, char); 6] = [
    ("mneme_live_bytes", "live", '#'),
    ("mneme_index_bytes", "index", '='),
    ("mneme_head_bytes", "heads", '+'),
    ("mneme_table_bytes", "tables", '+'),
    ("mneme_stale_bytes", "stale", '-'),
    ("mneme_free_bytes", "free", '.'),
];

/// How much a counter grows in a second: since the previous sample, or since the server's start.
fn rate(name: &str, now: &Sample, before: Option<&Sample>) -> f64 {
    let count = now.info.number(name);
    let (more, seconds) = match before {
        Some(before) => (
            // A counter that was reset has begun at 0 again.
            count.checked_sub(before.info.number(name)).unwrap_or(count),
            now.seconds_since(before),
        ),
        // The uptime is in whole seconds; at least 1, to divide by it.
        None => (count, now.info.number("uptime_in_seconds").max(1) as f64),
    };
    more as f64 / seconds
}

/// A page for people.
pub fn page(place: &str, now: &Sample, before: Option<&Sample>) -> String {
    let Sample { info, .. } = now;
    let mut page = String::new();
    let version = match info.text("mneme_version") {
        "" => format!("Redis {}", info.text("redis_version")),
        version => format!("Mneme {version}"),
    };
    let segment = match info.text("mneme_segment") {
        "" | "none" => "memory of its own".to_owned(),
        name => format!(
            "segment `{name}`, attached by {} more",
            info.number("mneme_attached_processes")
        ),
    };
    // Writing to a string does not fail.
    let _ = writeln!(
        page,
        "{version} at {place}, up {}, process {}; {segment}\n",
        span(Duration::from_secs(info.number("uptime_in_seconds"))),
        info.text("process_id"),
    );
    let since = if before.is_some() {
        "now"
    } else {
        "on average"
    };
    let (hits, misses) = (
        rate("keyspace_hits", now, before),
        rate("keyspace_misses", now, before),
    );
    let _ = writeln!(
        page,
        "operations  {} a second {since}, {} in all; {} of the keys read were there",
        count(rate("total_commands_processed", now, before)),
        count(info.number("total_commands_processed") as f64),
        percentage(hits, hits + misses),
    );
    let _ = writeln!(
        page,
        "network     {} in, {} out; {} clients of {}, {} of them wait, {} refused",
        per_second(rate("total_net_input_bytes", now, before)),
        per_second(rate("total_net_output_bytes", now, before)),
        info.number("connected_clients"),
        info.number("maxclients"),
        info.number("blocked_clients"),
        info.number("rejected_connections"),
    );
    let topics = ["pubsub_channels", "pubsub_patterns", "pubsubshard_channels"];
    if let topics @ [channels, patterns, shard] = topics.map(|field| info.number(field))
        && topics.iter().sum::<u64>() > 0
    {
        let _ = writeln!(
            page,
            "channels    {channels}, {patterns} patterns, {shard} shard channels"
        );
    }
    let keys: Vec<String> = info
        .beginning("db")
        .filter(|(_, list)| list.starts_with("keys="))
        .map(|(number, list)| {
            format!(
                "{} in database {number}",
                count(part(list, "keys").parse().unwrap_or(0.0))
            )
        })
        .collect();
    let keys = if keys.is_empty() {
        "none".to_owned()
    } else {
        keys.join(", ")
    };
    let _ = writeln!(
        page,
        "keys        {keys}; {} evicted",
        count(info.number("evicted_keys") as f64)
    );
    for (number, list) in info.beginning("types_db") {
        let types = list.split(',').filter_map(|pair| pair.split_once('='));
        let types: Vec<String> = types.map(|(name, keys)| format!("{keys} {name}")).collect();
        let _ = writeln!(
            page,
            "types       {} in database {number}",
            types.join(", ")
        );
    }
    if let Some(before) = before {
        let [p50, p99, p999] = now.spreads.all_since(&before.spreads).percentiles();
        let _ = writeln!(
            page,
            "latency     {p50} us or less for half of all commands now, {p99} us for 99 %, {p999} us for 99.9 %"
        );
    }
    memory(&mut page, now, before);
    commands::table(&mut page, now, before);
    page
}

/// What the store lends, and the cost of that.
fn lent(page: &mut String, info: &Info) {
    if info.text("mneme_lent_bytes").is_empty() {
        return;
    }
    let hits = info.number("mneme_lent_hits");
    let lookups = hits + info.number("mneme_lent_misses");
    let _ = writeln!(
        page,
        "lent        {} of {}, {} of {lookups} lookups found; {} frames taken back; a claim takes {} ns, \
         999 of 1000 at most {}",
        size::show(info.number("mneme_lent_bytes")),
        size::show(info.number("mneme_lent_max_bytes")),
        percentage(hits as f64, lookups as f64),
        info.number("mneme_lent_discarded_frames"),
        info.number("mneme_claim_p50_ns"),
        info.number("mneme_claim_p999_ns"),
    );
}

fn memory(page: &mut String, now: &Sample, before: Option<&Sample>) {
    let Sample { info, .. } = now;
    let capacity = info.number("maxmemory");
    // The store's resident memory. Redis' field has that of the process alone.
    let resident = match info.text("mneme_resident_bytes") {
        "" => info.number("used_memory_rss"),
        _ => info.number("mneme_resident_bytes"),
    };
    let _ = writeln!(
        page,
        "memory      {} used of {}, {} resident ({} in huge pages); {}",
        size::show(info.number("used_memory")),
        size::show(capacity),
        size::show(resident),
        percentage(info.number("mneme_huge_page_bytes") as f64, resident as f64),
        match info.text("maxmemory_policy") {
            "" | "noeviction" => "refuses writes when full",
            policy => policy,
        },
    );
    lent(page, info);
    if USES.iter().all(|(field, ..)| info.text(field).is_empty()) {
        return;
    }
    let parts = USES.map(|(field, word, mark)| (word, info.number(field), mark));
    let all: u64 = parts.iter().map(|part| part.1).sum();
    let bar: String = (0..BAR as u64)
        .map(|place| {
            // The use of memory at the middle of this character.
            let mut rest = (2 * place + 1) * all / (2 * BAR as u64);
            let found = parts.iter().find(|part| match rest.checked_sub(part.1) {
                Some(behind) => {
                    rest = behind;
                    false
                }
                None => true,
            });
            found.map_or(' ', |part| part.2)
        })
        .collect();
    let legend = parts.map(|(word, bytes, mark)| format!("{mark} {word} {}", size::show(bytes)));
    let _ = writeln!(
        page,
        "            [{bar}]\n            {}",
        legend.join("  ")
    );
    let _ = writeln!(
        page,
        "            {} spare; fill {}, target fill {}",
        size::show(info.number("mneme_spare_bytes")),
        info.text("mneme_fill"),
        info.text("mneme_target_fill"),
    );
    let moved = rate("mneme_moved_bytes", now, before);
    let written = rate("mneme_written_bytes", now, before);
    // Between two samples there may have been no writes; and the store may be older than the
    // server.
    let amplification = match before {
        None => info.text("mneme_write_amplification").to_owned(),
        Some(_) if written < 1.0 => "-".to_owned(),
        Some(_) => format!("{:.3}", 1.0 + moved / written),
    };
    let _ = writeln!(
        page,
        "compaction  {} moved, {} in all; write amplification {amplification}{}",
        per_second(moved),
        size::show(info.number("mneme_moved_bytes")),
        match info.text("mneme_compaction_wait") {
            "" | "none" => String::new(),
            wait => format!("; waits: {wait}"),
        },
    );
}

/// The headings of the lines.
pub const HEADINGS: &str = "   ops/s   p50us   p99us p99.9us     in/s    out/s  clients       keys       used       free    moved/s   hits";

/// The number of lines after which the headings are repeated.
pub const LINES: usize = 20;

/// One sample as a line.
pub fn line(now: &Sample, before: Option<&Sample>) -> String {
    let Sample { info, .. } = now;
    let keys: u64 = info
        .beginning("db")
        .map(|(_, list)| part(list, "keys").parse().unwrap_or(0))
        .sum();
    let (hits, misses) = (
        rate("keyspace_hits", now, before),
        rate("keyspace_misses", now, before),
    );
    let [p50, p99, p999] = before.map_or_else(
        || ["-"; 3].map(str::to_owned),
        |before| now.spreads.all_since(&before.spreads).percentiles(),
    );
    format!(
        "{:>8} {p50:>7} {p99:>7} {p999:>7} {:>8} {:>8} {:>8} {:>10} {:>10} {:>10} {:>10} {:>6}",
        count(rate("total_commands_processed", now, before)),
        bytes(rate("total_net_input_bytes", now, before)),
        bytes(rate("total_net_output_bytes", now, before)),
        info.number("connected_clients"),
        count(keys as f64),
        bytes(info.number("used_memory") as f64),
        bytes(info.number("mneme_free_bytes") as f64),
        bytes(rate("mneme_moved_bytes", now, before)),
        percentage(hits, hits + misses),
    )
}

/// A rate in bytes a second as text.
fn per_second(bytes: f64) -> String {
    size::show(bytes as u64) + " a second"
}

/// A number as three digits and a letter.
pub fn count(number: f64) -> String {
    short(number, 1000.0)
}

/// A number of bytes in units of 1024.
fn bytes(number: f64) -> String {
    short(number, 1024.0) + "B"
}

fn short(number: f64, step: f64) -> String {
    let mut rest = number;
    for unit in ["", "k", "M", "G", "T"] {
        if rest < 999.5 {
            let digits = if unit.is_empty() || rest >= 99.95 {
                0
            } else {
                1
            };
            return format!("{rest:.digits$}{unit}");
        }
        rest /= step;
    }
    format!("{rest:.0}P")
}

pub fn percentage(part: f64, whole: f64) -> String {
    if whole > 0.0 {
        format!("{:.0} %", 100.0 * part / whole)
    } else {
        "-".to_owned()
    }
}

/// A duration in its two largest units.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 7.0, 999.0, 1_234.0, 99_960.0, 12_345_678.0].map(count),
            ["0", "7", "999", "1.2k", "100k", "12.3M"]
        );
        assert_eq!(bytes(1536.0), "1.5kB");
        assert_eq!(
            [5, 65, 3_661, 90_000].map(|s| span(Duration::from_secs(s))),
            ["5 s", "1 min 5 s", "1 h 1 min", "1 d 1 h"]
        );
        assert_eq!(
            (percentage(1.0, 4.0), percentage(0.0, 0.0)),
            ("25 %".into(), "-".into())
        );
    }

    #[test]
    fn rates_are_those_since_the_previous_sample() {
        let look = |seconds: u64, commands: u64| Sample {
            at_ns: seconds * 1_000_000_000,
            info: Info(
                [
                    ("total_commands_processed", commands),
                    ("uptime_in_seconds", 10),
                ]
                .map(|(n, v)| (n.to_owned(), v.to_string()))
                .into(),
            ),
            spreads: Spreads::default(),
        };
        let (first, second, reset) = (look(0, 1_000), look(2, 1_500), look(4, 30));
        let of = |now, before| rate("total_commands_processed", now, before);
        assert_eq!(of(&first, None), 100.0);
        let mut young = look(0, 7);
        young
            .info
            .0
            .insert("uptime_in_seconds".to_owned(), "0".to_owned());
        assert_eq!(of(&young, None), 7.0);
        assert!(!line(&young, None).contains("-0"), "{}", line(&young, None));
        assert_eq!(of(&second, Some(&first)), 250.0);
        assert_eq!(of(&reset, Some(&second)), 15.0);
    }
}
