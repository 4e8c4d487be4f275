//! Spaces: creation, changes and removal, what they refuse, concurrent creations and changes, and
//! the effects of damage.

use std::fs;
use std::path::Path;
use std::sync::Barrier;

use crate::common::Scene;
use mneme_space::{
    DescriptionError, EnterError, Name, NameError, OpenError, Schema, Segment, Space, SpaceError,
};
use mneme_sys::Access::{self, ReadOnly, ReadWrite};

fn members(space: &Space) -> Vec<(String, Access)> {
    let members = space.members().unwrap().into_iter();
    members.map(|m| (m.name.to_string(), m.access)).collect()
}

struct Number;

impl Schema for Number {
    type Root<'s> = u64;
}

#[test]
fn a_space_is_created_filled_attached_cloned_and_removed() {
    let scene = Scene::new();
    let space = scene.registry.space("w").mode(0o640).create().unwrap();
    let (a, b) = (scene.create("a"), scene.create("b"));
    space.add(&b, ReadOnly).unwrap();
    space.add(&a, ReadWrite).unwrap();
    let found = scene.space("w");
    assert_eq!(found.uuid(), space.uuid());
    let both = [("b".to_owned(), ReadOnly), ("a".to_owned(), ReadWrite)];
    assert_eq!(members(&found), both);
    let info = found.info().unwrap();
    assert_eq!((info.version, info.mode), (3, 0o640));

    let at = found.attach().unwrap();
    at.enter(|here| {
        let mut rights: Vec<_> = here.segments().collect();
        rights.sort_unstable();
        assert_eq!(rights, [("a", true), ("b", false)]);
        here.create_root::<Number>("a", |_| 7).unwrap();
    })
    .unwrap();
    drop(at);
    let at = found.attach_read_only().unwrap();
    at.enter(|here| assert_eq!(*here.root::<Number>("a").unwrap(), 7))
        .unwrap();
    drop(at);

    let clone = found.clone_as("v").unwrap();
    found.set_access("b", ReadWrite).unwrap();
    found.remove_segment("a").unwrap();
    assert_eq!(members(&space), [("b".to_owned(), ReadWrite)]);
    assert_eq!(members(&clone), both);
    let info = clone.info().unwrap();
    assert_eq!((info.cloned_from, info.mode), (Some(found.uuid()), 0o640));
    let names: Vec<_> = ["v", "w"].iter().map(|n| Name::new(n).unwrap()).collect();
    assert_eq!(scene.registry.spaces().unwrap(), names);

    found.remove().unwrap();
    let gone = space.info().unwrap_err();
    assert!(matches!(gone, SpaceError::NotFound { .. }), "{gone}");
    let gone = space.add(&a, ReadOnly).unwrap_err();
    assert!(matches!(gone, SpaceError::NotFound { .. }));
    let gone = scene.registry.remove_space("w").unwrap_err();
    assert!(matches!(gone, SpaceError::NotFound { .. }), "{gone}");
    // Another space of the same name is a different one.
    let _ = scene.registry.space("w").create().unwrap();
    let refused = space.info().unwrap_err();
    assert!(matches!(refused, SpaceError::Replaced { .. }), "{refused}");
    assert_eq!(scene.findings(), Vec::<String>::new());
}

#[test]
fn an_invalid_member_is_refused_and_changes_nothing() {
    let scene = Scene::new();
    let space = scene.registry.space("w").create().unwrap();
    let a = scene.create("a");
    space.add(&a, ReadOnly).unwrap();
    let before = space.info().unwrap();

    let twice = space.add(&a, ReadWrite).unwrap_err();
    assert!(matches!(twice, SpaceError::Twice { .. }), "{twice}");
    let floating = scene.registry.segment("f").floating().create().unwrap();
    let refused = space.add(&floating, ReadOnly).unwrap_err();
    assert!(matches!(refused, SpaceError::Floating { .. }), "{refused}");
    let clone = a.clone_as("c").unwrap();
    let refused = space.add(&clone, ReadOnly).unwrap_err();
    assert!(
        matches!(&refused, SpaceError::Overlap { name, with } if name == "c" && with == "a"),
        "{refused}"
    );
    let other = Scene::new();
    let far = other.create("a");
    let refused = space.add(&far, ReadOnly).unwrap_err();
    assert!(
        matches!(refused, SpaceError::OtherRegistry { .. }),
        "{refused}"
    );
    let gone = scene.create("gone");
    scene.registry.remove_segment("gone").unwrap();
    match space.add(&gone, ReadOnly).unwrap_err() {
        SpaceError::Member { source, .. } => {
            assert!(matches!(*source, OpenError::NotFound { .. }), "{source}");
        }
        other => panic!("{other}"),
    }
    let _ = scene.create("gone");
    let refused = space.add(&gone, ReadOnly).unwrap_err();
    assert!(matches!(refused, SpaceError::Stale { .. }), "{refused}");
    for refused in [
        space.remove_segment("c").unwrap_err(),
        space.set_access("../a", ReadOnly).unwrap_err(),
    ] {
        assert!(matches!(refused, SpaceError::NotMember { .. }), "{refused}");
    }
    assert_eq!(space.info().unwrap(), before);
}

