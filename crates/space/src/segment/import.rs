//! Imports data files that have lost their names: a registry's directory was emptied, while the
//! data of its segments are still in memory or on a disk.
//!
//! **An import is complete or has no effect.** The data file gets a second name, which the new
//! segment's description names, and loses its first one last. A process that dies in between leaves
//! the file under its old name, or under both: nothing is lost, and the rest is cleaned like an
//! interrupted creation.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mneme_sys::files::{self, FsKind};
use mneme_sys::{Access, HEADER_LEN, RegionHeader};

use super::builder::{Placement, SegmentPlan};
use super::control::make_control;
use super::data::{self, word};
use super::meta::{self, data_name, registry_in};
use super::{Backing, Segment, presence};
use crate::making::named_beside;
use crate::registry::files::{entries, gone};
use crate::{
    CreateError, DescriptionError, FileError, Name, OpenError, Registry, RegistryError, Uuid, heap,
};

/// The suffix of a data file of this registry during its import.
const ASIDE: &str = ".importing";

/// The original name and the registry of a data file that is being imported under another name;
/// `None` for any other file.
pub(crate) fn data_set_aside(file: &Path) -> Option<(PathBuf, Uuid)> {
    let name = file.file_name()?.to_str()?.strip_suffix(ASIDE)?;
    Some((file.with_file_name(name), registry_in(name)?))
}

/// A data file that no segment of the registry names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Importable {
    /// The file.
    pub data: PathBuf,
    /// The identity of the registry in which it was created.
    pub registry: Uuid,
    /// The file's length in bytes.
    pub size: u64,
}

impl Registry {
    /// This user's data files in shared memory that were created in other registries, or whose
    /// import was interrupted, and that no process has mapped. Whether one of these registries
    /// still names them cannot be determined here.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn importable(&self) -> Result<Vec<Importable>, RegistryError> {
        let mut found = Vec::new();
        for place in self.data_directories() {
            // A directory that may not be listed, such as root's mount of huge pages, is skipped.
            for file in entries(&place).unwrap_or_default() {
                let name = file.file_name().and_then(|name| name.to_str());
                let data = data_set_aside(&file);
                let registry = match &data {
                    Some((_, registry)) => Some(*registry),
                    None => name.and_then(registry_in),
                };
                let Some(registry) = registry else {
                    continue;
                };
                // The file has both names: the only step of the import that is left is to remove
                // the second.
                if data.as_ref().is_some_and(|(data, _)| data.exists()) {
                    continue;
                }
                let Ok(status) = fs::symlink_metadata(&file) else {
                    continue;
                };
                let is_own = status.is_file() && status.uid() == files::user();
                let is_nameless = registry != self.uuid() || data.is_some();
                if is_own && is_nameless && !presence::is_anybody_in(&file)? {
                    found.push(Importable {
                        data: file,
                        registry,
                        size: status.len(),
                    });
                }
            }
        }
        Ok(found)
    }

    /// Creates a segment of that name from a data file that no registry names any more. It keeps
    /// the identity, address, maximum size and permissions that it had, and is consistent or
    /// poisoned as before. `base` is needed if the file does not record its address: segments of
    /// older builds do not.
    ///
    /// The file stays in its directory and gets another name there. If another registry still names
    /// it, that registry's segment has lost its data afterwards.
    ///
    /// # Errors
    /// [`CreateError::ImportContents`]: another crate laid it out; [`CreateError::NoBase`],
    /// [`CreateError::OtherBase`]; [`CreateError::InUse`]; [`CreateError::Named`],
    /// [`CreateError::SameIdentity`]; [`CreateError::ImportData`] if it is damaged; otherwise as
    /// [`SegmentBuilder::create`](crate::SegmentBuilder::create).
    pub fn import_segment(
        &self,
        data: &Path,
        name: &str,
        base: Option<usize>,
    ) -> Result<Segment, CreateError> {
        let name = Name::of_new(name)?;
        let data = fs::canonicalize(data).map_err(FileError::at("find", data))?;
        let header = examine(&data)?;
        let base = base_of(&data, &header, base)?;
        let used = presence::is_anybody_in(&data)?;
        if used {
            return Err(CreateError::InUse { path: data });
        }
        let named = named_beside(self, Path::new(""))?;
        if data.file_name().is_some_and(|name| named.contains(name)) {
            return Err(CreateError::Named { path: data });
        }
        let found = fs::metadata(&data).map_err(FileError::at("examine", &data))?;
        let plan = SegmentPlan {
            registry: self,
            name,
            max_size: usize::try_from(header.max_len).unwrap_or(usize::MAX),
            mode: found.permissions().mode() & 0o777,
            backing: backing_of(&data)?,
            directory: data.parent().unwrap_or(Path::new("/")).to_owned(),
            pages: mneme_sys::PagePolicy::default(),
            place: base.map_or(Placement::Floating, Placement::AsBefore),
            cloned_from: None,
            contents: None,
        };
        let to = plan
            .directory
            .join(data_name(self.uuid(), Uuid::from_bytes(header.uuid)));
        // A file that was created in this registry already has its final name. It gets a temporary
        // name, because cleaning an interrupted import removes everything that the new description
        // names, and must not remove this file.
        let aside = (to == data).then(|| {
            let mut aside = data.clone().into_os_string();
            aside.push(ASIDE);
            PathBuf::from(aside)
        });
        let from = aside.as_deref().unwrap_or(&data);
        if let Some(aside) = &aside {
            files::rename_new(&data, aside).map_err(FileError::at("rename", &data))?;
        }
        let named = self.give_name(plan, Uuid::from_bytes(header.uuid), from, &to);
        if let (Some(aside), Err(_)) = (&aside, &named) {
            // If the file cannot be renamed back, it still exists, and can be imported under its
            // current name.
            let _ = files::rename_new(aside, &data);
        }
        named
    }

    /// Creates the segment from the file `from`, whose data file will be named `to`.
    fn give_name(
        &self,
        plan: SegmentPlan<'_>,
        uuid: Uuid,
        from: &Path,
        to: &Path,
    ) -> Result<Segment, CreateError> {
        if to.exists() {
            let path = to.to_owned();
            return Err(CreateError::SameIdentity { path });
        }
        let begun = plan.describe(uuid)?;
        // The description takes over the header's values, which may be wrong in a damaged file.
        if let Some(why) = begun.meta.contradiction() {
            let damaged = DescriptionError::Damaged {
                path: from.to_owned(),
                why: why.to_owned(),
            };
            return Err(CreateError::ImportData(OpenError::Description(damaged)));
        }
        fs::hard_link(from, to).map_err(FileError::at("link", to))?;
        mneme_sys::fault!("space.import.linked");
        let file = data::open(to, Access::ReadWrite).map_err(CreateError::ImportData)?;
        data::examine_file(&file, &begun.meta).map_err(CreateError::ImportData)?;
        begun.link(&file)?;
        drop(make_control(&begun.control(), uuid)?);
        let segment = plan.publish(begun)?;
        mneme_sys::fault!("space.import.named");
        gone(from, fs::remove_file(from))?;
        Ok(segment)
    }
}

