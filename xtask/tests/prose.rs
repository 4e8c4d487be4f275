//! A form that prose does not have is found where it is planted, and nowhere else.

use std::path::Path;
use xtask::prose::{Rule, check};

fn rules(file: &str, text: &str) -> Vec<(usize, Rule)> {
    let findings = check(Path::new(file), text);
    findings
        .iter()
        .map(|found| (found.line, found.rule))
        .collect()
}

#[test]
fn planted_violations_are_found_with_their_lines() {
    for (text, expected) in [
        ("// Who reads waits.\n", vec![(1, Rule::Who)]),
        (
            "// It waits.\n// Whoever\n// writes goes on.\n",
            vec![(2, Rule::Who)],
        ),
        (
            "let a = 1; // It waits. Who reads goes on.\n",
            vec![(1, Rule::Who)],
        ),
        ("/// **Who holds it** lets go.\n", vec![(1, Rule::Who)]),
        ("// It keeps his lock.\n", vec![(1, Rule::He)]),
        ("fn a_reader_sees_what_he_wrote() {}\n", vec![(1, Rule::He)]),
        (
            "/// The same, without waiting.\nfn f() {}\n",
            vec![(1, Rule::TheSame)],
        ),
        (
            "fn begin_vigil() {}\nstruct MyTenancy;\n",
            vec![(1, Rule::Word), (2, Rule::Word)],
        ),
        ("// There is no room left.\n", vec![(1, Rule::Word)]),
        (
            "/// Whose slot it is.\nfn owner() {}\n",
            vec![(1, Rule::Whose)],
        ),
        ("// No frame is to be had.\n", vec![(1, Rule::Phrase)]),
        ("/// That it was done.\n", vec![(1, Rule::Clause)]),
        ("/// What cannot be\n/// read.\n", vec![(1, Rule::Clause)]),
        (
            "/// Where in\n/// it that lies. So.\n",
            vec![(1, Rule::Clause)],
        ),
        ("/// What a step comes to.\n", vec![(1, Rule::Clause)]),
        ("/// Has the thread wait.\n", vec![(1, Rule::Has)]),
        ("// It came to nothing.\n", vec![(1, Rule::Phrase)]),
        ("/// What came of the step.\n", vec![(1, Rule::Clause)]),
        ("/// So many bytes.\n", vec![(1, Rule::Clause)]),
        (
            "// A thread stands still, and waits in vain.\n",
            vec![(1, Rule::Phrase), (1, Rule::Phrase)],
        ),
        (
            "// It hears of a key.\n// The bytes are needed no more.\n",
            vec![(1, Rule::Phrase), (2, Rule::Phrase)],
        ),
        ("// A head goes on behind it.\n", vec![(1, Rule::Phrase)]),
        ("// From here on it is not read.\n", vec![(1, Rule::Phrase)]),
        (
            "// It waits, for they\n// read. A record tells of it.\n",
            vec![(1, Rule::Phrase), (2, Rule::Phrase)],
        ),
    ] {
        assert_eq!(rules("a.rs", text), expected, "{text}");
    }
    let long = format!("// {}\n", "word ".repeat(25));
    assert_eq!(rules("a.rs", &long), [(1, Rule::Long)]);
    assert_eq!(rules("a.md", &long), [(1, Rule::Long)]);
}

#[test]
fn similar_text_is_left_alone() {
    for (file, text) in [
        (
            "a.rs",
            "// A thread who waits.\n// It asks\n// who holds it.\n",
        ),
        (
            "a.rs",
            "// The others: it is at\n// work. The same holds for locks.\n",
        ),
        ("a.rs", "/// It waits.\n/// The same error says so.\n"),
        (
            "a.rs",
            "// So many that it waits. What becomes of it? It overhears often.\n",
        ),
        ("a.rs", "fn a_thread_that_stands_still_waits_in_vain() {}\n"),
        ("a.rs", "/// A slot.\n/// Whose it is, the owner says.\n"),
        (
            "a.rs",
            "// what for? they wait to be hadal\nlet to_be_had = 1;\n",
        ),
        (
            "a.rs",
            "/// Where it lies: in a frame.\nfn a() {}\n/// Has 1,024 slots.\nfn b() {}\n",
        ),
        (
            "a.rs",
            "// That is so. What is not so is\n// left. Has the thread ended?\n",
        ),
        ("a.rs", "// From here on it is free. It is not read.\n"),
        ("a.rs", "// this headroom, mushroom\nlet shift = 1;\n"),
        ("CHANGELOG.md", "- `Registry::room` is `free`.\n"),
        ("a.md", "## Who can read my data?\n"),
        (
            "a.md",
            "| a table's row | that is longer than a line of prose may be, for it cannot be broken anywhere at all |\n",
        ),
        (
            "a.md",
            "```\na line of output that is longer than a line of prose may be, for it is as the program wrote it so\n```\n",
        ),
        (
            "a.rs",
            "//! ```text\n//! a line of a picture that is longer than a line of prose may be, for it is a table of some kind\n//! ```\n",
        ),
        (
            "a.rs",
            "    a_long_line_of_code_that_the_formatter_left_as_it_is_for_there_is_nowhere_to_break_it_up_x();\n",
        ),
    ] {
        assert_eq!(rules(file, text), [], "{text}");
    }
}
