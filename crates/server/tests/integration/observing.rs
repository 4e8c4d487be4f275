//! The server's counts, times and accounts, which operators watch, are correct.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Client, Reply, debugged, encode, server, start};
use mneme_log::lent::{MAX_RECORD, NodeId, Stored};
use mneme_server::settings::Key;
use mneme_sys::{Clock, SystemClock};
use mneme_testkit::wait_until;

/// The fields of `INFO`.
fn info(client: &mut Client, sections: &str) -> BTreeMap<String, String> {
    let text = client.line(&format!("INFO {sections}")).text();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A number in a field such as `calls=1,usec=2`.
fn part(fields: &BTreeMap<String, String>, name: &str, part: &str) -> u64 {
    let parts = fields.get(name).unwrap_or_else(|| panic!("no {name}"));
    let value = parts
        .split(',')
        .find_map(|one| one.strip_prefix(&format!("{part}=")));
    value.unwrap().parse().unwrap()
}

#[test]
fn every_call_is_counted_once_alone_in_a_batch_and_in_a_transaction() {
    let (_running, address) = start(server().threads(2));
    let mut clients = [Client::connect(address), Client::connect(address)];
    for client in &mut clients {
        let mut request = encode(&["SET", "a", "1"]);
        request.extend(encode(&["SET", "a", "1"]).repeat(99));
        request.extend(encode(&["GET", "a"]).repeat(70));
        request.extend(encode(&["INCR", "a"]));
        request.extend(encode(&["GET"]));
        request.extend(encode(&["GET", "a", "b"]));
        request.extend(encode(&["SET", "text", "x"]));
        request.extend(encode(&["INCR", "text"]));
        request.extend(encode(&["NOSUCH"]));
        request.extend(encode(&["MULTI"]));
        request.extend(encode(&["INCR", "a"]));
        request.extend(encode(&["INCR", "text"]));
        request.extend(encode(&["EXEC"]));
        client.send(&request);
        for _ in 0..100 + 70 + 10 {
            client.reply();
        }
    }
    let [client, _] = &mut clients;
    let fields = info(client, "everything");
    let calls = |name: &str| {
        ["calls", "rejected_calls", "failed_calls"]
            .map(|one| part(&fields, &format!("cmdstat_{name}"), one))
    };
    assert_eq!(calls("set"), [202, 0, 0]);
    assert_eq!(calls("get"), [140, 4, 0]);
    assert_eq!(calls("incr"), [8, 0, 4]);
    assert_eq!([calls("multi"), calls("exec")], [[2, 0, 0]; 2]);
    assert_eq!(part(&fields, "errorstat_ERR", "count"), 2 * 5);
    assert_eq!(fields["total_error_replies"], (2 * 5).to_string());
    assert!(fields["latency_percentiles_usec_set"].starts_with("p50="));
    assert!(!fields.contains_key("cmdstat_info") && !fields.contains_key("cmdstat_mget"));

    assert_eq!(client.line("CONFIG RESETSTAT"), Reply::ok());
    let fields = info(client, "everything");
    let counted: Vec<_> = fields
        .keys()
        .filter(|name| name.contains("stat_"))
        .collect();
    assert_eq!(counted, ["cmdstat_config|resetstat"]);
    assert_eq!(fields["total_error_replies"], "0");
}

#[test]
fn sections_are_those_asked_for() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    client.line("GET");
    let mut sections = |asked: &str| -> Vec<String> {
        let text = client.line(&format!("INFO {asked}")).text();
        let names = text.lines().filter_map(|line| line.strip_prefix("# "));
        names.map(str::to_owned).collect()
    };
    let default = [
        "Server",
        "Clients",
        "Memory",
        "Segment",
        "Persistence",
        "Stats",
        "Replication",
        "CPU",
        "Modules",
        "Errorstats",
        "Cluster",
        "Keyspace",
    ];
    assert_eq!(sections(""), default);
    assert_eq!(sections("default"), default);
    assert_eq!(sections("all").len(), default.len() + 3);
    assert_eq!(sections("everything").len(), default.len() + 3);
    assert_eq!(
        sections("keyspace CPU server nonsense"),
        ["Server", "CPU", "Keyspace"]
    );
    assert_eq!(sections("module_list"), ["Modules"]);
    assert!(sections("nonsense").is_empty());
    assert_eq!(sections("commandstats"), ["Commandstats"]);
    assert_eq!(sections("default latencystats").len(), default.len() + 1);
}

