//! INIT: the negotiation between kernel and file system before the first request.
//!
//! The file system starts from defaults ([`InitConfig`]) and changes what it needs. The result is
//! [`Negotiated`]. A flag that the kernel does not offer is never requested.

use zerocopy::FromBytes;

use crate::{
    abi::{
        self,
        flags::init::*,
        structs::{InitIn, InitInExt, InitOut},
    },
    options::SessionOptions,
    pool::PAGE_BYTES,
};

/// Largest size of a WRITE that is ever negotiated, in bytes. `max_pages` (16 bits) would allow 256
/// MiB, but each worker holds a buffer of this size, and larger messages gain nothing.
pub const MAX_WRITE_BYTES_MAX: u32 = 16 << 20;
/// Smallest size of a WRITE that is ever negotiated, in bytes: the minimum that Linux itself
/// accepts.
const MAX_WRITE_BYTES_MIN: u32 = PAGE_BYTES as u32;
/// Smallest maximum of pages in one request with which requests come over io_uring. An entry has
/// room for this many pages, and the value of an extended attribute may have 64 KiB.
const RING_PAGES_MIN: u32 = 32;
/// Maximum pages in one request if the kernel does not report its limit (FUSE_MAX_MAX_PAGES before
/// the limit became a parameter).
const PAGES_LIMIT_DEFAULT: u32 = 256;

/// Flags requested unless the file system changes them.
const DEFAULT_FLAGS: u64 = ASYNC_READ
    | BIG_WRITES
    | ATOMIC_O_TRUNC
    | EXPORT_SUPPORT
    | DONT_MASK
    | HAS_IOCTL_DIR
    | AUTO_INVAL_DATA
    | DO_READDIRPLUS
    | READDIRPLUS_AUTO
    | ASYNC_DIO
    | PARALLEL_DIROPS
    | HANDLE_KILLPRIV_V2
    | MAX_PAGES
    | SETXATTR_EXT
    | INIT_EXT
    | HAS_EXPIRE_ONLY
    | DIRECT_IO_ALLOW_MMAP;

/// Flags that a file system cannot request: this crate does not support them, except for
/// OVER_IO_URING, which the session requests.
const IMPOSSIBLE_FLAGS: u64 = SPLICE_WRITE
    | SPLICE_MOVE
    | SPLICE_READ
    | MAP_ALIGNMENT
    | SECURITY_CTX
    | HAS_INODE_DAX
    | PASSTHROUGH
    | HAS_RESEND
    | OVER_IO_URING;

/// The kernel's offer and the flags and limits that the file system requests.
///
/// Requested by default, if offered:
///
/// * ASYNC_READ, BIG_WRITES, MAX_PAGES, ASYNC_DIO, PARALLEL_DIROPS;
/// * DO_READDIRPLUS with READDIRPLUS_AUTO;
/// * ATOMIC_O_TRUNC (OPEN truncates);
/// * EXPORT_SUPPORT (LOOKUP of `.` and `..` by node id);
/// * DONT_MASK (the file system applies the umask);
/// * HANDLE_KILLPRIV_V2 (the file system drops setuid and setgid bits when a request says so);
/// * SETXATTR_EXT, INIT_EXT, AUTO_INVAL_DATA, HAS_IOCTL_DIR, HAS_EXPIRE_ONLY, DIRECT_IO_ALLOW_MMAP.
///
/// Off unless enabled: POSIX_LOCKS, FLOCK_LOCKS, WRITEBACK_CACHE, POSIX_ACL, CACHE_SYMLINKS,
/// CREATE_SUPP_GROUP, NO_OPEN_SUPPORT, ALLOW_IDMAP and all other flags.
#[derive(Clone, Debug)]
pub struct InitConfig {
    minor: u32,
    offered: u64,
    wanted: u64,
    /// Maximum size of one WRITE, in bytes. Reduced to what the kernel's `max_pages_limit` allows.
    pub max_write: u32,
    /// Maximum readahead of the kernel, in bytes. Starts with the kernel's own value and can only
    /// be lowered.
    pub max_readahead: u32,
    /// Maximum number of background requests (readahead, asynchronous direct I/O) in flight.
    pub max_background: u16,
    /// Number of background requests from which on the kernel holds further ones back.
    pub congestion_threshold: u16,
    /// Granularity of times, in nanoseconds.
    pub time_gran: u32,
    /// With REQUEST_TIMEOUT: seconds after which the kernel aborts the connection because of an
    /// unanswered request.
    pub request_timeout_s: u16,
}

impl InitConfig {
    /// Minor version of the protocol in use.
    pub fn minor(&self) -> u32 {
        self.minor
    }

