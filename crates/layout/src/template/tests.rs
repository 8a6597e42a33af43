//! Requested composite layouts: checks and binary form.

use proptest::prelude::*;
use sheen_wire::Errno;

use super::*;
use crate::{
    Pool, STRIPES_MAX,
    codec::{self, fixtures},
};

const M: u64 = 1 << 20;
const EOF: u64 = u64::MAX;

fn count(n: u16) -> Spec {
    Spec { count: Some(Count::Stripes(n)), ..Spec::default() }
}

fn size(bytes: u32) -> Spec {
    Spec { stripe_size: Some(bytes), ..Spec::default() }
}

/// Components as given by `-E`: each ends at the given offset and begins at the end of the one
/// before it.
fn ends(parts: &[(u64, Spec)]) -> Template {
    let mut start = 0;
    let component = |(end, spec): &(u64, Spec)| {
        let c = TemplateComponent::striped(start, *end, spec.clone());
        start = *end;
        c
    };
    Template::new(parts.iter().map(component).collect())
}

fn refused(template: &Template) -> LayoutError {
    let error = template.check().unwrap_err();
    assert_eq!(Asked::decode(&template.encode()), Err(error.clone()), "decoding checks, too");
    error
}

fn default_ends(list: &[u64]) -> Template {
    ends(&list.iter().map(|end| (*end, Spec::default())).collect::<Vec<_>>())
}

#[test]
fn check_accepts_templates_with_ends() {
    let all = Spec { count: Some(Count::All), ..Spec::default() };
    let per_ost = Spec { count: Some(Count::PerOst(2)), overstripe: true, ..Spec::default() };
    for template in [
        ends(&[(M, count(1)), (4096 * M, count(4)), (EOF, all)]),
        ends(&[(M, size(256 << 10)), (16 * M, size(1 << 20)), (EOF, per_ost)]),
        ends(&[(M, count(1)), (8 * M, count(2))]),
        ends(&[(EOF, Spec::default())]),
    ] {
        assert_eq!(template.check(), Ok(()));
        assert_eq!(Asked::decode(&template.encode()), Ok(Asked::Composite(template)));
    }
}

#[test]
fn components_follow_each_other() {
    assert_eq!(refused(&default_ends(&[4 * M, M])), LayoutError::Extent { start: 4 * M, end: M });
    assert!(matches!(refused(&default_ends(&[EOF, 4 * M])), LayoutError::Extent { .. }));
    assert_eq!(refused(&default_ends(&[M, M])), LayoutError::ZeroLength(M));
    assert_eq!(refused(&default_ends(&[M, M, EOF])), LayoutError::ZeroLength(M));
    assert_eq!(refused(&default_ends(&[0, M])), LayoutError::Extent { start: 0, end: 0 });
    assert_eq!(refused(&default_ends(&[100 << 10, EOF])), LayoutError::Boundary(100 << 10));
    let at = |start, end| TemplateComponent::striped(start, end, Spec::default());
    let gap = Template::new(vec![at(0, M), at(2 * M, EOF)]);
    assert_eq!(refused(&gap), LayoutError::Gap { start: 2 * M, expected: M });
    let overlap = Template::new(vec![at(0, 2 * M), at(M, EOF)]);
    assert_eq!(refused(&overlap), LayoutError::Gap { start: M, expected: 2 * M });
    assert_eq!(refused(&Template::new(vec![at(M, EOF)])), LayoutError::Gap { start: M, expected: 0 });
    assert_eq!(Template::new(vec![]).check(), Err(LayoutError::NoComponent));
    for template in [default_ends(&[4 * M, M]), default_ends(&[M, M]), gap, overlap] {
        assert_eq!(refused(&template).errno(), Errno::EINVAL);
    }
}

#[test]
fn check_refuses_ends_not_aligned_by_the_stripe_size() {
    // `-E 1M -S 4M -E -1` and `-E 3M -S 2M -E -1`.
    let error = refused(&ends(&[(M, size(4 << 20)), (EOF, Spec::default())]));
    assert_eq!(error, LayoutError::EndAlignment { end: M, stripe_size: 4 << 20 });
    assert!(error.to_string().contains("end 1048576 must be aligned by the stripe size 4194304"));
    assert!(matches!(
        refused(&ends(&[(3 * M, size(2 << 20)), (EOF, Spec::default())])),
        LayoutError::EndAlignment { .. }
    ));
    assert_eq!(ends(&[(3 * M, Spec::default()), (EOF, size(2 << 20))]).check(), Ok(()), "a fitting size is chosen");
}

