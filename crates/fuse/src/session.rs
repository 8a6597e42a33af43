//! A mounted file system: its worker threads and its end.
//!
//! Each worker owns a channel to the kernel and a page-aligned buffer. It fills the buffer from
//! [`MESSAGE_START`] on. The headers of a WRITE then end at a page boundary, and its payload is
//! page-aligned. Workers share no lock except the pool's, which only large writes take.
//!
//! The end: after an unmount or abort every read of the device fails with ENODEV, and each worker
//! exits. The last one calls [`Filesystem::destroy`] and wakes [`Session::join`].

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    mount::UnmountFlags,
};
use sheen_wire::Errno;

use crate::{
    abi::{self, flags::init::SETXATTR_EXT, opcode, structs::InHeader},
    device::{Device, ReadError},
    init::{InitConfig, Negotiated, Offer, pages_limit},
    interrupts::EarlyInterrupts,
    mount::{self, MountError, MountOptions},
    mount_flags::{FlagsWatch, MountFlags},
    mount_table::connection_number,
    notify::Notifier,
    options::SessionOptions,
    parse::{self, Incoming, WRITE_HEAD_BYTES},
    pool::{Buffer, PAGE_BYTES, Pool},
    reply::Reply,
    request::Request,
};

/// A payload of at most this many bytes is copied out of the worker's buffer. A larger one takes
/// the buffer along. Copying 16 KiB takes about a microsecond. A buffer that is handed over
/// occupies `max_write` bytes for as long as the data lives.
pub const COPY_PAYLOAD_BYTES_MAX: usize = 16 << 10;
/// Offset in the buffer at which a message begins. The payload of a WRITE then begins at the second
/// page.
const MESSAGE_START: usize = PAGE_BYTES - WRITE_HEAD_BYTES;
/// Room for any message except WRITE, in bytes: the value of an extended attribute may have 64 KiB,
/// plus its name and headers.
const MESSAGE_BYTES_MIN: usize = 128 << 10;
/// Maximum number of worker threads.
const THREADS_MAX: usize = 256;
/// Time limit for INIT, which the kernel normally sends at once.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A file system. Its methods are called from many threads concurrently.
pub trait Filesystem: Send + Sync + 'static {
    /// Chooses the flags and limits to negotiate with the kernel. Called before the first request.
    fn init(&self, config: &mut InitConfig) {
        let _ = config;
    }

    /// Receives the negotiated values before the first request. Notifications may be sent from now
    /// on.
    fn started(&self, negotiated: &Negotiated, notifier: &Notifier) {
        let _ = (negotiated, notifier);
    }

    /// Handles a request and replies at once, or later from any thread. The calling thread serves
    /// no other request until this returns.
    fn request(&self, request: Request, reply: Reply);

    /// Reports that the program waiting for the request `unique` got a signal.
    ///
    /// Returns whether the file system knows the request, that is, received it and has not replied.
    /// If false, the session calls again as soon as it has handed the request over. A file system
    /// that aborts the operation replies EINTR to that request. It may also ignore the interrupt.
    /// May also be called for requests with a reply already sent.
    fn interrupt(&self, unique: u64) -> bool {
        let _ = unique;
        true
    }

    /// The mount has ended and no more requests arrive. Called once.
    fn destroy(&self) {}
}

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
}

/// A mounted file system. Dropping it unmounts (lazily if in use).
pub struct Session {
    shared: Arc<Shared>,
    notifier: Notifier,
    mountpoint: PathBuf,
    connection: Option<u32>,
    /// The kernel's unique id of this mount, which is never reused. `None` before Linux 6.8.
    unique_id: Option<u64>,
    flags: Arc<FlagsWatch>,
}

/// State shared by the workers.
struct Shared {
    filesystem: Arc<dyn Filesystem>,
    negotiated: Negotiated,
    devices: Vec<Arc<Device>>,
    pool: Arc<Pool>,
    early: EarlyInterrupts,
    notifier: Notifier,
    working: AtomicUsize,
    ended: Mutex<bool>,
    end: Condvar,
}

