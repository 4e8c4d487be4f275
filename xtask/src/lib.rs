//! The developer's errands, as a library so that tests can hold its checks to account.
//!
//! - [`layering`]: the arrows of `docs/architecture.md`, checked in manifests and in sources.
//! - [`proof`]: the lists of `docs/proof.md` (models, Miri, long runs), read by the commands that
//!   run them.
//! - [`steps`]: running named steps with their times and a summary.
//! - [`prose`]: forms that comments, docs and names do not have.
//! - [`files`], [`built`]: the workspace's files, and what cargo has built, to be run or copied.
//! - [`ci`], [`ladder`]: the two commands.
//! - [`api`]: the public interface of each published crate, compared with the listing of it.
//! - [`errors`]: the page about every public error, compared with the sources.
//! - [`book`], [`links`]: the documents as a book, and what they link to.
//! - [`package`]: the published crates, packed and built from what was packed.
//! - [`go_ycsb`]: another's load on our server and on Redis.
//! - [`clients`]: other people's applications on our server.
//! - [`server`]: a server of ours, for as long as an errand needs it.
//! - [`guest`]: what guests in QEMU are made of.
//! - [`numa`]: a guest with several NUMA nodes, and the tests that need one.
//! - [`power_cut`]: a durable server in a guest, whose power is cut.
//! - [`deb`], [`container`]: the server as packages for Debian and as a container image.
//! - [`check_c`]: the checks of pointers for C programs, built and tested.
//! - [`install_c`]: the libraries for C programs, copied to where they look.
//! - [`python`]: the module for Python programs, tested and packed.

pub mod api;
pub mod book;
pub mod built;
pub mod check_c;
pub mod ci;
pub mod clients;
pub mod container;
pub mod deb;
pub mod errors;
pub mod files;
pub mod go_ycsb;
pub mod guest;
pub mod install_c;
pub mod kernel;
pub mod ladder;
pub mod layering;
pub mod lines;
pub mod links;
pub mod numa;
pub mod package;
pub mod power_cut;
pub mod proof;
pub mod prose;
pub mod python;
pub mod redis_suite;
pub mod server;
pub mod steps;
pub mod workspace;
