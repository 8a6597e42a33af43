//! The tests over `/dev/fuse`.

pub const TRANSPORT: sheen_fuse::IoUring = sheen_fuse::IoUring::Off;

#[path = "coherence.rs"]
mod coherence;
#[path = "memfs/mod.rs"]
mod memfs;
#[path = "mounted.rs"]
mod mounted;
