//! Capabilities of a mount with a host's or user's key: permissions by which OSTs let it use
//! objects.
//!
//! A mount with a key of the cluster itself needs none, and all this costs it nothing. Others get
//! them from the MDT, with an open or when they are needed, and presents them to the OST before the
//! first request that uses the object. It gets new ones after half of their time. An OST that does
//! not know them any more, such as after a new connection, refuses the request; then they are
//! presented again.
//!
//! While the MDT does not answer, old ones are used until they expire. Then requests wait for it.
//! An OST in recovery accepts old ones, so lost changes are replayed without the MDT.
//!
//! A request names objects, and the MDT gives capabilities for a file. So the file of each object
//! is stored here when the MDT sends a layout.

use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use sheen_layout::Layout;
use sheen_rpc::Import;
use sheen_rt::{Instant, Rt};
use sheen_wire::{
    Errno, Fid, Mds,
    auth::{Role, User},
    mds::{Entry, Reply, Request},
    ost::{self, CAPABILITY_SECS, Capability},
};

use crate::failure::{Failure, Result};

/// Number of objects whose files are remembered. Those that are locked are known besides.
const OBJECTS_MAX: NonZeroUsize = NonZeroUsize::new(1 << 19).unwrap();
/// Number of objects whose capabilities are stored.
const HELD_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();
/// Age at which a capability is replaced.
const FRESH: Duration = Duration::from_secs(CAPABILITY_SECS as u64 / 2);
/// Age up to which OSTs accept a capability.
const LIFE: Duration = Duration::from_secs(CAPABILITY_SECS as u64);
/// Time after which old capabilities are used, because the MDT does not answer.
const ASK_MAX: Duration = Duration::from_secs(5);
/// Time for which they are used then, before the MDT is asked again.
const SILENT: Duration = Duration::from_secs(30);
/// Time for which the replay of lost changes waits for the MDT.
const RECOVERY_MAX: Duration = Duration::from_secs(20);
/// Number of restarts of the MDT and evictions after which one question fails.
const EVICTIONS_MAX: u32 = 8;
/// Number of objects that an OST is assumed to know; beyond that, they are presented again.
const PRESENTED_MAX: usize = 1 << 15;

/// Returns the file of an object.
type FileOf = Box<dyn Fn(Fid) -> Option<Fid> + Send + Sync>;

/// The capabilities of a mount.
pub struct Capabilities {
    rt: Rt,
    /// The authority of the mount, if it needs capabilities.
    role: OnceLock<Role>,
    mdt: Mutex<Weak<Import<Mds>>>,
    /// Returns the file of an object on which the mount holds a lock.
    file_of_locked: FileOf,
    files: Mutex<LruCache<Fid, Fid, FxBuildHasher>>,
    held: Mutex<LruCache<Fid, Held, FxBuildHasher>>,
    /// Held while the MDT is asked.
    asking: tokio::sync::Mutex<()>,
    /// The MDT has not answered; until then, old capabilities are used.
    silent: Mutex<Option<Instant>>,
}

/// The capabilities for one object: one by each key of the cluster.
#[derive(Clone)]
struct Held {
    since: Instant,
    /// From then on it is replaced.
    until: Instant,
    capabilities: Vec<Capability>,
}

impl Held {
    fn has(&self, right: u8) -> bool {
        self.capabilities.iter().any(|capability| capability.rights & right == right)
    }
}

impl Capabilities {
    /// Creates those of a mount. `file_of_locked` returns the file of an object on which it holds a
    /// lock.
    pub fn new(rt: &Rt, file_of_locked: impl Fn(Fid) -> Option<Fid> + Send + Sync + 'static) -> Arc<Capabilities> {
        Arc::new(Capabilities {
            rt: rt.clone(),
            role: OnceLock::new(),
            mdt: Mutex::default(),
            file_of_locked: Box::new(file_of_locked),
            files: Mutex::new(LruCache::with_hasher(OBJECTS_MAX, FxBuildHasher)),
            held: Mutex::new(LruCache::with_hasher(HELD_MAX, FxBuildHasher)),
            asking: tokio::sync::Mutex::default(),
            silent: Mutex::default(),
        })
    }

    /// Sets the MDT, which is connected. The mount has the role of its key.
    pub fn of_mount(&self, mdt: &Arc<Import<Mds>>) {
        *self.mdt.lock() = Arc::downgrade(mdt);
        let role = mdt.role();
        if role != Role::Server {
            let _ = self.role.set(role);
        }
    }

