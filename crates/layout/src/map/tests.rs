//! The mapping, against a model that deals bytes one by one.

use proptest::prelude::*;
use sheen_wire::Fid;

use super::*;
use crate::Stripe;

fn layout(stripe_size: u32, count: usize) -> Layout {
    let stripes = (0..count).map(|i| Stripe { object: Fid::new(9, i as u32 + 1), ost: i as u32 % 4 }).collect();
    Layout::new(Fid::new(1, 1), stripe_size, None, stripes).unwrap()
}

/// RAID0 played out: units are dealt to the objects like cards. Where each byte asked for went, and the objects' sizes.
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

/// Stripe sizes, counts and file sizes that meet at the edges of units and rows.
fn cases() -> impl Strategy<Value = (u32, usize, u64)> {
    (1..4_u32, prop_oneof![1..6_usize, 1990..=2000_usize], 0..40_u64, -2..=2_i64).prop_map(|(k, count, units, off)| {
        let size = k * 65536;
        (size, count, (units as i64 * i64::from(size) + off).max(0) as u64)
    })
}

proptest! {
    #[test]
    fn every_byte_is_where_the_model_dealt_it((size, count, file_size) in cases(), from in any::<prop::sample::Index>()) {
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
    fn sizes_agree_with_the_model((size, count, file_size) in cases()) {
        let layout = layout(size, count);
        let model = Model::deal(u64::from(size), count, file_size);
        let sizes: Vec<u64> = (0..count).map(|s| layout.object_size(file_size, s)).collect();
        prop_assert_eq!(&sizes, &model.sizes);
        let from_objects = sizes.iter().enumerate().map(|(s, n)| layout.file_size(s, *n)).max();
        prop_assert_eq!(from_objects, Some(file_size), "the objects' sizes tell the file's");
    }

    #[test]
    fn no_file_overfills_an_object(units in 1..65536_u32, count in 1..=2000_usize) {
        let layout = layout(units * 65536, count);
        let max = layout.max_file_size();
        let largest = |size| (0..count).map(|s| layout.object_size(size, s)).max().unwrap();
        prop_assert!(max <= FILE_SIZE_MAX && largest(max) <= OBJECT_SIZE_MAX);
        prop_assert!(max == FILE_SIZE_MAX || largest(max + 1) > OBJECT_SIZE_MAX, "not one byte is given away");
    }
}

#[test]
fn extremes() {
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
