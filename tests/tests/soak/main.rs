//! Tests that depend on luck, on time or on the kernel's page cache. Only `make soak` runs them.

mod caches;
mod crashes;
mod hostile_peers;
mod mounts_end;