    /// Whether the kernel offers all of `flags` ([`crate::abi::flags::init`]).
    pub fn offers(&self, flags: u64) -> bool {
        self.offered & flags == flags
    }

    /// Whether all of `flags` are requested and offered.
    pub fn wants(&self, flags: u64) -> bool {
        self.wanted & self.offered & flags == flags
    }

    /// Requests `flags`. Flags that the kernel does not offer stay off.
    pub fn enable(&mut self, flags: u64) {
        self.wanted |= flags & !IMPOSSIBLE_FLAGS;
    }

    /// Stops requesting `flags`.
    pub fn disable(&mut self, flags: u64) {
        self.wanted &= !flags;
    }

    pub(crate) fn new(offer: &Offer, options: &SessionOptions) -> InitConfig {
        InitConfig {
            minor: offer.minor.min(abi::MINOR),
            offered: offer.flags,
            wanted: DEFAULT_FLAGS,
            max_write: options.max_write,
            max_readahead: offer.max_readahead,
            max_background: options.max_background,
            congestion_threshold: options.congestion_threshold,
            time_gran: 1,
            request_timeout_s: 0,
        }
    }

    /// Requests OVER_IO_URING, or no longer.
    pub(crate) fn request_ring(&mut self, ring: bool) {
        self.wanted = if ring { self.wanted | OVER_IO_URING } else { self.wanted & !OVER_IO_URING };
    }

    /// Returns the negotiated values and the reply to INIT that announces them. `pages_limit`: the
    /// kernel's maximum number of pages in one request.
    pub(crate) fn conclude(&self, offer: &Offer, pages_limit: u32) -> (Negotiated, InitOut) {
        let mut flags = self.wanted & self.offered;
        if flags & INIT_EXT == 0 {
            flags &= u64::from(u32::MAX);
        }
        let pages_limit = if flags & MAX_PAGES == 0 { 32 } else { pages_limit.clamp(1, u32::from(u16::MAX)) };
        let page = PAGE_BYTES as u32;
        let max_write =
            self.max_write.clamp(MAX_WRITE_BYTES_MIN, MAX_WRITE_BYTES_MAX).min(pages_limit.saturating_mul(page));
        let max_write = max_write / page * page;
        // Memory that does not begin at a page boundary spans one page more. If the kernel does not
        // allow that page, such a write arrives as two requests.
        let max_pages = (max_write / page + 1).min(pages_limit);
        if max_pages < RING_PAGES_MIN {
            flags &= !OVER_IO_URING;
        }
        let negotiated = Negotiated {
            minor: self.minor,
            flags,
            max_write,
            max_readahead: self.max_readahead.min(offer.max_readahead),
            max_pages,
            max_background: self.max_background,
            congestion_threshold: self.congestion_threshold,
        };
        let out = InitOut {
            major: abi::MAJOR,
            minor: abi::MINOR,
            max_readahead: negotiated.max_readahead,
            flags: flags as u32,
            max_background: self.max_background,
            congestion_threshold: self.congestion_threshold,
            max_write,
            time_gran: self.time_gran.clamp(1, 1_000_000_000),
            max_pages: max_pages as u16,
            flags2: (flags >> 32) as u32,
            request_timeout: if flags & REQUEST_TIMEOUT == 0 { 0 } else { self.request_timeout_s },
            ..Default::default()
        };
        (negotiated, out)
    }
}

/// Values that kernel and file system negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor version of the protocol.
    pub minor: u32,
    /// Flags in force ([`crate::abi::flags::init`]).
    pub flags: u64,
    /// Maximum size of one WRITE, in bytes. By the mount option `max_read` also of one READ.
    pub max_write: u32,
    /// Maximum readahead of the kernel, in bytes.
    pub max_readahead: u32,
    /// Maximum number of pages in one request.
    pub max_pages: u32,
    /// Maximum number of background requests in flight.
    pub max_background: u16,
    /// Number of background requests from which on the kernel holds further ones back.
    pub congestion_threshold: u16,
}

impl Negotiated {
    /// Whether all of `flags` are in force.
    pub fn has(&self, flags: u64) -> bool {
        self.flags & flags == flags
    }

    /// Whether requests come over io_uring.
    pub fn is_over_io_uring(&self) -> bool {
        self.has(OVER_IO_URING)
    }

    /// Returns the room for data that the kernel demands of a ring entry, in bytes.
    pub(crate) fn ring_payload_bytes(&self) -> usize {
        (self.max_pages as usize * PAGE_BYTES).max(self.max_write as usize).max(abi::READ_BUFFER_BYTES_MIN)
    }
}

/// The kernel's INIT request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: u64,
}

