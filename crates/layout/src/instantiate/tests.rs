//! From a template to a written file, compared with files of Lustre.

use super::*;
use crate::{
    Asked, Defaults, MDT_BYTES_DEFAULT, MDT_OST, Spec, Template, TemplateComponent, codec::fixtures, resolve_asked,
};

const M: u64 = 1 << 20;
const EOF: u64 = u64::MAX;
const FILE: Fid = Fid::new(0x2_0000_0402, 0x4e);

fn count(n: u16) -> Spec {
    Spec { count: Some(Count::Stripes(n)), ..Spec::default() }
}

fn striped(start: u64, end: u64, spec: Spec) -> TemplateComponent {
    TemplateComponent::striped(start, end, spec)
}

fn on(osts: &[u32]) -> Vec<Stripe> {
    osts.iter().enumerate().map(|(i, ost)| Stripe { object: Fid::new(7, i as u32 + 1), ost: *ost }).collect()
}

fn make(template: Template) -> Layout {
    let asked = Asked::Composite(template);
    asked.check().unwrap();
    let wanted = resolve_asked(&asked, None, None, &Defaults::default(), MDT_BYTES_DEFAULT);
    let first = wanted.first().into_iter().map(|(i, _)| (i, on(&[0]))).collect();
    wanted.layout(FILE, first).unwrap()
}

fn pfl() -> Layout {
    let all = Spec { count: Some(Count::All), ..Spec::default() };
    make(Template::new(vec![striped(0, M, count(1)), striped(M, 4096 * M, count(4)), striped(4096 * M, EOF, all)]))
}

fn ids(layout: &Layout) -> Vec<u32> {
    layout.components().iter().map(|c| c.id).collect()
}

#[test]
fn a_new_file_has_the_objects_of_its_first_component() {
    let layout = pfl();
    assert_eq!((layout.generation(), ids(&layout)), (3, vec![1, 2, 3]));
    let [first, second, third] = layout.components() else { panic!("three components") };
    assert_eq!([first.flags, second.flags, third.flags], [flags::INIT, 0, 0]);
    assert_eq!((first.stripe_size, second.stripe_size, third.stripe_count), (1 << 20, 4 << 20, u16::MAX));
    assert_eq!((layout.fid(), layout.stripes()), (FILE, &on(&[0])[..]));
    assert_eq!(layout.check_usable(), Ok(()));
    assert_eq!(layout.missing(0, EOF), Some((M, 4096 * M)));
    assert_eq!(Layout::decode(&layout.encode()).unwrap(), layout_with_offsets(&layout));
}

/// Returns the layout with the data offsets that encoding calculates.
fn layout_with_offsets(layout: &Layout) -> Layout {
    let mut at = crate::codec::COMP_HEADER_BYTES + layout.components().len() * crate::codec::COMP_ENTRY_BYTES;
    let mut components = layout.components().to_vec();
    for c in &mut components {
        c.offset = at as u32;
        at += crate::codec::V1_BYTES + c.stripes.len() * crate::codec::OBJECT_BYTES;
    }
    Layout::assemble(layout.composite().cloned(), components)
}

#[test]
fn we_write_what_lustre_would() {
    // The captured file was written into its second component, but not into the third. Lustre omits
    // the file's id.
    let theirs = Layout::decode(&fixtures::bytes(fixtures::PFL)).unwrap();
    let mut ours = pfl();
    let all = theirs.stripes();
    ours.instantiate(vec![(1, all[1..].to_vec())]).unwrap();
    let mut raw = ours.encode_xattr();
    let (from, expected) = (Layout::decode(&raw).unwrap(), fixtures::bytes(fixtures::PFL));
    for c in from.components() {
        raw[c.offset as usize + 8..c.offset as usize + 24].fill(0);
    }
    let object = from.components()[0].offset as usize + 32;
    raw[object..object + 24].copy_from_slice(&expected[object..object + 24]);
    assert_eq!(raw, expected);
}

#[test]
fn instantiate_gives_written_components_their_objects() {
    let mut layout = pfl();
    assert_eq!(layout.wanting(2 * M, M), [1]);
    assert_eq!(layout.wanting(0, EOF), [1, 2]);
    assert_eq!(layout.wanted_of(0), None);
    let wanted = layout.wanted_of(1).unwrap();
    assert_eq!((wanted.stripe_size, wanted.count, wanted.overstripe), (4 << 20, Count::Stripes(4), false));
    layout.instantiate(vec![(1, on(&[2, 3, 1, 0]))]).unwrap();
    assert_eq!((layout.generation(), layout.stripe_count()), (4, 5));
    assert_eq!(layout.missing(0, EOF), Some((4096 * M, EOF)));
    assert_eq!(layout.locate(5 * M).map(|p| (p.component, p.stripe, p.ost, p.offset)), Some((1, 2, 3, M)));
    assert_eq!(layout.wanted_of(2).map(|w| w.count), Some(Count::All));
}

