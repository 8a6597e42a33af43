//! The binary forms, compared with layouts captured from Lustre.

use proptest::prelude::*;
use sheen_wire::Fid;

use super::{fixtures::*, *};
use crate::{
    Asked, Count, LAYOUT_BYTES_MAX, Layout, LayoutError, Mark, Pattern, Pool, STRIPE_SIZE_UNIT, Spec, Stripe, flags,
};

#[test]
fn decode_plain_layout_of_lustre_round_trips() {
    let raw = bytes(PLAIN);
    let layout = Layout::decode(&raw).unwrap();
    assert_eq!(raw.len(), V1_BYTES + OBJECT_BYTES);
    assert_eq!(layout.fid().to_string(), "[0x200000402:0x2:0x0]");
    assert_eq!((layout.stripe_size(), layout.stripe_count(), layout.pattern()), (4 << 20, 1, Pattern::RAID0));
    assert_eq!(layout.stripes(), [Stripe { object: Fid::new(0x2c0000401, 2), ost: 1 }]);
    assert_eq!(layout.pool(), None);
    assert_eq!(layout.encode(), raw);
    layout.check_usable().unwrap();
}

#[test]
fn decode_overstriped_layout_of_lustre_returns_its_osts() {
    let layout = Layout::decode(&bytes(OVERSTRIPED)).unwrap();
    let osts: Vec<u32> = layout.stripes().iter().map(|s| s.ost).collect();
    assert_eq!(osts, [2, 3, 0, 1, 2, 3, 0, 1]);
    assert_eq!(layout.pattern().to_string(), "raid0,overstriped");
    assert_eq!(layout.stripes()[2].object, Fid::new(0x280000401, 0x19));
}

#[test]
fn we_write_what_lustre_would() {
    let theirs = Layout::decode(&bytes(OVERSTRIPED)).unwrap();
    let ours = Layout::new(theirs.fid(), 4 << 20, None, theirs.stripes().to_vec()).unwrap();
    assert_eq!(ours.encode_xattr(), bytes(OVERSTRIPED));
    assert_eq!(&ours.encode()[30..32], [0, 0], "the stored form has the generation");
}

#[test]
fn decode_pooled_layout_of_lustre_round_trips() {
    let raw = bytes(POOLED);
    assert_eq!(raw.len(), V3_BYTES + OBJECT_BYTES);
    let layout = Layout::decode(&raw).unwrap();
    assert_eq!(layout.pool().unwrap().as_str(), "p1");
    assert_eq!(layout.stripes()[0].ost, 0);
    assert_eq!(layout.encode(), raw);
}

#[test]
fn decode_composite_layouts_of_lustre_round_trips() {
    for (hex, components) in [(PFL, 3), (DOM, 2), (SEL, 3), (MIRRORED, 4), (DIR_COMPOSITE, 2)] {
        let raw = bytes(hex);
        let layout = Layout::decode(&raw).unwrap();
        assert_eq!(layout.components().len(), components);
        assert_eq!(layout.encode(), raw);
        assert_eq!(layout.encode_xattr(), raw);
        assert_eq!(layout.encoded_len(), raw.len());
    }
    let mirrored = Layout::decode(&bytes(MIRRORED)).unwrap();
    assert_eq!(mirrored.check_usable(), Ok(()));
    assert_eq!(mirrored.mirror_ids(), [1, 2]);
    assert_eq!(mirrored.locate(0), mirrored.mirror(1).unwrap().locate(0), "mapped through the first mirror");
    let second = mirrored.mirror(2).unwrap();
    assert_eq!(second.check_usable(), Ok(()));
    assert_eq!(second.locate(0).map(|p| p.ost), Some(0));
    assert_eq!(second.missing(0, u64::MAX), Some((4 << 20, u64::MAX)));
    assert_eq!(mirrored.mirror(3), None);
    let pfl = Layout::decode(&bytes(PFL)).unwrap();
    let [first, second, third] = pfl.components() else { panic!("three components") };
    assert_eq!((first.start, first.end, first.stripe_size), (0, 1 << 20, 1 << 20));
    assert_eq!((second.start, second.end, second.stripes.len()), (1 << 20, 4 << 30, 4));
    assert_eq!((third.end, third.stripe_count, third.stripes.len()), (u64::MAX, u16::MAX, 0));
    assert_eq!(Layout::decode(&bytes(MIRRORED)).unwrap().composite().unwrap().mirror_count, 2);
    assert_eq!(Layout::decode(&bytes(DOM)).unwrap().components()[0].pattern, Pattern::MDT);
}

