//! A mounted file system: the threads that read requests, and the end.
//!
//! Each worker owns a channel to the kernel and a page-aligned buffer. The buffer is filled from
//! [`MESSAGE_START`] on, so that the headers of a WRITE end at a page boundary and its payload is
//! page-aligned. Workers share no lock but the pool's, which only large writes take.
//!
//! The end: unmounting or aborting makes every read of the device fail with ENODEV; each worker
//! leaves, the last one calls [`Filesystem::destroy`] and wakes [`Session::join`].

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
    notify::Notifier,
    parse::{self, Incoming, WRITE_HEAD_BYTES},
    pool::{Buffer, PAGE_BYTES, Pool},
    reply::Reply,
    request::Request,
};

/// A payload of at most so many bytes is copied out of the worker's buffer; a larger one takes the
/// buffer along. Copying 16 KiB takes about a microsecond, while a handed-over buffer occupies
/// `max_write` bytes for as long as the data lives.
pub const COPY_PAYLOAD_BYTES_MAX: usize = 16 << 10;
/// Where in a buffer a message begins: the payload of a WRITE then lies one page into the buffer.
const MESSAGE_START: usize = PAGE_BYTES - WRITE_HEAD_BYTES;
/// Room for any message that is no WRITE: an extended attribute's value may have 64 KiB, with its
/// name and headers.
const MESSAGE_BYTES_MIN: usize = 128 << 10;
/// Most worker threads.
const THREADS_MAX: usize = 256;
/// The kernel sends INIT at once; this is for a kernel that does not.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A file system, called from many threads at once.
pub trait Filesystem: Send + Sync + 'static {
    /// Before the first request: choose what to agree on with the kernel.
    fn init(&self, config: &mut InitConfig) {
        let _ = config;
    }

    /// What was agreed on, before the first request. Notifications may be sent from now on.
    fn started(&self, negotiated: &Negotiated, notifier: &Notifier) {
        let _ = (negotiated, notifier);
    }

    /// Answers a request: now, or later from anywhere. The calling thread serves no other request
    /// meanwhile.
    fn request(&self, request: Request, reply: Reply);

    /// Whoever waits for the request `unique` got a signal. Returns whether that request is known
    /// here, that is, handed over and not answered yet; a false is asked again as soon as the
    /// request is handed over. A file system that gives up an operation for it answers that request
    /// with EINTR; it may also ignore the interrupt. Not called for requests that were answered
    /// within [`Filesystem::request`], and may be called for ones answered long ago.
    fn interrupt(&self, unique: u64) -> bool {
        let _ = unique;
        true
    }

    /// The mount is gone; no request comes any more. Called once.
    fn destroy(&self) {}
}

/// How a session works.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Worker threads; 0 takes twice the processors, between 4 and 32.
    pub threads: usize,
    /// Threads for [`Notifier::defer`].
    pub notify_threads: usize,
    /// Most bytes of one WRITE; cut to what the kernel allows
    /// (`/proc/sys/fs/fuse/max_pages_limit`).
    pub max_write: u32,
    /// Most background requests at once.
    pub max_background: u16,
    /// Background requests from which on the kernel holds back.
    pub congestion_threshold: u16,
    /// Most bytes in buffers that lie idle.
    pub idle_buffer_bytes_max: usize,
    /// How far the kernel reads ahead of a sequential reader, in bytes; 0 leaves it at the kernel's
    /// own 128 KiB. Only root can set it; for others it stays as it is.
    pub readahead_bytes: u32,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            threads: 0,
            notify_threads: 2,
            max_write: 1 << 20,
            max_background: 64,
            congestion_threshold: 48,
            idle_buffer_bytes_max: 32 << 20,
            readahead_bytes: 0,
        }
    }
}

/// What went through a session so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Messages read.
    pub requests: u64,
    /// Answers that the kernel took.
    pub replies: u64,
    /// Answers that nobody waited for any more.
    pub lost_replies: u64,
    /// Bytes read from the kernel.
    pub bytes_in: u64,
    /// Bytes written to the kernel.
    pub bytes_out: u64,
    /// Bytes of file data that were copied in this process.
    pub bytes_copied: u64,
    /// Bytes written to the kernel from files' pages.
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
    /// Of all mounts there ever were, this one; Linux 6.8 and later tell it.
    unique_id: Option<u64>,
    flags: Arc<FlagsWatch>,
}

