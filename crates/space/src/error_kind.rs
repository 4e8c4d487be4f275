//! Assigns each error of this crate its kind.

use mneme_sys::{Classified, ErrorKind};

use crate::{
    AttachError, CloneError, CreateError, DescriptionError, EnterError, FileError, GrowError,
    HeapError, MapError, NameError, OpenError, RegistryError, RemoveError, RestoreError, RootError,
    SpaceChangeError, SpaceCreateError, SpaceOpenError, SpaceRemoveError,
};

impl Classified for FileError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::of_io(&self.source)
    }
}

impl Classified for NameError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Name
    }
}

mneme_sys::kinds! {
    DescriptionError as (File) {
        Format | Damaged => Damaged,
    }
    RegistryError {
        Locked => Stalled,
        Random => Io,
        File | Description | NotOurs | Lock | Window | Mend => Registry,
    }
    HeapError {
        Outside | NoSegment => Outside,
        AnotherSegment | Taken | NoHome => Internal,
        Refused | Full | Growth => NoMemory,
        NoHeap | Damaged | NotMended => Damaged,
        Size => Invalid,
        Seed => Io,
    }
    RootError as (Heap) {
        Missing => NotFound,
        Exists => Exists,
        Layout => Root,
        ReadOnly => ReadOnly,
        NoBlock => Invalid,
        Damaged => Damaged,
    }
    CreateError as (Name, Registry, File, Heap, Open, Join) for (Data, Control) {
        Exists => Exists,
        Size | Kind => Invalid,
        Base => Address,
        NoSlot => NoMemory,
        Backing => Backing,
    }
    OpenError as (Name, Description, File) for (Header) {
        NotFound | DataGone => NotFound,
        Mismatch | Truncated => Damaged,
    }
    MapError as (File, Open, Window, Region) for (Control, Liveness) {
        Occupied | Busy | OtherControl | OtherData => Busy,
        Forked => Forked,
        NotWritable => Permission,
        Contents | OtherContents => Invalid,
        NotClean => Poisoned,
        Door => Stalled,
    }
    GrowError as (Map, Region) {}
    CloneError as (Create, Map, Enter, Slot) {
        NoGate => Damaged,
        Poisoned => Poisoned,
    }
    RestoreError as (Clone, Map, Slot, Grow, Region) {
        Unlike => Invalid,
        Stalled => Stalled,
        Nested => Inside,
    }
    RemoveError as (Name, Registry, File) {
        NotFound => NotFound,
        InUse => Busy,
        NotALeftover => Exists,
    }
    AttachError as (Space, Map) {
        Twice => Exists,
        Overlap => Overlap,
        Floating => Address,
        NoGate => Damaged,
        NotAttached => NotFound,
    }
    EnterError as (Slot, Region, Map, Follow, Heap) {
        Nested => Inside,
        Stalled => Stalled,
        Poisoned => Poisoned,
        NotAttached => NotFound,
    }
    SpaceCreateError as (Name, Original, Registry, File, Control, Region) {
        Exists => Exists,
    }
    SpaceOpenError as (Name, Description, File, Control) for (Member) {
        NotFound => NotFound,
        Replaced | Stale => Stale,
    }
    SpaceChangeError as (Open, Lock, File) {
        Twice => Exists,
        NotMember => NotFound,
        Floating => Address,
        Overlap => Overlap,
        OtherRegistry | Contents => Invalid,
        Full => NoMemory,
    }
    SpaceRemoveError as (Name, Registry, File) {
        NotFound => NotFound,
        InUse => Busy,
    }
}
