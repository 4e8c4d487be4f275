//! The extension module `mneme._mneme`, on which the package in `python/mneme` is built.
//!
//! **Whatever a Python program does, no call here is undefined behaviour, and no memory that a
//! program can access is unmapped or reused.** Objects that expose memory own what keeps it valid
//! ([`buffer`]); pins and locks, which belong to a thread, stay in theirs ([`lender`],
//! [`current`]); calls in a forked child are refused ([`process`]).
//!
//! **Nothing depends on the GIL**, and the module declares that (`gil_used = false`), so that a
//! free-threaded Python leaves it disabled. Every class is `frozen`: mutable state is behind a
//! mutex, a lock or an atomic. None of these, and no lock of a store, is held while Python code
//! runs; otherwise a thread could wait for a lock whose owner the interpreter has stopped. The
//! exception is the lock of a section, which is held while Python code runs; it is waited for with
//! the GIL released.
//!
//! `python/mneme/__init__.pyi` is the reference for users, `docs/guides/python.md` the guide.

mod arguments;
mod batches;
mod buffer;
mod collections;
mod copies;
mod current;
mod directory;
mod errors;
mod forks;
mod handle;
mod hash;
mod iterate;
mod lender;
mod list;
mod mapped;
mod open;
mod opened;
mod options;
mod process;
mod section;
mod segment;
mod set;
mod slices;
mod sorted_set;
mod store;
mod transaction;
mod update;

use pyo3::prelude::*;

/// Stores and arrays in named segments, and stores in this process.
#[pymodule(gil_used = false)]
mod _mneme {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::hash::Hash;
    #[pymodule_export]
    use crate::iterate::Records;
    #[pymodule_export]
    use crate::list::List;
    #[pymodule_export]
    use crate::open::{attach, create, default_registry, open_or_create};
    #[pymodule_export]
    use crate::process::close_all;
    #[pymodule_export]
    use crate::section::Section;
    #[pymodule_export]
    use crate::segment::Segment;
    #[pymodule_export]
    use crate::set::Set;
    #[pymodule_export]
    use crate::sorted_set::SortedSet;
    #[pymodule_export]
    use crate::store::Store;
    #[pymodule_export]
    use crate::transaction::Transaction;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::process::check_interpreter(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::errors::add_to(module)
    }
}
