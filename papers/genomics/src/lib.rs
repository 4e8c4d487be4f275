//! Sequence alignments kept as linked Rust structures, for the questions that samtools answers from
//! files.
//!
//! A [`Store`] holds what a SAM or BAM file says: the header with its reference sequences, every
//! alignment with all its fields and tags, the order they stand in, and an index by region. Nothing
//! is serialised between two operations: [`flagstat`](Store::flagstat), [`sort`](Store::sort),
//! [`index`](Store::index) and [`view`](Store::view) work on the structures themselves, as in
//! SpaceJMP (paper, section 5.4). The text that comes out equals that of samtools 1.16.1 byte for
//! byte.
//!
//! Everything stored is generic over its allocator and made of vectors, boxes, numbers and enums:
//! no references, no cells, no collection of `std`. So it can lie on the heap
//! ([`allocator_api2::alloc::Global`]), or in any memory whose allocator is `Copy`, such as a
//! segment that outlives its process ([`Alignments`]). An operation that runs out of that memory
//! says so ([`OutOfMemory`]) and leaves the store as it was.
//!
//! ```
//! use allocator_api2::alloc::Global;
//! use mneme_genomics::{Order, Store, load};
//!
//! let sam = "@SQ\tSN:chr1\tLN:1000\n\
//!            late\t0\tchr1\t501\t60\t4M\t*\t0\t0\tACGT\tIIII\n\
//!            early\t0\tchr1\t101\t60\t4M\t*\t0\t0\tACGT\tIIII\n";
//! let (mut store, _) = load::from_reader(sam.as_bytes(), Global)?;
//! assert_eq!(store.flagstat().passed.mapped, 2);
//!
//! store.sort(Order::Coordinate, 1)?;
//! store.index()?;
//! let region = store.region("chr1:100-200")?;
//! let names: Vec<&[u8]> = store.view(&region)?.map(|alignment| alignment.name()).collect();
//! assert_eq!(names, [b"early"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In a segment; here one without a name, where others have an `Attachment`:
//! ```
//! use mneme_genomics::{Alignments, load};
//! use mneme_space::LocalSegment;
//!
//! # let sam = "@SQ\tSN:chr1\tLN:1000\nread\t0\tchr1\t501\t60\t4M\t*\t0\t0\tACGT\tIIII\n";
//! let segment = LocalSegment::new("reads", 16 << 20)?;
//! segment.try_enter(|here| -> Result<(), Box<dyn std::error::Error>> {
//!     let (store, _) = load::from_reader(sam.as_bytes(), here.heap("reads")?)?;
//!     here.create_root::<Alignments>("reads", |_| store)?;
//!     Ok(())
//! })?;
//! let count = segment.try_read(|here| -> Result<_, Box<dyn std::error::Error>> {
//!     Ok(here.root::<Alignments>("reads")?.flagstat())
//! })?;
//! assert_eq!(count.passed.mapped, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod alignment;
mod error;
mod flagstat;
mod header;
mod index;
pub mod load;
mod memory;
mod order;
mod region;
mod store;
pub mod synthetic;
mod tags;
mod text;

pub use alignment::{Alignment, Fields};
pub use error::{
    HeaderError, IndexError, LoadError, OutOfMemory, RecordError, RegionError, SortError, ViewError,
};
pub use flagstat::{Counts, Flagstat};
pub use header::{Header, Reference};
pub use index::Index;
pub use order::Order;
pub use region::Region;
pub use store::{Alignments, Store};
