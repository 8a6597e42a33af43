//! A mounted file system: its threads and its end.
//!
//! Requests come over `/dev/fuse` to several workers, or over io_uring to one thread for each
//! processor and, for what the kernel does not send over rings, to one worker.
//!
//! The end: after an unmount or abort every read of the device fails with ENODEV, and each worker
//! exits. The first one ends the rings' threads. The last thread calls [`Filesystem::destroy`] and
//! wakes [`Session::join`].

use std::{
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    mount::UnmountFlags,
};
use sheen_wire::Errno;

use crate::{
    abi::{self, opcode, structs::InHeader},
    channel::Channel,
    counters::Counters,
    device::{Device, ReadError},
    init::{InitConfig, Negotiated, Offer, pages_limit},
    lane::Lane,
    mount::{self, MountError, MountOptions},
    mount_flags::{FlagsWatch, MountFlags},
    mount_table::connection_number,
    notify::Notifier,
    options::{IoUring, SessionOptions},
    parse,
    pool::{PAGE_BYTES, Pool},
    reply::Reply,
    ring::{self, Ring},
    ring_switch::{IoUringError, IoUringSwitch},
    server::{Filesystem, Server, Serving},
    worker::Worker,
};

/// Room for any message except WRITE, in bytes: the value of an extended attribute may have 64 KiB,
/// plus its name and headers.
const MESSAGE_BYTES_MIN: usize = 128 << 10;
/// Maximum number of worker threads.
const THREADS_MAX: usize = 256;
/// Time limit for INIT, which the kernel normally sends at once.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Counters of a session since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Messages read.
    pub requests: u64,
    /// Replies that the kernel accepted.
    pub replies: u64,
    /// Replies that the kernel refused because it no longer waited for them.
    pub lost_replies: u64,
    /// Bytes read from the kernel.
    pub bytes_in: u64,
    /// Bytes written to the kernel.
    pub bytes_out: u64,
    /// Bytes of file data copied in this process.
    pub bytes_copied: u64,
    /// Bytes spliced to the kernel from files' pages.
    pub bytes_spliced: u64,
    /// Buffers allocated.
    pub buffers_allocated: u64,
    /// Ring entries that hold a request without a reply.
    pub ring_entries_in_use: u64,
}

/// A mounted file system. Dropping it unmounts (lazily if in use).
pub struct Session {
    server: Arc<Server>,
    devices: Vec<Arc<Device>>,
    lanes: Vec<Arc<Lane>>,
    mountpoint: PathBuf,
    connection: Option<u32>,
    /// The kernel's unique id of this mount, which is never reused. `None` before Linux 6.8.
    unique_id: Option<u64>,
    flags: Arc<FlagsWatch>,
}

impl Session {
    /// Mounts, negotiates with the kernel, and starts serving requests.
    pub fn mount(
        mount: MountOptions,
        options: SessionOptions,
        filesystem: Arc<impl Filesystem>,
    ) -> Result<Session, MountError> {
        let filesystem: Arc<dyn Filesystem> = filesystem;
        if IoUringSwitch::prepare(options.io_uring).map_err(MountError::IoUring)? {
            tracing::info!("switched FUSE over io_uring on in the kernel (fuse.enable_uring=1), for all new mounts");
        }
        let limit = pages_limit();
        let max_read = options.max_write.min(limit.saturating_mul(PAGE_BYTES as u32)).max(PAGE_BYTES as u32);
        let (fd, mountpoint) = mount::mount(&mount, max_read)?;
        let device = Arc::new(Device::new(fd));
        match initialise(&device, &*filesystem, &options, limit) {
            Ok((negotiated, rings)) => {
                let devices = channels(device, if rings.is_empty() { threads(&options) } else { 1 });
                Session::start(devices, rings, negotiated, &options, filesystem, mountpoint, mount.flags)
            }
            Err(e) => {
                let _ = mount::unmount(&mountpoint, true);
                Err(e)
            }
        }
    }

    fn start(
        devices: Vec<Arc<Device>>,
        rings: Vec<Ring>,
        negotiated: Negotiated,
        options: &SessionOptions,
        filesystem: Arc<dyn Filesystem>,
        mountpoint: PathBuf,
        flags: MountFlags,
    ) -> Result<Session, MountError> {
        let buffer_bytes = PAGE_BYTES + (negotiated.max_write as usize).max(MESSAGE_BYTES_MIN);
        let pool = Pool::new(buffer_bytes, options.idle_buffer_bytes_max / buffer_bytes);
        let notifier = Notifier::new(devices[0].clone(), negotiated);
        filesystem.started(&negotiated, &notifier);
        let server = Server::new(filesystem, negotiated, pool, notifier);
        let connection = connection_number(&mountpoint);
        // From here on, if a thread fails to start, the drop of the session unmounts.
        let unique_id = mount::unique_id(&mountpoint);
        let flags = Arc::new(FlagsWatch::new(connection, flags));
        let lanes = rings.iter().map(|r| r.lane().clone()).collect();
        let session = Session { server, devices, lanes, mountpoint, connection, unique_id, flags };
        session.start_threads(rings, options)?;
        Ok(session)
    }