#[test]
fn limits_are_lustres() {
    assert_eq!(refused(&ends(&[(M, count(2001)), (EOF, count(1))])), LayoutError::StripeCount(2001));
    let listed = Spec { osts: vec![0; STRIPES_MAX + 1], ..Spec::default() };
    assert!(Template::new(vec![TemplateComponent::striped(0, EOF, listed)]).check().is_err());
    assert_eq!(refused(&ends(&[(EOF, size(65537))])), LayoutError::StripeSize(65537));
    // Lustre also refuses `for i in $(seq 1 600); do a="$a -E ${i}M -C 10"; done`.
    let many = |n: u64| default_ends(&(1..=n).map(|i| i * M).collect::<Vec<_>>());
    assert_eq!(many(545).check(), Ok(()));
    assert_eq!(refused(&many(546)).errno(), Errno::ERANGE);
    assert_eq!(refused(&many(600)).errno(), Errno::ERANGE);
    // Two components of 2000 stripes do not fit, unless they are too short for that many.
    let wide = |end| ends(&[(end, count(2000)), (EOF, count(2000))]);
    assert_eq!(refused(&wide(1 << 40)).errno(), Errno::ERANGE);
    assert_eq!(wide(64 * M).check(), Ok(()));
    let flags = |flags| Template::new(vec![TemplateComponent { flags, ..TemplateComponent::default() }]);
    assert_eq!(flags(flags::PREF_RD | flags::PREF_WR | flags::NOSYNC).check(), Ok(()));
    assert_eq!(refused(&flags(0x80)), LayoutError::ComponentFlags(0x80));
    assert_eq!(flags(flags::INIT).check(), Err(LayoutError::ComponentFlags(flags::INIT)));
}

#[test]
fn check_refuses_more_than_sixteen_mirrors() {
    let mirrors = |n: u16| Template { components: vec![TemplateComponent::default(); usize::from(n)], mirrors: n };
    assert_eq!(mirrors(16).check(), Ok(()));
    assert_eq!(refused(&mirrors(17)), LayoutError::Mirrors(17));
    assert_eq!(mirrors(0).check(), Err(LayoutError::Mirrors(0)));
    let said = Template { mirrors: 3, ..mirrors(2) };
    assert_eq!(refused(&said), LayoutError::MirrorsMissing { said: 3, found: 2 });
    let composed = Template {
        components: [ends(&[(M, count(1)), (EOF, count(2))]), ends(&[(4 * M, count(1)), (EOF, count(4))])]
            .into_iter()
            .flat_map(|t| t.components)
            .collect(),
        mirrors: 2,
    };
    assert_eq!(composed.check(), Ok(()));
    assert_eq!(composed.encode()[12..18], [1, 0, 4, 0, 1, 0], "read-only, four entries, one further mirror");
}

#[test]
fn check_refuses_late_or_striped_dom_components() {
    let rest = || TemplateComponent::striped(64 << 10, EOF, count(2));
    let dom = Template::new(vec![TemplateComponent::on_mdt(64 << 10), rest()]);
    assert_eq!(dom.check(), Ok(()));
    assert_eq!(Asked::decode(&dom.encode()), Ok(Asked::Composite(dom.clone())));
    assert_eq!(Template::new(vec![TemplateComponent::on_mdt(64 << 10)]).check(), Ok(()));
    let late = TemplateComponent { start: M, ..TemplateComponent::on_mdt(2 * M) };
    let late = Template::new(vec![TemplateComponent::striped(0, M, count(1)), late]);
    assert_eq!(refused(&late), LayoutError::MdtNotFirst(M));
    for spec in [count(2), Spec { start: Some(1), ..Spec::default() }, Spec { osts: vec![1], ..Spec::default() }] {
        let mut wrong = dom.clone();
        wrong.components[0].spec = spec;
        assert!(matches!(refused(&wrong), LayoutError::MdtOption(_)));
    }
}

