//! Messages on standard error and their level: `llapi_msg_set_level`, and the function behind
//! `llapi_error` of the header. Also the version of this library.
//!
//! Rust cannot define a C function with a variable number of arguments. `llapi_error` and
//! `llapi_printf` are therefore inline functions of the header. They format the text and pass it to
//! this module.

use std::{
    ffi::{c_char, c_int, c_uint},
    io::Write,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

use sheen_wire::Errno;

use crate::ffi::{or_minus_one, put_text, text};

/// `LLAPI_MSG_ERROR`.
pub const ERROR: c_int = 2;
/// Levels: nothing, everything, messages for standard output; and the mask of a level's bits.
const OFF: c_int = 0;
const MAX: c_int = 7;
const NORMAL: c_int = 4;
const LEVEL_MASK: c_int = 7;
/// `LLAPI_MSG_NO_ERRNO`: print only the text.
const NO_ERRNO: c_int = 0x10;

static LEVEL: AtomicI32 = AtomicI32::new(MAX);

/// Prints a message if its level is enabled. `e`: the cause.
pub fn say(level: c_int, e: Option<Errno>, text: &str) {
    if level & LEVEL_MASK > LEVEL.load(Relaxed) {
        return;
    }
    let line = match e {
        Some(e) => format!("{text}: {e} ({})\n", e.0),
        None => format!("{}\n", text.trim_end_matches('\n')),
    };
    // A failure of standard error cannot be reported anywhere.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Sets the level, from 0 (nothing) to 7 (everything). Other values are clamped.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_msg_set_level(level: c_int) {
    LEVEL.store(level.clamp(OFF, MAX), Relaxed);
}

/// Returns the level.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_msg_get_level() -> c_int {
    LEVEL.load(Relaxed)
}

/// Stores this library's version. Returns 0, or -1 with `errno`. EINVAL: null. EOVERFLOW: it does
/// not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_version_string(version: *mut c_char, room: c_uint) -> c_int {
    let text = env!("CARGO_PKG_VERSION").as_bytes();
    or_minus_one(|| unsafe { put_text(version, room as usize, text, Errno::EOVERFLOW) }.map(|()| 0))
}

/// The function that `llapi_error` of the header calls. `error`: an errno, possibly negated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheen_llapi_error(level: c_int, error: c_int, message: *const c_char) {
    let _ = or_minus_one(|| {
        let message = unsafe { text(message)? }.to_string_lossy();
        let why = (level & NO_ERRNO == 0).then(|| Errno(error.wrapping_abs()));
        say(level, why, &message);
        Ok(0)
    });
}

/// The function that `llapi_printf` of the header calls. It prints the text unchanged on standard
/// output; warnings and worse on standard error.
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
