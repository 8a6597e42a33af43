//! A client that caches replies under locks, and records the callbacks that it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_lnet::{Net, Nid};
use sheen_rpc::{Import, ImportConfig};
use sheen_rt::sim::World;
use sheen_rt::{JoinHandle, Rt};
use sheen_wire::ast::{Callback, Grant};
use sheen_wire::ldlm::{Cookie, LockId};
use sheen_wire::mds::{Answer, Call, NewNode, Reply, Request, SetAttr, flags};
use sheen_wire::{Cred, Errno, Fid, FileKind, Mds, Result, fid};

use super::{Host, MDS, PORT};

pub struct Client {
    pub rt: Rt,
    pub import: Arc<Import<Mds>>,
    called: Arc<Mutex<Vec<Callback>>>,
    cookie: AtomicU64,
    seq: u64,
    oid: AtomicU64,
}

impl Client {
    /// Starts a client in the MDT's process.
    pub async fn lo(host: &Host, name: &str) -> Client {
        Client::on(host.rt.clone(), host.net.clone(), Nid::Lo, host, name).await
    }

    /// Starts a client on a host of its own; the MDT's server must listen.
    pub async fn tcp(world: &World, host: &Host, number: u32) -> Client {
        let rt = world.rt(number);
        let net = Net::new(rt.clone());
        Client::on(rt, net, Nid::Tcp(world.addr(MDS, PORT)), host, &format!("client{number}")).await
    }

    /// Starts three clients: in the MDT's process, or each on a host of its own.
    pub async fn three(world: &World, host: &Host, tcp: bool) -> [Client; 3] {
        if tcp {
            [Client::tcp(world, host, 2).await, Client::tcp(world, host, 3).await, Client::tcp(world, host, 4).await]
        } else {
            [Client::lo(host, "a").await, Client::lo(host, "b").await, Client::lo(host, "c").await]
        }
    }

    async fn on(rt: Rt, net: Arc<Net>, nid: Nid, host: &Host, name: &str) -> Client {
        let import = Import::<Mds>::new(net, ImportConfig::new(name, host.mdt.name(), vec![nid]));
        let called = Arc::new(Mutex::new(Vec::new()));
        let log = called.clone();
        import.on_callback(move |callback| log.lock().push(callback));
        let Answer { reply: Reply::Seq(seq), .. } = import.request(Request::AllocSeq).send().await.unwrap().body else {
            panic!()
        };
        Client { rt, import, called, cookie: AtomicU64::new(1), seq, oid: AtomicU64::new(1) }
    }

    pub fn new_fid(&self) -> Fid {
        Fid::new(self.seq, self.oid.fetch_add(1, Relaxed) as u32)
    }

    pub fn new_cookie(&self) -> Cookie {
        Cookie(self.cookie.fetch_add(1000, Relaxed))
    }

    /// Sends a request that takes locks on the reply.
    pub async fn keep(&self, request: Request) -> Result<Answer> {
        self.call(Call { keep: Some(self.new_cookie()), ..request.into() }).await
    }

    pub async fn ask(&self, request: Request) -> Result<Answer> {
        self.call(request.into()).await
    }

    pub async fn call(&self, call: Call) -> Result<Answer> {
        Ok(self.import.request(call).send().await?.body)
    }

    /// Sends a request in a task.
    pub fn spawn(&self, request: Request) -> JoinHandle<Result<Answer>> {
        let import = self.import.clone();
        self.rt.spawn("ask", async move { Ok(import.request(request).send().await?.body) })
    }

    pub async fn cancel(&self, ids: &[LockId]) {
        let call = Call { cancels: ids.to_vec(), ..Request::Cancel.into() };
        self.import.request(call).urgent().send().await.unwrap();
    }

    /// Returns the callbacks so far, and clears the record.
    pub fn called(&self) -> Vec<Callback> {
        std::mem::take(&mut *self.called.lock())
    }

    /// Returns the locks that got a blocking callback so far, and clears the record.
    pub fn asked(&self) -> Vec<LockId> {
        let blocking = |c| if let Callback::Blocking { id, .. } = c { Some(id) } else { None };
        self.called().into_iter().filter_map(blocking).collect()
    }

    /// Looks up a name in the root, with a lock on the inode.
    pub async fn look(&self, name: &str) -> (Fid, Grant) {
        let answer = self.keep(lookup(name)).await.unwrap();
        let Reply::Entry(entry) = answer.reply else { panic!("{:?}", answer.reply) };
        assert_eq!(answer.grants.len(), 1);
        assert_eq!(answer.grants[0].fid, entry.attr.fid);
        (entry.attr.fid, answer.grants[0])
    }

    /// Creates an empty regular file without objects in the root.
    pub async fn make(&self, name: &str) -> Fid {
        let request = mknod(name, self.new_fid());
        let Answer { reply: Reply::Entry(entry), .. } = self.ask(request).await.unwrap() else { panic!() };
        entry.attr.fid
    }

    pub async fn perm(&self, fid: Fid) -> Result<u32> {
        match self.ask(Request::GetAttr { fid, layout_known: true }).await?.reply {
            Reply::Entry(entry) => Ok(entry.attr.perm),
            other => panic!("{other:?}"),
        }
    }

    /// Long enough for messages, too short for timeouts.
    pub async fn a_while(&self) {
        self.rt.sleep(Duration::from_millis(200)).await;
    }
}

fn name_of(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

pub fn lookup(name: &str) -> Request {
    Request::Lookup { cred: Cred::ROOT, parent: fid::ROOT, name: name_of(name) }
}

pub fn chmod(fid: Fid, perm: u32) -> Request {
    let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
    Request::SetAttr { cred: Cred::ROOT, fid, set, handle: None }
}

pub fn mknod(name: &str, fid: Fid) -> Request {
    let node = NewNode::Node { kind: FileKind::Regular, rdev: 0 };
    Request::Create { cred: Cred::ROOT, parent: fid::ROOT, name: name_of(name), fid, node, mode: 0o644, umask: 0 }
}

pub fn open_create(name: &str, fid: Fid) -> Request {
    let flags = flags::CREAT | flags::RDONLY;
    Request::OpenCreate { cred: Cred::ROOT, parent: fid::ROOT, name: name_of(name), fid, flags, mode: 0o644, umask: 0 }
}

pub fn link(fid: Fid, name: &str) -> Request {
    Request::Link { cred: Cred::ROOT, fid, parent: fid::ROOT, name: name_of(name) }
}

pub fn unlink(name: &str) -> Request {
    Request::Unlink { cred: Cred::ROOT, parent: fid::ROOT, name: name_of(name), dir: false }
}

pub fn list() -> Request {
    Request::ReadDir { fid: fid::ROOT, cookie: 0, max_bytes: 1 << 16, attrs: true }
}

/// Returns the reply, or the error.
pub fn reply(answer: Result<Answer>) -> std::result::Result<Reply, Errno> {
    answer.map(|a| a.reply)
}
