//! Regions as the crates above rely on them: growth in place, two openings of one memory, honest
//! reports and errors.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use mneme_sys::files::{self, FsKind};
use mneme_sys::{Access, FRAME, NodeId, PageKind, PagePolicy, Region, RegionError, Reserve};

const F: u64 = FRAME as u64;

fn word(region: &Region, offset: u64) -> &AtomicU64 {
    region.at(offset).unwrap()
}

fn reopen(region: &Region, access: Access) -> Region {
    let fd = region.duplicate_fd().unwrap().unwrap();
    Region::map_with(fd, access, region.max(), PagePolicy::Thp, Reserve::Lazy).unwrap()
}

/// A file without a name in the directory, gone with its last descriptor.
fn nameless_file(directory: &str) -> File {
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(directory)
        .unwrap()
}

#[test]
fn growth_keeps_every_pointer_and_adds_zeros() {
    for policy in [PagePolicy::Huge, PagePolicy::Thp, PagePolicy::Small] {
        let regions = [
            Region::private(1, 8 * FRAME, policy).unwrap(),
            Region::memfd("mneme-test", 1, 8 * FRAME, policy).unwrap(),
        ];
        for region in regions {
            assert_eq!(region.len(), FRAME);
            assert_eq!(region.base().addr() % FRAME, 0);
            let first = word(&region, 8);
            first.store(42, Ordering::Relaxed);
            region.grow(FRAME + 1).unwrap();
            assert_eq!(region.len(), 2 * FRAME);
            region.grow(8 * FRAME).unwrap();
            assert_eq!(region.len(), 8 * FRAME);
            region.grow(FRAME).unwrap();
            assert_eq!(region.len(), 8 * FRAME, "never shrinks");
            assert_eq!(first.load(Ordering::Relaxed), 42);
            assert_eq!(word(&region, 8 * F - 8).load(Ordering::Relaxed), 0);
            let beyond = region.grow(8 * FRAME + 1);
            assert!(matches!(beyond, Err(RegionError::BeyondMax { .. })));
        }
    }
}

#[test]
fn impossible_sizes_are_refused() {
    for (len, max) in [(0, 0), (0, FRAME), (1, usize::MAX), (usize::MAX, 1)] {
        let refused = Region::private(len, max, PagePolicy::Thp);
        assert!(
            matches!(refused, Err(RegionError::Size { .. })),
            "{len} {max}"
        );
    }
    // More than any machine's memory, less than the address space: reserved, but not committed.
    let huge = Region::private(FRAME, 1 << 45, PagePolicy::Thp).unwrap();
    if std::fs::read_to_string("/proc/sys/vm/overcommit_memory")
        .unwrap()
        .trim()
        != "1"
    {
        let refused = huge.grow(1 << 45);
        assert!(
            matches!(refused, Err(RegionError::NoMemory { .. })),
            "{refused:?}"
        );
        assert_eq!(huge.len(), FRAME);
        huge.grow(2 * FRAME).unwrap();
    }
}

#[test]
fn access_is_checked_against_the_committed_part() {
    let region = Region::private(FRAME, 4 * FRAME, PagePolicy::Thp).unwrap();
    assert!(region.at::<AtomicU64>(F - 8).is_ok());
    assert!(region.slice_at::<AtomicU8>(0, FRAME).is_ok());
    assert!(region.slice_at::<[AtomicU64; 8]>(F, 0).is_ok());
    for (offset, count) in [
        (F, 1),
        (F - 8, 2),
        (u64::MAX - 7, 1),
        (8, usize::MAX),
        (0, 1 << 60),
    ] {
        let refused = region.slice_at::<AtomicU64>(offset, count);
        assert!(
            matches!(refused, Err(RegionError::OutOfBounds { .. })),
            "{offset} {count}"
        );
    }
    let refused = region.at::<AtomicU64>(4);
    assert!(matches!(
        refused,
        Err(RegionError::Misaligned {
            offset: 4,
            align: 8
        })
    ));
    let refused = region.bytes_at(F - 3, 4);
    assert!(matches!(refused, Err(RegionError::OutOfBounds { .. })));
    let refused = region.prefault(0..FRAME + 1);
    assert!(matches!(refused, Err(RegionError::OutOfBounds { .. })));
    region.grow(2 * FRAME).unwrap();
    assert!(region.at::<AtomicU64>(F).is_ok());
}

