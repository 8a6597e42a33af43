//! Bodies of messages: a decoded body must encode and decode to the same bytes again.
#![no_main]

use sheen_wire::frame::{Hello, Welcome, from_body, to_body};

fn check<T: serde::Serialize + serde::de::DeserializeOwned>(data: &[u8]) {
    if let Ok(value) = from_body::<T>(data) {
        let once = to_body(&value).expect("encodes");
        let again: T = from_body(&once).expect("decodes");
        assert_eq!(to_body(&again).expect("encodes"), once);
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    match which % 10 {
        0 => check::<sheen_wire::mds::Call>(data),
        1 => check::<sheen_wire::mds::Answer>(data),
        2 => check::<sheen_wire::ost::Request>(data),
        3 => check::<sheen_wire::ost::Reply>(data),
        4 => check::<sheen_wire::mgs::Request>(data),
        5 => check::<sheen_wire::mgs::Reply>(data),
        6 => check::<sheen_wire::ast::Callback>(data),
        7 => check::<Hello>(data),
        8 => check::<sheen_wire::auth::Auth>(data),
        _ => check::<Welcome>(data),
    }
});
