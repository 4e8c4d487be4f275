//! The settings' values. **Numbers are read without a lock**, by any thread at any time. Reading a
//! text takes a lock for as long as it takes to copy a pointer; no command reads a text while it is
//! executed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::address::{Address, all_addresses, endpoint};
use super::output_limit::OutputLimits;
use super::{Key, OutputClass, OutputLimit, Refused, SETTINGS, Setting, Value};
use crate::resp::RequestLimits;
use mneme_durable::{DurabilityMode, SyncPolicy};
use mneme_log::lent::LendingOptions;
use mneme_log::{LocalPrograms, UpdatePolicy};

/// A server's configuration, before its start and while it runs.
#[derive(Debug)]
pub struct Settings {
    held: Box<[Held]>,
    output_limits: OutputLimits,
    /// The file that they were read from and are written to.
    pub(super) file: Option<PathBuf>,
}

/// Where a setting's value comes from. Later sources in this list override earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Source {
    /// The default.
    Default,
    /// The configuration file.
    File,
    /// The environment.
    Environment,
    /// A flag, the embedding program, or `CONFIG SET`.
    Said,
    /// The listening sockets: a predecessor has handed them over, or the system has chosen their
    /// port, or there are none. Such a value is valid for this run only, and `CONFIG REWRITE` does
    /// not write it.
    Sockets,
}

#[derive(Debug)]
struct Held {
    number: AtomicI64,
    text: RwLock<Arc<str>>,
    source: AtomicU8,
}

impl Default for Settings {
    fn default() -> Self {
        let held = |setting: &Setting| {
            // A test parses all defaults; one that does not parse would be empty.
            let value = setting.kind.parse(setting.default);
            let Value { number, text } = value.unwrap_or_else(|_| Value::number(0));
            Held {
                number: AtomicI64::new(number),
                text: RwLock::new(text),
                source: AtomicU8::new(Source::Default as u8),
            }
        };
        let settings = Self {
            held: SETTINGS.iter().map(held).collect(),
            output_limits: OutputLimits::default(),
            file: None,
        };
        let limits = settings.text(Key::OutputLimit);
        settings.output_limits.set(&limits);
        settings
    }
}

impl Clone for Settings {
    fn clone(&self) -> Self {
        let copy = Self {
            file: self.file.clone(),
            ..Self::default()
        };
        for (setting, held) in SETTINGS.iter().zip(&self.held) {
            copy.put(setting.key, self.value(setting.key));
            // SYNC: as in `put`.
            let source = held.source.load(Ordering::Relaxed);
            copy.held[setting.key as usize]
                .source
                .store(source, Ordering::Relaxed);
        }
        copy
    }
}

