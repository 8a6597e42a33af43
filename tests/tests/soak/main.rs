//! What needs luck or time, or the kernel's page cache. Only `make soak` runs it.

mod caches;
