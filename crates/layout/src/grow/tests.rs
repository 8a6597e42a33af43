//! Growth of self-extending components.

use sheen_wire::Fid;

use super::*;
use crate::{
    Asked, Count, Defaults, MDT_BYTES_DEFAULT, Spec, Stripe, Template, TemplateComponent, codec::fixtures,
    resolve_asked,
};

const M: u64 = 1 << 20;
const EOF: u64 = u64::MAX;

/// Builds a layout of components `(end, stripes, extension size)`. The first has its object.
fn layout(parts: &[(u64, u16, u64)]) -> Layout {
    let mut start = 0;
    let component = |(end, count, size): &(u64, u16, u64)| {
        let spec = Spec { count: Some(Count::Stripes(*count)), ..Spec::default() };
        let c = TemplateComponent::striped(start, *end, spec);
        start = *end;
        if *size > 0 { c.extendable(*size) } else { vec![c] }
    };
    let asked = Asked::Composite(Template::new(parts.iter().flat_map(component).collect()));
    asked.check().unwrap();
    let wanted = resolve_asked(&asked, None, None, &Defaults::default(), MDT_BYTES_DEFAULT);
    let object = Stripe { object: Fid::new(7, 1), ost: 0 };
    wanted.layout(Fid::new(1, 2), vec![(0, vec![object])]).unwrap()
}

/// Id, start and end in MiB (0 for no end), and whether it is an extension.
fn shape(layout: &Layout) -> Vec<(u32, u64, u64, bool)> {
    let mib = |at| if at == EOF { 0 } else { at / M };
    layout.components().iter().map(|c| (c.id, mib(c.start), mib(c.end), c.is_extension())).collect()
}

fn roomy(_: &Component, _: u64) -> bool {
    true
}

fn full(_: &Component, _: u64) -> bool {
    false
}

/// Only components without objects have room.
fn elsewhere(c: &Component, _: u64) -> bool {
    !c.is_instantiated()
}

fn grown(layout: &Layout, at: u64, has_room: impl Fn(&Component, u64) -> bool) -> Layout {
    let grown = layout.grow(at, M, has_room).unwrap().unwrap();
    assert_eq!(grown.check_usable(), Ok(()));
    assert_eq!(grown.end(), layout.end());
    assert!(!grown.components().iter().any(|c| c.is_extension() && !c.is_outside(at, at + M)));
    assert_eq!(grown.grow(at, M, full), Ok(None), "a second time changes nothing");
    grown
}

#[test]
fn grow_extends_as_lustre_does() {
    // `-E 128M -c 1 -z 64M -E -1 -c 4 -z 128M`, then a write at 70 MiB.
    let before = layout(&[(128 * M, 1, 64 * M), (EOF, 4, 128 * M)]);
    assert_eq!(before.grow(0, 64 * M, full), Ok(None));
    let after = grown(&before, 70 * M, roomy);
    let theirs = Layout::decode(&fixtures::bytes(fixtures::SEL)).unwrap();
    assert_eq!(shape(&after), shape(&theirs));
    assert_eq!(after.generation(), theirs.generation());
    assert_eq!(after.missing(0, 128 * M), None);
    // The next component grows as needed, and then gets its objects.
    let next = grown(&after, 300 * M, roomy);
    assert_eq!(shape(&next), [(1, 0, 128, false), (3, 128, 384, false), (4, 384, 0, true)]);
    assert_eq!(next.wanting(300 * M, M), [1]);
}

#[test]
fn grow_checks_room_for_the_bytes_it_takes() {
    let asked = std::cell::Cell::new(0);
    let before = layout(&[(EOF, 1, 64 * M)]);
    before.grow(200 * M, M, |_, bytes| asked.replace(bytes) == 0).unwrap();
    assert_eq!(asked.get(), 192 * M, "from 64 MiB in steps of 64 MiB");
}