/// What the workers share.
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
    /// Mounts, agrees with the kernel, and starts serving.
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
        let connection = mount::connection_number(&mountpoint);
        if let (Some(number), true) = (connection, options.readahead_bytes > 0)
            && let Err(e) = mount::set_readahead(number, options.readahead_bytes)
        {
            tracing::debug!("the kernel reads ahead as it likes: {e}");
        }
        // From here on the drop of the session unmounts, should a thread fail to start.
        let unique_id = mount::unique_id(&mountpoint);
        let flags = Arc::new(FlagsWatch::new(connection, flags));
        let session = Session { shared, notifier, mountpoint, connection, unique_id, flags };
        for i in 0..options.notify_threads.min(THREADS_MAX) {
            let notifier = session.notifier.clone();
            spawn(format!("fuse-notify-{i}"), move || notifier.serve())?;
        }
        // All workers exist before the first starts, so that the count of those at work is right
        // whatever fails.
        let devices = session.shared.devices.iter();
        let workers: Vec<Worker> =
            devices.map(|d| Worker { shared: session.shared.clone(), device: d.clone() }).collect();
        for (i, worker) in workers.into_iter().enumerate() {
            spawn(format!("fuse-{i}"), move || worker.run())?;
        }
        Ok(session)
    }

    /// What was agreed on with the kernel.
    pub fn negotiated(&self) -> &Negotiated {
        &self.shared.negotiated
    }

    /// Full path of the mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The flags of the mount, which a remount changes.
    pub fn flags(&self) -> Arc<FlagsWatch> {
        self.flags.clone()
    }

    /// Tells the kernel about changes.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// What went through so far.
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

    /// Unmounts; lazily where it is in use. Not to be called from a worker thread. Fine when it is
    /// unmounted already.
    pub fn unmount(&self) -> io::Result<()> {
        if self.is_mounted() { mount::unmount(&self.mountpoint, true) } else { Ok(()) }
    }

    /// Unmounts unless it is in use (EBUSY).
    pub fn try_unmount(&self) -> io::Result<()> {
        if self.is_mounted() { mount::unmount(&self.mountpoint, false) } else { Ok(()) }
    }

    /// Whether this very mount is still in the tree (of this process's mount namespace), dead or
    /// alive.
    pub fn is_mounted(&self) -> bool {
        match self.connection {
            // Numbers of connections are given again, at once: it may be another one's by now.
            Some(_) => {
                mount::connection_number(&self.mountpoint) == self.connection
                    && mount::unique_id(&self.mountpoint) == self.unique_id
            }
            None => !self.has_ended(),
        }
    }

    /// Cuts the connection: every waiting and later operation on the mount fails, whatever hangs.
    /// The mount point stays, dead, until it is unmounted.
    pub fn abort(&self) -> io::Result<()> {
        let by_file = match self.connection {
            Some(n) => std::fs::write(format!("/sys/fs/fuse/connections/{n}/abort"), "1"),
            None => Err(Errno::ENODEV.into()),
        };
        if by_file.is_ok() || self.has_ended() || !rustix::process::geteuid().is_root() {
            return by_file;
        }
        // Without fusectl mounted: a forced unmount aborts, whether or not the unmount itself then
        // succeeds.
        match rustix::mount::unmount(&self.mountpoint, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether the mount is gone and [`Filesystem::destroy`] has returned.
    pub fn has_ended(&self) -> bool {
        *self.shared.ended.lock()
    }

    /// Waits until the mount is gone and [`Filesystem::destroy`] has returned.
    pub fn join(&self) {
        let mut ended = self.shared.ended.lock();
        while !*ended {
            self.shared.end.wait(&mut ended);
        }
    }

    /// As [`Session::join`], at most for `timeout`; returns whether it has ended.
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
            tracing::warn!(mountpoint = %self.mountpoint.display(), "cannot unmount: {e}");
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

/// One channel for each worker. Where the device cannot be cloned, workers share the first.
fn channels(first: Arc<Device>, count: usize) -> Vec<Arc<Device>> {
    let mut devices = vec![first.clone()];
    while devices.len() < count {
        devices.push(first.another().map_or_else(
            |e| {
                tracing::debug!("a worker shares its channel: {e}");
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
            // The kernel will ask again in a version that it finds here.
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
                    tracing::error!("reading from /dev/fuse failed, a worker stops: {e}");
                    break;
                }
            }
        }
    }

    /// Deals with one message of `n` bytes; returns the buffer for the next.
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
                tracing::debug!(opcode, "not supported");
                Reply::new(self.device.clone(), unique).error(Errno::ENOSYS);
            }
            Err(malformed) => {
                tracing::error!(opcode = malformed.opcode, bytes = n, "a request from the kernel that makes no sense");
                if let Some(unique) = malformed.unique {
                    Reply::new(self.device.clone(), unique).error(Errno::EIO);
                }
            }
        }
        buffer
    }

    /// The payload at `start`, and the buffer for the next message: the same one, or another where
    /// the payload keeps it.
    fn payload(&self, buffer: Buffer, start: usize, len: usize) -> (Bytes, Buffer) {
        if len <= COPY_PAYLOAD_BYTES_MAX {
            self.device.counters.bytes_copied.fetch_add(len as u64, Ordering::Relaxed);
            let bytes = buffer.get(start..start + len).map_or_else(Bytes::new, Bytes::copy_from_slice);
            (bytes, buffer)
        } else {
            (buffer.freeze(start..start + len), self.shared.pool.get())
        }
    }

    /// A panic in the file system costs its request (EIO), not the worker.
    fn hand_over(&self, request: Request, reply: Reply) {
        let op = request.op.name();
        if catch_unwind(AssertUnwindSafe(|| self.shared.filesystem.request(request, reply))).is_err() {
            tracing::error!(op, "the file system panicked");
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
