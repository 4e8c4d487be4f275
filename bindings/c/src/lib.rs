//! Segments and spaces for C and C++, with the names of the paper (El Hajj et al., ASPLOS 2016,
//! figure 3), and the stores that servers serve.
//!
//! **Whatever a C program passes, no call here is undefined behaviour but by a pointer that does
//! not point to what its type says; and no panic crosses the border.** Ids and handles are numbers
//! that are looked up ([`table`]), never addresses that are followed; every function is one closure
//! that returns a `Result`, of which [`border`] makes the answer and the thread's error.
//!
//! The functions are documented in `include/mneme.h`, which a test checks against this source;
//! `docs/c-api.md` is the guide.

mod attached;
mod batches;
mod boundary;
mod cache;
mod check_state;
mod checks;
mod code;
mod collections;
mod current;
mod hashes;
mod lists;
mod memory;
mod options;
mod parts;
mod process;
mod records;
mod seg;
mod segctl;
mod sets;
mod sorted_sets;
mod store;
mod storectl;
mod table;
mod update;
mod vas;
