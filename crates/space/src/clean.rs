//! Finds, reports and removes what dead processes left in a registry.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mneme_sys::{files, with_causes};

use crate::making::take_apart;
use crate::registry::files::{entries, gone};
use crate::registry::json;
use crate::registry::lock::Lock;
use crate::segment::backing;
use crate::segment::control::in_use;
use crate::segment::import::data_set_aside;
use crate::segment::mend::{control_damage, mend_control};
use crate::segment::meta::{SegmentMeta, data_files_of, registry_in};
use crate::segment::presence::is_anybody_in;
use crate::segment::{data, parts};
use crate::space;
use crate::{Name, OpenError, Registry, RegistryError, Uuid};

/// Something in a registry that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file or directory.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
    /// What [`Registry::clean`] does about it; `None` if it does nothing, because data could be
    /// lost.
    pub cleaning: Option<&'static str>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cleaning = self.cleaning.unwrap_or("cleaning leaves it alone");
        write!(f, "{}: {}; {cleaning}", self.path.display(), self.what)
    }
}

impl Registry {
    /// Checks the whole registry and reports what is wrong. Changes nothing, but becomes a
    /// participant of each segment for a moment.
    ///
    /// # Errors
    /// The registry cannot be locked or read.
    pub fn check(&self) -> Result<Vec<Finding>, RegistryError> {
        Walk::over(self, false)
    }

    /// Removes what dead processes left: segments and spaces that never got a name or have lost it,
    /// data files that nothing names, and segments in memory whose memory is gone. A damaged or
    /// missing control file that nobody uses is created again. Only that file knew whether a
    /// process died while changing the segment, so the segment is poisoned then. The control file
    /// of a segment that another crate lays out is not created again, because it held information
    /// that exists nowhere else. Returns all findings, including those that were left alone.
    ///
    /// # Errors
    /// The registry cannot be locked or read, or something cannot be removed; the rest is left for
    /// the next call.
    pub fn clean(&self) -> Result<Vec<Finding>, RegistryError> {
        Walk::over(self, true)
    }

    /// Removes the leftovers of processes that died while creating or removing something, so that
    /// they do not occupy the name or the addresses of what is created next. Leftovers that cannot
    /// be removed, for instance another user's, are no obstacle.
    pub(crate) fn clear_leftovers(&self, lock: &Lock) {
        let mut walk = Walk {
            registry: self,
            act: true,
            found: Vec::new(),
            named: BTreeSet::new(),
        };
        let _ = walk.making(lock);
        let _ = walk.dying();
    }
}

impl Registry {
    /// The directories that hold the data files of this registry's segments in memory.
    pub(crate) fn data_directories(&self) -> BTreeSet<PathBuf> {
        let mut places = BTreeSet::from(backing::places(self));
        places.extend(self.shared_directory().map(Path::to_owned));
        places.extend(
            files::mounts_of("hugetlbfs")
                .into_iter()
                .map(|(mount, _)| mount),
        );
        places
    }
}

struct Walk<'a> {
    registry: &'a Registry,
    act: bool,
    found: Vec<Finding>,
    /// The names of the data files that some segment's description names.
    named: BTreeSet<OsString>,
}

const REMOVES: &str = "cleaning removes it";
const MAKES: &str = "cleaning makes it anew";
const MENDS: &str = "cleaning makes it anew and declares the segment poisoned";

