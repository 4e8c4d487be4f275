//! Whatever the files of a registry contain, opening a segment succeeds or says what is wrong and
//! where; `check` says so too; and the segment can be removed, and its name used again.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::Scene;
use mneme_space::{DescriptionError, OpenError, Registry, RegistryError, Segment};
use mneme_sys::{Access, FRAME, HEADER_LEN, HeaderError};

/// The paths of the parts of segment `s`.
struct Parts {
    directory: PathBuf,
    meta: PathBuf,
    control: PathBuf,
    data: PathBuf,
}

fn parts(scene: &Scene) -> Parts {
    let directory = scene.registry.root().join("segments/s");
    Parts {
        meta: directory.join("meta"),
        control: directory.join("control"),
        data: fs::read_link(directory.join("data")).unwrap(),
        directory,
    }
}

/// Makes the segment look as if the machine had been rebooted since its creation.
fn another_boot(scene: &Scene) {
    let Parts { meta, .. } = parts(scene);
    let text = fs::read_to_string(&meta).unwrap();
    let (before, boot) = text.split_once("\"boot\": \"").unwrap();
    fs::write(
        &meta,
        format!("{before}\"boot\": \"{:032x}{}", 1, &boot[32..]),
    )
    .unwrap();
}

fn refusal(scene: &Scene) -> OpenError {
    Segment::open(&scene.registry, "s").unwrap_err()
}

/// Checks that the damage is reported, that cleaning removes nothing that has a name, and that
/// removal ends it.
fn is_reported_and_removable(scene: &Scene, words: &str) {
    scene.is_reported_and_removable(words, |registry| {
        registry.remove_segment("s").unwrap();
    });
    let _ = scene.create("s");
    assert_eq!(scene.files("memory").len(), 1, "data are left");
}

#[test]
fn a_truncated_or_changed_description_is_refused_with_a_reason_or_still_valid() {
    let scene = Scene::new();
    let made = scene.create("s");
    let Parts { meta, .. } = parts(&scene);
    let whole = fs::read(&meta).unwrap();
    for len in 0..whole.len() - 2 {
        fs::write(&meta, &whole[..len]).unwrap();
        let refused = refusal(&scene);
        let damaged = DescriptionError::Damaged {
            path: meta.clone(),
            why: String::new(),
        };
        let same = matches!(&refused, OpenError::Description(e) if std::mem::discriminant(e) == std::mem::discriminant(&damaged));
        assert!(same, "{len}: {refused}");
    }
    for at in 0..whole.len() {
        for change in [1, 0x20, 0x80] {
            let mut text = whole.clone();
            text[at] ^= change;
            fs::write(&meta, &text).unwrap();
            // Whatever still parses as a description of these data is accepted.
            if let Ok(segment) = Segment::open(&scene.registry, "s") {
                assert_eq!(segment.uuid(), made.uuid(), "{at} {change}");
                assert_eq!(segment.max_size(), made.max_size(), "{at} {change}");
            }
        }
    }
    fs::write(&meta, vec![b' '; 2 << 20]).unwrap();
    assert!(refusal(&scene).source_text().contains("longer"));
    fs::write(&meta, &whole[..40]).unwrap();
    is_reported_and_removable(&scene, "meta is damaged");
}

/// An error with its causes.
trait InWords {
    fn source_text(&self) -> String;
}

