//! The first 128 bytes of every region: what it is, in which format, and its identity.
//!
//! ```text
//!   0  magic          8 bytes, the tenant's      40  max_len        u64, bytes
//!   8  format         u32, the tenant's version  48  committed_len  u64, bytes; changes
//!  12  header_len     u32, 128                   56  client         8 words, the tenant's; change
//!  16  layout_hash    u64                       120  checksum       u64, of bytes 0..48
//!  24  uuid           16 bytes
//! ```
//! All integers are little-endian, as all supported targets are. Every access is atomic by 8-byte
//! words; the magic number is written last, so an incomplete header is not valid.

use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Region, RegionError};

/// The length of the header in bytes, at offset 0 of a region.
pub const HEADER_LEN: usize = 128;

const WORDS: usize = HEADER_LEN / 8;
/// The number of words covered by the checksum, which never change.
const FIXED_WORDS: usize = 6;
const COMMITTED_WORD: usize = 6;
const CLIENT_WORD: usize = 7;
const CHECKSUM_WORD: usize = 15;

#[cfg(target_endian = "big")]
compile_error!("the formats are little-endian");

/// The content of a region's header. The module has a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RegionHeader {
    /// The kind of the region, in eight characters.
    pub magic: [u8; 8],
    /// The version of the tenant's format.
    pub format: u32,
    /// The length of this header in bytes.
    pub header_len: u32,
    /// A hash of the tenant's layout (sizes, constants), so that two builds that differ notice it.
    pub layout_hash: u64,
    /// The region's identity, random at creation.
    pub uuid: [u8; 16],
    /// The size in bytes to which the region may grow.
    pub max_len: u64,
    /// The committed size in bytes that the tenant recorded last ([`RegionHeader::set_committed`]).
    pub committed_len: u64,
    /// The tenant's words; [`RegionHeader::client`] returns the words in the region.
    pub client: [u64; 8],
    /// The checksum of the fields up to `max_len`.
    pub checksum: u64,
}

const _: () = assert!(size_of::<RegionHeader>() == HEADER_LEN);
const _: () = assert!(std::mem::offset_of!(RegionHeader, committed_len) == COMMITTED_WORD * 8);
const _: () = assert!(std::mem::offset_of!(RegionHeader, client) == CLIENT_WORD * 8);
const _: () = assert!(std::mem::offset_of!(RegionHeader, checksum) == CHECKSUM_WORD * 8);

/// Why a region's header was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// There is no header, it is that of another kind of region, or its writer died before it was
    /// complete.
    #[error("this is no {} region: it begins with {found:?}", text(expected))]
    Magic {
        /// The expected magic number.
        expected: [u8; 8],
        /// The bytes found.
        found: [u8; 8],
    },
    /// The region was written by another version of the format.
    #[error("the region has format {found}, this build reads format {expected}")]
    Format {
        /// The expected version.
        expected: u32,
        /// The actual version.
        found: u32,
    },
    /// The format's version agrees, but the layouts of the two builds differ.
    #[error("the region has layout {found:#018x}, this build has {expected:#018x}")]
    Layout {
        /// The expected hash.
        expected: u64,
        /// The actual hash.
        found: u64,
    },
    /// The header is damaged.
    #[error("the region's header is damaged: {what}")]
    Damaged {
        /// The contradiction.
        what: &'static str,
    },
    /// The region is too small to hold a header, or may not be accessed that way.
    #[error(transparent)]
    Region(#[from] RegionError),
}

impl HeaderError {
    /// Whether there is no such header, or it contradicts itself, as opposed to having another
    /// version or being unreadable.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Magic { .. } | Self::Damaged { .. } => true,
            // Shorter than a header.
            Self::Region(error) => matches!(error, RegionError::OutOfBounds { .. }),
            Self::Format { .. } | Self::Layout { .. } => false,
        }
    }
}

fn text(magic: &[u8; 8]) -> String {
    String::from_utf8_lossy(magic).trim_end().to_owned()
}

impl RegionHeader {
    /// A header for a new region with a random identity.
    ///
    /// # Errors
    /// The kernel's error if it has no randomness.
    pub fn new(
        magic: [u8; 8],
        format: u32,
        layout_hash: u64,
        region: &Region,
    ) -> std::io::Result<Self> {
        let mut uuid = [0; 16];
        crate::random_bytes(&mut uuid)?;
        Ok(Self {
            magic,
            format,
            header_len: HEADER_LEN as u32,
            layout_hash,
            uuid,
            max_len: region.max() as u64,
            committed_len: region.len() as u64,
            client: [0; 8],
            checksum: 0,
        })
    }

