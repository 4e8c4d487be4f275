//! What signals end: the server that is running, or the start of one.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mneme::server::Stopper;
use mneme_shared::Withdrawal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::supervisor;

/// What signals stop: the server that is running now.
#[derive(Clone, Default)]
pub struct Stopping(Arc<Mutex<Signalled>>);

#[derive(Default)]
struct Signalled {
    stopper: Option<Stopper>,
    already: bool,
}

impl Stopping {
    /// The first signal stops the server cleanly, and takes back a start that has not settled: the
    /// store did not make it fail. The second ends the process. SIGHUP has the files of TLS read
    /// again, and ends nothing: nor does a terminal that goes away.
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

    /// This is the server now. One for which the signal has come already ends at once.
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
        // Whatever a panicking thread left is as good: each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
