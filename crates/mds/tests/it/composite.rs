//! Composite layouts as clients of an MDT see them. Objects are created where the file is written,
//! on OSTs that take objects, and no client uses an old layout.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::client::{Client, open_create, unlink};
use crate::common::{FakeOst, Host, config, with_host};
use crate::common::{MDS, PORT};
use bytes::Bytes;
use sheen_layout::{Count, Layout, Mark, Pool, Spec, Template, TemplateComponent};
use sheen_rt::JoinHandle;
use sheen_wire::ast::Callback;
use sheen_wire::ldlm::{LockId, Mode, Policy, Resource, bits};
use sheen_wire::mds::{Answer, Call, NewNode, Opener, Reply, Request};
use sheen_wire::mgs::PoolChange;
use sheen_wire::{Cred, Errno, Fid, Result, fid};

const MIB: u64 = 1 << 20;
const EOF: u64 = u64::MAX;

fn part(start: u64, end: u64, stripes: u16) -> TemplateComponent {
    TemplateComponent::striped(start, end, Spec { count: Some(Count::Stripes(stripes)), ..Spec::default() })
}

/// Three components: 1, 2 and 4 stripes from 0, 1 MiB and 16 MiB on.
fn three() -> Template {
    Template::new(vec![part(0, MIB, 1), part(MIB, 16 * MIB, 2), part(16 * MIB, EOF, 4)])
}

fn set(fid: Fid, name: &'static str, value: Vec<u8>) -> Request {
    Request::SetXattr { cred: Cred::ROOT, fid, name: name.into(), value: value.into(), flags: 0 }
}

fn intent(fid: Fid, start: u64, end: u64) -> Request {
    Request::LayoutIntent { fid, start, end, opener: Opener::UNKNOWN }
}

/// The layout in a reply.
fn layout(answer: &Answer) -> Layout {
    let Reply::Entry(entry) = &answer.reply else { panic!("{:?}", answer.reply) };
    Layout::decode(entry.layout.as_ref().unwrap()).unwrap()
}

async fn done(asked: JoinHandle<Result<Answer>>) -> Layout {
    layout(&asked.await.unwrap().unwrap())
}

fn objects(layout: &Layout) -> Vec<usize> {
    layout.components().iter().map(|c| c.objects().len()).collect()
}

fn osts(layout: &Layout, component: usize) -> BTreeSet<u32> {
    layout.components()[component].objects().iter().map(|s| s.ost).collect()
}

async fn file(client: &Client, name: &str, template: &Template) -> Fid {
    let fid = client.make(name).await;
    client.ask(set(fid, "lustre.lov", template.encode())).await.unwrap();
    fid
}

/// Runs a test with four OSTs and three clients in the MDT's process, and again with clients on
/// hosts of their own.
fn with_clients(test: impl AsyncFn(&Host, &[Arc<FakeOst>], [Client; 3])) {
    for tcp in [false, true] {
        with_host(1, config(), async |sim, _, host| {
            host.server.listen(sim.addr(MDS, PORT)).await.unwrap();
            let osts = host.add_osts(4).await;
            test(&host, &osts, Client::three(sim, &host, tcp).await).await;
        });
    }
}

/// Returns the locks of which a client was asked to cancel LAYOUT of a file. Asserts that nothing
/// else was asked for.
fn layouts_asked(client: &Client, fid: Fid) -> Vec<LockId> {
    let one = |called| {
        let Callback::Blocking { id, resource, wanted, .. } = called else { panic!("{called:?}") };
        let layout = (Mode::Ex, Policy::bits(bits::LAYOUT | bits::XATTR));
        assert_eq!((resource, wanted), (Resource::bits(fid), layout));
        id
    };
    client.called().into_iter().map(one).collect()
}