#[test]
fn extendable_returns_a_component_and_its_extension() {
    // `-E 128M -c 1 -z 64M -E -1 -c 4 -z 128M`
    let first = TemplateComponent::striped(0, 128 * M, count(1)).extendable(64 * M);
    let second = TemplateComponent::striped(128 * M, EOF, count(4)).extendable(128 * M);
    let sel = Template::new([first, second].concat());
    assert_eq!(sel.check(), Ok(()));
    let extents: Vec<(u64, u64, bool)> = sel.components.iter().map(|c| (c.start, c.end, c.is_extension())).collect();
    let at = 128 * M;
    assert_eq!(extents, [(0, 64 * M, false), (64 * M, at, true), (at, at, false), (at, EOF, true)]);
    let raw = sel.encode();
    assert_eq!(raw[..4], 0x0BD8_0BD0_u32.to_le_bytes());
    assert_eq!(Asked::decode(&raw), Ok(Asked::Composite(sel.clone())));
    // The extension size is stored in KiB in the stripe size field.
    let part = COMP_HEADER_BYTES + 4 * codec::COMP_ENTRY_BYTES + 32;
    assert_eq!(raw[part + 24..part + 28], 65536_u32.to_le_bytes());
    assert_eq!(TemplateComponent::striped(0, M, count(1)).extendable(64 * M).len(), 1, "no space for an extension");

    let too_small = Template::new(TemplateComponent::striped(0, 100 * M, count(1)).extendable(10 * M));
    assert_eq!(refused(&too_small), LayoutError::ExtensionSize(10 * M));
    let no_stripes = Template::new(TemplateComponent::striped(0, 1024 * M, size(96 << 20)).extendable(64 * M));
    assert!(no_stripes.check().is_err());
    let alone = Template::new(sel.components[1..].to_vec());
    assert!(alone.check().is_err());
    let mut twice = sel.clone();
    twice.components[2] = TemplateComponent { end: 192 * M, ..sel.components[1].clone() };
    twice.components[2].start = at;
    assert!(twice.check().is_err());
    let dom = TemplateComponent { extension_size: None, ..sel.components[1].clone() };
    assert!(Template::new(vec![sel.components[0].clone(), dom]).check().is_err(), "flag without size");
}

#[test]
fn decode_request_accepts_layouts_of_lustre() {
    let asked = |hex| match Asked::decode(&fixtures::bytes(hex)) {
        Ok(Asked::Composite(template)) => template,
        other => panic!("{other:?}"),
    };
    let pfl = asked(fixtures::PFL);
    let all = Spec { count: Some(Count::All), stripe_size: Some(4 << 20), ..Spec::default() };
    let counted = |n, bytes| Spec { count: Some(Count::Stripes(n)), ..size(bytes) };
    assert_eq!(pfl, ends(&[(M, counted(1, 1 << 20)), (4096 * M, counted(4, 4 << 20)), (EOF, all)]));
    let dom = asked(fixtures::DOM);
    assert_eq!(dom.components[0], TemplateComponent::on_mdt(64 << 10));
    let sel = asked(fixtures::SEL);
    assert_eq!(sel.components[2].extension_size, Some(128 * M));
    assert_eq!((sel.components[1].start, sel.components[1].end), (128 * M, 128 * M));
    let mirrored = asked(fixtures::MIRRORED);
    assert_eq!((mirrored.mirrors, mirrored.components[0].flags), (2, flags::PREF_RD | flags::PREF_WR));
    let dir = asked(fixtures::DIR_COMPOSITE);
    assert_eq!(
        dir,
        Template::new(vec![TemplateComponent::on_mdt(64 << 10), TemplateComponent::striped(64 << 10, EOF, count(2))])
    );
    // Except for stale bytes in the captured directory default, the bytes are Lustre's.
    let mut raw = fixtures::bytes(fixtures::DIR_COMPOSITE);
    for at in [128 + 8, 160 + 8] {
        raw[at..at + 8].fill(0);
    }
    assert_eq!(dir.encode(), raw);
    assert_eq!(
        Asked::decode(&fixtures::bytes(fixtures::DIR_OVERSTRIPED)).unwrap().plain().unwrap().count,
        Some(Count::Stripes(8))
    );
}

#[test]
fn decode_added_refuses_components_not_at_the_files_end() {
    let added = Template::new(vec![TemplateComponent::striped(8 * M, EOF, count(2))]);
    let raw = added.encode();
    assert_eq!(Template::decode_added(&raw, 8 * M), Ok(added.clone()));
    assert_eq!(Template::decode_added(&raw, 4 * M), Err(LayoutError::Gap { start: 8 * M, expected: 4 * M }));
    assert!(Asked::decode(&raw).is_err());
    assert_eq!(Template::decode_added(&count(2).encode(), 8 * M), Err(LayoutError::NotComposite));
    let mirrors = Template { mirrors: 2, ..added };
    assert_eq!(mirrors.check_added(8 * M).unwrap_err().errno(), Errno::EBUSY);
}

