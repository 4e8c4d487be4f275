//! Changes settings while the server runs: several at once, **all of them or none**.
//!
//! All values are parsed before the first is set. Then the necessary actions are performed one
//! after the other; if one fails, the earlier ones are undone in reverse order.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use crate::client_memory;
use crate::eviction_policy;
use crate::fill_policy;
use crate::max_clients;
use crate::settings::{
    Changes, Key, Kind, Refused, RewriteError, Setting, Settings, Value, sync_policy,
};
use crate::shared::Shared;
use crate::tls::{self, TlsError, TlsIdentity};
use mneme_log::{GrowError, WriteError};

/// A setting and its new value.
#[derive(Debug, Clone)]
pub(crate) struct SettingChange {
    key: Key,
    value: Value,
}

/// Why nothing was changed, in Redis's words.
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
    #[error("the data is still being loaded")]
    Loading,
    #[error("a store does not shrink: it has {has} bytes, and may grow to {most}")]
    Shrinks { has: u64, most: u64 },
    #[error(transparent)]
    Grow(#[from] GrowError),
    #[error(transparent)]
    Evict(#[from] WriteError),
    #[error(transparent)]
    Tls(Box<TlsError>),
}

impl SettingChange {
    /// Parses names and values. As in Redis, an unknown name is reported before anything else.
    pub fn read<'a>(
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Result<Vec<Self>, ChangeError> {
        let shown = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let mut settings: Vec<(&Setting, &str)> = Vec::new();
        for (name, value) in pairs.clone() {
            let unknown = || ChangeError::Unknown(name.to_vec());
            let (setting, spelt) = Setting::spelt(name).ok_or_else(unknown)?;
            let reason = if setting.changes == Changes::AtStart {
                Some(immutable(setting, value))
            } else if settings.iter().any(|(other, _)| other.key == setting.key) {
                Some(Reason::Twice)
            } else {
                None
            };
            if let Some(reason) = reason {
                let name = shown(name);
                return Err(ChangeError::Refused { name, reason });
            }
            settings.push((setting, spelt));
        }
        let read = |((setting, spelt), (_, value)): ((&Setting, &str), (_, &[u8]))| {
            let text = String::from_utf8_lossy(value);
            // Repairing invalid UTF-8 would change the text: nobody could then enter such a
            // password.
            let is_text = matches!(setting.kind, Kind::Text | Kind::Secret);
            let value = match text {
                Cow::Owned(_) if is_text => Err(Refused::NotUtf8),
                text => setting.kind.parse(&text),
            };
            value
                .map(|value| SettingChange {
                    key: setting.key,
                    value,
                })
                .map_err(|reason| ChangeError::Refused {
                    name: spelt.to_owned(),
                    reason: reason.into(),
                })
        };
        settings.into_iter().zip(pairs).map(read).collect()
    }
}

/// Why a setting that is fixed at the start cannot be changed. Redis can change its port and
/// addresses while it runs, so values that Redis would refuse are refused in its words.
fn immutable(setting: &Setting, value: &[u8]) -> Reason {
    let is_live_in_redis = matches!(setting.key, Key::Port | Key::Bind);
    match setting.kind.parse(&String::from_utf8_lossy(value)) {
        Err(refused) if is_live_in_redis => Reason::Value(refused),
        _ => Reason::Immutable,
    }
}

/// Serialises changes of the configuration, so that its holder sees each change as a whole.
static CHANGING: Mutex<()> = Mutex::new(());

/// Does work that depends on settings, while no client can change them.
pub(crate) fn unchanged<T>(work: impl FnOnce() -> T) -> T {
    let _unchanged = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}

/// Writes the current settings to the configuration file.
///
/// # Errors
/// The file cannot be read or written.
pub(crate) fn rewrite(settings: &Settings) -> Result<(), RewriteError> {
    // One writer after the other, so that the last one writes the newest settings. Changes do not
    // wait for the disk.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let settings = {
        let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        settings.clone()
    };
    settings.rewrite()
}

