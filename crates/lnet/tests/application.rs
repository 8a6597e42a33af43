//! Keys that servers issue to clients without one, in the simulator. The witness stands for MUNGE:
//! its credentials cannot be forged, but everybody may read and pass them on.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{io, net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use sheen_keys::{Key, Keyring, Witness};
use sheen_lnet::{Applying, Audit, AuthError, Connection, Event, Frame, Issuing, Keys, Net, RecvError, Stranger};
use sheen_rt::{
    JoinHandle, Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    auth::{Claim, ClusterId, KeyId, Role, User},
    frame::Kind,
};

use common::{Middle, relay};

const CLUSTER: ClusterId = ClusterId(7);
/// The user as whom the server runs.
const SERVER: u32 = 990;
/// A client's user.
const ALICE: u32 = 1000;
/// Number of its groups.
const GROUPS: u32 = 300;

fn run(test: impl AsyncFn(Rt)) {
    for seed in 0..4 {
        let sim = Sim::new(seed, SimConfig::default());
        sim.run(test(sim.rt(1))).unwrap();
    }
}

/// The processes of a site, with all credentials that they got.
#[derive(Clone, Debug, Default)]
struct Site(Arc<Mutex<Vec<(u32, String)>>>);

/// A process of a site.
#[derive(Debug)]
struct Process {
    site: Site,
    uid: u32,
    /// Passes on the newest credential of the site, instead of its own.
    steals: bool,
    /// Number of groups of the client's user, as this process knows them.
    groups: u32,
}

impl Witness for Process {
    fn attest(&self, text: &str) -> io::Result<String> {
        let mut credentials = self.site.0.lock();
        if !self.steals {
            credentials.push((self.uid, text.to_owned()));
        }
        Ok((credentials.len() - 1).to_string())
    }

    fn check(&self, credential: &str, text: &str) -> io::Result<u32> {
        let found = credential.parse().ok().and_then(|n: usize| self.site.0.lock().get(n).cloned());
        let found = found.filter(|(_, said)| said == text).map(|(uid, _)| uid);
        found.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn user(&self, uid: u32) -> io::Result<Option<User>> {
        Ok((uid == ALICE).then(|| User { groups: (0..self.groups).collect(), ..alice() }))
    }
}

/// The recorded events.
#[derive(Default)]
struct Trail(Mutex<Vec<Event>>);

impl Audit for Trail {
    fn record(&self, event: Event) {
        self.0.lock().push(event);
    }
}

fn alice() -> User {
    User { uid: ALICE, gid: 100, groups: (0..GROUPS).collect(), nodemap: None }
}

impl Site {
    fn process(&self, uid: u32) -> Arc<Process> {
        Arc::new(Process { site: self.clone(), uid, steals: false, groups: GROUPS })
    }

    fn issuing(&self, hosts: bool) -> Option<Issuing> {
        Some(Issuing { witness: self.process(SERVER), hosts })
    }

