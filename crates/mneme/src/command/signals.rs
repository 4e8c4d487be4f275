//! Signals, which end the running server, or one that is starting.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mneme::server::Stopper;
use mneme_shared::Withdrawal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::supervisor;

/// The target of signals: the server that is running now.
#[derive(Clone, Default)]
pub struct Stopping(Arc<Mutex<Signalled>>);

#[derive(Default)]
struct Signalled {
    stopper: Option<Stopper>,
    already: bool,
}

impl Stopping {
    /// Installs the handlers. The first signal stops the server cleanly; if the start does not
    /// count as successful yet, it is withdrawn, since the store did not make it fail. A second
    /// signal ends the process. SIGHUP, which is also sent when a terminal closes, ends nothing: it
    /// makes the server read its TLS files again.
    pub fn on_signal(start: Withdrawal) -> io::Result<Self> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let stopping = Self::default();
        let this = stopping.clone();
        std::thread::spawn(move || {
            let mut signals = signals.forever().filter(|signal| {
                if *signal == SIGHUP
                    && let Some(server) = &this.lock().stopper
                {
                    server.reload();
                }
                *signal != SIGHUP
            });
            if let Some(signal) = signals.next() {
                tracing::info!(
                    signal,
                    "stopping; once more to stop without waiting for clients"
                );
                supervisor::stopping();
                if let Err(error) = start.withdraw() {
                    tracing::warn!(%error, "this start counts as one that failed, unless it comes to an end by itself");
                }
                let mut now = this.lock();
                now.already = true;
                if let Some(stopper) = &now.stopper {
                    stopper.stop();
                }
            }
            if let Some(signal) = signals.next() {
                std::process::exit(128 + signal);
            }
        });
        Ok(stopping)
    }

    /// Sets the server that a signal stops. If a signal has come already, the server stops at once.
    pub fn stops(&self, stopper: Stopper) {
        let mut now = self.lock();
        if now.already {
            stopper.stop();
        }
        now.stopper = Some(stopper);
    }

    /// Whether a signal has come.
    pub fn is_signalled(&self) -> bool {
        self.lock().already
    }

    fn lock(&self) -> MutexGuard<'_, Signalled> {
        // Even after a panic the value is consistent, since each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