impl Walk<'_> {
    fn over(registry: &Registry, act: bool) -> Result<Vec<Finding>, RegistryError> {
        let lock = registry.lock()?;
        let mut walk = Walk {
            registry,
            act,
            found: Vec::new(),
            named: BTreeSet::new(),
        };
        let at_home = registry.is_at_home();
        if !at_home {
            let what = "the registry was copied or moved: its data may be those of another that lives, and none of them \
                        are removed; where this is the only one, set \"place\" in this file to null";
            walk.finds(&registry.root().join("registry"), what.to_owned(), None);
        }
        // Data files first: the description that names a file exists before the file, and moves on
        // in the order of this walk.
        let mut stray = walk.data_files()?;
        walk.making(&lock)?;
        walk.segments()?;
        walk.spaces()?;
        walk.dying()?;
        if at_home {
            walk.imports()?;
        }
        stray.retain(|file| {
            file.file_name()
                .is_some_and(|name| !walk.named.contains(name))
        });
        for file in stray {
            let what = "data that no segment names".to_owned();
            if !at_home {
                walk.finds(&file, format!("{what} here"), None);
            } else if is_anybody_in(&file).unwrap_or(true) {
                walk.finds(&file, format!("{what}, but somebody uses them"), None);
            } else if walk.finds_of(&file, &file, what, REMOVES) {
                gone(&file, std::fs::remove_file(&file))?;
            }
        }
        Ok(walk.found)
    }

    /// Records a finding about `of`; returns whether to act on it now. Findings about another
    /// user's files are always left to that user.
    fn finds_of(&mut self, of: &Path, path: &Path, what: String, cleaning: &'static str) -> bool {
        let owner = std::fs::symlink_metadata(of).map(|found| found.uid());
        match owner {
            Ok(owner) if owner != files::user() => {
                self.finds(path, format!("{what}; it is user {owner}'s to clean"), None)
            }
            _ => self.finds(path, what, Some(cleaning)),
        }
    }

    /// Records a finding; returns whether to act on it now.
    fn finds(&mut self, path: &Path, what: String, cleaning: Option<&'static str>) -> bool {
        self.found.push(Finding {
            path: path.to_owned(),
            what,
            cleaning,
        });
        self.act && cleaning.is_some()
    }

    /// Records the data files that a directory's description names.
    fn names(&mut self, directory: &Path) {
        let files = data_files_of(directory);
        let names = files.iter().filter_map(|file| file.file_name());
        self.named.extend(names.map(ToOwned::to_owned));
    }

    /// This registry's data files in all directories that hold segments in memory.
    fn data_files(&self) -> Result<Vec<PathBuf>, RegistryError> {
        let mut found = Vec::new();
        for place in self.registry.data_directories() {
            // A directory that may not be listed holds nothing that this process could remove.
            let files = entries(&place).unwrap_or_default();
            found.extend(files.into_iter().filter(|file| self.is_ours(file)));
        }
        Ok(found)
    }

    fn is_ours(&self, file: &Path) -> bool {
        let name = file.file_name().and_then(|name| name.to_str());
        name.and_then(registry_in) == Some(self.registry.uuid())
    }

    /// Interrupted imports. If the segment did not have its name yet, the data file is left to be
    /// imported again; otherwise the file's old name is removed.
    fn imports(&mut self) -> Result<(), RegistryError> {
        let mut named = BTreeSet::new();
        for directory in entries(&self.registry.root().join("segments"))? {
            named.extend(data_files_of(&directory));
        }
        for place in self.registry.data_directories() {
            for file in entries(&place).unwrap_or_default() {
                let Some((data, registry)) = data_set_aside(&file) else {
                    continue;
                };
                if registry != self.registry.uuid() {
                    continue;
                }
                let inode = |file: &Path| std::fs::symlink_metadata(file).map(|found| found.ino());
                let is_same =
                    matches!((inode(&data), inode(&file)), (Ok(data), Ok(file)) if data == file);
                if !is_same || !named.contains(&data) {
                    let what = "data whose import was broken off; import them again".to_owned();
                    self.finds(&file, what, None);
                    continue;
                }
                let what = "another name of a segment's data, which an import left".to_owned();
                if self.finds_of(&file, &file, what, REMOVES) {
                    gone(&file, std::fs::remove_file(&file))?;
                }
            }
        }
        Ok(())
    }

    /// Directories whose makers died. A living maker holds its lock.
    fn making(&mut self, _lock: &Lock) -> Result<(), RegistryError> {
        let making = self.registry.root().join("making");
        let mut uuids = BTreeSet::new();
        for entry in entries(&making)? {
            let name = entry.file_name().and_then(|name| name.to_str());
            let name = name.unwrap_or_default();
            match Uuid::parse(name.strip_suffix(".lock").unwrap_or(name)) {
                Some(uuid) => {
                    uuids.insert(uuid);
                }
                None => {
                    self.finds(&entry, "nothing that is being made".to_owned(), None);
                }
            }
        }
        for uuid in uuids {
            let directory = making.join(uuid.to_string());
            let lock = making.join(format!("{uuid}.lock"));
            self.names(&directory);
            // Held until everything is removed, as the maker itself would hold it.
            let held = match Lock::attempt(&lock) {
                Ok(Some(held)) => Some(held),
                Ok(None) => continue,
                Err(_) if !lock.exists() => None,
                // Another user's file, or one that cannot be locked: the holder may be alive.
                Err(other) => {
                    self.finds(&lock, with_causes(&other), None);
                    continue;
                }
            };
            let made_as = SegmentMeta::read(&directory)
                .map(|meta| meta.made_as)
                .or_else(|_| space::meta::SpaceMeta::read(&directory).map(|meta| meta.made_as));
            let (path, what) = match made_as {
                Ok(name) => (&directory, format!("the making of {name:?} was broken off")),
                Err(_) if directory.exists() => (
                    &directory,
                    "the making of something was broken off".to_owned(),
                ),
                Err(_) => (&lock, "a lock that nobody holds any more".to_owned()),
            };
            if self.finds_of(path, path, what, REMOVES) {
                take_apart(self.registry, &directory)?;
                gone(&lock, std::fs::remove_file(&lock))?;
            }
            drop(held);
        }
        Ok(())
    }

    fn dying(&mut self) -> Result<(), RegistryError> {
        for directory in entries(&self.registry.root().join("dying"))? {
            self.names(&directory);
            let what = "its removal is not complete".to_owned();
            // If the data cannot be opened, only their owner can know whether they are in use.
            let mut files = data_files_of(&directory).into_iter();
            if files.any(|file| is_anybody_in(&file).unwrap_or(true)) {
                self.finds(
                    &directory,
                    format!("{what}, but somebody uses its data"),
                    None,
                );
                continue;
            }
            if self.finds_of(&directory, &directory, what, REMOVES) {
                take_apart(self.registry, &directory)?;
            }
        }
        Ok(())
    }

    fn segments(&mut self) -> Result<(), RegistryError> {
        let mut seen = BTreeMap::new();
        for directory in entries(&self.registry.root().join("segments"))? {
            self.names(&directory);
            if !self.can_be(&directory, "segment") {
                continue;
            }
            let judged = SegmentMeta::read(&directory)
                .map_err(OpenError::from)
                .and_then(|meta| data::examine(&meta).map(|_| meta));
            match judged {
                Ok(meta) => {
                    self.twins(&directory, &meta, &mut seen);
                    self.parts(&directory, &meta)?;
                }
                // Somebody has removed it since the directory was listed.
                Err(_) if !directory.exists() => {}
                // The link names the same file, so it is not the description that is damaged.
                Err(OpenError::DataGone { path })
                    if is_memory(&directory) && leads_to(&directory, &path) =>
                {
                    // In the same boot, the data may exist where this process does not see them:
                    // the directory may be mounted in another place too.
                    let boot = SegmentMeta::read(&directory)
                        .ok()
                        .and_then(|meta| meta.boot);
                    let is_gone = boot.is_some_and(|boot| boot != Uuid::of_this_boot())
                        && !in_use(&directory.join("control")).unwrap_or(true);
                    if !is_gone {
                        let what = format!(
                            "its memory {} is gone, or cannot be seen from here; the machine was not started anew since",
                            path.display()
                        );
                        self.finds(&directory, what, None);
                        continue;
                    }
                    let what = format!("its memory {} is gone, as after a reboot", path.display());
                    if self.finds_of(&directory, &directory, what, REMOVES) {
                        take_apart(self.registry, &directory)?;
                    }
                }
                Err(error) => {
                    self.finds(&directory, with_causes(&error), None);
                }
            }
        }
        Ok(())
    }

    /// Reports segments whose names lead to the same data.
    fn twins(&mut self, directory: &Path, meta: &SegmentMeta, seen: &mut BTreeMap<Uuid, PathBuf>) {
        if let Some(other) = seen.get(&meta.uuid) {
            let what = format!(
                "its data are those of {} too: one of the two is a copy, and removing it leaves the data",
                other.display()
            );
            self.finds(directory, what, None);
        } else {
            seen.insert(meta.uuid, directory.to_owned());
        }
    }

    fn spaces(&mut self) -> Result<(), RegistryError> {
        for directory in entries(&self.registry.root().join("spaces"))? {
            if !self.can_be(&directory, "space") {
                continue;
            }
            match space::meta::SpaceMeta::read(&directory) {
                Ok(meta) => self.space(&directory, &meta)?,
                // Somebody has removed it since the directory was listed.
                Err(_) if !directory.exists() => {}
                Err(error) => {
                    self.finds(&directory, with_causes(&error), None);
                }
            }
        }
        Ok(())
    }

    /// Checks a space: its members, its files, and what a process left that died while changing it.
    fn space(
        &mut self,
        directory: &Path,
        meta: &space::meta::SpaceMeta,
    ) -> Result<(), RegistryError> {
        for what in space::stale_members(self.registry, meta) {
            self.finds(directory, what, None);
        }
        for (aside, what) in [
            (
                json::beside(&directory.join("meta")),
                "a change of the members was broken off",
            ),
            (
                directory.join("calls.new"),
                "the making of a mailbox was broken off",
            ),
        ] {
            if !aside.exists() {
                continue;
            }
            // Both are written under the space's lock.
            let held = Lock::attempt(&directory.join("lock")).ok().flatten();
            if held.is_some()
                && aside.exists()
                && self.finds_of(&aside, &aside, what.to_owned(), REMOVES)
            {
                gone(&aside, std::fs::remove_file(&aside))?;
            }
        }
        let control = directory.join("control");
        let is_here =
            || space::meta::SpaceMeta::read(directory).is_ok_and(|now| now.uuid == meta.uuid);
        if let Some(what) = space::control_damage(directory, meta)
            && is_here()
            && self.finds_of(directory, &control, what, MAKES)
        {
            space::mend_control(directory, meta).map_err(|source| RegistryError::Mend {
                path: control.clone(),
                source: Box::new(source),
            })?;
        }
        Ok(())
    }

    /// Whether the directory's name is one that a segment or a space can have.
    fn can_be(&mut self, directory: &Path, kind: &str) -> bool {
        let name = directory.file_name().and_then(|name| name.to_str());
        let can = name.is_some_and(|name| Name::new(name).is_ok());
        if !can {
            let what = format!("nothing of that name can be a {kind}");
            self.finds(directory, what, None);
        }
        can
    }

    /// Checks the files that a segment needs besides its data.
    fn parts(&mut self, directory: &Path, meta: &SegmentMeta) -> Result<(), RegistryError> {
        let link = directory.join("data");
        if !leads_to(directory, &meta.data) {
            let what = format!("it does not lead to {}", meta.data.display());
            self.finds(&link, what, None);
        }
        let control = directory.join("control");
        // A segment that was removed meanwhile is not damaged, even if another one now has its
        // name.
        let is_here = || SegmentMeta::read(directory).is_ok_and(|now| now.uuid == meta.uuid);
        if let Some(contents) = &meta.contents {
            if let Some(what) = parts::control_damage(&control, &contents.kind)
                && is_here()
            {
                self.finds(&control, what, None);
            }
            return Ok(());
        }
        if let Some(what) = control_damage(&control, meta.uuid)
            && is_here()
            && self.finds_of(directory, &control, what, MENDS)
        {
            mend_control(&control, meta).map_err(|source| RegistryError::Mend {
                path: control.clone(),
                source: Box::new(source),
            })?;
        }
        Ok(())
    }
}

/// Whether a segment's link leads to the file that its description names.
fn leads_to(directory: &Path, data: &Path) -> bool {
    std::fs::read_link(directory.join("data")).is_ok_and(|linked| linked == data)
}

fn is_memory(directory: &Path) -> bool {
    SegmentMeta::read(directory).is_ok_and(|meta| meta.backing.is_memory())
}
