//! Programs of a key's holder that speak to the servers without a mount, and obey no rules.

use std::sync::Arc;

use bytes::Bytes;
use sheen_keys::{Key, Keyring};
use sheen_lnet::{Keys, Net, Nid};
use sheen_rpc::{Import, ImportConfig};
use sheen_rt::{RealOptions, Rt};
use sheen_wire::{
    Bulk, Errno, Fid, Mds, Ost, Protocol,
    mds::{Reply, Request},
    mgs::{self, TargetKind},
    ost::{self, Capability, Grant, Part},
};

/// Name of the file system.
const FSNAME: &str = "sheen";

/// A program of a key's holder that speaks to the servers without a mount.
pub struct Program {
    pub rt: Rt,
    pub net: Arc<Net>,
    pub nid: Nid,
}

impl Program {
    /// Runs `story` with a program that uses this key. `source`: as for `sheen mount`.
    pub fn run(key: Key, source: &str, story: impl AsyncFnOnce(&Program)) {
        let (runtime, rt) = Rt::real(RealOptions::default()).expect("a runtime");
        let nid = source.split(":/").next().expect("a NID").parse().expect("a NID");
        let net = Net::trusting(rt.clone(), Keys::new(Keyring::of(vec![key])).into());
        let program = Program { rt, net, nid };
        runtime.block_on(story(&program));
    }

    pub fn import<P: Protocol>(&self, target: &str) -> Arc<Import<P>> {
        let uuid = format!("program-{:016x}", self.rt.random_u64());
        Import::new(self.net.clone(), ImportConfig::new(&uuid, target, vec![self.nid]))
    }

    pub fn ost(&self, index: u32) -> Arc<Import<Ost>> {
        self.import(&mgs::target_name(FSNAME, TargetKind::Ost, index))
    }

    pub fn mdt(&self) -> Arc<Import<Mds>> {
        self.import(&mgs::target_name(FSNAME, TargetKind::Mdt, 0))
    }
}

pub async fn ask(ost: &Import<Ost>, request: ost::Request, bulk: &'static [u8]) -> Result<ost::Reply, Errno> {
    let bulk = if bulk.is_empty() { Bulk::new() } else { Bulk::from(Bytes::from_static(bulk)) };
    ost.request(request).bulk(bulk).send().await.map(|response| response.body).map_err(|e| e.errno())
}

pub async fn ask_mdt(mdt: &Import<Mds>, request: Request) -> Result<Reply, Errno> {
    mdt.request(request).send().await.map(|response| response.body.reply).map_err(|e| e.errno())
}

pub async fn capabilities(mdt: &Import<Mds>, fid: Fid) -> Vec<Capability> {
    match ask_mdt(mdt, Request::Capabilities { fid }).await {
        Ok(Reply::Capabilities(capabilities)) => capabilities,
        other => unreachable!("{other:?}"),
    }
}

pub fn read(object: Fid) -> ost::Request {
    ost::Request::Read { parts: vec![Part { object, offset: 0, len: 3 }] }
}

pub fn write(file: Fid, object: Fid) -> ost::Request {
    let (parts, grant) = (vec![Part { object, offset: 0, len: 3 }], Grant::default());
    ost::Request::Write { file, parts, sync: false, mtime: None, grant, held: false }
}
