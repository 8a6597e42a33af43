//! The cases `netdisk` and `network`: this process sends the load, with one connection for each
//! OST.
//!
//! Invariants:
//! * it writes only to the objects of measurements ([`sheen_wire::echo`]), which no file uses;
//! * when a test returns, none of its requests is under way. A late write would create an object
//!   that was removed;
//! * a write is timed until the bytes are durable, as in the case `disk`.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use sheen_lnet::Trust;
use sheen_rpc::{Import, RPCS_IN_FLIGHT_LIMIT, RequestError, Response, ToolClient, echo};
use sheen_rt::Rt;
use sheen_wire::{
    Bulk, Fid, Ost, Selftest,
    auth::Role,
    echo::{SEQ, Shape, objects},
    ost::{Grant, Part, Reply, Request},
    selftest::TARGET,
};

use crate::{
    stop,
    survey::{
        args::{Case, Test},
        disk::{TOO_LARGE, drop_cached},
        load::{Done, Load, named_ost, objects_left},
        plan::{Plan, Point},
        targets::Target,
    },
};

/// Time limit for a connection, and for its restoration.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a test notices an interruption.
const STOP_POLL: Duration = Duration::from_millis(100);

/// The load of this process.
pub struct ClientLoad<'a> {
    plan: &'a Plan,
    /// In the order of the plan's OSTs.
    links: Vec<Link>,
    data: Bytes,
    client: ToolClient,
}

impl ClientLoad<'_> {
    /// Connects to the OSTs, or to the self-tests of their servers. `trust`: of this process.
    ///
    /// # Errors
    /// A server cannot be reached, or does not permit such a load. An OST has too little space.
    pub fn connect(plan: &Plan, trust: Trust) -> io::Result<ClientLoad<'_>> {
        let record = plan.points.iter().map(|point| point.record).max().unwrap_or(0);
        // Not zeros, which a local file system may store as holes.
        let data = Bytes::from(vec![0xa5; record as usize]);
        let mut load = ClientLoad { plan, links: Vec::new(), data, client: ToolClient::new(trust)? };
        for target in &plan.targets {
            let link = load.link(target).map_err(|e| named_ost(&target.name, &e))?;
            load.links.push(link);
        }
        Ok(load)
    }

    fn link(&self, target: &Target) -> io::Result<Link> {
        let (client, nids) = (&self.client, &target.nids);
        if self.plan.case == Case::Network {
            return client.connect(TARGET, nids, RPCS_IN_FLIGHT_LIMIT, CONNECT_TIMEOUT).map(Link::Selftest);
        }
        let import = client.connect::<Ost>(&target.name, nids, RPCS_IN_FLIGHT_LIMIT, CONNECT_TIMEOUT)?;
        let allowed = self.check(&import);
        if allowed.is_err() {
            client.close(&import);
        }
        allowed.map(|()| Link::Ost(import))
    }

    /// Checks that the OST lets this process write, and has the space.
    fn check(&self, import: &Import<Ost>) -> io::Result<()> {
        if import.role() != Role::Server {
            let text = "a survey needs the key of the servers, not one that was issued to a host or user";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let reply = self.client.block_on(send(import, Request::StatFs, Bulk::new()))?;
        let Reply::StatFs(space) = reply.body else { return Err(io::Error::other("statfs: unexpected reply")) };
        let free = space.bavail.saturating_mul(space.bsize.into());
        if self.plan.size > free / 2 { Err(io::Error::other(TOO_LARGE)) } else { Ok(()) }
    }

    /// Removes all objects of an OST that a survey may have written.
    fn remove_from(&self, link: &Link) -> io::Result<()> {
        let Link::Ost(import) = link else { return Ok(()) };
        // If single objects are destroyed, the OST remembers this, and never creates them again.
        let request = Request::DestroyRange { seq: SEQ, first: 0, last: u32::MAX };
        self.client.block_on(send(import, request, Bulk::new())).map(drop)
    }

    fn osts(&self) -> impl Iterator<Item = (&Link, &String)> {
        self.links.iter().zip(&self.plan.osts)
    }
}

impl Load for ClientLoad<'_> {
    fn remove(&self) -> io::Result<()> {
        stop::check()?;
        self.osts().try_for_each(|(link, ost)| self.remove_from(link).map_err(|e| named_ost(ost, &e)))
    }

    fn test(&self, point: Point, test: Test) -> io::Result<Vec<Done>> {
        stop::check()?;
        if self.plan.case == Case::Netdisk && test == Test::Read {
            drop_cached(self.plan, point.objects)?;
        }
        let shape = Shape {
            objects: point.objects as u32,
            threads: point.threads as u32,
            record: point.record as u32,
            bytes: self.plan.size,
        };
        let rt = self.client.net().rt();
        let is_ended = Arc::new(AtomicBool::new(false));
        let begin = |link: &Link| {
            let (rt, link, data, is_ended) = (rt.clone(), link.clone(), self.data.clone(), is_ended.clone());
            let part = OstPart { rt: rt.clone(), link, shape, test, data, is_ended };
            rt.spawn("survey", part.run())
        };
        self.client.block_on(async {
            let running: Vec<_> = self.links.iter().map(begin).collect();
            let mut all = Vec::new();
            for mut part in running {
                all.push(loop {
                    if stop::check().is_err() {
                        is_ended.store(true, Relaxed);
                    }
                    if let Ok(ended) = rt.timeout(STOP_POLL, &mut part).await {
                        break ended.unwrap_or_else(|e| Err(io::Error::other(e)));
                    }
                });
            }
            stop::check()?;
            let named = |(done, ost): (io::Result<Done>, &String)| done.map_err(|e| named_ost(ost, &e));
            all.into_iter().zip(&self.plan.osts).map(named).collect::<io::Result<Vec<Done>>>()
        })
    }

    fn end(&self) -> Vec<String> {
        let left = |(link, ost): (&Link, &String)| self.remove_from(link).err().map(|e| objects_left(ost, &e));
        self.osts().filter_map(left).collect()
    }
}

