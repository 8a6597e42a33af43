//! The mapping, compared with a model that distributes stripe units one by one.

use std::ops::Range;

use proptest::prelude::*;
use sheen_wire::ost::OBJECT_SIZE_MAX;

use super::*;
use crate::{Component, Composite, Count, Pattern, STRIPE_SIZE_UNIT, flags, index::FEW};

fn layout(stripe_size: u32, count: usize) -> Layout {
    let stripes = (0..count).map(|i| Stripe { object: Fid::new(9, i as u32 + 1), ost: i as u32 % 4 }).collect();
    Layout::new(Fid::new(1, 1), stripe_size, None, stripes).unwrap()
}

/// A simulation of RAID0: stripe units are dealt to the objects one by one. Records the location of
/// each unit and the objects' sizes.
struct Model {
    dealt: Vec<(usize, u64)>,
    sizes: Vec<u64>,
    unit: u64,
}

impl Model {
    fn deal(unit: u64, count: usize, file_size: u64) -> Model {
        let mut model = Model { dealt: Vec::new(), sizes: vec![0; count], unit };
        let (mut left, mut turn) = (file_size, 0);
        while left > 0 {
            let card = left.min(unit);
            model.dealt.push((turn, model.sizes[turn]));
            model.sizes[turn] += card;
            left -= card;
            turn = if turn + 1 == count { 0 } else { turn + 1 };
        }
        model
    }

    fn place(&self, byte: u64) -> (usize, u64) {
        let (stripe, start) = self.dealt[(byte / self.unit) as usize];
        (stripe, start + byte % self.unit)
    }
}

/// Generates stripe sizes, counts and file sizes near the boundaries of units and rows.
fn cases() -> impl Strategy<Value = (u32, usize, u64)> {
    (1..4_u32, prop_oneof![1..6_usize, 1990..=2000_usize], 0..40_u64, -2..=2_i64).prop_map(|(k, count, units, off)| {
        let size = k * 65536;
        (size, count, (units as i64 * i64::from(size) + off).max(0) as u64)
    })
}

proptest! {
    #[test]
    fn map_of_plain_layout_matches_the_model((size, count, file_size) in cases(), from in any::<prop::sample::Index>()) {
        let layout = layout(size, count);
        let model = Model::deal(u64::from(size), count, file_size);
        let offset = if file_size == 0 { 0 } else { from.index(file_size as usize) as u64 };
        let mut next = offset;
        for chunk in layout.map(offset, file_size - offset) {
            prop_assert_eq!(chunk.file_offset, next, "in order, without gap or overlap");
            prop_assert!(chunk.len > 0);
            next += chunk.len;
            prop_assert_eq!((chunk.stripe, chunk.object_offset), model.place(chunk.file_offset));
            prop_assert_eq!((chunk.stripe, chunk.object_offset + chunk.len - 1), model.place(next - 1));
            prop_assert_eq!(layout.file_offset(chunk.stripe, chunk.object_offset), chunk.file_offset);
            prop_assert!(count == 1 || chunk.len <= u64::from(size));
        }
        prop_assert_eq!(next, file_size);
    }

    #[test]
    fn object_and_file_sizes_match_the_model((size, count, file_size) in cases()) {
        let layout = layout(size, count);
        let model = Model::deal(u64::from(size), count, file_size);
        let sizes: Vec<u64> = (0..count).map(|s| layout.object_size(file_size, s)).collect();
        prop_assert_eq!(&sizes, &model.sizes);
        let from_objects = sizes.iter().enumerate().map(|(s, n)| layout.file_size(s, *n)).max();
        prop_assert_eq!(from_objects, Some(file_size), "the objects' sizes determine the file's size");
    }

    #[test]
    fn max_file_size_overfills_no_object(units in 1..65536_u32, count in 1..=2000_usize) {
        let layout = layout(units * 65536, count);
        let max = layout.max_file_size();
        let largest = |size| (0..count).map(|s| layout.object_size(size, s)).max().unwrap();
        prop_assert!(max <= FILE_SIZE_MAX && largest(max) <= OBJECT_SIZE_MAX);
        prop_assert!(max == FILE_SIZE_MAX || largest(max + 1) > OBJECT_SIZE_MAX, "the limit is not one byte too small");
    }
}