/// The number of records that [`store_records`] stores.
const RECORDS: u64 = 5000;

fn store_records(client: &mut Client) {
    let value = "x".repeat(1000);
    for i in 0..RECORDS {
        client.command(&["SET", &format!("key:{i}"), &value]);
    }
}

/// The reply to `MEMORY USAGE key`.
fn usage(client: &mut Client, key: &str) -> u64 {
    match client.line(&format!("MEMORY USAGE {key}")) {
        Reply::Integer(bytes) => bytes as u64,
        other => panic!("{other:?}"),
    }
}

/// `INFO` and `MEMORY STATS` report the same memory as the store.
#[test]
fn memory_is_reported_as_the_store_counts_it() {
    let (running, address) = start(server());
    let mut client = Client::connect(address);
    store_records(&mut client);
    let fields = info(&mut client, "memory");
    let said = |name: &str| fields[name].parse::<u64>().unwrap();
    let Reply::Array(items) = client.line("MEMORY STATS") else {
        panic!("not a list")
    };
    let accounts: BTreeMap<String, &Reply> = items
        .chunks(2)
        .map(|pair| (pair[0].text(), &pair[1]))
        .collect();
    let account = |name: &str| match accounts[name] {
        Reply::Integer(number) => *number as u64,
        other => panic!("{name}: {other:?}"),
    };
    // No client writes, so only the maintainer may have changed something since, and it moves
    // little here.
    let stats = running.store().stats();
    assert_eq!(said("maxmemory"), stats.capacity);
    assert_eq!(account("keys.count"), RECORDS);
    assert_eq!(account("keys.count"), stats.records);
    for (name, said, account, counted) in [
        (
            "used",
            said("used_memory"),
            account("total.allocated"),
            stats.capacity - stats.free_bytes,
        ),
        (
            "dataset",
            said("used_memory_dataset"),
            account("dataset.bytes"),
            stats.live_bytes,
        ),
        (
            "live",
            said("mneme_live_bytes"),
            account("mneme.live"),
            stats.live_bytes,
        ),
        (
            "stale",
            said("mneme_stale_bytes"),
            account("mneme.stale"),
            stats.stale_bytes,
        ),
        (
            "spare",
            said("mneme_spare_bytes"),
            account("mneme.spare"),
            stats.spare_bytes,
        ),
        (
            "index",
            said("mneme_index_bytes"),
            account("mneme.index"),
            stats.index_bytes,
        ),
        (
            "free",
            said("mneme_free_bytes"),
            account("mneme.free"),
            stats.free_bytes,
        ),
    ] {
        let slack = 4 << 20;
        assert!(
            said.abs_diff(counted) <= slack,
            "{name}: {said}, counted {counted}"
        );
        assert!(
            account.abs_diff(counted) <= slack,
            "{name}: {account}, counted {counted}"
        );
    }
    // These parts make up the whole memory.
    let parts = [
        "dataset.bytes",
        "mneme.stale",
        "mneme.index",
        "mneme.heads",
        "mneme.tables",
        "mneme.free",
    ];
    assert_eq!(
        parts.map(account).iter().sum::<u64>(),
        account("mneme.capacity")
    );
    // Only the memory and the pages of processes are reported in another form.
    let pages = running.store().pages();
    assert!(said("used_memory_rss") >= pages.resident_bytes as u64 / 2);
    // The names of memory policies are those of the fields and of `mneme stat`.
    let share = |name: &str| fields[name].parse::<f64>().unwrap();
    assert_eq!(share("mneme_target_fill"), 0.8);
    assert!((0.0..=1.0).contains(&share("mneme_fill")));
    assert!(said("mneme_written_bytes") >= stats.live_bytes);
    assert!(share("mneme_write_amplification") >= 1.0);
    for words in ["MEMORY DOCTOR", "MEMORY MALLOC-STATS"] {
        let text = client.line(words).text();
        for word in [
            "live",
            "stale",
            "spare",
            "target fill 0.800",
            "write amplification 1.",
        ] {
            assert!(text.contains(word), "{words}: {word:?} is not in {text}");
        }
    }
}