/// The header of a file that could be a segment with this crate's layout.
fn examine(path: &Path) -> Result<RegionHeader, CreateError> {
    use std::os::unix::fs::FileExt;

    let file = data::open(path, Access::ReadOnly).map_err(CreateError::ImportData)?;
    let refused = |source| OpenError::Header {
        path: path.to_owned(),
        source,
    };
    let mut bytes = [0; HEADER_LEN];
    file.read_exact_at(&mut bytes, 0)
        .map_err(|e| CreateError::ImportData(FileError::at("read", path)(e).into()))?;
    let header = RegionHeader::from_bytes(&bytes);
    let (magic, format, layout) = (data::MAGIC, data::FORMAT, data::LAYOUT_HASH);
    match header.validate(magic, format, layout) {
        Ok(()) => {}
        // Data that another crate lays out begin with another magic number, in a file named by this
        // crate.
        Err(_) if header.magic != magic && has_name_of_data(path) => {
            return Err(CreateError::ImportContents {
                path: path.to_owned(),
                magic: header.magic.escape_ascii().to_string(),
            });
        }
        Err(damage) => return Err(CreateError::ImportData(refused(damage))),
    }
    Ok(header)
}

fn has_name_of_data(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(registry_in).is_some()
}

/// The segment's address; `None` if it floats.
fn base_of(
    path: &Path,
    header: &RegionHeader,
    given: Option<usize>,
) -> Result<Option<usize>, CreateError> {
    let noted = usize::try_from(header.client[word::BASE]).unwrap_or(usize::MAX);
    let path = || path.to_owned();
    let base = match (noted, given) {
        (0, None) if heap::begins_in(&path()).unwrap_or(true) => {
            return Err(CreateError::NoBase { path: path() });
        }
        (0, given) => given,
        (noted, Some(given)) if noted != given => {
            return Err(CreateError::OtherBase {
                path: path(),
                found: noted,
                given,
            });
        }
        (noted, _) => Some(noted),
    };
    if let Some(base) = base.filter(|base| !meta::is_possible_base(*base, header.max_len)) {
        return Err(CreateError::Base {
            base,
            max: usize::try_from(header.max_len).unwrap_or(usize::MAX),
            why: "it is not a multiple of 1 GiB in user space",
        });
    }
    Ok(base)
}

/// The backing of an existing file.
fn backing_of(data: &Path) -> Result<Backing, CreateError> {
    let kind = files::fs_kind(data).map_err(FileError::at("examine", data))?;
    let directory = data.parent().unwrap_or(Path::new("/")).to_owned();
    let file = fs::File::open(data).map_err(FileError::at("open", data))?;
    Ok(match kind {
        FsKind::Memory => Backing::Shared,
        FsKind::HugePages { .. } => Backing::Huge,
        FsKind::Other if files::is_direct(&file).unwrap_or(false) => Backing::Dax { directory },
        FsKind::Other => Backing::File { directory },
    })
}