#[test]
fn request_lists_its_osts_and_pools() {
    let pool = Pool::new("flash").unwrap();
    let first = Spec { pool: Some(pool.clone()), start: Some(3), ..Spec::default() };
    let second = Spec { osts: vec![1, 2], ..Spec::default() };
    let asked = Asked::Composite(ends(&[(M, first.clone()), (EOF, second)]));
    assert_eq!(asked.osts().collect::<Vec<_>>(), [3, 1, 2]);
    assert_eq!(asked.pools().collect::<Vec<_>>(), [&pool]);
    assert_eq!(Asked::Plain(first).osts().collect::<Vec<_>>(), [3]);
    assert!(Asked::default().is_default() && !asked.is_default());
}

fn pools() -> impl Strategy<Value = Option<Pool>> {
    prop::option::of("[A-Za-z0-9._-]{1,15}".prop_map(|name| Pool::new(&name).unwrap()))
}

prop_compose! {
    fn specs()(
        units in prop::option::of(0..4_u32),
        count in prop_oneof![Just(None), Just(Some(Count::All)), (2..=32_u16).prop_map(|n| Some(Count::PerOst(n))),
            (1..=20_u16).prop_map(|n| Some(Count::Stripes(n)))],
        overstripe in any::<bool>(),
        start in prop::option::of(0..u32::from(u16::MAX)),
        osts in prop_oneof![Just(vec![]), prop::collection::vec(any::<u32>(), 1..8)],
        pool in pools(),
    ) -> Spec {
        let count = if osts.is_empty() { count } else { Some(Count::Stripes(osts.len() as u16)) };
        let overstripe = overstripe || matches!(count, Some(Count::PerOst(_)));
        Spec { stripe_size: units.map(|n| STRIPE_SIZE_UNIT << n), count, overstripe, start, osts, pool }
    }
}

prop_compose! {
    /// Generates one mirror: lengths in MiB, stripe parameters, and whether each component can
    /// grow.
    fn mirrors()(
        parts in prop::collection::vec((64..300_u64, specs(), prop::option::of(1..4_u64), 0..8_u32), 1..6),
        on_mdt in any::<bool>(), endless in any::<bool>(),
    ) -> Vec<TemplateComponent> {
        let mut out = Vec::new();
        let mut start = 0;
        let last = parts.len() - 1;
        for (i, (len, spec, grows, flags)) in parts.into_iter().enumerate() {
            let end = if endless && i == last { EOF } else { start + len * M };
            let flags = flags & (flags::PREF_RD | flags::PREF_WR);
            let c = TemplateComponent { flags, ..TemplateComponent::striped(start, end, spec) };
            match grows {
                _ if on_mdt && i == 0 => out.push(TemplateComponent { flags, ..TemplateComponent::on_mdt(end) }),
                Some(n) => out.extend(c.extendable(n * 64 * M)),
                None => out.push(c),
            }
            start = end;
        }
        out
    }
}

proptest! {
    #[test]
    fn encode_template_round_trips(mirrors in prop::collection::vec(mirrors(), 1..4)) {
        let template = Template { mirrors: mirrors.len() as u16, components: mirrors.concat() };
        prop_assert_eq!(template.check(), Ok(()));
        let raw = template.encode();
        let back = Asked::decode(&raw).unwrap();
        prop_assert_eq!(back.encode(), raw);
        prop_assert_eq!(back, Asked::Composite(template));
    }

    #[test]
    fn chosen_stripe_size_divides_the_component_end(units in 1..1_u64 << 40, size in 1..65536_u32) {
        let (end, size) = (units * u64::from(STRIPE_SIZE_UNIT), size * STRIPE_SIZE_UNIT);
        let chosen = stripe_size_within(end, size);
        prop_assert!(end.is_multiple_of(u64::from(chosen)) && chosen.is_multiple_of(STRIPE_SIZE_UNIT) && chosen > 0);
        prop_assert!(chosen == size || !end.is_multiple_of(u64::from(size)));
    }
}