#[test]
fn the_memory_of_a_large_hash_is_that_of_its_fields() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    // So that the index is shared by many.
    store_records(&mut client);
    let value = "x".repeat(100);
    for i in 0..200 {
        client.line(&format!("HSET hash f{i} {value}"));
    }
    let bytes = usage(&mut client, "hash");
    assert!((200 * 100..200 * 150).contains(&bytes), "{bytes}");
    client.line("DEL hash");
    client.line("SET hash x");
    assert!(usage(&mut client, "hash") < 200);
}

/// A flush leaves stale records in segments that are still being filled. They are compacted too
/// once the store is idle, and Redis' field says when that is over.
#[test]
fn after_a_flush_compaction_ends_and_memory_goes_back() {
    let (running, address) = start(server());
    let mut client = Client::connect(address);
    for i in 0..20_000 {
        client.command(&["SET", &format!("k{i}"), &"x".repeat(1000)]);
    }
    assert_eq!(client.line("FLUSHALL"), Reply::ok());
    wait_until("nothing is left to compact", || {
        let fields = info(&mut client, "memory");
        let stats = running.store().stats();
        fields["active_defrag_running"] == "0" && stats.spare_bytes <= 2 << 20
    });
    // A key is overwritten repeatedly, and nothing else is written. Its few stale bytes are left
    // alone, once those of the flush in the same segment are compacted.
    for _ in 0..100 {
        client.command(&["SET", "k", &"x".repeat(1000)]);
    }
    wait_until("so few bytes are left alone", || {
        info(&mut client, "memory")["active_defrag_running"] == "0"
    });
}

/// A key's usage is what its record has added to the live bytes, and a small part of the index.
#[test]
fn the_usage_of_a_key_is_what_its_record_takes() {
    let (running, address) = start(server());
    let mut client = Client::connect(address);
    let before = running.store().stats().live_bytes;
    store_records(&mut client);
    let grown = (running.store().stats().live_bytes - before) / RECORDS;
    let usage = usage(&mut client, "key:1");
    assert!(
        (grown..grown + 100).contains(&usage),
        "{usage}, counted {grown}"
    );
    assert_eq!(client.line("MEMORY USAGE nothing"), Reply::Null);
    client.line("FLUSHALL");
    let stats = client.line("MEMORY STATS");
    let per_key = Reply::bulk("keys.bytes-per-key");
    let place = stats.items().iter().position(|one| *one == per_key);
    assert_eq!(stats.items()[place.unwrap() + 1], Reply::Integer(0));
}

/// A value that grew has slack for more growth, which counts as its own.
#[test]
fn the_usage_of_a_value_that_grew_includes_its_slack() {
    let (running, address) = start(server());
    let mut client = Client::connect(address);
    // A key's share of the index is only small if there are many keys.
    store_records(&mut client);
    let before = running.store().stats().live_bytes;
    client.command(&["SET", "grown", &"x".repeat(6000)]);
    client.line("APPEND grown y");
    let taken = running.store().stats().live_bytes - before;
    assert!(taken > 12_000, "{taken}");
    for _ in 0..2 {
        let usage = usage(&mut client, "grown");
        assert!(
            (taken..taken + 100).contains(&usage),
            "{usage}, counted {taken}"
        );
        // Neither `MEMORY USAGE` nor `APPEND` stores it at another place.
        client.line("APPEND grown y");
        let stale = running.store().stats().stale_bytes;
        client.line("APPEND grown y");
        assert_eq!(running.store().stats().stale_bytes, stale);
    }
    client.line("MULTI");
    client.line("MEMORY USAGE grown");
    let replies = client.line("EXEC");
    let [Reply::Integer(usage)] = replies.items() else {
        panic!("{replies:?}")
    };
    assert!((taken..taken + 100).contains(&(*usage as u64)), "{usage}");
}