    /// Writes the header to the region's start, the magic number last. `header_len` and `checksum`
    /// are filled in.
    ///
    /// Other openings of the region must not rely on it yet.
    ///
    /// # Errors
    /// The region is read-only or shorter than a header.
    pub fn write(&self, region: &Region) -> Result<(), RegionError> {
        let words = region.slice_at::<AtomicU64>(0, WORDS)?;
        let mut header = *self;
        header.header_len = HEADER_LEN as u32;
        let mut values: [u64; WORDS] = zerocopy::transmute!(header);
        values[CHECKSUM_WORD] = checksum(&values);
        words[0].store(0, Ordering::Relaxed);
        // SYNC: pairs with the Acquire load of word 0 in `read`: the old magic number is cleared
        // first.
        std::sync::atomic::fence(Ordering::SeqCst);
        for i in 1..WORDS {
            words[i].store(values[i], Ordering::Relaxed);
        }
        // SYNC: pairs with the Acquire load of word 0 in `read`.
        words[0].store(values[0], Ordering::Release);
        Ok(())
    }

    /// Reads and checks a header: the magic number, the format, the layout and the checksum, in
    /// this order, and that the recorded sizes are possible.
    ///
    /// # Errors
    /// One variant for each of these; both versions are named.
    pub fn read(
        region: &Region,
        magic: [u8; 8],
        format: u32,
        layout_hash: u64,
    ) -> Result<Self, HeaderError> {
        let header = Self::read_unchecked(region)?;
        header.validate(magic, format, layout_hash)?;
        Ok(header)
    }

    /// Reads the header without checking it.
    ///
    /// # Errors
    /// The region is shorter than a header.
    pub fn read_unchecked(region: &Region) -> Result<Self, RegionError> {
        let mut values = [0u64; WORDS];
        for (i, value) in values.iter_mut().enumerate() {
            // SYNC: word 0 pairs with the Release store in `write`.
            *value = region.load_u64(i as u64 * 8)?;
        }
        Ok(zerocopy::transmute!(values))
    }

    /// Decodes the header in the first bytes of a file, unchecked.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Self {
        zerocopy::transmute!(*bytes)
    }

    /// Checks a header's fields against the caller's format.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn validate(
        &self,
        magic: [u8; 8],
        format: u32,
        layout_hash: u64,
    ) -> Result<(), HeaderError> {
        if self.magic != magic {
            return Err(HeaderError::Magic {
                expected: magic,
                found: self.magic,
            });
        }
        if self.format != format {
            return Err(HeaderError::Format {
                expected: format,
                found: self.format,
            });
        }
        let values: [u64; WORDS] = zerocopy::transmute!(*self);
        if self.checksum != checksum(&values) {
            return Err(HeaderError::Damaged {
                what: "its checksum is wrong",
            });
        }
        if self.header_len as usize != HEADER_LEN {
            return Err(HeaderError::Damaged {
                what: "its length is not 128",
            });
        }
        if self.layout_hash != layout_hash {
            return Err(HeaderError::Layout {
                expected: layout_hash,
                found: self.layout_hash,
            });
        }
        if self.committed_len > self.max_len {
            return Err(HeaderError::Damaged {
                what: "its committed size exceeds its maximum",
            });
        }
        Ok(())
    }

    /// Records the committed size, in bytes, for later openings of the region.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn set_committed(region: &Region, len: u64) -> Result<(), RegionError> {
        // SYNC: pairs with the Acquire load in `read_unchecked`; only ever grows, so that of two
        // concurrent growths the larger remains.
        region
            .at::<AtomicU64>(COMMITTED_WORD as u64 * 8)?
            .fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    /// The committed size in bytes that was recorded last.
    ///
    /// # Errors
    /// The region is too short for a header.
    #[inline]
    pub fn committed(region: &Region) -> Result<u64, RegionError> {
        region.load_u64(COMMITTED_WORD as u64 * 8)
    }

    /// The current values of the tenant's words, for processes that may only read.
    ///
    /// # Errors
    /// As [`committed`](Self::committed).
    pub fn client_words(region: &Region) -> Result<[u64; 8], RegionError> {
        let mut words = [0; 8];
        for (i, word) in words.iter_mut().enumerate() {
            *word = region.load_u64((CLIENT_WORD + i) as u64 * 8)?;
        }
        Ok(words)
    }

    /// The current value of one of the tenant's words, below 8.
    ///
    /// # Errors
    /// As [`committed`](Self::committed); [`RegionError::OutOfBounds`] for a word that does not
    /// exist.
    #[inline]
    pub fn client_word(region: &Region, i: usize) -> Result<u64, RegionError> {
        if i >= 8 {
            return Err(RegionError::OutOfBounds {
                offset: HEADER_LEN as u64,
                bytes: 8,
                len: HEADER_LEN,
            });
        }
        region.load_u64((CLIENT_WORD + i) as u64 * 8)
    }

    /// The tenant's words in the region.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn client(region: &Region) -> Result<&[AtomicU64; 8], RegionError> {
        region.at(CLIENT_WORD as u64 * 8)
    }
}

/// FNV-1a of the words that never change, which detects accidents, not attacks.
fn checksum(values: &[u64; WORDS]) -> u64 {
    values[..FIXED_WORDS]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| {
            (hash ^ word)
                .wrapping_mul(0x0000_0100_0000_01b3)
                .rotate_left(29)
        })
}
