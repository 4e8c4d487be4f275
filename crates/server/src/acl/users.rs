//! All users of a server, and the number of changes to them.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::file::{self, AclFileError, Table};
use super::log::DenialLog;
use super::rules::{Reading, RuleRefusal, has_spaces, joined};
use super::user::User;
use super::vocabulary::Vocabulary;

/// The user that every client has until it authenticates as another.
const DEFAULT: &[u8] = b"default";

/// Why a user was not changed, in Redis's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSet {
    #[error("Usernames can't contain spaces or null characters")]
    Name,
    #[error("Unmatched parenthesis in acl selector starting at '{}'.", String::from_utf8_lossy(.0))]
    Parenthesis(Vec<u8>),
    #[error(
        "Error in ACL SETUSER modifier '{}': {refusal}",
        String::from_utf8_lossy(rule)
    )]
    Rule { rule: Vec<u8>, refusal: RuleRefusal },
}

/// All users, one of which is always called `default`.
///
/// They are changed in an exclusive section, so no command that begins after a change is checked by
/// the old permissions.
#[derive(Debug)]
pub(crate) struct Users {
    vocabulary: Vocabulary,
    /// The number of changes so far.
    epoch: AtomicU64,
    table: Mutex<Table>,
    /// How often the file was written, or read within a transaction.
    file_uses: AtomicU64,
    /// The log of denied calls.
    pub log: DenialLog,
}

impl Users {
    /// Only the default user, which may do everything, with this password; empty for none.
    pub fn new(vocabulary: Vocabulary, password: &str) -> Self {
        let users = Self {
            vocabulary,
            epoch: AtomicU64::new(0),
            table: Mutex::default(),
            file_uses: AtomicU64::new(0),
            log: DenialLog::default(),
        };
        let default = users.default_user(password);
        users.table().insert(DEFAULT.into(), default);
        users
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading(&self, all_channels: bool) -> Reading<'_> {
        Reading {
            vocabulary: &self.vocabulary,
            all_channels,
        }
    }

    /// The default user before any rule changes it.
    fn default_user(&self, password: &str) -> Arc<User> {
        let mut user = self.reading(true).nobody(DEFAULT);
        for rule in [&b"on"[..], b"~*", b"+@all"] {
            // These rules are valid, so applying them cannot fail.
            let _ = self.reading(true).apply(&mut user, rule);
        }
        self.give_password(&mut user, password);
        user.finished()
    }

    fn give_password(&self, user: &mut User, password: &str) {
        user.passwords.clear();
        user.needs_no_password = password.is_empty();
        if !password.is_empty() {
            user.passwords
                .insert(super::rules::password_hash(password.as_bytes()));
        }
    }

    /// The commands that rules can name.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The number of changes. A client whose thread has entered its section looks its user up again
    /// if this has grown.
    #[inline]
    pub fn epoch(&self) -> u64 {
        // SYNC: pairs with nothing: changes are made in an exclusive section, whose lock makes them
        // visible to the next shared section of another thread.
        self.epoch.load(Ordering::Relaxed)
    }

    fn changed(&self) {
        // SYNC: as in `epoch`.
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// The user of that name.
    pub fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        self.table().get(name).cloned()
    }

    /// The default user.
    pub fn default(&self) -> Arc<User> {
        let found = self.find(DEFAULT);
        found.unwrap_or_else(|| self.default_user(""))
    }

    /// Whether a client need not authenticate: the default user has no password.
    pub fn is_open(&self) -> bool {
        let default = self.default();
        default.is_on() && default.needs_no_password()
    }

    /// All users, in the order of their names.
    pub fn list(&self) -> Vec<Arc<User>> {
        self.table().values().cloned().collect()
    }

    /// Changes a user, or makes one, by these rules: either all rules apply or none. A new user has
    /// all channels if `all_channels`.
    pub fn set<'a>(
        &self,
        name: &'a [u8],
        rules: impl Iterator<Item = &'a [u8]>,
        all_channels: bool,
    ) -> Result<(), NotSet> {
        if has_spaces(name) {
            return Err(NotSet::Name);
        }
        let rules = joined(rules).map_err(|word| NotSet::Parenthesis(word.to_vec()))?;
        let reading = self.reading(all_channels);
        let mut user = match self.find(name) {
            Some(user) => user.draft(),
            None => reading.nobody(name),
        };
        for rule in rules {
            let applied = reading.apply(&mut user, &rule);
            applied.map_err(|refusal| NotSet::Rule {
                rule: rule.into_owned(),
                refusal,
            })?;
        }
        self.table()
            .insert(Arc::clone(user.name()), user.finished());
        self.changed();
        Ok(())
    }

    /// Sets the default user's password; none if it is empty.
    pub fn set_default_password(&self, password: &str) {
        let mut user = self.default().draft();
        self.give_password(&mut user, password);
        self.table().insert(DEFAULT.into(), user.finished());
        self.changed();
    }

    /// Removes a user. Returns whether it existed.
    pub fn remove(&self, name: &[u8]) -> bool {
        let is_removed = name != DEFAULT && self.table().remove(name).is_some();
        if is_removed {
            self.changed();
        }
        is_removed
    }

    /// The users of a file, as long as `goes_on` returns true. If the file does not name the
    /// default user, that user may do everything with `password`.
    pub fn read(
        &self,
        path: &Path,
        all_channels: bool,
        password: &str,
        goes_on: impl Fn() -> bool,
    ) -> Result<Table, AclFileError> {
        let mut users = file::read(path, self.reading(all_channels), goes_on)?;
        users
            .entry(DEFAULT.into())
            .or_insert_with(|| self.default_user(password));
        Ok(users)
    }

    /// How often commands have written the file, or have read it in an exclusive section. Read in
    /// one, it says whether users that were read before are those of the file still.
    pub fn file_uses(&self) -> u64 {
        // SYNC: as in `epoch`.
        self.file_uses.load(Ordering::Relaxed)
    }

    /// Counts one more. The caller is in a section, shared or exclusive.
    pub fn count_file_use(&self) {
        // SYNC: as in `epoch`.
        self.file_uses.fetch_add(1, Ordering::Relaxed);
    }

    /// All of them by name, for [`take`](Self::take).
    pub fn by_name(&self) -> Table {
        self.table().clone()
    }

    /// Replaces all users by those of a file, or of an earlier server of this process. Returns the
    /// previous ones.
    pub fn take(&self, users: Table) -> Table {
        let before = std::mem::replace(&mut *self.table(), users);
        self.changed();
        before
    }

    /// The content of the file of users.
    pub fn file(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for user in self.list() {
            text.extend_from_slice(&self.line(&user));
            text.push(b'\n');
        }
        text
    }

    /// The line of a user.
    pub fn line(&self, user: &User) -> Vec<u8> {
        [b"user ", &**user.name(), b" ", user.text(&self.vocabulary)].concat()
    }
}