#[test]
fn map_and_sizes_respect_the_largest_file_and_object() {
    let one = layout(4 << 20, 1);
    assert_eq!(one.max_file_size(), (16 << 40) - 4096, "Lustre's largest object");
    assert_eq!(
        one.map(5, 1 << 30).collect::<Vec<_>>(),
        [Chunk { stripe: 0, object_offset: 5, file_offset: 5, len: 1 << 30 }]
    );
    let wide = layout(65536, 2000);
    assert_eq!(wide.max_file_size() / (16 << 40), 1999);
    assert_eq!(layout(crate::STRIPE_SIZE_MAX, 2000).file_offset(1999, u64::MAX), FILE_SIZE_MAX);
    assert_eq!(wide.map(FILE_SIZE_MAX - 1, u64::MAX).map(|c| c.len).sum::<u64>(), 1);
    assert_eq!(wide.map(u64::MAX, 7).count(), 0);
    assert_eq!(wide.map(3, 0).count(), 0);
    assert_eq!(wide.object_size(1 << 40, 2000), 0, "no such stripe");
}

/// A component to build: stripe size and length in units of 64 KiB, and the number of objects (0:
/// none yet).
#[derive(Clone, Copy, Debug)]
struct Part {
    unit: u64,
    len: u64,
    count: usize,
}

const PART: Part = Part { unit: 1, len: 1, count: 1 };
const UNIT: u64 = STRIPE_SIZE_UNIT as u64;

/// Builds a layout whose first part, which must have one object, is a Data-on-MDT component of one
/// stripe.
fn begun_on_mdt(parts: &[Part], endless: bool) -> Layout {
    let layout = composite(parts, endless);
    let mut components = layout.components().to_vec();
    let first = &mut components[0];
    let stripes = std::mem::take(&mut first.stripes);
    assert_eq!(stripes.len(), 1);
    // The stripe count field does not matter.
    (first.pattern, first.stripe_count, first.fid) = (Pattern::MDT, 0, stripes[0].object);
    Layout::assemble(layout.composite().cloned(), components)
}

fn composite(parts: &[Part], endless: bool) -> Layout {
    let (mut start, mut objects) = (0, 0);
    let component = |(i, part): (usize, &Part)| {
        let end = if endless && i + 1 == parts.len() { u64::MAX } else { start + part.len * UNIT };
        let stripes =
            (0..part.count).map(|n| Stripe { object: Fid::new(9, (objects + n) as u32 + 1), ost: n as u32 % 3 });
        let c = Component {
            id: i as u32 + 1,
            flags: if part.count > 0 { flags::INIT } else { 0 },
            start,
            end,
            pattern: if part.count > 3 { Pattern::RAID0_OVERSTRIPED } else { Pattern::RAID0 },
            stripe_size: (part.unit * UNIT) as u32,
            stripe_count: part.count.max(1) as u16,
            stripes: stripes.collect(),
            ..Component::whole_file()
        };
        (start, objects) = (end, objects + part.count);
        c
    };
    let components = parts.iter().enumerate().map(component).collect();
    let header = Composite { layout_gen: parts.len() as u32, flags: 0, mirror_count: 1, rest: [0; 14] };
    Layout::assemble(Some(header), components)
}

/// Every component dealt from the beginning of the file to its end. Bytes outside the component's
/// extent are then ignored.
struct Parts {
    /// For each component: its extent, its first stripe, and its model.
    dealt: Vec<(u64, u64, usize, Model)>,
}

impl Parts {
    fn deal(layout: &Layout) -> Parts {
        let mut first = 0;
        let dealt = layout.components().iter().map(|c| {
            let count = c.stripes.len();
            let upto = if count > 0 { MODEL_MAX + UNIT } else { 0 };
            let model = Model::deal(u64::from(c.stripe_size), count, upto);
            first += count;
            (c.start, c.end, first - count, model)
        });
        Parts { dealt: dealt.collect() }
    }

    /// Returns the position of the stripe among all stripes, and the offset in its object.
    fn place(&self, byte: u64) -> Option<(usize, u64)> {
        let (.., first, model) = self.dealt.iter().find(|(start, end, ..)| (*start..*end).contains(&byte))?;
        if model.sizes.is_empty() {
            return None;
        }
        let (stripe, offset) = model.place(byte);
        Some((first + stripe, offset))
    }

