//! The kernel's FUSE protocol: sessions, worker threads, buffers, notifications.
