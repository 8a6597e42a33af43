//! Changes of a file's components, and the refused ones.

use sheen_wire::{Errno, Fid};

use super::*;
use crate::{
    Asked, Count, Defaults, MDT_BYTES_DEFAULT, Spec, Template, TemplateComponent, WantedLayout, resolve_asked,
};

const M: u64 = 1 << 20;
const EOF: u64 = u64::MAX;

fn template(start: u64, ends: &[u64]) -> Vec<WantedComponent> {
    let mut start = start;
    let spec = Spec { count: Some(Count::Stripes(2)), ..Spec::default() };
    let component = |end: &u64| {
        let c = TemplateComponent::striped(start, *end, spec.clone());
        start = *end;
        c
    };
    let asked = Asked::Composite(Template::new(ends.iter().map(component).collect()));
    match resolve_asked(&asked, None, None, &Defaults::default(), MDT_BYTES_DEFAULT) {
        WantedLayout::Composite(components) => components,
        WantedLayout::Plain(wanted) => panic!("{wanted:?}"),
    }
}

fn stripes(n: u32) -> Vec<Stripe> {
    (0..2).map(|i| Stripe { object: Fid::new(7, n + i), ost: i }).collect()
}

/// [0, 1M) and [1M, 4M) with objects, [4M, 8M) without.
fn layout() -> Layout {
    let mut layout =
        Layout::from_template(Fid::new(1, 2), &template(0, &[M, 4 * M, 8 * M]), vec![(0, stripes(1))]).unwrap();
    layout.instantiate(vec![(1, stripes(3))]).unwrap();
    layout
}

fn mirrored() -> Layout {
    let both = [template(0, &[EOF]), template(0, &[EOF])].concat();
    Layout::from_template(Fid::new(1, 2), &both, vec![(0, stripes(1)), (1, stripes(3))]).unwrap()
}

fn plain() -> Layout {
    Layout::new(Fid::new(1, 2), 65536, None, stripes(1)).unwrap()
}

fn id(id: u32) -> Mark {
    Mark { id, flags: 0, negative: false }
}

fn with(flags: u32) -> Mark {
    Mark { id: 0, flags, negative: false }
}

fn set(id: u32, flags: u32) -> Mark {
    Mark { id, flags, negative: false }
}

fn not(mark: Mark) -> Mark {
    Mark { negative: true, ..mark }
}

fn ids(layout: &Layout) -> Vec<u32> {
    layout.components().iter().map(|c| c.id).collect()
}

#[test]
fn components_are_added_at_the_end() {
    let before = layout();
    let after = before.with_components(&template(8 * M, &[16 * M, EOF])).unwrap();
    assert_eq!((ids(&after), after.end()), (vec![1, 2, 3, 5, 6], EOF), "ids follow the generation");
    assert_eq!((before.generation(), after.generation()), (4, 6));
    assert_eq!((after.stripes(), after.fid()), (before.stripes(), before.fid()));
    assert_eq!(after.components()[3].fid, before.fid());
    assert_eq!(after.missing(8 * M, 1), Some((8 * M, 16 * M)));
    assert_eq!(after.check_usable(), Ok(()));

    let refused = |layout: &Layout, start, ends: &[u64]| layout.with_components(&template(start, ends)).unwrap_err();
    assert_eq!(refused(&before, 4 * M, &[16 * M]), LayoutError::Gap { start: 4 * M, expected: 8 * M });
    assert_eq!(refused(&before, 16 * M, &[EOF]), LayoutError::Gap { start: 16 * M, expected: 8 * M });
    assert!(matches!(refused(&after, EOF, &[EOF]), LayoutError::Gap { .. }), "the layout has no end");
    assert_eq!(refused(&plain(), EOF, &[EOF]).errno(), Errno::EINVAL);
    assert_eq!(refused(&mirrored(), EOF, &[EOF]).errno(), Errno::EBUSY);
    assert!(before.with_components(&[]).is_err());
}

