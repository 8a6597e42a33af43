//! What is said on standard error, and how much: `llapi_msg_set_level`, and what `llapi_error` of
//! the header ends in. And which version this is.
//!
//! A function of C with as many arguments as one likes cannot be written in Rust, so `llapi_error`
//! and `llapi_printf` are inline functions of the header: they put the text together, and it comes
//! here.

use std::{
    ffi::{c_char, c_int, c_uint},
    io::Write,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

use sheen_wire::Errno;

use crate::border::{or_minus_one, put_text, text};

/// `LLAPI_MSG_ERROR`.
pub const ERROR: c_int = 2;
/// Nothing, everything, what goes to standard output, and the bits of a level that are the level.
const OFF: c_int = 0;
const MAX: c_int = 7;
const NORMAL: c_int = 4;
const LEVEL_MASK: c_int = 7;
/// `LLAPI_MSG_NO_ERRNO`: the text alone.
const NO_ERRNO: c_int = 0x10;

static LEVEL: AtomicI32 = AtomicI32::new(MAX);

/// Says something, if that much is to be said. `e`: why.
pub fn say(level: c_int, e: Option<Errno>, text: &str) {
    if level & LEVEL_MASK > LEVEL.load(Relaxed) {
        return;
    }
    let line = match e {
        Some(e) => format!("{text}: {e} ({})\n", e.0),
        None => format!("{}\n", text.trim_end_matches('\n')),
    };
    // Where even that fails there is nobody to tell.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// From 0, nothing, to 7, everything; what is beyond counts as that.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_msg_set_level(level: c_int) {
    LEVEL.store(level.clamp(OFF, MAX), Relaxed);
}

/// The level that was set.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_msg_get_level() -> c_int {
    LEVEL.load(Relaxed)
}

/// This library's version: 0, or -1 with `errno`. EINVAL: null. EOVERFLOW: it does not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_version_string(version: *mut c_char, room: c_uint) -> c_int {
    let text = env!("CARGO_PKG_VERSION").as_bytes();
    or_minus_one(|| unsafe { put_text(version, room as usize, text, Errno::EOVERFLOW) }.map(|()| 0))
}

/// What `llapi_error` of the header calls: `error` is an errno, also negated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheen_llapi_error(level: c_int, error: c_int, message: *const c_char) {
    let _ = or_minus_one(|| {
        let message = unsafe { text(message)? }.to_string_lossy();
        let why = (level & NO_ERRNO == 0).then(|| Errno(error.wrapping_abs()));
        say(level, why, &message);
        Ok(0)
    });
}

/// What `llapi_printf` of the header calls: as it is, on standard output; warnings and worse on
/// standard error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheen_llapi_printf(level: c_int, message: *const c_char) {
    let _ = or_minus_one(|| {
        let message = unsafe { text(message)? }.to_bytes();
        let level = level & LEVEL_MASK;
        if level <= LEVEL.load(Relaxed) {
            let _ = match level {
                NORMAL.. => std::io::stdout().write_all(message).and_then(|()| std::io::stdout().flush()),
                _ => std::io::stderr().write_all(message),
            };
        }
        Ok(0)
    });
}