impl Drop for ClientLoad<'_> {
    fn drop(&mut self) {
        for link in &self.links {
            match link {
                Link::Ost(import) => self.client.close(import),
                Link::Selftest(import) => self.client.close(import),
            }
        }
    }
}

/// The connection for an OST.
#[derive(Clone)]
enum Link {
    /// To the OST.
    Ost(Arc<Import<Ost>>),
    /// To the self-test of its server, which has no disk.
    Selftest(Arc<Import<Selftest>>),
}

impl Link {
    /// Transfers a record.
    async fn record(&self, part: Part, test: Test, data: &Bytes) -> io::Result<()> {
        let bulk = || Bulk::from(data.slice(..part.len as usize));
        match (self, test) {
            (Link::Ost(import), Test::Read) => read(import, part).await,
            (Link::Ost(import), Test::Write | Test::Rewrite) => write(import, part, bulk()).await,
            (Link::Selftest(import), Test::Read) => echo(import, Bulk::new(), part.len).await,
            (Link::Selftest(import), Test::Write | Test::Rewrite) => echo(import, bulk(), 0).await,
        }
    }

    /// Waits until what was written to objects is durable.
    async fn sync(&self, objects: Vec<Fid>) -> io::Result<()> {
        let Link::Ost(import) = self else { return Ok(()) };
        send(import, Request::Sync { objects }, Bulk::new()).await.map(drop)
    }
}

async fn write(import: &Import<Ost>, part: Part, bulk: Bulk) -> io::Result<()> {
    // No file has the object, so nobody is charged for it. For `Fid::ZERO` the MDT would search the
    // layouts of all files.
    let (file, parts, grant) = (part.object, vec![part], Grant::default());
    let request = Request::Write { file, parts, sync: false, mtime: None, grant, held: false };
    match send(import, request, bulk).await?.body {
        Reply::Done { .. } => Ok(()),
        // An OST asks for a lock first only if another client has one.
        _ => Err(io::Error::other("write: another client uses the objects of the survey")),
    }
}

async fn read(import: &Import<Ost>, part: Part) -> io::Result<()> {
    let reply = send(import, Request::Read { parts: vec![part] }, Bulk::new()).await?;
    if reply.bulk.len() == part.len as usize {
        Ok(())
    } else {
        Err(io::Error::other("read: the object has less data; another survey may have removed it"))
    }
}

async fn send(import: &Import<Ost>, request: Request, bulk: Bulk) -> io::Result<Response<Reply>> {
    import.request(request).bulk(bulk).send().await.map_err(failed)
}

/// Turns the failure of a request into an error that does not name the target, as its caller does.
fn failed(e: RequestError) -> io::Error {
    io::Error::other(format!("{}: {} ({})", e.op(), e.cause(), e.errno().name()))
}

/// The part of a test that one OST gets.
#[derive(Clone)]
struct OstPart {
    rt: Rt,
    link: Link,
    shape: Shape,
    test: Test,
    data: Bytes,
    /// Set after an error or an interruption: no further requests.
    is_ended: Arc<AtomicBool>,
}

impl OstPart {
    async fn run(self) -> io::Result<Done> {
        let start = self.rt.now();
        let begin = |thread| self.rt.spawn("survey-thread", self.clone().thread(thread));
        let threads: Vec<_> = (0..self.shape.threads).map(begin).collect();
        let mut all = Vec::with_capacity(threads.len());
        for thread in threads {
            all.push(thread.await.unwrap_or_else(|e| Err(io::Error::other(e))));
        }
        let bytes = all.into_iter().sum::<io::Result<u64>>()?;
        if self.test != Test::Read {
            self.link.sync(objects(self.shape.objects)).await?;
        }
        Ok(Done { bytes, micros: self.rt.now().since(start).as_micros() as u64 })
    }

    /// Transfers the records of a thread. Returns their bytes.
    async fn thread(self, thread: u32) -> io::Result<u64> {
        let mut bytes = 0;
        for part in self.shape.records(thread) {
            if self.is_ended.load(Relaxed) {
                break;
            }
            let done = self.link.record(part, self.test, &self.data).await;
            if done.is_err() {
                self.is_ended.store(true, Relaxed);
            }
            done?;
            bytes += u64::from(part.len);
        }
        Ok(bytes)
    }
}