    /// Returns the sizes of all objects in a file of this size without holes: one past the last
    /// byte in each.
    fn sizes(&self, file_size: u64) -> Vec<u64> {
        let mut sizes = Vec::new();
        for (start, end, first, model) in &self.dealt {
            sizes.resize(first + model.sizes.len(), 0);
            let end = file_size.min(*end);
            for (i, (stripe, offset)) in model.dealt.iter().enumerate() {
                let card = i as u64 * model.unit;
                let last = end.min(card + model.unit);
                if last > card.max(*start) {
                    sizes[first + stripe] = offset + last - card;
                }
            }
        }
        sizes
    }
}

prop_compose! {
    fn parts()(parts in prop::collection::vec((1..5_u64, 1..12_u64, 0..6_usize), 1..13)) -> Vec<Part> {
        parts.into_iter().map(|(unit, len, count)| Part { unit, len, count }).collect()
    }
}

/// Generates an offset near a boundary of stripe units, or anywhere.
fn edges(upto: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        0..=upto,
        (0..=upto / UNIT, -1..=1_i64).prop_map(move |(n, off)| (n * UNIT).saturating_add_signed(off).min(upto)),
    ]
}

/// Maximum size of a file in these tests.
const MODEL_MAX: u64 = 160 * UNIT;

proptest! {
    #[test]
    fn map_of_composite_layout_matches_the_model(
        parts in parts(), endless in any::<bool>(), from in edges(MODEL_MAX), to in edges(MODEL_MAX),
    ) {
        let layout = composite(&parts, endless);
        prop_assert_eq!(layout.check_usable(), Ok(()));
        let model = Parts::deal(&layout);
        let (from, to) = (from.min(to), from.max(to));
        let mut next = from;
        let is_hole = |range: Range<u64>| {
            let last = (range.start < range.end).then(|| range.end - 1);
            range.step_by(UNIT as usize / 2).chain(last).all(|byte| model.place(byte).is_none())
        };
        for chunk in layout.map(from, to - from) {
            prop_assert!(chunk.len > 0 && chunk.file_offset >= next, "in order, without overlap");
            prop_assert!(is_hole(next..chunk.file_offset), "only bytes without objects are skipped");
            next = chunk.file_offset + chunk.len;
            for byte in [chunk.file_offset, chunk.file_offset + chunk.len / 2, next - 1] {
                let offset = chunk.object_offset + byte - chunk.file_offset;
                prop_assert_eq!(model.place(byte), Some((chunk.stripe, offset)));
                prop_assert_eq!(layout.file_offset(chunk.stripe, offset), byte);
                prop_assert_eq!(layout.object_offset(byte, chunk.stripe), offset);
            }
        }
        prop_assert!(next <= to && is_hole(next..to));
    }

    #[test]
    fn locate_agrees_with_map_and_the_model(parts in parts(), endless in any::<bool>(), byte in edges(MODEL_MAX)) {
        let layout = composite(&parts, endless);
        let place = layout.locate(byte);
        let chunk = layout.map(byte, 1).next();
        prop_assert_eq!(place.map(|p| (p.stripe, p.offset)), chunk.map(|c| (c.stripe, c.object_offset)));
        prop_assert_eq!(place.map(|p| (p.stripe, p.offset)), Parts::deal(&layout).place(byte));
        if let Some(place) = place {
            let stripe = layout.stripes()[place.stripe];
            prop_assert_eq!((place.object, place.ost), (stripe.object, stripe.ost));
            let c = &layout.components()[place.component];
            prop_assert!((c.start..c.end).contains(&byte) && c.stripes.contains(&stripe));
            prop_assert_eq!(layout.component_of(place.stripe), Some(place.component));
        }
    }

    #[test]
    fn missing_returns_the_first_extent_without_objects(
        parts in parts(), endless in any::<bool>(), from in edges(MODEL_MAX), to in edges(MODEL_MAX),
    ) {
        let layout = composite(&parts, endless);
        let (from, to) = (from.min(to), from.max(to));
        let first = layout.components().iter().find(|c| c.stripes.is_empty() && !c.is_outside(from, to));
        prop_assert_eq!(layout.missing(from, to - from), first.map(|c| (c.start, c.end)));
        let all = layout.wanting(from, to - from);
        prop_assert_eq!(all.first().map(|i| layout.components()[*i].start), first.map(|c| c.start));
    }

    #[test]
    fn composite_object_sizes_match_the_model(parts in parts(), endless in any::<bool>(), size in edges(MODEL_MAX)) {
        let layout = composite(&parts, endless);
        let model = Parts::deal(&layout);
        let sizes: Vec<u64> = (0..layout.stripe_count()).map(|s| layout.object_size(size, s)).collect();
        prop_assert_eq!(&sizes, &model.sizes(size));
        // If the file's last byte has an object, the sizes of the objects determine the file's
        // size.
        let found = sizes.iter().enumerate().map(|(s, n)| layout.file_size(s, *n)).max().unwrap_or(0);
        match size.checked_sub(1).and_then(|last| model.place(last)) {
            Some(_) => prop_assert_eq!(found, size),
            None => prop_assert!(found < size || size == 0),
        }
    }

    #[test]
    fn dom_component_maps_like_one_object(
        mut parts in parts(), endless in any::<bool>(), from in edges(MODEL_MAX), to in edges(MODEL_MAX),
    ) {
        parts[0].count = 1;
        let (on_mdt, on_ost) = (begun_on_mdt(&parts, endless), composite(&parts, endless));
        prop_assert_eq!(on_mdt.check_usable(), Ok(()));
        let (from, to) = (from.min(to), from.max(to));
        prop_assert_eq!(
            on_mdt.map(from, to - from).collect::<Vec<_>>(),
            on_ost.map(from, to - from).collect::<Vec<_>>()
        );
        prop_assert_eq!(on_mdt.missing(from, to - from), on_ost.missing(from, to - from));
        prop_assert_eq!((on_mdt.mdt_end(), on_ost.mdt_end()), (on_ost.components()[0].end, 0));
        prop_assert_eq!(on_mdt.stripe_count(), on_ost.stripe_count());
        for (stripe, (mine, theirs)) in on_mdt.stripes().iter().zip(on_ost.stripes()).enumerate() {
            let there = match stripe {
                0 => (Fid { ver: on_mdt.components()[0].entry_gen + 1, ..on_mdt.fid() }, crate::MDT_OST),
                _ => (theirs.object, theirs.ost),
            };
            prop_assert_eq!((mine.object, mine.ost), there);
            prop_assert_eq!(on_mdt.component_of(stripe), on_ost.component_of(stripe));
            for size in [from, to] {
                prop_assert_eq!(on_mdt.object_size(size, stripe), on_ost.object_size(size, stripe));
                prop_assert_eq!(on_mdt.file_size(stripe, size), on_ost.file_size(stripe, size));
                prop_assert_eq!(on_mdt.object_offset(size, stripe), on_ost.object_offset(size, stripe));
                prop_assert_eq!(on_mdt.file_offset(stripe, size), on_ost.file_offset(stripe, size));
            }
        }
    }
}

