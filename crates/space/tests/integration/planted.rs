//! Files that others put into a shared registry, or that lie there by mistake, cost users neither
//! files nor time.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::Scene;
use mneme_space::{Attachment, Registry, RemoveError, Segment};
use mneme_sys::Access;

fn attach(segment: &Segment) -> Attachment {
    Attachment::new([(segment, Access::ReadWrite)]).unwrap()
}

fn run(program: &str, args: &[&Path]) {
    assert!(Command::new(program).args(args).status().unwrap().success());
}

#[test]
fn files_planted_in_dying_delete_no_data_that_has_a_name() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let planted = scene.registry.root().join("dying/x");
    fs::create_dir(&planted).unwrap();
    fs::copy(segment.directory().join("meta"), planted.join("meta")).unwrap();
    scene.create("another");
    Segment::open(&scene.registry, "s").unwrap();
    assert!(!planted.exists(), "it was no more than a leftover");
}

#[test]
fn cleaning_follows_no_symbolic_links() {
    let scene = Scene::new();
    let mine = scene.root.join("mine");
    fs::create_dir(&mine).unwrap();
    for name in ["control", "meta", "else"] {
        fs::write(mine.join(name), [7; 8192]).unwrap();
    }
    let dying = scene.registry.root().join("dying");
    // A control file that is a link, one that is a hard link to another file, and a directory that
    // is a link.
    for planted in ["link", "name"] {
        fs::create_dir(dying.join(planted)).unwrap();
    }
    symlink(mine.join("control"), dying.join("link/control")).unwrap();
    fs::hard_link(mine.join("control"), dying.join("name/control")).unwrap();
    symlink(&mine, dying.join("directory")).unwrap();
    scene.registry.clean().unwrap();
    for name in ["control", "meta", "else"] {
        assert_eq!(fs::read(mine.join(name)).unwrap(), [7; 8192], "{name}");
    }
    assert_eq!(fs::read_dir(&dying).unwrap().count(), 0);
}

#[test]
fn another_users_files_are_left_alone() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let data = segment.info().unwrap().data;
    let dying = scene.registry.root().join("dying/x");
    run("cp", &[Path::new("-a"), &segment.directory(), &dying]);
    if std::os::unix::fs::chown(&dying, Some(1), None).is_err() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    // Nothing else names these data now.
    fs::remove_dir_all(segment.directory()).unwrap();
    let found = scene.registry.clean().unwrap();
    assert!(
        found.iter().any(|f| f.what.contains("user 1's")),
        "{found:?}"
    );
    assert!(dying.join("meta").exists());
    assert!(data.exists());
}

#[test]
fn pipes_make_nobody_wait() {
    let scene = Scene::new();
    let root = scene.registry.root().to_owned();
    let _ = scene.create("whole");
    for planted in ["segments/x", "segments/y", "spaces/x", "dying/x", "dying/y"] {
        fs::create_dir(root.join(planted)).unwrap();
    }
    fs::remove_file(root.join("segments/whole/control")).unwrap();
    for pipe in [
        "segments/x/meta",
        "segments/whole/control",
        "spaces/x/meta",
        "dying/x/meta",
        "dying/y/control",
    ] {
        run("mkfifo", &[&root.join(pipe)]);
    }
    let (sender, receiver) = mpsc::channel();
    let registry = scene.registry.clone();
    std::thread::spawn(move || {
        let made = registry.segment("mine").create().map(|_| ());
        let opened = Segment::open(&registry, "x").is_err();
        let mapped = Segment::open(&registry, "whole")
            .unwrap()
            .map(Access::ReadOnly)
            .is_err();
        let _ = registry.clean();
        sender.send(made.is_ok() && opened && mapped)
    });
    let answer = receiver.recv_timeout(Duration::from_secs(60));
    assert_eq!(answer, Ok(true));
}

