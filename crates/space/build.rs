//! Tells the crate which compiler builds it: what the compiler lays out at its own will is stored
//! in segments, and another compiler may lay it out otherwise.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=RUSTC");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("-vV").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    // Without an answer two builds could agree by mistake: better none at all.
    let version = version.unwrap_or_default().replace('\n', " ");
    assert!(
        version.contains("rustc"),
        "`rustc -vV` does not say its version"
    );
    println!("cargo::rustc-env=MNEME_RUSTC={version}");
}
