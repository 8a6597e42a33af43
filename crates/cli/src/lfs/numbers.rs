//! Parsing of numbers as users of `lfs` write them.

/// Parses a number like C's `strtoul` with base 0: decimal, `0x` hexadecimal or `0` octal.
pub fn parse_unsigned(text: &str) -> Option<u64> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match (hex, text.strip_prefix('0')) {
        (Some(hex), _) => (hex, 16),
        (None, Some(octal)) if !octal.is_empty() => (octal, 8),
        _ => (text, 10),
    };
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None; // from_str_radix would allow a sign
    }
    u64::from_str_radix(digits, radix).ok()
}

/// Parses a number like [`parse_unsigned`], with an optional minus sign.
pub fn parse_signed(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => i64::try_from(parse_unsigned(digits)?).ok().map(|n| -n),
        None => i64::try_from(parse_unsigned(text)?).ok(),
    }
}

/// Parses a size in bytes with an optional suffix in either case: `64K`, `4m`, `1G`, `2T`, `1P`,
/// `1E`. The suffix `b` is a block of 512 bytes. Returns `None` on overflow.
pub fn parse_size(text: &str) -> Option<u64> {
    let shift = match text.chars().last()?.to_ascii_lowercase() {
        // In a hexadecimal number b and e are digits.
        'b' | 'e' if text.starts_with("0x") || text.starts_with("0X") => 0,
        'b' => 9,
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        'p' => 50,
        'e' => 60,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    parse_unsigned(digits)?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_size_accepts_suffixes_and_refuses_bad_numbers() {
        for (text, want) in [
            ("64k", Some(65536)),
            ("64K", Some(65536)),
            ("1m", Some(1 << 20)),
            ("4G", Some(4 << 30)),
            ("1T", Some(1 << 40)),
            ("8b", Some(4096)),
            ("0x100000", Some(1 << 20)),
            ("0x1b", Some(27)),
            ("010", Some(8)),
            ("0", Some(0)),
            ("16E", None),
            ("-1", None),
            ("+1", None),
            ("abc", None),
            ("K", None),
            ("", None),
            ("1 K", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse_size(text), want, "{text}");
        }
        assert_eq!(parse_signed("-32"), Some(-32));
        assert_eq!(parse_signed("--1"), None);
        assert_eq!(parse_signed("99999999999"), Some(99_999_999_999));
    }
}