impl<E: std::error::Error> InWords for E {
    fn source_text(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}

fn replace(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn another_format_is_named_with_ours() {
    let scene = Scene::new();
    let _ = scene.create("s");
    replace(&parts(&scene).meta, "\"format\": 1", "\"format\": 7");
    let refused = refusal(&scene);
    assert!(matches!(
        refused,
        OpenError::Description(DescriptionError::Format {
            found: 7,
            expected: 1,
            ..
        })
    ));
    is_reported_and_removable(&scene, "format 7");

    let registry = scene.registry.root().join("registry");
    replace(&registry, "\"format\": 1", "\"format\": 2");
    let refused = Registry::open(scene.registry.root()).unwrap_err();
    assert!(matches!(
        refused,
        RegistryError::Description(DescriptionError::Format { found: 2, .. })
    ));
    for damage in [
        "",
        "{",
        "{\"format\": 1}",
        "[]",
        "null",
        "{\"format\": \"1\"}",
    ] {
        fs::write(&registry, damage).unwrap();
        let refused = Registry::open(scene.registry.root()).unwrap_err();
        let damaged = matches!(
            refused,
            RegistryError::Description(DescriptionError::Damaged { .. })
        );
        assert!(damaged, "{damage}");
    }
}

#[test]
fn a_description_can_name_only_a_segments_data_file() {
    let scene = Scene::new();
    let _ = scene.create("s");
    let victim = scene.root.join("precious");
    fs::write(&victim, "not to be deleted").unwrap();
    let Parts { meta, data, .. } = parts(&scene);
    replace(&meta, data.to_str().unwrap(), victim.to_str().unwrap());
    assert!(
        refusal(&scene)
            .source_text()
            .contains("not one of a segment's")
    );
    scene.registry.remove_segment("s").unwrap();
    assert!(victim.exists());
    // The link named the data.
    assert!(!data.exists());

    let _ = scene.create("s");
    let Parts {
        directory,
        meta,
        data,
        ..
    } = parts(&scene);
    fs::write(&meta, "").unwrap();
    fs::remove_file(directory.join("data")).unwrap();
    symlink(&victim, directory.join("data")).unwrap();
    scene.registry.remove_segment("s").unwrap();
    assert!(victim.exists());
    // Nothing names them any more, so cleaning removes them.
    assert!(
        scene
            .findings()
            .iter()
            .any(|f| f.contains("no segment names"))
    );
    scene.registry.clean().unwrap();
    assert!(!data.exists());
    assert_eq!(scene.findings(), Vec::<String>::new());
}

#[test]
fn a_description_that_leads_astray_does_not_cost_the_data() {
    let scene = Scene::new();
    let _ = scene.create("s");
    let Parts { meta, data, .. } = parts(&scene);
    // One digit of the file's name, in the part that identifies the registry.
    let name = data.file_name().unwrap().to_str().unwrap();
    let other = if name.starts_with('0') { "1" } else { "0" };
    replace(&meta, name, &format!("{other}{}", &name[1..]));
    assert!(matches!(refusal(&scene), OpenError::DataGone { .. }));
    scene.registry.clean().unwrap();
    assert!(data.exists(), "cleaning has removed what the link leads to");
    is_reported_and_removable(&scene, "is gone");
    assert!(!data.exists());
}

#[test]
fn any_changed_byte_of_the_header_that_never_changes_is_noticed() {
    let scene = Scene::new();
    let _ = scene.create("s");
    let Parts { data, .. } = parts(&scene);
    let file = File::options().read(true).write(true).open(&data).unwrap();
    let mut whole = [0; HEADER_LEN];
    file.read_exact_at(&mut whole, 0).unwrap();
    for at in (0..48).chain(120..128) {
        file.write_all_at(&[whole[at] ^ 0x41], at as u64).unwrap();
        let refused = refusal(&scene);
        assert!(
            matches!(refused, OpenError::Header { .. }),
            "{at}: {refused}"
        );
        file.write_all_at(&whole[at..=at], at as u64).unwrap();
    }
    // A greater committed length than the file's, and one greater than the maximum.
    let commit = |bytes: u64| file.write_all_at(&bytes.to_le_bytes(), 48).unwrap();
    commit(2 * FRAME as u64);
    assert!(matches!(refusal(&scene), OpenError::Truncated { len, .. } if len == FRAME as u64));
    commit(u64::MAX);
    let impossible = refusal(&scene);
    let named = matches!(
        impossible,
        OpenError::Header {
            source: HeaderError::Damaged { .. },
            ..
        }
    );
    assert!(named, "{impossible}");
    is_reported_and_removable(&scene, "header is damaged");
}

#[test]
fn truncated_missing_and_foreign_data_are_distinguished() {
    let scene = Scene::new();
    let _ = scene.create("s");
    let cut = |len: u64| {
        let Parts { data, .. } = parts(&scene);
        File::options()
            .write(true)
            .open(data)
            .unwrap()
            .set_len(len)
            .unwrap();
    };
    cut(4096);
    assert!(matches!(
        refusal(&scene),
        OpenError::Truncated { len: 4096, .. }
    ));
    for len in [127, 1, 0] {
        cut(len);
        assert!(matches!(refusal(&scene), OpenError::Header { .. }), "{len}");
    }
    is_reported_and_removable(&scene, "no usable segment");

    let Parts { data, .. } = parts(&scene);
    let other = scene.create("other").info().unwrap().data;
    fs::copy(other, &data).unwrap();
    assert!(matches!(refusal(&scene), OpenError::Mismatch { .. }));
    scene.registry.remove_segment("other").unwrap();
    is_reported_and_removable(&scene, "another segment's");

    let Parts { data, .. } = parts(&scene);
    fs::remove_file(&data).unwrap();
    fs::create_dir(&data).unwrap();
    assert!(refusal(&scene).source_text().contains("not a file"));
    fs::remove_dir(&data).unwrap();
    assert!(matches!(refusal(&scene), OpenError::DataGone { .. }));
    // The data may be mounted elsewhere, where this process does not see them, and may be in use.
    assert!(scene.findings()[0].contains("cannot be seen"));
    scene.registry.clean().unwrap();
    assert!(matches!(refusal(&scene), OpenError::DataGone { .. }));
    // Memory after a reboot: cleaning loses nothing.
    another_boot(&scene);
    assert!(scene.findings()[0].contains("as after a reboot"));
    scene.registry.clean().unwrap();
    assert!(matches!(refusal(&scene), OpenError::NotFound { .. }));
}

#[test]
fn a_garbage_control_file_lets_nobody_in_until_it_is_replaced() {
    let scene = Scene::new();
    let segment = scene.registry.segment("s").mode(0o640).create().unwrap();
    let Parts { control, .. } = parts(&scene);
    let whole = fs::read(&control).unwrap();
    let other = scene.create("other");
    let of_another = fs::read(scene.registry.root().join("segments/other/control")).unwrap();
    other.remove().unwrap();
    let contents = [
        Some(vec![0x5a; whole.len()]),
        Some(vec![0; whole.len()]),
        Some(whole[..4096].to_vec()),
        Some(of_another),
        Some(Vec::new()),
        None,
    ];
    for content in contents {
        let what = content.as_ref().map(|c| (c.len(), c.first().copied()));
        match content {
            Some(content) => fs::write(&control, content).unwrap(),
            None => fs::remove_file(&control).unwrap(),
        }
        let error = segment.map(Access::ReadOnly).unwrap_err();
        assert!(error.source_text().contains("control"), "{what:?}: {error}");
        let found = scene.findings();
        assert!(
            found.len() == 1 && found[0].contains("nobody can attach"),
            "{what:?} {found:?}"
        );
        scene.registry.clean().unwrap();
        assert_eq!(scene.findings(), Vec::<String>::new(), "{what:?}");
        segment.map(Access::ReadWrite).unwrap();
        // The deaths that the old file recorded are lost.
        assert!(segment.info().unwrap().poisoned);
    }
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        fs::metadata(&control).unwrap().permissions().mode() & 0o777,
        0o660
    );
}

#[test]
fn foreign_files_in_a_registry_are_reported_and_left_alone() {
    let scene = Scene::new();
    let _ = scene.create("s");
    for stray in ["segments/.hidden", "making/someone's"] {
        fs::create_dir(scene.registry.root().join(stray)).unwrap();
    }
    let found = scene.findings();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found.iter().all(|f| f.contains("leaves it alone")),
        "{found:?}"
    );
    scene.registry.clean().unwrap();
    assert_eq!(scene.findings(), found);
    let names: Vec<_> = scene.registry.segments().unwrap();
    assert_eq!(names.len(), 1);
    let Parts { directory, .. } = parts(&scene);
    fs::remove_file(directory.join("data")).unwrap();
    assert!(
        scene
            .findings()
            .iter()
            .any(|f| f.contains("does not lead to"))
    );
    // The description is enough.
    scene.open("s").map(Access::ReadOnly).unwrap();
}
