//! Contents that a test lays out in a segment: a header, a control region, and words for the test's
//! use.

use std::sync::atomic::{AtomicU64, Ordering};

use mneme_space::{Access, Backing, Contents, MapError, Parts, Presence, Segment, Uuid};
use mneme_sync::{ControlOptions, Participants};
use mneme_sys::{FRAME, HEADER_LEN, Region, RegionHeader};

use super::Scene;

pub const TOY: Contents = Contents {
    kind: "toy box",
    magic: *b"MnemeToy",
    format: 3,
    layout_hash: 0xfeed_0000_0000_0001,
};

/// The offset of a toy's word.
pub const WORD: u64 = 4096;

/// A process that has a toy open.
pub struct Toy {
    pub participants: Participants,
    pub data: Region,
    pub presence: Presence,
}

pub fn control_bytes() -> usize {
    ControlOptions::new([0; 16]).region_len()
}

/// The header of a toy's data.
pub fn header(uuid: Uuid, data: &Region) -> RegionHeader {
    RegionHeader {
        magic: TOY.magic,
        format: TOY.format,
        header_len: HEADER_LEN as u32,
        layout_hash: TOY.layout_hash,
        uuid: uuid.to_bytes(),
        max_len: data.max() as u64,
        committed_len: data.len() as u64,
        client: [0; 8],
        checksum: 0,
    }
}

/// Why a toy was not made.
pub type Refused = Box<dyn std::error::Error + Send + Sync>;

impl Toy {
    pub fn lay_out(parts: Parts) -> Result<Toy, Refused> {
        let options = ControlOptions::new(parts.uuid.to_bytes());
        let participants = Participants::create(parts.control, options, parts.liveness).unwrap();
        let word: &AtomicU64 = parts.data.at(WORD).unwrap();
        word.store(7, Ordering::Relaxed);
        header(parts.uuid, &parts.data).write(&parts.data).unwrap();
        Ok(Toy {
            participants,
            data: parts.data,
            presence: parts.presence,
        })
    }

    pub fn create(scene: &Scene, backing: Backing) -> Result<Segment, Refused> {
        scene
            .registry
            .segment("toy")
            .size(4 * FRAME)
            .backing(backing)
            .create_with(&TOY, control_bytes(), |parts| Toy::lay_out(parts).map(drop))
    }

    pub fn open(segment: &Segment, access: Access) -> Result<Toy, MapError> {
        let parts = segment.parts(&TOY, access)?;
        let uuid = parts.uuid.to_bytes();
        Ok(Toy {
            participants: Participants::open(parts.control, uuid, parts.liveness).unwrap(),
            data: parts.data,
            presence: parts.presence,
        })
    }

    pub fn word(&self) -> u64 {
        self.data.load_u64(WORD).unwrap()
    }
}
