//! The sheen binary.
fn main() {}
