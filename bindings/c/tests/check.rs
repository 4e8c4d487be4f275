//! Checks of pointers in programs in C and C++ (`bindings/c/check`): what is caught, at each level
//! of optimisation, and what is not touched. `cargo xtask check-c` runs this; without the checks,
//! it is skipped.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

use common::{Link, Scene, checks, compiler, home};

const LEVELS: [&str; 3] = ["-O0", "-O1", "-O2"];

/// C, and the same as C++: which compiler, and its arguments.
const LANGUAGES: [(&str, &[&str]); 2] = [("", &[]), ("++", &["-x", "c++", "-std=c++11"])];

fn source(name: &str) -> PathBuf {
    home().join("tests/check").join(name)
}

/// Whether the checks are there; a word if not.
fn is_skipped() -> bool {
    let skipped = checks().is_none();
    if skipped {
        eprintln!("skipped: `cargo xtask check-c` builds the checks, and runs this");
    }
    skipped
}

/// What a source's comments `// KIND: ...` say, with their lines.
fn marked(name: &str, kind: &str) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(source(name)).unwrap();
    let mark = format!("// {kind}: ");
    let of_line = |(at, line): (usize, &str)| Some((at + 1, line.split_once(&mark)?.1.to_owned()));
    text.lines().enumerate().filter_map(of_line).collect()
}

/// The message that a mark stands for.
fn message(mark: &str) -> &'static str {
    match mark {
        "FOLLOWED" => "a pointer into a segment that the thread is not inside of is followed",
        "READING" => "a segment that was entered for reading is written",
        "COMMON" => "a pointer to the process' own memory is stored in a segment",
        "ELSEWHERE" => "a pointer into another space is stored in a segment",
        "CLONE" => "a pointer into a segment is used in another one at the same address",
        "SWITCH" => "a switch failed, and nothing looks at its result",
        other => panic!("no such mark: {other}"),
    }
}

fn wrong_programs_are_ended(level: &str) {
    cases_are_ended("wrong.c", 30, level, &[]);
}

