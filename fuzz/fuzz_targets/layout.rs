//! `lustre.lov` as any user may set it: layouts, requests for layouts, and changes to them. The
//! first byte selects the magic, which random bytes would not hit.
#![no_main]

use sheen_layout::{Asked, Defaults, Layout, Mark, Spec, Template, resolve_asked};

const MAGICS: [u32; 6] = [0x0BD1_0BD0, 0x0BD3_0BD0, 0x0BD5_0BD0, 0x0BD6_0BD0, 0x0BD7_0BD0, 0x0BD8_0BD0];

fn whole(layout: &Layout) {
    let once = layout.encode();
    assert_eq!(once.len(), layout.encoded_len());
    let again = Layout::decode(&once).expect("what was encoded decodes");
    assert_eq!(again.encode(), once);
}

fn used(layout: &Layout) {
    let stripes = layout.stripes().len();
    assert!(layout.map(u64::MAX / 2, 1 << 20).chain(layout.map(0, u64::MAX)).take(100).all(|c| c.stripe < stripes));
    for offset in [0, 1 << 20, 1 << 40, u64::MAX / 2, u64::MAX] {
        assert!(
            layout
                .locate(offset)
                .is_none_or(|p| p.stripe < stripes && layout.file_offset(p.stripe, p.offset) == offset)
        );
        let _ = (layout.missing(offset, 1 << 20), layout.wanting(offset, 1 << 20).len());
        for stripe in 0..stripes.min(3) {
            let size = layout.object_size(offset, stripe);
            assert!(layout.file_size(stripe, size) <= offset);
        }
    }
    let _ = layout.max_file_size();
}

fn changed(layout: &Layout, marks: &[Mark]) {
    for mark in marks.iter().take(3) {
        if let Ok((Some(less), _)) = layout.without_components(mark) {
            whole(&less);
        }
    }
    if let Ok(flagged) = layout.with_flags(marks) {
        whole(&flagged);
    }
    if let Ok(Some(grown)) = layout.grow(1 << 20, 1 << 40, |c, bytes| (u64::from(c.id) ^ bytes) % 3 == 0) {
        whole(&grown);
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    let mut bytes = rest.to_vec();
    if let (Some(magic), Some(head)) = (MAGICS.get(usize::from(*which)), bytes.first_chunk_mut::<4>()) {
        *head = magic.to_le_bytes();
    }
    let marks = Mark::decode(&bytes).unwrap_or_default();
    if let Ok(layout) = Layout::decode(&bytes) {
        whole(&layout);
        used(&layout);
        for mirror in layout.mirror_ids() {
            layout.mirror(mirror).iter().for_each(used);
        }
        changed(&layout, &marks);
    }
    if let Ok(spec) = Spec::decode(&bytes) {
        spec.check().expect("what was decoded is fine");
    }
    let _ = Template::decode_added(&bytes, 1 << 20);
    if let Ok(asked) = Asked::decode(&bytes) {
        asked.check().expect("what was decoded is fine");
        assert_eq!(Asked::decode(&asked.encode()).as_ref(), Ok(&asked));
        let _ = resolve_asked(&asked, None, None, &Defaults::default(), 1 << 20).all().len();
    }
});
