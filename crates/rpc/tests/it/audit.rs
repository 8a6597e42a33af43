//! Refused connections and denied requests in the audit trail.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_keys::{Key, Keyring};
use sheen_lnet::{Audit, Denied, Event, Keys, Net, Nid, Trust};
use sheen_rpc::{BoxFuture, Export, Import, Response, Server, Service};
use sheen_rt::Rt;
use sheen_wire::{
    Bulk, Cred, Errno, Fid, Mds,
    auth::{ClusterId, Issued, KeyId, Role, User},
    mds,
};

use crate::common::*;

/// The recorded events.
#[derive(Default)]
struct Trail(Mutex<Vec<Event>>);

impl Audit for Trail {
    fn record(&self, event: Event) {
        self.0.lock().push(event);
    }
}

impl Trail {
    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock())
    }
}

/// A service that answers every request with an error.
struct Denies {
    errno: Errno,
    audited: bool,
}

impl Service<Mds> for Denies {
    fn call<'a>(
        &'a self,
        _: &'a Arc<Export>,
        _: mds::Call,
        _: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<mds::Answer>>> {
        Box::pin(async move { Err(self.errno) })
    }

    fn incarnation(&self) -> u64 {
        1
    }

    fn audits(&self, _: &Export) -> bool {
        self.audited
    }
}

fn root() -> Key {
    Key::new(ClusterId(1), 1, [1; 32], 0)
}

fn trust(key: Key) -> Trust {
    Keys::new(Keyring::of(vec![key])).into()
}

/// Serves a service with an audit trail.
async fn audited(rt: &Rt, service: Denies) -> (Arc<Trail>, Arc<Net>, Arc<Server>, SocketAddr) {
    let trail = Arc::new(Trail::default());
    let net = Net::audited(rt.clone(), trust(root()), Some(trail.clone()));
    let server = Server::new(net.clone());
    server.add::<Mds>(TARGET, Arc::new(service));
    let addr = server.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    (trail, net, server, addr)
}

fn unlink(cred: Cred) -> mds::Request {
    mds::Request::Unlink { cred, parent: Fid::new(7, 1), name: Bytes::from_static(b"name"), dir: false }
}

#[test]
fn denied_request_is_recorded_with_its_client_user_and_file() {
    run(async |rt| {
        let (trail, net, _server, addr) = audited(&rt, Denies { errno: Errno::EACCES, audited: true }).await;
        let role = Role::User(User { uid: 1000, gid: 100, groups: vec![101], nodemap: None });
        let key = root().issue(Issued { id: KeyId(2), role: role.clone() }, 0).unwrap();
        let remote = Import::<Mds>::new(Net::trusting(rt.clone(), trust(key)), import_config("c", Some(addr)));
        // The request says that it is root's.
        let cred = Cred { uid: 0, gid: 101, groups: None };
        assert_eq!(remote.request(unlink(cred.clone())).send().await.unwrap_err(), Errno::EACCES);
        let events = trail.take();
        let [Event::Denied(denied)] = &events[..] else { panic!("{events:?}") };
        let expected = Denied {
            target: TARGET.to_owned(),
            nid: denied.nid,
            client: "u1000/c".to_owned(),
            key: Some(KeyId(2)),
            role: role.to_string(),
            op: "unlink",
            error: "EACCES",
            errno: 13,
            uid: Some(1000),
            gid: Some(101),
            fid: Some(Fid::new(7, 1)),
            name: Some("name".to_owned()),
        };
        assert_eq!(**denied, expected);
        assert!(matches!(denied.nid, Nid::Tcp(_)));

        let local = Import::<Mds>::new(net, import_config("c", None));
        assert_eq!(local.request(unlink(cred)).send().await.unwrap_err(), Errno::EACCES);
        let denied = Denied {
            nid: Nid::Lo,
            client: "c".to_owned(),
            key: None,
            role: Role::Server.to_string(),
            uid: Some(0),
            ..expected
        };
        assert_eq!(trail.take(), [Event::Denied(Box::new(denied))]);
    });
}

#[test]
fn errors_that_deny_nothing_and_clients_without_audit_are_not_recorded() {
    run(async |rt| {
        for (errno, audited_client, recorded) in [
            (Errno::EPERM, true, 1),
            (Errno::NO_CAPABILITY, true, 1),
            (Errno::ENOENT, true, 0),
            (Errno::NEED_GROUPS, true, 0),
            (Errno::EACCES, false, 0),
        ] {
            let (trail, net, _server, _) = audited(&rt, Denies { errno, audited: audited_client }).await;
            let import = Import::<Mds>::new(net, import_config("c", None));
            assert_eq!(import.request(unlink(Cred::ROOT)).send().await.unwrap_err(), errno);
            assert_eq!(trail.take().len(), recorded, "{errno:?}");
        }
    });
}

#[test]
fn every_refused_connection_is_recorded() {
    run(async |rt| {
        let (trail, _net, _server, addr) = audited(&rt, Denies { errno: Errno::ENOENT, audited: true }).await;
        let forged = Net::trusting(rt.clone(), trust(Key::new(ClusterId(1), 1, [2; 32], 0)));
        // More often than the log reports it.
        for _ in 0..3 {
            assert!(forged.connect(addr).await.is_err());
        }
        until(&rt, || trail.0.lock().len() == 3).await;
        for event in &trail.take() {
            let Event::RefusedConnection { nid: Nid::Tcp(_), reason, key } = event else { panic!("{event:?}") };
            assert_eq!((&reason[..], *key), ("it does not know the secret of key 0000000000000001", Some(KeyId(1))));
        }
    });
}