impl Settings {
    /// Sets the setting to the value of `text`, unless a source that overrides this one has set it
    /// already.
    ///
    /// # Errors
    /// If the text is not a valid value of this setting.
    pub fn say(&self, key: Key, text: &str, source: Source) -> Result<(), Refused> {
        let value = key.setting().kind.parse(text)?;
        let held = &self.held[key as usize];
        // SYNC: as in `put`.
        if source as u8 >= held.source.load(Ordering::Relaxed) {
            self.put(key, value);
            held.source.store(source as u8, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sets the value of a setting.
    pub(crate) fn put(&self, key: Key, value: Value) {
        let held = &self.held[key as usize];
        let value = match key {
            // Classes that it does not name keep their limits.
            Key::OutputLimit => Value::text(self.output_limits.set(&value.text)),
            _ => value,
        };
        *held.text.write().unwrap_or_else(PoisonError::into_inner) = value.text;
        // SYNC: pairs with nothing: no other memory depends on a setting, and it may take effect a
        // moment earlier or later.
        held.number.store(value.number, Ordering::Relaxed);
        held.source.store(Source::Said as u8, Ordering::Relaxed);
    }

    /// Whether the value is valid for this run only, so that the file keeps its own.
    pub(super) fn is_of_this_run(&self, key: Key) -> bool {
        // SYNC: as in `put`.
        self.held[key as usize].source.load(Ordering::Relaxed) == Source::Sockets as u8
    }

    /// The file they were read from.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether it was set explicitly.
    pub fn is_given(&self, key: Key) -> bool {
        // SYNC: as in `put`.
        self.held[key as usize].source.load(Ordering::Relaxed) != Source::Default as u8
    }

    /// Its value.
    pub fn value(&self, key: Key) -> Value {
        Value {
            number: self.number(key),
            text: self.text(key),
        }
    }

    /// Its value as `CONFIG GET` shows it.
    pub fn show(&self, key: Key) -> String {
        self.value(key).show(key.setting().kind)
    }

    /// Its number; for a text, its length.
    #[inline]
    pub fn number(&self, key: Key) -> i64 {
        // SYNC: as in `put`.
        self.held[key as usize].number.load(Ordering::Relaxed)
    }

    /// Its number, for a setting that is never negative.
    #[inline]
    pub fn count(&self, key: Key) -> usize {
        usize::try_from(self.number(key)).unwrap_or(0)
    }

    /// Whether it is `yes`, or a non-empty text.
    #[inline]
    pub fn is(&self, key: Key) -> bool {
        self.number(key) != 0
    }

    /// Its text.
    pub fn text(&self, key: Key) -> Arc<str> {
        let text = self.held[key as usize].text.read();
        Arc::clone(&text.unwrap_or_else(PoisonError::into_inner))
    }

    /// The addresses to listen on.
    pub fn addresses(&self) -> Vec<Address> {
        all_addresses(&self.text(Key::Bind))
    }

    /// The path of the unix socket to listen on.
    pub fn unix_socket(&self) -> Option<PathBuf> {
        self.is(Key::UnixSocket)
            .then(|| PathBuf::from(&*self.text(Key::UnixSocket)))
    }

    /// The address that serves metrics.
    pub fn metrics(&self) -> Option<SocketAddr> {
        endpoint(&self.text(Key::Metrics))
    }

    /// The directory that keeps the data.
    pub fn data(&self) -> Option<PathBuf> {
        self.is(Key::Data)
            .then(|| PathBuf::from(&*self.text(Key::Data)))
    }

    /// Why a setting cannot have this value while `data` is set as it is.
    pub(crate) fn data_refusal(&self, key: Key, value: &Value) -> Option<Refused> {
        match (key, self.is(Key::Data), value.number != 0) {
            (Key::AppendOnly | Key::Save | Key::Durability, false, true) => {
                Some(Refused::NeedsData)
            }
            (Key::AppendOnly, true, false) => Some(Refused::AlwaysAppends),
            _ => None,
        }
    }

    /// The lending options of a new store with that capacity in bytes.
    pub fn lending(&self, capacity: u64) -> Option<LendingOptions> {
        let bytes = self.count(Key::LendMemory) as u64;
        (bytes > 0).then(|| LendingOptions::of_bytes(bytes, capacity))
    }

    /// How records are updated.
    pub fn update_policy(&self) -> UpdatePolicy {
        match self.number(Key::UpdatePolicy) {
            0 => UpdatePolicy::Append,
            _ => UpdatePolicy::InPlace,
        }
    }

    /// What local programs may do that attach the segment.
    pub fn local_programs(&self) -> LocalPrograms {
        match self.number(Key::LocalPrograms) {
            0 => LocalPrograms::Write,
            1 => LocalPrograms::Read,
            _ => LocalPrograms::None,
        }
    }

    /// The limits up to which Redis would keep a hash as a listpack.
    pub(crate) fn hash_limits(&self) -> mneme_collections::Limits {
        mneme_collections::Limits {
            entries: self.count(Key::HashEntries),
            value: self.count(Key::HashValue),
        }
    }

    /// The limits up to which Redis would keep a sorted set as a listpack.
    pub(crate) fn sorted_set_limits(&self) -> mneme_collections::SortedSetLimits {
        mneme_collections::SortedSetLimits {
            entries: self.count(Key::SortedSetEntries),
            value: self.count(Key::SortedSetValue),
        }
    }

    /// The size limits of requests.
    pub(crate) fn limits(&self) -> RequestLimits {
        RequestLimits {
            bulk: u32::try_from(self.number(Key::BulkLength)).unwrap_or(u32::MAX),
            ..RequestLimits::default()
        }
    }

    /// Bytes of unsent replies beyond which a client is disconnected.
    #[inline]
    pub(crate) fn output_limit(&self, class: OutputClass) -> OutputLimit {
        self.output_limits.of(class)
    }
}

impl Key {
    /// Its entry in the table.
    pub fn setting(self) -> &'static Setting {
        &SETTINGS[self as usize]
    }
}

/// The mode that belongs to a number of the setting `durability`.
pub(crate) fn durability_mode(number: i64) -> DurabilityMode {
    match number {
        0 => DurabilityMode::Journal,
        _ => DurabilityMode::Tree,
    }
}

/// The policy that belongs to a number of the setting `appendfsync`.
pub(crate) fn sync_policy(number: i64) -> SyncPolicy {
    match number {
        0 => SyncPolicy::Always,
        1 => SyncPolicy::EverySecond,
        _ => SyncPolicy::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stronger_source_wins_in_any_order() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let settings = Settings::default();
            assert!(!settings.is_given(Key::Port));
            let said = [
                ("1", Source::File),
                ("2", Source::Environment),
                ("3", Source::Said),
            ];
            for index in order {
                let (text, source) = said[index];
                settings.say(Key::Port, text, source).unwrap();
            }
            assert_eq!(settings.clone().number(Key::Port), 3);
        }
    }

    #[test]
    fn a_refused_value_changes_nothing() {
        let settings = Settings::default();
        let refused = settings.say(Key::Port, "70000", Source::Said);
        assert_eq!(refused, Err(Refused::OutOfRange(0, 65_535)));
        assert_eq!(settings.number(Key::Port), 6379);
        assert!(!settings.is_given(Key::Port));
    }
}