    fn start_threads(&self, rings: Vec<Ring>, options: &SessionOptions) -> Result<(), MountError> {
        for i in 0..options.notify_threads.min(THREADS_MAX) {
            let notifier = self.notifier();
            spawn(format!("fuse-notify-{i}"), move || notifier.serve())?;
        }
        let worker = |device: &Arc<Device>| Worker {
            server: self.server.register(),
            device: device.clone(),
            lanes: self.lanes.clone(),
        };
        let workers: Vec<Worker> = self.devices.iter().map(worker).collect();
        let rings: Vec<(Ring, Serving)> = rings.into_iter().map(|ring| (ring, self.server.register())).collect();
        for (i, worker) in workers.into_iter().enumerate() {
            spawn(format!("fuse-{i}"), move || worker.run())?;
        }
        for (i, (ring, serving)) in rings.into_iter().enumerate() {
            spawn(format!("fuse-ring-{i}"), move || ring.run(&serving))?;
        }
        Ok(())
    }

    /// Returns the values negotiated with the kernel.
    pub fn negotiated(&self) -> &Negotiated {
        self.server.negotiated()
    }

    /// Returns the full path of the mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Returns the flags of the mount, which a remount changes.
    pub fn flags(&self) -> Arc<FlagsWatch> {
        self.flags.clone()
    }

    /// Sets the kernel's readahead for a sequential reader of one file, in bytes. Applies to files
    /// that are opened from now on. With 0, requests have at most 128 KiB, and the kernel reads
    /// ahead by at most one of them, for a program that reads several pages at a time. Before the
    /// first call, its default of 128 KiB applies.
    ///
    /// # Errors
    /// EACCES: only root may set it. ENODEV: the mount has ended. Otherwise the kernel's error.
    pub fn set_readahead(&self, bytes: u64) -> io::Result<()> {
        let number = self.connection.ok_or(Errno::ENODEV)?;
        mount::set_readahead(number, bytes)
    }

    /// Returns the sender of notifications to the kernel.
    pub fn notifier(&self) -> Notifier {
        self.server.notifier().clone()
    }

    /// Returns the session's counters.
    pub fn stats(&self) -> SessionStats {
        let mut sum = SessionStats {
            buffers_allocated: self.server.pool().allocated(),
            ring_entries_in_use: self.lanes.iter().map(|lane| lane.in_use()).sum(),
            ..Default::default()
        };
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let counters: [&mut dyn Iterator<Item = &Counters>; 2] =
            [&mut self.devices.iter().map(|d| &d.counters), &mut self.lanes.iter().map(|l| &l.counters)];
        for counters in counters.into_iter().flatten() {
            sum.requests += get(&counters.requests);
            sum.replies += get(&counters.replies);
            sum.lost_replies += get(&counters.lost_replies);
            sum.bytes_in += get(&counters.bytes_in);
            sum.bytes_out += get(&counters.bytes_out);
            sum.bytes_copied += get(&counters.bytes_copied);
            sum.bytes_spliced += get(&counters.bytes_spliced);
        }
        sum
    }

    /// Unmounts, lazily if in use. Does nothing if already unmounted. Must not be called from a
    /// worker thread.
    pub fn unmount(&self) -> io::Result<()> {
        if self.is_mounted() { mount::unmount(&self.mountpoint, true) } else { Ok(()) }
    }

    /// Unmounts, or fails with EBUSY if in use. Does nothing if already unmounted.
    pub fn try_unmount(&self) -> io::Result<()> {
        if self.is_mounted() { mount::unmount(&self.mountpoint, false) } else { Ok(()) }
    }

    /// Whether this mount is still in the mount tree of this process's mount namespace, dead or
    /// alive.
    pub fn is_mounted(&self) -> bool {
        match self.connection {
            // The kernel reuses connection numbers at once, so the number alone may belong to a
            // newer mount.
            Some(_) => {
                connection_number(&self.mountpoint) == self.connection
                    && mount::unique_id(&self.mountpoint) == self.unique_id
            }
            None => !self.has_ended(),
        }
    }

