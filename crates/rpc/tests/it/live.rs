//! Bulk that is sent from the pages of a file: the client gets the file's contents, even if the
//! file is changed meanwhile.

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use sheen_keys::{Key, Keyring};
use sheen_lnet::{Keys, Live, Net, Source, Stretch, Trust};
use sheen_rpc::{BoxFuture, Export, Import, ImportConfig, ImportParams, Response, Server, Service};
use sheen_rt::{
    File, OpenOptions, Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Bulk, Mds, Ost,
    auth::{ClusterId, Flavor, Issued, KeyId, Role, User},
    ost,
};

use crate::common::*;

const LEN: usize = (3 << 20) + 5;

struct Pages {
    file: File,
    stale: AtomicUsize,
}

impl Source for Pages {
    fn file(&self) -> &File {
        &self.file
    }

    fn stale(&self) {
        self.stale.fetch_add(1, Ordering::SeqCst);
    }
}

/// A service that answers every read with the whole file in two stretches, and with an older
/// checksum.
struct Files {
    pages: Arc<Pages>,
    crc: u32,
}

impl Service<Ost> for Files {
    fn call<'a>(
        &'a self,
        _: &'a Arc<Export>,
        _: ost::Request,
        _: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<ost::Reply>>> {
        let stretch = |offset: usize, len| Stretch { source: self.pages.clone(), offset: offset as u64, len };
        let live = Live {
            stretches: vec![stretch(0, 70_000), stretch(70_000, LEN - 70_000)],
            crc: Some(self.crc),
            held: None,
        };
        Box::pin(async move { Ok(Response::with_live(ost::Reply::Read(vec![LEN as u32]), live)) })
    }

    fn incarnation(&self) -> u64 {
        1
    }

    fn inline(&self, _: &ost::Request) -> bool {
        false
    }
}

/// Reads a file that `change` changed after its checksum was computed. Returns the bytes, and how
/// often the checksum was found to be wrong.
async fn read_back(hosts: &Hosts, change: impl Fn(&File), checksums: bool) -> (Vec<u8>, usize) {
    let Hosts { server: server_rt, client: client_rt, host, dir, trust } = hosts;
    let file = server_rt.disk().open(dir.join("pages"), OpenOptions::CREATE).unwrap();
    let before = data(LEN, 1);
    file.write_all_vectored_at(0, before.segments()).unwrap();
    change(&file);
    let pages = Arc::new(Pages { file, stale: AtomicUsize::new(0) });
    let server = Server::with_config(Net::trusting(server_rt.clone(), trust.clone()), patient_config());
    server.add::<Ost>(TARGET, Arc::new(Files { pages: pages.clone(), crc: before.crc() }));
    let addr = server.listen(([0, 0, 0, 0], 0).into()).await.unwrap();
    let config = patient_import_config("c", Some((*host, addr.port()).into()));
    let import = Import::<Ost>::new(Net::trusting(client_rt.clone(), trust.clone()), config);
    import.set_checksums(checksums);
    let got = import.request(read()).send().await.unwrap();
    assert_eq!(import.stats().connects, 1, "a connection was closed");
    (got.bulk.into_bytes().to_vec(), pages.stale.load(Ordering::SeqCst))
}

/// The server with its directory and address, and the client.
#[derive(Clone)]
struct Hosts {
    server: Rt,
    client: Rt,
    host: IpAddr,
    dir: PathBuf,
    trust: Trust,
}

/// Runs the cases with each protection of connections. With protection the data is read into memory
/// to be sealed.
async fn cases(hosts: Hosts) {
    let keyring = Arc::new(Keyring::of(vec![Key::new(ClusterId(1), 1, [1; 32], 0)]));
    for flavor in Flavor::ALL {
        let trust = Keys { flavor: Some(flavor), ..Keys::new(keyring.clone()) }.into();
        cases_with(&Hosts { trust, ..hosts.clone() }).await;
    }
}

