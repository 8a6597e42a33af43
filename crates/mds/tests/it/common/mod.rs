//! One host with an MGS, an MDT and fake OSTs that record the requests they get.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by them")]

pub mod client;
pub mod quota;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_layout::Layout;
use sheen_lnet::{Net, Nid};
use sheen_mds::{Mdt, MdtConfig};
use sheen_mgc::{MGS_TARGET, Mgc};
use sheen_mgs::Mgs;
use sheen_params::Params;
use sheen_rpc::{BoxFuture, Export, Import, ImportConfig, Response, Server, Service};
use sheen_rt::Rt;
use sheen_rt::sim::{Sim, SimConfig};
use sheen_wire::mds::{Answer, Entry, NewNode, Reply, Request, flags};
use sheen_wire::mgs::{TargetKind, target_name};
use sheen_wire::{Bulk, Cred, Errno, Fid, Mds, Ost, Result, STATE_DEGRADED, StatFs, Time, fid, ost};

/// Port of the MDT in these tests.
pub const PORT: u16 = 7988;
/// Number of the MDT's host.
pub const MDS: u32 = 1;

/// An OST, or an MDT's data service, that stores no data.
#[derive(Default)]
pub struct FakeOst {
    pub asked: Mutex<Vec<ost::Request>>,
    /// The objects that it lists. A destroy removes them.
    pub objects: Mutex<BTreeSet<Fid>>,
    /// Size of each object, in bytes.
    pub object_bytes: AtomicU64,
    /// Bytes at the beginning of each object that are a hole.
    pub hole_bytes: AtomicU64,
    /// Bytes that are not available.
    pub used_bytes: AtomicU64,
    /// Fails destroys with EIO.
    pub broken: AtomicBool,
    /// Its disks are being repaired.
    pub degraded: AtomicBool,
    /// Refuses seals and links, as an OST in recovery does.
    pub recovering: AtomicBool,
    /// Its objects change all the time.
    pub unstable: AtomicBool,
    /// The data version of all objects.
    pub version: AtomicU64,
    /// Requests of quotas are recorded here, not in `asked`.
    pub quota: quota::FakeQuota,
}

impl FakeOst {
    /// Returns the objects destroyed so far, in order.
    pub fn destroyed(&self) -> Vec<Fid> {
        let asked = self.asked.lock();
        let objects =
            |r: &ost::Request| if let ost::Request::Destroy { objects } = r { objects.clone() } else { vec![] };
        asked.iter().flat_map(objects).collect()
    }

    /// Returns how many requests of this operation it got.
    pub fn times(&self, op: &str) -> usize {
        self.asked.lock().iter().filter(|asked| asked.op() == op).count()
    }

    /// Returns the steps so far in which an object was made again.
    pub fn recreated(&self, of: Fid) -> Vec<ost::Recreate> {
        let asked = self.asked.lock();
        let step = |asked: &ost::Request| match asked {
            ost::Request::Recreate { object, step } if *object == of => Some(*step),
            _ => None,
        };
        asked.iter().filter_map(step).collect()
    }
}

impl Service<Ost> for FakeOst {
    fn call<'a>(
        &'a self,
        _: &'a Arc<Export>,
        request: ost::Request,
        _: Bulk,
    ) -> BoxFuture<'a, Result<Response<ost::Reply>>> {
        if quota::is_of_quotas(&request) {
            return Box::pin(self.quota.serve(request));
        }
        if let ost::Request::Read { parts } = &request {
            let lens: Vec<u32> = parts.iter().map(|part| part.len).collect();
            let (hole, mut bytes) = (self.hole_bytes.load(Relaxed), Vec::new());
            for part in parts {
                let zeros = hole.saturating_sub(part.offset).min(part.len.into()) as usize;
                bytes.resize(bytes.len() + zeros, 0_u8);
                bytes.resize(bytes.len() + part.len as usize - zeros, 7);
            }
            let bulk = Bulk::from(Bytes::from(bytes));
            return Box::pin(async move { Ok(Response::with_bulk(ost::Reply::Read(lens), bulk)) });
        }
        let reply = match &request {
            ost::Request::StatFs => {
                let blocks = 1 << 20;
                let bavail = blocks - self.used_bytes.load(Relaxed) / 4096;
                let state = if self.degraded.load(Relaxed) { STATE_DEGRADED } else { 0 };
                let space =
                    StatFs { bsize: 4096, blocks, bfree: blocks, bavail, files: 1 << 20, ffree: 1 << 20, state };
                Ok(ost::Reply::StatFs(space))
            }
            _ if self.broken.load(Relaxed) => Err(Errno::EIO),
            ost::Request::Seal { .. } | ost::Request::Link { .. } if self.recovering.load(Relaxed) => {
                Err(Errno::EAGAIN)
            }
            // Two at a time, so that listing takes several requests.
            ost::Request::List { after } => {
                Ok(ost::Reply::Objects(self.objects.lock().iter().filter(|o| *o > after).take(2).copied().collect()))
            }
            ost::Request::Destroy { objects } => {
                self.objects.lock().retain(|object| !objects.contains(object));
                Ok(ost::Reply::Ok)
            }
            ost::Request::DestroyRange { seq, first, last } => {
                self.objects.lock().retain(|o| o.seq != *seq || !(*first..=*last).contains(&o.oid));
                Ok(ost::Reply::Ok)
            }
            ost::Request::Stored { objects } => {
                let size = self.object_bytes.load(Relaxed);
                let stored = |object: &Fid| ost::StoredObject { size, owner: self.quota.owner(*object) };
                Ok(ost::Reply::Stored(objects.iter().map(stored).collect()))
            }
            ost::Request::Attrs { objects } => {
                let (size, mtime) = (self.object_bytes.load(Relaxed), Some(Time { sec: 9, nsec: 0 }));
                let attr = ost::ObjectAttr { size, mtime, ..ost::ObjectAttr::default() };
                Ok(ost::Reply::Attrs(vec![attr; objects.len()]))
            }
            ost::Request::Seek { offset, what: ost::Seek::Data, .. } => {
                let data = self.hole_bytes.load(Relaxed).max(*offset);
                Ok(ost::Reply::Offset(Some(data).filter(|data| *data < self.object_bytes.load(Relaxed))))
            }
            ost::Request::Versions { objects, .. } => {
                let version = self.version.fetch_add(self.unstable.load(Relaxed).into(), Relaxed);
                Ok(ost::Reply::Versions(vec![version; objects.len()]))
            }
            _ => Ok(ost::Reply::Ok),
        };
        if reply.is_ok() {
            self.asked.lock().push(request);
        }
        Box::pin(async move { reply.map(Response::from) })
    }

    fn incarnation(&self) -> u64 {
        1
    }
}

