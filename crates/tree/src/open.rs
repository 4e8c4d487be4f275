//! Opening a store: creation, locking, and recovery after an unclean end.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mneme_sync::CreateError;
use mneme_sys::fault::without;
use mneme_sys::medium::{FileMedium, Medium, MediumError, MemoryMedium};
use mneme_sys::{Access, Caution, RegionError, files};
use zerocopy::IntoBytes;

use crate::attach::{JoinError, TreeAttachment, now};
use crate::commit::Writer;
use crate::committed::Committed;
use crate::control_region::SharedControl;
use crate::error::os;
use crate::follow::Follower;
use crate::group::CommitGroup;
use crate::layout::{
    CommitRecord, FORMAT, FRAME, FileHeader, FrameHeader, FrameKind, LeafHeader, LeafId, MAIN,
    MAX_DEAD, NUMBERS, STATE_ALONE, STATE_CLEAN, STATE_UNCOUNTED,
};
use crate::leaf::FreeLeaves;
use crate::names::{self, NamedVersion, Names};
use crate::open_store::{Core, PublishedVersion};
use crate::pages::TreePages;
use crate::record_cache::{Copies, RecordCache};
use crate::recovery::KeptVersions;
use crate::registered::Registered;
use crate::space::FreeSpace;
use crate::{Durability, Store, StoreError, recovery, roots};

/// Options for opening a store.
///
/// ```
/// use mneme_tree::{Durability, Store};
/// # let path = std::env::temp_dir().join(format!("mneme-doc-builder-{}", std::process::id()));
/// let db = Store::builder().durability(Durability::File).max_bytes(1 << 30).open(&path)?;
/// db.put(b"key", b"value")?;
/// # drop(db);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    durability: Durability,
    max: u64,
    network: bool,
    reads: bool,
    wait: Duration,
    cache: Option<RecordCache>,
    /// The permissions of a new file.
    mode: u32,
    /// The identity of a new store. `None`: drawn at random.
    uuid: Option<[u8; 16]>,
}