#[test]
fn segments_that_would_overlap_when_they_grow_cannot_be_members_of_one_space() {
    let scene = Scene::new();
    let (start, _) = scene.registry.window();
    let long = scene.registry.segment("long").base(start);
    let long = long.max_size(3 << 30).create().unwrap();
    let within = scene.registry.segment("within").base(start + (2 << 30));
    let within = within.create().unwrap();
    let beyond = scene.registry.segment("beyond").base(start + (3 << 30));
    let beyond = beyond.create().unwrap();
    let space = scene.registry.space("w").create().unwrap();
    space.add(&within, ReadOnly).unwrap();
    space.add(&beyond, ReadOnly).unwrap();
    let refused = space.add(&long, ReadOnly).unwrap_err();
    assert!(
        matches!(&refused, SpaceError::Overlap { with, .. } if with == "within"),
        "{refused}"
    );
    space.remove_segment("within").unwrap();
    space.add(&long, ReadOnly).unwrap();
}

#[test]
fn a_new_segment_of_a_members_name_is_not_mistaken_for_the_member() {
    let scene = Scene::new();
    let space = scene.registry.space("w").create().unwrap();
    space.add(&scene.create("s"), ReadWrite).unwrap();
    scene.registry.remove_segment("s").unwrap();
    match space.attach().unwrap_err() {
        EnterError::Space(SpaceError::Member { name, .. }) => assert_eq!(name, "s"),
        other => panic!("{other}"),
    }
    assert!(scene.findings()[0].contains("does not exist"));
    let anew = scene.create("s");
    match space.attach().unwrap_err() {
        EnterError::Space(SpaceError::Stale { found, .. }) => assert_eq!(found, anew.uuid()),
        other => panic!("{other}"),
    }
    assert!(scene.findings()[0].contains("another segment now"));
    let twice = space.add(&anew, ReadWrite).unwrap_err();
    assert!(matches!(twice, SpaceError::Twice { .. }), "{twice}");
    space.remove_segment("s").unwrap();
    space.add(&anew, ReadWrite).unwrap();
    space.attach().unwrap();
    assert_eq!(scene.findings(), Vec::<String>::new());
}

