//! Layouts that a real Lustre stored, and encoding and decoding of all possible requests.

use proptest::prelude::*;
use sheen_layout::{Asked, MIRRORS_MAX, Mark, codec::COMPONENTS_MAX};

use super::*;
use crate::layout::{EOF, Move};

mod agreement;
#[path = "../../../layout/src/codec/fixtures.rs"]
#[allow(dead_code, reason = "other tests use the other layouts")]
mod captured;

use captured::{DOM, MIRRORED, OVERSTRIPED, PFL, POOLED, SEL, bytes};

fn read(hex: &str) -> Layout {
    decode(&bytes(hex), true).unwrap()
}

#[test]
fn decode_reads_layouts_of_real_lustre_files() {
    let over = read(OVERSTRIPED);
    let c = over.current();
    assert_eq!((c.pattern, c.stripe_size, c.stripe_count, c.start_ost), (OVERSTRIPING, 4 << 20, 8, 2));
    assert_eq!((c.osts.as_slice(), c.ost(7), c.ost(8)), (&[2, 3, 0, 1, 2, 3, 0, 1][..], Ok(1), Err(Errno::EINVAL)));

    let pfl = read(PFL);
    assert_eq!((pfl.composite, pfl.generation, pfl.mirror_count, pfl.components().len()), (true, 4, 1, 3));
    let extents: Vec<(u64, u64)> = pfl.components().iter().map(|c| (c.start, c.end)).collect();
    assert_eq!(extents, [(0, 1 << 20), (1 << 20, 4 << 30), (4 << 30, EOF)]);
    let [.., second, last] = pfl.components() else { panic!("three components") };
    assert_eq!((second.id, second.flags, &second.osts[..]), (2, flags::INIT, &[2, 3, 1, 0][..]));
    assert_eq!((last.stripe_count, last.start_ost, last.osts.len()), (WIDE, DEFAULT, 0));

    let dom = read(DOM);
    assert_eq!((dom.current().pattern, dom.current().end, dom.current().stripe_count), (MDT, 65536, DEFAULT));
    let sel = read(SEL);
    assert_eq!((sel.components()[2].is_extension(), sel.components()[2].stripe_size), (true, 128 << 20));
    let mirrored = read(MIRRORED);
    let ids: Vec<u32> = mirrored.components().iter().map(Component::mirror_id).collect();
    assert_eq!((mirrored.mirror_count, ids, mirrored.flags), (2, vec![1, 1, 2, 2], 1));
    let pooled = read(POOLED);
    assert_eq!((pooled.current().pool.as_slice(), pooled.current().ost(0)), (&b"p1"[..], Ok(0)));
}

#[test]
fn encoded_requests_match_real_lustre_files() {
    for hex in [OVERSTRIPED, PFL, DOM, SEL, MIRRORED, POOLED] {
        let mut layout = read(hex).as_request();
        layout.components_mut().iter_mut().for_each(Component::reset_osts);
        let again = decode(&encode(&layout).unwrap(), false).unwrap();
        assert_eq!(again, layout);
        // The file system gives it the same sizes, counts and pools.
        let first = decode(&bytes(hex), true).unwrap();
        for (a, b) in again.components().iter().zip(first.components()) {
            assert_eq!(
                (a.stripe_size, a.stripe_count, &a.pool, a.end),
                (b.stripe_size, b.stripe_count, &b.pool, b.end)
            );
        }
    }
}

#[test]
fn encode_uses_the_sel_magic_for_extension_space() {
    assert_eq!(encode(&read(SEL)).unwrap()[..4], (Magic::Sel as u32).to_le_bytes());
    assert_eq!(encode(&read(PFL)).unwrap()[..4], (Magic::CompV1 as u32).to_le_bytes());
}