impl Offer {
    /// Parses the body of INIT. Returns `None` if it is too short. Kernels before 7.36 do not send
    /// the second word of flags.
    pub(crate) fn parse(body: &[u8]) -> Option<Offer> {
        let (init, rest) = InitIn::read_from_prefix(body).ok()?;
        let mut flags = u64::from(init.flags);
        if flags & INIT_EXT != 0
            && let Ok((ext, _)) = InitInExt::read_from_prefix(rest)
        {
            flags |= u64::from(ext.flags2) << 32;
        }
        Some(Offer { major: init.major, minor: init.minor, max_readahead: init.max_readahead, flags })
    }
}

/// Returns the kernel's maximum number of pages in one request.
pub(crate) fn pages_limit() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit").unwrap_or_default();
    text.trim().parse().unwrap_or(PAGES_LIMIT_DEFAULT)
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn offer(flags: u64) -> Offer {
        Offer { major: 7, minor: 45, max_readahead: 1 << 17, flags }
    }

    #[test]
    fn init_never_requests_unoffered_or_unsupported_flags() {
        let offer = offer(ASYNC_READ | MAX_PAGES | PASSTHROUGH | INIT_EXT);
        let mut config = InitConfig::new(&offer, &SessionOptions::default());
        config.enable(PASSTHROUGH | FLOCK_LOCKS | WRITEBACK_CACHE);
        let (n, out) = config.conclude(&offer, 256);
        assert_eq!(n.flags, ASYNC_READ | MAX_PAGES | INIT_EXT);
        assert_eq!((out.flags, out.flags2), (n.flags as u32, 0));
    }

    #[test]
    fn init_sends_high_flags_only_with_init_ext() {
        let offer = offer(u64::MAX);
        let mut config = InitConfig::new(&offer, &SessionOptions::default());
        let (n, out) = config.conclude(&offer, 256);
        assert!(n.has(DIRECT_IO_ALLOW_MMAP));
        assert!(!n.has(WRITEBACK_CACHE));
        assert_eq!(out.flags2, ((DIRECT_IO_ALLOW_MMAP | HAS_EXPIRE_ONLY) >> 32) as u32);
        config.disable(INIT_EXT);
        assert_eq!(config.conclude(&offer, 256).1.flags2, 0);
    }

    #[test]
    fn ring_is_requested_only_with_room_for_every_message() {
        let offer = offer(u64::MAX);
        let mut config = InitConfig::new(&offer, &SessionOptions::default());
        config.enable(OVER_IO_URING);
        assert!(!config.conclude(&offer, 256).0.is_over_io_uring(), "not for a file system to decide");
        config.request_ring(true);
        let (n, out) = config.conclude(&offer, 257);
        assert!(n.is_over_io_uring() && out.flags2 & (OVER_IO_URING >> 32) as u32 != 0);
        assert_eq!(n.ring_payload_bytes(), 257 * 4096);
        config.max_write = 30 * 4096;
        assert!(!config.conclude(&offer, 257).0.is_over_io_uring());
        config.max_write = 31 * 4096;
        assert!(config.conclude(&offer, 257).0.is_over_io_uring());
        config.request_ring(false);
        assert!(!config.conclude(&offer, 257).0.is_over_io_uring());
    }

    #[test]
    fn max_write_follows_the_kernels_page_limit() {
        let offer = offer(u64::MAX);
        let mut config = InitConfig::new(&offer, &SessionOptions::default());
        config.max_write = 8 << 20;
        assert_eq!(config.conclude(&offer, 256).0.max_write, 1 << 20);
        let (n, out) = config.conclude(&offer, 65535);
        assert_eq!((n.max_write, out.max_pages), (8 << 20, 2049));
        config.max_write = u32::MAX;
        assert_eq!(config.conclude(&offer, 65535).0.max_write, MAX_WRITE_BYTES_MAX);
        config.max_write = 0;
        assert_eq!(config.conclude(&offer, 0).0.max_write, 4096);
        config.disable(MAX_PAGES);
        config.max_write = 1 << 20;
        assert_eq!(config.conclude(&offer, 256).0.max_write, 32 * 4096, "limit of a kernel without max_pages");
    }

    #[test]
    fn init_parses_short_and_long_form() {
        let init = InitIn { major: 7, minor: 31, max_readahead: 9, flags: ASYNC_READ as u32 };
        assert_eq!(
            Offer::parse(init.as_bytes()),
            Some(Offer { major: 7, minor: 31, max_readahead: 9, flags: ASYNC_READ })
        );
        let mut long = InitIn { flags: INIT_EXT as u32, ..init }.as_bytes().to_vec();
        long.extend(InitInExt { flags2: 2, ..Default::default() }.as_bytes());
        assert_eq!(Offer::parse(&long).map(|o| o.flags), Some(INIT_EXT | 1 << 33));
        assert_eq!(Offer::parse(&long[..15]), None);
    }
}