/// Each case of a program is ended at its line, as C and as C++.
fn cases_are_ended(name: &str, more_than: usize, level: &str, options: &[&str]) {
    if is_skipped() {
        return;
    }
    let cases = marked(name, "wrong");
    assert!(cases.len() > more_than);
    let mut missed = Vec::new();
    for (plus, language) in LANGUAGES {
        let scene = Scene::new();
        let arguments = [language, &[level, "-Wno-pass-failed"], options].concat();
        let compiler = compiler(plus).unwrap();
        let (program, _) = scene.build_with(&compiler, &[&source(name)], Link::Shared, &arguments);
        for (line, mark) in &cases {
            let (case, mark) = mark.split_once(": ").unwrap();
            if plus.is_empty() && case == "stored_object" {
                continue;
            }
            let run = program.run(&[case]);
            let said = String::from_utf8_lossy(&run.stderr);
            let place = format!("{name}:{line}: in ");
            let is_right = run.status.signal() == Some(6)
                && said.contains(&place)
                && said.contains(message(mark));
            if !is_right {
                missed.push(format!("C{plus} {level} {case}: {}: {said}", run.status));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn wrong_programs_are_ended_without_optimisation() {
    wrong_programs_are_ended("-O0");
}

#[test]
fn wrong_programs_are_ended_at_the_first_level() {
    wrong_programs_are_ended("-O1");
}

#[test]
fn wrong_programs_are_ended_at_the_second_level() {
    wrong_programs_are_ended("-O2");
}

/// The option is the plugin's own, which clang knows once it is loaded by `-fplugin` too.
fn clones_are_distinguished(level: &str) {
    let Some(checks) = checks() else {
        is_skipped();
        return;
    };
    let plugin = format!("-fplugin={}", checks.join("mneme-check.so").display());
    let options = [plugin.as_str(), "-mllvm", "-mneme-check-clones"];
    cases_are_ended("clones.c", 12, level, &options);
    for (plus, language) in LANGUAGES {
        let scene = Scene::new();
        let arguments = [language, &[level, "-Werror"], &options].concat();
        let compiler = compiler(plus).unwrap();
        let (program, said) =
            scene.build_with(&compiler, &[&source("clones.c")], Link::Shared, &arguments);
        assert_eq!(said, "");
        assert_eq!(program.says(&[]), "right\n", "C{plus} {level}");
    }
}

#[test]
fn clones_are_distinguished_without_optimisation() {
    clones_are_distinguished("-O0");
}

#[test]
fn clones_are_distinguished_at_the_first_level() {
    clones_are_distinguished("-O1");
}

#[test]
fn clones_are_distinguished_at_the_second_level() {
    clones_are_distinguished("-O2");
}

/// At every level the same lines, and no others.
#[test]
fn the_compiler_warns_of_certain_errors() {
    if is_skipped() {
        return;
    }
    let expected = marked("certain.c", "warned");
    assert!(!expected.is_empty());
    let scene = Scene::new();
    for (plus, language) in LANGUAGES {
        for level in LEVELS {
            let arguments = [language, &[level]].concat();
            let compiler = compiler(plus).unwrap();
            let (_, said) =
                scene.build_with(&compiler, &[&source("certain.c")], Link::Shared, &arguments);
            for (line, text) in &expected {
                let place = format!("certain.c:{line}:");
                let warned = said.lines().any(|said| {
                    said.contains(&place) && said.contains("warning:") && said.contains(text)
                });
                assert!(warned, "C{plus} {level}, line {line}: {said}");
            }
            let warnings = said.matches("warning:").count();
            assert_eq!(warnings, expected.len(), "C{plus} {level}: {said}");
        }
    }
}

/// Neither a warning nor a report, however it is compiled.
#[test]
fn right_programs_are_left_alone() {
    if is_skipped() {
        return;
    }
    for (plus, language) in LANGUAGES {
        for level in LEVELS {
            let scene = Scene::new();
            let arguments = [language, &[level, "-Werror"]].concat();
            let compiler = compiler(plus).unwrap();
            let (program, said) =
                scene.build_with(&compiler, &[&source("right.c")], Link::Shared, &arguments);
            assert_eq!(said, "");
            assert_eq!(program.says(&[]), "right\n", "C{plus} {level}");
        }
    }
}

#[test]
fn a_list_is_walked_without_a_check() {
    if is_skipped() {
        return;
    }
    for level in LEVELS {
        let scene = Scene::new();
        let arguments = [level, "-Werror", "-DMNEME_CHECKED"];
        let compiler = compiler("").unwrap();
        let (program, _) =
            scene.build_with(&compiler, &[&source("list.c")], Link::Shared, &arguments);
        assert_eq!(program.says(&["100", "3"]), "14850, 0 checks\n", "{level}");
    }
}

/// What the other half does is not checked; it stops no right program, and a wrong access in the
/// half that is checked is still reported.
#[test]
fn a_program_may_be_compiled_in_part() {
    if is_skipped() {
        return;
    }
    for level in LEVELS {
        let scene = Scene::new();
        let compiler = compiler("").unwrap();
        let plain = scene.path("half_plain.o");
        let mut half = Command::new(&compiler);
        half.args(["-std=c11", level, "-c", "-I"])
            .arg(home().join("include"));
        half.arg(source("half_plain.c")).arg("-o").arg(&plain);
        assert!(half.status().unwrap().success());
        let (program, _) = scene.build_with(
            &compiler,
            &[&source("half.c"), &plain],
            Link::Shared,
            &[level],
        );
        assert_eq!(program.says(&[]), "right\n", "{level}");
        let wrong = program.run(&["wrong"]);
        let said = String::from_utf8_lossy(&wrong.stderr);
        let (line, _) = marked("half.c", "wrong").remove(0);
        assert!(
            said.contains(&format!("half.c:{line}: in main")),
            "{level}: {said}"
        );
        assert!(said.contains(message("FOLLOWED")), "{level}: {said}");
    }
}
