//! Links the program to a fixed address, as Go links its own. Otherwise the dynamic linker writes 3,000 addresses into
//! it before `main`, and the kernel copies each page for that, again in every process that is forked: a twentieth of a
//! launch. Heap, stack and libraries still lie at random addresses.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-no-pie");
}
