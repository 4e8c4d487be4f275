//! The compiler refuses every misuse of a pointer that SpaceJMP's rules (§3.3) and compiler
//! analysis (§4.3, figure 5) are about, and accepts what they allow. The table in
//! `docs/design/space.md` lists the file for each case.
//!
//! The compiler's messages are compared too, because users see them. After a change of compiler:
//! `TRYBUILD=overwrite cargo test -p mneme-space --test types`.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)]

#[test]
fn pointers_cannot_be_misused() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/refused/*.rs");
    cases.pass("tests/accepted/*.rs");
}

/// The table of the design page names each case.
#[test]
fn the_table_names_every_case() {
    let root = env!("CARGO_MANIFEST_DIR");
    let page = std::fs::read_to_string(format!("{root}/../../docs/design/space.md")).unwrap();
    for directory in ["refused", "accepted"] {
        for entry in std::fs::read_dir(format!("{root}/tests/{directory}")).unwrap() {
            let path = entry.unwrap().path();
            let case = path.file_stem().unwrap().to_str().unwrap();
            assert!(page.contains(&format!("`{case}`")), "{case}");
        }
    }
}
