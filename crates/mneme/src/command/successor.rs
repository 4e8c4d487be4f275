//! Serving, from a predecessor's end to a successor's beginning: a server that has let its segment
//! go for a successor takes it back if that one does not serve.

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

/// What a predecessor has left: its listening sockets, and how to tell it that it is done, if it
/// has not ended yet.
pub type Inheritance = (Listeners, Option<TakenOver>);

/// What is served until it is ended, and which process may take it over.
pub struct Service {
    pub server: Server,
    /// Where the segment is that is served, if there is one.
    pub segment: Option<(Registry, String)>,
    pub stopping: Stopping,
    pub threads: usize,
}

impl Service {
    /// Serves until asked to stop, or until a successor serves.
    pub fn run(mut self, inherited: Option<Inheritance>) -> Result<(), Error> {
        let (mut listeners, mut predecessor) = match inherited {
            Some((sockets, old)) => (Some(sockets), old),
            None => (None, None),
        };
        // The successor that was given the segment and has not said that it serves.
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
                // One that has gone meanwhile needs no telling.
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
            // Also those that clients have changed.
            self.server = self.server.settings((*settings).clone());
            listeners = Some(sockets);
        }
    }

    /// Starts the server, on these sockets if there are any. `None`: the successor, which is late,
    /// serves after all, or this process is to end.
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
            // A signal may come while it loads.
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
                    // The successor has it, and may be stopped: no other process can serve until it
                    // goes on or ends.
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
                // One that is late finds out by the end of the connection.
                (started, _) => return Ok(Some(started?)),
            }
        }
    }
}

fn handed_over() -> Result<(), Error> {
    tracing::info!("handed over");
    Ok(())
}

/// Has the server of the segment let go of it, or finds that it has ended meanwhile; `None` if
/// nobody serves it.
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
    // What cannot be opened is left to the server that can.
    drop(SharedStore::attach(registry, name)?);
    tracing::info!(pid = asked.server(), "taking over");
    let (listeners, old) = asked.take(settings)?;
    if old.is_none() {
        tracing::info!("the server has ended before it handed over");
    }
    // One that had ended before it was asked has none.
    Ok((!listeners.is_empty()).then_some((listeners, old)))
}

/// Refuses where no server can be asked for the segment, and yet a process has the directory that
/// it is kept in.
fn refuse_if_loading(settings: &Settings) -> Result<(), Error> {
    let Some(directory) = settings.data() else {
        return Ok(());
    };
    match DurableOptions::new(&directory).holder() {
        Some(pid) => Err(Error::StillLoading { directory, pid }),
        None => Ok(()),
    }
}

/// Where a successor can ask for the segment; without it the server serves all the same.
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