#[test]
fn a_purge_compacts_after_its_reply() {
    let (running, address) = start(server());
    let mut client = Client::connect(address);
    // Otherwise the maintainer could have moved everything before the purge.
    assert_eq!(client.line("CONFIG SET activedefrag no"), Reply::ok());
    for i in 0..20_000 {
        client.command(&["SET", &format!("k{i}"), &"x".repeat(1_000)]);
    }
    for i in (0..20_000).filter(|i| i % 4 != 0) {
        client.command(&["DEL", &format!("k{i}")]);
    }
    let moved = || running.store().stats().moved_bytes;
    let before = moved();
    assert_eq!(client.line("MEMORY PURGE"), Reply::ok());
    while moved() == before {
        assert_eq!(client.line("EXISTS k0"), Reply::Integer(1));
    }
    assert_eq!(client.line("DBSIZE"), Reply::Integer(5_000));
}

#[test]
fn evicted_keys_are_counted() {
    let (running, address) = start(server());
    let mut client = Client::connect(address);
    client.line("CONFIG SET maxmemory-policy allkeys-random");
    let value = "x".repeat(100_000);
    for i in 0..1500 {
        assert_eq!(
            client.command(&["SET", &format!("k{i}"), &value]),
            Reply::ok()
        );
    }
    let evicted = running.store().stats().evicted;
    assert!(evicted > 0);
    let said: u64 = info(&mut client, "stats")["evicted_keys"].parse().unwrap();
    assert!(said >= evicted);
    client.line("CONFIG RESETSTAT");
    let said: u64 = info(&mut client, "stats")["evicted_keys"].parse().unwrap();
    assert!(said < evicted);
}

/// The lent memory is shown, but only if the store lends any.
#[test]
fn lent_memory_is_shown() {
    let (_running, address) = start(server());
    let fields = info(&mut Client::connect(address), "memory");
    assert!(!fields.keys().any(|name| name.starts_with("mneme_lent")));

    let lending = server().set(Key::LendMemory, "64mb").unwrap();
    let (running, address) = start(lending);
    let store = running.store();
    // Only frames that the store has used once are lent.
    store.put(b"large", &vec![7; 20 << 20]).unwrap();
    store.remove(b"large").unwrap();
    store.compact().unwrap();
    let cache = store.discardable().unwrap();
    let slot = cache.arena().participants().slot().unwrap();
    // Each fills a frame.
    for i in 0..6u64 {
        let copy = vec![1; MAX_RECORD - 8];
        let stored = cache.put(&slot, NodeId(0), &i.to_le_bytes(), &copy);
        assert_eq!(stored.unwrap(), Stored::Kept);
    }
    let mut found = Vec::new();
    for i in 0..128u64 {
        let _ = cache.get(&(i % 2 * 99).to_le_bytes(), &mut found);
    }
    let mut client = Client::connect(address);
    let fields = info(&mut client, "memory");
    let said = |name: &str| fields[name].parse::<u64>().unwrap();
    assert_eq!(said("mneme_lent_bytes"), 12 << 20);
    assert_eq!(said("mneme_lent_max_bytes"), 64 << 20);
    assert_eq!(said("mneme_lent_hits"), 64);
    assert_eq!(said("mneme_lent_misses"), 64);
    assert!(said("mneme_claims") > 0 && said("mneme_claim_max_ns") >= said("mneme_claim_p50_ns"));
    // The store takes the lent memory back.
    while store
        .put(&found.len().to_le_bytes(), &vec![2; 1 << 20])
        .is_ok()
    {
        found.push(0);
    }
    let fields = info(&mut client, "memory");
    let discarded: u64 = fields["mneme_lent_discarded_frames"].parse().unwrap();
    assert!(discarded >= 5, "{discarded}");
}