async fn cases_with(hosts: &Hosts) {
    let whole = data(LEN, 1).into_bytes().to_vec();
    for checksums in [true, false] {
        let (got, stale) = read_back(hosts, |_| {}, checksums).await;
        assert!(got == whole);
        assert_eq!(stale > 0, !checksums, "sent directly only if the client would notice a change");
        let (got, stale) = read_back(hosts, |f| f.write_all_at(100_000, b"new").unwrap(), checksums).await;
        let mut want = whole.clone();
        want[100_000..100_003].copy_from_slice(b"new");
        assert!(got == want && stale > 0, "a change after the checksum was computed");
        let (got, stale) = read_back(hosts, |f| f.set_len(1 << 20).unwrap(), checksums).await;
        want.copy_from_slice(&whole);
        want[1 << 20..].fill(0);
        assert!(got == want && stale > 0, "a truncate after the checksum was computed");
    }
}

#[test]
fn live_bulk_over_a_real_socket_matches_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, trust) = (dir.path().to_owned(), Trust::All);
    real(|rt| cases(Hosts { server: rt.clone(), client: rt, host: [127, 0, 0, 1].into(), dir, trust }));
}

#[test]
fn live_bulk_in_the_simulator_matches_the_file() {
    for seed in 0..4 {
        let sim = Sim::new(seed, SimConfig { short_io: 0.2, ..SimConfig::default() });
        let host = sim.addr(1, 0).ip();
        let (server, client, trust) = (sim.rt(1), sim.rt(2), Trust::All);
        sim.run(cases(Hosts { server, client, host, dir: "/".into(), trust })).unwrap();
    }
}

#[test]
fn client_of_another_role_cannot_take_over_an_export() {
    let sim = Sim::new(5, SimConfig::default());
    sim.run(async {
        let root = Key::new(ClusterId(1), 1, [1; 32], 0);
        let user = |uid| Role::User(User { uid, gid: 1, groups: Vec::new(), nodemap: None });
        let issue = |id, role| root.issue(Issued { id: KeyId(id), role }, 0).unwrap();
        let trust = |key: &Key| Trust::from(Keys::new(Keyring::of(vec![key.clone()])));
        let echo = Arc::new(Echo::new(1));
        let server = Server::new(Net::trusting(sim.rt(1), trust(&root)));
        server.add::<Mds>(TARGET, echo.clone());
        let addr = server.listen(sim.addr(1, 7988)).await.unwrap();
        let connect = async |host, key: &Key| {
            // All say that they are the same client.
            let config = ImportConfig { params: ImportParams::default(), ..import_config("c", Some(addr)) };
            let import = Import::<Mds>::new(Net::trusting(sim.rt(host), trust(key)), config);
            let connected = import.connect().await;
            (import, connected.map_err(|e| e.to_string()))
        };
        let (owner, connected) = connect(2, &issue(2, user(1000))).await;
        connected.unwrap();
        assert_eq!(owner.role(), user(1000));
        assert_eq!(seq(&owner).await, Ok(1));
        for (host, other) in [
            (3, issue(3, user(1001))),
            (4, issue(4, Role::Host(None))),
            (5, issue(7, Role::Host(Some("a".to_owned())))),
            (6, root.clone()),
        ] {
            let (import, connected) = connect(host, &other).await;
            connected.unwrap();
            import.close().await;
        }
        let ended = echo.ended.lock().clone();
        assert_eq!(ended, ["u1001/c", "host/c", "host:a/c", "c"], "they are clients of their own");
        let role = Role::User(User { uid: 1000, gid: 1, groups: vec![0], nodemap: None });
        let (_import, refused) = connect(7, &issue(6, role)).await;
        assert!(refused.unwrap_err().contains("Permission denied"));
        assert_eq!(seq(&owner).await, Ok(2), "it is still connected");
    })
    .unwrap();
}
