//! Assigns each error of this crate its kind.

use mneme_sys::{Classified, ErrorKind};

use crate::{
    CloneError, CreateError, DescriptionError, EnterError, FileError, HeapError, MapError,
    NameError, OpenError, RegistryError, RemoveError, SpaceError,
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
    RegistryError as (Name) {
        Locked => Stalled,
        Random => Io,
        NotOwner => Permission,
        File | Description | NotOurs | Lock | Window | Mend => Registry,
    }
    HeapError {
        Outside | NoSegment => Outside,
        AnotherSegment | Taken | NoHome => Internal,
        Refused | Full | Growth => NoMemory,
        NoHeap | Damaged | NotMended | RootDamaged => Damaged,
        Size | NoBlock => Invalid,
        Seed => Io,
        NoRoot => NotFound,
        RootExists => Exists,
        Layout => Root,
        ReadOnly => ReadOnly,
    }
    CreateError as (Name, Registry, File, Heap, Open, Join, LaidOut, ImportData)
        for (Data, Control)
    {
        Exists | Named | SameIdentity => Exists,
        Size | Kind | ImportContents | NoBase | OtherBase => Invalid,
        Base => Address,
        NoSlot => NoMemory,
        Backing => Backing,
        InUse => Busy,
    }
    OpenError as (Name, Description, File) for (Header) {
        NotFound | DataGone => NotFound,
        Mismatch | Truncated => Damaged,
    }
    MapError as (File, Open, Window, Region, Grow) for (Control, Liveness) {
        Occupied | Busy | OtherControl | OtherData => Busy,
        Forked => Forked,
        NotWritable => Permission,
        Contents | OtherContents => Invalid,
        NotClean => Poisoned,
        Door => Stalled,
    }
    CloneError as (Create, Map, Enter, Slot, Region) {
        NoGate => Damaged,
        Poisoned => Poisoned,
        Unlike => Invalid,
        Stalled => Stalled,
        Nested => Inside,
    }
    RemoveError as (Name, Registry, File) {
        NotFound => NotFound,
        InUse => Busy,
        Exists | NotALeftover => Exists,
    }
    EnterError as (Slot, Region, Map, Follow, Heap, Space) {
        Nested => Inside,
        Stalled => Stalled,
        Poisoned => Poisoned,
        NotWritable | NotAttached => NotFound,
        Twice => Exists,
        Overlap => Overlap,
        Floating => Address,
        NoGate => Damaged,
    }
    SpaceError as (Name, Registry, File, Control, MakeControl, Region, Description) for (Member) {
        Exists | Twice => Exists,
        NotFound | NotMember => NotFound,
        Replaced | Stale => Stale,
        Floating => Address,
        Overlap => Overlap,
        OtherRegistry | Contents => Invalid,
        Full => NoMemory,
        InUse => Busy,
    }
}
