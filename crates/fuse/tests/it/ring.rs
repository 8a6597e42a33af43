//! The tests over io_uring. Root switches it on in the kernel.

pub const TRANSPORT: sheen_fuse::IoUring = sheen_fuse::IoUring::On;

#[path = "coherence.rs"]
mod coherence;
#[path = "entries.rs"]
mod entries;
#[path = "memfs/mod.rs"]
mod memfs;
#[path = "mounted.rs"]
mod mounted;
