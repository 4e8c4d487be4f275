//! Segments whose bytes another crate lays out, for instance a log store.
//!
//! **This crate names them, finds them, knows which processes have them open, and removes them;
//! apart from one word of the header, it never reads or writes their bytes.** Such a segment
//! floats. Its data file begins with the other crate's [`RegionHeader`], which has that crate's
//! magic number, format and layout. Its control file is the other crate's too: participants are
//! those of that crate's [`mneme_sync`] region. The two headers contain all that this crate needs.
//! The description records what the segment holds, so that it is not mistaken for something else.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use mneme_sys::{
    Access, Liveness, OfdLiveness, PagePolicy, Region, RegionError, RegionHeader, Reserve,
};

use super::builder::BegunSegment;
use super::control::{self, Control};
use super::meta::SegmentMeta;
use super::presence::{Presence, Way};
use super::writers::{self, Writing};
use super::{Segment, SegmentBuilder, data, durable};
use crate::registry::json;
use crate::{Contents, ContentsInfo, CreateError, FileError, MapError, Uuid};

/// The two regions of a segment that another crate lays out, and the record that shows others that
/// it is in use.
///
/// Forked children do not inherit the regions. Code that takes this value apart must drop
/// `presence` after the regions.
pub struct Parts {
    /// The segment's identity, which is in the headers of both the data and the control region.
    pub uuid: Uuid,
    /// The data. Growing the region allocates neither memory nor disk space; the crate that manages
    /// the bytes asks for them. A mapping for reading only can never become writable.
    pub data: Region,
    /// The control file, always writable, with all of its memory allocated.
    pub control: Region,
    /// Tells which processes are alive, by locks on the control file.
    pub liveness: Arc<dyn Liveness>,
    /// Shows others that the segment is in use, and prevents the removal of its data.
    pub presence: Presence,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("uuid", &self.uuid)
            .field("data", &self.data)
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}

impl SegmentBuilder<'_> {
    /// Creates a segment that another crate lays out, completely or not at all. `lay_out` gets the
    /// segment's parts before any other process can find it: data of the requested size and a
    /// control file of `control_bytes`, both zeros. It must write a header with the given identity,
    /// the magic number, format and layout of `contents`, and the region's maximum size. Word 1 of
    /// that header's [client words](RegionHeader::client) belongs to this crate and must be 0. The
    /// parts may be kept for use.
    ///
    /// The segment floats. Memory or disk space for its data is not allocated now, but when
    /// `lay_out` and later users reserve it; the control file's is allocated at once.
    ///
    /// # Errors
    /// As [`create`](Self::create); as `lay_out`; [`CreateError::LaidOut`] if it wrote another
    /// header than announced; [`CreateError::Base`] if an address was requested. Nothing of the
    /// segment exists then.
    pub fn create_with<E: From<CreateError>>(
        self,
        contents: &Contents,
        control_bytes: usize,
        lay_out: impl FnOnce(Parts) -> Result<(), E>,
    ) -> Result<Segment, E> {
        let (plan, size) = self.plan(Some(contents.into()))?;
        let (begun, file) = plan.begin()?;
        let parts = begun.parts(&file, size, control_bytes)?;
        mneme_sys::fault!("space.contents.parts");
        lay_out(parts)?;
        mneme_sys::fault!("space.contents.laid-out");
        let meta = &begun.meta;
        data::examine_file(&file, meta).map_err(CreateError::LaidOut)?;
        begun.write_through(&file)?;
        mneme_sys::fault!("space.contents.durable");
        Ok(plan.publish(begun)?)
    }
}

impl BegunSegment {
    /// Gives the files of a new segment their sizes, and becomes its first participant.
    fn parts(&self, file: &File, size: usize, control_bytes: usize) -> Result<Parts, CreateError> {
        let meta = &self.meta;
        let of_data = |source| CreateError::Data {
            path: meta.data.clone(),
            source,
        };
        let again = file
            .try_clone()
            .map_err(FileError::at("open", &meta.data))?;
        let data = map_lazily(again, Access::ReadWrite, meta).map_err(of_data)?;
        data.grow(size).map_err(of_data)?;
        mneme_sys::fault!("space.contents.sized");
        self.link(file)?;

        let path = self.control();
        let of_control = |source: RegionError| CreateError::Data {
            path: path.clone(),
            source,
        };
        let file_of_control = data::create(&path)?;
        let way = Way::by(&file_of_control).map_err(FileError::at("examine", &path))?;
        let liveness = OfdLiveness::reopen(file_of_control.as_fd(), 0).map_err(|source| {
            crate::RegistryError::Lock {
                path: path.clone(),
                source,
            }
        })?;
        let to_sync = file_of_control
            .try_clone()
            .map_err(FileError::at("open", &path))?;
        let access = Access::ReadWrite;
        let control = Region::map(
            file_of_control.into(),
            access,
            control_bytes,
            PagePolicy::Small,
        )
        .map_err(of_control)?;
        control.grow(control_bytes).map_err(of_control)?;
        mneme_sys::fault!("space.contents.control");
        data.dont_fork().map_err(of_data)?;
        control.dont_fork().map_err(of_control)?;

        let joined = Presence::announce(file, &meta.data, way).and_then(|presence| {
            if !durable::is_durable(meta) {
                return Ok(presence);
            }
            Ok(presence.writing(Writing::of_new(file, &meta.data, to_sync)?))
        });
        Ok(Parts {
            uuid: meta.uuid,
            data,
            control,
            liveness: Arc::new(liveness),
            presence: joined.map_err(Box::new)?,
        })
    }