    /// Returns the user as whom the mount acts for all its callers. `None`: it acts as its callers.
    pub fn user(&self) -> Option<&User> {
        if let Some(Role::User(user)) = self.role.get() { Some(user) } else { None }
    }

    /// Whether the mount needs capabilities.
    pub fn are_needed(&self) -> bool {
        self.role.get().is_some()
    }

    /// Stores the files of the objects that a reply of the MDT names, and the capabilities that
    /// came with it.
    pub fn note(&self, reply: &Reply, capabilities: Vec<Capability>) {
        if !self.are_needed() {
            return;
        }
        match reply {
            Reply::Entry(entry) | Reply::Opened { entry, .. } => self.note_layout(entry),
            Reply::Entries { entries, .. } => entries.iter().filter_map(|e| e.entry.as_ref()).for_each(|entry| {
                self.note_layout(entry);
            }),
            _ => {}
        }
        self.hold(capabilities);
    }

    fn note_layout(&self, entry: &Entry) {
        let layout = entry.layout.as_ref().and_then(|bytes| Layout::decode(bytes).ok());
        let mut files = self.files.lock();
        for stripe in layout.iter().flat_map(|layout| layout.all_objects()) {
            files.put(stripe.object, entry.attr.fid);
        }
    }

    fn hold(&self, capabilities: Vec<Capability>) {
        *self.silent.lock() = None;
        let (since, mut held) = (self.rt.now(), self.held.lock());
        for of_object in capabilities.chunk_by(|a, b| a.object == b.object) {
            let held_now = Held { since, until: since + FRESH, capabilities: of_object.to_vec() };
            held.put(of_object[0].object, held_now);
        }
    }

    /// Returns the capabilities for all of these objects and rights that are held, if `pick` takes
    /// each of them.
    fn all(&self, wanted: &[(Fid, u8)], pick: impl Fn(&Held) -> bool) -> Option<Vec<(Fid, Held)>> {
        let mut held = self.held.lock();
        let mut one = |&(object, right): &(Fid, u8)| {
            let found = held.get(&object).filter(|held| held.has(right) && pick(held))?;
            Some((object, found.clone()))
        };
        wanted.iter().map(&mut one).collect()
    }

    /// Returns capabilities for objects with these rights. Asks the MDT if necessary.
    ///
    /// # Errors
    /// EACCES: the client has no right to one of them. MOVED: a file has other objects now.
    /// Otherwise the error of the MDT.
    async fn get(&self, wanted: &[(Fid, u8)]) -> Result<Vec<(Fid, Held)>> {
        let now = self.rt.now();
        if let Some(all) = self.all(wanted, |held| now < held.until) {
            return Ok(all);
        }
        // OSTs accept these for a while, so nobody waits long for the MDT.
        let Some(old) = self.all(wanted, |held| now < held.since + LIFE) else { return self.renew(wanted).await };
        if self.silent.lock().is_none_or(|until| now >= until) {
            match self.rt.timeout(ASK_MAX, self.renew(wanted)).await {
                Ok(Err(Failure::LayoutMoved { partly })) => return Err(Failure::LayoutMoved { partly }),
                Ok(Ok(new)) => return Ok(new),
                // The file cannot be used by its name any more. Open files can until the old ones
                // expire.
                Ok(Err(_)) => {}
                Err(_) => *self.silent.lock() = Some(self.rt.now() + SILENT),
            }
        }
        Ok(self.postpone(old))
    }

    /// Uses old capabilities for a while, before the MDT is asked again.
    fn postpone(&self, mut old: Vec<(Fid, Held)>) -> Vec<(Fid, Held)> {
        let until = self.rt.now() + SILENT;
        let mut all = self.held.lock();
        for (object, old) in &mut old {
            old.until = until.min(old.since + LIFE);
            if all.peek(object).is_none_or(|held| held.since <= old.since) {
                all.put(*object, old.clone());
            }
        }
        old
    }

