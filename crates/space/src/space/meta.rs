//! A space's description: the file `meta`, replaced whole whenever the members or the permissions
//! change.

use std::path::Path;

use mneme_sys::Access;
use serde::{Deserialize, Serialize};

use super::{MAX_MEMBERS, MemberInfo};
use crate::registry::json;
use crate::{DescriptionError, Name, Uuid};

/// The version of the description's format.
pub(super) const FORMAT: u32 = 1;

/// More changes than can happen; a greater version is damage.
pub(super) const LAST_VERSION: u64 = 1 << 62;

/// A space's description at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpaceMeta {
    pub(super) format: u32,
    /// The name under which it was created; the directory's name is the current one.
    pub(crate) made_as: String,
    pub(crate) uuid: Uuid,
    /// Counts the changes, from 1.
    pub(crate) version: u64,
    /// The members, in the order in which they were added.
    pub(crate) members: Vec<MemberEntry>,
    /// The space that it was cloned from.
    #[serde(default)]
    pub(super) cloned_from: Option<Uuid>,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberEntry {
    pub(crate) name: String,
    pub(crate) uuid: Uuid,
    #[serde(with = "Rights")]
    pub(super) access: Access,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Access", rename_all = "kebab-case")]
enum Rights {
    ReadOnly,
    ReadWrite,
}

impl SpaceMeta {
    /// Reads the description in a space's directory.
    pub(crate) fn read(directory: &Path) -> Result<Self, DescriptionError> {
        json::read_sound(&directory.join("meta"), FORMAT, Self::contradiction)
    }

    /// What in the description cannot be true, if anything.
    fn contradiction(&self) -> Option<&'static str> {
        if self.version == 0 || self.version > LAST_VERSION {
            return Some("its version is impossible");
        }
        if self.members.len() > MAX_MEMBERS {
            return Some("it has more members than a space can have");
        }
        for (i, member) in self.members.iter().enumerate() {
            if Name::new(&member.name).is_err() {
                return Some("a member's name is none");
            }
            let same = |other: &MemberEntry| other.name == member.name || other.uuid == member.uuid;
            if self.members[..i].iter().any(same) {
                return Some("a member is named twice");
            }
        }
        None
    }

    /// The members for [`Space::info`](super::Space::info).
    pub(super) fn infos(&self) -> Vec<MemberInfo> {
        let members = self.members.iter();
        let info = |entry: &MemberEntry| {
            Some(MemberInfo {
                // Checked when the description was read.
                name: Name::new(&entry.name).ok()?,
                uuid: entry.uuid,
                access: entry.access,
            })
        };
        members.filter_map(info).collect()
    }
}
