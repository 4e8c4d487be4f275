//! Named segments: ranges of memory that outlive every process, with a fixed place in the address
//! space, so that pointers between their parts stay true for whoever visits.
//!
//! The design is SpaceJMP's (El Hajj et al., ASPLOS 2016; §3 to §5), on a stock kernel: names live in
//! the file system, fixed addresses in a window that each process reserves once.

mod error;
mod name;
mod registry;
mod segment;
mod uuid;
mod window;

pub use error::{
    CloneError, CreateError, DescriptionError, FileError, GrowError, MapError, NameError,
    OpenError, RegistryError, RemoveError,
};
pub use name::Name;
pub use registry::{Finding, Registry, RegistryOptions};
pub use segment::{Backing, Segment, SegmentBuilder, SegmentInfo};
pub use uuid::Uuid;
pub use window::Mapping;