#[test]
fn without_components_deletes_from_the_end_only() {
    let before = layout();
    let (after, objects) = before.without_components(&id(3)).unwrap();
    let after = after.unwrap();
    assert_eq!((ids(&after), objects.len(), after.generation()), (vec![1, 2], 0, 5));
    assert_eq!(after.end(), 4 * M);
    // Deleting a component with objects returns its objects.
    let (after, objects) = after.without_components(&id(2)).unwrap();
    assert_eq!((ids(&after.clone().unwrap()), objects), (vec![1], stripes(3)));
    let (nothing, objects) = after.unwrap().without_components(&id(1)).unwrap();
    assert_eq!((nothing, objects), (None, stripes(1)));

    let refused = |mark| before.without_components(&mark).unwrap_err();
    assert_eq!(refused(id(1)), LayoutError::Hole);
    assert_eq!(refused(id(2)), LayoutError::Hole);
    assert_eq!(refused(with(flags::INIT)), LayoutError::Hole);
    assert_eq!(refused(id(9)), LayoutError::NoComponent);
    assert_eq!(refused(with(flags::EXTENSION)), LayoutError::NoComponent);
    assert_eq!(refused(id(0)), LayoutError::NoComponent, "nothing is selected");
    assert_eq!(refused(set(3, flags::INIT)), LayoutError::NoComponent, "id and flags");
    assert_eq!(plain().without_components(&id(1)), Err(LayoutError::NotComposite));
    assert_eq!(mirrored().without_components(&id(131074)).unwrap_err().errno(), Errno::EBUSY);
}

#[test]
fn without_components_deletes_all_uninstantiated_by_flag() {
    let long = layout().with_components(&template(8 * M, &[16 * M, EOF])).unwrap();
    let (after, objects) = long.without_components(&not(with(flags::INIT))).unwrap();
    assert_eq!((ids(&after.unwrap()), objects), (vec![1, 2], vec![]));
    let (first, _) = long.without_components(&not(with(flags::INIT))).unwrap();
    let (nothing, objects) = first.unwrap().without_components(&with(flags::INIT)).unwrap();
    assert_eq!((nothing, objects.len()), (None, 4));
}

#[test]
fn with_flags_changes_mirror_flags_and_refuses_others() {
    let before = mirrored();
    let prefer = flags::PREF_RD | flags::PREF_WR;
    let after = before.with_flags(&[set(65537, prefer)]).unwrap();
    assert_eq!(after.components()[0].flags, flags::INIT | prefer);
    assert_eq!((before.generation(), after.generation()), (2, 3));
    let after = after.with_flags(&[not(set(65537, flags::PREF_RD)), set(131074, flags::NOSYNC)]).unwrap();
    assert_eq!(after.components()[0].flags, flags::INIT | flags::PREF_WR);
    assert_eq!(after.components()[1].flags, flags::INIT | flags::NOSYNC);

    let stale = before.with_flags(&[set(65537, flags::STALE)]).unwrap();
    assert_eq!(stale.components()[0].flags, flags::INIT | flags::STALE);
    let last = stale.with_flags(&[set(131074, flags::STALE)]).unwrap_err();
    assert_eq!((last.clone(), last.errno()), (LayoutError::LastFresh, Errno(117)));
    assert_eq!(layout().with_flags(&[set(1, flags::STALE)]), Err(LayoutError::LastFresh));
    assert!(stale.with_flags(&[not(set(65537, flags::STALE)), set(131074, flags::STALE)]).is_ok());

    let refused = |mark| before.with_flags(&[mark]).unwrap_err().errno();
    for mark in [set(65537, flags::INIT), set(65537, flags::EXTENSION), set(65537, 0), set(9, prefer), set(0, prefer)] {
        assert_eq!(refused(mark), Errno::EINVAL, "{mark:?}");
    }
    assert_eq!(plain().with_flags(&[set(1, prefer)]), Err(LayoutError::NotComposite));
    assert!(before.with_flags(&[]).is_err());
}