/// Makes all changes, or none.
pub(crate) fn change(server: &Shared, changes: &[SettingChange]) -> Result<(), ChangeError> {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let evict = server.store.eviction();
    let is_asked = |key| changes.iter().find(|change| change.key == key);
    let refused = |key: Key, reason| ChangeError::Refused {
        name: key.setting().name.to_owned(),
        reason,
    };
    for change in changes {
        if let Some(reason) = server.settings.data_refusal(change.key, &change.value) {
            return Err(refused(change.key, reason.into()));
        }
    }
    if let Some(change) = is_asked(Key::MaxClients) {
        let wanted = usize::try_from(change.value.number).unwrap_or(usize::MAX);
        let has_metrics = server.metrics.get().is_some();
        let possible = max_clients::clients(wanted, server.threads.len(), has_metrics);
        if possible < wanted {
            return Err(refused(change.key, Reason::Descriptors(possible)));
        }
    }
    // Read before anything is changed, even if the same file was named before.
    let identity = match changes.iter().find(|change| tls::is_meant(change.key)) {
        Some(first) if !server.tls_addresses.is_empty() => {
            let proposed = Settings::clone(&server.settings);
            for change in changes {
                proposed.put(change.key, change.value.clone());
            }
            let read = TlsIdentity::read(&proposed);
            Some(read.map_err(|error| refused(first.key, Reason::Tls(Box::new(error))))?)
        }
        _ => None,
    };
    if let Some(change) = is_asked(Key::MaxMemoryPolicy) {
        let evict = eviction_policy::policy(change.value.number);
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
    if let Some(identity) = identity {
        server.set_identity(identity);
    }
    if changes
        .iter()
        .any(|change| fill_policy::is_meant(change.key))
    {
        server.keep_filled();
    }
    if is_asked(Key::LocalPrograms).is_some() {
        let may = server.settings.local_programs();
        server.store.set_local_programs(may);
    }
    if let Some(change) = is_asked(Key::Password) {
        server.users.set_default_password(&change.value.text);
    }
    server
        .users
        .log
        .trim(server.settings.count(Key::AclLogLength));
    if let (Some(change), Some(durability)) =
        (is_asked(Key::AppendFsync), server.store.durability())
    {
        durability.set_policy(sync_policy(change.value.number));
    }
    server
        .slowlog
        .trim(server.settings.count(Key::SlowlogLength));
    client_memory::evict(server);
    // Sleeping threads have not seen the change, and may have to disconnect idle clients.
    server.wake_all();
    Ok(())
}

/// Reads the TLS files again, for future connections. If they cannot be read, nothing changes.
pub(crate) fn reload_tls(server: &Shared) {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    if server.tls_addresses.is_empty() {
        return;
    }
    match TlsIdentity::read(&server.settings) {
        Ok(identity) => {
            server.set_identity(identity);
            tracing::info!("the certificate has been read again");
        }
        Err(error) => {
            tracing::error!(%error, "the certificate was not read again: the one before holds")
        }
    }
}

/// Resizes the store to `bytes`; 0 leaves its size unchanged.
fn resize(server: &Shared, bytes: u64) -> Result<(), Reason> {
    if server.store.is_loading() {
        return Err(Reason::Loading);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Source;

    /// `CONFIG REWRITE` runs while a `CONFIG SET` has set only the first of two settings.
    #[test]
    fn a_rewritten_file_never_has_half_of_a_change() {
        let name = format!("mneme-configure-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "timeout = 1\nslowlog-max-len = 1\n").unwrap();
        let mut settings = Settings::default();
        settings.read(&path).unwrap();
        let say = |key| settings.say(key, "2", Source::Said).unwrap();
        std::thread::scope(|scope| {
            let changing = CHANGING.lock().unwrap();
            say(Key::Timeout);
            let rewriting = scope.spawn(|| rewrite(&settings));
            // If it did not wait, it would have written by then.
            std::thread::sleep(std::time::Duration::from_millis(200));
            say(Key::SlowlogLength);
            drop(changing);
            rewriting.join().unwrap().unwrap();
        });
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "timeout = 2\nslowlog-max-len = 2\n");
    }
}