/// How long an opening retries while other processes are just closing the file.
const CLOSING: Duration = Duration::from_secs(1);
/// The least number of attempts: under load a single attempt may take longer than that.
const ATTEMPTS: u32 = 50;

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            durability: Durability::File,
            max: 1 << 40,
            network: false,
            reads: false,
            wait: Duration::ZERO,
            cache: None,
            mode: 0o600,
            uuid: None,
        }
    }

    /// Sets the identity of a new store.
    pub(crate) fn uuid(mut self, uuid: [u8; 16]) -> Self {
        self.uuid = Some(uuid);
        self
    }

    /// Sets which failures commits survive. [`Durability::File`] by default.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the largest size of the file in bytes; the same amount of address space is reserved. 1
    /// TiB by default.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max = bytes;
        self
    }

    /// Allows files on a network file system, which is not allowed by default: the lock may not
    /// keep other machines out, and they may not see what is in this machine's memory. Only one
    /// machine at a time may have the store open.
    #[must_use]
    pub fn allow_network(mut self, allow: bool) -> Self {
        self.network = allow;
        self
    }

    /// Opens the store for reading only, beside one process that writes it and any number of other
    /// readers. The store must exist. Each get and each new snapshot shows the version that is
    /// durable at that moment; operations that would change the store fail with
    /// [`StoreError::ReadOnly`]. The process needs the right to write the file, for its locks.
    #[must_use]
    pub fn read_only(mut self, reads: bool) -> Self {
        self.reads = reads;
        self
    }

    /// How long [`open`](Self::open) waits for another process that writes the store. By default it
    /// does not wait. A read-only opening never waits for the writer.
    #[must_use]
    pub fn wait_for_writer(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Keeps copies of records that gets read in this memory. By default there is no cache. Gets
    /// return the same with and without one; [`Store::stats`] counts its hits.
    #[must_use]
    pub fn record_cache(mut self, cache: &RecordCache) -> Self {
        self.cache = Some(cache.clone());
        self
    }

    /// The permissions of a new file, reduced by the process' umask. `0o600` by default: a user who
    /// may read a file can keep all others from opening it. A [backup](Store::backup) gets the
    /// permissions of the store's file.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Opens the store in the file `path`, or creates it.
    ///
    /// One process writes the file for as long as the store or one of its snapshots lives; others
    /// can [read](Self::read_only) it meanwhile. Opening reads the tables, which are 0.8 % of the
    /// data; leaves are verified on first use.
    ///
    /// # Errors
    /// [`StoreError::Network`], [`StoreError::Locked`], [`StoreError::Elsewhere`],
    /// [`StoreError::Poisoned`] if a sync has failed and other processes still read data that may
    /// not be durable, [`StoreError::Lock`], [`StoreError::Foreign`], [`StoreError::Format`],
    /// [`StoreError::Truncated`], [`StoreError::Damaged`], [`StoreError::NotClean`],
    /// [`StoreError::NoSpace`], [`StoreError::Unsupported`], [`StoreError::Os`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store, StoreError> {
        let path = path.as_ref();
        self.open_with(path, Caution::of(path))
    }

    /// As [`open`](Self::open), with the warning for the file system, if there is one.
    fn open_with(&self, path: &Path, caution: Option<Caution>) -> Result<Store, StoreError> {
        if caution == Some(Caution::Network) && !self.network {
            return Err(StoreError::Network {
                path: path.to_owned(),
            });
        }
        if !self.reads && !path.try_exists().map_err(os("look for the store's file"))? {
            match make(path, self.mode, |temporary| {
                self.open_file(temporary)?.close()
            }) {
                // Another process was faster: open its store.
                Ok(()) | Err(StoreError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let begun = now();
        let mut attempts = 0;
        loop {
            let error = match self.open_found(path, caution) {
                Ok(Some(store)) => return Ok(store),
                Ok(None) => continue,
                Err(error) => error,
            };
            // Possibly a dying process, whose locks the kernel releases one after the other.
            let met_closing = matches!(
                error,
                StoreError::Elsewhere {
                    source: JoinError::Empty,
                    ..
                } | StoreError::Readers(CreateError::InUse { .. })
            );
            attempts += 1;
            if !met_closing || (attempts >= ATTEMPTS && now() >= begun.saturating_add(CLOSING)) {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Opens an existing file. `None`: other processes have closed it meanwhile.
    fn open_found(
        &self,
        path: &Path,
        caution: Option<Caution>,
    ) -> Result<Option<Store>, StoreError> {
        let mut attachment = TreeAttachment::take(path, self.reads, self.wait)?;
        let alone = !attachment.has_others;
        let mut medium = self.medium(&attachment.file)?;
        if alone && self.durability == Durability::File && !self.was_closed(&medium) {
            // A sync may have failed earlier. Pages that are clean although they were never written
            // must not be taken for durable.
            drop(medium);
            FileMedium::drop_cached_pages(&attachment.file)?;
            medium = self.medium(&attachment.file)?;
        }
        let pages = TreePages::new(Box::new(medium), self.durability);
        if pages.len() == 0 && !self.reads {
            create_on(&pages, self.uuid)?;
        }
        let header = recovery::file_header(&pages)?;
        if header.is_of_before() && (self.reads || !alone) {
            return Err(StoreError::Format {
                found: FORMAT - 1,
                known: FORMAT,
            });
        }
        let Some(shared) = attachment.share(header.uuid, header.instance)? else {
            return Ok(None);
        };
        let mut core = match self.reads {
            true => reading(pages, header.seed(), shared, alone)?,
            false => self.writing(pages, &header, shared, alone)?,
        };
        attachment.opened();
        core._lock = Some(attachment);
        core.copies = self.copies()?;
        let copies = caution == Some(Caution::CopyOnWrite);
        core.copies_on_write.store(copies, Ordering::Relaxed);
        let core = Arc::new(core);
        Ok(Some(Store { core }))
    }

    fn medium(&self, file: &File) -> Result<FileMedium, StoreError> {
        let access = match self.reads {
            true => Access::ReadOnly,
            false => Access::ReadWrite,
        };
        let file = file
            .try_clone()
            .map_err(os("duplicate the file's descriptor"))?;
        if self.durability == Durability::Flush && !self.reads {
            return FileMedium::open_direct(file, self.max).map_err(|error| match error {
                MediumError::Region(RegionError::Unsupported { .. }) => StoreError::Unsupported {
                    what: "Durability::Flush for a file that is on neither tmpfs nor a file system \
                           mounted with dax, or on a CPU that writes no cache line back: choose \
                           Durability::File",
                },
                other => other.into(),
            });
        }
        Ok(FileMedium::open(file, access, self.max)?)
    }

    fn copies(&self) -> Result<Option<Copies>, StoreError> {
        Ok(self.cache.as_ref().map(RecordCache::open).transpose()?)
    }

    fn was_closed(&self, medium: &FileMedium) -> bool {
        let mut start = vec![0; (medium.len().min(FRAME)) as usize];
        // SAFETY: inside the mapping, which nobody else stores to: the file is locked.
        unsafe { mneme_sys::racy::load(medium.base().as_ptr(), &mut start) };
        let first = MemoryMedium::new(FRAME);
        let Ok(first) = first.and_then(|first| first.grow(FRAME).map(|()| first)) else {
            return false;
        };
        first.store(0, &start);
        let pages = TreePages::new(Box::new(first), Durability::Process);
        let record = recovery::file_header(&pages)
            .and_then(|header| recovery::newest_in_ring(&pages, header.seed(), u64::MAX));
        record.is_ok_and(|record| record.state & STATE_CLEAN != 0)
    }

    /// Opens a file that exists and that no other process knows, and creates a store in it if it is
    /// empty.
    pub(crate) fn open_file(&self, path: &Path) -> Result<Store, StoreError> {
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(os("open the store's file"))?;
        self.open_on(Box::new(self.medium(&file)?))
    }

    /// Opens the store on a medium supplied by the caller, or creates it if the medium is empty.
    /// The caller makes sure that nobody else has it open.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(&self, medium: Box<dyn Medium>) -> Result<Store, StoreError> {
        let pages = TreePages::new(medium, self.durability);
        if pages.len() == 0 {
            create_on(&pages, self.uuid)?;
        }
        let header = recovery::file_header(&pages)?;
        let shared = SharedControl::private(header.uuid)?;
        let mut core = self.writing(pages, &header, shared, true)?;
        core.copies = self.copies()?;
        Ok(Store {
            core: Arc::new(core),
        })
    }

    /// Opens the store for its one writer, recovering from an unclean end. Unless it is `alone`,
    /// other processes read meanwhile.
    fn writing(
        &self,
        pages: TreePages,
        header: &FileHeader,
        shared: SharedControl,
        alone: bool,
    ) -> Result<Core, StoreError> {
        let seed = header.seed();
        let (mut record, committed) = newest_version(&pages, header, &shared, alone)?;
        let names = names::read(&pages, &committed)?;
        if names.len() as u64 != record.names {
            return Err(StoreError::Damaged {
                at: CommitRecord::place(record.sequence),
                what: "the commit record counts other named versions than there are",
            });
        }
        let kept: Vec<u64> = names.iter().map(|(_, _, version)| *version).collect();
        let kept = KeptVersions {
            versions: &kept,
            // Readers may use data that the newest version no longer has.
            any: !alone && !without("open.others"),
        };
        let found = recovery::tables(&pages, seed, &committed, kept)?;
        let version = record.version;
        let (roots, dropping) =
            roots::assemble(&pages, &committed, version, found.leaves_of(None))?;
        let registered = Registered::default();
        let named = named_versions(&pages, &committed, &found, names, &registered)?;
        are_counted(&record, &found)?;
        if !without("open.clean") {
            recovery::clean(&pages, &found.dirty);
        }
        let dead = committed.dead();
        let mut dead = &dead[..];
        if dead.len() >= MAX_DEAD || header.is_of_before() && !dead.is_empty() {
            recovery::sweep(&pages, seed, &committed, &found)?;
            if !without("sweep.barrier") {
                pages.barrier().inspect_err(|_| shared.poison())?;
            }
            dead = &[];
        }
        mneme_sys::fault!("tree.open.found");
        record.set_dead(dead);
        record.listed = Default::default();
        record.state = record.state & STATE_UNCOUNTED | self.durability.code();
        record.boot = mneme_sys::boot_id();
        record.sequence += 1;
        let (version, last) = (record.version, record.last);
        let mut writer = Writer::new(record, found.space, found.free, found.dead);
        writer.dropping = dropping;
        let core = Core {
            seed,
            committed,
            follower: None,
            poisoned: AtomicBool::new(false),
            copies_on_write: AtomicBool::new(false),
            registered,
            names: Names::new(named),
            copies: None,
            group: CommitGroup::default(),
            published: AtomicPtr::new(Box::into_raw(PublishedVersion::new(version, roots))),
            writer: Mutex::new(writer),
            shared,
            pages,
            _lock: None,
        };
        if !without("open.record") {
            core.writer().write_record(&core, &mut record)?;
            core.sync()?;
        }
        if header.is_of_before() {
            let (at, word) = header.upgrade();
            core.pages.store_word(at, word);
            core.barrier()?;
            core.sync()?;
        }
        mneme_sys::fault!("tree.open.recorded");
        core.shared.reap();
        core.shared.begin(last);
        core.shared.set_writer();
        core.shared.announce(version, &[], core.pages.len());
        core.shared.publish(version);
        Ok(core)
    }
}

/// The newest commit record, and the committed versions. An interrupted commit, which may have left
/// traces, is not one of them.
fn newest_version(
    pages: &TreePages,
    header: &FileHeader,
    shared: &SharedControl,
    alone: bool,
) -> Result<(CommitRecord, Committed), StoreError> {
    if !alone && shared.is_poisoned() {
        return Err(StoreError::Poisoned);
    }
    // The remains of an interrupted process must become durable before they are trusted.
    pages.adopt().inspect_err(|_| shared.poison())?;
    let published = if alone { 0 } else { shared.durable() };
    let mut record = recovery::newest_record(pages, header.seed(), published)?;
    survived(&record)?;
    let mut dead = record.dead().to_vec();
    let begun = alone || shared.may_have_begun(record.last) || published > record.version;
    if begun {
        let numbers = if header.is_of_before() { 1 } else { NUMBERS };
        follow_up(&mut record, &mut dead, numbers);
    }
    // Stores of the previous format are swept before anybody else opens the file.
    if !header.is_of_before() && !shared.add_dead(&dead) {
        return Err(StoreError::Unsupported {
            what: "more recoveries beside the same readers than their region remembers",
        });
    }
    let committed = match header.is_of_before() {
        true => Committed::one_by_one(record.version, dead),
        false => Committed::new(record.version, dead),
    };
    Ok((record, committed))
}

/// What follows from the newest record of a store that was not closed: so many numbers behind its
/// last may have left traces, and are dead. Commits without records may be among them. Which there
/// were is seen when their leaves are looked at, so the version that is opened is above them all.
fn follow_up(record: &mut CommitRecord, dead: &mut Vec<u64>, numbers: u64) {
    if record.state & STATE_CLEAN != 0 {
        return;
    }
    if !without("open.remember_dead") {
        dead.push(record.last + 1);
    }
    record.last += if without("open.numbers") { 1 } else { numbers };
    if record.state & STATE_ALONE != 0 && !without("open.alone") {
        // Of no row, so that it is not dead.
        record.last += 1;
        record.version = record.last;
        record.state |= STATE_UNCOUNTED;
    }
}

/// The named versions with their trees. They are added to `registered`.
fn named_versions(
    pages: &TreePages,
    committed: &Committed,
    found: &recovery::Recovered,
    names: Vec<(String, u32, u64)>,
    registered: &Registered,
) -> Result<BTreeMap<String, NamedVersion>, StoreError> {
    let mut named = BTreeMap::new();
    for (name, slot, version) in names {
        let leaves = found.leaves_of(Some(version));
        let (roots, _) = roots::assemble(pages, committed, version, leaves)?;
        registered.add_name(version, &name);
        let it = NamedVersion {
            slot,
            version,
            roots,
        };
        named.insert(name, it);
    }
    Ok(named)
}

/// Checks that the tables hold what the commit record counts.
fn are_counted(record: &CommitRecord, found: &recovery::Recovered) -> Result<(), StoreError> {
    let damaged = |what| StoreError::Damaged {
        at: CommitRecord::place(record.sequence),
        what,
    };
    if found.live_leaves() != record.leaves {
        let what = "the commit record counts other leaves than the tables hold";
        return Err(damaged(what));
    }
    if found.extents != (record.extents, record.extent_units) {
        let what = "the commit record counts other extents than the tables hold";
        return Err(damaged(what));
    }
    Ok(())
}

/// Opens the store for reading. Unless it is `alone`, the control region holds the durable version.
fn reading(
    pages: TreePages,
    seed: u32,
    shared: SharedControl,
    alone: bool,
) -> Result<Core, StoreError> {
    if alone {
        // The remains of an interrupted process in the page cache must become durable before they
        // are trusted.
        pages.sync()?;
        let mut record = recovery::newest_record(&pages, seed, 0)?;
        survived(&record)?;
        let mut dead = record.dead().to_vec();
        follow_up(&mut record, &mut dead, NUMBERS);
        // A record has fewer than there is space for.
        shared.add_dead(&dead);
        shared.announce(record.version, &[], pages.len());
        shared.publish(record.version);
    }
    // Pinned before the durable version is read: see `follow`.
    let pin = shared.participants.clone();
    let pin = pin.pin()?;
    let durable = shared.durable();
    if shared.file_len() > pages.len() {
        pages.follow()?;
    }
    let committed = Committed::following(durable, shared.dead());
    let leaves = recovery::leaves_at(&pages, seed, &committed)?;
    let (roots, _) = roots::assemble(&pages, &committed, durable, leaves)?;
    let follower = Follower::at(&shared, durable);
    drop(pin);
    Ok(Core {
        seed,
        committed,
        follower: Some(Mutex::new(follower)),
        poisoned: AtomicBool::new(false),
        copies_on_write: AtomicBool::new(false),
        registered: Registered::default(),
        names: Names::default(),
        copies: None,
        group: CommitGroup::default(),
        published: AtomicPtr::new(Box::into_raw(PublishedVersion::new(durable, roots))),
        writer: Mutex::new(Writer::new(
            CommitRecord::empty(),
            FreeSpace::default(),
            FreeLeaves::default(),
            Vec::new(),
        )),
        shared,
        pages,
        _lock: None,
    })
}

/// Checks whether the last writer's durability was sufficient for the way in which it ended.
fn survived(record: &CommitRecord) -> Result<(), StoreError> {
    let was_closed = record.state & STATE_CLEAN != 0;
    let for_processes = record.state & 0xff00 == Durability::Process.code();
    if !was_closed && for_processes && record.boot != mneme_sys::boot_id() {
        return Err(StoreError::NotClean);
    }
    Ok(())
}

/// Creates a file under a temporary name, calls `fill`, and renames the file once its content is
/// durable. A process that is killed meanwhile leaves the file `NAME.making-NUMBER`.
pub(crate) fn make(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&Path) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut number = [0; 8];
    mneme_sys::random_bytes(&mut number).map_err(os("find a random number"))?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".making-{:016x}", u64::from_le_bytes(number)));
    let temporary = PathBuf::from(name);
    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode & 0o666)
        .open(&temporary);
    created.map_err(os("create the store's file"))?;
    let made = fill(&temporary).and_then(|()| {
        files::rename_new(&temporary, path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => StoreError::Exists {
                path: path.to_owned(),
            },
            _ => os("name the store's file")(error),
        })
    });
    if made.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    made?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(parent.unwrap_or(Path::new(".")));
    directory
        .and_then(|directory| directory.sync_all())
        .map_err(os("sync the store's directory"))
}