    /// Writes the new contents through to their medium, if they have one, before the segment gets
    /// its name.
    fn write_through(&self, file: &File) -> Result<(), CreateError> {
        if !durable::is_durable(&self.meta) {
            return Ok(());
        }
        writers::settle(file, &self.meta.data).map_err(Box::new)?;
        if let Some(directory) = self.meta.data.parent() {
            json::sync_directory(directory)?;
        }
        let control = self.control();
        let synced = File::open(&control).and_then(|file| file.sync_all());
        Ok(synced.map_err(FileError::at("write through", &control))?)
    }
}

impl Segment {
    /// What the segment holds, for people, if another crate lays it out.
    #[must_use]
    pub fn contents(&self) -> Option<&str> {
        let contents = self.meta().contents.as_ref();
        contents.map(|contents| contents.kind.as_str())
    }

    /// Opens a segment that another crate has laid out: maps its data with that access and its
    /// control file for writing, and records that this process has it in use. The caller, and not
    /// this crate, becomes a participant of the control region.
    ///
    /// If the backing outlives the machine, the last process that had the segment open for writing
    /// writes everything through when it leaves; dropping `presence` waits for that, and so does
    /// the next process that opens it.
    ///
    /// # Errors
    /// [`MapError::OtherContents`] if the contents are not of the requested kind, format and
    /// layout; [`MapError::NotClean`] if the machine went down while the segment was in use;
    /// [`MapError::NotWritable`]; [`MapError::OtherControl`], [`MapError::OtherData`]; a part is
    /// damaged or gone. Nothing is touched then.
    pub fn parts(&self, contents: &Contents, access: Access) -> Result<Parts, MapError> {
        let meta = self.meta();
        let wanted = ContentsInfo::from(contents);
        if meta.contents.as_ref() != Some(&wanted) {
            return Err(MapError::OtherContents {
                name: self.name().to_string(),
                holds: meta.contents.clone().map(Box::new),
                wanted: Box::new(wanted),
            });
        }
        let Control {
            region: control,
            liveness,
            way,
        } = control::map_control(&self.control())?;
        control.dont_fork()?;
        let file = data::open_for(meta, access)?;
        // Checked before the file is mapped: a missing header would cause a fault.
        let header = data::examine_file(&file, meta)?;
        let mut presence = Presence::announce(&file, &meta.data, way)?;
        let path: &Path = &meta.data;
        if !durable::is_of_this_boot(header.client[data::word::UNSYNCED], meta) {
            return Err(MapError::NotClean {
                path: path.to_owned(),
            });
        }
        if durable::is_durable(meta) && access == Access::ReadWrite {
            let again = control.duplicate_fd();
            let again = again.unwrap_or_else(|| Err(ErrorKind::Unsupported.into()));
            let to_sync = again.map_err(FileError::at("open", &self.control()))?;
            presence = presence.writing(Writing::begin(&file, path, to_sync.into())?);
        }
        let data = map_lazily(file, access, meta)?;
        data.dont_fork()?;
        Ok(Parts {
            uuid: meta.uuid,
            data,
            control,
            liveness: Arc::new(liveness),
            presence,
        })
    }

    /// Refuses segments that another crate lays out, for operations on this crate's own layout.
    pub(crate) fn without_contents(&self) -> Result<(), MapError> {
        match self.contents() {
            None => Ok(()),
            Some(kind) => Err(MapError::Contents {
                name: self.name().to_string(),
                kind: kind.to_owned(),
            }),
        }
    }
}

fn map_lazily(file: File, access: Access, meta: &SegmentMeta) -> Result<Region, RegionError> {
    let (max, pages) = (meta.max_size, meta.pages);
    Region::map_with(file.into(), access, max, pages, Reserve::Lazy)
}

/// What is wrong with the control file of such a segment, if that can be determined. It is not
/// opened as a participant's, which would change it: only the other crate knows its contents.
pub(crate) fn control_damage(control: &Path, kind: &str) -> Option<String> {
    let lost = |what: &str| {
        Some(format!(
            "{what}, so that nobody can open the {kind}; it is not made anew, for it was a part of the {kind} and what it \
             held cannot be known"
        ))
    };
    let is_file = std::fs::symlink_metadata(control).is_ok_and(|found| found.is_file());
    if !is_file {
        return lost("it is missing");
    }
    // A file that this process may not open is not judged.
    let mut options = File::options();
    let file = mneme_sys::files::open_plain(control, options.read(true)).ok()?;
    let mut bytes = [0; mneme_sys::HEADER_LEN];
    if std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).is_err() {
        return lost("it is shorter than its header");
    }
    let header = RegionHeader::from_bytes(&bytes);
    if !mneme_sync::Participants::are_described_by(&header) {
        return lost("it does not begin as a control file does");
    }
    match file.metadata() {
        Ok(found) if found.len() < header.committed_len => lost("it is shorter than it was made"),
        _ => None,
    }
}
