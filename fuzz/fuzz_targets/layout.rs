//! `lustre.lov` as anybody may set it: layouts and wishes for layouts.
#![no_main]

use sheen_layout::{Layout, Spec};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(layout) = Layout::decode(data) {
        let once = layout.encode();
        let again = Layout::decode(&once).expect("what was encoded decodes");
        assert_eq!(again.encode(), once);
    }
    if let Ok(spec) = Spec::decode(data) {
        let _ = spec.check();
    }
});
