//! Records the compiler's version for the crate. Segments store types whose layout the compiler
//! chooses, and another compiler may choose another layout.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=RUSTC");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("-vV").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    // Without the version two different compilers could appear equal: it is better not to build.
    let version = version.unwrap_or_default().replace('\n', " ");
    assert!(
        version.contains("rustc"),
        "`rustc -vV` does not say its version"
    );
    println!("cargo::rustc-env=MNEME_RUSTC={version}");
}