#[test]
fn debug_values_have_the_same_limit_as_others() {
    let (_running, address) = start(debugged());
    let mut client = Client::connect(address);
    let least = "CONFIG SET proto-max-bulk-len 1mb";
    assert_eq!(client.line(least), Reply::ok());
    for size in ["1048577", "9000000000000000000"] {
        let refused = client.line(&format!("DEBUG POPULATE 1 k {size}")).text();
        assert!(refused.contains("proto-max-bulk-len"), "{refused}");
    }
    assert_eq!(client.line("DEBUG POPULATE 1 k 1048576"), Reply::ok());
    assert_eq!(client.line("STRLEN k:0"), Reply::Integer(1 << 20));
}

#[test]
fn slow_commands_are_remembered_without_their_secrets() {
    let (_running, address) = start(debugged());
    let mut client = Client::connect(address);
    client.line("CLIENT SETNAME me");
    assert_eq!(client.line("SLOWLOG LEN"), Reply::Integer(0));
    assert_eq!(client.line("DEBUG SLEEP 0.05"), Reply::ok());
    let log = client.line("SLOWLOG GET");
    let [entry] = log.items() else {
        panic!("{log:?}")
    };
    let [_, _, Reply::Integer(took), words, peer, name] = entry.items() else {
        panic!("{entry:?}")
    };
    assert!(*took >= 50_000);
    let text = |reply: &Reply| reply.items().iter().map(Reply::text).collect::<Vec<_>>();
    assert_eq!(text(words), ["DEBUG", "SLEEP", "0.05"]);
    assert_eq!(name.text(), "me");
    assert!(peer.text().starts_with("127.0.0.1:"));

    client.line("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 4");
    let long = "x".repeat(200);
    let many: Vec<String> = (0..50).map(|i| i.to_string()).collect();
    let mset = [vec!["MSET".to_owned()], many].concat();
    client.send(&[encode(&["GET", &long]), encode(&["GET", "b"])].concat());
    client.reply();
    client.reply();
    client.command(&mset);
    client.line("CONFIG SET requirepass secret");
    let log = client.line("SLOWLOG GET -1");
    let entries: Vec<_> = log.items().iter().map(|e| text(&e.items()[3])).collect();
    assert_eq!(entries.len(), 4);
    assert_eq!(entries[0], ["CONFIG", "SET", "requirepass", "(redacted)"]);
    assert_eq!(entries[1].len(), 32);
    assert_eq!(entries[1][31], "... (20 more arguments)");
    assert_eq!(entries[2], ["GET", "b"]);
    assert_eq!(
        entries[3][1],
        format!("{}... (72 more bytes)", "x".repeat(128))
    );
    let ids: Vec<_> = log.items().iter().map(|e| e.items()[0].clone()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] > pair[1]), "{ids:?}");
    // The entry remains when its client is gone, and is not part of a client's memory.
    let name = "y".repeat(1 << 20);
    assert_eq!(client.line(&format!("CLIENT SETNAME {name}")), Reply::ok());
    client.line("PING");
    let log = client.line("SLOWLOG GET 1");
    let cut = format!("{}... ({} more bytes)", &name[..128], name.len() - 128);
    assert_eq!(log.items()[0].items()[5].text(), cut);
    client.line("CONFIG SET slowlog-log-slower-than -1");
    assert_eq!(client.line("SLOWLOG RESET"), Reply::ok());
    assert_eq!(client.line("SLOWLOG GET"), Reply::Array(vec![]));
    assert_eq!(
        client.line("SLOWLOG GET -2"),
        Reply::Error("ERR count should be greater than or equal to -1".into())
    );
}

/// A slow command in a transaction is logged by its own name.
#[test]
fn slow_commands_of_a_transaction_are_remembered() {
    let (_running, address) = start(debugged());
    let mut client = Client::connect(address);
    for line in ["MULTI", "DEBUG SLEEP 0.05", "PING", "EXEC"] {
        client.line(line);
    }
    let log = client.line("SLOWLOG GET");
    let words: Vec<_> = log
        .items()
        .iter()
        .map(|e| e.items()[3].items()[0].text())
        .collect();
    assert_eq!(words, ["DEBUG"]);
}

