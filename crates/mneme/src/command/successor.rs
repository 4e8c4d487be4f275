//! The life of a server process between a take-over from a predecessor and a take-over by a
//! successor. A server that has handed its segment to a successor takes it back if the successor
//! fails to serve.

use mneme::SharedStore;
use mneme::server::settings::Settings;
use mneme::server::{
    Ended, Handover, HandoverError, HandoverSocket, Listeners, Request, Running, Server, Stopper,
    TakenOver,
};
use mneme_durable::DurableOptions;
use mneme_space::{Registry, Segment};

use super::banner;
use super::progress::ProgressLine;
use super::serve::Error;
use super::signals::Stopping;
use super::supervisor;

/// What a predecessor has handed over: its listening sockets, and, unless it has ended already, a
/// handle to report that this server serves.
pub type Inheritance = (Listeners, Option<TakenOver>);

/// A server, and the segment through which a successor can take over from it.
pub struct Service {
    pub server: Server,
    /// The registry and name of the segment that is served, if there is one.
    pub segment: Option<(Registry, String)>,
    pub stopping: Stopping,
    pub threads: usize,
}

impl Service {
    /// Serves until it is asked to stop, or until a successor serves.
    pub fn run(mut self, inherited: Option<Inheritance>) -> Result<(), Error> {
        let (mut listeners, mut predecessor) = match inherited {
            Some((sockets, old)) => (Some(sockets), old),
            None => (None, None),
        };
        // The successor that was given the segment and has not reported yet that it serves.
        let mut successor: Option<Request> = None;
        loop {
            let Some(running) = self.start(listeners.take(), successor.take())? else {
                return Ok(());
            };
            self.stopping.stops(running.stopper());
            let socket = self
                .segment
                .as_ref()
                .and_then(|(registry, name)| handover_socket(registry, name, running.stopper()));
            if let Some(old) = predecessor.take() {
                // If the predecessor has ended meanwhile, it need not know.
                let _ = old.serving();
            }
            banner::show(&running, self.threads);
            supervisor::serving();
            let settings = running.settings();
            let Ended::Retired(mut sockets) = running.join()? else {
                tracing::info!("stopped");
                return Ok(());
            };
            match socket.and_then(HandoverSocket::into_request) {
                Some(mut request) => match request.grant(&mut sockets) {
                    Ok(()) => return handed_over(),
                    Err(error) => {
                        tracing::warn!(%error, "the successor does not serve; going on");
                        successor = error.is_late().then_some(request);
                    }
                },
                None => tracing::warn!("the successor is gone; going on"),
            }
            // Including changes by clients.
            self.server = self.server.settings((*settings).clone());
            listeners = Some(sockets);
        }
    }

    /// Starts the server, on these sockets if there are any. `None` if the successor has begun to
    /// serve after all, or if this process is to end.
    fn start(
        &self,
        listeners: Option<Listeners>,
        mut successor: Option<Request>,
    ) -> Result<Option<Running>, Error> {
        let stopping = self.stopping.clone();
        let progress = ProgressLine::default();
        let mut server = self
            .server
            .clone()
            // A signal may come while the server loads.
            .on_starting(move |stopper| stopping.stops(stopper.clone()))
            .on_loading(move |done, total| {
                supervisor::loading();
                progress.show(done, total);
            });
        if let Some(sockets) = listeners {
            server = server.listeners(sockets);
        }
        loop {
            match (server.clone().start(), &mut successor) {
                (Err(error), Some(late)) if error.is_served() => {
                    // The successor has the segment but may be stopped; no other process can serve
                    // until it continues or ends.
                    match late.serves() {
                        Ok(()) => return handed_over().map(|()| None),
                        Err(_) if self.stopping.is_signalled() => return Ok(None),
                        Err(error) if error.is_late() => {}
                        Err(_) => successor = None,
                    }
                }
                (Err(error), _) if error.is_stopped() => {
                    tracing::info!("stopped before all was loaded");
                    return Ok(None);
                }
                // If the successor is late, it notices that the connection has closed.
                (started, _) => return Ok(Some(started?)),
            }
        }
    }
}

fn handed_over() -> Result<(), Error> {
    tracing::info!("handed over");
    Ok(())
}

/// Takes the segment over from the server that has it. `None` if no server has it. A server that
/// ends meanwhile is not an error.
pub fn take_over(
    registry: &Registry,
    name: &str,
    settings: &Settings,
) -> Result<Option<Inheritance>, Error> {
    let Ok(segment) = Segment::open(registry, name) else {
        refuse_if_loading(settings)?;
        tracing::info!("there is no segment of that name yet, and nobody to take over from");
        return Ok(None);
    };
    let asked = match Handover::ask(&segment.directory()) {
        Ok(asked) => asked,
        Err(error @ HandoverError::NoServer { .. }) => {
            refuse_if_loading(settings)?;
            tracing::info!(%error, "nobody to take over from");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    // A segment that this version cannot open is left to the server that can.
    drop(SharedStore::administer(registry, name)?);
    tracing::info!(pid = asked.server(), "taking over");
    let (listeners, old) = asked.take(settings)?;
    if old.is_none() {
        tracing::info!("the server has ended before it handed over");
    }
    // A server that ended before the request has handed over no sockets.
    Ok((!listeners.is_empty()).then_some((listeners, old)))
}

/// Returns an error if a process uses the data directory although no server can be reached through
/// the segment.
fn refuse_if_loading(settings: &Settings) -> Result<(), Error> {
    let Some(directory) = settings.data() else {
        return Ok(());
    };
    match DurableOptions::new(&directory).holder() {
        Some(pid) => Err(Error::StillLoading { directory, pid }),
        None => Ok(()),
    }
}

/// The socket through which a successor can ask for the segment. If it cannot be opened, the server
/// serves without it.
fn handover_socket(registry: &Registry, name: &str, stopper: Stopper) -> Option<HandoverSocket> {
    let directory = Segment::open(registry, name).ok()?.directory();
    match HandoverSocket::listen(&directory, stopper) {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(%error, "no other server will be able to take over from this one");
            None
        }
    }
}
