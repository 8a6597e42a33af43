//! Numbers to compare with, as in find(1) and Lustre: `N` is equal, `+N` is more, `-N` is less,
//! with the precision of the unit.

use sheen_admin::find::{Range, Side};

use super::super::numbers::{parse_size, parse_unsigned};

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

fn sided(text: &str) -> (Side, &str) {
    match text.as_bytes().first() {
        Some(b'+') => (Side::More, &text[1..]),
        Some(b'-') => (Side::Less, &text[1..]),
        _ => (Side::Equal, text),
    }
}

/// Parses a count, such as of stripes.
pub fn count(text: &str) -> Option<Range> {
    let (side, number) = sided(text);
    Some(Range { side, value: parse_unsigned(number)?, unit: 1 })
}

/// Parses bytes with a suffix `c` (bytes), `b` (512 bytes), `K`, `M`, `G`, `T`, `P` or `E`.
/// Without a suffix, the unit is `default` bytes.
pub fn size(text: &str, default: u64) -> Option<Range> {
    let (side, number) = sided(text);
    if let Some(bytes) = number.strip_suffix('c').filter(|n| !n.starts_with("0x")) {
        return Some(Range { side, value: parse_unsigned(bytes)?, unit: 1 });
    }
    let (value, unit) = match parse_unsigned(number) {
        Some(n) => (n.checked_mul(default)?, default),
        None => (parse_size(number)?, parse_size(&format!("1{}", number.chars().last()?))?),
    };
    Some(Range { side, value, unit })
}

/// Parses an offset in a file: a size, or `eof`.
pub fn offset(text: &str) -> Option<Range> {
    let (side, number) = sided(text);
    match number.eq_ignore_ascii_case("eof") {
        true => Some(Range { side, value: u64::MAX, unit: 1 }),
        false => size(text, 1),
    }
}

/// Parses an age: days, or numbers with the letters `s`, `m`, `h`, `d`, `w`, `y`, such as
/// `8h20m`. The smallest letter is the unit.
pub fn age(text: &str) -> Option<Range> {
    let (side, number) = sided(text);
    if let Some(days) = parse_unsigned(number) {
        return Some(Range { side, value: days.checked_mul(DAY)?, unit: DAY });
    }
    let (mut value, mut least) = (0u64, u64::MAX);
    for part in number.split_inclusive(|c: char| c.is_ascii_alphabetic()) {
        let unit = match part.chars().last()? {
            's' => 1,
            'm' => MINUTE,
            'h' => 60 * MINUTE,
            'd' => DAY,
            'w' => 7 * DAY,
            'y' => 365 * DAY,
            _ => return None,
        };
        value = value.checked_add(parse_unsigned(&part[..part.len() - 1])?.checked_mul(unit)?)?;
        least = least.min(unit);
    }
    (least < u64::MAX).then_some(Range { side, value, unit: least })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(text: &str, value: u64) -> bool {
        size(text, 1).unwrap().holds(value)
    }

    #[test]
    fn find_size_ranges_round_up_to_units() {
        const M: u64 = 1 << 20;
        for (text, holding, others) in [
            ("0", &[0][..], &[1][..]),
            ("5M", &[5 * M, 4 * M + 1], &[4 * M, 5 * M + 1]),
            ("+5M", &[5 * M + 1], &[5 * M]),
            ("-5M", &[0, 4 * M], &[4 * M + 1, 5 * M]),
            ("-1M", &[0], &[1]),
            ("5242880c", &[5 * M], &[5 * M - 1]),
            ("2b", &[1024, 513], &[512, 1025]),
            ("+0", &[1, u64::MAX], &[0]),
            ("-0", &[], &[0, 1]),
            ("0x10", &[16], &[10]),
        ] {
            assert!(holding.iter().all(|v| fits(text, *v)), "{text} holds {holding:?}");
            assert!(!others.iter().any(|v| fits(text, *v)), "{text} does not hold {others:?}");
        }
        assert!(size("1", 1024).unwrap().holds(1024) && !size("1", 1024).unwrap().holds(1025));
        assert!(offset("eof").unwrap().holds(u64::MAX) && !offset("-EOF").unwrap().holds(u64::MAX));
        assert!(count("-2").unwrap().holds(1) && !count("-2").unwrap().holds(2));
    }

    #[test]
    fn find_age_ranges_round_down_to_units() {
        const H: i64 = 3600;
        for (text, holding, others) in [
            ("3", &[72 * H, 96 * H - 1][..], &[72 * H - 1, 96 * H][..]),
            ("+2", &[72 * H], &[72 * H - 1]),
            ("-1", &[0, 24 * H - 1, -5], &[24 * H]),
            ("0", &[0, 24 * H - 1], &[-1, 24 * H]),
            ("72h", &[72 * H, 73 * H - 1], &[73 * H]),
            ("8h20m", &[500 * 60, 500 * 60 + 59], &[501 * 60, 500 * 60 - 1]),
            ("1w", &[7 * 24 * H], &[6 * 24 * H]),
            ("+1y", &[730 * 24 * H], &[366 * 24 * H]),
        ] {
            let range = age(text).unwrap();
            assert!(holding.iter().all(|v| range.holds_age(*v)), "{text} holds {holding:?}");
            assert!(!others.iter().any(|v| range.holds_age(*v)), "{text} does not hold {others:?}");
        }
    }

    #[test]
    fn find_ranges_refuse_bad_numbers() {
        for text in ["", "+", "-", "x", "1x", "++1", "+-1", "1.5M", "99999999999999999999", "16E", "é", "1é"] {
            assert_eq!(size(text, 1), None, "{text:?}");
            assert_eq!(age(text), None, "{text:?}");
            assert_eq!(count(text), None, "{text:?}");
        }
        for text in ["d", "1d2", "1q", "1d-2h", "999999999999999999y"] {
            assert_eq!(age(text), None, "{text:?}");
        }
        assert_eq!((count("1M"), size("c", 1)), (None, None));
    }
}