#[test]
fn late_events_are_remembered_by_kind() {
    let (_running, address) = start(debugged());
    let mut client = Client::connect(address);
    client.line("DEBUG SLEEP 0.05");
    assert_eq!(client.line("LATENCY LATEST"), Reply::Array(vec![]));
    assert!(
        client
            .line("LATENCY DOCTOR")
            .text()
            .contains("latency-monitor-threshold")
    );
    client.line("CONFIG SET latency-monitor-threshold 20");
    client.line("DEBUG SLEEP 0.05");
    let latest = client.line("LATENCY LATEST");
    let [event] = latest.items() else {
        panic!("{latest:?}")
    };
    let [name, at, took, worst] = event.items() else {
        panic!("{event:?}")
    };
    assert_eq!(name.text(), "command");
    assert!(*took >= Reply::Integer(50) && took == worst);
    let history = client.line("LATENCY HISTORY command");
    assert_eq!(
        history.items(),
        [Reply::Array(vec![at.clone(), took.clone()])]
    );
    assert_eq!(client.line("LATENCY HISTORY other"), Reply::Array(vec![]));
    assert!(client.line("LATENCY GRAPH command").text().contains('#'));
    assert_eq!(
        client.line("LATENCY GRAPH other"),
        Reply::Error("ERR No samples available for event 'other'".into())
    );
    assert!(client.line("LATENCY DOCTOR").text().contains("SLOWLOG GET"));
    assert_eq!(client.line("LATENCY RESET other"), Reply::Integer(0));
    assert_eq!(client.line("LATENCY RESET"), Reply::Integer(1));
    assert_eq!(client.line("LATENCY LATEST"), Reply::Array(vec![]));
}

/// A clock whose time of day can be set; its monotonic time is real.
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now_ns(&self) -> u64 {
        SystemClock.now_ns()
    }

    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn late_events_are_described_after_the_clock_was_set_back() {
    let clock = Arc::new(SetClock(AtomicU64::new(1_700_000_000_000)));
    let (_running, address) = start(debugged().clock(clock.clone()));
    let mut client = Client::connect(address);
    client.line("CONFIG SET latency-monitor-threshold 20");
    client.line("DEBUG SLEEP 0.05");
    clock.0.fetch_sub(60_000, Ordering::Relaxed);
    client.line("DEBUG SLEEP 0.05");
    let described = client.line("LATENCY DOCTOR").text();
    assert!(
        described.contains("2 slow seconds within 61 s"),
        "{described}"
    );
    assert!(client.line("LATENCY GRAPH command").text().contains('#'));
}

#[test]
fn histograms_count_every_call() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    client.line("CONFIG RESETSTAT");
    client.send(&encode(&["SET", "a", "b"]).repeat(70));
    (0..70).for_each(|_| assert_eq!(client.reply(), Reply::ok()));
    client.line("CLIENT ID");
    client.line("CLIENT GETNAME");
    let spread = client.line("LATENCY HISTOGRAM set nosuch client");
    let names: Vec<_> = spread.items().iter().step_by(2).map(Reply::text).collect();
    assert_eq!(names, ["client|getname", "client|id", "set"]);
    let set = spread.items()[5].items();
    assert_eq!(set[1], Reply::Integer(70));
    let rows = set[3].items();
    assert_eq!(rows.last(), Some(&Reply::Integer(70)));
    client.line("CONFIG SET latency-tracking no");
    client.line("CONFIG RESETSTAT");
    client.line("SET a b");
    assert_eq!(client.line("LATENCY HISTOGRAM"), Reply::Array(vec![]));
}