#[test]
fn two_openings_of_a_memfd_see_one_memory_at_two_addresses() {
    for policy in [PagePolicy::Huge, PagePolicy::Small] {
        let one = Region::memfd("mneme-test", FRAME, 8 * FRAME, policy).unwrap();
        let two = reopen(&one, Access::ReadWrite);
        assert_ne!(one.base(), two.base());
        word(&one, 16).store(7, Ordering::Release);
        assert_eq!(word(&two, 16).load(Ordering::Acquire), 7);
        one.grow(4 * FRAME).unwrap();
        assert_eq!(two.len(), FRAME, "not before it looks");
        assert_eq!(two.refresh().unwrap(), 4 * FRAME);
        word(&two, 3 * F).store(9, Ordering::Release);
        assert_eq!(word(&one, 3 * F).load(Ordering::Acquire), 9);
    }
}

#[test]
fn two_that_grow_at_once_never_take_from_one_another() {
    for round in 0..50 {
        let one = Region::memfd("mneme-test", FRAME, 32 * FRAME, PagePolicy::Small).unwrap();
        let two = reopen(&one, Access::ReadWrite);
        std::thread::scope(|scope| {
            for (region, step) in [(&one, 3), (&two, 4)] {
                scope.spawn(move || {
                    let mut len = 1;
                    while len < 30 {
                        len += step;
                        region.grow(len.min(32) * FRAME).unwrap();
                        // Were the file shorter than this, the touch would be fatal.
                        let last = region.len() as u64 - 8;
                        word(region, last).fetch_add(round, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(one.refresh().unwrap(), two.refresh().unwrap());
    }
}

#[test]
fn a_memfd_cannot_be_shortened_under_its_users() {
    let region = Region::memfd("mneme-test", 2 * FRAME, 4 * FRAME, PagePolicy::Thp).unwrap();
    let fd: OwnedFd = region.duplicate_fd().unwrap().unwrap();
    let error = File::from(fd).set_len(F).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
}

#[test]
fn a_read_only_opening_follows_but_lends_nothing_writable() {
    let one = Region::memfd("mneme-test", FRAME, 4 * FRAME, PagePolicy::Thp).unwrap();
    let two = reopen(&one, Access::ReadOnly);
    word(&one, 0).store(5, Ordering::Release);
    assert_eq!(two.load_u64(0).unwrap(), 5);
    assert!(matches!(two.at::<AtomicU64>(0), Err(RegionError::ReadOnly)));
    assert!(matches!(
        two.slice_at::<AtomicU8>(0, 1),
        Err(RegionError::ReadOnly)
    ));
    assert!(matches!(two.grow(2 * FRAME), Err(RegionError::ReadOnly)));
    one.grow(2 * FRAME).unwrap();
    word(&one, F).store(6, Ordering::Release);
    assert_eq!(two.refresh().unwrap(), 2 * FRAME);
    assert_eq!(two.load_u64(F).unwrap(), 6);
    two.prefault(0..2 * FRAME).unwrap();
}

#[test]
fn memory_comes_on_touch_and_by_prefault_only() {
    for region in [
        Region::private(16 * FRAME, 16 * FRAME, PagePolicy::Thp).unwrap(),
        Region::memfd("mneme-test", 16 * FRAME, 16 * FRAME, PagePolicy::Thp).unwrap(),
    ] {
        assert_eq!(region.pages().resident_bytes, 0);
        word(&region, 8).store(3, Ordering::Relaxed);
        region.prefault(1..4 * FRAME - 1).unwrap();
        let report = region.pages();
        assert_eq!(report.resident_bytes, 4 * FRAME);
        assert!(report.huge_bytes <= report.resident_bytes);
        assert!(report.kind < PageKind::HugeTlb);
        assert_eq!(
            report.kind == PageKind::Thp,
            report.huge_bytes * 2 >= report.resident_bytes
        );
        assert_eq!(report.kind == PageKind::Small, report.warning.is_some());
        assert_eq!(word(&region, 8).load(Ordering::Relaxed), 3);
        region.prefault(5..5).unwrap();
    }
}

/// Whatever the kernel makes of a frame of which some pages are there.
#[test]
fn prefaulting_keeps_what_single_pages_hold() {
    let region = Region::memfd("mneme-test", 4 * FRAME, 4 * FRAME, PagePolicy::Thp).unwrap();
    let places = [8, F - 4096, F + 8192, 3 * F - 8];
    for (value, at) in (1..).zip(places) {
        word(&region, at).store(value, Ordering::Relaxed);
    }
    region.prefault(0..3 * FRAME + 4096).unwrap();
    // Where touching a page brings in a huge one, the last frame is here as a whole.
    let resident = region.pages().resident_bytes;
    assert!((3 * FRAME + 4096..=4 * FRAME).contains(&resident));
    for (value, at) in (1..).zip(places) {
        assert_eq!(word(&region, at).load(Ordering::Relaxed), value);
    }
    assert_eq!(word(&region, 2 * F).load(Ordering::Relaxed), 0);
}

#[test]
fn small_pages_stay_small_and_are_no_reason_to_warn() {
    let region = Region::private(4 * FRAME, 4 * FRAME, PagePolicy::Small).unwrap();
    region.prefault(0..4 * FRAME).unwrap();
    let report = region.pages();
    assert_eq!((report.kind, report.huge_bytes), (PageKind::Small, 0));
    assert_eq!(report.resident_bytes, 4 * FRAME);
    assert_eq!(report.warning, None);
}

#[test]
fn a_file_is_grown_with_its_space_and_keeps_its_content() {
    for directory in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let file = nameless_file(directory);
        let region = Region::map(
            file.try_clone().unwrap().into(),
            Access::ReadWrite,
            8 * FRAME,
            PagePolicy::Thp,
        )
        .unwrap();
        assert!(region.is_empty());
        region.grow(2 * FRAME).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!(meta.len(), 2 * F);
        assert!(
            meta.blocks() * 512 >= 2 * F,
            "{directory}: space is not reserved"
        );
        word(&region, F).store(11, Ordering::Relaxed);
        region.sync().unwrap();
        drop(region);
        let again = Region::map(file.into(), Access::ReadWrite, FRAME, PagePolicy::Thp).unwrap();
        assert_eq!((again.len(), again.max()), (2 * FRAME, 2 * FRAME));
        assert_eq!(word(&again, F).load(Ordering::Relaxed), 11);
    }
}

#[test]
fn a_file_of_odd_length_is_mapped_to_its_last_whole_page_and_grows_from_there() {
    let file = nameless_file(env!("CARGO_TARGET_TMPDIR"));
    file.set_len(5000).unwrap();
    let region = Region::map(file.into(), Access::ReadWrite, FRAME, PagePolicy::Thp).unwrap();
    let page = region.len();
    assert!(page < 5000 && page.is_power_of_two() || page == 0);
    region.grow(1).unwrap();
    assert_eq!(region.len(), FRAME);
    word(&region, F - 8).store(1, Ordering::Relaxed);
}

#[test]
fn a_shortened_file_is_noticed() {
    let file = nameless_file(env!("CARGO_TARGET_TMPDIR"));
    let region = Region::map(
        file.try_clone().unwrap().into(),
        Access::ReadWrite,
        4 * FRAME,
        PagePolicy::Thp,
    )
    .unwrap();
    region.grow(2 * FRAME).unwrap();
    file.set_len(F).unwrap();
    let noticed = region.refresh();
    assert!(
        matches!(noticed, Err(RegionError::Shrunk { was, now }) if was == 2 * FRAME && now == FRAME)
    );
}

/// Runs the test of that name in a child process, with `prepare` called between fork and exec.
fn in_child(
    name: &str,
    directory: &str,
    prepare: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static,
) -> std::io::Result<std::process::Output> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--nocapture"])
        .env("MNEME_TEST_DIRECTORY", directory);
    // SAFETY: the closures given below make plain system calls only.
    unsafe { command.pre_exec(prepare) };
    command.output()
}

fn directory_of_parent() -> Option<PathBuf> {
    std::env::var_os("MNEME_TEST_DIRECTORY").map(PathBuf::from)
}

/// The child's part: growth into a file system that is nearly full.
#[test]
fn child_grows_until_the_space_ends() {
    let Some(directory) = directory_of_parent() else {
        return;
    };
    let file = nameless_file(directory.to_str().unwrap());
    let region = Region::map(file.into(), Access::ReadWrite, 64 * FRAME, PagePolicy::Thp).unwrap();
    region.grow(2 * FRAME).unwrap();
    let full = region.grow(64 * FRAME);
    assert!(matches!(full, Err(RegionError::NoSpace { .. })), "{full:?}");
    assert_eq!(region.len(), 2 * FRAME);
    // All of it may be touched, and what fits still can be had.
    region.prefault(0..2 * FRAME).unwrap();
    region.grow(3 * FRAME).unwrap();
    word(&region, 3 * F - 8).store(1, Ordering::Relaxed);
    println!("all is well");
}

fn assert_well(output: &std::process::Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("all is well"), "{output:?}");
    assert_eq!(output.status.signal(), None);
}

#[test]
fn a_file_size_limit_is_an_error_of_growth() {
    for directory in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let output = in_child("child_grows_until_the_space_ends", directory, || {
            let limit = libc::rlimit {
                rlim_cur: 6 * F,
                rlim_max: 6 * F,
            };
            // SAFETY: plain system calls with valid arguments.
            unsafe {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            }
            Ok(())
        });
        assert_well(&output.unwrap());
    }
}

/// Needs a mount namespace of its own; where neither root nor an unprivileged user may have one,
/// there is nothing to test.
#[test]
fn a_full_tmpfs_is_an_error_of_growth_and_of_prefault_and_never_a_signal() {
    for name in [
        "child_grows_until_the_space_ends",
        "child_prefaults_more_than_there_is",
        "child_reserves_more_than_there_is",
    ] {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("small-tmpfs");
        std::fs::create_dir_all(&directory).unwrap();
        let path = std::ffi::CString::new(directory.to_str().unwrap()).unwrap();
        let output = in_child(name, directory.to_str().unwrap(), move || {
            // SAFETY: plain system calls; the strings end with NUL.
            unsafe {
                let own = libc::unshare(libc::CLONE_NEWNS) == 0
                    || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) == 0;
                let private = libc::MS_REC | libc::MS_PRIVATE;
                let none = c"none".as_ptr();
                if !own
                    || libc::mount(none, c"/".as_ptr(), none, private, std::ptr::null()) != 0
                    || libc::mount(
                        c"tmpfs".as_ptr(),
                        path.as_ptr(),
                        c"tmpfs".as_ptr(),
                        0,
                        c"size=12m".as_ptr().cast(),
                    ) != 0
                {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
        match output {
            Ok(output) => assert_well(&output),
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::PermissionDenied, "{e}"),
        }
    }
}

/// The child's part: a sparse file longer than the free space of the file system.
#[test]
fn child_prefaults_more_than_there_is() {
    let Some(directory) = directory_of_parent() else {
        return;
    };
    let file = nameless_file(directory.to_str().unwrap());
    file.set_len(32 * F).unwrap();
    let region = Region::map(file.into(), Access::ReadWrite, 32 * FRAME, PagePolicy::Thp).unwrap();
    region.prefault(0..2 * FRAME).unwrap();
    let full = region.prefault(0..32 * FRAME);
    assert!(matches!(full, Err(RegionError::NoSpace { .. })), "{full:?}");
    println!("all is well");
}

/// The child's part: a region longer than the free space of the file system, which takes its space
/// as it is used.
#[test]
fn child_reserves_more_than_there_is() {
    let Some(directory) = directory_of_parent() else {
        return;
    };
    let file = nameless_file(directory.to_str().unwrap());
    let (access, lazy) = (Access::ReadWrite, Reserve::Lazy);
    let region = Region::map_with(file.into(), access, 32 * FRAME, PagePolicy::Thp, lazy).unwrap();
    region.grow(32 * FRAME).unwrap();
    region.reserve(4 * FRAME..6 * FRAME).unwrap();
    region
        .at::<AtomicU64>(5 * F)
        .unwrap()
        .store(7, Ordering::Relaxed);
    let full = region.reserve(6 * FRAME..32 * FRAME);
    assert!(matches!(full, Err(RegionError::NoSpace { .. })), "{full:?}");
    // What it had is kept, and asking again is free.
    region.reserve(5 * FRAME..6 * FRAME).unwrap();
    assert_eq!(
        region
            .at::<AtomicU64>(5 * F)
            .unwrap()
            .load(Ordering::Relaxed),
        7
    );
    assert!(region.reserve(31 * FRAME..33 * FRAME).is_err());
    println!("all is well");
}

#[test]
fn only_a_lazy_file_has_anything_to_reserve() {
    let private = Region::private(FRAME, FRAME, PagePolicy::Small).unwrap();
    assert!(!private.is_lazy());
    private.reserve(0..FRAME).unwrap();
    let memory = Region::memfd("lazy", 4 * FRAME, 4 * FRAME, PagePolicy::Small).unwrap();
    assert!(!memory.is_lazy());
    memory.reserve(0..FRAME).unwrap();
    assert_eq!(blocks(&memory), 0);
    let file = nameless_file("/dev/shm");
    let (access, lazy) = (Access::ReadWrite, Reserve::Lazy);
    let file = Region::map_with(file.into(), access, 4 * FRAME, PagePolicy::Small, lazy).unwrap();
    file.grow(4 * FRAME).unwrap();
    assert!(file.is_lazy());
    file.reserve(FRAME..2 * FRAME).unwrap();
    // The last page is what the file was lengthened by.
    assert_eq!(blocks(&file), F + 4096);
}

#[test]
fn a_file_on_a_medium_is_distinguished_from_memory() {
    let private = Region::private(FRAME, FRAME, PagePolicy::Small).unwrap();
    let memory = Region::memfd("medium", FRAME, FRAME, PagePolicy::Small).unwrap();
    assert!(!private.is_on_medium() && !memory.is_on_medium());
    for directory in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let on_medium = files::fs_kind(Path::new(directory)).unwrap() == FsKind::Other;
        let file = nameless_file(directory);
        let region = Region::map(file.into(), Access::ReadWrite, FRAME, PagePolicy::Small);
        assert_eq!(region.unwrap().is_on_medium(), on_medium, "{directory}");
    }
}

/// Bytes that the region's file has.
fn blocks(region: &Region) -> u64 {
    let file = std::fs::File::from(region.duplicate_fd().unwrap().unwrap());
    std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512
}

#[test]
fn memory_is_bound_to_a_node_that_exists_only() {
    let region = Region::private(4 * FRAME, 4 * FRAME, PagePolicy::Thp).unwrap();
    region.bind(0..2 * FRAME, NodeId(0)).unwrap();
    region.bind(0..0, NodeId(0)).unwrap();
    region.prefault(0..2 * FRAME).unwrap();
    assert!(region.bind(0..FRAME, NodeId(1000)).is_err());
    assert!(region.bind(0..FRAME, NodeId(u16::MAX)).is_err());
    assert!(region.bind(0..5 * FRAME, NodeId(0)).is_err());
}

/// Forks a child that loads the first byte and reports its end.
fn fate_of_a_child_that_touches(region: &Region) -> libc::c_int {
    let base = region.base();
    // SAFETY: the child makes one load and exits without unwinding or running destructors.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            base.read_volatile();
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    }
}

#[test]
fn a_region_can_be_withheld_from_children_also_where_it_grows_later() {
    let regions = [
        Region::memfd("mneme-test", FRAME, 4 * FRAME, PagePolicy::Thp).unwrap(),
        Region::private(FRAME, 4 * FRAME, PagePolicy::Thp).unwrap(),
    ];
    for region in regions {
        assert_eq!(fate_of_a_child_that_touches(&region), 0);
        region.dont_fork().unwrap();
        region.grow(2 * FRAME).unwrap();
        let status = fate_of_a_child_that_touches(&region);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV);
        word(&region, F).store(1, Ordering::Relaxed);
    }
}

#[test]
fn a_dropped_region_is_unmapped() {
    let region = Region::memfd("mneme-test-drop", FRAME, 64 * FRAME, PagePolicy::Thp).unwrap();
    let mapped = |text: &str| text.contains("mneme-test-drop");
    assert!(mapped(&std::fs::read_to_string("/proc/self/maps").unwrap()));
    let fd = region.duplicate_fd().unwrap().unwrap();
    assert!(fd.as_raw_fd() >= 0);
    drop(region);
    assert!(!mapped(
        &std::fs::read_to_string("/proc/self/maps").unwrap()
    ));
}
