//! The header says what the library has: every function with the same types, every structure with
//! the same layout, every code with the same number. The C compiler is the judge, for a second
//! declaration that differs is an error.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;

use common::{Scene, compiler, home};

/// All sources of the library.
fn sources() -> String {
    let mut files: Vec<_> = std::fs::read_dir(home().join("src"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let texts = files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap());
    texts.collect()
}

/// A type of the border, as C has it.
fn in_c(rust: &str) -> &str {
    match rust {
        "c_int" => "int",
        "c_uint" => "unsigned",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "f64" => "double",
        "*mut f64" => "double *",
        "i32" => "int32_t",
        "usize" => "size_t",
        "VasId" => "vasid_t",
        "SegId" => "segid_t",
        "VasHandle" => "vhandle_t",
        "CacheId" => "mneme_cache_t",
        "*const u64" => "const uint64_t *",
        "*mut Place" => "mneme_place_t *",
        "*mut CacheStat" => "mneme_cache_stat_t *",
        "Fetch" => "fetch_t",
        "StoreId" => "mneme_store_t",
        "i64" => "int64_t",
        "*mut i64" => "int64_t *",
        "*mut u64" => "uint64_t *",
        "*const Options" => "const mneme_options_t *",
        "*const Bytes" => "const mneme_bytes_t *",
        "*const Scored" => "const mneme_scored_t *",
        "*const Pair" => "const mneme_pair_t *",
        "*mut Stat" => "mneme_stat_t *",
        "Decide" => "decide_t",
        "EachValue" => "each_value_t",
        "EachRecord" => "each_record_t",
        "EachElement" => "each_element_t",
        "EachScored" => "each_scored_t",
        "*const c_char" => "const char *",
        "*const c_void" => "const void *",
        "*mut c_void" => "void *",
        "*mut *mut c_void" => "void **",
        "*mut usize" => "size_t *",
        "Each" => "each_t",
        "EachMember" => "each_member_t",
        "" => "void",
        other => panic!("what is `{other}` in C?"),
    }
}

struct Function {
    name: String,
    prototype: String,
}

/// The functions that the sources export.
fn functions() -> Vec<Function> {
    let sources = sources();
    let parts = sources.split("#[unsafe(no_mangle)]").skip(1);
    let read = |part: &str| {
        let (_, head) = part.split_once("extern \"C\" fn ").unwrap();
        let (head, _) = head.split_once('{').unwrap();
        let (name, rest) = head.split_once('(').unwrap();
        let (arguments, result) = rest.rsplit_once(')').unwrap();
        let types: Vec<_> = arguments
            .split(',')
            .filter_map(|argument| Some(in_c(argument.split_once(':')?.1.trim())))
            .collect();
        let result = in_c(result.trim().trim_start_matches("->").trim());
        let types = if types.is_empty() {
            "void".to_owned()
        } else {
            types.join(", ")
        };
        Function {
            name: name.to_owned(),
            prototype: format!("{result} {name}({types});"),
        }
    };
    parts.map(read).collect()
}

fn header() -> String {
    std::fs::read_to_string(home().join("include/mneme.h")).unwrap()
}

/// Names that are declared as functions in the header's C.
fn declared() -> BTreeSet<String> {
    let header = header();
    let mut names = BTreeSet::new();
    let mut comment = false;
    for line in header.lines() {
        if line.starts_with("#ifdef __cplusplus") && !names.is_empty() {
            break;
        }
        comment |= line.starts_with("/*");
        if !comment
            && !line.starts_with(['#', ' ', '}'])
            && !line.starts_with("typedef")
            && let Some((head, _)) = line.split_once('(')
        {
            let name = head.rsplit([' ', '*']).next().unwrap();
            names.insert(name.to_owned());
        }
        comment &= !line.ends_with("*/");
    }
    names
}

#[test]
fn every_function_is_declared_as_it_is() {
    let functions = functions();
    let exported: BTreeSet<_> = functions.iter().map(|f| f.name.clone()).collect();
    assert!(exported.len() > 60, "{exported:?}");
    assert_eq!(exported, declared());
    let mut source = String::from(
        "#include <mneme.h>\n\
         typedef int (*each_t)(const char *, void *);\n\
         typedef int (*each_member_t)(const char *, int, void *);\n\
         typedef int (*decide_t)(const void *, size_t, mneme_change_t *, void *);\n\
         typedef int (*fetch_t)(const void **, size_t *, void *);\n\
         typedef int (*each_value_t)(size_t, const void *, size_t, void *);\n\
         typedef int (*each_record_t)(const void *, size_t, const void *, size_t, void *);\n\
         typedef int (*each_element_t)(const void *, size_t, void *);\n\
         typedef int (*each_scored_t)(const void *, size_t, double, void *);\n",
    );
    for function in &functions {
        writeln!(source, "{}", function.prototype).unwrap();
    }
    check(&source);
}

/// The constants of `code.rs` and the layouts of the structures that programs hand in.
#[test]
fn every_number_and_layout_is_the_same() {
    let sources = sources();
    let (_, codes) = sources.split_once("pub(crate) enum Code {").unwrap();
    let (codes, _) = codes.split_once('}').unwrap();
    let numbers: Vec<&str> = codes
        .lines()
        .filter_map(|line| Some(line.trim().trim_end_matches(',').split_once(" = ")?.1))
        .collect();
    // In the order of the header, which has the same numbers once each.
    let header = header();
    let in_header: Vec<&str> = header
        .lines()
        .filter(|line| {
            let is_code = line.starts_with("#define MNEME_E") && !line.contains("MNEME_EVICT");
            is_code || line.starts_with("#define MNEME_OK")
        })
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    assert_eq!(numbers, in_header);
    assert_eq!(numbers.len(), 26);

    let mut source = String::from("#include <mneme.h>\n");
    for (rust, c) in [
        ("VasStat", "vas_stat_t"),
        ("SegStat", "seg_stat_t"),
        ("Options", "mneme_options_t"),
        ("Change", "mneme_change_t"),
        ("Bytes", "mneme_bytes_t"),
        ("Pair", "mneme_pair_t"),
        ("Scored", "mneme_scored_t"),
        ("Stat", "mneme_stat_t"),
        ("CacheStat", "mneme_cache_stat_t"),
        ("Place", "mneme_place_t"),
    ] {
        let (_, fields) = sources
            .split_once(&format!("pub struct {rust} {{"))
            .unwrap();
        let (fields, _) = fields.split_once("\n}").unwrap();
        let mut at = 0;
        for field in fields.lines().filter(|line| line.contains(": ")) {
            let (name, of) = field.trim().trim_end_matches(',').split_once(": ").unwrap();
            let bytes = match of {
                "u64" | "usize" | "f64" | "*mut c_void" | "*const c_void" | "*const c_char" => 8,
                "Bytes" => 16,
                "u32" | "i32" => 4,
                "[u8; 16]" => 16,
                "[u8; 208]" => 208,
                other => panic!("how long is {other}?"),
            };
            let right =
                format!("offsetof({c}, {name}) == {at} && sizeof ((({c} *)0)->{name}) == {bytes}");
            writeln!(source, "_Static_assert({right}, \"{c}.{name}\");").unwrap();
            at += bytes;
        }
        writeln!(source, "_Static_assert(sizeof({c}) == {at}, \"{c}\");").unwrap();
    }
    check(&source);
}

/// Compiles it, or fails with what the compiler says.
fn check(source: &str) {
    let Some(cc) = compiler("") else { return };
    let scene = Scene::new();
    let file = scene.path("check.c");
    std::fs::write(&file, source).unwrap();
    let mut compile = Command::new(cc);
    compile.args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
        "-I",
    ]);
    let checked = compile.arg(home().join("include")).arg(&file).output();
    let checked = checked.unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
}