/// Pages are counted in the background, so the reported number equals the system's after some time.
#[test]
fn pages_are_reported_as_the_system_counts_them() {
    let (running, address) = start(server());
    let mut client = Client::connect(address);
    let value = "x".repeat(100_000);
    for i in 0..300 {
        client.command(&["SET", &format!("k{i}"), &value]);
    }
    let counted = running.store().pages().resident_bytes as u64;
    assert!(counted >= 30_000_000, "{counted}");
    loop {
        let fields = info(&mut client, "memory");
        let said: u64 = fields["mneme_resident_bytes"].parse().unwrap();
        if said >= counted {
            assert!(said <= fields["maxmemory"].parse().unwrap());
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// The reported processor time of the process never decreases, and includes all its threads.
#[test]
fn processor_time_is_reported() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let mut times = || -> Vec<f64> {
        let fields = info(&mut client, "cpu");
        let names = [
            "used_cpu_sys",
            "used_cpu_user",
            "used_cpu_sys_children",
            "used_cpu_user_children",
            "used_cpu_sys_main_thread",
            "used_cpu_user_main_thread",
        ];
        assert_eq!(fields.len(), names.len());
        names
            .iter()
            .map(|name| fields[*name].parse().unwrap())
            .collect()
    };
    let before = times();
    while times()[1] <= before[1] {}
    let after = times();
    assert!(before.iter().zip(&after).all(|(old, new)| new >= old));
}

/// A command or transaction that is retried counts only once, with its final result.
#[test]
fn retried_attempts_are_not_counted() {
    const ROUNDS: u64 = 200;
    const KEYS: u64 = 32;
    let (running, address) = start(server().threads(2));
    let mut client = Client::connect(address);
    let keys: Vec<String> = (0..KEYS).map(|number| format!("k{number}")).collect();
    // Large, so that reading them takes longer than a put.
    let value = "x".repeat(8000);
    for key in &keys {
        client.command(&["SET", key, &value]);
    }
    client.line("SET text x");
    client.line("CONFIG RESETSTAT");
    let mut request = encode(&[&["MGET".to_owned()], &keys[..]].concat());
    request.extend(encode(&["MULTI"]));
    for key in &keys {
        request.extend(encode(&["GET", key]));
    }
    request.extend(encode(&["INCR", "text"]));
    request.extend(encode(&["GET", "none"]));
    request.extend(encode(&["EXEC"]));
    let work = || {
        let mut client = Client::connect(address);
        for _ in 0..ROUNDS {
            client.send(&request);
            (0..1 + 1 + KEYS + 2 + 1).for_each(|_| drop(client.reply()));
        }
    };
    // Local programs keep changing what is read first, so that the clients must retry.
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let disturb = || {
            let database = running.store().database(0).unwrap();
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                database.put(b"k0", b"1").unwrap();
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        };
        scope.spawn(disturb);
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    let fields = info(&mut client, "everything");
    let rounds = 2 * ROUNDS;
    let said = |name: &str| fields[name].parse::<u64>().unwrap();
    assert_eq!(said("keyspace_hits"), 2 * KEYS * rounds);
    assert_eq!(said("keyspace_misses"), rounds);
    assert_eq!(said("total_error_replies"), rounds);
    assert_eq!(part(&fields, "errorstat_ERR", "count"), rounds);
    assert_eq!(part(&fields, "cmdstat_incr", "failed_calls"), rounds);
    assert_eq!(part(&fields, "cmdstat_get", "calls"), (KEYS + 1) * rounds);
}

#[test]
fn fractions_are_of_the_type_that_the_protocol_has() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    client.line("SET a 1");
    let Reply::Array(items) = client.line("MEMORY STATS") else {
        panic!("not a list")
    };
    let share = items
        .chunks(2)
        .find(|pair| pair[0].text() == "dataset.percentage");
    let old: f64 = share.unwrap()[1].text().parse().unwrap();
    client.line("HELLO 3");
    let Reply::Map(pairs) = client.line("MEMORY STATS") else {
        panic!("not a map")
    };
    let share = pairs
        .iter()
        .find(|pair| pair.0.text() == "dataset.percentage");
    let Reply::Double(new) = share.unwrap().1 else {
        panic!("{share:?}")
    };
    assert!(old > 0.0 && (new - old).abs() <= old, "{old} {new}");
}

/// A check walks the store in the background; its report is available afterwards.
#[test]
fn a_check_is_made_in_the_background() {
    let (running, address) = start(server());
    let mut client = Client::connect(address);
    for i in 0..1000 {
        client.command(&["SET", &format!("k{i}"), "x"]);
    }
    let report = |client: &mut Client| -> BTreeMap<String, Reply> {
        let Reply::Array(items) = client.line("MNEME REPORT") else {
            panic!("not a list")
        };
        let pairs = items.chunks(2);
        pairs
            .map(|pair| (pair[0].text(), pair[1].clone()))
            .collect()
    };
    assert_eq!(report(&mut client)["state"], Reply::bulk("none"));
    for number in 1..3 {
        assert_eq!(client.line("MNEME CHECK"), Reply::Integer(number));
        let found = loop {
            let found = report(&mut client);
            if found["state"] != Reply::bulk("running") {
                break found;
            }
        };
        assert_eq!(found["state"], Reply::bulk("done"));
        assert_eq!(found["check"], Reply::Integer(number));
        assert_eq!(found["records"], Reply::Integer(1000));
        assert_eq!(found["problems"], Reply::Array(vec![]));
    }
    assert_eq!(running.store().check().unwrap().records, 1000);
    let described = client.line("COMMAND INFO mneme|check");
    let flags = &described.items()[0].items()[6];
    let categories: Vec<_> = flags.items().iter().map(Reply::text).collect();
    assert!(categories.contains(&"@admin".into()) && categories.contains(&"@dangerous".into()));
}

#[test]
fn keys_that_are_to_expire_are_counted_by_database() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    for line in [
        "SET a 1 EX 1000",
        "SET b 1",
        "SETEX c 1000 1",
        "SELECT 1",
        "SET d 1",
    ] {
        client.line(line);
    }
    let fields = info(&mut client, "keyspace");
    let of = |fields: &BTreeMap<String, String>, name: &str| {
        ["keys", "expires"].map(|one| part(fields, name, one))
    };
    assert_eq!((of(&fields, "db0"), of(&fields, "db1")), ([3, 2], [1, 0]));
    // The value is sampled when the store looks for expired records.
    let ttl = loop {
        match part(&info(&mut client, "keyspace"), "db0", "avg_ttl") {
            0 => std::thread::sleep(std::time::Duration::from_millis(20)),
            ttl => break ttl,
        }
    };
    assert!((1..=1_000_000).contains(&ttl), "{ttl}");
    for line in ["SELECT 0", "PERSIST a", "DEL c", "EXPIRE b 1000"] {
        client.line(line);
    }
    let fields = info(&mut client, "keyspace");
    assert_eq!(of(&fields, "db0"), [2, 1]);
}

