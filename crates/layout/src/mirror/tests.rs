//! Changes of mirrors. No sequence of changes loses objects or the last fresh mirror.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sheen_wire::{Errno, Fid};

use super::*;
use crate::{Asked, Defaults, Spec, Template, TemplateComponent, WantedLayout, resolve_asked};

const M: u64 = 1 << 20;
const FILE: Fid = Fid::new(1, 2);
const OTHER: Fid = Fid::new(1, 3);

fn stripe(n: u32) -> Vec<Stripe> {
    vec![Stripe { object: Fid::new(7, n), ost: n % 4 }]
}

/// Builds this number of mirrors of `[0, 1M)` and `[1M, EOF)`, with objects from `first` on.
fn layout(mirrors: u16, first: u32) -> Layout {
    let one =
        [TemplateComponent::striped(0, M, Spec::default()), TemplateComponent::striped(M, u64::MAX, Spec::default())];
    let asked = Asked::Composite(Template { components: vec![one; usize::from(mirrors)].concat(), mirrors });
    let WantedLayout::Composite(wanted) = resolve_asked(&asked, None, None, &Defaults::default(), 0) else { panic!() };
    let objects = (0..usize::from(mirrors)).map(|m| (2 * m, stripe(first + m as u32))).collect();
    Layout::from_template(FILE, &wanted, objects).unwrap()
}

fn plain(n: u32) -> Layout {
    Layout::new(OTHER, 65536, None, stripe(n)).unwrap()
}

fn state(layout: &Layout) -> (u16, Vec<u16>) {
    (layout.mirror_state(), layout.fresh_mirrors().iter().map(|m| m.mirror_id()).collect())
}

