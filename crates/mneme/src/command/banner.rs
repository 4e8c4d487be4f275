//! The text that a newly started server prints for its operator: its addresses, its memory and
//! data, and commands to try.

use std::io::Write as _;
use std::path::Path;

use mneme::server::{Found, Running, StoreOrigin};
use mneme::{PageKind, PageReport};

use super::size;

/// Writes the banner to standard output.
pub fn show(running: &Running, threads: usize) {
    // If standard output is closed, the server runs all the same.
    let _ = std::io::stdout()
        .lock()
        .write_all(banner(running, threads).as_bytes());
}

fn banner(running: &Running, threads: usize) -> String {
    let mut places: Vec<String> = running
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    let socket = running.unix_socket().map(|path| path.display().to_string());
    let tls = running.tls_addresses();
    let memory = running.memory();
    let client = match (running.addresses().first(), &socket, tls.first()) {
        (Some(address), ..) => reach(address.ip(), address.port()),
        (None, Some(socket), _) => format!("redis-cli -s {socket}"),
        (None, None, Some(address)) => reach(address.ip(), address.port()) + " --tls",
        (None, None, None) => "redis-cli".to_owned(),
    };
    places.extend(tls.iter().map(|address| format!("{address} (TLS)")));
    places.extend(socket);
    let metrics = running.metrics().map_or(String::new(), |address| {
        format!("  metrics       http://{address}/metrics\n")
    });
    format!(
        "Mneme {} is ready\n  listening on  {}\n{metrics}  data          {}\n  memory        {}, {}\n  threads       {threads}\n\
         Try it:   {client} set greeting hello\nStop it:  Ctrl-C, or kill {}\n",
        env!("CARGO_PKG_VERSION"),
        places.join(", "),
        data(running.origin(), running.data().as_deref()),
        size::show(memory.bytes),
        pages(&memory.pages),
        std::process::id(),
    )
}

/// Where the records are kept, how they were found at the start, and when they are lost.
fn data(origin: &StoreOrigin, kept: Option<&Path>) -> String {
    let StoreOrigin::Segment {
        name,
        registry,
        found,
        records,
        volatile,
    } = origin
    else {
        return match kept {
            None => "in memory of this process, gone when it ends".to_owned(),
            Some(_) => format!("in memory of this process{}", keeping(kept)),
        };
    };
    let how = match found {
        Found::Created => "new".to_owned(),
        Found::Attached => format!("found with {records} records"),
        Found::Checked => format!("found with {records} records, checked after failed starts"),
        Found::Replaced(aside) => {
            format!("new: the one before was damaged and is set aside as `{aside}`")
        }
    };
    let end = match volatile {
        _ if kept.is_some() => keeping(kept),
        true => {
            "\n                it outlives this server, but not the machine's next start".to_owned()
        }
        false => String::new(),
    };
    format!("segment `{name}` of {}, {how}{end}", registry.display())
}

/// How the records survive a power cut.
fn keeping(kept: Option<&Path>) -> String {
    kept.map_or(String::new(), |directory| {
        format!("\n                kept in {}", directory.display())
    })
}

/// The kind of pages that the memory consists of, and why they are not larger.
fn pages(report: &PageReport) -> String {
    let kind = match report.kind {
        PageKind::HugeTlb => "in huge pages of 2 MiB from the reserved pool",
        PageKind::Thp => "in transparent huge pages of 2 MiB",
        PageKind::Small => "in pages of 4 KiB",
    };
    match &report.warning {
        Some(warning) => format!("{kind}\n                ({warning})"),
        None => kind.to_owned(),
    }
}

/// The command that connects to this address from this machine.
fn reach(ip: std::net::IpAddr, port: u16) -> String {
    let host = if ip.is_loopback() && ip.is_ipv4() || ip.is_unspecified() {
        String::new()
    } else {
        format!(" -h {ip}")
    };
    let port = if port == 6379 {
        String::new()
    } else {
        format!(" -p {port}")
    };
    format!("redis-cli{host}{port}")
}
