//! The real world: tokio's multi-threaded runtime, the kernel's clock, sockets and files.

pub(crate) mod disk;
pub(crate) mod lease;
mod mount_id;
pub(crate) mod net;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::{
    system::sysinfo,
    time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
        timerfd_settime,
    },
};
use sheen_wire::Time;
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::Handle,
    sync::oneshot,
};

use self::lease::Lease;
use crate::{stable_hash, time::Instant};

/// Maximum number of threads for blocking work, mostly fsync. More threads would only queue at the
/// disk.
const BLOCKING_THREADS_MAX: usize = 64;

/// File with the random uuid that the kernel creates at boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Options of the real runtime.
#[derive(Clone, Debug)]
pub struct RealOptions {
    /// Number of threads that run tasks, at least 1.
    pub worker_threads: usize,
    /// Name of the threads, as `top -H` shows it.
    pub name: String,
}

impl Default for RealOptions {
    /// One thread per processor, named "sheen".
    fn default() -> RealOptions {
        let worker_threads = thread::available_parallelism().map_or(1, |n| n.get());
        RealOptions { worker_threads, name: "sheen".into() }
    }
}

/// Owner of the runtime's threads. When it is dropped, tasks end at their next await point. The
/// drop waits for blocking work.
pub struct Runtime(tokio::runtime::Runtime);

impl Runtime {
    /// Runs a future on the calling thread, and its tasks on the runtime's threads. Must not be
    /// called from within a task.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    /// Ends all tasks. Waits at most `patience` for blocking work, then abandons it.
    pub fn shutdown(self, patience: Duration) {
        self.0.shutdown_timeout(patience);
    }
}

pub(crate) struct Real {
    pub(crate) handle: Handle,
    pub(crate) lease: Arc<Lease>,
    pub(crate) boot_id: u64,
    random: AtomicU64,
}

impl Real {
    pub(crate) fn start(options: RealOptions) -> io::Result<(Runtime, Real)> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.worker_threads.max(1))
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name(options.name)
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let mut real = Real { handle, lease: Arc::default(), boot_id: 0, random: AtomicU64::default() };
        let mut seed = [0; 8];
        real.fill_random(&mut seed);
        real.random.store(u64::from_le_bytes(seed), Ordering::Relaxed);
        real.boot_id = boot_id().unwrap_or_else(|| real.random_u64());
        Ok((Runtime(runtime), real))
    }

    pub(crate) fn now(&self) -> Instant {
        let t = clock_gettime(ClockId::Monotonic);
        Instant::from_nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }

    pub(crate) fn wall(&self) -> Time {
        system_time(SystemTime::now())
    }

    /// SplitMix64 over a shared counter: well mixed, one atomic addition, usable on any thread.
    pub(crate) fn random_u64(&self) -> u64 {
        let mut z = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn fill_random(&self, buf: &mut [u8]) {
        if let Err(e) = getrandom::fill(buf) {
            // Continuing with predictable identifiers would be worse than stopping.
            tracing::error!("cannot get random numbers from the kernel: {e}; aborting");
            std::process::abort();
        }
    }

    pub(crate) fn sleep(&self, d: Duration) -> tokio::time::Sleep {
        let _context = self.handle.enter();
        tokio::time::sleep(d)
    }

    pub(crate) async fn sleep_exactly(&self, duration: Duration) -> io::Result<()> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // 0 would disarm the timer.
        let nanos = duration.as_nanos().clamp(1, i64::MAX as u128) as i64;
        let it_value = Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
        let timer = {
            let _context = self.handle.enter();
            // SAFETY: the descriptor belongs to `timer`, which lives as long as the AsyncFd.
            unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE)? }
        };
        drop(timer.readable().await?);
        Ok(())
    }

    pub(crate) async fn run_blocking<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> T {
        blocking(&self.handle, f).await
    }

    pub(crate) async fn run_on_own_thread<T: Send + 'static>(
        &self,
        name: &str,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (done, result) = oneshot::channel();
        thread::Builder::new().name(name.into()).spawn(move || drop(done.send(f())))?;
        result.await.map_err(|_| io::Error::other(format!("the thread {name} has panicked")))
    }

    pub(crate) fn block_in_place<T>(&self, f: impl FnOnce() -> T) -> T {
        match Handle::try_current() {
            Ok(h) if h.runtime_flavor() == tokio::runtime::RuntimeFlavor::CurrentThread => f(),
            _ => tokio::task::block_in_place(f),
        }
    }

    pub(crate) fn block_on_thread<F: Future>(&self, future: F) -> F::Output {
        self.block_in_place(|| self.handle.block_on(future))
    }
}

/// Returns the size of the memory that this process may use, in bytes: the machine's, or the limit
/// of its control group (version 2), if that is less.
pub(crate) fn memory_bytes() -> u64 {
    let info = sysinfo();
    let all = info.totalram.saturating_mul(info.mem_unit.into());
    group_limit().map_or(all, |limit| limit.min(all))
}

/// Returns the limit of memory of this process's control group, in bytes. `None`: it has none.
/// Limits of the groups around it do not count.
fn group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    std::fs::read_to_string(format!("/sys/fs/cgroup{own}/memory.max")).ok()?.trim().parse().ok()
}

/// Returns a hash of the kernel's boot id, or `None` if it cannot be read.
fn boot_id() -> Option<u64> {
    let uuid = std::fs::read(BOOT_ID).ok().filter(|uuid| !uuid.is_empty())?;
    Some(stable_hash(&uuid))
}

/// Runs `f` on the pool for blocking work. Never completes if the runtime is shutting down: the
/// caller's task then ends as well.
pub(crate) async fn blocking<T: Send + 'static>(handle: &Handle, f: impl FnOnce() -> T + Send + 'static) -> T {
    match handle.spawn_blocking(f).await {
        Ok(out) => out,
        Err(e) => match e.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await,
        },
    }
}

pub(crate) fn system_time(t: SystemTime) -> Time {
    match t.duration_since(UNIX_EPOCH) {
        Ok(d) => Time { sec: d.as_secs() as i64, nsec: d.subsec_nanos() },
        Err(before) => {
            let d = before.duration();
            let (sec, nsec) = (d.as_secs() as i64, d.subsec_nanos());
            if nsec == 0 { Time { sec: -sec, nsec } } else { Time { sec: -sec - 1, nsec: 1_000_000_000 - nsec } }
        }
    }
}