#[test]
fn plain_view_of_a_composite_layout_is_one_component() {
    let view = |hex: &str, empty| {
        let raw = Layout::decode(&bytes(hex)).unwrap().encode_plain_view(empty, 3);
        let view = Layout::decode(&raw).unwrap();
        let [c] = view.components() else { panic!("one component") };
        assert!(view.is_plain());
        (c.stripe_size, c.stripe_count, c.stripes.len())
    };
    // The last component with objects; for an empty file the last component.
    assert_eq!((view(PFL, false), view(PFL, true)), ((4 << 20, 4, 4), (4 << 20, 3, 0)));
    assert_eq!((view(DOM, false), view(DOM, true)), ((4 << 20, 2, 2), (4 << 20, 2, 2)));
    assert_eq!((view(SEL, false), view(SEL, true)), ((4 << 20, 1, 1), (4 << 20, 4, 0)));
    assert_eq!((view(MIRRORED, false), view(MIRRORED, true)), ((1 << 20, 1, 1), (4 << 20, 2, 0)));
    // A file with only a Data-on-MDT component: the stripe count is not 0, because programs divide
    // by it.
    let dom = Layout::decode(&bytes(DOM)).unwrap();
    let on_mdt = Layout::assemble(dom.composite().cloned(), dom.components()[..1].to_vec());
    let raw = on_mdt.encode_plain_view(false, 3);
    assert_eq!((raw.len(), &raw[28..30]), (V1_BYTES, &[1, 0][..]));
    let plain = bytes(PLAIN);
    assert_eq!(Layout::decode(&plain).unwrap().encode_plain_view(false, 3), plain);
}

#[test]
fn decode_directory_default_of_lustre_round_trips() {
    let raw = bytes(DIR_OVERSTRIPED);
    let spec = Spec::decode(&raw).unwrap();
    let want = Spec { count: Some(Count::Stripes(8)), overstripe: true, ..Spec::default() };
    assert_eq!(spec, want);
    assert_eq!(spec.encode(), raw);
}

#[test]
fn decode_spec_accepts_a_file_layout_without_its_osts() {
    // As `getfattr | setfattr` does: count, size and pattern are copied, the OSTs are not.
    let spec = Spec::decode(&bytes(OVERSTRIPED)).unwrap();
    assert_eq!((spec.count, spec.start), (Some(Count::Stripes(8)), None));
    assert!(spec.osts.is_empty() && spec.overstripe);
    assert_eq!(Spec::decode(&bytes(POOLED)).unwrap().pool.unwrap().as_str(), "p1");
}

#[test]
fn encode_spec_with_listed_osts_round_trips() {
    let spec = Spec { osts: vec![3, 1, 1], ..Spec::default() };
    let raw = spec.encode();
    assert_eq!(raw[..4], 0x0BD5_0BD0_u32.to_le_bytes());
    assert_eq!(raw.len(), V3_BYTES + 3 * OBJECT_BYTES);
    let back = Spec::decode(&raw).unwrap();
    assert_eq!((back.osts, back.count), (vec![3, 1, 1], Some(Count::Stripes(3))));
    assert!(matches!(Spec::decode(&raw[..raw.len() - 1]), Err(LayoutError::Truncated { .. })));
}

#[test]
fn decode_spec_refusals_return_lustres_errno() {
    use sheen_wire::Errno;
    let refused = |bytes: &[u8]| Spec::decode(bytes).unwrap_err().errno();
    assert_eq!(refused(b""), Errno::EINVAL);
    assert_eq!(refused(b"abcd"), Errno::EINVAL);
    assert_eq!(refused(&bytes(PLAIN)[..31]), Errno::EINVAL);
    assert_eq!(refused(&bytes(PFL)), Errno::EOPNOTSUPP);
    assert_eq!(refused(&vec![0; LAYOUT_BYTES_MAX + 1]), Errno::ERANGE);
    let with = |at: usize, value: &[u8]| {
        let mut raw = bytes(DIR_OVERSTRIPED);
        raw[at..at + value.len()].copy_from_slice(value);
        raw
    };
    assert_eq!(refused(&with(28, &2001_u16.to_le_bytes())), Errno::EINVAL);
    assert_eq!(refused(&with(24, &65537_u32.to_le_bytes())), Errno::EINVAL);
    assert_eq!(refused(&with(4, &0x100_u32.to_le_bytes())), Errno::EOPNOTSUPP);
    // -2 … -32 stripes only with overstriping. -33 is always refused.
    assert_eq!(Spec::decode(&with(28, &(-32_i16).to_le_bytes())).unwrap().count, Some(Count::PerOst(32)));
    assert_eq!(refused(&with(28, &(-33_i16).to_le_bytes())), Errno::EINVAL);
    let mut not_overstriped = with(28, &(-2_i16).to_le_bytes());
    not_overstriped[5] = 0;
    assert_eq!(refused(&not_overstriped), Errno::EINVAL);
}

fn pools() -> impl Strategy<Value = Option<Pool>> {
    proptest::option::of("[A-Za-z0-9._-]{1,15}".prop_map(|name| Pool::new(&name).unwrap()))
}

fn sizes() -> impl Strategy<Value = u32> {
    (1..=65535_u32).prop_map(|units| units * STRIPE_SIZE_UNIT)
}