/// Writes an empty store to an empty medium: one leaf for all keys.
fn create_on(pages: &TreePages, uuid: Option<[u8; 16]>) -> Result<(), StoreError> {
    let (mut random, mut instance) = ([0; 16], [0; 16]);
    for bytes in [&mut random, &mut instance] {
        mneme_sys::random_bytes(bytes).map_err(os("find a random identity"))?;
    }
    pages.grow(2 * FRAME)?;
    let header = FileHeader::new(uuid.unwrap_or(random), instance);
    pages.store(0, header.as_bytes());
    let first = FrameHeader::new(1, FrameKind::Leaves, header.seed());
    pages.store(FRAME, first.as_bytes());
    let leaf = LeafHeader::new((MAIN, LeafId::new(1, 0)), 1, (&[], None), None);
    pages.store(LeafId::new(1, 0).header_at(), leaf.as_bytes());
    pages.barrier()?;
    let mut record = CommitRecord::empty();
    record.state = STATE_CLEAN | pages.durability().code();
    record.sequence = 1;
    record.version = 1;
    record.last = 1;
    record.file_len = pages.len();
    record.leaves = 1;
    record.next_tree = u64::from(MAIN) + 1;
    record.boot = mneme_sys::boot_id();
    record.seal(header.seed());
    pages.store(CommitRecord::place(1), record.as_bytes());
    Ok(pages.barrier()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mneme_sys::medium::RecordingMedium;

    /// A file whose bytes this test keeps.
    fn image(
        durability: Durability,
        change: impl FnOnce(&mut CommitRecord),
    ) -> Result<Store, StoreError> {
        let pages = TreePages::new(Box::new(MemoryMedium::new(8 * FRAME)?), durability);
        create_on(&pages, None)?;
        let seed = recovery::file_header(&pages)?.seed();
        let mut record = recovery::newest_record(&pages, seed, 0)?;
        record.sequence += 1;
        change(&mut record);
        record.seal(seed);
        pages.store(CommitRecord::place(record.sequence), record.as_bytes());
        let medium = MemoryMedium::new(8 * FRAME)?;
        medium.grow(pages.len())?;
        let mut bytes = vec![0; pages.len() as usize];
        pages.copy(0, &mut bytes);
        medium.store(0, &bytes);
        Builder::new()
            .durability(durability)
            .open_on(Box::new(medium))
    }

    #[test]
    fn an_opening_knows_whether_the_file_was_closed() {
        let name = format!("mneme-tree-was-closed-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let builder = Builder::new().max_bytes(16 * FRAME);
        let was_closed = || {
            let file = File::options().read(true).write(true).open(&path);
            let medium = FileMedium::open(file.unwrap(), Access::ReadWrite, 16 * FRAME).unwrap();
            builder.was_closed(&medium)
        };
        let db = builder.open(&path).unwrap();
        assert!(!was_closed());
        db.put(b"a", b"1").unwrap();
        assert!(!was_closed());
        db.close().unwrap();
        assert!(was_closed());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_of_the_network_is_refused_and_one_that_is_copied_on_write_warns() {
        let name = format!("mneme-tree-caution-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let builder = Builder::new().max_bytes(16 * FRAME);
        let warning = |builder: &Builder, caution| {
            let db = builder.open_with(&path, caution)?;
            Ok::<_, StoreError>(db.stats()?.warning)
        };
        let refused = warning(&builder, Some(Caution::Network));
        assert!(
            matches!(&refused, Err(StoreError::Network { path: of }) if *of == path),
            "{refused:?}"
        );
        assert!(!path.exists());
        let allowed = warning(&builder.clone().allow_network(true), Some(Caution::Network));
        assert_eq!(allowed.unwrap(), None);
        let copied = warning(&builder, Some(Caution::CopyOnWrite));
        assert!(copied.unwrap().is_some_and(|text| text.contains("copies")));
        assert_eq!(warning(&builder, None).unwrap(), None);
        std::fs::remove_file(&path).unwrap();
    }

    /// Pages that were never written may be clean now, and readers trust them.
    #[test]
    fn no_writer_is_let_in_after_an_opening_whose_sync_failed() {
        let participants = SharedControl::private([1; 16]).unwrap().participants;
        let builder = Builder::new();
        let open = |fails: bool| {
            let medium = RecordingMedium::new(8 * FRAME).unwrap();
            if fails {
                medium.fail_sync(3, 0);
            }
            let pages = TreePages::new(Box::new(medium), Durability::File);
            create_on(&pages, None)?;
            let header = recovery::file_header(&pages)?;
            let shared = SharedControl::of(participants.clone()).unwrap();
            builder.writing(pages, &header, shared, false)
        };
        let failed = open(true).map(drop);
        assert!(
            matches!(failed, Err(StoreError::Medium(MediumError::Sync(_)))),
            "{failed:?}"
        );
        let next = open(false).map(drop);
        assert!(matches!(next, Err(StoreError::Poisoned)), "{next:?}");
    }

    /// While the same readers stay, there is space for a limited number of dead numbers.
    #[test]
    fn a_number_dies_only_with_a_commit_that_had_begun() {
        let participants = SharedControl::private([1; 16]).unwrap().participants;
        let mut bytes = Vec::new();
        let mut open = |begins: bool| {
            let pages = TreePages::new(
                Box::new(MemoryMedium::new(8 * FRAME).unwrap()),
                Durability::Process,
            );
            if bytes.is_empty() {
                create_on(&pages, None).unwrap();
            } else {
                pages.grow(bytes.len() as u64).unwrap();
                pages.store(0, &bytes);
            }
            let header = recovery::file_header(&pages).unwrap();
            let shared = SharedControl::of(participants.clone()).unwrap();
            let core = Builder::new()
                .writing(pages, &header, shared, false)
                .unwrap();
            if begins {
                core.shared.begin(core.writer().record.last + 1);
            }
            // The state that a writer killed now would leave.
            bytes.resize(core.pages.len() as usize, 0);
            core.pages.copy(0, &mut bytes);
            core.committed.dead().len()
        };
        let dead: Vec<_> = (0..130).map(|n| open(n == 100)).collect();
        assert_eq!(dead[..=100], [0; 101]);
        assert_eq!(dead[101..], [1; 29]);
    }

    #[test]
    fn a_store_that_does_not_survive_power_loss_is_refused_after_one() {
        let other_boot = [9; 16];
        let open = |durability: Durability, boot: [u8; 16], closed: u32| {
            image(durability, |record| {
                record.state = durability.code() | closed;
                record.boot = boot;
            })
        };
        let refused = open(Durability::Process, other_boot, 0);
        assert!(matches!(refused, Err(StoreError::NotClean)), "{refused:?}");
        let here = mneme_sys::boot_id();
        for opened in [
            open(Durability::Process, here, 0),
            open(Durability::Process, other_boot, STATE_CLEAN),
            open(Durability::File, other_boot, 0),
        ] {
            assert!(opened.is_ok(), "{opened:?}");
        }
    }
}