#[test]
fn grow_spills_over_if_osts_are_full() {
    let before = layout(&[(128 * M, 1, 64 * M), (EOF, 4, 0)]);
    let after = grown(&before, 70 * M, elsewhere);
    assert_eq!(shape(&after), [(1, 0, 64, false), (3, 64, 0, false)]);
    assert_eq!(after.wanting(70 * M, M), [1]);
    // The next component is self-extending: it begins where there was no room, and takes from its
    // own extension.
    let before = layout(&[(128 * M, 1, 64 * M), (EOF, 4, 128 * M)]);
    let after = grown(&before, 70 * M, elsewhere);
    assert_eq!(shape(&after), [(1, 0, 64, false), (3, 64, 192, false), (4, 192, 0, true)]);
    // The component passed over is empty.
    let before = layout(&[(64 * M, 1, 0), (256 * M, 2, 64 * M), (EOF, 4, 0)]);
    let after = grown(&before, 70 * M, |c, _| c.stripe_count != 2);
    assert_eq!(shape(&after), [(1, 0, 64, false), (4, 64, 0, false)]);
}

#[test]
fn grow_repeats_the_last_component_on_other_osts() {
    let before = layout(&[(EOF, 2, 64 * M)]);
    let after = grown(&before, 70 * M, elsewhere);
    assert_eq!(shape(&after), [(1, 0, 64, false), (3, 64, 128, false), (2, 128, 0, true)]);
    let wanted = after.wanted_of(1).unwrap();
    assert_eq!((wanted.count, wanted.stripe_size, wanted.start), (Count::Stripes(2), 4 << 20, None));
    assert!(after.generation() > before.generation());
}

#[test]
fn grow_takes_a_smaller_step_if_a_whole_extension_does_not_fit() {
    let before = layout(&[(EOF, 1, 64 * M)]);
    // `here` bytes are free on the present OST, `there` bytes on others.
    let left =
        |here: u64, there: u64| move |c: &Component, bytes| bytes <= if c.is_instantiated() { here } else { there };
    let after = grown(&before, 64 * M, left(20 * M, 15 * M));
    assert_eq!(shape(&after), [(1, 0, 80, false), (2, 80, 0, true)]);
    let after = grown(&before, 64 * M, left(15 * M, 20 * M));
    assert_eq!(shape(&after), [(1, 0, 64, false), (3, 64, 80, false), (2, 80, 0, true)]);
    // No step that is not a multiple of the 4 MiB stripe size.
    let after = grown(&before, 64 * M, left(3 * M, 3 * M));
    assert_eq!(shape(&after), [(1, 0, 128, false), (2, 128, 0, true)]);
}

#[test]
fn grow_stops_repeating_small_steps_at_the_component_limit() {
    let mut log = layout(&[(EOF, 1, 64 * M)]);
    let mut end = 64 * M;
    for ost in 0..2000 {
        log = grown(&log, end, |c, bytes| !c.is_instantiated() && bytes <= 16 * M);
        let wanting = log.wanting(end, M);
        let objects = wanting.into_iter().map(|c| (c, vec![Stripe { object: Fid::new(7, ost + 2), ost }])).collect();
        log.instantiate(objects).unwrap();
        end = log.components().iter().rev().nth(1).map(|c| c.end).unwrap();
    }
    assert_eq!(log.components().len(), SMALL_STEPS_COMPONENTS_MAX);
}

#[test]
fn grow_extends_all_the_same_if_no_ost_has_room() {
    let before = layout(&[(EOF, 2, 64 * M)]);
    let after = grown(&before, 70 * M, full);
    assert_eq!(shape(&after), [(1, 0, 128, false), (2, 128, 0, true)]);
    assert_eq!(before.grow(0, EOF, roomy).unwrap().map(|l| shape(&l)), Some(vec![(1, 0, 0, false)]));
    let plain = Layout::new(Fid::new(1, 2), 65536, None, vec![Stripe { object: Fid::new(7, 1), ost: 0 }]).unwrap();
    assert_eq!(plain.grow(0, EOF, full), Ok(None));
}
