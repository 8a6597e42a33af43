//! The protection of one directory: taking it, beating, and losing it.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use sheen_rt::{
    Disk, Instant, JoinHandle, LockGuard, Rt,
    target_dir::protection::{LOCK, TAKEOVER},
};
use tokio::sync::watch;

use crate::{
    options::{FailoverError, Options, Times},
    record::{Record, Server},
};

/// Name of the thread of a beat.
const THREAD: &str = "sheen-heartbeat";

/// Why a server may no longer serve its directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Another server asks for the directory. This one stops in order, and the lease goes on.
    Asked(Server),
    /// Another server has the directory. This process ends at once.
    Taken(Server),
    /// The storage did not answer within the lease. This process ends at once: another server may
    /// have the directory.
    Expired,
}

/// The right to serve a directory. Dropping it ends the beats, so that another server counts this
/// one as dead.
pub struct Guard {
    shared: Arc<Shared>,
    beats: JoinHandle<()>,
    watchdog: JoinHandle<()>,
    _lock: LockGuard,
}

struct Shared {
    rt: Rt,
    disk: Disk,
    dir: PathBuf,
    times: Times,
    on_beat: Box<dyn Fn(Instant) + Send + Sync>,
    /// The content that this server wrote last.
    record: Mutex<Record>,
    lease: Mutex<Instant>,
    lost: watch::Sender<Option<Lost>>,
}

impl Guard {
    /// Takes a directory for this server, on the disk of `rt`. Creates the directory if it is
    /// missing. Returns when no other server can serve it any more. That is at once if the former
    /// owner was a process of this boot of this host. Otherwise it takes [`Times::claim`], and
    /// [`Times::observe`] before that if the former owner did not stop in order.
    ///
    /// # Errors
    /// As [`FailoverError`].
    pub async fn take(rt: &Rt, dir: &Path, options: Options) -> Result<Guard, FailoverError> {
        Guard::take_on(rt, rt.disk(), &rt.disk(), dir, options).await
    }

    /// As [`Guard::take`]. `locks`: the disk that has the lock of this host.
    pub(crate) async fn take_on(
        rt: &Rt,
        disk: Disk,
        locks: &Disk,
        dir: &Path,
        options: Options,
    ) -> Result<Guard, FailoverError> {
        let Options { server, takeover, times, on_beat } = options;
        let record = Record {
            owner: rt.random_u64(),
            server,
            boot: rt.boot_id(),
            beat: 0,
            checked: rt.boot_time().as_nanos(),
            stopped: false,
        };
        let taking = Taking { rt, disk: &disk, locks, dir, times, takeover, me: &record };
        let lock = taking.run().await?;
        let shared = Arc::new(Shared {
            rt: rt.clone(),
            disk,
            dir: dir.to_owned(),
            times,
            on_beat,
            record: Mutex::new(record),
            lease: Mutex::new(Instant::ZERO),
            lost: watch::Sender::new(None),
        });
        // The first lease: serving begins with a beat that finds this server's name.
        let began = rt.boot_time();
        match shared.clone().beat().await.map_err(|error| FailoverError::Io { path: dir.into(), error })? {
            Some(Lost::Taken(owner)) => return Err(FailoverError::Owned { dir: dir.into(), owner }),
            _ => shared.renew(began),
        }
        let beats = rt.spawn("heartbeat", shared.clone().beats());
        let watchdog = rt.spawn("heartbeat-lease", shared.clone().watchdog());
        Ok(Guard { shared, beats, watchdog, _lock: lock })
    }

    /// Resolves when this server may no longer serve the directory, or is asked not to.
    pub async fn lost(&self) -> Lost {
        self.lost_if(|_| true).await
    }

    /// Resolves when this process must end at once.
    pub async fn lost_for_good(&self) -> Lost {
        self.lost_if(|lost| !matches!(lost, Lost::Asked(_))).await
    }

    /// Ends the beats as a halted process does; returns its lock.
    #[cfg(test)]
    pub(crate) fn stop_beating(self) -> impl Sized {
        self.beats.abort();
        self.watchdog.abort();
        self
    }

    async fn lost_if(&self, which: impl Fn(&Lost) -> bool) -> Lost {
        let mut lost = self.shared.lost.subscribe();
        let found = lost.wait_for(|lost| lost.as_ref().is_some_and(&which)).await;
        // The sender lives as long as this guard.
        found.ok().and_then(|lost| lost.clone()).unwrap_or(Lost::Expired)
    }

