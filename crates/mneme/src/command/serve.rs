//! `mneme serve`: runs the server in the foreground, until a signal or a client's `SHUTDOWN`.

use std::path::PathBuf;

use mneme::server::settings::{ConfigFileError, Key, Settings};
use mneme::server::{HandoverError, Opening, ServeError, Server, StartError, StoreOptions};
use mneme::{AttachError, MIN_CAPACITY};
use mneme_shared::Withdrawal;
use mneme_space::{Backing, Name, NameError, OpenError, Registry, Segment};
use mneme_sys::{SysfsTopology, Topology};

use super::flags::{self, Flags};
use super::output;
use super::registry::RegistryPath;
use super::signals::Stopping;
use super::size;
use super::successor::{self, Service};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    flags: Flags,

    /// A TOML file of settings, for what neither a flag nor the environment says. `CONFIG REWRITE`
    /// writes it.
    #[arg(long, env = "MNEME_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print all settings, with what they mean and as they would be here, as a file for `--config`;
    /// serve nobody.
    #[arg(long)]
    print_config: bool,

    /// Take over from the server of the segment, if there is one, with its listening sockets: no
    /// connection is refused meanwhile. It goes on if this one does not come up.
    #[arg(long)]
    take_over: bool,
}

/// Why the server did not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("{0}")]
    Serve(#[from] ServeError),
    #[error("{0}")]
    File(#[from] ConfigFileError),
    #[error("invalid value '{name}' for 'segment': {source}")]
    SegmentName { name: String, source: NameError },
    #[error("cannot watch for signals: {0}")]
    Signals(std::io::Error),
    #[error("{0}")]
    Registry(#[source] Box<dyn std::error::Error>),
    #[error("the server of the segment was not taken over, and goes on: {0}")]
    Attach(#[from] AttachError),
    #[error("{0}")]
    Handover(#[from] HandoverError),
    #[error(
        "process {pid} (0: not known) has {}, and cannot be taken over: it is still loading, or about to end. \
         `INFO persistence` of it says how far it is; try again once it serves",
        directory.display()
    )]
    StillLoading { directory: PathBuf, pid: u32 },
    #[error(
        "there is nobody to take over memory of a process from: --take-over and private exclude each other"
    )]
    TakeOverPrivate,
}

/// Serves until it is asked to stop, or prints the settings it would use.
pub fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let link = std::env::var_os("MNEME_PORT");
    if let Some(text) = link.filter(|text| flags::is_service_link("MNEME_PORT", text)) {
        tracing::warn!(
            "MNEME_PORT={} is the address of a service named mneme, and no port: it is ignored",
            text.display()
        );
    }
    let mut settings = arguments.flags.0;
    if let Some(path) = &arguments.config {
        settings.read(path).map_err(Error::from)?;
    }
    if !settings.is(Key::CoreDumps)
        && let Err(error) = mneme_sys::forbid_core_dumps()
    {
        tracing::warn!(%error, "a crash may leave a core dump, which has passwords in it");
    }
    let name = settings.text(Key::Segment);
    Name::new(&name).map_err(|source| Error::SegmentName {
        name: name.to_string(),
        source,
    })?;
    if arguments.print_config {
        return output::print(settings.print(|key| computed(&settings, key)));
    }
    Ok(serve(settings, arguments.take_over)?)
}

/// The value on this machine of a setting whose default depends on the machine.
fn computed(settings: &Settings, key: Key) -> Option<String> {
    match key {
        Key::MaxMemory if !settings.is(key) => {
            let bytes = mneme_sys::total_memory() / 2;
            Some(format!("Here 0 is {bytes}, {}.", size::show(bytes)))
        }
        Key::Threads if !settings.is(key) => {
            Some(format!("Here 0 is {}.", SysfsTopology::detect().cpus()))
        }
        _ => None,
    }
}

fn serve(settings: Settings, take_over: bool) -> Result<(), Error> {
    let threads = match settings.count(Key::Threads) {
        0 => SysfsTopology::detect().cpus(),
        threads => threads,
    };
    let asked = Some(settings.count(Key::MaxMemory) as u64).filter(|bytes| *bytes > 0);
    let memory = asked.unwrap_or_else(|| mneme_sys::total_memory() / 2);
    let name = settings.text(Key::Segment).to_string();
    let policy = settings.update_policy();
    let place = match settings.is(Key::Private) {
        true if take_over => return Err(Error::TakeOverPrivate),
        true => None,
        false => segment(&settings, &name, asked, memory)?,
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
    let asked_policy = settings.is_given(Key::UpdatePolicy).then_some(policy);
    let mut server = Server::builder().settings(settings.clone());
    let withdrawal = Withdrawal::default();
    let registry = place.as_ref().map(|(registry, _)| registry.clone());
    if let Some((registry, capacity)) = place {
        let mut options = StoreOptions::new().capacity(capacity);
        if let Some(lending) = settings.lending(capacity) {
            options = options.lend_idle(lending);
        }
        let opening = Opening {
            local_programs: settings.local_programs(),
            options: options.update_policy(policy),
            capacity: asked,
            policy: asked_policy,
            change_feed: Some(false),
            withdrawal: withdrawal.clone(),
        };
        server = server.segment(registry, &name, opening);
    }
    // Set up before the server's threads exist, so that an early signal is not lost.
    let stopping = Stopping::on_signal(withdrawal).map_err(Error::Signals)?;
    let inherited = match &registry {
        Some(registry) if take_over => successor::take_over(registry, &name, &settings)?,
        _ => None,
    };
    let service = Service {
        server,
        segment: registry.map(|registry| (registry, name)),
        stopping,
        threads,
    };
    service.run(inherited)
}

/// The registry with the segment to serve, and the segment's size. `None` if shared memory is so
/// scarce, as in containers, that memory of this process is the better choice.
fn segment(
    settings: &Settings,
    name: &str,
    asked: Option<u64>,
    memory: u64,
) -> Result<Option<(Registry, u64)>, Error> {
    let root = settings.text(Key::Registry);
    let place = RegistryPath::at((!root.is_empty()).then(|| PathBuf::from(&*root)));
    let registry = place.open().map_err(Error::Registry)?;
    let is_new = matches!(
        Segment::open(&registry, name),
        Err(OpenError::NotFound { .. })
    );
    // If the segment exists but cannot be opened, the server reports that: falling back to process
    // memory would hide it.
    if asked.is_some() || !is_new {
        return Ok(Some((registry, memory)));
    }
    let free = registry.free_space(&Backing::Shared);
    let free = free.map_err(|error| Error::Registry(error.into()))?;
    let is_scarce = free < memory / SCARCE || free < MIN_CAPACITY;
    if is_scarce && !settings.is_given(Key::Segment) {
        tracing::warn!(
            "shared memory has {} only: the data is in memory of this process, and ends with it. A container gets more by \
             --shm-size; --maxmemory says how much to take of what there is",
            size::show(free)
        );
        return Ok(None);
    }
    Ok(Some((registry, memory.min(free))))
}

/// If shared memory could hold less than this fraction of the data, its limits are not worth it.
const SCARCE: u64 = 4;