#[test]
fn permissions_are_not_set_on_the_target_of_a_link() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    let space = scene.registry.space("shared").create().unwrap();
    let mine = scene.root.join("mine");
    fs::write(&mine, "").unwrap();
    fs::set_permissions(&mine, fs::Permissions::from_mode(0o600)).unwrap();
    let lock = scene.registry.root().join("spaces/shared/lock");
    fs::remove_file(&lock).unwrap();
    symlink(&mine, &lock).unwrap();
    assert!(space.set_mode(0o666).is_err());
    let mode = fs::metadata(&mine).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_segment_is_not_removed_if_its_control_file_cannot_be_examined() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let at = attach(&segment);
    let control = segment.directory().join("control");
    fs::rename(&control, scene.root.join("aside")).unwrap();
    symlink(scene.root.join("aside"), &control).unwrap();
    let refused = scene.registry.remove_segment("s");
    assert!(
        matches!(refused, Err(RemoveError::Registry(_))),
        "{refused:?}"
    );
    Segment::open(&scene.registry, "s").unwrap();
    drop(at);
}

#[test]
fn a_copy_of_a_registry_costs_the_original_no_data() {
    let scene = Scene::new();
    let old = scene.create("old");
    let backup = scene.root.join("backup");
    run("cp", &[Path::new("-a"), scene.registry.root(), &backup]);
    let new = scene.create("new");
    let copy = Registry::open(&backup).unwrap();
    let found = copy.clean().unwrap();
    assert!(
        found.iter().any(|f| f.what.contains("was copied or moved")),
        "{found:?}"
    );
    copy.remove_segment("old").unwrap();
    for segment in [old, new] {
        segment.info().unwrap();
    }
    assert_eq!(scene.findings(), Vec::<String>::new());

    // Its owner may declare the remaining one to be the only one.
    let description = backup.join("registry");
    let text = fs::read_to_string(&description).unwrap();
    let (before, place) = text.split_once("\"place\": {").unwrap();
    let (_, after) = place.split_once('}').unwrap();
    fs::write(&description, format!("{before}\"place\": null{after}")).unwrap();
    let found = Registry::open(&backup).unwrap().check().unwrap();
    assert!(
        !found.iter().any(|f| f.what.contains("was copied")),
        "{found:?}"
    );
}

/// Links and pipes in the place of a segment's note.
#[test]
fn a_note_follows_no_link_and_waits_for_no_pipe() {
    let scene = Scene::new();
    let registry = scene.registry.clone();
    let of_segment = scene.create("s").directory();
    let mine = scene.root.join("mine");
    fs::write(&mine, "mine").unwrap();
    symlink(&mine, of_segment.join("linked.note")).unwrap();
    symlink(&mine, of_segment.join("aside.new")).unwrap();
    for pipe in ["pipe.note", "blocked.new"] {
        run("mkfifo", &[&of_segment.join(pipe)]);
    }
    fs::write(of_segment.join("long.note"), vec![b'x'; (1 << 20) + 1]).unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let is_refused = ["linked", "pipe", "long"].map(|note| registry.note("s", note).is_err());
        let written = ["linked", "pipe", "aside", "blocked"].map(|note| {
            registry.set_note("s", note, Some("text")).unwrap();
            registry.note("s", note).unwrap()
        });
        sender.send((is_refused, written))
    });
    let (is_refused, written) = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(is_refused, [true; 3]);
    assert!(written.iter().all(|note| note.as_deref() == Some("text")));
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
}

/// A user who may read a registry's lock could take a read lock, and make all others wait.
#[test]
fn only_users_who_may_write_a_registrys_lock_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    for (number, (directory, expected)) in [
        (0o700, 0o600),
        (0o750, 0o600),
        (0o755, 0o600),
        (0o770, 0o660),
        (0o775, 0o660),
        (0o1777, 0o666),
    ]
    .into_iter()
    .enumerate()
    {
        let root = scene.root.join(number.to_string());
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(directory)).unwrap();
        Registry::open(&root).unwrap();
        let lock = root.join("lock");
        let mode = || fs::metadata(&lock).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), expected, "{directory:o}");
        // As earlier builds created it.
        let before = fs::Permissions::from_mode(directory & 0o666);
        fs::set_permissions(&lock, before).unwrap();
        Registry::open(&root).unwrap();
        assert_eq!(mode(), expected, "{directory:o}");
    }
}