impl Session {
    /// Mounts, negotiates with the kernel, and starts serving requests.
    pub fn mount(
        mount: MountOptions,
        options: SessionOptions,
        filesystem: Arc<impl Filesystem>,
    ) -> Result<Session, MountError> {
        let filesystem: Arc<dyn Filesystem> = filesystem;
        let limit = pages_limit();
        let max_read = options.max_write.min(limit.saturating_mul(PAGE_BYTES as u32)).max(PAGE_BYTES as u32);
        let (fd, mountpoint) = mount::mount(&mount, max_read)?;
        let device = Arc::new(Device::new(fd));
        match initialise(&device, &*filesystem, &options, limit) {
            Ok(negotiated) => Session::start(device, negotiated, &options, filesystem, mountpoint, mount.flags),
            Err(e) => {
                let _ = mount::unmount(&mountpoint, true);
                Err(e)
            }
        }
    }

    fn start(
        device: Arc<Device>,
        negotiated: Negotiated,
        options: &SessionOptions,
        filesystem: Arc<dyn Filesystem>,
        mountpoint: PathBuf,
        flags: MountFlags,
    ) -> Result<Session, MountError> {
        let devices = channels(device, threads(options));
        let buffer_bytes = PAGE_BYTES + (negotiated.max_write as usize).max(MESSAGE_BYTES_MIN);
        let pool = Pool::new(buffer_bytes, options.idle_buffer_bytes_max / buffer_bytes);
        let notifier = Notifier::new(devices[0].clone(), negotiated);
        filesystem.started(&negotiated, &notifier);
        let shared = Arc::new(Shared {
            filesystem,
            negotiated,
            working: AtomicUsize::new(devices.len()),
            devices,
            pool,
            early: EarlyInterrupts::new(),
            notifier: notifier.clone(),
            ended: Mutex::new(false),
            end: Condvar::new(),
        });
        let connection = connection_number(&mountpoint);
        if let (Some(number), true) = (connection, options.readahead_bytes > 0)
            && let Err(e) = mount::set_readahead(number, options.readahead_bytes)
        {
            tracing::debug!("cannot set the readahead of the mount: {e}; the kernel's default applies");
        }
        // From here on, if a thread fails to start, the drop of the session unmounts.
        let unique_id = mount::unique_id(&mountpoint);
        let flags = Arc::new(FlagsWatch::new(connection, flags));
        let session = Session { shared, notifier, mountpoint, connection, unique_id, flags };
        for i in 0..options.notify_threads.min(THREADS_MAX) {
            let notifier = session.notifier.clone();
            spawn(format!("fuse-notify-{i}"), move || notifier.serve())?;
        }
        // All workers exist before the first starts, so that the count of running workers is right
        // even if a later thread fails to start.
        let devices = session.shared.devices.iter();
        let workers: Vec<Worker> =
            devices.map(|d| Worker { shared: session.shared.clone(), device: d.clone() }).collect();
        for (i, worker) in workers.into_iter().enumerate() {
            spawn(format!("fuse-{i}"), move || worker.run())?;
        }
        Ok(session)
    }

    /// Returns the values negotiated with the kernel.
    pub fn negotiated(&self) -> &Negotiated {
        &self.shared.negotiated
    }

    /// Returns the full path of the mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Returns the flags of the mount, which a remount changes.
    pub fn flags(&self) -> Arc<FlagsWatch> {
        self.flags.clone()
    }

