//! A process with an OST in it, and clients.

pub mod caller;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use sheen_lnet::{Net, Nid};
use sheen_oss::{Ost, OstConfig, Sharing, Store};
use sheen_params::Params;
use sheen_rpc::{BoxFuture, Export, Import, ImportConfig, Response, Server, Service};
use sheen_rt::{
    RealOptions, Rt, Runtime,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Bulk, Errno, Fid, mgs,
    ost::{Grant, Part, Reply, Request},
};

/// Sequence of the objects.
pub const SEQ: u64 = 0x2_8000_0401;
pub const OBJECT: Fid = fid(9);

/// Returns the FID of an object.
pub const fn fid(oid: u32) -> Fid {
    Fid::new(SEQ, oid)
}

/// Opens the store of OST 0, with at most `files` open files.
pub async fn open_store(rt: &Rt, dir: &Path, files: usize) -> Store {
    Store::open(rt, dir, "sheen", Some(0), files, |device| Sharing::new().join(device)).await.unwrap()
}

/// An MGS that gives out the indices 7, 8, … and refuses index 99.
pub struct FakeMgs {
    pub net: Arc<Net>,
    pub next: AtomicU32,
    /// Whether an OST that registered with an index could be reached at that moment.
    pub found: Mutex<Vec<bool>>,
}

impl FakeMgs {
    /// Sends the OST a request, as an MDT does that learns of the OST at once.
    pub async fn look(&self, index: u32) {
        let target = mgs::target_name("sheen", mgs::TargetKind::Ost, index);
        let import = Import::<sheen_wire::Ost>::new(self.net.clone(), ImportConfig::new("mdt", &target, vec![Nid::Lo]));
        let asked = import.request(Request::StatFs).send();
        let answer = self.net.rt().timeout(Duration::from_secs(60), asked).await;
        self.found.lock().unwrap().push(matches!(answer, Ok(Ok(_))));
    }
}

impl Service<sheen_wire::Mgs> for FakeMgs {
    fn call<'a>(
        &'a self,
        _: &'a Arc<Export>,
        request: mgs::Request,
        _: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<mgs::Reply>>> {
        Box::pin(async move {
            match request {
                mgs::Request::Register { index: Some(99), .. } => Err(Errno::EEXIST),
                mgs::Request::Register { index: Some(index), .. } => {
                    self.look(index).await;
                    Ok(mgs::Reply::Registered { index }.into())
                }
                mgs::Request::Register { .. } => {
                    Ok(mgs::Reply::Registered { index: self.next.fetch_add(1, SeqCst) }.into())
                }
                _ => Err(Errno::EPROTO),
            }
        })
    }

    fn incarnation(&self) -> u64 {
        1
    }
}

/// Where a process runs.
pub enum World {
    /// In a simulation, where time passes while [`Process::run`] waits for something.
    Sim(Sim),
    /// On real threads and a real disk.
    Real(Runtime, #[expect(dead_code, reason = "removed when the process is dropped")] tempfile::TempDir),
}

/// A process with an MGS, in which OSTs can be started.
pub struct Process {
    pub world: World,
    pub net: Arc<Net>,
    pub server: Arc<Server>,
    pub params: Params,
    pub mgs: Arc<FakeMgs>,
    pub dir: PathBuf,
}

impl Process {
    pub fn new() -> Process {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        Process::on(rt, World::Sim(sim), "/".into())
    }

    /// Creates a simulated process that serves OST 0.
    pub fn with_ost() -> (Process, Arc<Ost>) {
        let process = Process::new();
        let ost = process.start(Some(0)).unwrap();
        (process, ost)
    }

    pub fn real() -> Process {
        let (runtime, rt) = Rt::real(RealOptions { worker_threads: 2, name: "test".into() }).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        Process::on(rt, World::Real(runtime, dir), path)
    }

    fn on(rt: Rt, world: World, dir: PathBuf) -> Process {
        caller::COOKIES.set(1); // so that a simulation replays
        let net = Net::new(rt);
        let server = Server::new(net.clone());
        let mgs = Arc::new(FakeMgs { net: net.clone(), next: AtomicU32::new(7), found: Mutex::default() });
        server.add::<sheen_wire::Mgs>("MGS", mgs.clone());
        Process { world, net, server, params: Params::new(), mgs, dir }
    }

    /// Waits for a future; tasks run meanwhile.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        match &self.world {
            World::Sim(sim) => sim.run(future).unwrap(),
            World::Real(runtime, _) => runtime.block_on(future),
        }
    }

    pub fn start(&self, index: Option<u32>) -> Result<Arc<Ost>, sheen_oss::OssError> {
        let config = OstConfig::new(self.dir.join("ost"), "sheen", index, vec![Nid::Lo], vec!["0@lo".into()]);
        self.run(Ost::start(self.net.clone(), &self.server, config, self.params.clone()))
    }

    /// Accepts connections; returns the address.
    pub fn listen(&self) -> Nid {
        Nid::Tcp(self.run(self.server.listen("127.0.0.1:0".parse().unwrap())).unwrap())
    }

    pub fn client(&self, net: &Arc<Net>, target: &str, nid: Nid) -> Client<'_> {
        let import = Import::new(net.clone(), ImportConfig::new("client-1", target, vec![nid]));
        Client { process: self, import }
    }

    pub fn value(&self, name: &str) -> String {
        self.params.get(name).unwrap()[0].value.clone()
    }
}

pub struct Client<'a> {
    pub process: &'a Process,
    pub import: Arc<Import<sheen_wire::Ost>>,
}

impl Client<'_> {
    pub fn call(&self, request: Request, bulk: &[u8]) -> sheen_wire::Result<Response<Reply>> {
        Ok(self.process.run(self.import.request(request).bulk(Bulk::from(Bytes::copy_from_slice(bulk))).send())?)
    }

    pub fn write(&self, data: &[u8], sync: bool) -> sheen_wire::Result<Response<Reply>> {
        self.call(
            Request::Write {
                file: Fid::ZERO,
                parts: vec![part(0, data.len())],
                sync,
                mtime: None,
                grant: Grant::default(),
                held: false,
            },
            data,
        )
    }

    pub fn read(&self, len: usize) -> Bytes {
        let reply = self.call(Request::Read { parts: vec![part(0, len)] }, b"").unwrap();
        assert!(matches!(&reply.body, Reply::Read(lens) if lens[..] == [reply.bulk.len() as u32]));
        reply.bulk.into_bytes()
    }
}

pub fn part(offset: u64, len: usize) -> Part {
    Part { object: OBJECT, offset, len: len as u32 }
}
