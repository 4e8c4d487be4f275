//! Calls into a space: replies, refusals, and the deaths of either side at every step. Nobody waits
//! longer than its timeout, and every slot becomes free again.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::Scene;
use mneme_space::{CallError, Functions, MAX_MESSAGE, Registry, Schema, Space};
use mneme_sys::Access;
use mneme_testkit::{Process, wait_until};

/// Longer than anything takes here; a test that waits this long fails.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(60);

struct Number;

impl Schema for Number {
    type Root<'s> = u64;
}

fn functions() -> Functions {
    Functions::new()
        .with("add", |here, request, reply| {
            let number = here.root_mut::<Number>("s").unwrap();
            *number += u64::try_from(request.len()).unwrap();
            reply.extend(number.to_le_bytes());
        })
        .with("panic", |_, _, reply| {
            reply.push(1);
            panic!("as asked");
        })
        .reading("echo", |here, request, reply| {
            assert!(here.segments().all(|(_, changes)| !changes));
            reply.extend(request);
        })
        .reading("pid", |_, _, reply| {
            reply.extend(std::process::id().to_le_bytes());
        })
        .reading("wait", |_, request, _| {
            let file = Path::new(OsStr::from_bytes(request));
            wait_until("the file is there", || file.exists());
        })
        .reading("long", |_, _, reply| reply.resize(MAX_MESSAGE + 1, 0))
}

/// A space with one segment that contains a number.
fn space(scene: &Scene) -> Space {
    let space = scene.registry.space("w").create().unwrap();
    space.add(&scene.create("s"), Access::ReadWrite).unwrap();
    let at = space.attach().unwrap();
    at.enter(|here| {
        here.create_root::<Number>("s", |_| 0).unwrap();
    })
    .unwrap();
    space
}

/// Runs `f` while a thread of this process is the space's resident.
fn served<R>(space: &Space, f: impl FnOnce() -> R) -> R {
    let residence = space.reside(functions()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let resident = scope.spawn(|| residence.serve(&stop));
        while matches!(space.call("echo", b"", LONG), Err(CallError::NoResident)) {}
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        stop.store(true, Ordering::Release);
        resident.join().unwrap().unwrap();
        result.unwrap()
    })
}

#[test]
fn a_call_runs_in_the_space_and_its_reply_comes_back() {
    let scene = Scene::new();
    let space = space(&scene);
    let absent = space.call("add", b"", LONG).unwrap_err();
    assert!(matches!(absent, CallError::NoResident), "{absent}");
    served(&space, || {
        assert_eq!(
            space.call("add", b"abc", LONG).unwrap(),
            3_u64.to_le_bytes()
        );
        let calls = space.calls().unwrap();
        let mut caller = calls.caller().unwrap();
        for n in 4..200_u64 {
            assert_eq!(caller.call("add", b"x", LONG).unwrap(), n.to_le_bytes());
        }
        for len in [0, 1, 8, 4097, MAX_MESSAGE] {
            let request: Vec<u8> = (0..len).map(|i| i as u8).collect();
            assert_eq!(caller.call("echo", &request, LONG).unwrap(), request);
        }
        let refused = caller
            .call("echo", &vec![0; MAX_MESSAGE + 1], LONG)
            .unwrap_err();
        assert!(matches!(refused, CallError::TooLong { .. }), "{refused}");
        let refused = caller.call("long", b"", LONG).unwrap_err();
        assert!(
            matches!(refused, CallError::TooLong { len, .. } if len == MAX_MESSAGE + 1),
            "{refused}"
        );
        let refused = caller.call("no such", b"", LONG).unwrap_err();
        assert!(matches!(&refused, CallError::Unknown { name } if name == "no such"));
        // The resident continues; the segment that it was changing is poisoned.
        let refused = caller.call("panic", b"", LONG).unwrap_err();
        assert!(matches!(refused, CallError::Panicked), "{refused}");
        match caller.call("add", b"x", LONG).unwrap_err() {
            CallError::Refused { why } => assert!(why.contains("poisoned"), "{why}"),
            other => panic!("{other}"),
        }
        // SAFETY: a number is consistent whatever happens.
        unsafe { space.attach().unwrap().accept("s") }.unwrap();
        assert_eq!(
            caller.call("add", b"x", LONG).unwrap(),
            200_u64.to_le_bytes()
        );
    });
    let gone = space.call("add", b"", LONG).unwrap_err();
    assert!(matches!(gone, CallError::NoResident), "{gone}");
    space.remove().unwrap();
    assert_eq!(scene.findings(), Vec::<String>::new());
}