#[test]
fn layout_intent_revokes_layout_of_others_before_its_reply() {
    with_clients(async |_, _, [a, b, c]| {
        let f = file(&a, "f", &three()).await;
        let (mine, theirs) = (a.look("f").await.1, b.look("f").await.1);
        assert!(mine.bits & theirs.bits & bits::LAYOUT != 0);
        let asked = a.spawn(intent(f, 2 * MIB, 3 * MIB));
        a.a_while().await;
        assert!(!asked.is_finished(), "replied while another client reads zeros by the old layout");
        assert_eq!(layouts_asked(&b, f), [theirs.id]);
        // Requests meanwhile see neither the old layout nor the new one.
        let reader = c.spawn(Request::GetAttr { fid: f, layout_known: false });
        let writer = c.spawn(intent(f, MIB, 2 * MIB));
        c.a_while().await;
        assert!(!reader.is_finished() && !writer.is_finished());
        // Other clients need not cancel their locks on attributes and name.
        let rest = theirs.bits & !(bits::LAYOUT | bits::XATTR);
        b.call(Call { converts: vec![(theirs.id, rest)], ..Request::Cancel.into() }).await.unwrap();
        let new = done(asked).await;
        assert_eq!(objects(&new), [1, 2, 0]);
        assert_eq!((done(reader).await, done(writer).await), (new.clone(), new));
        assert!(a.called().is_empty(), "no callback for its own lock");
        // Nothing changes: there are no callbacks.
        a.keep(intent(f, MIB, 16 * MIB)).await.unwrap();
        a.a_while().await;
        assert!(b.called().is_empty() && a.called().is_empty());
    });
}

#[test]
fn layout_intent_reply_grants_layout_lock() {
    with_clients(async |_, _, [a, b, _]| {
        let f = file(&a, "f", &three()).await;
        let answer = a.keep(intent(f, 0, MIB)).await.unwrap();
        let [nothing_new] = answer.grants[..] else { panic!("{:?}", answer.grants) };
        assert!(nothing_new.bits & bits::LAYOUT != 0);
        assert_eq!(objects(&layout(&answer)), [1, 0, 0]);
        let answer = b.spawn(intent(f, MIB, 2 * MIB));
        b.a_while().await;
        assert_eq!(layouts_asked(&a, f), [nothing_new.id]);
        a.cancel(&[nothing_new.id]).await;
        assert_eq!(objects(&done(answer).await), [1, 2, 0]);
        let answer = a.keep(intent(f, 16 * MIB, EOF)).await.unwrap();
        let [grant] = answer.grants[..] else { panic!("{:?}", answer.grants) };
        assert!(grant.bits & bits::LAYOUT != 0, "a change brings a lock as well, if no other lock conflicts");
        assert_eq!(objects(&layout(&answer)), [1, 2, 4]);
    });
}

#[test]
fn concurrent_layout_intents_get_the_same_layout() {
    with_clients(async |_, osts, [a, b, c]| {
        let f = file(&a, "f", &three()).await;
        let asked = [&a, &b, &c, &a, &b, &c].map(|client| client.spawn(intent(f, MIB, 20 * MIB)));
        let mut answers = Vec::new();
        for asked in asked {
            answers.push(done(asked).await);
        }
        assert_eq!(objects(&answers[0]), [1, 2, 4]);
        assert!(answers.iter().all(|l| *l == answers[0]), "{answers:?}");
        a.ask(unlink("f")).await.unwrap();
        a.rt.sleep(Duration::from_secs(5)).await;
        let destroyed: Vec<Fid> = osts.iter().flat_map(|ost| ost.destroyed()).collect();
        let all: BTreeSet<Fid> = answers[0].stripes().iter().map(|s| s.object).collect();
        assert_eq!((destroyed.len(), destroyed.into_iter().collect()), (7, all));
    });
}

