//! Sizes as IOR and mdtest read and print them: `4k`, `2m`, `1 MiB`, `47008 bytes`.

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Reads a number of bytes with an optional suffix k, m, g or t (powers of 1024).
///
/// # Errors
/// A message for the user if the text is not a size.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size: expected a number of bytes, or one with k, m, g or t, as in 4k");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" | "kib" => KIB,
        "m" | "mib" => MIB,
        "g" | "gib" => GIB,
        "t" | "tib" => TIB,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(|| format!("'{text}' is too large"))
}

/// Formats a number of bytes as IOR does: units from MiB up, without a fraction if there is none.
pub fn human(bytes: u64) -> String {
    let (unit, name) = match bytes {
        TIB.. => (TIB, "TiB"),
        GIB.. => (GIB, "GiB"),
        MIB.. => (MIB, "MiB"),
        _ => return format!("{bytes} bytes"),
    };
    if bytes.is_multiple_of(unit) {
        format!("{} {name}", bytes / unit)
    } else {
        format!("{:.2} {name}", bytes as f64 / unit as f64)
    }
}

/// Formats a number of bytes as [`human`], and with KiB below a MiB.
pub fn with_kib(bytes: u64) -> String {
    match bytes {
        KIB..MIB if bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
        _ => human(bytes),
    }
}

/// Reads numbers and ranges `LOW-HIGH`, in which each number is twice the last, separated by
/// commas: `1,4-16` is 1, 4, 8, 16. Returns them in ascending order.
///
/// # Errors
/// A message for the user.
pub fn numbers(text: &str) -> Result<Vec<u64>, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (parse(low)?, parse(high)?);
        if low == 0 || low > high {
            return Err(format!("{part}: expected a number, or LOW-HIGH"));
        }
        all.extend(std::iter::successors(Some(low), |n| n.checked_mul(2)).take_while(|n| *n <= high));
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse("47008"), Ok(47008));
        assert_eq!((parse("4k"), parse("2M"), parse("1g"), parse("3t")), (Ok(4096), Ok(2 * MIB), Ok(GIB), Ok(3 * TIB)));
        for wrong in ["", "k", "4x", "-1", "1.5m", "4kk"] {
            assert!(parse(wrong).unwrap_err().contains("is not a size"), "{wrong}");
        }
        assert_eq!(parse("99999999999t").unwrap_err(), "'99999999999t' is too large");
    }

    #[test]
    fn sizes_are_printed_as_by_ior() {
        let printed = [262_144, MIB, 3 * MIB / 2, 5 * GIB, TIB].map(human);
        assert_eq!(printed, ["262144 bytes", "1 MiB", "1.50 MiB", "5 GiB", "1 TiB"]);
        assert_eq!([65_536, 47_008, MIB].map(with_kib), ["64 KiB", "47008 bytes", "1 MiB"]);
    }
}
