//! How the shared library is linked.

fn main() {
    // The name under which programs look for it: a new number with every incompatible release.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmneme.so.0");
    // Never unloaded: threads and forks that have used it call it when they end.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