    /// Asks the MDT for those of these capabilities that are missing or old.
    ///
    /// # Errors
    /// As [`Capabilities::get`].
    async fn renew(&self, wanted: &[(Fid, u8)]) -> Result<Vec<(Fid, Held)>> {
        // One at a time: its answer may serve the others. So all objects of an operation are those
        // of one layout.
        let _asking = self.asking.lock().await;
        let is_fresh = |held: &Held| self.rt.now() < held.until;
        let lacking = wanted.iter().filter(|one| self.all(std::slice::from_ref(*one), is_fresh).is_none());
        let (answered, error) = self.fetch(lacking.map(|(object, _)| *object).collect()).await;
        if let Some(all) = self.all(wanted, is_fresh) {
            return Ok(all);
        }
        if let Some(error) = error {
            return Err(error);
        }
        // A file that may be used, and has other objects now, was migrated, or has swapped them.
        let has_left =
            |one: &(Fid, u8)| !answered.contains(&one.0) && self.all(std::slice::from_ref(one), is_fresh).is_none();
        let moved = !answered.is_empty() && wanted.iter().any(has_left);
        Err(if moved { Failure::MOVED } else { Failure::Errno(Errno::EACCES) })
    }

    /// Gets the capabilities for the files of these objects. Returns the objects of the files, and
    /// the first error.
    async fn fetch(&self, objects: Vec<Fid>) -> (FxHashSet<Fid>, Option<Failure>) {
        let (mut files, mut error) = (BTreeSet::new(), None);
        for object in objects {
            match self.files.lock().get(&object).copied().or_else(|| (self.file_of_locked)(object)) {
                Some(file) => drop(files.insert(file)),
                None => {
                    tracing::warn!("{object}: the file of this object is not known: it cannot be used");
                    error = error.or(Some(Failure::Errno(Errno::EACCES)));
                }
            }
        }
        let mut answered = FxHashSet::default();
        for file in files {
            match self.ask(file).await {
                Ok(objects) => answered.extend(objects),
                Err(failure) => error = error.or(Some(failure)),
            }
        }
        (answered, error)
    }

    /// Returns capabilities for the objects of lost changes, also old ones: an OST in recovery
    /// accepts them. Those that are missing are absent. Takes [`RECOVERY_MAX`] at most.
    async fn for_recovery(&self, wanted: &[(Fid, u8)]) -> Vec<(Fid, Held)> {
        let held = |one: &(Fid, u8)| self.all(std::slice::from_ref(one), |_| true);
        // Taken now: new ones may take their place in the cache.
        let mut found: Vec<(Fid, Held)> = wanted.iter().filter_map(held).flatten().collect();
        let known: FxHashSet<Fid> = found.iter().map(|(object, _)| *object).collect();
        let lacking = || wanted.iter().filter(|(object, _)| !known.contains(object));
        if lacking().next().is_some() {
            let fetched = self.fetch(lacking().map(|(object, _)| *object).collect());
            if self.rt.timeout(RECOVERY_MAX, fetched).await.is_err() {
                tracing::warn!("the MDT gives no capabilities for the replay of lost changes in time");
            }
            found.extend(lacking().filter_map(held).flatten());
        }
        found
    }

    /// Forgets the capabilities for objects, because an OST refused them.
    fn discard(&self, objects: &[(Fid, u8)]) {
        let mut held = self.held.lock();
        objects.iter().for_each(|(object, _)| drop(held.pop(object)));
    }

