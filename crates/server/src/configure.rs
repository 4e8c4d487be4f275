//! Settings that change while the server runs: several at once, **all of them or none**.
//!
//! All values are read before the first is set; then what must happen for them to hold is done, one after the other, and
//! undone in the reverse order where a later one fails.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use crate::descriptors;
use crate::eviction;
use crate::settings::{Changes, Key, Kind, Refused, Setting, Value};
use crate::shared::Shared;
use mneme_log::{GrowError, WriteError};

/// One setting and what it is to become.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    key: Key,
    value: Value,
}

/// Why nothing was changed, as Redis says it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error("Unknown option or number of arguments for CONFIG SET - '{}'", String::from_utf8_lossy(.0))]
    Unknown(Vec<u8>),
    #[error("CONFIG SET failed (possibly related to argument '{name}') - {reason}")]
    Refused { name: String, reason: Reason },
}

/// What is wrong with one of the changes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Reason {
    #[error("can't set immutable config")]
    Immutable,
    #[error("duplicate parameter")]
    Twice,
    #[error(transparent)]
    Value(#[from] Refused),
    #[error(
        "The operating system is not able to handle the specified number of clients, try with {0}"
    )]
    Descriptors(usize),
    #[error("a store does not shrink: it has {has} bytes, and may grow to {most}")]
    Shrinks { has: u64, most: u64 },
    #[error(transparent)]
    Grow(#[from] GrowError),
    #[error(transparent)]
    Evict(#[from] WriteError),
}

impl Change {
    /// Reads names and values. As in Redis, a name that there is not counts before all else.
    pub fn read<'a>(
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Result<Vec<Self>, ChangeError> {
        let shown = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let mut settings: Vec<&Setting> = Vec::new();
        let mut refused = None;
        for (name, _) in pairs.clone() {
            let setting = Setting::named(name).ok_or_else(|| ChangeError::Unknown(name.to_vec()));
            let setting = match (setting, &refused) {
                (Ok(setting), _) => setting,
                (Err(unknown), None) => return Err(unknown),
                (Err(_), Some(_)) => continue,
            };
            let reason = if setting.changes == Changes::AtStart {
                Some(Reason::Immutable)
            } else if settings.iter().any(|other| other.key == setting.key) {
                Some(Reason::Twice)
            } else {
                None
            };
            if let (Some(reason), None) = (reason, &refused) {
                let name = shown(name);
                refused = Some(ChangeError::Refused { name, reason });
            }
            settings.push(setting);
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        let read = |(setting, (_, value)): (&Setting, (_, &[u8]))| {
            let text = String::from_utf8_lossy(value);
            // A text that was mended would be another: a password that nobody can give.
            let is_text = matches!(setting.kind, Kind::Text | Kind::Secret);
            let value = match text {
                Cow::Owned(_) if is_text => Err(Refused::NotUtf8),
                text => setting.kind.parse(&text),
            };
            value
                .map(|value| Change {
                    key: setting.key,
                    value,
                })
                .map_err(|reason| ChangeError::Refused {
                    name: setting.name.to_owned(),
                    reason: reason.into(),
                })
        };
        settings.into_iter().zip(pairs).map(read).collect()
    }
}

/// One change of the configuration at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Makes all changes, or none.
pub(crate) fn change(server: &Shared, changes: &[Change]) -> Result<(), ChangeError> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let evict = server.store.eviction();
    let is_asked = |key| changes.iter().find(|change| change.key == key);
    let refused = |key: Key, reason| ChangeError::Refused {
        name: key.setting().name.to_owned(),
        reason,
    };
    if let Some(change) = is_asked(Key::MaxClients) {
        let wanted = usize::try_from(change.value.number).unwrap_or(usize::MAX);
        let has_metrics = server.metrics.get().is_some();
        let possible = descriptors::clients(wanted, server.threads.len(), has_metrics);
        if possible < wanted {
            return Err(refused(change.key, Reason::Descriptors(possible)));
        }
    }
    if let Some(change) = is_asked(Key::MaxMemoryPolicy) {
        let evict = eviction::policy(change.value.number);
        let set = server.store.set_eviction(evict);
        set.map_err(|error| refused(change.key, error.into()))?;
    }
    // Last, because it cannot be undone.
    if let Some(change) = is_asked(Key::MaxMemory)
        && let Err(reason) = resize(server, change.value.number as u64)
    {
        if server.store.set_eviction(evict).is_err() {
            tracing::warn!("a refused CONFIG SET has changed maxmemory-policy");
        }
        return Err(refused(change.key, reason));
    }
    for change in changes {
        server.settings.put(change.key, change.value.clone());
    }
    server
        .slowlog
        .trim(server.settings.count(Key::SlowlogLength));
    // Threads that sleep have not heard of it: a client that says nothing is to be cut off all the same.
    server.wake_all();
    Ok(())
}

/// Makes the store `bytes` large; 0 leaves it as it is.
fn resize(server: &Shared, bytes: u64) -> Result<(), Reason> {
    let stats = server.stats();
    match bytes {
        0 => {}
        bytes if bytes < stats.capacity => {
            return Err(Reason::Shrinks {
                has: stats.capacity,
                most: stats.max_capacity,
            });
        }
        bytes => {
            server.store.grow(bytes)?;
        }
    }
    Ok(())
}
