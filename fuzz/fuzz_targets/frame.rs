//! Headers of frames.
#![no_main]

use sheen_wire::frame::{HEADER_LEN, Header};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((head, body)) = data.split_first_chunk::<HEADER_LEN>() else { return };
    if let Ok((header, crc)) = Header::decode(head) {
        let good = header.verify(crc, body).is_ok();
        let (again, crc) = Header::decode(&header.encode(body)).expect("what was decoded can be encoded");
        assert_eq!(again, header);
        assert!(again.verify(crc, body).is_ok() || !good);
    }
});
