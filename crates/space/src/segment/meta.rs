//! A segment's description: the file `meta`, written once, before anything that it names exists.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use mneme_sys::{FRAME, PagePolicy};
use serde::{Deserialize, Serialize};

use super::Backing;
use super::data;
use crate::registry::{GIB, json};
use crate::{ContentsInfo, DescriptionError, Uuid, hexadecimal};

/// The version of the description's format.
pub(crate) const FORMAT: u32 = 1;

/// The suffix of every data file's name.
const SUFFIX: &str = ".segment";

/// A segment's unchanging properties. Those that change (its size, its permissions) are read from
/// the files.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentMeta {
    pub(crate) format: u32,
    /// The name under which it was created; the directory's name is the current one.
    pub(crate) made_as: String,
    pub(crate) uuid: Uuid,
    pub(crate) max_size: usize,
    /// The address at which it is mapped; `None` if it floats.
    #[serde(with = "hexadecimal::address::option")]
    pub(crate) base: Option<usize>,
    pub(crate) backing: Backing,
    #[serde(with = "Pages")]
    pub(crate) pages: PagePolicy,
    pub(crate) data: PathBuf,
    /// The segment that it was cloned from.
    #[serde(default)]
    pub(crate) cloned_from: Option<Uuid>,
    /// For a segment in memory: the boot in which it was created.
    #[serde(default)]
    pub(crate) boot: Option<Uuid>,
    /// The format of its data, if another crate lays them out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) contents: Option<ContentsInfo>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PagePolicy", rename_all = "lowercase")]
enum Pages {
    Huge,
    Guaranteed,
    Thp,
    Small,
}

impl SegmentMeta {
    /// Reads the description in a segment's directory.
    pub(crate) fn read(directory: &Path) -> Result<Self, DescriptionError> {
        json::read_sound(&directory.join("meta"), FORMAT, Self::contradiction)
    }

    /// What in the description cannot be true, if anything.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        if self.max_size == 0 || self.max_size > 1 << 46 || !self.max_size.is_multiple_of(FRAME) {
            return Some("its greatest size is impossible");
        }
        if let Some(base) = self.base
            && !is_possible_base(base, self.max_size as u64)
        {
            return Some("its address is impossible");
        }
        if let Some(contents) = &self.contents {
            if self.base.is_some() {
                return Some("it holds what has no address, and has one");
            }
            if !contents.is_named() {
                return Some("what it holds has an impossible name");
            }
        }
        let named = self.data.file_name().and_then(|name| name.to_str());
        if !self.data.is_absolute() || named.and_then(uuid_in) != Some(self.uuid) {
            return Some("its data file is not one of a segment's");
        }
        None
    }

    /// The magic number, format and layout with which the data begin.
    pub(crate) fn layout(&self) -> ([u8; 8], u32, u64) {
        match &self.contents {
            None => (data::MAGIC, data::FORMAT, data::LAYOUT_HASH),
            Some(contents) => (contents.magic, contents.format, contents.layout_hash),
        }
    }

    /// The addresses that the segment occupies when it is mapped.
    pub(crate) fn addresses(&self) -> Option<Range<usize>> {
        self.base.map(|base| base..base + self.max_size)
    }
}

/// Whether this many bytes can lie there: at a multiple of 1 GiB, in user space.
pub(crate) fn is_possible_base(base: usize, bytes: u64) -> bool {
    let end = (base as u64).checked_add(bytes);
    base > 0 && base.is_multiple_of(GIB) && end.is_some_and(|end| end <= 1 << 47)
}

/// The name of a segment's data file.
pub(crate) fn data_name(registry: Uuid, segment: Uuid) -> String {
    format!("{registry}-{segment}{SUFFIX}")
}

/// The registry that a data file's name says it belongs to.
pub(crate) fn registry_in(name: &str) -> Option<Uuid> {
    uuid_in(name)?;
    Uuid::parse(name.get(..32)?)
}

fn uuid_in(name: &str) -> Option<Uuid> {
    let (registry, segment) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    Uuid::parse(registry)?;
    Uuid::parse(segment)
}

/// The data files that a directory names, through its description and its link: one, unless either
/// is damaged. Only files whose names have the form of [`data_name`] are returned and, if the
/// description can be read, only those of the segment described: a damaged description must not
/// cause the removal of any other file.
pub(crate) fn data_files_of(directory: &Path) -> BTreeSet<PathBuf> {
    let described = SegmentMeta::read(directory).ok();
    let linked = std::fs::read_link(directory.join("data")).ok();
    let linked = linked.filter(|file| {
        let name = file.file_name().and_then(|name| name.to_str());
        let uuid = name.and_then(uuid_in);
        let expected = described.as_ref().map_or(uuid, |meta| Some(meta.uuid));
        file.is_absolute() && uuid.is_some() && uuid == expected
    });
    described
        .map(|meta| meta.data)
        .into_iter()
        .chain(linked)
        .collect()
}
