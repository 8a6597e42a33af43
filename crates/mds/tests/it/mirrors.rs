//! Mirrored files as clients of an MDT see them: no client learns which mirrors are stale before
//! this is durable.

use std::time::Duration;

use crate::common::client::Client;
use crate::common::{Host, config, slow_commits, with_host};
use sheen_layout::{Composite, Layout, Spec, Template, TemplateComponent};
use sheen_rt::OpenOptions;
use sheen_rt::sim::{Sim, SimConfig};
use sheen_wire::mds::{Answer, Opener, Reply, Request};
use sheen_wire::mirror::{MirrorChange, XATTR};
use sheen_wire::{Cred, Errno, Fid};

/// Configuration of an MDT that commits late unless a request waits for a commit.
/// Creates a file with two mirrors.
async fn file(client: &Client, name: &str) -> Fid {
    let fid = client.make(name).await;
    let one = TemplateComponent::striped(0, u64::MAX, Spec::default());
    let template = Template { components: vec![one.clone(), one], mirrors: 2 };
    client.ask(set(fid, "lustre.lov", template.encode())).await.unwrap();
    fid
}

fn set(fid: Fid, name: &'static str, value: Vec<u8>) -> Request {
    Request::SetXattr { cred: Cred::ROOT, fid, name: name.into(), value: value.into(), flags: 0 }
}

fn get(fid: Fid) -> Request {
    Request::GetAttr { fid, layout_known: false }
}

fn state(answer: &Answer) -> u16 {
    let Reply::Entry(entry) = &answer.reply else { panic!("{:?}", answer.reply) };
    Layout::decode(entry.layout.as_ref().unwrap()).unwrap().mirror_state()
}

#[test]
fn mirror_choice_is_visible_only_when_durable() {
    with_host(1, slow_commits(), async |sim, rt, host| {
        let ost = host.add_ost(0).await;
        let [a, b] = [Client::lo(&host, "a").await, Client::lo(&host, "b").await];
        let f = file(&a, "f").await;
        a.ask(Request::Sync { fid: Some(f) }).await.unwrap();
        // One client writes, the other looks; no third client caches anything of the file.
        let asked = a.spawn(Request::LayoutIntent { fid: f, start: 0, end: 1, opener: Opener::UNKNOWN });
        rt.sleep(Duration::ZERO).await;
        let seen = b.import.request(get(f)).send().await.unwrap();
        assert_eq!(state(&seen.body), Composite::WRITE_PENDING);
        // The layout that it saw and may write by survives a crash now.
        sim.crash_host(1);
        drop((asked, a, b, host));
        let host = Host::start(&sim.rt(1), config()).await;
        host.add_ost_again(0, &ost).await;
        let now = host.ask(get(f)).await.unwrap();
        assert_eq!(state(&now.body), Composite::WRITE_PENDING);
    });
}

#[test]
fn mirror_choice_waits_until_a_full_store_can_commit() {
    let sim = Sim::new(2, SimConfig { disk_bytes: 64 << 20, ..SimConfig::default() });
    let rt = sim.rt(1);
    sim.run(async {
        let host = Host::start(&rt, slow_commits()).await;
        host.add_ost(0).await;
        let [a, b] = [Client::lo(&host, "a").await, Client::lo(&host, "b").await];
        let f = file(&a, "f").await;
        a.ask(Request::Sync { fid: Some(f) }).await.unwrap();
        let ballast = rt.disk().open("/ballast", OpenOptions::CREATE).unwrap();
        let mut at = 0;
        for piece in [1 << 20, 4096] {
            while ballast.write_all_at(at, &vec![1; piece]).is_ok() {
                at += piece as u64;
            }
        }
        // More than fits into the store, and with it the change that no client may see.
        for i in 0..200 {
            let other = a.make(&format!("other{i}")).await;
            a.ask(set(other, "user.a", vec![i; 60_000])).await.unwrap();
        }
        let begun = MirrorChange::Resync { mirrors: vec![2], end: 0 }.encode().unwrap();
        let asked = a.spawn(set(f, XATTR, begun));
        rt.sleep(Duration::ZERO).await;
        let seen = b.spawn(get(f));
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(host.ask(Request::Sync { fid: None }).await.map(drop), Err(Errno::EIO), "the disk is full");
        assert!(!asked.is_finished() && !seen.is_finished(), "a client saw what is not durable");
        ballast.set_len(0).unwrap();
        ballast.sync_data_blocking().unwrap();
        asked.await.unwrap().unwrap();
        assert_eq!(state(&seen.await.unwrap().unwrap()), Composite::SYNC_PENDING);
    })
    .unwrap();
}

/// Found by simulated races: a truncate that took longer than a resync by the same client was
/// missing from a mirror that counted as in sync.
#[test]
fn resync_takes_layout_lock_from_its_own_client() {
    with_host(3, config(), async |_, _, host| {
        host.add_ost(0).await;
        let a = Client::lo(&host, "a").await;
        let f = file(&a, "f").await;
        // A program of this client changes the file by its layout; a tool of the same client
        // resyncs a mirror.
        let Answer { grants, .. } = a.keep(get(f)).await.unwrap();
        let held: Vec<_> = grants.iter().map(|grant| grant.id).collect();
        let begun = MirrorChange::Resync { mirrors: vec![2], end: 0 }.encode().unwrap();
        let resync = a.spawn(set(f, XATTR, begun));
        a.a_while().await;
        assert!(!resync.is_finished(), "the program's change ends first");
        assert_eq!(a.asked(), held);
        a.cancel(&held).await;
        resync.await.unwrap().unwrap();
        // A program's own request takes no locks from its client.
        let grants = a.keep(get(f)).await.unwrap().grants;
        a.ask(Request::LayoutIntent { fid: f, start: 0, end: 1, opener: Opener::UNKNOWN }).await.unwrap();
        assert!(!grants.is_empty() && a.asked().is_empty());
    });
}
