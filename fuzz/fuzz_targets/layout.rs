//! `lustre.lov` as anybody may set it: layouts and wishes for layouts. The first byte chooses the magic, which chance would not
//! find.
#![no_main]

use sheen_layout::{Layout, Spec};

const MAGICS: [u32; 6] = [0x0BD1_0BD0, 0x0BD3_0BD0, 0x0BD5_0BD0, 0x0BD6_0BD0, 0x0BD7_0BD0, 0x0BD8_0BD0];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    let mut bytes = rest.to_vec();
    if let (Some(magic), Some(head)) = (MAGICS.get(usize::from(*which)), bytes.first_chunk_mut::<4>()) {
        *head = magic.to_le_bytes();
    }
    if let Ok(layout) = Layout::decode(&bytes) {
        let once = layout.encode();
        let again = Layout::decode(&once).expect("what was encoded decodes");
        assert_eq!(again.encode(), once);
        if layout.check_usable().is_ok() {
            let _ = layout.map(u64::MAX / 2, 1 << 20).take(100).count();
            let _ = layout.max_file_size();
        }
    }
    if let Ok(spec) = Spec::decode(&bytes) {
        let _ = spec.check();
    }
});