#[test]
fn with_stale_others_leaves_one_mirror_fresh() {
    let new = layout(3, 1);
    assert_eq!(state(&new), (Composite::READ_ONLY, vec![1, 2, 3]));
    assert!(new.needs_intent(0, 1), "the other mirrors must become stale first");
    assert_eq!(new.primary(|_| true), Some(1));
    assert_eq!(new.primary(|ost| ost != 1), Some(2), "an OST of the first mirror is down");
    assert_eq!(new.primary(|_| false), Some(1), "no OST is up: any may come back");
    let written = new.with_stale_others(2).unwrap();
    assert_eq!(state(&written), (Composite::WRITE_PENDING, vec![2]));
    assert_eq!(written.generation(), new.generation() + 1);
    assert_eq!(written.locate(0).unwrap().object, Fid::new(7, 2), "reads and writes use the same mirror");
    assert!(!written.needs_intent(0, M) && written.needs_intent(0, M + 1), "a component has no objects");
    assert_eq!(written.with_stale_others(2).unwrap(), written, "a second time changes nothing");
    assert_eq!(written.with_stale_others(1).unwrap_err().errno(), Errno::EINVAL, "a stale mirror cannot be written");
    assert_eq!(new.with_stale_others(9).unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(plain(1).with_stale_others(0).unwrap_err().errno(), Errno::EINVAL);
}

#[test]
fn object_is_found_in_its_mirror() {
    let mirrored = layout(3, 1);
    let found = |ost, n| mirrored.find_object(ost, Fid::new(7, n));
    assert_eq!((found(1, 1), found(3, 3)), (Some((0, 0)), Some((2, 0))));
    assert_eq!((found(2, 1), found(1, 5)), (None, None), "on another OST, or of another file");
    assert_eq!(plain(1).find_object(1, Fid::new(7, 1)), None, "not mirrored");
}

#[test]
fn preferred_mirrors_are_chosen_for_reads_and_writes() {
    let prefer = |flags| vec![crate::Mark { id: (3 << MIRROR_SHIFT) | 5, flags, negative: false }];
    let read = layout(3, 1).with_flags(&prefer(flags::PREF_RD)).unwrap();
    assert_eq!(state(&read).1, [3, 1, 2]);
    assert_eq!((read.primary(|_| true), read.locate(0).unwrap().object), (Some(1), Fid::new(7, 3)));
    let write = layout(3, 1).with_flags(&prefer(flags::PREF_WR)).unwrap();
    assert_eq!((write.primary(|_| true), write.locate(0).unwrap().object), (Some(3), Fid::new(7, 1)));
    assert_eq!(write.primary(|ost| ost != 3), Some(1), "the preferred mirror is down");
}

#[test]
fn resync_end_is_refused_after_a_write() {
    let written = layout(3, 1).with_stale_others(1).unwrap();
    let begun = written.resync_begun(&[3]).unwrap();
    assert_eq!((state(&begun), begun.stale_mirrors()), ((Composite::SYNC_PENDING, vec![1]), vec![2, 3]));
    assert!(begun.needs_intent(0, 1), "writers send an intent again");
    let ticket = begun.generation();
    let done = begun.resynced(ticket, &[3]).unwrap();
    assert_eq!((state(&done), done.generation()), ((Composite::READ_ONLY, vec![1, 3]), written.generation() + 2));
    assert_eq!(done.resynced(ticket, &[2]).unwrap_err().errno(), Errno::EBUSY, "the resync has ended");
    let meanwhile = begun.with_stale_others(1).unwrap();
    assert_eq!(meanwhile.resynced(ticket, &[3]).unwrap_err().errno(), Errno::EBUSY, "there was a write");
    assert_eq!(begun.resynced(ticket, &[4]).unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(plain(1).resync_begun(&[]).unwrap_err().errno(), Errno::EINVAL);
    let nosync = vec![crate::Mark { id: (3 << MIRROR_SHIFT) | 5, flags: flags::NOSYNC, negative: false }];
    assert_eq!(begun.with_flags(&nosync).unwrap().stale_mirrors(), [2], "the NOSYNC mirror is skipped");
}

#[test]
fn resync_begin_makes_its_targets_stale_and_refuses_the_last_fresh() {
    let begun = layout(3, 1).resync_begun(&[1, 3]).unwrap();
    assert_eq!(state(&begun), (Composite::SYNC_PENDING, vec![2]));
    assert_eq!(state(&begun.resynced(begun.generation(), &[1]).unwrap()).1, [1, 2]);
    assert_eq!(layout(2, 1).resync_begun(&[1, 2]).unwrap_err().errno(), Errno::EUCLEAN, "none would be fresh");
    let written = layout(2, 1).with_stale_others(1).unwrap();
    assert_eq!(written.resync_begun(&[1]).unwrap_err().errno(), Errno::EUCLEAN, "the other mirror is stale");
    assert_eq!(written.resync_begun(&[9]).unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(begun.resync_begun(&[1]).unwrap().as_one_change_of(&written).generation(), written.generation() + 1);
    assert!(begun.follows(&layout(3, 1)) && !begun.follows(&begun));
}

#[test]
fn merge_and_split_change_mirrors_and_refuse_the_last_fresh() {
    let file = Layout::new(FILE, 65536, None, stripe(1)).unwrap();
    let two = file.with_merged(&plain(2)).unwrap();
    let ids = |l: &Layout| l.components().iter().map(|c| c.id).collect::<Vec<_>>();
    assert_eq!((ids(&two), two.generation()), (vec![65537, 131_073], 1), "as Lustre numbers them");
    assert_eq!(state(&two), (Composite::READ_ONLY, vec![1]));
    assert!(two.components().iter().all(|c| c.fid == FILE), "the merged objects belong to this file");
    assert_eq!(two.locate(5 * M).unwrap().object, Fid::new(7, 1));
    let three = two.with_merged(&layout(1, 5)).unwrap().resync_begun(&[3]).unwrap();
    let three = three.resynced(three.generation(), &[3]).unwrap();
    assert_eq!((ids(&three), state(&three).1), (vec![65537, 131_073, 196_609, 196_610], vec![1, 3]));

    let (rest, removed) = three.split(1, OTHER).unwrap();
    assert_eq!((ids(&rest), state(&rest).1), (vec![131_073, 196_609, 196_610], vec![3]));
    assert_eq!(rest.generation(), three.generation() + 1);
    assert_eq!((ids(&removed), removed.generation(), removed.is_mirrored()), (vec![65537], 1, false));
    assert_eq!((removed.fid(), removed.locate(0).unwrap().object), (OTHER, Fid::new(7, 1)));
    assert_eq!(rest.split(3, OTHER).unwrap_err().errno(), Errno::EUCLEAN, "the last fresh mirror");
    let (last, stale) = rest.split(2, OTHER).unwrap();
    assert_eq!((last.composite().unwrap().flags, last.is_mirrored(), last.takes_writes()), (0, false, true));
    assert!(stale.is_fresh(), "a single mirror is never stale");
    assert_eq!(last.split(3, OTHER).unwrap_err().errno(), Errno::EINVAL, "no longer mirrored");
    let refused = three.with_merged(&two).unwrap_err();
    assert_eq!((refused.errno(), refused), (Errno::EBUSY, LayoutError::MergesMirrored));
    assert_eq!(ids(&last.with_merged(&plain(9)).unwrap())[2], 0x4_0001, "ids are not reused at once");
}

#[test]
fn flags_that_choose_another_mirror_make_writers_ask() {
    let written = layout(2, 1).with_stale_others(1).unwrap();
    let fresh = vec![crate::Mark { id: (2 << MIRROR_SHIFT) | 3, flags: flags::STALE, negative: true }];
    let both = written.with_flags(&fresh).unwrap();
    assert!(both.needs_intent(0, 1), "{:?}", state(&both));
    let prefer = vec![crate::Mark { id: (1 << MIRROR_SHIFT) | 1, flags: flags::PREF_RD, negative: false }];
    assert!(!written.with_flags(&prefer).unwrap().needs_intent(0, 1), "preferences do not");
}

#[test]
fn merge_refuses_a_seventeenth_mirror() {
    let sixteen = layout(16, 1);
    assert_eq!(sixteen.check_usable(), Ok(()));
    assert_eq!(sixteen.with_merged(&plain(99)).unwrap_err(), LayoutError::Mirrors(17));
}

#[test]
fn with_mirror_replaces_one_mirror_only() {
    let whole = layout(2, 1).with_stale_others(2).unwrap();
    let mut second = whole.mirror(2).unwrap();
    second.instantiate(vec![(1, stripe(9))]).unwrap();
    let changed = whole.with_mirror(&second).unwrap();
    assert_eq!(changed.generation(), whole.generation() + 1);
    assert_eq!((changed.missing(0, u64::MAX), changed.mirrors()[0].missing(0, 2 * M)), (None, Some((M, u64::MAX))));
    assert_eq!(changed.all_objects().count(), 3);
    assert_eq!(Layout::decode(&changed.encode()).unwrap().encode(), changed.encode());
}

#[test]
fn check_usable_refuses_a_wrong_mirror_count() {
    let mut bytes = layout(2, 1).encode();
    bytes[16] = 4;
    let lied = Layout::decode(&bytes).unwrap();
    assert_eq!(lied.check_usable(), Err(LayoutError::Mirrors(5)));
}

/// Applies the change with the number `what` to the mirror `which`.
fn step(layout: &Layout, n: u32, (what, which): (u8, u8), ticket: &mut u32) -> Option<(Layout, Vec<Fid>)> {
    let ids = layout.mirror_ids();
    let id = ids[usize::from(which) % ids.len()];
    let alone = |layout: Layout| (layout, Vec::new());
    match what % 6 {
        0 => layout.with_stale_others(id).ok().map(alone),
        1 => layout.resync_begun(&[id]).ok().inspect(|l| *ticket = l.generation()).map(alone),
        2 => layout.resynced(*ticket, &layout.stale_mirrors()).ok().map(alone),
        3 => layout.with_merged(&plain(n)).ok().map(alone),
        4 => {
            let (rest, removed) = layout.split(id, OTHER).ok()?;
            let removed = removed.all_objects().map(|s| s.object).collect();
            Some((rest, removed))
        }
        _ => {
            let mut one = layout.mirror(id)?;
            let at = *one.wanting(0, u64::MAX).first()?;
            one.instantiate(vec![(at, stripe(n))]).ok()?;
            layout.with_mirror(&one).ok().map(alone)
        }
    }
}

proptest! {
    #[test]
    fn mirror_changes_lose_no_objects_and_no_last_fresh_mirror(start in 1u16..5, steps in prop::collection::vec((any::<u8>(), any::<u8>()), 0..60)) {
        let mut now = layout(start, 1);
        let mut objects: BTreeSet<Fid> = now.all_objects().map(|s| s.object).collect();
        let mut ticket = 0;
        for (n, what) in steps.into_iter().enumerate() {
            let n = 100 + n as u32;
            let Some((next, removed)) = step(&now, n, what, &mut ticket) else { continue };
            let made: BTreeSet<Fid> = next.all_objects().map(|s| s.object).collect();
            prop_assert!(objects.difference(&made).all(|o| removed.contains(o)));
            prop_assert!(made.difference(&objects).all(|o| *o == Fid::new(7, n)));
            prop_assert_eq!(next.check_usable(), Ok(()));
            prop_assert_eq!(Layout::decode(&next.encode()).unwrap().encode(), next.encode());
            let mut ids: Vec<u32> = next.components().iter().map(|c| c.id).collect();
            ids.sort_unstable();
            ids.dedup();
            prop_assert_eq!(ids.len(), next.components().len(), "ids are unique");
            if next.is_mirrored() {
                let fresh = next.fresh_mirrors();
                prop_assert!(!fresh.is_empty());
                prop_assert!(next.mirror_state() != Composite::WRITE_PENDING || fresh.len() == 1);
                prop_assert!(next.generation() > now.generation() || next == now);
            }
            (now, objects) = (next, made);
        }
    }
}

#[test]
fn merged_dom_mirror_gets_a_new_object_name_each_time() {
    let dom = Template::new(vec![
        TemplateComponent::on_mdt(64 << 10),
        TemplateComponent::striped(64 << 10, u64::MAX, Spec::default()),
    ]);
    let WantedLayout::Composite(wanted) =
        resolve_asked(&Asked::Composite(dom), None, None, &Defaults::default(), crate::MDT_BYTES_DEFAULT)
    else {
        panic!()
    };
    let made = |file| Layout::from_template(file, &wanted, Vec::new()).unwrap();
    let name = |layout: &Layout| layout.all_objects().find(|s| s.ost == crate::MDT_OST).map(|s| s.object);
    let mut names = BTreeSet::from([name(&made(FILE))]);
    let mut file = layout(2, 1);
    for round in 0..4 {
        let merged = file.with_merged(&made(FILE)).unwrap();
        assert!(names.insert(name(&merged)), "round {round}");
        assert_eq!(merged.with_merged(&made(FILE)).unwrap_err(), LayoutError::SecondOnMdt);
        assert_eq!(state(&merged).1, [1, 2], "the merged mirror is stale");
        let decoded = Layout::decode(&merged.encode()).unwrap();
        assert_eq!(name(&decoded), name(&merged));
        let part = Layout::decode(&merged.part_on_mdt().unwrap().encode()).unwrap();
        assert_eq!(part.all_objects().map(|s| Some(s.object)).collect::<Vec<_>>(), [name(&merged)]);
        file = merged.split(3, FILE).unwrap().0;
    }
    let other = Layout::from_template(OTHER, &wanted, Vec::new()).unwrap();
    assert_eq!(file.with_merged(&other).unwrap_err(), LayoutError::MirrorOnMdt);
}