#[test]
fn map_returns_one_chunk_for_a_component_of_one_stripe() {
    let parts =
        [Part { unit: 1, len: 4, count: 1 }, Part { unit: 2, len: 4, count: 2 }, Part { unit: 1, len: 2, count: 0 }];
    let layout = composite(&parts, false);
    let chunk = |stripe, object, file, len| Chunk {
        stripe,
        object_offset: object * UNIT,
        file_offset: file * UNIT,
        len: len * UNIT,
    };
    let chunks: Vec<Chunk> = layout.map(UNIT, 20 * UNIT).collect();
    assert_eq!(chunks, [chunk(0, 1, 1, 3), chunk(1, 2, 4, 2), chunk(2, 2, 6, 2)]);
    assert_eq!(layout.missing(0, 8 * UNIT), None);
    assert_eq!(layout.missing(0, 8 * UNIT + 1), Some((8 * UNIT, 10 * UNIT)));
    assert_eq!(layout.missing(10 * UNIT, 1), None, "ranges past the end cannot get objects");
    assert_eq!((layout.end(), layout.max_file_size()), (10 * UNIT, 10 * UNIT));
}

proptest! {
    #[test]
    fn object_chunks_are_the_bytes_of_the_file_in_the_object(
        parts in parts(), endless in any::<bool>(), from in edges(MODEL_MAX), len in edges(MODEL_MAX),
    ) {
        let layout = composite(&parts, endless);
        let bytes = |chunk: Chunk| (chunk.object_offset, chunk.file_offset, chunk.len);
        for stripe in 0..layout.stripe_count() {
            let all = layout.map(0, 16 * MODEL_MAX).filter(|chunk| chunk.stripe == stripe);
            let cut = |chunk: Chunk| {
                let start = chunk.object_offset.max(from);
                let end = (chunk.object_offset + chunk.len).min(from + len);
                let file_offset = chunk.file_offset + (start - chunk.object_offset);
                (start < end).then(|| (start, file_offset, end - start))
            };
            let expected: Vec<(u64, u64, u64)> = all.filter_map(cut).collect();
            let chunks: Vec<(u64, u64, u64)> = layout.object_chunks(stripe, from, len).map(bytes).collect();
            prop_assert_eq!(chunks, expected);
        }
    }
}