#[test]
fn one_of_two_creators_of_a_space_succeeds_and_both_of_two_changers_do() {
    let scene = Scene::new();
    let segments: Vec<Segment> = ["a", "b", "c", "d"].map(|name| scene.create(name)).into();
    for round in 0..8 {
        let name = format!("w{round}");
        let together = Barrier::new(segments.len());
        let made: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> = segments
                .iter()
                .map(|segment| {
                    scope.spawn(|| {
                        together.wait();
                        let made = match scene.registry.space(&name).create() {
                            Ok(_) => true,
                            Err(SpaceError::Exists { .. }) => false,
                            Err(other) => panic!("{other}"),
                        };
                        scene.space(&name).add(segment, ReadOnly).unwrap();
                        made
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(made.iter().filter(|made| **made).count(), 1);
        let info = scene.space(&name).info().unwrap();
        assert_eq!((info.version, info.members.len()), (5, 4));
    }
    assert_eq!(scene.findings(), Vec::<String>::new());
}

#[test]
fn a_name_leads_only_to_a_space() {
    let scene = Scene::new();
    for bad in ["", ".", "..", "../segments/s", "a/b", "a\0b", "\n"] {
        let refused = scene.registry.space(bad).create().unwrap_err();
        assert!(matches!(refused, SpaceError::Name(_)), "{refused}");
        let refused = Space::open(&scene.registry, bad).unwrap_err();
        assert!(matches!(refused, SpaceError::Name(_)), "{refused}");
        let refused = scene.registry.remove_space(bad).unwrap_err();
        assert!(matches!(refused, SpaceError::Name(_)), "{refused}");
    }
    let long = "n".repeat(201);
    let refused = scene.registry.space(&long).create().unwrap_err();
    assert!(matches!(
        refused,
        SpaceError::Name(NameError::TooLong { .. })
    ));
    // Segments and spaces have separate names.
    let _ = scene.create("same");
    let _ = scene.registry.space("same").create().unwrap();
}

#[test]
fn a_damaged_description_is_refused_with_a_reason_or_still_valid() {
    let scene = Scene::new();
    let space = scene.registry.space("w").create().unwrap();
    space.add(&scene.create("s"), ReadWrite).unwrap();
    let meta = space.directory().join("meta");
    let whole = fs::read(&meta).unwrap();
    let refusal = || Space::open(&scene.registry, "w").unwrap_err();
    for len in 0..whole.len() - 2 {
        fs::write(&meta, &whole[..len]).unwrap();
        assert!(
            matches!(
                refusal(),
                SpaceError::Description(DescriptionError::Damaged { .. })
            ),
            "{len}"
        );
    }
    for at in 0..whole.len() {
        for change in [1, 0x20, 0x80] {
            let mut text = whole.clone();
            text[at] ^= change;
            fs::write(&meta, &text).unwrap();
            // Whatever still parses as a description may name other members, none of which is
            // found.
            if let Ok(space) = Space::open(&scene.registry, "w") {
                let _ = space.attach();
            }
        }
    }
    let text = String::from_utf8(whole.clone()).unwrap();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        fs::write(&meta, text.replace(from, to)).unwrap();
        refusal().to_string() + &std::error::Error::source(&refusal()).unwrap().to_string()
    };
    let version = "\"version\": 2";
    assert!(with(version, "\"version\": 0").contains("version is impossible"));
    assert!(with(version, "\"version\": 9000000000000000000").contains("impossible"));
    assert!(with("\"format\": 1", "\"format\": 2").contains("format 2"));
    assert!(with("\"name\": \"s\"", "\"name\": \"../s\"").contains("name is none"));
    assert!(with("\"members\"", "\"others\"").contains("damaged"));
    let entry = text.split_once('[').unwrap().1.split_once(']').unwrap().0;
    assert!(with(entry, &format!("{entry},{entry}")).contains("named twice"));
    scene.is_reported_and_removable("named twice", |registry| {
        registry.remove_space("w").unwrap();
    });
    let _ = scene.registry.space("w").create().unwrap();
}

#[test]
fn a_missing_or_damaged_control_file_is_replaced_with_the_same_version() {
    let scene = Scene::new();
    let space = scene.registry.space("w").create().unwrap();
    space.add(&scene.create("s"), ReadWrite).unwrap();
    let control = space.directory().join("control");
    type Damage = fn(&Path);
    let damages: [Damage; 4] = [
        |control| fs::remove_file(control).unwrap(),
        |control| fs::write(control, b"").unwrap(),
        |control| fs::write(control, [7; 4096]).unwrap(),
        |control| {
            let file = fs::File::options().write(true).open(control).unwrap();
            file.set_len(4096).unwrap();
        },
    ];
    for damage in damages {
        damage(&control);
        assert!(space.attach().is_err());
        assert!(space.set_access("s", ReadOnly).is_err());
        assert_eq!(scene.findings().len(), 1);
        scene.registry.clean().unwrap();
        assert_eq!(scene.findings(), Vec::<String>::new());
        space.attach().unwrap();
        let before = space.info().unwrap().version;
        space.set_access("s", ReadWrite).unwrap();
        assert_eq!(space.info().unwrap().version, before + 1);
    }
}

#[test]
fn leftovers_of_a_dead_changer_are_reported_and_removed_and_a_missing_lock_is_created_again() {
    let scene = Scene::new();
    let space = scene.registry.space("w").create().unwrap();
    let leftover = space.directory().join("meta.new");
    fs::write(&leftover, b"{").unwrap();
    assert!(scene.findings()[0].contains("broken off"));
    scene.registry.clean().unwrap();
    assert!(!leftover.exists());
    fs::write(&leftover, b"{").unwrap();
    fs::remove_file(space.directory().join("lock")).unwrap();
    space.add(&scene.create("s"), ReadOnly).unwrap();
    assert_eq!(members(&space).len(), 1);
    assert_eq!(scene.findings(), Vec::<String>::new());
    // A directory that is no space at all.
    fs::create_dir(scene.registry.root().join("spaces/.hidden")).unwrap();
    assert!(scene.findings()[0].contains("can be a space"));
}
