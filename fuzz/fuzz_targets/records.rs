//! Data on disk: the MDT's records, the MGS's registry, an OST's identity and the paths of objects.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    sheen_namespace::fuzz_records(data);
    if let Ok(registry) = sheen_mgs::Registry::decode(data) {
        let once = registry.encode().expect("what was decoded can be encoded");
        let again = sheen_mgs::Registry::decode(&once).expect("decodes");
        assert_eq!(again.encode().expect("encodes"), once);
    }
    let _ = sheen_objects::Identity::parse(data);
    if let Ok(path) = std::str::from_utf8(data)
        && let Some(object) = sheen_objects::name::parse(path)
    {
        assert_eq!(sheen_objects::name::path(object).to_str(), Some(path), "one path per object");
    }
});