    /// Returns the sender of notifications to the kernel.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Returns the session's counters.
    pub fn stats(&self) -> SessionStats {
        let mut sum = SessionStats { buffers_allocated: self.shared.pool.allocated(), ..Default::default() };
        for counters in self.shared.devices.iter().map(|d| &d.counters) {
            let get = |c: &std::sync::atomic::AtomicU64| c.load(Ordering::Relaxed);
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
        *self.shared.ended.lock()
    }

    /// Waits until the mount has ended and [`Filesystem::destroy`] has returned.
    pub fn join(&self) {
        let mut ended = self.shared.ended.lock();
        while !*ended {
            self.shared.end.wait(&mut ended);
        }
    }

    /// As [`Session::join`], for at most `timeout`. Returns whether the session has ended.
    pub fn join_timeout(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut ended = self.shared.ended.lock();
        while !*ended {
            if self.shared.end.wait_until(&mut ended, deadline).timed_out() {
                break;
            }
        }
        *ended
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
        f.debug_struct("Session")
            .field("mountpoint", &self.mountpoint)
            .field("negotiated", &self.shared.negotiated)
            .finish()
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

/// Reads INIT and answers it.
fn initialise(
    device: &Arc<Device>,
    filesystem: &dyn Filesystem,
    options: &SessionOptions,
    pages_limit: u32,
) -> Result<Negotiated, MountError> {
    let failed = |e: Errno| MountError::Init(e.into());
    let mut buffer = vec![0; MESSAGE_BYTES_MIN.max(abi::READ_BUFFER_BYTES_MIN)];
    loop {
        let n = read_in_time(device, &mut buffer)?;
        let head = parse::header(&buffer[..n]).filter(|h| h.opcode == opcode::INIT).ok_or(failed(Errno::EPROTO))?;
        let reply = Reply::new(device.clone(), head.unique);
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
        let (negotiated, out) = config.conclude(&offer, pages_limit);
        reply.init(&out);
        return Ok(negotiated);
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

/// A thread that serves one channel.
struct Worker {
    shared: Arc<Shared>,
    device: Arc<Device>,
}

impl Worker {
    fn run(self) {
        let mut buffer = self.shared.pool.get();
        loop {
            match self.device.read(&mut buffer[MESSAGE_START..]) {
                Ok(n) => buffer = self.handle(buffer, n),
                Err(ReadError::Again) => {}
                Err(ReadError::Ended) => break,
                Err(ReadError::Failed(e)) => {
                    tracing::error!("cannot read from /dev/fuse: {e}; this worker stops");
                    break;
                }
            }
        }
    }

    /// Handles one message of `n` bytes. Returns the buffer for the next message.
    fn handle(&self, buffer: Buffer, n: usize) -> Buffer {
        let message = buffer.get(MESSAGE_START..MESSAGE_START + n).unwrap_or_default();
        match parse::parse(message, self.shared.negotiated.has(SETXATTR_EXT)) {
            Ok(Incoming::Request { mut request, payload, answered, wide_copy }) => {
                let unique = request.header.unique;
                let reply = if answered { Reply::new(self.device.clone(), unique) } else { Reply::silent(unique) };
                let buffer = match payload {
                    None => buffer,
                    Some(range) => {
                        let (bytes, buffer) = self.payload(buffer, MESSAGE_START + range.start, range.len());
                        parse::attach(&mut request, bytes);
                        buffer
                    }
                };
                self.hand_over(request, reply.with_wide_copy(wide_copy));
                if self.shared.early.was_early(unique) {
                    self.shared.filesystem.interrupt(unique);
                }
                return buffer;
            }
            Ok(Incoming::Interrupt { target }) => {
                self.shared.early.interrupt(target, |unique| self.shared.filesystem.interrupt(unique));
            }
            Ok(Incoming::Destroy { unique }) => Reply::new(self.device.clone(), unique).ok(),
            Ok(Incoming::Unsupported { unique, opcode }) => {
                tracing::debug!(opcode, "operation not supported; replying ENOSYS");
                Reply::new(self.device.clone(), unique).error(Errno::ENOSYS);
            }
            Err(malformed) => {
                let opcode = malformed.opcode;
                match malformed.unique {
                    Some(unique) => {
                        tracing::error!(opcode, bytes = n, "malformed kernel request; replying EIO");
                        Reply::new(self.device.clone(), unique).error(Errno::EIO);
                    }
                    // FORGET, INTERRUPT and the like, or no whole header.
                    None => {
                        tracing::error!(opcode, bytes = n, "malformed kernel message, which has no reply; ignoring it")
                    }
                }
            }
        }
        buffer
    }

    /// Returns the payload at `start` and the buffer for the next message. A small payload is
    /// copied and the buffer is reused. A large payload takes the buffer along, and the next
    /// message gets another one.
    fn payload(&self, buffer: Buffer, start: usize, len: usize) -> (Bytes, Buffer) {
        if len <= COPY_PAYLOAD_BYTES_MAX {
            self.device.counters.bytes_copied.fetch_add(len as u64, Ordering::Relaxed);
            let bytes = buffer.get(start..start + len).map_or_else(Bytes::new, Bytes::copy_from_slice);
            (bytes, buffer)
        } else {
            (buffer.freeze(start..start + len), self.shared.pool.get())
        }
    }

    /// Hands a request to the file system. A panic there fails the request with EIO; the worker
    /// continues.
    fn hand_over(&self, request: Request, reply: Reply) {
        let op = request.op.name();
        if catch_unwind(AssertUnwindSafe(|| self.shared.filesystem.request(request, reply))).is_err() {
            tracing::error!(op, "the file system panicked; the request fails with EIO unless it was answered");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.shared.working.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.notifier.close();
            self.shared.filesystem.destroy();
            *self.shared.ended.lock() = true;
            self.shared.end.notify_all();
        }
    }
}
