//! A client that answers callbacks when the test says so.

use std::{
    cell::Cell,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use bytes::Bytes;
use sheen_lnet::{Net, Nid};
use sheen_oss::Ost;
use sheen_rpc::{Import, ImportConfig};
use sheen_rt::JoinHandle;
use sheen_wire::{
    Fid, Result,
    ast::Callback,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, LockId, Mode, Policy, Resource},
    ost::{Grant, ObjectAttr, Part, Reply, Request},
};

use super::{Process, World, part};

/// Longer than any request here takes that does not wait for a lock; shorter than the lock timeout.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than any request takes on a busy machine.
pub const REAL_PATIENCE: Duration = Duration::from_secs(60);
/// Time in which an event that must not happen would happen.
pub const MOMENT: Duration = Duration::from_millis(30);
pub const ALL: Policy = Policy::extent(0, u64::MAX);
/// A client that answers callbacks when the test says so.
pub struct Caller<'a> {
    pub process: &'a Process,
    pub import: Arc<Import<sheen_wire::Ost>>,
    pub callbacks: Receiver<Callback>,
}

impl<'a> Caller<'a> {
    pub fn new(process: &'a Process, ost: &Ost, name: &str, net: &Arc<Net>, nid: Nid) -> Caller<'a> {
        let import = Import::new(net.clone(), ImportConfig::new(name, ost.name(), vec![nid]));
        let (sender, callbacks) = channel();
        import.on_callback(move |callback| _ = sender.send(callback));
        Caller { process, import, callbacks }
    }

    pub fn local(process: &'a Process, ost: &Ost, name: &str) -> Caller<'a> {
        Caller::new(process, ost, name, &process.net, Nid::Lo)
    }

    /// Creates the clients `a` and `b`.
    pub fn pair(process: &'a Process, ost: &Ost) -> (Caller<'a>, Caller<'a>) {
        (Caller::local(process, ost, "a"), Caller::local(process, ost, "b"))
    }

    pub fn begin(&self, request: Request, bulk: Bytes) -> JoinHandle<Result<Reply>> {
        let import = self.import.clone();
        let call = async move { Ok(import.request(request).bulk(bulk.into()).send().await?.body) };
        self.process.net.rt().spawn("test", call)
    }

    pub fn begin_write(&self, object: Fid, offset: u64, data: &'static [u8]) -> JoinHandle<Result<Reply>> {
        let parts = vec![Part { object, offset, len: data.len() as u32 }];
        self.begin(
            Request::Write { file: Fid::ZERO, parts, sync: false, mtime: None, grant: Grant::default(), held: false },
            Bytes::from_static(data),
        )
    }

    pub fn end<T>(&self, begun: JoinHandle<T>) -> T {
        self.process.end(begun)
    }

    pub fn call(&self, request: Request) -> Reply {
        self.end(self.begin(request, Bytes::new())).unwrap()
    }

    pub fn write(&self, object: Fid, offset: u64, data: &'static [u8]) {
        self.end(self.begin_write(object, offset, data)).unwrap();
    }

    pub fn enqueue(&self, locks: Vec<Enqueue>) -> Vec<(Enqueued, ObjectAttr)> {
        enqueued(self.call(Request::Enqueue { locks, want: 0 }))
    }

    /// Takes a PR lock on a whole object, under which size and data may be cached.
    pub fn keep(&self, object: Fid) -> (LockId, ObjectAttr) {
        let [(answer, attr)] = self.enqueue(vec![pr(object, ALL)])[..] else { panic!("one answer") };
        (granted(answer), attr)
    }

    pub fn cancel(&self, id: LockId) {
        let request = Request::Cancel { locks: vec![id] };
        self.process.run(self.import.request(request).urgent().send()).unwrap();
    }

    pub fn read(&self, object: Fid) -> Bytes {
        let request = Request::Read { parts: vec![Part { object, ..part(0, 1 << 20) }] };
        let reply = self.process.run(self.import.request(request).send());
        reply.unwrap().bulk.into_bytes()
    }

    /// The next callback.
    pub fn callback(&self) -> Callback {
        self.process.wait_for(|| self.callbacks.try_recv().ok())
    }

    /// The lock of the next blocking callback. A glimpse that comes before is answered with some
    /// dirty data.
    pub fn asked(&self) -> LockId {
        self.asked_for().0
    }

    /// The lock of the next blocking callback, and the mode that conflicts with it.
    pub fn asked_for(&self) -> (LockId, Mode) {
        loop {
            match self.callback() {
                Callback::Blocking { id, wanted, .. } => return (id, wanted.0),
                Callback::Glimpse { id, .. } => self.keeps(id, Some(ObjectAttr { size: 1, ..ObjectAttr::default() })),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Answers a glimpse.
    pub fn keeps(&self, id: LockId, attr: Option<ObjectAttr>) {
        let request = Request::Glimpsed { answers: vec![(id, attr)] };
        self.process.run(self.import.request(request).urgent().send()).unwrap();
    }

    pub fn not_asked(&self) {
        self.process.sleep(MOMENT);
        assert_eq!(self.callbacks.try_recv().ok(), None);
    }
}

impl Process {
    /// Most time for a request that does not wait for a lock.
    pub fn patience(&self) -> Duration {
        match self.world {
            World::Sim(_) => PATIENCE,
            World::Real(..) => REAL_PATIENCE,
        }
    }

    pub fn end<T>(&self, begun: JoinHandle<T>) -> T {
        self.run(self.net.rt().timeout(self.patience(), begun)).unwrap().unwrap()
    }

    pub fn sleep(&self, time: Duration) {
        self.run(self.net.rt().sleep(time));
    }

    /// Waits until `look` returns a value.
    pub fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let rt = self.net.rt();
        let found = async {
            loop {
                if let Some(found) = look() {
                    return found;
                }
                rt.sleep(Duration::from_millis(1)).await;
            }
        };
        self.run(rt.timeout(self.patience(), found)).unwrap()
    }

    pub fn still_waits<T>(&self, begun: &JoinHandle<T>) {
        self.sleep(MOMENT);
        assert!(!begun.is_finished());
    }

    pub fn locks(&self) -> u64 {
        self.value("ldlm.namespaces.filter-sheen-OST0000_UUID.lock_count").parse().unwrap()
    }

    /// Waits until the OST knows of that many locks, waiting ones included.
    pub fn until_locks(&self, count: u64) {
        self.wait_for(|| (self.locks() == count).then_some(()));
    }
}

thread_local! {
    /// The next cookie of this test.
    pub static COOKIES: Cell<u64> = const { Cell::new(1) };
}

pub fn pr(object: Fid, policy: Policy) -> Enqueue {
    let cookie = Cookie(COOKIES.replace(COOKIES.get() + 1));
    let flags = Flags { no_expand: true, ..Flags::default() };
    Enqueue { flags, ..Enqueue::new(Resource::extent(object), Mode::Pr, policy, cookie) }
}

pub fn enqueued(reply: Reply) -> Vec<(Enqueued, ObjectAttr)> {
    match reply {
        Reply::Enqueued { locks: answers, .. } => answers,
        other => panic!("{other:?}"),
    }
}

pub fn granted(answer: Enqueued) -> LockId {
    match answer {
        Enqueued::Granted { id, .. } => id,
        other => panic!("{other:?}"),
    }
}