#[test]
fn deleted_component_loses_objects_after_others_cancel_layout() {
    with_clients(async |host, osts, [a, b, _]| {
        let f = file(&a, "f", &three()).await;
        let full = layout(&a.ask(intent(f, 0, EOF)).await.unwrap());
        let theirs = b.look("f").await.1;
        let which = Mark { id: full.components()[2].id, flags: 0, negative: false };
        let cut = a.spawn(set(f, "lustre.lov.del", Mark::encode(&[which])));
        a.a_while().await;
        assert!(!cut.is_finished());
        assert_eq!(b.asked(), [theirs.id]);
        host.sync().await.unwrap();
        a.rt.sleep(Duration::from_secs(1)).await;
        assert!(osts.iter().all(|ost| ost.destroyed().is_empty()), "another client may still be writing there");
        b.cancel(&[theirs.id]).await;
        cut.await.unwrap().unwrap();
        a.rt.sleep(Duration::from_secs(5)).await;
        let destroyed: BTreeSet<Fid> = osts.iter().flat_map(|ost| ost.destroyed()).collect();
        assert_eq!(destroyed, full.components()[2].objects().iter().map(|s| s.object).collect());
        let added = Template::new(vec![part(16 * MIB, 32 * MIB, 1)]);
        a.ask(set(f, "lustre.lov.add", added.encode())).await.unwrap();
        assert_eq!(objects(&layout(&a.ask(intent(f, 0, MIB)).await.unwrap())), [1, 2, 0]);
        assert_eq!(a.ask(intent(f, 32 * MIB, 33 * MIB)).await.unwrap_err(), Errno::ENODATA);
        assert_eq!(objects(&layout(&a.ask(intent(f, 31 * MIB, 33 * MIB)).await.unwrap())), [1, 2, 1]);
    });
}

#[test]
fn component_objects_are_placed_at_first_write() {
    with_clients(async |host, _, [a, _, _]| {
        let spec = Spec { osts: vec![0, 2], ..Spec::default() };
        let template = Template::new(vec![
            part(0, MIB, 1),
            part(MIB, 16 * MIB, 4),
            TemplateComponent::striped(16 * MIB, EOF, spec.clone()),
        ]);
        let f = file(&a, "f", &template).await;
        let active = |on: &str| {
            let set = host.params.set("osp.sheen-OST0002-osc-MDT0000.active", on).unwrap();
            assert!(set[0].result.is_ok());
        };
        active("0");
        let l = layout(&a.ask(intent(f, MIB, 2 * MIB)).await.unwrap());
        assert_eq!(osts(&l, 1), BTreeSet::from([0, 1, 3]), "not on the inactive OST");
        assert_eq!(a.ask(intent(f, 16 * MIB, EOF)).await.unwrap_err(), Errno(121), "EREMOTEIO: only these OSTs");
        active("1");
        let l = layout(&a.ask(intent(f, 16 * MIB, EOF)).await.unwrap());
        assert_eq!(osts(&l, 2), BTreeSet::from([0, 2]));
        // OSTs and pools that do not exist are refused in every component.
        let g = a.make("g").await;
        let named = Spec { pool: Some(Pool::new("nosuch").unwrap()), ..Spec::default() };
        for spec in [Spec { osts: vec![9], ..Spec::default() }, Spec { start: Some(9), ..Spec::default() }, named] {
            let bad = Template::new(vec![part(0, MIB, 1), TemplateComponent::striped(MIB, EOF, spec)]);
            assert_eq!(a.ask(set(g, "lustre.lov", bad.encode())).await.unwrap_err(), Errno::EINVAL);
        }
        // On a directory they are refused as well, and an accepted layout is inherited.
        let d = a.new_fid();
        let (name, node) = (Bytes::from_static(b"d"), NewNode::Dir);
        let mkdir = Request::Create { cred: Cred::ROOT, parent: fid::ROOT, name, fid: d, node, mode: 0o755, umask: 0 };
        a.ask(mkdir).await.unwrap();
        a.ask(set(d, "lustre.lov", three().encode())).await.unwrap();
        let Request::OpenCreate { cred, name, flags, mode, umask, .. } = open_create("h", a.new_fid()) else {
            panic!()
        };
        let fid = a.new_fid();
        let create = Request::OpenCreate { cred, parent: d, name, fid, flags, mode, umask };
        let Reply::Opened { entry, .. } = a.ask(create).await.unwrap().reply else { panic!() };
        assert_eq!(objects(&Layout::decode(&entry.layout.unwrap()).unwrap()), [1, 0, 0]);
    });
}

