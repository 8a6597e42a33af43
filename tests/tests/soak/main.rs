//! Tests that depend on luck, on time or on the kernel's page cache. Only `make soak` runs them.

mod caches;
mod crashes;
mod mounts_end;
