//! The C library and the file system read the same bytes in the same way. The bytes are the layouts
//! in the recordings of a real Lustre.

use std::collections::BTreeSet;

use sheen_layout::Layout as FileLayout;

use super::*;

const RECORDINGS: [&str; 2] = [
    include_str!("../../../../../tests/reference/026-flr-fresh.txt"),
    include_str!("../../../../../tests/reference/070-xattr.txt"),
];

/// Returns the recorded layouts of files and directories, each once.
fn recorded() -> BTreeSet<&'static str> {
    let values = RECORDINGS.iter().flat_map(|text| text.lines());
    values
        .filter_map(|line| line.strip_prefix("lustre.lov=0x").or_else(|| line.strip_prefix("trusted.lov=0x")))
        .collect()
}

/// Compares one component as the library reads it with the file system's.
fn check_component(ours: &Component, theirs: &sheen_layout::Component, hex: &str) {
    assert_eq!((ours.id, ours.flags), (theirs.id, theirs.flags), "{hex}");
    assert_eq!((ours.start, ours.end), (theirs.start, theirs.end), "{hex}");
    assert_eq!(pattern_to(ours.pattern), theirs.pattern, "{hex}");
    assert_eq!(ours.is_extension(), theirs.is_extension(), "{hex}");
    assert_eq!(ours.mirror_id(), u32::from(theirs.mirror_id()), "{hex}");
    let size = theirs.extension_size().unwrap_or(u64::from(theirs.stripe_size));
    assert_eq!(if ours.stripe_size == DEFAULT { 0 } else { ours.stripe_size }, size, "{hex}");
    assert_eq!(count_to(ours.stripe_count), Ok(theirs.stripe_count), "{hex}");
    assert_eq!(ours.pool, theirs.pool.as_ref().map_or("", |pool| pool.as_str()).as_bytes(), "{hex}");
    let osts: Vec<u32> = theirs.stripes.iter().map(|stripe| stripe.ost).collect();
    assert_eq!(ours.osts, osts, "{hex}");
}

#[test]
fn decode_agrees_with_the_file_system_on_recorded_layouts() {
    let recorded = recorded();
    assert!(recorded.len() >= 9, "the recordings have {} layouts", recorded.len());
    for hex in recorded.iter().copied().chain([OVERSTRIPED, PFL, DOM, SEL, MIRRORED, POOLED]) {
        let bytes = bytes(hex);
        let theirs = FileLayout::decode(&bytes).unwrap();
        // The stated length of a plain layout does not count the objects, 24 bytes each.
        let objects = if theirs.is_plain() { theirs.stripes().len() } else { 0 };
        assert_eq!(length(&bytes), Ok(bytes.len() - 24 * objects), "{hex}");
        // A directory's default has no objects.
        let ours = decode(&bytes, !theirs.stripes().is_empty()).unwrap();
        assert_eq!(ours.composite, !theirs.is_plain(), "{hex}");
        assert_eq!(ours.components().len(), theirs.components().len(), "{hex}");
        for (ours, theirs) in ours.components().iter().zip(theirs.components()) {
            check_component(ours, theirs, hex);
        }
        if let Some(header) = theirs.composite() {
            let ours = (ours.generation, ours.flags, ours.mirror_count);
            assert_eq!(ours, (header.layout_gen, header.flags, header.mirror_count), "{hex}");
        }
    }
}

/// A request that the library makes of a file's layout means the same as the layout itself, set as
/// `lustre.lov`.
#[test]
fn requests_made_of_recorded_layouts_agree_with_the_file_system() {
    for hex in recorded().into_iter().chain([OVERSTRIPED, PFL, DOM, SEL, MIRRORED, POOLED]) {
        let bytes = bytes(hex);
        let mut request = decode(&bytes, false).unwrap().as_request();
        request.components_mut().iter_mut().for_each(Component::reset_osts);
        assert_eq!(Asked::decode(&encode(&request).unwrap()), Asked::decode(&bytes), "{hex}");
    }
}