    fn applying(&self, uid: u32) -> Option<Applying> {
        Some(Applying { witness: self.process(uid), servers: vec![SERVER] })
    }
}

fn key(id: u64) -> Key {
    Key::new(CLUSTER, id, [id as u8; 32], id as i64)
}

/// A client without a key.
fn client(rt: &Rt, applying: Option<Applying>) -> Arc<Net> {
    Net::trusting(rt.clone(), Keys { applying, ..Keys::new(Keyring::default()) }.into())
}

/// A server that admits one connection. Returns its claim.
async fn serve(rt: &Rt, keys: Keys) -> (SocketAddr, JoinHandle<Result<Option<Claim>, Stranger>>) {
    let net = Net::trusting(rt.clone(), keys.into());
    let acceptor = net.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let addr = acceptor.local_addr();
    let admitted = rt.spawn("admit", async move {
        let Connection { sender, mut receiver } = acceptor.accept().await;
        match net.admit(&sender, &mut receiver).await {
            Ok(_) => Ok(sender.claim().cloned()),
            Err(RecvError::Stranger(stranger)) => {
                sender.finish();
                let _ = receiver.recv().await;
                Err(stranger)
            }
            // The client does not trust the server.
            Err(RecvError::Eof) => Err(Stranger::NoKey),
            Err(other) => unreachable!("{other}"),
        }
    });
    (addr, admitted)
}

/// Connects a client to a server. Returns the errors of both, or the claim of the client.
async fn meet(rt: &Rt, server: Keys, client: &Net) -> (Option<AuthError>, Result<Option<Claim>, Stranger>) {
    let (addr, admitted) = serve(rt, server).await;
    let error = match client.connect(addr).await {
        Ok(connection) => {
            connection.sender.post(Frame::new(Kind::Hello, 1)).unwrap();
            connection.sender.finish();
            None
        }
        Err(e) => Some(*e.into_inner().unwrap().downcast::<AuthError>().expect("an AuthError")),
    };
    (error, admitted.await.unwrap())
}

fn server(issuing: Option<Issuing>) -> Keys {
    Keys { issuing, ..Keys::new(Keyring::of(vec![key(1), key(2)])) }
}

#[test]
fn client_without_a_key_gets_that_of_its_user() {
    run(async |rt| {
        let site = Site::default();
        let client = client(&rt, site.applying(ALICE));
        let (error, admitted) = meet(&rt, server(site.issuing(false)), &client).await;
        assert!(error.is_none(), "{error:?}");
        let claim = admitted.unwrap().unwrap();
        assert_eq!((claim.key, claim.role()), (KeyId(2), &Role::User(alice())));
        // Other servers of the cluster issue none, and accept it.
        let asked = site.0.lock().len();
        assert_eq!(meet(&rt, server(None), &client).await.1, Ok(Some(claim)));
        assert_eq!(site.0.lock().len(), asked, "the key is used again");
    });
}

#[test]
fn roots_host_gets_a_key_only_from_a_server_that_issues_them() {
    run(async |rt| {
        let site = Site::default();
        let (error, admitted) = meet(&rt, server(site.issuing(false)), &client(&rt, site.applying(0))).await;
        assert!(matches!(error, Some(AuthError::NotIssued(CLUSTER, _))), "{error:?}");
        assert_eq!(admitted, Err(Stranger::NotIssued(0)));
        let admitted = meet(&rt, server(site.issuing(true)), &client(&rt, site.applying(0))).await.1;
        assert_eq!(admitted.unwrap().unwrap().role(), &Role::Host(None));
    });
}

#[test]
fn unknown_user_gets_no_key() {
    run(async |rt| {
        let site = Site::default();
        let (error, admitted) = meet(&rt, server(site.issuing(true)), &client(&rt, site.applying(1234))).await;
        assert!(error.unwrap().to_string().contains("no such user"));
        assert_eq!(admitted, Err(Stranger::NotIssued(1234)));
    });
}

#[test]
fn server_that_issues_no_keys_refuses_a_client_without_one() {
    run(async |rt| {
        let site = Site::default();
        let (error, admitted) = meet(&rt, server(None), &client(&rt, site.applying(ALICE))).await;
        assert!(matches!(error, Some(AuthError::NoKey(CLUSTER))), "{error:?}");
        assert_eq!(admitted, Err(Stranger::NoKey));
        assert!(site.0.lock().is_empty(), "nobody proves anything");
    });
}

#[test]
fn credential_of_another_connection_is_refused() {
    run(async |rt| {
        let site = Site::default();
        meet(&rt, server(site.issuing(false)), &client(&rt, site.applying(ALICE))).await.1.unwrap();
        let thief = Arc::new(Process { site: site.clone(), uid: 1001, steals: true, groups: GROUPS });
        let client = client(&rt, Some(Applying { witness: thief, servers: vec![SERVER] }));
        let (error, admitted) = meet(&rt, server(site.issuing(false)), &client).await;
        assert!(matches!(error, Some(AuthError::NotIssued(CLUSTER, _))), "{error:?}");
        assert_eq!(admitted, Err(Stranger::Unproved));
    });
}

#[test]
fn key_is_accepted_only_from_a_server_of_a_trusted_user() {
    run(async |rt| {
        let site = Site::default();
        for (uid, steals) in [(1001, false), (1001, true)] {
            let witness = Arc::new(Process { site: site.clone(), uid, steals, groups: GROUPS });
            let server = server(Some(Issuing { witness, hosts: false }));
            let (addr, _admitted) = serve(&rt, server).await;
            let error = client(&rt, site.applying(ALICE)).connect(addr).await.err().unwrap();
            let expected = if steals { "cannot get one" } else { "runs as user 1001" };
            assert!(error.to_string().contains(expected), "{error}");
        }
    });
}

#[test]
fn withdrawn_key_is_not_issued_again() {
    run(async |rt| {
        let site = Site::default();
        let dir = tempfile::tempdir().unwrap();
        let keyring = Arc::new(Keyring::default());
        keyring.serve(dir.path(), Some(dir.path()), || key(1), |e| unreachable!("{e}")).unwrap();
        let keys = Keys { issuing: site.issuing(false), ..Keys::new(keyring.clone()) };
        let claim = meet(&rt, keys.clone(), &client(&rt, site.applying(ALICE))).await.1.unwrap().unwrap();
        let records = sheen_keys::records(dir.path()).unwrap();
        assert_eq!(records.iter().map(|(record, _)| record.id.to_string()).collect::<Vec<_>>(), [claim.to_string()]);
        sheen_keys::withdraw(dir.path(), records[0].0.id).unwrap();
        keyring.refresh().unwrap();
        let (error, admitted) = meet(&rt, keys, &client(&rt, site.applying(ALICE))).await;
        assert!(error.unwrap().to_string().contains("this user's key was withdrawn"));
        let withdrawn = Err(Stranger::UnknownKey(records[0].0.id));
        assert_eq!(admitted, withdrawn);
        // Neither with other groups, nor by another key of the cluster.
        sheen_keys::store(dir.path(), &key(2)).unwrap();
        keyring.refresh().unwrap();
        let witness = Arc::new(Process { groups: 1, ..Arc::into_inner(site.process(SERVER)).unwrap() });
        let keys = Keys { issuing: Some(Issuing { witness, hosts: false }), ..Keys::new(keyring) };
        assert_eq!(meet(&rt, keys, &client(&rt, site.applying(ALICE))).await.1, withdrawn);
    });
}

#[test]
fn connections_of_a_process_apply_for_one_key() {
    run(async |rt| {
        let site = Site::default();
        let trail = Arc::new(Trail::default());
        let net = Net::audited(rt.clone(), server(site.issuing(false)).into(), Some(trail.clone()));
        let acceptor = net.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let addr = acceptor.local_addr();
        let (tasks, serving) = (rt.clone(), net.clone());
        drop(rt.spawn("server", async move {
            loop {
                let Connection { sender, mut receiver } = acceptor.accept().await;
                let net = serving.clone();
                drop(tasks.spawn("admit", async move {
                    let _ = net.admit(&sender, &mut receiver).await;
                }));
            }
        }));
        let client = client(&rt, site.applying(ALICE));
        let connecting = (0..5).map(|_| {
            let client = client.clone();
            rt.spawn("connect", async move { client.connect(addr).await.map(drop) })
        });
        for connected in connecting.collect::<Vec<_>>() {
            connected.await.unwrap().unwrap();
        }
        assert_eq!(site.0.lock().len(), 2, "one credential of each end");
        let events = trail.0.lock();
        let [Event::IssuedKey { role, uid: ALICE, .. }] = &events[..] else { unreachable!("{events:?}") };
        assert_eq!(*role, Role::User(alice()).to_string());
    });
}

#[test]
fn relay_cannot_use_the_issued_key() {
    run(async |rt| {
        let site = Site::default();
        let (addr, admitted) = serve(&rt, Keys { relays: true, ..server(site.issuing(false)) }).await;
        let back = Arc::new(Middle::default());
        let through = relay(&rt, addr, Arc::default(), back.clone()).await;
        let connection = client(&rt, site.applying(ALICE)).connect(through).await.unwrap();
        connection.sender.post(Frame::new(Kind::Hello, 1)).unwrap();
        let claim = admitted.await.unwrap().unwrap().unwrap();
        let issued = key(2).issue(claim.issued.unwrap(), 2).unwrap();
        let passed = back.seen.lock().unwrap();
        assert!(passed.len() > 500);
        assert!(!passed.windows(32).any(|bytes| bytes == issued.secret.0), "the secret is encrypted");
    });
}