/// As in Redis, a write of a key counts nothing, and a read counts once.
#[test]
fn a_command_counts_a_hit_or_a_miss_for_each_key_that_it_reads() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    client.line("MSET a 1 b 2");
    let counted = |client: &mut Client| {
        let fields = info(client, "stats");
        ["keyspace_hits", "keyspace_misses"].map(|name| fields[name].parse::<u64>().unwrap())
    };
    for (line, hits, misses) in [
        ("TTL a", 1, 0),
        ("PTTL none", 0, 1),
        ("EXPIRETIME a", 1, 0),
        ("LCS a b", 2, 0),
        ("LCS a none", 1, 1),
        ("COPY a c", 1, 0),
        ("COPY a c", 1, 0),
        ("COPY none c", 0, 1),
        ("RENAME c d", 0, 0),
        ("RENAMENX d a", 0, 0),
        ("RENAME none d", 0, 0),
        ("MOVE d 1", 0, 0),
        ("MOVE none 1", 0, 0),
        ("TOUCH a none", 1, 1),
        ("MSETNX a 1 e 1", 0, 0),
    ] {
        let before = counted(&mut client);
        client.line(line);
        let after = counted(&mut client);
        assert_eq!(
            [after[0] - before[0], after[1] - before[1]],
            [hits, misses],
            "{line}"
        );
    }
}