    /// Records that this server has stopped in order: the next one need not wait for its death. To
    /// be called when nothing is written any more.
    pub async fn release(self) {
        self.beats.abort();
        self.watchdog.abort();
        let (shared, rt) = (self.shared.clone(), self.shared.rt.clone());
        // No beat of this server is under way after that.
        let written = rt.run_on_own_thread(THREAD, move || {
            let mut record = shared.record.lock();
            let checked = shared.rt.boot_time();
            if !shared.is_owner(&record)? {
                return Ok(());
            }
            (record.stopped, record.checked) = (true, checked.as_nanos());
            record.write(&shared.disk, &shared.dir)
        });
        // Storage that hangs must not keep the process alive.
        let written = rt.timeout(self.shared.times.lease, written).await;
        let written = written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).flatten();
        if let Err(error) = written {
            tracing::warn!(%error, dir = %self.shared.dir.display(), "cannot record the stop: the next server waits longer");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.beats.abort();
        self.watchdog.abort();
    }
}

impl Shared {
    /// Returns whether the file has this server's name.
    fn is_owner(&self, record: &Record) -> io::Result<bool> {
        Ok(Record::read(&self.disk, &self.dir)?.is_some_and(|found| found.owner == record.owner))
    }

    /// One beat. Returns why the directory is lost, if it is. Other work that blocks does not delay
    /// it: a busy disk must not end the lease.
    async fn beat(self: Arc<Self>) -> io::Result<Option<Lost>> {
        let rt = self.rt.clone();
        let beat = move || {
            let mut record = self.record.lock();
            let checked = self.rt.boot_time();
            match Record::read(&self.disk, &self.dir)? {
                Some(found) if found.owner == record.owner => {}
                found => return Ok(Some(Lost::Taken(found.map(|found| found.server).unwrap_or_default()))),
            }
            (record.beat, record.checked) = (record.beat + 1, checked.as_nanos());
            record.write(&self.disk, &self.dir)?;
            Ok(asked_by(&self.disk, &self.dir).map(Lost::Asked))
        };
        rt.run_on_own_thread(THREAD, beat).await.flatten()
    }

    fn renew(&self, began: Instant) {
        let lease = began + self.times.lease;
        *self.lease.lock() = lease;
        (self.on_beat)(lease);
    }

    async fn beats(self: Arc<Self>) {
        let mut warned = false;
        loop {
            self.rt.sleep(self.times.beat).await;
            let began = self.rt.boot_time();
            match self.clone().beat().await {
                Ok(Some(lost @ (Lost::Taken(_) | Lost::Expired))) => return self.lose(lost),
                Ok(asked) => {
                    // A lease that has ended is not renewed.
                    if self.rt.boot_time() >= *self.lease.lock() {
                        return self.lose(Lost::Expired);
                    }
                    self.renew(began);
                    warned = false;
                    if let Some(asked) = asked {
                        self.lose(asked);
                    }
                }
                Err(error) if !warned => {
                    warned = true;
                    tracing::warn!(%error, dir = %self.dir.display(), "a heartbeat failed");
                }
                Err(_) => {}
            }
        }
    }

    /// Notices the end of the lease, also while a beat waits for the storage. A sleep does not
    /// include the time for which the host is suspended, hence the short ones.
    async fn watchdog(self: Arc<Self>) {
        loop {
            let left = self.lease.lock().since(self.rt.boot_time());
            if left.is_zero() {
                return self.lose(Lost::Expired);
            }
            self.rt.sleep(left.min(self.times.beat)).await;
        }
    }

    fn lose(&self, lost: Lost) {
        self.lost.send_if_modified(|known| {
            let news = matches!(known, None | Some(Lost::Asked(_))) && *known != Some(lost.clone());
            if news {
                *known = Some(lost);
            }
            news
        });
    }
}

fn asked_by(disk: &Disk, dir: &Path) -> Option<Server> {
    serde_json::from_slice(&disk.read(dir.join(TAKEOVER)).ok()?).ok()
}

/// A server that wants a directory.
struct Taking<'a> {
    rt: &'a Rt,
    disk: &'a Disk,
    locks: &'a Disk,
    dir: &'a Path,
    times: Times,
    takeover: bool,
    me: &'a Record,
}

/// The state of the server that the file names.
enum Owner {
    /// No server owns the directory. `here`: its last one was a process of this boot of this host,
    /// and had the directory within the last lease.
    Free {
        here: bool,
    },
    Alive(Server),
}

