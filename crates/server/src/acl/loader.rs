//! `ACL LOAD` is executed by a background thread, so that **no client waits while the file is
//! read**, and the reply comes when its users are in force.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// The requests of clients.
#[derive(Debug, Default)]
pub(crate) struct Loader {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<LoadRequest>,
    has_ended: bool,
}

/// A client's request to load the file.
#[derive(Debug, Clone)]
pub(crate) struct LoadRequest {
    /// The client's number.
    pub client: u64,
    outcome: Arc<OnceLock<Result<UsersLoaded, String>>>,
}

/// The users of the file are in force.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsersLoaded {
    /// Whether the client that has asked for it is to be closed after its reply.
    pub closes: bool,
}

impl Loader {
    /// Requests a load. Requests made before the file is read share that load.
    pub fn request(&self, client: u64) -> LoadRequest {
        let request = LoadRequest {
            client,
            outcome: Arc::default(),
        };
        self.state().requests.push(request.clone());
        self.changed.notify_all();
        request
    }

    /// Makes the thread end.
    pub fn end(&self) {
        self.state().has_ended = true;
        self.changed.notify_all();
    }

    /// Calls `load` for all requests so far, again and again, until the end.
    pub fn serve(&self, mut load: impl FnMut(&[LoadRequest])) {
        let mut state = self.state();
        while !state.has_ended {
            if state.requests.is_empty() {
                let waited = self.changed.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let requests = std::mem::take(&mut state.requests);
            drop(state);
            load(&requests);
            state = self.state();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoadRequest {
    /// Answers it.
    pub fn answer(&self, outcome: Result<UsersLoaded, String>) {
        // It is answered once.
        let _ = self.outcome.set(outcome);
    }

    /// Its answer, once there is one. The error is the text for the client.
    pub fn answered(&self) -> Option<&Result<UsersLoaded, String>> {
        self.outcome.get()
    }
}
