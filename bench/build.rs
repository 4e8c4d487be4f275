//! Compiles the calls of Berkeley DB, whose methods are pointers in its structures.

fn main() {
    println!("cargo::rerun-if-changed=src/tree/engines/bdb.c");
    #[cfg(feature = "bdb")]
    {
        let mut build = cc::Build::new();
        build.file("src/tree/engines/bdb.c").compile("mneme_bdb");
        println!("cargo::rustc-link-lib=db-5.3");
    }
}