impl Taking<'_> {
    async fn run(&self) -> Result<LockGuard, FailoverError> {
        let failed = |error| FailoverError::Io { path: self.dir.into(), error };
        self.disk.create_dir_all(self.dir).map_err(failed)?;
        let began = self.rt.now();
        let (mut lock, mut said) = (None, false);
        loop {
            if lock.is_none() {
                lock = self.lock().map_err(failed)?;
            }
            let owner = match &lock {
                None => Owner::Alive(self.lock_holder().map_err(failed)?),
                Some(_) => self.owner().await.map_err(failed)?,
            };
            match (owner, lock.take()) {
                (Owner::Free { here }, Some(held)) => match self.claim(here).await.map_err(failed)? {
                    None => return Ok(held),
                    Some(owner) => return Err(FailoverError::Owned { dir: self.dir.into(), owner }),
                },
                (Owner::Alive(owner), _) if !self.takeover => {
                    return Err(FailoverError::Owned { dir: self.dir.into(), owner });
                }
                (Owner::Alive(owner), held) => {
                    if self.rt.now().since(began) > self.times.handover {
                        let seconds = self.times.handover.as_secs();
                        return Err(FailoverError::Stays { dir: self.dir.into(), owner, seconds });
                    }
                    if !std::mem::replace(&mut said, true) {
                        tracing::info!("asking {owner} to stop");
                    }
                    // Again and again: a server that has just claimed the directory removes the
                    // request.
                    self.ask().map_err(failed)?;
                    lock = held;
                    self.rt.sleep(self.times.beat).await;
                }
                (Owner::Free { .. }, None) => {}
            }
        }
    }

    fn lock(&self) -> io::Result<Option<LockGuard>> {
        match self.locks.try_lock(self.dir.join(LOCK)) {
            Ok(lock) => Ok(Some(lock)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns the server that has the lock: a process of this host, or of one that sees the same
    /// locks.
    fn lock_holder(&self) -> io::Result<Server> {
        let found = Record::read(self.disk, self.dir)?.map(|record| record.server);
        Ok(found.unwrap_or_else(|| Server::new(&self.me.server.host, 0)))
    }

    /// Finds out whether the server in the file is alive. To be called with the lock held.
    async fn owner(&self) -> io::Result<Owner> {
        let Some(first) = Record::read(self.disk, self.dir)? else { return Ok(Owner::Free { here: false }) };
        if first.boot == self.me.boot {
            // It held the lock, so it has ended. But its last write may have come late, over the
            // name of a new owner on another host.
            let age = self.rt.boot_time().since(Instant::from_nanos(first.checked));
            return Ok(Owner::Free { here: age < self.times.lease });
        }
        if first.stopped {
            return Ok(Owner::Free { here: false });
        }
        let (began, mut said) = (self.rt.now(), false);
        while self.rt.now().since(began) < self.times.observe {
            if self.rt.now().since(began) > self.times.beat * 2 && !std::mem::replace(&mut said, true) {
                tracing::info!(
                    "{} did not stop in order, and its heartbeats ended: waiting for its death",
                    first.server
                );
            }
            self.rt.sleep(self.times.beat / 2).await;
            match Record::read(self.disk, self.dir)? {
                Some(now) if now == first => {}
                Some(now) if now.stopped => return Ok(Owner::Free { here: false }),
                Some(now) => return Ok(Owner::Alive(now.server)),
                None => return Ok(Owner::Free { here: false }),
            }
        }
        Ok(Owner::Free { here: false })
    }

    /// Writes this server's name. Returns the server that was faster, if there is one.
    async fn claim(&self, here: bool) -> io::Result<Option<Server>> {
        self.me.write(self.disk, self.dir)?;
        self.disk.sync_dir(self.dir).await?;
        if !here {
            self.rt.sleep(self.times.claim).await;
        }
        match Record::read(self.disk, self.dir)? {
            Some(found) if found.owner == self.me.owner => match self.disk.remove_file(self.dir.join(TAKEOVER)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => Ok(None),
            },
            found => Ok(Some(found.map(|found| found.server).unwrap_or_default())),
        }
    }

    fn ask(&self) -> io::Result<()> {
        self.disk.write_atomic(self.dir.join(TAKEOVER), &serde_json::to_vec(&self.me.server)?)
    }
}
