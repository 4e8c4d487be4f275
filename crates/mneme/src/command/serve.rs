//! `mneme serve`: the server in the foreground, until a signal or a client's `SHUTDOWN`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use mneme::server::{HandoverError, Opening, ServeError, Server, StartError, StoreOptions};
use mneme::{AttachError, MIN_CAPACITY, UpdatePolicy};
use mneme_shared::Withdrawal;
use mneme_space::{Backing, Registry, Segment};
use mneme_sys::{SysfsTopology, Topology};

use super::descriptors;
use super::registry::Place;
use super::signals::Stopping;
use super::size::{self, Size};
use super::successor::{self, Service};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The TCP port; 0 lets the system choose a free one.
    #[arg(short, long, env = "MNEME_PORT", default_value_t = 6379)]
    port: u16,

    /// An address to listen on: an IP address, `localhost`, or `*` for all. May be repeated or a list with commas.
    #[arg(
        long,
        env = "MNEME_BIND",
        default_value = "127.0.0.1",
        value_delimiter = ',',
        value_name = "ADDRESS",
        value_parser = bind
    )]
    bind: Vec<Bind>,

    /// Memory for the data and everything about it: bytes, or with a unit as in 512mb, 4gb (1024) or 4g (1000).
    /// By default half of what the machine, or the control group, has.
    #[arg(short, long, env = "MNEME_MEMORY", value_name = "SIZE", value_parser = size::parse)]
    memory: Option<Size>,

    /// The segment to serve: it keeps the records when the server ends, and local programs attach it. Made if there is none.
    #[arg(
        short,
        long,
        env = "MNEME_SEGMENT",
        default_value = "default",
        value_name = "NAME"
    )]
    segment: String,

    #[command(flatten)]
    place: Place,

    /// Serve memory of this process alone, which ends with it and which no other can attach.
    #[arg(long, env = "MNEME_PRIVATE", value_parser = clap::builder::FalseyValueParser::new())]
    private: bool,

    /// Take over from the server of the segment, if there is one, with its listening sockets: no connection is refused
    /// meanwhile. It goes on if this one does not come up.
    #[arg(long, conflicts_with = "private")]
    take_over: bool,

    /// How records are updated; fixed when a segment is made. `append` is the default; `in-place` suits a store that is
    /// nearly full of values that often change.
    #[arg(long, env = "MNEME_UPDATE_POLICY", value_name = "append|in-place", value_parser = policy)]
    update_policy: Option<UpdatePolicy>,

    /// I/O threads, each of which serves its own connections. By default one for each CPU.
    #[arg(short, long, env = "MNEME_THREADS", value_name = "N")]
    threads: Option<usize>,

    /// Databases that clients may SELECT.
    #[arg(long, env = "MNEME_DATABASES", default_value_t = 16, value_name = "N")]
    databases: usize,

    /// A unix socket to listen on as well.
    #[arg(long, env = "MNEME_UNIXSOCKET", value_name = "PATH")]
    unixsocket: Option<PathBuf>,

    /// Connections beyond which further ones are refused.
    #[arg(
        long,
        env = "MNEME_MAXCLIENTS",
        default_value_t = 10_000,
        value_name = "N"
    )]
    maxclients: usize,

    /// Whether to refuse other machines while there is no password.
    #[arg(
        long,
        env = "MNEME_PROTECTED_MODE",
        default_value = "yes",
        value_name = "yes|no",
        action = clap::ArgAction::Set,
        value_parser = yes_or_no
    )]
    protected_mode: bool,

    /// The password that clients must give. Better set in the environment: others can see a process' arguments.
    #[arg(
        long,
        env = "MNEME_REQUIREPASS",
        hide_env_values = true,
        value_name = "PASSWORD"
    )]
    requirepass: Option<String>,
}

/// An address, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bind {
    One(IpAddr),
    All,
}

