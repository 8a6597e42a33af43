//! `llapi_parse_size`: parses sizes of command lines.

use std::ffi::{c_char, c_int, c_ulonglong};

use sheen_wire::{Errno, Result};

use crate::ffi::{or_minus_one, put, shared, text};

/// Parses a size. Returns its bytes, and the bytes of its unit. `bytes`: `b` means bytes, not
/// blocks of 512 bytes. `unit`: the unit of a number without a suffix.
fn parse(text: &str, unit: u64, bytes: bool) -> Result<(u64, u64)> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, suffix) = digits.split_at(end);
    // `0k`: the zero is the number, and no octal prefix.
    let number = if digits.is_empty() && radix == 8 { Ok(0) } else { u64::from_str_radix(digits, radix) };
    let unit = match suffix {
        "" => unit,
        "b" if bytes => 1,
        "b" => 1 << 9,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1 << 40,
        "p" | "P" => 1 << 50,
        "e" | "E" => 1 << 60,
        _ => return Err(Errno::EINVAL),
    };
    let size = number.ok().and_then(|number| number.checked_mul(unit)).ok_or(Errno::EINVAL)?;
    Ok((size, unit))
}

/// Parses a size such as `64k` or `0x10M`. Suffixes go from `b` (blocks of 512 bytes; with
/// `bytes_spec` bytes) to `e` (exabytes). A number without a suffix is in units of `*units`, which
/// then holds the unit that was used. Returns 0, or -1 with EINVAL: no size, negative, or too
/// large.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_parse_size(
    string: *const c_char,
    size: *mut c_ulonglong,
    units: *mut c_ulonglong,
    bytes_spec: c_int,
) -> c_int {
    or_minus_one(|| {
        let text = unsafe { text(string)? }.to_str().map_err(|_| Errno::EINVAL)?;
        let (found, unit) = parse(text, *unsafe { shared(units)? }, bytes_spec != 0)?;
        unsafe {
            put(size, found)?;
            put(units, unit)?;
        }
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_size_parses_sizes_as_lustre_does() {
        for (text, bytes, want) in [
            ("5", false, (5 << 10, 1 << 10)),
            ("0", false, (0, 1 << 10)),
            ("0k", false, (0, 1 << 10)),
            ("010k", false, (8 << 10, 1 << 10)),
            ("0x10M", false, (16 << 20, 1 << 20)),
            ("3b", false, (1536, 512)),
            ("3b", true, (3, 1)),
            ("1E", true, (1 << 60, 1 << 60)),
        ] {
            assert_eq!(parse(text, 1 << 10, bytes), Ok(want), "{text}");
        }
        for text in ["", "-1", "k", "0x", "1kk", "1 k", "16E", "99999999999999999999"] {
            assert_eq!(parse(text, 1, true), Err(Errno::EINVAL), "{text}");
        }
    }
}