#[test]
fn decode_refuses_invalid_layouts() {
    let plain = bytes(OVERSTRIPED);
    assert_eq!(decode(b"", false), Err(Errno::ERANGE));
    assert_eq!(decode(&plain[..31], false), Err(Errno::ERANGE));
    assert_eq!(decode(b"0123456789abcdef0123456789abcdef", false), Err(Errno::ERANGE));
    assert_eq!(decode(&[&(Magic::Foreign as u32).to_le_bytes()[..], &[0; 28]].concat(), false), Err(Errno::EOPNOTSUPP));
    assert_eq!(decode(&plain[..plain.len() - 24], true), Err(EBADSLT), "an object is missing");
    assert!(decode(&plain[..plain.len() - 24], false).is_ok());
    let pfl = bytes(PFL);
    let with = |at: usize, byte: u8| {
        let mut bad = pfl.clone();
        bad[at] = byte;
        decode(&bad, true)
    };
    assert_eq!(with(14, 0), Err(Errno::EINVAL), "no components");
    assert!(with(14, 200).is_err(), "more than there are");
    assert_eq!(with(32 + 27, 0xff), Err(Errno::EINVAL), "one lies outside");
    assert_eq!(with(32 + 4, 0), Err(EBADSLT), "objects before they are");
    assert_eq!(with(176, 0xd1), Err(Errno::ERANGE), "one of no kind");
    let mut nested = pfl.clone();
    nested[176 + 2] = 0xd6;
    assert_eq!(decode(&nested, false), Err(Errno::EINVAL));
    let mut name = bytes(POOLED);
    name[32..48].fill(b'x');
    assert_eq!(decode(&name, false), Err(Errno::EINVAL), "a pool's name without end");
}

#[test]
fn encode_refuses_ost_lists_with_gaps() {
    let mut layout = Layout::default();
    let c = layout.current_mut();
    c.set_ost(0, 3).unwrap();
    c.set_ost(2, 1).unwrap();
    assert_eq!(encode(&layout), Err(Errno::EINVAL), "the second is missing");
    layout.current_mut().set_ost(1, 3).unwrap();
    let value = encode(&layout).unwrap();
    assert_eq!((value.len(), &value[..4]), (48 + 3 * 24, &(Magic::Specific as u32).to_le_bytes()[..]));
    let again = decode(&value, false).unwrap();
    assert_eq!((again.current().specific, again.current().osts.as_slice()), (true, &[3, 3, 1][..]));
    layout.current_mut().set_stripe_count(2).unwrap();
    assert_eq!(encode(&layout), Err(Errno::EINVAL), "a count of its own");
    // A first OST that no field holds.
    let mut far = Layout::default();
    far.current_mut().set_ost(0, 70_000).unwrap();
    assert_eq!(encode(&far), Err(Errno::EINVAL));
}

#[test]
fn encode_refuses_layouts_above_the_xattr_limit() {
    let mut layout = Layout::default();
    layout.set_extent(0, 1 << 16).unwrap();
    for n in 1..COMPONENTS_MAX as u64 {
        layout.add().unwrap();
        layout.set_extent(n << 16, (n + 1) << 16).unwrap();
    }
    assert!(encode(&layout).is_ok_and(|bytes| bytes.len() <= LAYOUT_BYTES_MAX));
    assert_eq!(layout.add(), Err(Errno::E2BIG));
    layout.current_mut().set_pool(b"pool").unwrap();
    layout.components_mut().iter_mut().for_each(|c| c.pool = b"pool".to_vec());
    assert_eq!(encode(&layout), Err(Errno::E2BIG));
}

#[test]
fn length_reads_the_size_from_the_header() {
    let ask = |bytes: &[u8]| length(&bytes[..32]);
    assert_eq!(ask(&bytes(PFL)), Ok(392));
    assert_eq!((ask(&bytes(OVERSTRIPED)), ask(&bytes(POOLED))), (Ok(32), Ok(48)));
    let mut list = Layout::default();
    list.current_mut().set_ost(0, 1).unwrap();
    list.current_mut().set_ost(1, 0).unwrap();
    let list = encode(&list).unwrap();
    assert_eq!(ask(&list), Ok(list.len()));
    let mut long = bytes(PFL);
    long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(ask(&long), Err(Errno::EINVAL));
}

#[test]
fn encode_selection_contains_ids_and_flags() {
    let value = encode_selection(&[(3, 0), (0, flags::INIT)]);
    assert_eq!((value.len(), value[14], value[32], value[84]), (32 + 96, 2, 3, 0x10));
}

