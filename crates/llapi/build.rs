//! Gives the shared object the same soname as Lustre's: a program linked with either library also
//! finds the other.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblustreapi.so.1");
}