/// One host with everything that runs on it.
pub struct Host {
    pub rt: Rt,
    pub net: Arc<Net>,
    pub server: Arc<Server>,
    pub mgs: Arc<Mgs>,
    pub mdt: Arc<Mdt>,
    pub params: Params,
    pub import: Arc<Import<Mds>>,
    pub mgc: Arc<Mgc>,
    seq: u64,
    oid: AtomicU32,
}

/// The MDT's configuration, to be changed by tests.
pub fn config() -> MdtConfig {
    MdtConfig::new("/mdt", "sheen", 0, vec![Nid::Lo], vec!["0@lo".into()])
}

/// The same with commits so seldom that a test decides when changes become durable.
pub fn slow_commits() -> MdtConfig {
    MdtConfig { commit_interval_ms: 10_000, ..config() }
}

/// Runs a test in a simulation. The test gets the simulation and the runtime of the MDT's host.
#[track_caller]
pub fn simulate(seed: u64, test: impl AsyncFnOnce(&Sim, Rt)) {
    let sim = Sim::new(seed, SimConfig::default());
    sim.run(test(&sim, sim.rt(MDS))).unwrap();
}

/// As [`simulate`], with an MDT of this configuration.
#[track_caller]
pub fn with_host(seed: u64, config: MdtConfig, test: impl AsyncFnOnce(&Sim, Rt, Host)) {
    simulate(seed, async |sim, rt| {
        let host = Host::start(&rt, config).await;
        test(sim, rt, host).await;
    });
}

impl Host {
    /// Starts everything except OSTs.
    pub async fn start(rt: &Rt, config: MdtConfig) -> Host {
        Host::start_in(rt, Path::new("/mgs"), config).await
    }

    /// The same with the MGS in the directory `mgs`.
    pub async fn start_in(rt: &Rt, mgs: &Path, config: MdtConfig) -> Host {
        Host::begin(rt, mgs, config, true).await
    }

    /// Starts an MDT that does not reach its MGS before [`Host::serve_mgs`].
    pub async fn without_mgs(rt: &Rt, config: MdtConfig) -> Host {
        Host::begin(rt, Path::new("/mgs"), config, false).await
    }

    /// Crashes the host, and starts everything again except OSTs.
    pub async fn crash(self, sim: &Sim, config: MdtConfig) -> Host {
        sim.crash_host(MDS);
        drop(self);
        Host::start(&sim.rt(MDS), config).await
    }

    async fn begin(rt: &Rt, mgs: &Path, config: MdtConfig, serves_mgs: bool) -> Host {
        let net = Net::new(rt.clone());
        let server = Server::new(net.clone());
        let params = Params::new();
        let mgs = Mgs::start(rt.clone(), mgs, params.clone()).await.unwrap();
        if serves_mgs {
            server.add::<sheen_wire::Mgs>(MGS_TARGET, mgs.clone());
        }
        let mdt = Mdt::start(rt.clone(), net.clone(), &server, config, params.clone()).await.unwrap();
        if serves_mgs {
            mdt.registered().await.unwrap();
        }
        let import = Import::<Mds>::new(net.clone(), ImportConfig::new("client", mdt.name(), vec![Nid::Lo]));
        let Reply::Seq(seq) = import.request(Request::AllocSeq).send().await.unwrap().body.reply else { panic!() };
        let mgc = Mgc::new(net.clone(), vec![Nid::Lo], "osts");
        Host { rt: rt.clone(), net, server, mgs, mdt, params, import, mgc, seq, oid: AtomicU32::new(1) }
    }

