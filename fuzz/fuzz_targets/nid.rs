//! NIDs, mount sources and FIDs as users type them.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(nid) = text.parse::<sheen_lnet::Nid>() {
        assert_eq!(nid.to_string().parse::<sheen_lnet::Nid>().ok(), Some(nid));
    }
    let _ = sheen_lnet::parse_source(text);
    if let Ok(fid) = text.parse::<sheen_wire::Fid>() {
        assert_eq!(fid.to_string().parse(), Ok(fid));
    }
});
