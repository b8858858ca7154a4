//! Tells the compiler that `cfg(loom)` is meant: the model checks of the lock-free parts.
fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rerun-if-changed=build.rs");
}
