//! Lost objects that OSTs report: the MDT makes them again from mirrors that have their bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::client::Client;
use crate::common::{FakeOst, Host, config, until, with_host};
use sheen_layout::{Layout, Spec, Stripe, Template, TemplateComponent};
use sheen_mds::MdtConfig;
use sheen_objects::stored_sums::crc_of;
use sheen_wire::mds::{Opener, Reply, Request};
use sheen_wire::ost::{Damaged, DamagedBlock, OBJECT_SIZE_MAX, Recreate};
use sheen_wire::{Cred, Fid, Ost, Time};

const BYTES: u64 = 100;

/// A file with two mirrors of one object each.
struct Mirrored {
    osts: Vec<Arc<FakeOst>>,
    client: Client,
    file: Fid,
    objects: Vec<Stripe>,
}

impl Mirrored {
    async fn new(host: &Host) -> Mirrored {
        let one = TemplateComponent::striped(0, u64::MAX, Spec::default());
        Mirrored::of(host, vec![one.clone(), one]).await
    }

    /// Makes a file with the components of two mirrors.
    async fn of(host: &Host, components: Vec<TemplateComponent>) -> Mirrored {
        let osts = host.add_osts(2).await;
        osts.iter().for_each(|ost| ost.object_bytes.store(BYTES, Relaxed));
        let client = Client::lo(host, "a").await;
        let file = client.make("f").await;
        let value = Template { components, mirrors: 2 }.encode().into();
        let set = Request::SetXattr { cred: Cred::ROOT, fid: file, name: "lustre.lov".into(), value, flags: 0 };
        client.ask(set).await.unwrap();
        let answer = client.ask(Request::GetAttr { fid: file, layout_known: false }).await.unwrap();
        let Reply::Entry(entry) = answer.reply else { panic!("{:?}", answer.reply) };
        let objects: Vec<Stripe> = Layout::decode(entry.layout.as_ref().unwrap()).unwrap().all_objects().collect();
        assert_eq!(objects.len(), 2);
        Mirrored { osts, client, file, objects }
    }

    fn ost(&self, mirror: usize) -> &FakeOst {
        &self.osts[self.objects[mirror].ost as usize]
    }

    /// Makes the objects so large that a copy takes hours.
    fn enlarge(&self) {
        self.osts.iter().for_each(|ost| ost.object_bytes.store(1 << 40, Relaxed));
    }

    fn report_lost(&self, mirror: usize) {
        let Stripe { object, .. } = self.objects[mirror];
        self.ost(mirror).quota.report(Damaged { object, file: self.file, block: DamagedBlock::WHOLE });
    }

    fn steps(&self, mirror: usize) -> Vec<Recreate> {
        self.ost(mirror).recreated(self.objects[mirror].object)
    }
}

#[test]
fn lost_object_is_made_again_from_the_other_mirror() {
    with_host(1, config(), async |_, rt, host| {
        let f = Mirrored::new(&host).await;
        f.report_lost(1);
        until(&rt, || f.steps(1).len() == 4).await;
        let [Recreate::Confirm, Recreate::Begin { copy, size: BYTES }, write, end] = f.steps(1)[..] else {
            panic!("{:?}", f.steps(1));
        };
        assert_eq!(write, Recreate::Write { copy, at: 0 });
        assert_eq!(end, Recreate::End { copy, mtime: Time { sec: 9, nsec: 0 } });
        f.client.a_while().await;
        assert_eq!((f.steps(1).len(), f.steps(0).len()), (4, 0));
    });
}

#[test]
fn lost_object_is_not_made_again_with_bytes_of_or_for_a_stale_mirror() {
    with_host(2, config(), async |_, rt, host| {
        let f = Mirrored::new(&host).await;
        f.client.ask(Request::LayoutIntent { fid: f.file, start: 0, end: 1, opener: Opener::UNKNOWN }).await.unwrap();
        (0..2).for_each(|mirror| f.report_lost(mirror));
        until(&rt, || (0..2).all(|mirror| !f.steps(mirror).is_empty())).await;
        f.client.a_while().await;
        assert_eq!([f.steps(0), f.steps(1)], [[Recreate::Confirm], [Recreate::Confirm]]);
    });
}

#[test]
fn copy_of_a_mirror_that_changes_meanwhile_is_aborted() {
    with_host(3, config(), async |_, rt, host| {
        let f = Mirrored::new(&host).await;
        f.ost(0).unstable.store(true, Relaxed);
        f.report_lost(1);
        until(&rt, || f.steps(1).len() == 4).await;
        f.client.a_while().await;
        let steps = f.steps(1);
        assert!(matches!(steps.last(), Some(Recreate::Abort { .. })) && steps.len() == 4, "{steps:?}");
    });
}