#[test]
fn locate_finds_bytes_among_many_components() {
    let layout = composite(&[Part { unit: 1, len: 2, count: 1 }; 3 * FEW], false);
    for byte in 0..6 * FEW as u64 {
        let at = layout.locate(byte * UNIT).map(|p| (p.component, p.stripe, p.offset));
        assert_eq!(at, Some((byte as usize / 2, byte as usize / 2, byte * UNIT)));
    }
    assert_eq!(layout.locate(layout.end()), None);
}

#[test]
fn object_size_ignores_bytes_outside_the_component() {
    // Rows are counted from the beginning of the file: the first unit of stripe 2 in the second
    // component is in row 1.
    let layout = composite(&[Part { unit: 1, len: 5, count: 1 }, Part { unit: 1, len: 9, count: 3 }], true);
    assert_eq!(layout.object_size(u64::MAX, 0), 5 * UNIT, "the component lies wholly before the size");
    assert_eq!((1..4).map(|s| layout.object_size(5 * UNIT, s)).collect::<Vec<_>>(), [0, 0, 0], "wholly past the size");
    // The byte at 5 units is in stripe 2, row 1.
    assert_eq!((1..4).map(|s| layout.object_size(5 * UNIT + 1, s)).collect::<Vec<_>>(), [0, 0, UNIT + 1]);
    assert_eq!(layout.file_size(3, UNIT + 1), 5 * UNIT + 1);
    assert_eq!(layout.file_size(3, UNIT), 0, "a hole before its component");
    assert_eq!(layout.file_size(0, 7 * UNIT), 5 * UNIT, "the object is longer than its component");
    assert_eq!(layout.object_offset(0, 3), UNIT);
    assert_eq!(layout.file_offset(3, 0), 5 * UNIT);
}

#[test]
fn object_ends_follow_the_ends_of_components() {
    let parts = [Part { unit: 1, len: 5, count: 1 }, Part { unit: 1, len: 9, count: 3 }, Part { count: 0, ..PART }];
    let layout = composite(&parts, false);
    let ends: Vec<(Stripe, u64)> = layout.object_ends().collect();
    let stripes: Vec<Stripe> = ends.iter().map(|(stripe, _)| *stripe).collect();
    assert_eq!(stripes, layout.all_objects().collect::<Vec<_>>());
    // The second component ends after 14 units, of which stripe 2 has the units 2, 5, 8 and 11.
    assert_eq!(ends.iter().map(|(_, end)| end / UNIT).collect::<Vec<_>>(), [5, 5, 5, 4]);
    let endless = composite(&parts[..2], true);
    assert!(endless.object_ends().skip(1).all(|(_, end)| end > OBJECT_SIZE_MAX));
    let on_mdt = begun_on_mdt(&parts, false);
    assert_eq!(on_mdt.object_ends().next(), Some((on_mdt.stripes()[0], 5 * UNIT)));
}

#[test]
fn max_file_size_of_composite_layouts_respects_object_limits() {
    let tib = (1_u64 << 40) / UNIT;
    let wide = Part { unit: 64, len: 1, count: 4 };
    let layout = composite(&[Part { unit: 16, len: 20 * tib, count: 1 }, wide], true);
    assert_eq!(layout.max_file_size(), (16 << 40) - 4096, "the first component's object is full before it ends");
    let layout = composite(&[Part { unit: 16, len: 16, count: 1 }, wide], true);
    assert_eq!(layout.max_file_size(), (64 << 40) - 3 * (4 << 20) - 4096);
    let mut unknown = layout.components().to_vec();
    (unknown[1].flags, unknown[1].stripe_count) = (0, Count::All.to_raw());
    unknown[1].stripes.clear();
    let unknown = Layout::assemble(layout.composite().cloned(), unknown);
    assert_eq!(unknown.max_file_size() >> 40, 31999, "limit with the maximum number of objects");
}
