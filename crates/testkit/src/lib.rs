//! What tests of several crates need, and nothing of the crates themselves: a dev-dependency only,
//! which `cargo xtask layering` checks.
//!
//! - [`TestDir`]: a directory that goes with the test.
//! - [`Random`]: numbers that a seed determines.
//! - `Authority`, with the feature `certificates`: signs certificates.
//! - [`Mount`]: a file system that goes with the test.
//! - [`Process`]: another process of the test's own program, killed when it is dropped;
//!   [`is_killed`]: whether one dies; [`runs_as_nobody`]: runs one as another user.
//! - [`signal`]: stops a process, or lets it go on.
//! - [`wait_until`], [`retry_within`]: waits that end. No test asserts a duration by them: their
//!   limits are for what would otherwise hang.
//! - [`setting`], [`seconds`]: how long and from which seed `cargo xtask ladder` wants a run.
//!
//! Everything here panics where it fails, as tests do.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests' own

mod broken;
#[cfg(feature = "certificates")]
mod certificates;
mod directory;
mod mount;
mod process;
mod random;
mod settings;
mod waiting;

pub use broken::{Step, every_step_is_needed};
#[cfg(feature = "certificates")]
pub use certificates::{Authority, CertificateFiles};
pub use directory::TestDir;
pub use mount::Mount;
pub use process::{NOBODY, Process, fd_path, is_killed, make_pipe, runs_as_nobody, signal};
pub use random::Random;
pub use settings::{seconds, setting};
pub use waiting::{in_threads, retry_within, wait_until};