#[test]
fn instantiate_raises_the_generation_once() {
    // `truncate -s 20M` on `-E 1M -c 1 -E 16M -S 1M -C 6 -E -1 -C 12`.
    let over = |n, size| Spec { stripe_size: size, overstripe: true, ..count(n) };
    let mut layout = make(Template::new(vec![
        striped(0, M, count(1)),
        striped(M, 16 * M, over(6, Some(1 << 20))),
        striped(16 * M, EOF, over(12, None)),
    ]));
    assert_eq!(layout.components()[1].pattern, Pattern::RAID0_OVERSTRIPED);
    assert_eq!(layout.wanting(0, 20 * M), [1, 2]);
    layout.instantiate(vec![(1, on(&[0, 1, 3, 0, 1, 3])), (2, on(&[1, 3, 0, 2]))]).unwrap();
    assert_eq!(layout.generation(), 4);
    let patterns: Vec<Pattern> = layout.components().iter().map(|c| c.pattern).collect();
    assert_eq!(
        patterns,
        [Pattern::RAID0, Pattern::RAID0_OVERSTRIPED, Pattern::RAID0],
        "overstriped where an OST repeats"
    );
    assert_eq!(layout.stripe_count(), 11);
}

#[test]
fn instantiate_refuses_components_that_take_no_objects() {
    let mut layout = pfl();
    let before = layout.clone();
    assert_eq!(layout.instantiate(vec![(1, on(&[1])), (0, on(&[1]))]), Err(LayoutError::NotWanting(1)));
    assert_eq!(layout.instantiate(vec![(1, on(&[1])), (1, on(&[1]))]), Err(LayoutError::NotWanting(2)));
    assert_eq!(layout.instantiate(vec![(3, on(&[1]))]), Err(LayoutError::NoComponent));
    assert_eq!(layout.instantiate(vec![(1, vec![])]), Err(LayoutError::StripeCount(0)));
    assert_eq!(layout.instantiate(vec![(1, on(&[0; 2001]))]), Err(LayoutError::StripeCount(2001)));
    let both = vec![(1, on(&[0; 1500])), (2, on(&[0; 1500]))];
    assert_eq!(layout.instantiate(both).unwrap_err().errno(), sheen_wire::Errno::ERANGE);
    assert_eq!(layout, before, "a refusal changes nothing");
    let mut plain = Layout::new(FILE, 65536, None, on(&[0])).unwrap();
    assert!(plain.instantiate(vec![(0, on(&[1]))]).is_err());
    assert_eq!((plain.wanting(0, EOF), plain.missing(0, EOF)), (vec![], None));
    let wanted = [striped(0, EOF, count(1))];
    let resolved = resolve_asked(
        &Asked::Composite(Template::new(wanted.to_vec())),
        None,
        None,
        &Defaults::default(),
        MDT_BYTES_DEFAULT,
    );
    assert!(resolved.layout(FILE, vec![]).is_err());
    assert!(resolved.layout(FILE, vec![(0, on(&[1])), (1, on(&[1]))]).is_err());
}

#[test]
fn uninstantiated_component_stores_its_requested_osts() {
    // `-E 1M -o 0 -E -1 -o 1,2`
    let listed = |osts: &[u32]| Spec { osts: osts.to_vec(), ..Spec::default() };
    let layout = make(Template::new(vec![striped(0, M, listed(&[0])), striped(M, EOF, listed(&[1, 2]))]));
    let mut layout = Layout::decode(&layout.encode()).unwrap();
    assert_eq!(layout.stripes(), on(&[0]));
    assert!(layout.components()[1].objects().is_empty());
    assert_eq!(layout.components()[1].layout_gen, 1, "Lustre shows the first OST as its stripe offset");
    let wanted = layout.wanted_of(1).unwrap();
    assert_eq!((wanted.osts, wanted.count, wanted.start), (vec![1, 2], Count::Stripes(2), None));
    layout.instantiate(vec![(1, on(&[1, 2]))]).unwrap();
    assert_eq!((layout.stripe_count(), layout.components()[1].layout_gen), (3, 0));
    // With a start instead of a list.
    let start = Spec { start: Some(3), pool: Some(crate::Pool::new("p").unwrap()), ..count(2) };
    let layout = make(Template::new(vec![striped(0, M, count(1)), striped(M, EOF, start)]));
    let wanted = Layout::decode(&layout.encode_xattr()).unwrap().wanted_of(1).unwrap();
    assert_eq!((wanted.start, wanted.pool.unwrap().as_str()), (Some(3), "p"));
}

#[test]
fn wanted_of_limits_all_osts_to_the_stripe_units() {
    let all = Spec { count: Some(Count::All), ..Spec::default() };
    let layout = make(Template::new(vec![striped(0, 4 * M, count(1)), striped(4 * M, 16 * M, all)]));
    assert_eq!(layout.components()[1].stripe_count, u16::MAX);
    assert_eq!(layout.wanted_of(1).unwrap().count, Count::Stripes(3));
}

