//! Names the shared object as Lustre's is named, so that a program linked with either finds the
//! other.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblustreapi.so.1");
}