    /// Makes the MGS reachable.
    pub fn serve_mgs(&self) {
        self.server.add::<sheen_wire::Mgs>(MGS_TARGET, self.mgs.clone());
    }

    /// Adds an OST and waits until the MDT uses it.
    pub async fn add_ost(&self, index: u32) -> Arc<FakeOst> {
        let ost = Arc::new(FakeOst::default());
        self.add_ost_again(index, &ost).await;
        self.mdt.wait_osts(1).await;
        ost
    }

    /// Adds `count` OSTs and waits until the MDT uses them.
    pub async fn add_osts(&self, count: u32) -> Vec<Arc<FakeOst>> {
        let mut osts = Vec::new();
        for index in 0..count {
            osts.push(self.add_ost(index).await);
        }
        self.mdt.wait_osts(count as usize).await;
        osts
    }

    /// Adds an OST, or restarts one.
    pub async fn add_ost_again(&self, index: u32, ost: &Arc<FakeOst>) {
        self.server.add::<Ost>(&target_name("sheen", TargetKind::Ost, index), ost.clone());
        let (uuid, nids) = (format!("ost{index}"), vec!["0@lo".to_string()]);
        self.mgc.register("sheen", TargetKind::Ost, Some(index), &uuid, &nids, 0).await.unwrap();
    }

    pub fn new_fid(&self) -> Fid {
        Fid::new(self.seq, self.oid.fetch_add(1, Relaxed))
    }

    pub async fn ask(&self, request: Request) -> Result<Response<Answer>> {
        Ok(self.import.request(request).send().await?)
    }

    /// Makes a directory in the root; returns the transno.
    pub async fn mkdir(&self, name: &str) -> Result<u64> {
        let fid = self.new_fid();
        let name = Bytes::copy_from_slice(name.as_bytes());
        let create = Request::Create {
            cred: Cred::ROOT,
            parent: fid::ROOT,
            name,
            fid,
            node: NewNode::Dir,
            mode: 0o755,
            umask: 0,
        };
        Ok(self.ask(create).await?.transno)
    }

    /// Returns whether the root has an entry of this name.
    pub async fn exists(&self, name: &str) -> bool {
        let name = Bytes::copy_from_slice(name.as_bytes());
        match self.ask(Request::Lookup { cred: Cred::ROOT, parent: fid::ROOT, name }).await {
            Ok(_) => true,
            Err(Errno::ENOENT) => false,
            Err(e) => panic!("{e:?}"),
        }
    }

    /// Creates a file in the root, open for writing; returns its entry and handle.
    pub async fn create(&self, name: &str) -> Result<(Entry, u64)> {
        let name = Bytes::copy_from_slice(name.as_bytes());
        let (fid, flags) = (self.new_fid(), flags::CREAT | flags::RDWR);
        let create =
            Request::OpenCreate { cred: Cred::ROOT, parent: fid::ROOT, name, fid, flags, mode: 0o644, umask: 0 };
        match self.ask(create).await?.body.reply {
            Reply::Opened { entry, handle, .. } => Ok((entry, handle)),
            other => panic!("{other:?}"),
        }
    }

    /// Creates and closes a file; returns its objects with their OSTs.
    pub async fn create_closed(&self, name: &str) -> Result<Vec<(u32, Fid)>> {
        let (entry, handle) = self.create(name).await?;
        self.ask(Request::close(entry.attr.fid, handle)).await?;
        Ok(objects(&entry))
    }

    pub async fn unlink(&self, name: &str) -> Result<()> {
        let name = Bytes::copy_from_slice(name.as_bytes());
        self.ask(Request::Unlink { cred: Cred::ROOT, parent: fid::ROOT, name, dir: false }).await.map(drop)
    }

    pub async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let bytes = |name: &str| Bytes::copy_from_slice(name.as_bytes());
        let (name, new_name) = (bytes(from), bytes(to));
        let rename = Request::Rename {
            cred: Cred::ROOT,
            parent: fid::ROOT,
            name,
            new_parent: fid::ROOT,
            new_name,
            flags: 0,
            whiteout: None,
        };
        self.ask(rename).await.map(drop)
    }

    pub async fn rmdir(&self, name: &str) -> Result<()> {
        let name = Bytes::copy_from_slice(name.as_bytes());
        self.ask(Request::Unlink { cred: Cred::ROOT, parent: fid::ROOT, name, dir: true }).await.map(drop)
    }

    pub async fn sync(&self) -> Result<()> {
        self.ask(Request::Sync { fid: None }).await.map(drop)
    }

    pub fn param(&self, name: &str) -> String {
        self.params.get(name).unwrap()[0].value.clone()
    }
}

/// Waits until a condition holds.
pub async fn until(rt: &Rt, mut so: impl FnMut() -> bool) {
    while !so() {
        rt.sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the objects of a file with their OSTs.
pub fn objects(entry: &Entry) -> Vec<(u32, Fid)> {
    let layout = Layout::decode(entry.layout.as_ref().unwrap()).unwrap();
    layout.components()[0].stripes.iter().map(|s| (s.ost, s.object)).collect()
}