#[test]
fn component_is_placed_in_its_pool_unless_pool_is_empty() {
    with_clients(async |host, _, [a, _, _]| {
        let change = async |pool: &str, change| {
            host.mgc.change_pool("sheen", pool, change).await.unwrap();
            host.rt.sleep(Duration::from_millis(10)).await;
        };
        change("p", PoolChange::New).await;
        for ost in [1, 3] {
            change("p", PoolChange::Add { ost }).await;
        }
        let pooled = |stripes| Spec {
            pool: Some(Pool::new("p").unwrap()),
            count: Some(Count::Stripes(stripes)),
            ..Spec::default()
        };
        let template = Template::new(vec![
            part(0, MIB, 4),
            TemplateComponent::striped(MIB, 16 * MIB, pooled(4)),
            TemplateComponent::striped(16 * MIB, EOF, pooled(4)),
        ]);
        let f = file(&a, "f", &template).await;
        let l = layout(&a.ask(intent(f, MIB, 2 * MIB)).await.unwrap());
        assert_eq!(osts(&l, 1), BTreeSet::from([1, 3]));
        for ost in [1, 3] {
            change("p", PoolChange::Remove { ost }).await;
        }
        let l = layout(&a.ask(intent(f, 16 * MIB, EOF)).await.unwrap());
        assert_eq!(osts(&l, 2), BTreeSet::from([0, 1, 2, 3]), "a write does not fail because its pool is empty");
    });
}

#[test]
fn restarted_mdt_knows_instantiated_components() {
    with_host(3, config(), async |sim, _, host| {
        let osts = host.add_osts(4).await;
        let a = Client::lo(&host, "a").await;
        let f = file(&a, "f", &three()).await;
        let two = layout(&a.ask(intent(f, MIB, 2 * MIB)).await.unwrap());
        host.ask(Request::Sync { fid: Some(f) }).await.unwrap();
        sim.crash_host(1);
        drop((a, host));
        let host = Host::start(&sim.rt(1), config()).await;
        // The OSTs start one by one: a component with many stripes waits for them.
        host.add_ost_again(0, &osts[0]).await;
        let a = Client::lo(&host, "a").await;
        let known = layout(&a.ask(Request::GetAttr { fid: f, layout_known: false }).await.unwrap());
        assert_eq!(known, two);
        assert_eq!(layout(&a.ask(intent(f, MIB, 2 * MIB)).await.unwrap()), two, "the same request again");
        let wide = a.spawn(intent(f, 16 * MIB, EOF));
        host.rt.sleep(Duration::from_secs(1)).await;
        assert!(!wide.is_finished());
        for index in 1..4 {
            host.add_ost_again(index, &osts[index as usize]).await;
        }
        assert_eq!(objects(&done(wide).await), [1, 2, 4]);
    });
}

#[test]
fn layout_intent_without_active_ost_fails_and_can_be_repeated() {
    with_host(4, config(), async |_, _, host| {
        host.add_ost(0).await;
        let a = Client::lo(&host, "a").await;
        let f = file(&a, "f", &three()).await;
        let active = |on: &str| drop(host.params.set("osp.sheen-OST0000-osc-MDT0000.active", on).unwrap());
        active("0");
        assert_eq!(a.ask(intent(f, MIB, EOF)).await.unwrap_err(), Errno::ENOSPC);
        let before = layout(&a.ask(Request::GetAttr { fid: f, layout_known: false }).await.unwrap());
        assert_eq!(objects(&before), [1, 0, 0]);
        active("1");
        assert_eq!(objects(&layout(&a.ask(intent(f, MIB, EOF)).await.unwrap())), [1, 1, 1]);
    });
}
