//! Options of a session.

/// Whether requests come over io_uring (Linux 6.14 and later, `fuse.enable_uring=1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoUring {
    /// Over `/dev/fuse`.
    #[default]
    Off,
    /// Over io_uring if the kernel offers it, otherwise over `/dev/fuse`.
    Auto,
    /// Over io_uring. Root switches the kernel's parameter on. The mount fails where the kernel
    /// does not offer io_uring.
    On,
}

/// Options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Worker threads. 0 means twice the number of processors, between 4 and 32.
    pub threads: usize,
    /// Transport of the requests. Over io_uring each processor has one thread.
    pub io_uring: IoUring,
    /// Number of threads for [`crate::Notifier::defer`].
    pub notify_threads: usize,
    /// Maximum size of one WRITE, in bytes. Reduced to what the kernel allows
    /// (`/proc/sys/fs/fuse/max_pages_limit`).
    pub max_write: u32,
    /// Maximum number of background requests in flight.
    pub max_background: u16,
    /// Number of background requests from which on the kernel holds further ones back.
    pub congestion_threshold: u16,
    /// Maximum size of all idle buffers together, in bytes.
    pub idle_buffer_bytes_max: usize,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            threads: 0,
            io_uring: IoUring::Off,
            notify_threads: 2,
            max_write: 1 << 20,
            max_background: 64,
            congestion_threshold: 48,
            idle_buffer_bytes_max: 32 << 20,
        }
    }
}