    /// Gets the capabilities for a file. Returns its objects; none if it may not be used.
    async fn ask(&self, fid: Fid) -> Result<Vec<Fid>> {
        let mut evictions = 0;
        loop {
            let mdt = self.mdt.lock().upgrade().ok_or(Errno::ESHUTDOWN)?;
            // Urgent: other clients may wait for a flush, and that for this.
            let asked = mdt.request(Request::Capabilities { fid }).urgent();
            match Box::pin(asked.send()).await.map(|response| response.body.reply) {
                Ok(Reply::Capabilities(capabilities)) => {
                    let objects = capabilities.iter().map(|capability| capability.object).collect();
                    self.hold(capabilities);
                    return Ok(objects);
                }
                Ok(_) => return Err(Errno::EPROTO.into()),
                // The MDT was restarted, or evicted this client, before it answered.
                Err(e) if e.errno() == Errno::EIO && evictions < EVICTIONS_MAX => evictions += 1,
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// The capabilities that a mount has presented to one OST.
pub struct Presented {
    of: Arc<Capabilities>,
    /// By object: the rights, and the time from which on the capability is replaced.
    objects: Mutex<FxHashMap<Fid, (u8, Instant)>>,
}

impl Presented {
    /// Creates the record of an OST that knows none.
    pub fn new(of: &Arc<Capabilities>) -> Presented {
        Presented { of: of.clone(), objects: Mutex::default() }
    }

    /// Whether requests need capabilities.
    pub fn are_needed(&self) -> bool {
        self.of.are_needed()
    }

    /// Records that the OST knows none any more.
    pub fn forget(&self) {
        self.objects.lock().clear();
    }

    /// Returns what the OST needs for `request` and does not know yet. `None`: nothing. The caller
    /// sends it, and then calls [`Presented::sent`].
    ///
    /// # Errors
    /// EACCES: the user may not do what is requested. MOVED: an object has left its file. Otherwise
    /// the error of the MDT.
    pub async fn missing(&self, request: &ost::Request) -> Result<Option<Missing>> {
        if !self.are_needed() {
            return Ok(None);
        }
        self.missing_of(wanted_by(request)).await
    }

    /// As [`Presented::missing`], for these rights on objects.
    ///
    /// # Errors
    /// As [`Presented::missing`].
    pub async fn missing_of(&self, mut wanted: Vec<(Fid, u8)>) -> Result<Option<Missing>> {
        let now = self.of.rt.now();
        {
            let presented = self.objects.lock();
            wanted.retain(|(object, right)| {
                presented.get(object).is_none_or(|(has, until)| has & right != *right || now >= *until)
            });
        }
        if wanted.is_empty() {
            return Ok(None);
        }
        Ok(Some(Missing::of(self.of.get(&wanted).await?)))
    }

    /// Returns what an OST in recovery needs for these rights on objects, and the objects for which
    /// there is no capability.
    pub async fn for_recovery(&self, wanted: &[(Fid, u8)]) -> (Option<Missing>, FxHashSet<Fid>) {
        if wanted.is_empty() {
            return (None, FxHashSet::default());
        }
        let found = self.of.for_recovery(wanted).await;
        let mut lacking: FxHashSet<Fid> = wanted.iter().map(|(object, _)| *object).collect();
        for (object, _) in &found {
            lacking.remove(object);
        }
        (Some(Missing::of(found)), lacking)
    }

    /// Records that the OST refused a request for which these were presented: it accepts none of
    /// the capabilities that are held.
    pub fn refused(&self, wanted: &[(Fid, u8)]) {
        self.forget();
        self.of.discard(wanted);
    }

    /// Records that objects have these names now, with the same rights.
    pub fn followed(&self, objects: &[Fid], names: &[Fid]) {
        let mut presented = self.objects.lock();
        for (object, name) in objects.iter().zip(names) {
            if let Some(rights) = presented.get(object).copied() {
                presented.insert(*name, rights);
            }
        }
    }

    /// Records that the OST knows these.
    pub fn sent(&self, missing: Missing) {
        let mut presented = self.objects.lock();
        if presented.len() + missing.objects.len() > PRESENTED_MAX {
            presented.clear();
        }
        presented.extend(missing.objects.into_iter().map(|(object, rights, until)| (object, (rights, until))));
    }
}

/// Returns the objects that a request uses, with the rights for it.
pub fn wanted_by(request: &ost::Request) -> Vec<(Fid, u8)> {
    let mut wanted: Vec<(Fid, u8)> = Vec::new();
    request.uses(|object, right| {
        if wanted.last() != Some(&(object, right)) {
            wanted.push((object, right));
        }
    });
    wanted
}

/// Capabilities that an OST does not know yet.
pub struct Missing {
    /// Requests that present them.
    pub requests: Vec<ost::Request>,
    /// Objects with their rights, and the time from which on the capability is replaced.
    objects: Vec<(Fid, u8, Instant)>,
}

impl Missing {
    fn of(found: Vec<(Fid, Held)>) -> Missing {
        let object = |(object, held): &(Fid, Held)| {
            let rights = held.capabilities.iter().fold(0, |all, capability| all | capability.rights);
            (*object, rights, held.until)
        };
        let objects = found.iter().map(object).collect();
        let capabilities: Vec<Capability> = found.into_iter().flat_map(|(_, held)| held.capabilities).collect();
        let parts = capabilities.chunks(ost::CAPABILITIES_MAX);
        let requests = parts.map(|part| ost::Request::Present { capabilities: part.to_vec() }).collect();
        Missing { requests, objects }
    }
}
