//! Links the program to a fixed address, as Go links its own. Otherwise the dynamic linker writes 3,000 addresses into
//! it before `main`, and the kernel copies each page for that, again in every process that is forked: a twentieth of a
//! launch. Heap, stack and libraries still lie at random addresses.

#[expect(clippy::disallowed_methods, reason = "cargo speaks by its environment")]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Other C libraries are linked in, by other rules.
    if std::env::var_os("CARGO_CFG_TARGET_ENV").is_some_and(|it| it == "gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