#[test]
fn callers_in_many_threads_share_slots_and_several_residents_the_work() {
    let scene = Scene::new();
    let space = space(&scene);
    let residence = space.reside(functions()).unwrap();
    let calls = space.calls().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let residents = [(); 3].map(|()| scope.spawn(|| residence.serve(&stop)));
        while matches!(space.call("echo", b"", LONG), Err(CallError::NoResident)) {}
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let calls = &calls;
                scope.spawn(move || {
                    for _ in 0..20 {
                        let mut caller = calls.caller().unwrap();
                        for _ in 0..5 {
                            caller.call("add", b"x", LONG).unwrap();
                        }
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.join().unwrap();
        }
        assert_eq!(space.call("add", b"", LONG).unwrap(), 800_u64.to_le_bytes());
        // All slots are taken, and no more.
        let all: Vec<_> = (0..16).map(|_| calls.caller().unwrap()).collect();
        let busy = calls.caller().unwrap_err();
        assert!(matches!(busy, CallError::Busy { .. }), "{busy}");
        drop(all);
        calls.caller().unwrap();
        stop.store(true, Ordering::Release);
        for resident in residents {
            resident.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_call_is_given_up_at_its_timeout_and_its_slot_is_free_after_the_answer() {
    let scene = Scene::new();
    let space = space(&scene);
    served(&space, || {
        let calls = space.calls().unwrap();
        let mut caller = calls.caller().unwrap();
        let file = scene.root.join("go on");
        let request = file.as_os_str().as_bytes();
        // Waits until the resident has begun in time.
        wait_until("the call is given up while it runs", || {
            match caller.call("wait", request, SHORT).unwrap_err() {
                CallError::Stalled { pid, .. } => pid == std::process::id(),
                other => panic!("{other}"),
            }
        });
        // The only resident is still waiting for the file: this call is not begun, and is
        // withdrawn.
        let mut other = calls.caller().unwrap();
        match other.call("echo", b"x", SHORT).unwrap_err() {
            CallError::Stalled { pid, .. } => assert_eq!(pid, 0),
            other => panic!("{other}"),
        }
        std::fs::write(&file, "").unwrap();
        assert_eq!(other.call("echo", b"y", LONG).unwrap(), b"y");
        assert_eq!(caller.call("echo", b"z", LONG).unwrap(), b"z");
    });
}

#[test]
fn nobody_reads_beyond_a_mailbox_and_a_damaged_one_is_replaced() {
    let scene = Scene::new();
    let space = space(&scene);
    let path = space.directory().join("calls");
    served(&space, || {
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        // For every slot, a request of an absurd length that no caller wrote.
        for slot in 0..16_u64 {
            let head = 4096 + slot * 128;
            file.write_all_at(&[0xff; 16], head + 16).unwrap();
            file.write_all_at(&1_u32.to_le_bytes(), head).unwrap();
        }
        assert_eq!(space.call("echo", b"x", LONG).unwrap(), b"x");
        // Invalid states.
        for slot in 0..16_u64 {
            let head = 4096 + slot * 128;
            file.write_all_at(&77_u32.to_le_bytes(), head).unwrap();
        }
        assert_eq!(space.call("echo", b"x", LONG).unwrap(), b"x");
    });
    for damage in [&b"nonsense"[..], b""] {
        std::fs::write(&path, damage).unwrap();
        let refused = space.call("echo", b"x", LONG).unwrap_err();
        assert!(matches!(refused, CallError::Header(_)), "{refused}");
        served(&space, || {
            assert_eq!(space.call("echo", b"x", LONG).unwrap(), b"x");
        });
    }
}

const ROLE: &str = "MNEME_SPACE_CALL_ROLE";
const ROOT: &str = "MNEME_SPACE_CALL_ROOT";
const DEATH: &str = "MNEME_SPACE_CALL_DEATH";

/// A process that resides in the space, or calls into it, and dies at the given fault point.
fn process(scene: &Scene, role: &str, death: Option<&str>) -> Process {
    let root = scene.registry.root().as_os_str();
    let mut variables = vec![(ROLE, role.as_ref()), (ROOT, root)];
    variables.extend(death.map(|point| (DEATH, point.as_ref())));
    Process::start_talking("calls::role", variables)
}

fn resident(scene: &Scene) -> Process {
    let mut process = process(scene, "resident", None);
    process.wait_for("ready");
    process
}

#[test]
fn role() {
    let Some(role) = std::env::var_os(ROLE) else {
        return;
    };
    let registry = Registry::open(std::env::var_os(ROOT).unwrap()).unwrap();
    let space = Space::open(&registry, "w").unwrap();
    if let Ok(point) = std::env::var(DEATH) {
        mneme_sys::fault::arm(&point, mneme_sys::fault::Action::Kill, 1);
    }
    if role == "caller" {
        space.call("add", b"x", LONG).unwrap();
        return;
    }
    let residence = space.reside(functions()).unwrap();
    println!("ready");
    residence.serve(&AtomicBool::new(false)).unwrap();
}

fn pid(space: &Space) -> u32 {
    loop {
        match space.call("pid", b"", LONG) {
            Ok(reply) => return u32::from_le_bytes(reply.try_into().unwrap()),
            Err(CallError::NoResident | CallError::Died { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_killed_or_stopped_resident_is_reported_and_another_serves() {
    let scene = Scene::new();
    let space = space(&scene);
    let mut first = resident(&scene);
    assert_eq!(pid(&space), first.id());
    first.signal("-STOP");
    match space.call("add", b"x", SHORT).unwrap_err() {
        CallError::Stalled { .. } => {}
        other => panic!("{other}"),
    }
    // Another one takes the requests that the first does not.
    let mut second = resident(&scene);
    assert_eq!(pid(&space), second.id());
    first.signal("-CONT");
    first.kill();
    for _ in 0..20 {
        assert_eq!(pid(&space), second.id());
    }
    second.kill();
    let gone = space.call("pid", b"", LONG).unwrap_err();
    assert!(matches!(gone, CallError::NoResident), "{gone}");
    space.remove().unwrap();
}

mod deaths {
    use super::*;
    use std::collections::BTreeSet;

    const CALLER: [&str; 4] = [
        "space.call.claimed",
        "space.call.written",
        "space.call.asked",
        "space.call.answered",
    ];
    const RESIDENT: [&str; 9] = [
        "space.reside.reserved",
        "space.reside.made",
        "space.reside.named",
        "space.serve.seated",
        "space.serve.asleep",
        "space.serve.taken",
        "space.serve.run",
        "space.serve.written",
        "space.serve.answered",
    ];

    #[test]
    fn the_tests_die_at_every_fault_point_of_calls() {
        let named = mneme_sys::fault::named_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
        let ours = |name: &String| {
            ["call", "serve", "reside"]
                .iter()
                .any(|part| name.starts_with(&format!("space.{part}.")))
        };
        let named: BTreeSet<String> = named.unwrap().into_iter().filter(ours).collect();
        let died: BTreeSet<String> = CALLER
            .iter()
            .chain(&RESIDENT)
            .map(|p| (*p).to_owned())
            .collect();
        assert_eq!(named, died);
    }

    #[test]
    fn a_callers_death_at_any_step_costs_no_slot_and_no_resident() {
        let scene = Scene::new();
        let space = space(&scene);
        served(&space, || {
            for point in CALLER {
                // More deaths than slots, so that in the end all slots belong to dead callers.
                for _ in 0..3 {
                    let mut child = process(&scene, "caller", Some(point));
                    assert!(!child.wait().success(), "{point}: it lived");
                }
                assert_eq!(space.call("echo", b"x", LONG).unwrap(), b"x", "{point}");
            }
            let calls = space.calls().unwrap();
            let all: Vec<_> = (0..16).map(|_| calls.caller().unwrap()).collect();
            for mut caller in all {
                assert_eq!(caller.call("echo", b"y", LONG).unwrap(), b"y");
            }
        });
    }

    #[test]
    fn a_residents_death_at_any_step_is_reported_and_the_next_one_serves() {
        for point in RESIDENT {
            let scene = Scene::new();
            let space = space(&scene);
            let mut child = process(&scene, "resident", Some(point));
            // The resident dies by itself, or because of this call.
            let mut reported = None;
            while child.is_running() {
                reported = match space.call("pid", b"", LONG) {
                    Ok(_) | Err(CallError::NoResident) => reported,
                    Err(CallError::Died { pid }) => {
                        assert_eq!(pid, child.id(), "{point}");
                        Some(pid)
                    }
                    Err(other) => panic!("{point}: {other}"),
                };
            }
            let in_the_call = [
                "space.serve.taken",
                "space.serve.run",
                "space.serve.written",
            ];
            assert_eq!(reported.is_some(), in_the_call.contains(&point), "{point}");
            served(&space, || {
                let calls = space.calls().unwrap();
                let all: Vec<_> = (0..16).map(|_| calls.caller().unwrap()).collect();
                for mut caller in all {
                    assert_eq!(caller.call("echo", b"y", LONG).unwrap(), b"y", "{point}");
                }
            });
            assert_eq!(scene.findings(), Vec::<String>::new(), "{point}");
        }
    }
}