proptest! {
    #[test]
    fn encode_layout_round_trips(
        fid in (any::<u64>(), any::<u32>()),
        size in sizes(),
        pool in pools(),
        stripes in proptest::collection::vec((any::<u64>(), any::<u32>(), any::<u32>(), 0..9_u32), 1..50),
    ) {
        let stripes = stripes.into_iter().map(|(seq, oid, ver, ost)| Stripe { object: Fid { seq, oid, ver }, ost }).collect();
        let layout = Layout::new(Fid::new(fid.0, fid.1), size, pool, stripes).unwrap();
        let raw = layout.encode();
        let back = Layout::decode(&raw).unwrap();
        prop_assert_eq!(&back, &layout);
        prop_assert_eq!(back.encode(), raw);
        prop_assert_eq!(Spec::decode(&layout.encode_xattr()).unwrap().pool, layout.pool().cloned());
    }

    #[test]
    fn encode_spec_round_trips(
        stripe_size in proptest::option::of(sizes()),
        count in prop_oneof![Just(None), Just(Some(Count::All)), (2..=32_u16).prop_map(|n| Some(Count::PerOst(n))),
            (1..=2000_u16).prop_map(|n| Some(Count::Stripes(n)))],
        start in proptest::option::of(0..u32::from(u16::MAX)),
        osts in proptest::collection::vec(any::<u32>(), 0..20),
        pool in pools(),
    ) {
        let count = if osts.is_empty() { count } else { Some(Count::Stripes(osts.len() as u16)) };
        let spec = Spec { stripe_size, count, overstripe: matches!(count, Some(Count::PerOst(_))), start, osts, pool };
        let raw = spec.encode();
        let back = Spec::decode(&raw).unwrap();
        prop_assert_eq!(&back, &spec);
        prop_assert_eq!(back.encode(), raw);
    }

    /// Broken bytes are refused or decoded. Decoded ones can be encoded and decoded again.
    #[test]
    fn decode_of_mutilated_layouts_fails_or_round_trips(
        which in 0..6_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        do_cut in any::<bool>(),
    ) {
        let mut raw = bytes([PLAIN, OVERSTRIPED, POOLED, PFL, MIRRORED, DIR_COMPOSITE][which]);
        for (at, value) in changes {
            let at = at.index(raw.len());
            raw[at] = value;
        }
        if do_cut {
            raw.truncate(cut.index(raw.len()));
        }
        if let Ok(layout) = Layout::decode(&raw) {
            let again = layout.encode();
            prop_assert_eq!(again.len(), layout.encoded_len());
            prop_assert_eq!(Layout::decode(&again).unwrap().encode(), again);
            let stripes = layout.stripes().len();
            prop_assert!(layout.map(0, u64::MAX).take(10).all(|c| c.stripe < stripes && c.len > 0));
            prop_assert!(layout.check_usable().is_ok() || layout.locate(0).is_none());
        }
        let _ = Spec::decode(&raw).map(|spec| spec.check().unwrap());
        if let Ok(asked) = Asked::decode(&raw) {
            asked.check().unwrap();
            prop_assert_eq!(Asked::decode(&asked.encode()).unwrap(), asked);
        }
    }

    #[test]
    fn encode_marks_round_trips(marks in proptest::collection::vec((any::<u32>(), 0..0x80_u32, any::<bool>()), 1..20)) {
        let marks: Vec<Mark> = marks.into_iter().map(|(id, flags, negative)| Mark { id, flags, negative }).collect();
        prop_assert_eq!(Mark::decode(&Mark::encode(&marks)).unwrap(), marks);
    }
}

#[test]
fn encode_marks_matches_lustres_component_del() {
    // `lfs setstripe --component-del --component-flags=^init`: a header and an entry without
    // data.
    let raw = Mark::encode(&[Mark { id: 0, flags: flags::INIT, negative: true }]);
    assert_eq!(raw.len(), COMP_HEADER_BYTES + COMP_ENTRY_BYTES);
    assert_eq!(raw[36..40], 0x8000_0010_u32.to_le_bytes());
    assert_eq!(Mark::decode(&bytes(PLAIN)), Err(LayoutError::NotComposite));
}

#[test]
fn decode_refuses_overlapping_component_data() {
    // All entries refer to the same data.
    let mut raw = bytes(MIRRORED);
    for entry in 1..4 {
        let at = COMP_HEADER_BYTES + entry * COMP_ENTRY_BYTES + 24;
        raw.copy_within(COMP_HEADER_BYTES + 24..COMP_HEADER_BYTES + 32, at);
    }
    // Four times the small data fits into the size limit; four times the whole layout does not.
    assert!(Layout::decode(&raw).is_ok());
    for entry in 0..4 {
        let at = COMP_HEADER_BYTES + entry * COMP_ENTRY_BYTES + 24;
        let all = (raw.len() as u32).to_le_bytes();
        raw[at..at + 4].fill(0);
        raw[at + 4..at + 8].copy_from_slice(&all);
    }
    assert_eq!(Layout::decode(&raw), Err(LayoutError::Malformed("the components overlap")));
}
