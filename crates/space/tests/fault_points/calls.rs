//! Calls into a space: replies, refusals, and the deaths of either side at every step. Nobody waits
//! longer than its timeout, and every slot comes back.

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

/// Longer than anything takes here; what says so is a failure.
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

/// A space with a number in its one segment.
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

/// Runs `f` while a thread of this process lives in the space.
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
        // The resident lives on; what it was changing is poisoned.
        let refused = caller.call("panic", b"", LONG).unwrap_err();
        assert!(matches!(refused, CallError::Panicked), "{refused}");
        match caller.call("add", b"x", LONG).unwrap_err() {
            CallError::Refused { why } => assert!(why.contains("poisoned"), "{why}"),
            other => panic!("{other}"),
        }
        // SAFETY: a number is whole whatever happens.
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
        // All slots, and no more.
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
fn after_its_timeout_a_call_is_given_up_and_its_slot_comes_back_with_the_answer() {
    let scene = Scene::new();
    let space = space(&scene);
    served(&space, || {
        let calls = space.calls().unwrap();
        let mut caller = calls.caller().unwrap();
        let file = scene.root.join("go on");
        let request = file.as_os_str().as_bytes();
        // Until the resident has begun in time.
        wait_until("the call is given up while it runs", || {
            match caller.call("wait", request, SHORT).unwrap_err() {
                CallError::Stalled { pid, .. } => pid == std::process::id(),
                other => panic!("{other}"),
            }
        });
        // The only resident waits for the file still: this one is not begun, and withdrawn.
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
fn whatever_is_in_the_mailbox_nobody_reads_beyond_it_and_a_damaged_one_is_made_anew() {
    let scene = Scene::new();
    let space = space(&scene);
    let path = space.directory().join("calls");
    served(&space, || {
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        // A request that nobody's caller wrote, of an absurd length, for every slot.
        for slot in 0..16_u64 {
            let head = 4096 + slot * 128;
            file.write_all_at(&[0xff; 16], head + 16).unwrap();
            file.write_all_at(&1_u32.to_le_bytes(), head).unwrap();
        }
        assert_eq!(space.call("echo", b"x", LONG).unwrap(), b"x");
        // States that there are not.
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

/// A process that lives in the space, or calls into it, and dies at the point named.
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
    #[cfg(feature = "fault")]
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
fn a_resident_that_is_killed_or_stopped_is_reported_and_another_goes_on() {
    let scene = Scene::new();
    let space = space(&scene);
    let mut first = resident(&scene);
    assert_eq!(pid(&space), first.id());
    first.signal("-STOP");
    match space.call("add", b"x", SHORT).unwrap_err() {
        CallError::Stalled { .. } => {}
        other => panic!("{other}"),
    }
    // Another one takes what the first does not.
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

#[cfg(feature = "fault")]
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
    fn every_point_of_calls_is_died_at() {
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
    fn a_caller_s_death_at_any_step_costs_no_slot_and_no_resident() {
        let scene = Scene::new();
        let space = space(&scene);
        served(&space, || {
            for point in CALLER {
                // More than there are slots, all dead at a time in the end.
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
    fn a_resident_s_death_at_any_step_is_reported_and_the_next_one_serves() {
        for point in RESIDENT {
            let scene = Scene::new();
            let space = space(&scene);
            let mut child = process(&scene, "resident", Some(point));
            // It dies by itself, or of this call.
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