    /// Aborts the connection: every pending and later operation on the mount fails, even if the
    /// file system hangs. The mount point stays as a dead mount until it is unmounted.
    pub fn abort(&self) -> io::Result<()> {
        let by_file = match self.connection {
            Some(n) => std::fs::write(format!("/sys/fs/fuse/connections/{n}/abort"), "1"),
            None => Err(Errno::ENODEV.into()),
        };
        if by_file.is_ok() || self.has_ended() || !rustix::process::geteuid().is_root() {
            return by_file;
        }
        // fusectl is not mounted. A forced unmount aborts the connection, even if the unmount
        // itself then fails.
        match rustix::mount::unmount(&self.mountpoint, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether the mount has ended and [`Filesystem::destroy`] has returned.
    pub fn has_ended(&self) -> bool {
        self.server.has_ended()
    }

    /// Waits until the mount has ended and [`Filesystem::destroy`] has returned.
    pub fn join(&self) {
        self.server.wait_for_end(None);
    }

    /// As [`Session::join`], for at most `timeout`. Returns whether the session has ended.
    pub fn join_timeout(&self, timeout: Duration) -> bool {
        self.server.wait_for_end(Some(Instant::now() + timeout))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(e) = self.unmount() {
            tracing::warn!(mountpoint = %self.mountpoint.display(), "cannot unmount: {e}; the mount point stays in use");
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("mountpoint", &self.mountpoint).field("negotiated", self.negotiated()).finish()
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<(), MountError> {
    thread::Builder::new().name(name).spawn(run).map(drop).map_err(MountError::Thread)
}

fn threads(options: &SessionOptions) -> usize {
    match options.threads {
        0 => (2 * thread::available_parallelism().map_or(2, |n| n.get())).clamp(4, 32),
        n => n.min(THREADS_MAX),
    }
}

/// Opens one channel for each worker. If the device cannot be cloned, workers share the first
/// channel.
fn channels(first: Arc<Device>, count: usize) -> Vec<Arc<Device>> {
    let mut devices = vec![first.clone()];
    while devices.len() < count {
        devices.push(first.another().map_or_else(
            |e| {
                tracing::debug!("cannot clone /dev/fuse: {e}; this worker shares the first channel");
                first.clone()
            },
            Arc::new,
        ));
    }
    devices
}

/// Reads INIT and answers it. Returns the rings if requests come over io_uring.
fn initialise(
    device: &Arc<Device>,
    filesystem: &dyn Filesystem,
    options: &SessionOptions,
    pages_limit: u32,
) -> Result<(Negotiated, Vec<Ring>), MountError> {
    let failed = |e: Errno| MountError::Init(e.into());
    let mut buffer = vec![0; MESSAGE_BYTES_MIN.max(abi::READ_BUFFER_BYTES_MIN)];
    loop {
        let n = read_in_time(device, &mut buffer)?;
        let head = parse::header(&buffer[..n]).filter(|h| h.opcode == opcode::INIT).ok_or(failed(Errno::EPROTO))?;
        let reply = Reply::new(Channel::Device(device.clone()), head.unique);
        let offer = Offer::parse(&buffer[size_of::<InHeader>()..n]).ok_or(failed(Errno::EPROTO))?;
        if offer.major > abi::MAJOR {
            // The kernel will repeat INIT with the version in this reply.
            reply.init(&abi::structs::InitOut { major: abi::MAJOR, minor: abi::MINOR, ..Default::default() });
            continue;
        }
        if offer.major < abi::MAJOR || offer.minor < abi::MINOR_MIN {
            reply.error(Errno::EPROTO);
            return Err(MountError::Version { major: offer.major, minor: offer.minor });
        }
        let mut config = InitConfig::new(&offer, options);
        filesystem.init(&mut config);
        let rings = match rings(device, &mut config, &offer, options, pages_limit) {
            Ok(rings) => rings,
            Err(e) => {
                reply.error(Errno::EPROTO);
                return Err(MountError::IoUring(e));
            }
        };
        let (negotiated, out) = config.conclude(&offer, pages_limit);
        reply.init(&out);
        return Ok((negotiated, rings));
    }
}

/// Creates the rings and requests them in `config`, if the options want them and the kernel offers
/// them. After the reply to INIT the kernel waits for rings, so they must exist before.
fn rings(
    device: &Device,
    config: &mut InitConfig,
    offer: &Offer,
    options: &SessionOptions,
    pages_limit: u32,
) -> Result<Vec<Ring>, IoUringError> {
    config.request_ring(options.io_uring != IoUring::Off);
    let (negotiated, _) = config.conclude(offer, pages_limit);
    let prepared = if negotiated.is_over_io_uring() {
        ring::prepare(device.as_fd(), negotiated.ring_payload_bytes()).map_err(IoUringError::Failed)
    } else {
        Err(IoUringError::NotOffered)
    };
    match (prepared, options.io_uring) {
        (Err(e), IoUring::On) => Err(e),
        (Err(e), wish) => {
            if wish == IoUring::Auto {
                tracing::debug!("requests come over /dev/fuse, not over io_uring: {e}");
            }
            config.request_ring(false);
            Ok(Vec::new())
        }
        (Ok(rings), _) => Ok(rings),
    }
}

fn read_in_time(device: &Device, buffer: &mut [u8]) -> Result<usize, MountError> {
    let failed = |e: Errno| MountError::Init(e.into());
    let timeout = Timespec { tv_sec: INIT_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    loop {
        match rustix::event::poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(failed(Errno::ETIMEDOUT)),
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(MountError::Init(e.into())),
            Ok(_) => {}
        }
        match device.read(buffer) {
            Ok(n) => return Ok(n),
            Err(ReadError::Again) => continue,
            Err(ReadError::Ended) => return Err(failed(Errno::ENODEV)),
            Err(ReadError::Failed(e)) => return Err(MountError::Init(e)),
        }
    }
}
