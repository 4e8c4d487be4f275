//! Group commit: **the requests of several threads become one version, and each thread learns the
//! result of its own request.**
//!
//! A thread *adds* its request to the queue and then waits for the writer. With the writer it
//! *looks* whether its request has been answered. If not, it *takes* everything from the queue,
//! commits it, and *answers* each request before it releases the writer. So a thread with the
//! writer finds its request answered or in the queue: it was added before the thread waited, and a
//! thread that took it has answered it before releasing the writer.
//!
//! While one group is synced the next one forms in the queue. The models in `models` run this code
//! under a model checker.

#[cfg(test)]
mod models;

use std::sync::{Arc, Mutex, PoisonError};

/// The locks: those of the product, or those of a model checker.
pub(crate) trait Locks {
    type Mutex<T>;

    fn new<T>(value: T) -> Self::Mutex<T>;

    /// Calls `f` with the content of the lock.
    fn with<T, R>(mutex: &Self::Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R;
}

/// The locks of the product.
#[derive(Debug)]
pub(crate) struct Std;

impl Locks for Std {
    type Mutex<T> = Mutex<T>;

    fn new<T>(value: T) -> Mutex<T> {
        Mutex::new(value)
    }

    fn with<T, R>(mutex: &Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R {
        // A commit that panicked leaves a note of it; all other changes are single steps.
        f(&mut mutex.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request that a thread waits for.
#[derive(Debug)]
pub(crate) struct CommitRequest<B, R, L: Locks = Std> {
    pub(crate) batch: B,
    answer: L::Mutex<Option<R>>,
}

impl<B, R, L: Locks> CommitRequest<B, R, L> {
    pub(crate) fn answer(&self, answer: R) {
        L::with(&self.answer, |place| *place = Some(answer));
    }

    fn take_answer(&self) -> Option<R> {
        L::with(&self.answer, Option::take)
    }
}

type Waiting<B, R, L> = Vec<Arc<CommitRequest<B, R, L>>>;

/// The requests that wait for the writer.
#[derive(Debug)]
pub(crate) struct CommitGroup<B, R, L: Locks = Std>(L::Mutex<Waiting<B, R, L>>);

impl<B, R, L: Locks> Default for CommitGroup<B, R, L> {
    fn default() -> Self {
        Self(L::new(Vec::new()))
    }
}

impl<B, R, L: Locks> CommitGroup<B, R, L> {
    pub(crate) fn is_empty(&self) -> bool {
        L::with(&self.0, |queue| queue.is_empty())
    }

    /// Gets `batch` committed: by another thread, or by `commit`, which commits all waiting
    /// requests and answers each. `None` if it failed to answer.
    pub(crate) fn commit<W>(
        &self,
        writer: &L::Mutex<W>,
        batch: B,
        commit: impl FnOnce(&mut W, &[Arc<CommitRequest<B, R, L>>]),
    ) -> Option<R> {
        let request = self.add(batch);
        L::with(writer, |writer| {
            request.take_answer().or_else(|| {
                commit(writer, &self.take());
                request.take_answer()
            })
        })
    }

    fn add(&self, batch: B) -> Arc<CommitRequest<B, R, L>> {
        let request = Arc::new(CommitRequest {
            batch,
            answer: L::new(None),
        });
        L::with(&self.0, |queue| queue.push(request.clone()));
        request
    }

    fn take(&self) -> Waiting<B, R, L> {
        L::with(&self.0, std::mem::take)
    }
}