#[test]
fn from_template_numbers_mirrors_and_components() {
    // `lfs mirror create -N -E 1M -c 1 -E -1 -c 2 -N -E 4M -c 1 -E -1 -c 4`
    let layout = make(Template {
        components: vec![
            striped(0, M, count(1)),
            striped(M, EOF, count(2)),
            striped(0, 4 * M, count(1)),
            striped(4 * M, EOF, count(4)),
        ],
        mirrors: 2,
    });
    assert_eq!((layout.generation(), ids(&layout)), (4, vec![65537, 65538, 131075, 131076]));
    let composite = layout.composite().unwrap();
    assert_eq!((composite.mirror_count, composite.flags), (2, Composite::READ_ONLY));
    assert_eq!(layout.mirror_ids(), [1, 2]);
    assert_eq!(layout.mirror(2).unwrap().missing(0, EOF), Some((4 * M, EOF)));
    assert_eq!(layout.max_file_size() >> 40, 31, "limit of the narrower mirror");
}

#[test]
fn data_on_the_mdt_is_one_object_named_by_its_file() {
    let mut layout = make(Template::new(vec![TemplateComponent::on_mdt(64 << 10), striped(64 << 10, EOF, count(2))]));
    assert_eq!((layout.check_usable(), layout.mdt_end()), (Ok(()), 64 << 10));
    assert_eq!((layout.generation(), layout.components()[0].flags), (2, flags::INIT));
    let mapped = |layout: &Layout| layout.map(1, M).map(|c| (c.stripe, c.object_offset, c.len)).collect::<Vec<_>>();
    assert_eq!(layout.missing(0, 64 << 10), None);
    assert_eq!(mapped(&layout), [(0, 1, (64 << 10) - 1)]);
    assert_eq!(layout.stripes(), [Stripe { object: Fid { ver: 1, ..layout.fid() }, ost: MDT_OST }]);
    assert_eq!((layout.components()[0].objects(), layout.component_of(0)), (&[][..], Some(0)));
    assert_eq!(layout.missing(0, M), Some((64 << 10, EOF)));
    layout.instantiate(vec![(1, on(&[2, 3]))]).unwrap();
    let theirs = Layout::decode(&fixtures::bytes(fixtures::DOM)).unwrap();
    let of = |l: &Layout| {
        let c = &l.components()[0];
        (l.generation(), c.pattern, c.stripe_size, c.stripe_count, c.layout_gen, c.flags, c.end)
    };
    assert_eq!(of(&layout), of(&theirs));
    assert_eq!(mapped(&layout)[..2], [(0, 1, (64 << 10) - 1), (1, 64 << 10, M - (64 << 10) + 1)]);
    assert_eq!((layout.component_of(1), layout.component_of(2), layout.component_of(3)), (Some(1), Some(1), None));
    assert_eq!((layout.object_size(100, 0), layout.object_size(M, 0)), (100, 64 << 10));
    assert_eq!((layout.file_size(0, 0), layout.file_size(0, 100), layout.file_size(0, M)), (0, 100, 64 << 10));
    let stripes: Vec<(Fid, u32)> = theirs.stripes().iter().map(|s| (s.object, s.ost)).collect();
    assert_eq!(stripes[0], (Fid { ver: 1, ..theirs.fid() }, MDT_OST));
    assert_eq!((layout.mdt_end(), pfl().mdt_end()), (64 << 10, 0));
}

#[test]
fn from_template_creates_self_extending_components_as_lustre() {
    let parts = [striped(0, 128 * M, count(1)).extendable(64 * M), striped(128 * M, EOF, count(4)).extendable(128 * M)];
    let layout = make(Template::new(parts.concat()));
    let extents: Vec<_> = layout.components().iter().map(|c| (c.start, c.end, c.flags, c.extension_size())).collect();
    assert_eq!(
        extents,
        [
            (0, 64 * M, flags::INIT, None),
            (64 * M, 128 * M, flags::EXTENSION, Some(64 * M)),
            (128 * M, 128 * M, 0, None),
            (128 * M, EOF, flags::EXTENSION, Some(128 * M)),
        ]
    );
    assert_eq!((layout.generation(), layout.check_usable()), (4, Ok(())));
    assert_eq!(layout.components()[3].stripe_count, 4);
    assert_eq!(layout.missing(0, EOF), Some((64 * M, 128 * M)));
    assert_eq!(layout.wanted_of(1), None);
    let theirs = Layout::decode(&fixtures::bytes(fixtures::SEL)).unwrap();
    assert_eq!((theirs.check_usable(), theirs.missing(0, EOF)), (Ok(()), Some((128 * M, EOF))));
}

#[test]
fn next_id_and_generation_wrap_around() {
    let mut composite = Composite { layout_gen: u32::MAX, flags: 0, mirror_count: 1, rest: [0; 14] };
    composite.raise();
    assert_eq!(composite.layout_gen, 1);
    composite.layout_gen = 65535;
    let taken = Component { id: 1, ..Component::whole_file() };
    assert_eq!(composite.next_id(0, &[taken]), Ok(2));
}