/// Why serving did not begin, or ended badly.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("{0}")]
    Serve(#[from] ServeError),
    #[error("cannot watch for signals: {0}")]
    Signals(std::io::Error),
    #[error("{0}")]
    Registry(#[source] Box<dyn std::error::Error>),
    #[error("the server of the segment was not taken over, and goes on: {0}")]
    Attach(#[from] AttachError),
    #[error("{0}")]
    Handover(#[from] HandoverError),
}

/// Serves until told to stop.
pub fn run(arguments: Arguments) -> Result<(), Error> {
    let threads = arguments
        .threads
        .unwrap_or_else(|| SysfsTopology::detect().cpus());
    let mut server = Server::builder()
        .bind(addresses(&arguments.bind))
        .port(arguments.port)
        .threads(threads)
        .databases(arguments.databases)
        .max_clients(descriptors::clients(arguments.maxclients, threads))
        .protected_mode(arguments.protected_mode);
    let asked = arguments.memory.map(|Size(bytes)| bytes);
    let memory = asked.unwrap_or_else(|| mneme_sys::total_memory() / 2);
    let place = match arguments.private {
        true => None,
        false => segment(arguments.place, &arguments.segment, asked, memory)?,
    };
    let there = mneme_sys::total_memory();
    if place.is_some() && memory > there {
        tracing::warn!(
            "{} is more than the {} that this machine, or its control group, has: the kernel ends the server before the \
             store is that full, and again whenever it stores more then",
            size::show(memory),
            size::show(there)
        );
    }
    let withdrawal = Withdrawal::default();
    let registry = place.as_ref().map(|(registry, _)| registry.clone());
    server = match place {
        Some((registry, capacity)) => {
            let options = StoreOptions::new().capacity(capacity);
            let options = options.update_policy(arguments.update_policy.unwrap_or_default());
            let opening = Opening {
                options,
                capacity: asked,
                policy: arguments.update_policy,
                withdrawal: withdrawal.clone(),
            };
            server.segment(registry, &arguments.segment, opening)
        }
        None => server
            .memory(memory)
            .update_policy(arguments.update_policy.unwrap_or_default()),
    };
    if let Some(path) = &arguments.unixsocket {
        server = server.unix_socket(path);
    }
    if let Some(password) = arguments
        .requirepass
        .filter(|password| !password.is_empty())
    {
        server = server.password(password);
    }
    // Before the server's threads exist, so that a signal of the first moment is not lost.
    let stopping = Stopping::on_signal(withdrawal).map_err(Error::Signals)?;
    let inherited = match &registry {
        Some(registry) if arguments.take_over => {
            successor::take_over(registry, &arguments.segment)?
        }
        _ => None,
    };
    let service = Service {
        server,
        segment: registry.map(|registry| (registry, arguments.segment)),
        stopping,
        threads,
        unix_socket: arguments.unixsocket,
    };
    service.run(inherited)
}

/// The registry with the segment to serve, and how large to make that; `None` where shared memory is so scarce, as in
/// containers, that memory of the process serves better.
fn segment(
    place: Place,
    name: &str,
    asked: Option<u64>,
    memory: u64,
) -> Result<Option<(Registry, u64)>, Error> {
    let registry = place.open().map_err(Error::Registry)?;
    if asked.is_some() || Segment::open(&registry, name).is_ok() {
        return Ok(Some((registry, memory)));
    }
    let room = registry.room(&Backing::Shared);
    let room = room.map_err(|error| Error::Registry(error.into()))?;
    if room < memory / SCARCE || room < MIN_CAPACITY {
        tracing::warn!(
            "shared memory has {} only: the data is in memory of this process, and ends with it. A container gets more by \
             --shm-size; --memory says how much to take of what there is",
            size::show(room)
        );
        return Ok(None);
    }
    Ok(Some((registry, memory.min(room))))
}

/// Shared memory that holds less than this part of what would be served is not worth its limits.
const SCARCE: u64 = 4;

fn addresses(bind: &[Bind]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for one in bind {
        let expanded = match one {
            Bind::One(address) => vec![*address],
            Bind::All => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        };
        addresses.extend(
            expanded
                .into_iter()
                .filter(|address| !addresses.contains(address))
                .collect::<Vec<_>>(),
        );
    }
    addresses
}

fn bind(text: &str) -> Result<Bind, String> {
    match text {
        "*" => Ok(Bind::All),
        "localhost" => Ok(Bind::One(Ipv4Addr::LOCALHOST.into())),
        _ => text
            .parse()
            .map(Bind::One)
            .map_err(|_| "give an IP address, `localhost`, or `*` for all".to_owned()),
    }
}

/// Reads an update policy.
pub fn policy(text: &str) -> Result<UpdatePolicy, String> {
    match text {
        "append" => Ok(UpdatePolicy::Append),
        "in-place" => Ok(UpdatePolicy::InPlace),
        _ => Err("say append or in-place".to_owned()),
    }
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("say yes or no".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_listened_on_once() {
        let one = Bind::One(Ipv4Addr::LOCALHOST.into());
        assert_eq!(bind("localhost"), Ok(one));
        assert_eq!(bind("127.0.0.1"), Ok(one));
        assert_eq!(bind("::1"), Ok(Bind::One(Ipv6Addr::LOCALHOST.into())));
        assert!(bind("256.0.0.1").is_err());
        assert_eq!(addresses(&[one, one]), [IpAddr::from(Ipv4Addr::LOCALHOST)]);
        assert_eq!(
            addresses(&[Bind::All, Bind::One(Ipv4Addr::UNSPECIFIED.into())]).len(),
            2
        );
    }
}