#[test]
fn object_that_no_layout_has_is_stated_as_unknown() {
    with_host(4, config(), async |_, rt, host| {
        let f = Mirrored::new(&host).await;
        let object = |n| Fid::new(f.objects[0].object.seq, u32::MAX - n);
        let removed = Fid::new(f.file.seq, u32::MAX);
        for (n, file) in (0..).zip([f.file, removed, Fid::ZERO]) {
            f.ost(0).quota.report(Damaged { object: object(n), file, block: DamagedBlock::WHOLE });
        }
        f.report_lost(0);
        let steps = |n| f.ost(0).recreated(object(n));
        until(&rt, || f.steps(0).len() == 4 && !steps(0).is_empty() && !steps(1).is_empty()).await;
        f.client.a_while().await;
        assert_eq!(steps(0), [Recreate::Unknown { file: f.file }]);
        assert_eq!(steps(1), [Recreate::Unknown { file: removed }]);
        assert!(steps(2).is_empty(), "a file may have it");
    });
}

#[test]
fn damaged_block_is_repaired_during_the_copy_of_a_lost_object() {
    with_host(5, config(), async |_, rt, host| {
        let f = Mirrored::new(&host).await;
        f.enlarge();
        f.report_lost(1);
        until(&rt, || f.steps(1).len() > 2).await;
        let block = DamagedBlock { offset: 0, len: BYTES, sum: crc_of([&[7_u8; BYTES as usize][..]]) };
        f.ost(1).quota.report(Damaged { object: f.objects[1].object, file: f.file, block });
        until(&rt, || f.ost(1).times("repair") == 1).await;
        let last = f.steps(1).pop();
        assert!(matches!(last, Some(Recreate::Write { .. })), "{last:?}");
    });
}

#[test]
fn copy_of_a_lost_object_ends_early_when_the_layout_changes() {
    with_host(6, config(), async |_, rt, host| {
        let f = Mirrored::new(&host).await;
        f.enlarge();
        f.report_lost(1);
        until(&rt, || f.steps(1).len() > 2).await;
        f.client.ask(Request::LayoutIntent { fid: f.file, start: 0, end: 1, opener: Opener::UNKNOWN }).await.unwrap();
        let before = f.steps(1).len();
        until(&rt, || !matches!(f.steps(1).last(), Some(Recreate::Write { .. }))).await;
        let steps = f.steps(1);
        assert!(matches!(steps.last(), Some(Recreate::Abort { .. })), "{:?}", steps.last());
        assert!(steps.len() - before < 70, "{} steps after the change", steps.len() - before);
    });
}

#[test]
fn copy_of_a_lost_object_skips_holes() {
    with_host(7, config(), async |_, rt, host| {
        let f = Mirrored::new(&host).await;
        let (size, hole) = (OBJECT_SIZE_MAX, OBJECT_SIZE_MAX - BYTES);
        for ost in &f.osts {
            ost.object_bytes.store(size, Relaxed);
            ost.hole_bytes.store(hole, Relaxed);
        }
        f.report_lost(1);
        until(&rt, || f.steps(1).len() == 4).await;
        let steps = f.steps(1);
        assert!(matches!(steps[1], Recreate::Begin { size: begun, .. } if begun == size), "{steps:?}");
        assert!(matches!(steps[2], Recreate::Write { at, .. } if at == hole), "{steps:?}");
        assert!(matches!(steps[3], Recreate::End { .. }), "{steps:?}");
        assert_eq!(f.ost(0).times("seek"), 1, "only the step before the hole was found is read");
    });
}

#[test]
fn lost_object_is_not_made_again_from_a_mirror_that_begins_on_the_mdt() {
    with_host(8, MdtConfig { holds_data: true, ..config() }, async |_, rt, host| {
        let data = Arc::new(FakeOst::default());
        data.object_bytes.store(BYTES, Relaxed);
        host.server.add::<Ost>("sheen-MDT0000-dom", data.clone());
        let striped = |start| TemplateComponent::striped(start, u64::MAX, Spec::default());
        let f = Mirrored::of(&host, vec![TemplateComponent::on_mdt(64 << 10), striped(64 << 10), striped(0)]).await;
        f.report_lost(1);
        until(&rt, || !f.steps(1).is_empty()).await;
        f.client.a_while().await;
        assert_eq!((f.steps(1), data.times("versions")), (vec![Recreate::Confirm], 0));
    });
}