/// The file system decodes an encoded request with the same meaning.
#[test]
fn encoded_requests_are_decoded_by_the_file_system() {
    let mut layout = Layout::default();
    layout.current_mut().set_pattern(MDT).unwrap();
    layout.set_extent(0, 64 << 10).unwrap();
    layout.add().unwrap();
    layout.set_extent(64 << 10, 64 << 20).unwrap();
    layout.current_mut().set_stripe_count(4).unwrap();
    layout.current_mut().set_pool(b"flash").unwrap();
    layout.add().unwrap();
    layout.current_mut().flags = flags::EXTENSION;
    layout.current_mut().set_extension_size(128 << 20).unwrap();
    assert_eq!(crate::sanity::check(&layout, false, false), Ok(()));
    let asked = Asked::decode(&encode(&layout.as_request()).unwrap()).unwrap();
    let template = asked.composite().unwrap();
    let found: Vec<_> = template.components.iter().map(|c| (c.start, c.end, c.is_on_mdt(), c.extension_size)).collect();
    assert_eq!(
        found,
        [(0, 64 << 10, true, None), (64 << 10, 64 << 20, false, None), (64 << 20, EOF, false, Some(128 << 20))]
    );
    assert_eq!(template.components[1].spec.pool.as_ref().map(|p| p.as_str()), Some("flash"));

    let marks = Mark::decode(&encode_selection(&[(3, 0), (0, flags::INIT | flags::NEGATIVE)])).unwrap();
    let found: Vec<_> = marks.iter().map(|m| (m.id, m.flags, m.negative)).collect();
    assert_eq!(found, [(3, 0, false), (0, flags::INIT, true)]);
}

fn component() -> impl Strategy<Value = Component> {
    let size = prop_oneof![Just(DEFAULT), (1u64..65536).prop_map(|n| n << 16)];
    let count = prop_oneof![Just(DEFAULT), 1u64..=2000, (WIDE..=WIDE_MAX)];
    let osts = prop_oneof![Just(vec![]), proptest::collection::vec(0u64..65535, 1..20)];
    let pattern = prop_oneof![Just(RAID0), Just(OVERSTRIPING), Just(MDT)];
    (pattern, size, count, osts, "[a-z0-9_-]{0,15}", 1u64..1000).prop_map(|(pattern, size, count, osts, pool, end)| {
        let mut c = Component { pattern, end: end << 16, ..Component::default() };
        c.set_pool(pool.as_bytes()).unwrap();
        if pattern == MDT {
            return Component { stripe_size: c.end, ..c };
        }
        c.set_stripe_size(size).unwrap();
        for (i, ost) in osts.iter().enumerate() {
            c.set_ost(i, *ost).unwrap();
        }
        c.set_stripe_count(if c.specific { osts.len() as u64 } else { count }).unwrap();
        if !c.specific {
            // Only the first OST is requested.
            c.osts.clear();
        }
        c
    })
}

proptest! {
    #[test]
    fn encode_and_decode_round_trip(
        components in proptest::collection::vec(component(), 1..12),
        plain in any::<bool>(),
        mirrors in 1..=MIRRORS_MAX,
    ) {
        let mut layout = Layout::composite(components).unwrap();
        if plain {
            let mut c = layout.current().clone();
            c.end = EOF;
            if c.pattern == MDT {
                c = Component::default();
                c.pattern = RAID0;
            }
            layout = Layout::plain(c);
        } else {
            layout.mirror_count = mirrors;
        }
        let value = encode(&layout).unwrap();
        let again = decode(&value, false).unwrap();
        prop_assert_eq!(&again, &layout);
        prop_assert_eq!(encode(&again).unwrap(), value);
    }

    #[test]
    fn decode_survives_damaged_bytes(hex in prop_oneof![Just(PFL), Just(SEL), Just(POOLED)], at in 0usize..392, byte: u8, cut in 0usize..400) {
        let mut value = bytes(hex);
        let n = value.len();
        value[at % n] = byte;
        value.truncate(cut);
        for check in [false, true] {
            if let Ok(mut layout) = decode(&value, check) {
                prop_assert!(layout.go(Move::Last) || layout.components().len() == 1);
                let _ = encode(&layout.as_request());
                let _ = crate::sanity::check(&layout, false, true);
            }
        }
    }
}
